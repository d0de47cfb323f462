"""The kind of a column, its values as floats, and their moments."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pandas.api import types

# ---- The kind of a column, told by its dtype, and by its values where the dtype is open ----------


class ColumnKind(StrEnum):
    """The kind of thing that a column holds."""

    NUMBER = "number"
    BOOL = "bool"
    DATETIME = "datetime"
    TIMEDELTA = "timedelta"
    TEXT = "text"
    CATEGORY = "category"
    """A pandas category, or values of several kinds."""
    COMPLEX = "complex"
    EMPTY = "empty"
    """A column without a value, of a dtype that does not tell."""


# What pandas.api.types.infer_dtype answers for Python's objects; the rest are categories.
_OBJECT_KINDS = {
    "integer": ColumnKind.NUMBER,
    "floating": ColumnKind.NUMBER,
    "mixed-integer-float": ColumnKind.NUMBER,
    "decimal": ColumnKind.NUMBER,
    "complex": ColumnKind.COMPLEX,
    "boolean": ColumnKind.BOOL,
    "datetime": ColumnKind.DATETIME,
    "datetime64": ColumnKind.DATETIME,
    "date": ColumnKind.DATETIME,
    "period": ColumnKind.DATETIME,
    "timedelta": ColumnKind.TIMEDELTA,
    "timedelta64": ColumnKind.TIMEDELTA,
    "string": ColumnKind.TEXT,
    "empty": ColumnKind.EMPTY,
}


def column_kind(
    column: pd.Series, *, by_dtype: bool = False, of_categories: bool = False
) -> ColumnKind:
    """Tell what kind of thing a column holds.

    Parameters
    ----------
    column : Series of shape (n,)
    by_dtype : bool, default=False
        Whether to look at the dtype alone, as needed where values of the same dtype are put back:
        Python's objects are then categories.
    of_categories : bool, default=False
        Whether a pandas category is what its categories are, where it is known to be no category.

    Examples
    --------
    >>> str(column_kind(pd.Series([1, "a"]))), str(column_kind(pd.Series([1, 2.5], dtype=object)))
    ('category', 'number')
    >>> str(column_kind(pd.Series([1, 2.5], dtype=object), by_dtype=True))
    'category'
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.CategoricalDtype):
        return (
            column_kind(pd.Series(dtype.categories), by_dtype=by_dtype)
            if of_categories
            else ColumnKind.CATEGORY
        )
    if types.is_bool_dtype(dtype):
        return ColumnKind.BOOL
    if types.is_numeric_dtype(dtype):
        return ColumnKind.COMPLEX if dtype.kind == "c" else ColumnKind.NUMBER
    if isinstance(dtype, pd.PeriodDtype) or dtype.kind == "M":
        return ColumnKind.DATETIME
    if dtype.kind == "m":
        return ColumnKind.TIMEDELTA
    return ColumnKind.CATEGORY if by_dtype else _kind_of_objects(column)


def _kind_of_objects(column: pd.Series) -> ColumnKind:
    values = column.to_numpy(dtype=object)
    inferred = types.infer_dtype(values, skipna=True)
    if inferred.startswith("mixed") and inferred not in _OBJECT_KINDS:
        present = values[~pd.isna(values)]
        if all(isinstance(value, numbers.Real | decimal.Decimal) for value in present):
            return ColumnKind.NUMBER
        if all(isinstance(value, datetime.date) for value in present):
            return ColumnKind.DATETIME
        if any(isinstance(value, complex) for value in present):
            return ColumnKind.COMPLEX
    return _OBJECT_KINDS.get(inferred, ColumnKind.CATEGORY)


# ---- The kind of a column to a TableEncoder, and its values as floats ----------------------------

_MISSING_TEXTS = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "nat"})
_BOOL_TEXTS = {"true": 1.0, "false": 0.0}
_LARGEST_EXACT = 2.0**53  # float64 holds every whole number up to here
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_N_SAMPLED = 500  # numbers that tell how near they are to one another
_MIN_FLOATS = 2**12  # floats, at least, within the middle half of a column


