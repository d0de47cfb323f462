"""Robustness: scores of a fitted estimator on corrupted copies of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_consistent_length

from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.text import did_you_mean
from combutab.preprocessing import ColumnKind, column_kind

# ---- A table's columns, as corruptions see them: kinds, scales, categories, values put back ------

Kind = Literal["number", "category", "time"]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the reference, from which a corruption takes its scale."""

    kind: Kind
    reference: pd.Series

    @cached_property
    def numbers(self) -> np.ndarray:
        """The finite values of a number column."""
        values = float_values(self.reference)
        return values[np.isfinite(values)]

    @cached_property
    def sd(self) -> float:
        """Standard deviation of a number column, 0 if it has no two values."""
        return float(self.numbers.std()) if len(self.numbers) else 0.0

    @cached_property
    def categories(self) -> np.ndarray:
        """The values of a category column, each once."""
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


def reference_columns(
    reference: pd.DataFrame, categorical: Iterable[Hashable]
) -> dict[Any, Column]:
    """The columns of a reference by name; ``categorical`` names those that are no numbers.

    Raises ValueError if names repeat, one in ``categorical`` is not there, or there are no rows.
    """
    names = list(reference.columns)
    if len(set(names)) < len(names):
        repeated = sorted({str(name) for name in names if names.count(name) > 1})
        raise ValueError(f"columns of the table share a name: {', '.join(repeated)}; rename them")
    if not len(reference):
        raise ValueError("the reference table has no rows to take the scales from")
    asked = {categorical} if isinstance(categorical, str) else set(categorical)
    if unknown := asked - set(names):
        raise ValueError(f"categorical names no column of the table: {sorted(map(str, unknown))}")
    columns = {}
    for name in names:
        values = reference[name].infer_objects()  # objects that are all numbers, or all dates
        columns[name] = Column("category" if name in asked else _corrupted_kind(values), values)
    return columns


def _corrupted_kind(column: pd.Series) -> Kind:
    kind = column_kind(column, by_dtype=True)  # the values are put back in the dtype that was
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        return "time"
    return "number" if kind == ColumnKind.NUMBER else "category"


def float_values(column: pd.Series) -> np.ndarray:
    """Values as float64, NaN where missing."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def with_numbers(column: pd.Series, values: np.ndarray) -> pd.Series:
    """The column with these numbers; one of whole numbers becomes one of floats.

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
    """The column with other values at some places, of the same dtype."""
    changed = column.to_numpy(dtype=object, copy=True)
    changed[where] = values
    return pd.Series(changed, index=column.index, name=column.name, dtype=column.dtype)


def without(column: pd.Series, where: np.ndarray) -> pd.Series:
    """The column with missing values at some places; truths and whole numbers become floats."""
    if not where.any():
        return column
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        column = column.astype(np.float64)
    if column.dtype == object:
        return with_values(column, where, None)
    return column.mask(where)


def replaced(table: pd.DataFrame, changed: Mapping[Any, pd.Series]) -> pd.DataFrame:
    """The table with some columns changed; the others are shared, not copied."""
    result = table.copy(deep=False)
    for name, column in changed.items():
        result[name] = column
    return result


# ---- Ways in which a table goes wrong, each in five severities -----------------------------------

SEVERITIES = (1, 2, 3, 4, 5)
OwnCorruption = Callable[[pd.DataFrame, int, np.random.Generator], pd.DataFrame]
Numbers = np.ndarray
Change = Callable[[pd.Series, Column, float, np.random.Generator], pd.Series]


@dataclass(frozen=True)
class Corruption:
    """A way in which columns go wrong.

    Attributes
    ----------
    change : callable
        ``(column, reference column, level, generator) -> column``.
    levels : tuple of 5 floats
        Of the severities 1 to 5; what they mean is in ``description``.
    kinds : tuple of str
        Of the columns that it acts on: "number", "category", "time".
    description : str
    share_of_columns : bool
        Whether the level is the share of the columns that go wrong, at least one; else all do.
    """

    change: Change
    levels: tuple[float, float, float, float, float]
    kinds: tuple[Kind, ...]
    description: str
    share_of_columns: bool = False


def _numeric(
    change: Callable[[Numbers, Column, float, np.random.Generator], Numbers],
) -> Change:
    """A change of numbers as a change of columns."""

    def changed(
        column: pd.Series, reference: Column, level: float, rng: np.random.Generator
    ) -> pd.Series:
        return with_numbers(column, change(float_values(column), reference, level, rng))

    return changed


