"""Robustness: scores of a fitted estimator on corrupted copies of a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.utils.validation import check_consistent_length

from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.scorers import make_target_scorer, scorer_name
from combutab.core.text import as_names, known_instead
from combutab.preprocessing import ColumnKind, Table, dtype_kind

# ---- Columns: kinds, scales, categories, and new values in the same dtype ------------------------

Kind = Literal["number", "category", "time"]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the reference table, which gives a corruption its scale."""

    kind: Kind
    reference: pd.Series

    @cached_property
    def numbers(self) -> np.ndarray:
        """The finite values of a number column."""
        values = float_values(self.reference)
        return values[np.isfinite(values)]

    @cached_property
    def sd(self) -> float:
        """Standard deviation of a number column, 0 if it has no values."""
        return float(self.numbers.std()) if len(self.numbers) else 0.0

    @cached_property
    def categories(self) -> np.ndarray:
        """The distinct values of a category column."""
        return np.asarray(self.reference.dropna().unique(), dtype=object)

    @cached_property
    def typical(self) -> Any:
        """The (lower) median, or the most frequent category; None if all are missing."""
        present = self.reference.dropna()
        if not len(present):
            return None
        if self.kind == "category":
            return present.value_counts().idxmax()
        return present.sort_values().iloc[(len(present) - 1) // 2]


def _corrupted_kind(column: pd.Series) -> Kind:
    kind = dtype_kind(column.dtype)  # a corrupted column keeps its dtype
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        return "time"
    return "number" if kind == ColumnKind.NUMBER else "category"


def float_values(column: pd.Series) -> np.ndarray:
    """Return the values as float64, with NaN for missing ones."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def with_numbers(column: pd.Series, values: np.ndarray) -> pd.Series:
    """Return the column with these numbers. Integers become floats.

    >>> with_numbers(pd.Series([1, 2], dtype="Int64"), np.array([1.5, np.nan])).dtype
    Float64Dtype()
    """
    dtype: Any = column.dtype
    if getattr(dtype, "kind", "O") != "f" or isinstance(dtype, pd.SparseDtype):
        if isinstance(dtype, pd.ArrowDtype):
            dtype = "double[pyarrow]"
        else:
            plain = isinstance(dtype, np.dtype | pd.SparseDtype | pd.CategoricalDtype)
            dtype = "float64" if plain else "Float64"
    return pd.Series(values, index=column.index, name=column.name).astype(dtype)


def with_values(column: pd.Series, where: np.ndarray, values: Any) -> pd.Series:
    """Return the column with other values where ``where`` is True, in the same dtype."""
    changed = column.to_numpy(dtype=object, copy=True)
    changed[where] = values
    return pd.Series(changed, index=column.index, name=column.name, dtype=column.dtype)


def without(column: pd.Series, where: np.ndarray) -> pd.Series:
    """Return the column with missing values where ``where`` is True. Booleans and integers become
    floats."""
    if not where.any():
        return column
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        column = column.astype(np.float64)
    if column.dtype == object:
        return with_values(column, where, None)
    return column.mask(where)


# ---- Corruptions, each with five severities ------------------------------------------------------

SEVERITIES = (1, 2, 3, 4, 5)
_NUMBERS: tuple[Kind, ...] = ("number",)
_ALL: tuple[Kind, ...] = ("number", "category", "time")


@dataclass(frozen=True)
class Corruption:
    """A kind of data corruption that `robustness` applies to columns.

    Attributes
    ----------
    change : callable
        Function ``(column, reference column, level, generator) -> column``. If it acts only on
        numbers, columns are float64 arrays.
    levels : tuple of 5 floats
        Levels of the severities 1 to 5. Their units are in the notes of `robustness`.
    kinds : tuple of str
        Kinds of columns that it acts on: "number", "category", "time".
    share_of_columns : bool
        Whether the level is the share of the columns that are corrupted (at least one). Otherwise
        all columns of these kinds are.
    """

    change: Callable[[Any, Column, float, np.random.Generator], Any]
    levels: tuple[float, float, float, float, float]
    kinds: tuple[Kind, ...] = _NUMBERS
    share_of_columns: bool = False


def _clip(x: np.ndarray, column: Column, level: float, rng: Any) -> np.ndarray:
    if not len(column.numbers):
        return x
    return np.clip(x, *np.quantile(column.numbers, [level, 1.0 - level]))


def _round(x: np.ndarray, column: Column, level: float, rng: Any) -> np.ndarray:
    step = level * column.sd
    return np.round(x / step) * step if step > 0 else x


def _remove_values(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    return without(column, rng.random(len(column)) < level)


def _swap_categories(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    is_swapped, draws = rng.random(len(column)) < level, rng.random(len(column))
    categories = pd.Index(reference.categories, dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        categories = categories[categories.isin(column.cat.categories)]
    codes = categories.get_indexer(pd.Index(column.to_numpy(dtype=object), dtype=object))
    n_choices = len(categories) - (codes >= 0)
    is_swapped &= (n_choices > 0) & column.notna().to_numpy()
    new_codes = np.floor(draws * n_choices).astype(np.intp)
    new_codes += (codes >= 0) & (new_codes >= codes)  # skip the current category
    return with_values(column, is_swapped, categories.to_numpy()[new_codes[is_swapped]])


def _set_typical(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    typical = reference.typical
    if typical is None:
        return column
    if reference.kind == "number":
        return with_numbers(column, np.full(len(column), float(typical)))
    return pd.Series([typical] * len(column), index=column.index, name=column.name).astype(
        column.dtype
    )


CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption(
        lambda x, column, level, rng: x + level * column.sd * rng.standard_normal(len(x)),
        (0.1, 0.2, 0.3, 0.5, 1.0),
    ),
    "heavy_tailed_noise": Corruption(
        lambda x, column, level, rng: x + level * column.sd * rng.standard_t(2, len(x)),
        (0.05, 0.1, 0.15, 0.25, 0.5),
    ),
    "scale": Corruption(
        lambda x, _, level, rng: x * (1 + level) if rng.random() < 0.5 else x / (1 + level),
        (0.05, 0.1, 0.2, 0.5, 1.0),
    ),
    "shift": Corruption(
        lambda x, column, level, rng: x + level * column.sd * (1 if rng.random() < 0.5 else -1),
        (0.1, 0.2, 0.3, 0.5, 1.0),
    ),
    "clipping": Corruption(_clip, (0.01, 0.05, 0.1, 0.2, 0.4)),
    "rounding": Corruption(_round, (0.25, 0.5, 1.0, 1.5, 2.0)),
    "category_swap": Corruption(_swap_categories, (0.02, 0.05, 0.1, 0.2, 0.4), ("category",)),
    "missing": Corruption(_remove_values, (0.02, 0.05, 0.1, 0.2, 0.4), _ALL),
    "column_dropout": Corruption(
        _set_typical, (0.1, 0.2, 0.3, 0.4, 0.5), _ALL, share_of_columns=True
    ),
}
"""Name -> `Corruption`, for `robustness` and `corrupt`."""


def corrupt(
    X: pd.DataFrame,
    corruption: str,
    severity: int,
    *,
    X_reference: pd.DataFrame | None = None,
    categorical: Iterable[Hashable] = (),
    random_state: Any = 0,
) -> pd.DataFrame:
    """Corrupt a table with noise, missing values or shifts, as `robustness` does.

    Parameters
    ----------
    X : DataFrame
        The table. It is not changed.
    corruption : str
        Name of the corruption, in `CORRUPTIONS`.
    severity : int from 1 to 5
        Severity. The levels are in the notes of `robustness`.
    X_reference : DataFrame, optional
        Table that the standard deviations, quantiles, medians and categories are computed from. By
        default X.
    categorical : list of column names, default=()
        Columns of numbers that are codes of categories.
    random_state : None, int or RandomState, default=0
        Random seed.

    Returns
    -------
    DataFrame
        The corrupted table, with the columns and rows of X. The notes of `robustness` describe the
        dtypes.

    Raises
    ------
    TypeError, ValueError
        As in `robustness`.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [20, 30, 60], "city": ["Rome", "Oslo", "Rome"]})
    >>> corrupt(X, "clipping", 5)
        age  city
    0  28.0  Rome
    1  30.0  Oslo
    2  36.0  Rome
    """
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"X must be a pandas DataFrame, got {type(X).__name__}")
    corrupter = Corrupter(X if X_reference is None else X_reference, categorical, random_state)
    corrupter.check_same_columns(X)
    (name,), (severity,) = corrupter.select_corruptions([corruption]), sort_severities([severity])
    return corrupter(X, name, severity)


class Corrupter:
    """Corrupts tables, with the scales of a reference table.

    Draws depend on the seed, the name of the corruption and the position of the column, but not on
    the severity: a value that is missing at severity 1 is also missing at severity 5.

    Raises ValueError if column names repeat, a name in ``categorical`` is unknown, or the reference
    has no rows.
    """

    def __init__(
        self, reference: pd.DataFrame, categorical: Iterable[Hashable], random_state: Any
    ) -> None:
        names = reference.columns
        if not names.is_unique:
            repeated = sorted(map(str, names[names.duplicated()].unique()))
            raise ValueError(
                f"columns of the table share a name: {', '.join(repeated)}; rename them"
            )
        if not len(reference):
            raise ValueError("the reference table has no rows to take the scales from")
        coded = set(as_names(categorical))
        if unknown := coded - set(names):
            raise ValueError(
                f"categorical names no column of the table: {sorted(map(str, unknown))}"
            )
        self.columns: dict[Any, Column] = {}
        for name in names:
            values = reference[name].infer_objects()  # objects that are all numbers, or all dates
            kind: Kind = "category" if name in coded else _corrupted_kind(values)
            self.columns[name] = Column(kind, values)
        self.seed = seed_from(random_state)

    def matching_columns(self, corruption: Corruption) -> list[Any]:
        """Return the names of the columns that a corruption can act on."""
        return [name for name, column in self.columns.items() if column.kind in corruption.kinds]

    def check_same_columns(self, table: pd.DataFrame) -> None:
        """Raise ValueError if the table does not have the columns of the reference."""
        missing = [str(name) for name in table.columns if name not in self.columns]
        extra = [str(name) for name in self.columns if name not in table.columns]
        if missing or extra:
            raise ValueError(
                f"X_reference must have X's columns: it lacks {missing}, and adds {extra}"
            )

    def select_corruptions(self, corruptions: str | Iterable[str] | None) -> list[str]:
        """Return names of corruptions, by default of all that act on a column.

        Raises ValueError if a name is unknown, or no column is of its kind.
        """
        if corruptions is None:
            return [name for name in CORRUPTIONS if self.matching_columns(CORRUPTIONS[name])]
        names = [corruptions] if isinstance(corruptions, str) else list(dict.fromkeys(corruptions))
        if not names:
            raise ValueError("corruptions is empty; name some of " + ", ".join(CORRUPTIONS))
        for name in names:
            if name not in CORRUPTIONS:
                raise ValueError(
                    f"unknown corruption {name!r}; {known_instead(name, CORRUPTIONS, n=9)}"
                )
            if not self.matching_columns(CORRUPTIONS[name]):
                raise ValueError(
                    f"corruption {name!r} acts on {' and '.join(CORRUPTIONS[name].kinds)} columns, "
                    "and the table has none; leave it out, or name columns of codes in categorical="
                )
        return names

    def __call__(self, table: pd.DataFrame, name: str, severity: int) -> pd.DataFrame:
        """Return the corrupted table. Columns that do not change are shared, not copied."""
        corruption, key = CORRUPTIONS[name], crc32(name.encode())
        level, names = corruption.levels[severity - 1], self.matching_columns(corruption)
        if corruption.share_of_columns:
            order = self._draws(Stream.CORRUPTION, key).permutation(len(names))
            names = [names[i] for i in order[: max(1, round(level * len(names)))]]
        result = table.copy(deep=False)
        for position, (column, reference) in enumerate(self.columns.items()):
            if column not in names:
                continue
            rng = self._draws(Stream.CORRUPTED_COLUMN, key, position)
            values = table[column]
            if corruption.kinds == _NUMBERS:
                numbers = corruption.change(float_values(values), reference, level, rng)
                result[column] = with_numbers(values, numbers)
            else:
                result[column] = corruption.change(values, reference, level, rng)
        return result

    def _draws(self, purpose: Stream, *positions: int) -> np.random.Generator:
        return np.random.default_rng(fold_in(self.seed, purpose, *positions))


def sort_severities(severities: Iterable[int]) -> list[int]:
    """Return the distinct severities in ascending order.

    Raises ValueError if the list is empty or has other values than integers from 1 to 5.
    """
    levels = list(severities)
    if not levels or any(level not in SEVERITIES for level in levels):
        raise ValueError(f"severities must be some of {SEVERITIES}, got {levels}")
    return sorted({int(level) for level in levels})


# ---- Scores of estimators on corrupted tables: a counterpart of CIFAR-C --------------------------

CLEAN = "clean"
_N_PROBES = 16  # rows that show whether an estimator accepts a corrupted table


@dataclass(frozen=True, eq=False)
class Robustness:
    """Result of `robustness`.

    Attributes
    ----------
    scores : DataFrame, one row per estimator, corruption and severity
        ``estimator``, ``corruption``, ``severity`` and ``score``. The corruption "clean" has
        severity 0.
    summary : DataFrame, one row per estimator, in the given order
        ``estimator``; ``clean`` (score on the clean table); ``corrupted`` (mean score over the
        severities, then over the corruptions); ``drop`` (clean minus corrupted).
    scoring : str
        Name of the score; larger is better.
    """

    scores: pd.DataFrame
    summary: pd.DataFrame
    scoring: str

    def __repr__(self) -> str:
        return f"Robustness: {self.scoring}\n{self.summary}"


def robustness(
    estimator: Any,
    X_test: Any,
    y_test: Any,
    *,
    corruptions: Iterable[str] | None = None,
    severities: Iterable[int] = SEVERITIES,
    X_reference: Any = None,
    categorical: Iterable[Hashable] = (),
    scoring: str | Callable[[Any, Any, Any], float] | None = None,
    random_state: Any = 0,
) -> Robustness:
    """Measure the robustness of fitted estimators to corrupted data.

    Parameters
    ----------
    estimator : fitted estimator, or mapping of name to fitted estimator
        Any estimator with the scikit-learn API. Estimators in a mapping are scored on the same
        corrupted tables.
    X_test : DataFrame or array of shape (n_samples, n_features)
        Test rows. They are not changed. Estimators get the same type, a DataFrame or an array.
    y_test : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets of the test rows.
    corruptions : list of names, optional
        Names of `CORRUPTIONS`: "gaussian_noise", "heavy_tailed_noise", "scale", "shift",
        "clipping", "rounding", "category_swap", "missing" or "column_dropout". By default all that
        act on a column of the table.
    severities : list of int, default=(1, 2, 3, 4, 5)
        Severities, from 1 to 5.
    X_reference : DataFrame or array, optional
        Table that the standard deviations, quantiles, medians and categories are computed from,
        such as the training table. By default the test table.
    categorical : list of column names, default=()
        Columns of numbers that are codes of categories. They are swapped and get no noise.
    scoring : str or callable, optional
        Name of a metric in ``METRICS`` or of a scorer of scikit-learn, or a scorer. By default the
        ``score`` method of the estimator.
    random_state : None, int or RandomState, default=0
        Random seed. The same int gives the same tables, independent of the other corruptions and
        severities.

    Returns
    -------
    Robustness

    Raises
    ------
    TypeError
        If X_test or X_reference is neither a pandas DataFrame nor an array.
    ValueError
        If a name or a severity is unknown, rows or columns do not match, or a corruption in
        ``corruptions`` has no column to act on.
    Exception
        Any exception of an estimator, with a note that names the corruption. Estimators that do not
        support missing values are detected at the start: leave "missing" out, or use a pipeline
        with an imputer.

    Notes
    -----
    Each corruption has one level per severity (``CORRUPTIONS[name].levels``):

    - "gaussian_noise": normal noise of ``level`` times the standard deviation of the column.
    - "heavy_tailed_noise": noise of Student's t distribution with 2 degrees of freedom, times
      ``level`` times the standard deviation of the column.
    - "scale": another unit. The column is multiplied or divided by ``1 + level``.
    - "shift": another zero. The column is moved up or down by ``level`` standard deviations.
    - "clipping": values beyond the quantiles ``level`` and ``1 - level`` become these quantiles.
    - "rounding": values are rounded to multiples of ``level`` times the standard deviation.
    - "category_swap": a share ``level`` of the values become another category of the column.
    - "missing": a share ``level`` of the values become missing.
    - "column_dropout": a share ``level`` of the columns (at least one) become constant, at the
      median or the most frequent category.

    Columns hold numbers, categories (text, categorical and boolean columns, and ``categorical``),
    or times. Only "missing" and "column_dropout" act on times. Integers that a corruption changes
    become floats. Booleans with missing values become floats 0 and 1. All other columns keep their
    dtype and their categories.

    Memory holds one corrupted table at a time, with copies of the changed columns only.

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
    >>> robustness(models, X, y, corruptions=["gaussian_noise", "scale"]).summary.round(2)
      estimator  clean  corrupted  drop
    0    linear   0.97       0.81  0.16
    1      tree   0.96       0.83  0.13
    """
    if not isinstance(estimator, Mapping):
        estimator = {type(estimator).__name__: estimator}
    models = dict(estimator)
    test_table = Table(X_test, "X_test")
    test_table.refuse_empty()
    table, is_array = test_table.frame(), test_table.names is None
    check_consistent_length(table, y_test)
    reference = table if X_reference is None else Table(X_reference, "X_reference").frame()
    corrupter = Corrupter(reference, categorical, random_state)
    corrupter.check_same_columns(table)
    names, levels = corrupter.select_corruptions(corruptions), sort_severities(severities)
    if not models:
        raise ValueError("estimator is an empty mapping; give at least one fitted estimator")
    scorers = {name: _make_scorer(model, scoring, y_test) for name, model in models.items()}

    def as_input(rows: pd.DataFrame) -> Any:
        return rows.to_numpy() if is_array else rows

    for corruption in names:  # an error on a few rows is raised before the work
        corrupted = as_input(corrupter(table.head(_N_PROBES), corruption, levels[-1]))
        for name, model in models.items():
            with _error_note(name, corruption, levels[-1]):
                model.predict(corrupted)
    clean_input = as_input(table)
    rows = [(name, CLEAN, 0, scorers[name](models[name], clean_input, y_test)) for name in models]
    for corruption in names:
        for severity in levels:
            corrupted = as_input(corrupter(table, corruption, severity))
            for name, model in models.items():
                with _error_note(name, corruption, severity):
                    score = scorers[name](model, corrupted, y_test)
                rows.append((name, corruption, severity, score))
            del corrupted  # frees memory before the next table
    scores = pd.DataFrame(rows, columns=["estimator", "corruption", "severity", "score"])
    is_clean = scores["corruption"] == CLEAN
    clean = scores[is_clean].set_index("estimator")["score"]
    means = scores[~is_clean].pivot_table(  # (estimator, corruption), over the severities
        index="estimator", columns="corruption", values="score", aggfunc="mean", dropna=False
    )
    means = means.loc[clean.index]
    summary = pd.DataFrame({"clean": clean, "corrupted": means.mean(axis=1, skipna=False)})
    summary["drop"] = summary["clean"] - summary["corrupted"]
    score_name = _scoring_name(scoring, next(iter(models.values())))
    return Robustness(scores, summary.reset_index(), score_name)


def _make_scorer(model: Any, scoring: Any, y: Any) -> Callable[..., float]:
    """The scorer of a model; names are those of ``METRICS`` or of scikit-learn."""
    if isinstance(scoring, str) and (is_classifier(model) or is_regressor(model)):
        task = "classification" if is_classifier(model) else "regression"
        return make_target_scorer(scoring, np.asarray(y), task)
    scorer: Callable[..., float] = check_scoring(model, scoring=scoring)
    return scorer


@contextmanager
def _error_note(name: str, corruption: str, severity: int) -> Iterator[None]:
    """Add a note to an error: the estimator, the corruption and what to do."""
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
        return "accuracy" if is_classifier(model) else "r2" if is_regressor(model) else "score"
    if not isinstance(scoring, str):
        return getattr(scoring, "__name__", "score")
    if scoring in get_scorer_names():
        return scoring
    return scorer_name(scoring, "classification" if is_classifier(model) else "regression")
