"""Robustness of estimators to corrupted tables: a counterpart of CIFAR-C."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_consistent_length

from combutab.evaluation.robustness._corruptions import (
    SEVERITIES,
    Corrupter,
    Corruption,
    OwnCorruption,
    check_same_columns,
    read_corruptions,
    read_severities,
)

CLEAN = "clean"
_PROBE = 16  # rows that show whether an estimator takes a corrupted table at all


@dataclass(frozen=True, eq=False)
class Robustness:
    """Result of `robustness`.

    Attributes
    ----------
    scores : DataFrame, one row an estimator, corruption and severity
        ``estimator``, ``corruption``, ``severity``, ``score``; "clean" has severity 0.
    summary : DataFrame, one row an estimator, as they were given
        ``estimator``; ``clean``; ``corrupted``, the mean over the corruptions of the means over
        the severities; ``drop``, clean minus corrupted; with a baseline also ``mce`` and
        ``relative_mce``.
    scoring : str
        What the scores are; larger is better.
    """

    scores: pd.DataFrame
    summary: pd.DataFrame
    scoring: str


def robustness(
    estimator: Any,
    X_test: Any,
    y_test: Any,
    *,
    corruptions: Iterable[str | OwnCorruption] | Mapping[str, OwnCorruption] | None = None,
    severities: Iterable[int] = SEVERITIES,
    X_reference: Any = None,
    categorical: Iterable[Hashable] = (),
    scoring: str | Callable[[Any, Any, Any], float] | None = None,
    baseline: str | None = None,
    perfect_score: float | None = None,
    random_state: Any = 0,
) -> Robustness:
    """Score fitted estimators on a test table and on versions of it that have gone wrong.

    Parameters
    ----------
    estimator : fitted estimator, or mapping of name to fitted estimator
        Any of scikit-learn's kind. Those of a mapping are scored on the very same tables.
    X_test : DataFrame or array of shape (n_samples, n_features)
        Left as it is; estimators are given what it is, a DataFrame or an array.
    y_test : array-like of shape (n_samples,) or (n_samples, n_outputs)
    corruptions : list of names or functions, or mapping of name to function, optional
        Names of `CORRUPTIONS`: "gaussian_noise", "heavy_tailed_noise", "scale", "shift",
        "clipping", "rounding", "category_swap", "missing", "column_dropout"; by default all for
        which the table has columns. Functions are ``(table, severity, numpy Generator) -> table``.
    severities : list of int, default=(1, 2, 3, 4, 5)
    X_reference : DataFrame or array, optional
        Gives standard deviations, quantiles, medians and categories, such as the training table;
        by default the test table.
    categorical : list of column names, default=()
        Columns of numbers that are codes of categories: swapped, but given no noise.
    scoring : str or callable, optional
        As in scikit-learn; by default the estimator's ``score``.
    baseline : str, optional
        The name of one of the estimators: adds mean corruption errors relative to it.
    perfect_score : float, optional
        What an estimator without errors scores, for ``baseline``. By default 0 for scorings that
        begin with ``"neg_"``, and 1 for others by name, such as "accuracy" and "r2".
    random_state : None, int or RandomState, default=0
        The same number makes the same tables, whichever corruptions and severities are asked for.

    Returns
    -------
    Robustness

    Raises
    ------
    TypeError
        X_test or X_reference is neither a pandas DataFrame nor an array, or a corruption neither
        a name nor a function.
    ValueError
        A name, a severity or the baseline is unknown, rows or columns do not fit, or a corruption
        that is asked for has no column to act on.
    Exception
        Whatever an estimator raises; a note says at which corruption. One that takes no missing
        values is found before the work begins: leave "missing" out, or put an imputer before it.

    Notes
    -----
    Columns are numbers, categories (text, categorical and truth values, and those named), or
    times. Times suffer missing values and dropout alone. Whole numbers that a corruption
    changes become floats, and truth values that lose some become floats of 0 and 1, since whole
    numbers and truths have no missing value; all else keeps its dtype and its categories.

    With errors ``E = perfect_score - score``, estimator f and baseline b, the corruption error is
    ``CE_c = sum_s E_sc(f) / sum_s E_sc(b)`` over severities s, and ``mce`` its mean over the
    corruptions c. ``relative_mce`` has the errors minus those of the clean table. Both are 1 for
    the baseline; smaller is better.

    One corrupted table is held at a time, of which only the columns that change are copies.

    References
    ----------
    D. Hendrycks and T. Dietterich, "Benchmarking neural network robustness to common corruptions
    and perturbations", ICLR 2019. Tables have other corruptions than images: those here, and
    their levels, are ours.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> models = {"linear": LogisticRegression(max_iter=1000).fit(X, y),
    ...           "tree": DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)}
    >>> found = robustness(models, X, y, corruptions=["gaussian_noise", "scale"], baseline="tree")
    >>> found.summary[["estimator", "clean", "corrupted", "mce"]].round(2)
      estimator  clean  corrupted   mce
    0    linear   0.97       0.81  1.14
    1      tree   0.96       0.83  1.00
    """
    models = dict(estimator) if isinstance(estimator, Mapping) else {_class(estimator): estimator}
    table, is_array = _as_table(X_test, "X_test")
    check_consistent_length(table, y_test)
    reference = table if X_reference is None else _as_table(X_reference, "X_reference")[0]
    corrupter = Corrupter(reference, categorical, random_state)
    check_same_columns(table, corrupter)
    chosen = read_corruptions(corruptions, corrupter)
    asked = read_severities(severities)
    if not models:
        raise ValueError("estimator is an empty mapping; give at least one fitted estimator")
    if baseline is not None:
        perfect_score = _check_baseline(baseline, models, scoring, perfect_score)
    if CLEAN in chosen:
        raise ValueError(f"{CLEAN!r} is the name of the clean table; call the corruption otherwise")
    scorers = {name: check_scoring(model, scoring=scoring) for name, model in models.items()}

    def given(rows: pd.DataFrame) -> Any:
        return rows.to_numpy() if is_array else rows

    _probe(models, table.head(_PROBE), corrupter, chosen, asked[-1], given)
    rows = [(name, CLEAN, 0, scorers[name](models[name], given(table), y_test)) for name in models]
    for corruption, way in chosen.items():
        for severity in asked:
            wrong = given(corrupter(table, corruption, way, severity))
            for name, model in models.items():
                with _noting(name, corruption, severity):
                    rows.append((name, corruption, severity, scorers[name](model, wrong, y_test)))
            del wrong  # before the next is made
    scores = pd.DataFrame(rows, columns=["estimator", "corruption", "severity", "score"])
    summary = _summarise(scores, baseline, perfect_score)
    return Robustness(scores, summary, _scoring_name(scoring, next(iter(models.values()))))


def _class(estimator: Any) -> str:
    return type(estimator).__name__


def _as_table(X: Any, name: str) -> tuple[pd.DataFrame, bool]:
    """A DataFrame, and whether it was an array."""
    if isinstance(X, pd.DataFrame):
        table, is_array = X, False
    elif isinstance(X, np.ndarray) and X.ndim == 2:
        table, is_array = pd.DataFrame(X), True
    else:
        shape = f" of shape {X.shape}" if isinstance(X, np.ndarray) else ""
        raise TypeError(
            f"{name} must be a pandas DataFrame or a 2-D array, got {type(X).__name__}{shape}; "
            "convert it, by its to_pandas() say"
        )
    if not len(table):
        raise ValueError(f"{name} has no rows")
    return table, is_array


def _check_baseline(
    baseline: str, models: Mapping[str, Any], scoring: Any, perfect_score: float | None
) -> float:
    """The score of an estimator without errors."""
    if baseline not in models:
        raise ValueError(f"baseline={baseline!r} is none of the estimators: {', '.join(models)}")
    if perfect_score is not None:
        return perfect_score
    if callable(scoring):
        raise ValueError(
            "errors relative to the baseline need to know what a perfect estimator scores; give "
            "perfect_score, or a scoring by name"
        )
    return 0.0 if str(scoring).startswith("neg_") else 1.0


def _probe(
    models: Mapping[str, Any],
    rows: pd.DataFrame,
    corrupter: Corrupter,
    chosen: Mapping[str, Corruption | OwnCorruption],
    severity: int,
    given: Callable[[pd.DataFrame], Any],
) -> None:
    """Let every estimator predict a few rows of every kind, so that it fails before the work."""
    for corruption, way in chosen.items():
        wrong = given(corrupter(rows, corruption, way, severity))
        for name, model in models.items():
            with _noting(name, corruption, severity):
                model.predict(wrong)


@contextmanager
def _noting(name: str, corruption: str, severity: int) -> Iterator[None]:
    """Say of errors where they happened, and the way out."""
    try:
        yield
    except Exception as error:
        error.add_note(
            f"The estimator {name!r}, at the corruption {corruption!r} of severity {severity}. If "
            "it cannot take such tables, name the other corruptions in corruptions=, or put what "
            "it lacks (an imputer, say) before it in a pipeline."
        )
        raise


def _scoring_name(scoring: Any, model: Any) -> str:
    if scoring is None:
        from sklearn.base import is_classifier, is_regressor

        return "accuracy" if is_classifier(model) else "r2" if is_regressor(model) else "score"
    return scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")


def _summarise(
    scores: pd.DataFrame, baseline: str | None, perfect_score: float | None
) -> pd.DataFrame:
    is_clean = scores["corruption"] == CLEAN
    clean = scores[is_clean].set_index("estimator")["score"]
    # (estimator, corruption), means over the severities
    means = scores[~is_clean].pivot_table(
        index="estimator", columns="corruption", values="score", aggfunc="mean", dropna=False
    )
    means = means.loc[clean.index]
    table = pd.DataFrame({"clean": clean, "corrupted": means.mean(axis=1, skipna=False)})
    table["drop"] = table["clean"] - table["corrupted"]
    if baseline is not None:
        assert perfect_score is not None
        for name, errors in (
            ("mce", perfect_score - means),
            ("relative_mce", means.rsub(clean, axis=0)),
        ):
            table[name] = _ratio(errors, pd.Series(errors.loc[baseline])).mean(axis=1, skipna=False)
    return table.reset_index()


def _ratio(errors: pd.DataFrame, of_baseline: pd.Series) -> pd.DataFrame:
    """1 where both have no error, infinite where the baseline alone has none."""
    ratios = errors / of_baseline.where(of_baseline != 0, math.nan)
    no_error = of_baseline.to_numpy()[None, :] == 0
    return ratios.mask(no_error & (errors == 0), 1.0).mask(no_error & (errors > 0), math.inf)