def _clip(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    if not len(column.numbers):
        return x
    return np.clip(x, *np.quantile(column.numbers, [level, 1.0 - level]))


def _round(x: Numbers, column: Column, level: float, rng: np.random.Generator) -> Numbers:
    step = level * column.sd
    return np.round(x / step) * step if step > 0 else x


def _miss(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    return without(column, rng.random(len(column)) < level)


def _swap_categories(
    column: pd.Series, reference: Column, level: float, rng: np.random.Generator
) -> pd.Series:
    hit, pick = rng.random(len(column)) < level, rng.random(len(column))
    known = pd.Index(reference.categories, dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = known[known.isin(column.cat.categories)]
    current = known.get_indexer(pd.Index(column.to_numpy(dtype=object), dtype=object))
    others = len(known) - (current >= 0)
    hit &= (others > 0) & column.notna().to_numpy()
    chosen = np.floor(pick * others).astype(np.intp)
    chosen += (current >= 0) & (chosen >= current)  # any but its own
    return with_values(column, hit, known.to_numpy()[chosen[hit]])


def _stick(
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


_NUMBERS: tuple[Kind, ...] = ("number",)
_ALL: tuple[Kind, ...] = ("number", "category", "time")

CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption(
        _numeric(lambda x, column, level, rng: x + level * column.sd * rng.standard_normal(len(x))),
        (0.1, 0.2, 0.3, 0.5, 1.0),
        _NUMBERS,
        "normal noise of so many standard deviations of the column",
    ),
    "heavy_tailed_noise": Corruption(
        _numeric(lambda x, column, level, rng: x + level * column.sd * rng.standard_t(2, len(x))),
        (0.05, 0.1, 0.15, 0.25, 0.5),
        _NUMBERS,
        "noise of Student's t with 2 degrees of freedom, times so many standard deviations",
    ),
    "scale": Corruption(
        _numeric(
            lambda x, _, level, rng: x * (1 + level) if rng.random() < 0.5 else x / (1 + level)
        ),
        (0.05, 0.1, 0.2, 0.5, 1.0),
        _NUMBERS,
        "another unit: the column times 1 + level, or divided by it",
    ),
    "shift": Corruption(
        _numeric(
            lambda x, column, level, rng: (
                x + level * column.sd * (1.0 if rng.random() < 0.5 else -1.0)
            )
        ),
        (0.1, 0.2, 0.3, 0.5, 1.0),
        _NUMBERS,
        "another zero: the column up or down by so many of its standard deviations",
    ),
    "clipping": Corruption(
        _numeric(_clip),
        (0.01, 0.05, 0.1, 0.2, 0.4),
        _NUMBERS,
        "values beyond this quantile, at both ends, become the quantile",
    ),
    "rounding": Corruption(
        _numeric(_round),
        (0.25, 0.5, 1.0, 1.5, 2.0),
        _NUMBERS,
        "to multiples of so many standard deviations of the column",
    ),
    "category_swap": Corruption(
        _swap_categories,
        (0.02, 0.05, 0.1, 0.2, 0.4),
        ("category",),
        "this share of the categories and truths become another one of the column's",
    ),
    "missing": Corruption(
        _miss, (0.02, 0.05, 0.1, 0.2, 0.4), _ALL, "this share of the values are missing"
    ),
    "column_dropout": Corruption(
        _stick,
        (0.1, 0.2, 0.3, 0.4, 0.5),
        _ALL,
        "this share of the columns, at least one, are stuck at their median or most frequent "
        "category",
        share_of_columns=True,
    ),
}
"""Name -> `Corruption`: the ways that `robustness` and `corrupt` know."""


def corrupt(
    X: pd.DataFrame,
    corruption: str | OwnCorruption,
    severity: int,
    *,
    X_reference: pd.DataFrame | None = None,
    categorical: Iterable[Hashable] = (),
    random_state: Any = 0,
) -> pd.DataFrame:
    """A table gone wrong, as `robustness` makes it.

    Parameters
    ----------
    X : DataFrame
        Left as it is.
    corruption : str or callable
        A name in `CORRUPTIONS`, or ``(table, severity, numpy Generator) -> table``.
    severity : int from 1 to 5
    X_reference : DataFrame, optional
        Gives standard deviations, quantiles, medians and categories; by default X.
    categorical : list of column names, default=()
        Columns of numbers that are codes of categories.
    random_state : None, int or RandomState, default=0

    Returns
    -------
    DataFrame
        With X's columns and rows. See the notes of `robustness` on dtypes.

    Raises
    ------
    TypeError, ValueError
        As `robustness`.

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
    check_same_columns(X, corrupter)
    (chosen,) = read_corruptions([corruption], corrupter).items()
    (severity,) = read_severities([severity])
    return corrupter(X, *chosen, severity)


class Corrupter:
    """Makes tables go wrong by the scales of a reference.

    What is drawn depends on the seed, the corruption's name and the column's place, but not on the
    severity: a value that is missing at severity 1 is missing at 5 as well.
    """

    def __init__(
        self, reference: pd.DataFrame, categorical: Iterable[Hashable], random_state: Any
    ) -> None:
        self.columns = reference_columns(reference, categorical)
        self.seed = seed_from(random_state)

    def acted_on(self, corruption: Corruption) -> list[Any]:
        """Names of the columns that a corruption can act on."""
        return [name for name, each in self.columns.items() if each.kind in corruption.kinds]

    def __call__(
        self, table: pd.DataFrame, name: str, corruption: Corruption | OwnCorruption, severity: int
    ) -> pd.DataFrame:
        """The table gone wrong."""
        key = crc32(name.encode())
        if not isinstance(corruption, Corruption):
            found = corruption(table.copy(), severity, self._draws(Stream.CORRUPTION, key))
            _check_result(found, table, name)
            return found
        level = corruption.levels[severity - 1]
        names = self.acted_on(corruption)
        if corruption.share_of_columns:
            order = self._draws(Stream.CORRUPTION, key).permutation(len(names))
            names = [names[i] for i in order[: max(1, round(level * len(names)))]]
        places = {column: place for place, column in enumerate(self.columns)}
        changed = {}
        for column in names:
            rng = self._draws(Stream.CORRUPTED_COLUMN, key, places[column])
            reference = self.columns[column]
            changed[column] = corruption.change(table[column], reference, level, rng)
        return replaced(table, changed)

    def _draws(self, purpose: Stream, *positions: int) -> np.random.Generator:
        return np.random.default_rng(fold_in(self.seed, purpose, *positions))


def read_corruptions(
    corruptions: Iterable[str | OwnCorruption] | Mapping[str, OwnCorruption] | None,
    corrupter: Corrupter,
) -> dict[str, Corruption | OwnCorruption]:
    """Return the corruptions asked for, by name; by default all that act on some column.

    Raises ValueError if a name is unknown, or no column is of its kind; TypeError if one is neither
    a name nor a function.
    """
    if corruptions is None:
        return {name: each for name, each in CORRUPTIONS.items() if corrupter.acted_on(each)}
    if isinstance(corruptions, str):
        corruptions = [corruptions]
    if not isinstance(corruptions, Mapping):
        each_once = list(corruptions)
        names = [x if isinstance(x, str) else getattr(x, "__name__", repr(x)) for x in each_once]
        if len(set(names)) < len(names):
            raise ValueError(f"corruptions share a name: {names}; give a mapping of names to them")
        corruptions = dict(zip(names, each_once, strict=True))
    chosen: dict[str, Corruption | OwnCorruption] = {}
    for name, each in corruptions.items():
        if callable(each):
            chosen[name] = each
        elif isinstance(each, str):
            chosen[name] = _known_corruption(each, corrupter)
        else:
            raise TypeError(f"a corruption is a name or a function, got {name}={each!r}")
    if not chosen:
        raise ValueError("corruptions is empty; name some of " + ", ".join(CORRUPTIONS))
    return chosen


def _known_corruption(name: str, corrupter: Corrupter) -> Corruption:
    if name not in CORRUPTIONS:
        hint = did_you_mean(name, CORRUPTIONS, n=1)
        raise ValueError(
            f"unknown corruption {name!r}{f' ({hint})' if hint else ''}; known: "
            f"{', '.join(CORRUPTIONS)}, or a function (table, severity, generator) -> table"
        )
    corruption = CORRUPTIONS[name]
    if not corrupter.acted_on(corruption):
        raise ValueError(
            f"corruption {name!r} acts on {' and '.join(corruption.kinds)} columns, and the table "
            "has none; leave it out, or name columns of codes in categorical="
        )
    return corruption


def read_severities(severities: Iterable[int]) -> list[int]:
    """Sort the severities, each once.

    Raises ValueError if there is none, or one is not a whole number from 1 to 5.
    """
    asked = list(severities)
    if not asked or any(each not in SEVERITIES for each in asked):
        raise ValueError(f"severities must be some of {SEVERITIES}, got {asked}")
    return sorted({int(each) for each in asked})


def check_same_columns(table: pd.DataFrame, corrupter: Corrupter) -> None:
    """Refuse a reference whose columns are not the table's."""
    ours, theirs = list(table.columns), list(corrupter.columns)
    if set(ours) != set(theirs):
        lacking = [str(name) for name in ours if name not in theirs]
        added = [str(name) for name in theirs if name not in ours]
        raise ValueError(f"X_reference must have X's columns: it lacks {lacking}, and adds {added}")


def _check_result(found: Any, table: pd.DataFrame, name: str) -> None:
    if not isinstance(found, pd.DataFrame):
        raise TypeError(f"corruption {name!r} must return a DataFrame, got {type(found).__name__}")
    if list(found.columns) != list(table.columns) or len(found) != len(table):
        raise ValueError(
            f"corruption {name!r} must keep the columns and the number of rows, got "
            f"{found.shape} of {table.shape}"
        )


# ---- Robustness of estimators to corrupted tables: a counterpart of CIFAR-C ----------------------

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
    summary = _summarise_scores(scores, baseline, perfect_score)
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


def _summarise_scores(
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