def encoded_kind(column: pd.Series, categorical: bool | None, label: str) -> ColumnKind:
    """Decide which kind a column is encoded as: text, as all that is no number, as a category.

    ``categorical`` is the user's word on this column, None to decide by its dtype and values;
    errors name the column by ``label``, e.g. ``"column 'age'"``.

    >>> import pandas as pd
    >>> str(encoded_kind(pd.Series(["1", "2"]), None, "column 0"))
    'category'
    >>> str(encoded_kind(pd.Series(["1", "2"]), False, "column 0"))
    'number'
    """
    if categorical:
        return ColumnKind.CATEGORY
    kind = column_kind(column, of_categories=categorical is False)
    if kind == ColumnKind.COMPLEX:
        raise_complex(label)
    if kind in (ColumnKind.TEXT, ColumnKind.EMPTY, ColumnKind.CATEGORY):
        # A column that the user says is not a category is parsed as numbers, or refused there.
        return ColumnKind.CATEGORY if categorical is None else ColumnKind.NUMBER
    return kind


def raise_complex(label: str) -> NoReturn:
    """Raise scikit-learn's error for complex data."""
    raise ValueError(
        f"Complex data not supported: {label} holds complex numbers; give their real and imaginary "
        "parts as columns of their own"
    )


def to_float(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    """Read a column's values as real numbers, NaN where missing; not copied if they are such.

    Datetimes are seconds since 1970-01-01 UTC (a naive one is read as UTC), timedeltas are
    seconds. Text is parsed. The result, (n,), is of a bool, integer or floating dtype.

    Raises ValueError if a value cannot be read as the kind; it names the column and the value.

    >>> import pandas as pd
    >>> to_float(pd.Series(["1.5", None]), "number", "column 0")
    array([1.5, nan])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = np.append(to_float(pd.Series(dtype.categories), kind, label), np.nan)
        return values[column.cat.codes.to_numpy()]  # code -1, missing, is the appended NaN
    if isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
        dtype = column.dtype
    if kind == "datetime":
        return _datetime_seconds(column, label)
    if kind == "timedelta":
        return _timedelta_seconds(column, label)
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        if dtype.kind == "c":
            raise_complex(label)
        if isinstance(dtype, np.dtype):
            return narrow(column.to_numpy())
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _parse_numbers(column, kind, label)


def narrow(values: np.ndarray) -> np.ndarray:
    """Bring the floats that neither pandas nor scipy handle (half, long double) to ones they do."""
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        with np.errstate(over="ignore"):
            return values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    return values


def large_numbers(column: pd.Series, floats: np.ndarray, kind: ColumnKind) -> list[Fraction]:
    """Some of the numbers beyond 2**53 that a column holds, exactly.

    ``floats``, (n,), are what `to_float` made of the column. Of dates and durations they are those
    of more than 2**53 nanoseconds, in seconds. A column of floats has none: it lost nothing here.

    >>> large_numbers(pd.Series([2**60 + 1, 7]), np.array([2.0**60, 7.0]), ColumnKind.NUMBER)
    [Fraction(1152921504606846977, 1)]
    """
    dtype: Any = column.dtype
    of_time = kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA)
    if not of_time and getattr(dtype, "kind", "O") in "fb" and not isinstance(dtype, pd.ArrowDtype):
        return []
    least = _LARGEST_EXACT / (10**9 if of_time else 1)
    large = np.flatnonzero((np.abs(floats) >= least) & np.isfinite(floats))
    large = large[:: 1 + len(large) // _N_SAMPLED]
    if not len(large):
        return []
    some = column.iloc[large]
    if not of_time:
        return [_as_fraction(value) for value in some.astype(object)]
    ticks = _datetimes(some, "") if kind == ColumnKind.DATETIME else _timedeltas(some, "")
    per_second = _TICKS_PER_SECOND[np.datetime_data(ticks.dtype)[0]]
    return [Fraction(tick, per_second) for tick in ticks.view(np.int64).tolist()]


def _as_fraction(value: Any) -> Fraction:
    if isinstance(value, numbers.Integral):
        return Fraction(int(value))
    if isinstance(value, decimal.Decimal | str):
        return Fraction(value)
    return Fraction(float(value))


def refuse_equal(values: Sequence[Fraction], label: str, kind: ColumnKind) -> None:
    """Refuse a column whose numbers differ by less than float64 can show beside their size.

    ``values`` are those of `large_numbers`.
    """
    values = sorted(values)
    if not values or values[0] == values[-1]:
        return
    spread = values[3 * len(values) // 4] - values[len(values) // 4] or values[-1] - values[0]
    size = max(abs(float(values[0])), abs(float(values[-1])))
    if spread >= _MIN_FLOATS * Fraction(float(np.spacing(size))):
        return
    if all(Fraction(float(value)) == value for value in values):
        return
    first = values[0]
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise ValueError(
            f"{label} holds times within {float(values[-1] - first):.3g} seconds of one another, "
            f"which float64 cannot tell apart {size:.3g} seconds from zero; subtract the first "
            "one, which leaves short durations, or leave the column out"
        )
    shown = int(first) if first.denominator == 1 else float(first)
    raise ValueError(
        f"{label} holds numbers such as {shown}, of which float64 (exact to 2**53) cannot tell "
        "neighbours apart; subtract the smallest one first, leave the column out, or make it "
        "categorical (list it in categorical_features)"
    )


def _parse_numbers(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    values = column.to_numpy(dtype=object)
    held = column_kind(column)
    if held in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise ValueError(
            f"{label} holds numbers, got dates or times such as {_example(values)!r}; convert them "
            "to numbers, or fit on a table where the column has this dtype"
        )
    if held == ColumnKind.COMPLEX:
        raise_complex(label)
    result = np.full(len(values), np.nan)
    present = ~pd.isna(values)
    candidates = values[present]
    try:
        parsed = pd.to_numeric(pd.Series(candidates, dtype=object), errors="coerce")
        floats = parsed.to_numpy(dtype=np.float64, na_value=np.nan).copy()
    except ArithmeticError as error:  # an int beyond float64
        raise ValueError(f"{label} holds a number that is no float64: {error}") from error
    for i in np.flatnonzero(np.isnan(floats)):
        value = candidates[i]
        text = str(value).strip().lower()
        if kind == "bool" and text in _BOOL_TEXTS:
            floats[i] = _BOOL_TEXTS[text]
        elif text not in _MISSING_TEXTS:
            raise ValueError(
                f"{label} is numeric, but {value!r} could not be converted to float; clean the "
                "column, or make it categorical (list it in categorical_features, or use "
                "categorical_features='from_dtype' on a table where it holds text)"
            )
    result[present] = floats
    return result


def _datetime_seconds(column: pd.Series, label: str) -> np.ndarray:
    since_epoch: Any = _datetimes(column, label) - np.datetime64(0, "s")
    return since_epoch / np.timedelta64(1, "s")


def _datetimes(column: pd.Series, label: str) -> np.ndarray:
    column = column.infer_objects()
    dtype: Any = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    elif dtype.kind != "M" or isinstance(dtype, pd.ArrowDtype):
        column = _parse_times(column, label, "datetimes")
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy()


def _timedelta_seconds(column: pd.Series, label: str) -> np.ndarray:
    seconds: Any = _timedeltas(column, label) / np.timedelta64(1, "s")
    return seconds


def _timedeltas(column: pd.Series, label: str) -> np.ndarray:
    if column.dtype.kind != "m" or isinstance(column.dtype, pd.ArrowDtype):
        column = _parse_times(column, label, "timedeltas")
    return column.to_numpy()


def _parse_times(column: pd.Series, label: str, what: str) -> pd.Series:
    values = column.to_numpy(dtype=object)
    if column.dtype.kind in "biuf":
        raise ValueError(
            f"{label} holds {what}, got numbers such as {_example(values)!r}; convert them with "
            f"pandas.to_{what[:-1]}, which needs their unit"
        )
    objects = pd.Series(values, dtype=object)
    parsed: pd.Series
    if what == "datetimes":
        parsed = pd.to_datetime(objects, utc=True, errors="coerce", format="ISO8601")
    else:
        parsed = pd.to_timedelta(objects, errors="coerce")
    unread = np.flatnonzero(parsed.isna().to_numpy() & ~pd.isna(values)).tolist()
    bad = [i for i in unread if str(values[i]).strip().lower() not in _MISSING_TEXTS]
    if bad:
        raise ValueError(
            f"{label} holds {what}, but {values[bad[0]]!r} could not be read as one; convert the "
            f"column with pandas.to_{what[:-1]}"
        )
    return parsed


def _example(values: np.ndarray) -> Any:
    present = values[~pd.isna(values)]
    return present[0] if len(present) else None


# ---- Means, standard deviations and ranges of columns that come piece by piece -------------------


@dataclass(frozen=True)
class Moments:
    """Statistics of each column over its non-missing values; arrays of shape (n_columns,)."""

    missing: np.ndarray  # bool: some are missing
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_known: np.ndarray  # int: rows that have a value


def raise_infinity(labels: Iterable[str], what: str = "X", n: int = 5) -> None:
    """Raise scikit-learn's error for infinite input, with the columns that have it."""
    names = list(labels)
    more = f" and {len(names) - n} more" if len(names) > n else ""
    raise ValueError(
        f"Input {what} contains infinity or a value too large for dtype('float64') in "
        f"{', '.join(names[:n])}{more}; replace it by NaN or by a bound"
    )


def binary_unit(size: np.ndarray) -> np.ndarray:
    """A power of two near each size whose square float64 cannot hold, or that vanishes; else 1."""
    odd = (size > 1e140) | ((size < 1e-140) & (size > 0))
    exponent = np.frexp(np.where(odd, size, 0.5))[1]
    return np.where(odd, np.exp2(exponent - 1.0), 1.0)


def missing_mask(
    rows: np.ndarray, label: Callable[[int], str], what: str = "X"
) -> np.ndarray | None:
    """Find where rows are NaN, None if nowhere; inf is an error that names columns by `label`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):  # one cheap pass settles almost every piece
            return None
    infinite = np.isinf(rows).any(axis=0)
    if infinite.any():
        raise_infinity(map(label, np.flatnonzero(infinite).tolist()), what)
    missing = np.isnan(rows)
    return missing if missing.any() else None


class RunningMoments:
    """Mean, standard deviation (weighted) and range of each column in one pass.

    Each piece's mean and squared deviations are taken while it is in the cache and merged by
    Chan's update, which is as accurate as two passes. Infinity is an error, which names its columns
    by `label` and calls the table `what`.

    Examples
    --------
    >>> running = RunningMoments(1)
    >>> running.add(np.array([[1.0], [np.nan]]))
    >>> running.add(np.array([[3.0]]))
    >>> running.result()  # doctest: +ELLIPSIS
    Moments(missing=array([ True]), mean=array([2.]), std=array([1.]), ...)
    """

    def __init__(
        self,
        n_columns: int,
        label: Callable[[int], str] = "column {}".format,
        what: str = "X",
    ) -> None:
        self._label, self._what = label, what
        self._missing = np.zeros(n_columns, dtype=bool)
        self._n_known = np.zeros(n_columns, dtype=np.int64)
        self._count = np.zeros(n_columns)
        self._mean = np.zeros(n_columns)  # in units
        self._squares = np.zeros(n_columns)
        self._unit = np.ones(n_columns)
        self._low = np.full(n_columns, np.nan)
        self._high = np.full(n_columns, np.nan)

    def add(self, rows: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Take rows, (n, n_columns) float64, which are overwritten, and their weights, (n,)."""
        missing = missing_mask(rows, self._label, self._what)
        self._n_known += len(rows) if missing is None else (~missing).sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            self._low = np.fmin(self._low, np.fmin.reduce(rows, axis=0))
            self._high = np.fmax(self._high, np.fmax.reduce(rows, axis=0))
            self._choose_units()
            if (self._unit != 1).any():
                rows /= self._unit
            total = float(len(rows)) if weight is None else weight.sum()
            here = np.full(len(self._count), total)
            if missing is not None:
                rows[missing] = 0.0
                self._missing |= missing.any(axis=0)
                here -= missing.sum(axis=0) if weight is None else weight @ missing
            sums = rows.sum(axis=0) if weight is None else weight @ rows
            mean = sums / np.where(here > 0, here, 1)
            rows -= mean
            if missing is not None:
                rows[missing] = 0.0
            after = np.where(self._count + here > 0, self._count + here, 1)
            delta = mean - self._mean
            self._mean += delta * (here / after)
            if weight is None:
                self._squares += np.einsum("ij,ij->j", rows, rows)
            else:
                self._squares += np.einsum("i,ij,ij->j", weight, rows, rows)
            self._squares += delta**2 * (self._count * here / after)
            self._count += here

    def _choose_units(self) -> None:
        # Squares of values beyond about 1e154 overflow and those under 1e-154 vanish: such columns
        # are measured in a power of two near their largest value so far.
        unit = binary_unit(np.fmax(np.abs(self._low), np.abs(self._high)))
        if (unit == 1).all() and (self._unit == 1).all():
            return
        ratio = np.where(self._mean != 0, self._unit / unit, 1.0)
        self._mean *= ratio
        self._squares *= np.where(self._squares > 0, ratio**2, 1.0)
        self._unit = unit

    def result(self) -> Moments:
        """The statistics of all rows so far."""
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self._squares / np.where(self._count > 0, self._count, 1))
            mean, std = self._mean * self._unit, std * self._unit
        low, high = self._low.copy(), self._high.copy()
        return Moments(self._missing.copy(), mean, std, low, high, self._n_known.copy())
