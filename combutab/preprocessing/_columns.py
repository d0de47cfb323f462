"""One column: its kind, its values as floats, and as codes of categories."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import NOW
from combutab.core.text import list_names, user_stacklevel

# ---- The kind of a column: by its dtype, and for objects by its values --------------------------


class ColumnKind(StrEnum):
    """Kind of the values of a column."""

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


_PLAIN_LABELS = ("boolean", "integer", "floating", "mixed-integer-float")


def dtype_kind(dtype: Any) -> ColumnKind:
    """Determine the kind of a column by its dtype alone; Python objects are categories.

    >>> str(dtype_kind(np.dtype("datetime64[s]"))), str(dtype_kind(np.dtype(object)))
    ('datetime', 'category')
    """
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if types.is_bool_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
        return ColumnKind.BOOL
    if types.is_numeric_dtype(dtype):
        return ColumnKind.COMPLEX if dtype.kind == "c" else ColumnKind.NUMBER
    if isinstance(dtype, pd.PeriodDtype) or dtype.kind == "M":
        return ColumnKind.DATETIME
    return ColumnKind.TIMEDELTA if dtype.kind == "m" else ColumnKind.CATEGORY


def column_kind(column: pd.Series, *, of_categories: bool = False) -> ColumnKind:
    """Determine the kind of a column by its dtype, and of Python objects by their values.

    Parameters
    ----------
    column : Series of shape (n,)
    of_categories : bool, default=False
        Whether the kind of a pandas category is that of its categories.

    Examples
    --------
    >>> str(column_kind(pd.Series([1, "a"]))), str(column_kind(pd.Series([1, 2.5], dtype=object)))
    ('category', 'number')
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return column_kind(pd.Series(dtype.categories)) if of_categories else ColumnKind.CATEGORY
    kind = dtype_kind(dtype)
    return _kind_of_objects(column) if kind == ColumnKind.CATEGORY else kind


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


def plain_labels(labels: np.ndarray) -> np.ndarray:
    """Labels that are Python's booleans or numbers, in the dtype of these.

    A column of TRUE and FALSE with blanks has the dtype object, also once the blanks are dropped.
    Other labels are returned unchanged.

    >>> plain_labels(np.array([True, False], dtype=object))
    array([ True, False])
    """
    if labels.dtype != object or types.infer_dtype(labels.ravel()) not in _PLAIN_LABELS:
        return labels
    return np.array(labels.tolist())


# ---- The kind of a column to a TableEncoder, and its values as floats ----------------------------

MISSING_TEXTS = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "nat"})
_BOOL_TEXTS = {"true": 1.0, "false": 0.0}
LARGEST = 1e150  # by size, of the numbers that are taken: float64 holds their squares
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
    >>> str(encoded_kind(pd.Series([datetime.time(9)]), None, "column 0"))
    'timedelta'
    """
    if categorical:
        return ColumnKind.CATEGORY
    kind = column_kind(column, of_categories=categorical is False)
    if kind == ColumnKind.COMPLEX:
        raise_complex(label)
    if kind == ColumnKind.CATEGORY and holds_times_of_day(column, categorical is False):
        return ColumnKind.TIMEDELTA
    if kind in (ColumnKind.TEXT, ColumnKind.EMPTY, ColumnKind.CATEGORY):
        # A column that the user says is not a category is parsed as numbers, or refused there.
        return ColumnKind.CATEGORY if categorical is None else ColumnKind.NUMBER
    return kind


def holds_times_of_day(column: pd.Series, of_categories: bool = False) -> bool:
    """Whether a column holds times of day without a time zone, which are read as durations.

    With ``of_categories`` also one of the dtype category.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return of_categories and holds_times_of_day(pd.Series(column.dtype.categories))
    values = column.to_numpy(dtype=object)
    is_time = types.infer_dtype(values, skipna=True) == "time"
    return is_time and not any(getattr(value, "tzinfo", None) for value in values)


def means_missing(value: Any) -> bool:
    """Tell whether a value is text that stands for a missing number or date, such as "NA"."""
    return str(value).strip().lower() in MISSING_TEXTS


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
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        return _seconds(column, kind, label)
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
    threshold = _LARGEST_EXACT / (10**9 if of_time else 1)
    large = np.flatnonzero((np.abs(floats) >= threshold) & np.isfinite(floats))
    large = large[:: 1 + len(large) // _N_SAMPLED]
    if not len(large):
        return []
    large_values = column.iloc[large]
    if not of_time:
        values = (v.item() if isinstance(v, np.generic) else v for v in large_values.astype(object))
        return [Fraction(value) for value in values]
    ticks = _read_times(large_values, kind, "")
    per_second = _TICKS_PER_SECOND[np.datetime_data(ticks.dtype)[0]]
    return [Fraction(tick, per_second) for tick in ticks.view(np.int64).tolist()]


def refuse_equal(values: Sequence[Fraction], label: str, kind: ColumnKind) -> None:
    """Raise ValueError if differences between numbers of a column are below float64's precision.

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
    example = int(first) if first.denominator == 1 else float(first)
    raise ValueError(
        f"{label} holds numbers such as {example}, of which float64 (exact to 2**53) cannot tell "
        "neighbours apart; subtract the smallest one first, leave the column out, or make it "
        "categorical (list it in categorical_features)"
    )


def _parse_numbers(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    refuse_objects(column, label)
    values = column.to_numpy(dtype=object)
    present = ~pd.isna(values)
    actual_kind = column_kind(column)
    if actual_kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA) and present.any():
        raise ValueError(
            f"{label} holds numbers, got dates or times such as {_example(values)!r}; convert them "
            "to numbers, or fit on a table where the column has this dtype"
        )
    if actual_kind == ColumnKind.COMPLEX:
        raise_complex(label)
    result = np.full(len(values), np.nan)
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
        elif not means_missing(value):
            raise ValueError(
                f"{label} is numeric, but {value!r} could not be converted to float; clean the "
                "column, or make it categorical (list it in categorical_features, or use "
                "categorical_features='from_dtype' on a table where it holds text)"
            )
    result[present] = floats
    return result


def _seconds(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    times: Any = _read_times(column, kind, label)
    since = times - np.datetime64(0, "s") if kind == ColumnKind.DATETIME else times
    return np.asarray(since / np.timedelta64(1, "s"))


def _read_times(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    """A column's datetimes, in UTC, or timedeltas, as numpy holds them."""
    is_date = kind == ColumnKind.DATETIME
    column = column.infer_objects() if is_date else column
    if is_date and isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    elif column.dtype.kind != ("M" if is_date else "m") or isinstance(column.dtype, pd.ArrowDtype):
        column = _parse_times(column, label, "datetimes" if is_date else "timedeltas")
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy()


def object_datetimes(column: pd.Series, label: str) -> pd.Series:
    """The datetimes of a column of Python's dates, datetimes or periods, in UTC if zones differ.

    Those that nanoseconds do not reach have microseconds.

    >>> object_datetimes(pd.Series([datetime.date(9999, 12, 31)]), "column 'end'").dtype
    dtype('<M8[us]')
    """
    column = column.infer_objects()
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if column.dtype.kind == "M" and not isinstance(column.dtype, pd.ArrowDtype):
        return column
    zones = {getattr(value, "tzinfo", None) for value in column.dropna()}
    try:
        if not column.astype(object).isin(NOW).any():
            return pd.to_datetime(column, utc=len(zones) > 1)
    except pd.errors.OutOfBoundsDatetime:
        pass
    parsed = _parse_times(column, label, "datetimes")
    return parsed if zones - {None} else parsed.dt.tz_localize(None)


def _far_moment(value: Any) -> np.datetime64 | None:
    """A date that nanoseconds do not reach, in UTC; None for other values."""
    if isinstance(value, str) and not _ISO_DATE.fullmatch(value.strip()):
        return None
    try:
        moment = datetime.datetime.fromisoformat(str(value).strip())
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(moment, "us")


def time_unit(column: pd.Series, kind: ColumnKind, label: str) -> str:
    """The unit in which a column of dates or durations counts: "s", "ms", "us" or "ns".

    >>> time_unit(pd.Series(["2024-01-01"], dtype="datetime64[us]"), ColumnKind.DATETIME, "sold")
    'us'
    """
    dtype: Any = getattr(column.dtype, "pyarrow_dtype", column.dtype)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return np.datetime_data(dtype)[0]
    if getattr(dtype, "unit", None) in _TICKS_PER_SECOND:
        return str(dtype.unit)
    return np.datetime_data(_read_times(column.dropna().iloc[:1], kind, label).dtype)[0]


def time_zone(column: pd.Series) -> tuple[Any, bool]:
    """The time zone of a column of dates, None if it has none; and whether its dtype tells it."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return time_zone(pd.Series(dtype.categories))
    if types.is_object_dtype(dtype):
        dtype = column.infer_objects().dtype
    arrow = getattr(dtype, "pyarrow_dtype", dtype)
    has_dates = dtype.kind == "M" or isinstance(dtype, pd.PeriodDtype)
    return getattr(arrow, "tz", None), has_dates


def _parse_times(column: pd.Series, label: str, what: str) -> pd.Series:
    refuse_objects(column, label)
    values = column.to_numpy(dtype=object)
    if column.dtype.kind in "biuf" and not pd.isna(values).all():
        raise ValueError(
            f"{label} holds {what}, got numbers such as {_example(values)!r}; convert them with "
            f"pandas.to_{what[:-1]}, which needs their unit"
        )
    objects = pd.Series(values, dtype=object)
    parsed: pd.Series
    if what == "datetimes":
        dates = objects.mask(objects.isin(NOW))
        parsed = pd.to_datetime(dates, utc=True, errors="coerce", format="ISO8601")
    else:
        durations = pd.Series([_as_duration(value) for value in values], dtype=object)
        parsed = pd.to_timedelta(durations, errors="coerce")
    unread = np.flatnonzero(parsed.isna().to_numpy() & ~pd.isna(values)).tolist()
    bad = [i for i in unread if not means_missing(values[i])]
    if bad and what == "datetimes":
        far = {i: moment for i in bad if (moment := _far_moment(values[i])) is not None}
        bad = [i for i in bad if i not in far]
        moments = pd.DatetimeIndex(parsed).tz_localize(None).to_numpy().astype("datetime64[us]")
        moments[list(far)] = list(far.values())
        parsed = pd.Series(moments, column.index).dt.tz_localize("UTC")
    if bad:
        raise ValueError(
            f"{label} holds {what}, but {values[bad[0]]!r} could not be read as one; convert the "
            f"column with pandas.to_{what[:-1]}"
        )
    return parsed


def _as_duration(value: Any) -> Any:
    """What pandas reads as a duration; None for other values, such as numbers without a unit."""
    if isinstance(value, datetime.time):  # since midnight
        return str(value)
    if isinstance(value, str):
        return None if _PLAIN_NUMBER.fullmatch(value.strip()) else value
    return value if isinstance(value, datetime.timedelta | np.timedelta64) else None


def _example(values: np.ndarray) -> Any:
    present = values[~pd.isna(values)]
    return present[0] if len(present) else None


def raise_infinity(labels: Iterable[str], what: str = "X") -> None:
    """Raise scikit-learn's error for infinite input, with the columns that have it."""
    raise ValueError(
        f"Input {what} contains infinity or a value too large for dtype('float64') in "
        f"{list_names(labels, write=str)}; replace it by NaN or by a bound"
    )


def refuse_large(size: float, label: str) -> None:
    """Raise ValueError if the square of the largest absolute number exceeds float64."""
    if size > LARGEST:
        raise ValueError(
            f"{label} has absolute values up to {size:.3g}. Values beyond {LARGEST:.0e} are not "
            f"supported, because their squares exceed float64; divide it by {size:.0e}"
        )


# ---- Categories: values to stable keys, keys to codes --------------------------------------------

# A category's key: a plain Python value, the same whatever dtype the column came in.
Key = bool | int | float | str | bytes | pd.Timestamp | pd.Timedelta

_PLAIN_TYPES = {"string": str, "integer": int}
_MAX_LENGTH = 40  # characters: no number, and no date
# Python's float() accepts other texts, too; a text with a leading zero is a name
_PLAIN_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE
)
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9].*)?")
_DURATION_TEXT = re.compile(r"(-?[0-9]+ days?,? ?[+-]?)?([0-9]{1,2}:[0-9]{2}:[0-9.]+)?|-?P[0-9].*")
_MIN_EXPECTED = 10  # rows, at least, for a warning of unknown categories
_MIN_KNOWN = 0.1


@dataclass(frozen=True, eq=False)
class Factors:
    """A column as codes into its distinct keys; -1 is missing."""

    codes: np.ndarray  # (n,) integers
    keys: list[Key]


@dataclass(frozen=True)
class CategoryMap:
    """The categories of one column, as an encoder keeps them.

    One-hot: key i is 1 in column i of the span, the rare ones, if the fit saw any, in the column
    after them, missing, if the fit saw it, in the last one. An unseen value counts as a rare one.
    Where the fit saw none, it has the ``frequencies`` in these columns, their mean over the rows:
    zeros would move predictions, because no training row has them. Codes: 0 is unseen and rare,
    key i is i + 1, missing, if seen, the last. Where the fit saw one code only, all values have it.
    The codes of an ``ordered`` column are in the order of its categories.

    A value of another type that means the same as one key is that key: 1, "1" and "true", b"a" and
    "a", a date and its ISO 8601 text. Where two keys mean the same, only equal values are theirs.
    """

    column: int
    keys: tuple[Key, ...]
    missing: bool
    onehot: bool
    rare: bool = False  # fit saw rare ones, so that a one-hot span has a column of them
    share: float = 1.0  # of new rows with a value, that have a key at least, to two digits
    frequencies: tuple[float, ...] = ()  # of the columns of a one-hot span, to two digits, sum 1
    ordered: bool = False
    _position: dict[Key, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_position", {key: i for i, key in enumerate(self.keys)})

    def check(self) -> None:
        """Raise ValueError if its frequencies are not those of the columns of a one-hot span."""
        shares, width = np.array(self.frequencies), self.width if self.onehot else 0
        if (
            len(shares) != width
            or (width and not np.isclose(shares.sum(), 1))
            or (shares < 0).any()
        ):
            raise ValueError("the encoder's state has frequencies that are not of its categories")

    @property
    def width(self) -> int:
        """Columns of a one-hot span, or the cardinality of a code column."""
        return len(self.keys) + self.missing + (self.rare or not self.onehot)

    def codes(self) -> tuple[dict[Key, int], int, int]:
        """The code of each category, that of unseen values, and that of missing ones.

        >>> CategoryMap(0, ("a", "b"), missing=True, onehot=True).codes()
        ({'a': 0, 'b': 1}, -1, 2)
        """
        first = 0 if self.onehot else 1
        return {key: first + i for key, i in self._position.items()}, *self._others()

    def _others(self) -> tuple[int, int]:
        """The codes of unseen and of missing values."""
        if self.onehot:
            unseen = len(self.keys) if self.rare else -1
        else:  # where fit saw one code, all values have it
            unseen = int(not self.rare and len(self.keys) + self.missing == 1)
        return unseen, self.width - 1 if self.missing else unseen

    def encode(self, factors: Factors, label: str | None = None) -> np.ndarray:
        """Codes of shape (n,), int64; in a one-hot column -1 is a row of the ``frequencies``.

        With a ``label``, the column's name, there is a warning if hardly a row has a category that
        is known here, and a ValueError if none can have one: of dates where fit saw text, say.
        """
        first = 0 if self.onehot else 1
        unseen, missing = self._others()
        positions = [self._position.get(key) for key in factors.keys]
        if None in positions:
            pairs = zip(factors.keys, positions, strict=True)
            positions = [
                self._equivalent(key) if position is None else position for key, position in pairs
            ]
        if label is not None and None in positions:
            self._compare(factors, positions, label)
        # One look-up per distinct value, then one gather.
        table = np.empty(len(positions) + 1, dtype=np.int64)
        table[:-1] = [unseen if position is None else first + position for position in positions]
        table[-1] = missing  # gathered by code -1
        return table[factors.codes]

    @cached_property
    def _position_of_meaning(self) -> dict[tuple[str, Any], int | None]:
        """Meaning of a key -> its position; None if several keys have this meaning."""
        positions: dict[tuple[str, Any], int | None] = {}
        for key, i in self._position.items():
            for reading in _meanings(key):
                positions[reading] = i if positions.get(reading, i) == i else None
        return positions

    @cached_property
    def _is_text(self) -> bool:
        return all(isinstance(key, str) for key in self.keys)

    def _equivalent(self, key: Key) -> int | None:
        """Find the position of the only key with the meaning of an unknown value, or None."""
        of_text = isinstance(key, str | bytes)
        if isinstance(key, str) and self._is_text:
            return None
        candidates = set()
        for kind, value in _meanings(key):
            if (kind, value) not in self._position_of_meaning:
                continue
            position = self._position_of_meaning[kind, value]
            # the texts "1" and "1.0" are different categories
            if (
                kind == "text"
                or position is None
                or not (of_text and isinstance(self.keys[position], str | bytes))
            ):
                candidates.add(position)
        return candidates.pop() if len(candidates) == 1 else None

    def _compare(self, factors: Factors, positions: list[int | None], label: str) -> None:
        """Warn of a column that has hardly a known category; refuse one that can have none."""
        unknown = [
            key for key, position in zip(factors.keys, positions, strict=True) if position is None
        ]
        if not self.keys:
            return
        if len(unknown) == len(positions) and not self._may_mean(unknown):
            raise ValueError(
                f"{label} has values such as {_quoted(unknown[:1])}, but fit has seen categories "
                f"such as {_quoted(self.keys[:1])}; convert it to what it was in fit"
            )
        counts = np.bincount(factors.codes + 1, minlength=len(positions) + 1)[1:]
        is_known = np.array([position is not None for position in positions])
        expected = self.share * counts.sum()
        if expected >= _MIN_EXPECTED and counts[is_known].sum() < _MIN_KNOWN * expected:
            warnings.warn(
                f"{counts[is_known].sum():,} of {counts.sum():,} values of {label} are known to "
                f"the model ({_quoted(unknown)}; known: {_quoted(self.keys)}): the others are "
                "treated as unseen. If they mean the same, convert the column to what it was in "
                "fit",
                stacklevel=user_stacklevel(),
            )

    def _may_mean(self, keys: list[Key]) -> bool:
        """Tell whether values of such types could ever be known here: no dates among words."""
        if any(isinstance(key, str | bytes) for key in keys):
            return True
        kinds = {kind for key in keys for kind, _ in _meanings(key)}
        known_kinds = {kind for kind, _ in self._position_of_meaning}
        of_time = {"date", "duration"}
        return bool(kinds & known_kinds) or not (
            kinds & of_time or (known_kinds and known_kinds <= of_time)
        )


class CategoryCounts:
    """Count the categories of a column over the parts that are added.

    ``order`` holds all categories of an ordered column in their order.
    """

    def __init__(self) -> None:
        self.order: list[Key] | None = None
        self.seen: dict[Key, int] = {}
        self.n_missing = 0

    def add(self, factors: Factors, order: list[Key] | None, label: str) -> None:
        """Count the rows of one part, whose categories have this order.

        Raises ValueError, with the column's name, if they had another order in earlier parts.
        """
        self.order = self.order or order
        if self.order is not None:
            ordered_keys = set(self.order)
            unknown = [key for key in factors.keys if key not in ordered_keys]
            if unknown or (order and order != self.order):
                raise ValueError(
                    f"{label} has ordered categories, whose order must be the same in all parts: "
                    f"{_quoted(self.order)} before, now {_quoted(unknown or order or [])}"
                )
        counts = np.bincount(factors.codes + 1, minlength=len(factors.keys) + 1).tolist()
        self.n_missing += counts[0]
        for key, count in zip(factors.keys, counts[1:], strict=True):
            if count:
                self.seen[key] = self.seen.get(key, 0) + count

    def learn(self, column: int, max_onehot: int, min_count: int) -> CategoryMap:
        """The column's categories, sorted so that the order of the rows does not matter.

        An ordered column has codes, in the order of its categories.

        Those of fewer than `min_count` rows are not kept. In a column of codes they share the
        slot of the unseen ones, and a category seen once does so in any case: an embedding cannot
        be learned from one row, and so that slot is trained at all.
        """
        keys = [key for key, n in self.seen.items() if n >= min_count]
        rare, n_rows = len(keys) < len(self.seen), sum(self.seen.values())
        # max_onehot may be numpy's integer
        onehot = bool(len(keys) + rare <= max_onehot) and self.order is None
        if not onehot:
            keys = [key for key in keys if self.seen[key] > 1]
            rare = len(keys) < len(self.seen)
        # two standard deviations below the counts: a rare category may not occur again
        counts = np.array([self.seen[key] for key in keys], dtype=np.float64)
        expected = np.maximum(counts - 2 * np.sqrt(counts), 0).sum()
        share = round(float(expected) / max(n_rows, 1), 2)
        ranks = {key: rank for rank, key in enumerate(self.order or ())}
        keys.sort(key=category_order if self.order is None else ranks.__getitem__)
        slots = [self.seen[key] for key in keys]
        slots += [n_rows - sum(slots)] * rare + [self.n_missing] * bool(self.n_missing)
        shares = np.round(np.array(slots) / max(sum(slots), 1), 2)
        shares = shares if shares.any() else np.ones(len(slots))
        frequencies = tuple((shares / shares.sum()).tolist()) if onehot and slots else ()
        has_missing, is_ordered = bool(self.n_missing), self.order is not None
        return CategoryMap(
            column, tuple(keys), has_missing, onehot, rare, share, frequencies, is_ordered
        )


def rows_needed(min_frequency: float, n_rows: int) -> int:
    """Convert ``min_frequency``, a number or a share of the rows, to a number of rows.

    >>> rows_needed(5, 300), rows_needed(0.1, 30), rows_needed(0.1, 31)
    (5, 3, 4)
    """
    if isinstance(min_frequency, numbers.Integral):
        return int(min_frequency)
    return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little more than 3


def distinct_values(column: pd.Series, label: str) -> tuple[np.ndarray, list[Any]]:
    """Codes of a column of any dtype, (n,), -1 for missing, and the values that they count.

    Those are Python's objects; values that Python calls equal (1, 1.0 and True) are one.

    Raises
    ------
    TypeError
        If a value is not hashable.
    ValueError
        If the column is complex.

    >>> import pandas as pd
    >>> distinct_values(pd.Series(["b", None, "a"]), "column 0")
    (array([ 0, -1,  1]), ['b', 'a'])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(np.intp)
        used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:])
        code_of_category = np.full(len(dtype.categories) + 1, -1)
        code_of_category[used] = np.arange(len(used))
        codes, uniques = code_of_category[codes], dtype.categories[used]
    else:
        if isinstance(dtype, pd.SparseDtype):
            column = column.astype(dtype.subtype)
        values: Any = column
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "Obiuf":
            values = narrow(column.to_numpy())  # an array's uniques are no Index, which is slow
        try:
            codes, uniques = pd.factorize(values, use_na_sentinel=True)
        except (TypeError, NotImplementedError):  # values that are not hashable
            refuse_objects(column, label)
            raise
    if uniques.dtype.kind == "c":
        raise_complex(label)
    values = uniques.astype(object)
    is_missing = np.asarray(pd.isna(values))
    if is_missing.any():  # NaN inside a nullable column, which pandas keeps apart from NA
        codes = np.append(np.where(is_missing, -1, np.cumsum(~is_missing) - 1), -1)[codes]
        values = values[~is_missing]
    return codes, values.tolist()


def factorize(column: pd.Series, label: str) -> Factors:
    """Codes and distinct keys of a column of any dtype.

    Raises ValueError or TypeError if a value cannot be a category; it names the column by `label`,
    and the row.

    >>> import pandas as pd
    >>> factors = factorize(pd.Series([1, "1", None, 1.0], dtype=object), "column 0")
    >>> factors.codes.tolist(), factors.keys
    ([0, 1, -1, 0], [1, '1'])
    """
    codes, values = distinct_values(column, label)
    plain: type | None = _PLAIN_TYPES.get(types.infer_dtype(values, skipna=False))
    if plain is not None:
        return Factors(codes, list(map(plain, values)))  # some are numpy's
    if any(map(_is_opaque, values)):
        refuse_objects(column, label)
    return Factors(codes, [_canonical_key(value, label) for value in values])


_CONTAINERS = (list, tuple, dict, set, frozenset, np.ndarray, pd.Series, pd.DataFrame, pd.Index)


def _is_opaque(value: Any) -> bool:
    """Tell whether a cell has several values in it, or an object that nothing is known of."""
    of_object = type(value).__repr__ is object.__repr__
    return isinstance(value, _CONTAINERS) or of_object or not types.is_hashable(value)


def refuse_objects(column: pd.Series, label: str) -> None:
    """Raise TypeError, with the cell, if a cell holds several values or an arbitrary object."""
    for i, value in enumerate(column):
        if _is_opaque(value):
            kind = "array" if isinstance(value, np.ndarray) else type(value).__name__
            kind = f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
            text = " ".join(repr(value).split())
            text = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
            raise TypeError(
                f"{label}, data row {i + 1:,}, holds {kind}: {text}; a cell must be one number, "
                "text, date or boolean: make columns of what is in it, convert the column to "
                "text, or leave it out"
            )


def _canonical_key(value: Any, label: str) -> Any:
    """The plain value that stands for a category; equal categories have equal keys."""
    if value is None or isinstance(value, str | bytes | pd.Timestamp | pd.Timedelta):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | decimal.Decimal):
        number = float(value)
        if np.isinf(number):
            raise_infinity([label])
        integer = math.trunc(value)  # of a decimal, which float would round
        return integer if value == integer else number
    if isinstance(value, numbers.Complex):
        raise_complex(label)
    if isinstance(value, datetime.date | np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return pd.Timedelta(value)
    if isinstance(value, datetime.time) and value.tzinfo is None:
        return pd.Timedelta(str(value))  # since midnight, as Arrow and polars have them
    if isinstance(value, pd.Interval | pd.Period | datetime.time):
        return str(value)
    return repr(value)


def _meanings(key: Key) -> list[tuple[str, Any]]:
    """List the meanings of a category as pairs of a kind and a value; most texts have one.

    >>> _meanings("1.0"), _meanings("true"), _meanings(True)
    ([('text', '1.0'), ('number', 1)], [('text', 'true'), ('number', 1)], [('number', 1)])
    """
    if isinstance(key, int):
        return [("number", int(key))]
    if isinstance(key, float):
        return [("number", key), *_short_decimals(key)]
    if isinstance(key, pd.Timestamp):
        return [("date", _in_utc(key))]
    if isinstance(key, pd.Timedelta):
        return [("duration", key)]
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return []
    return [("text", key), *_meanings_of_text(key.strip())]


def _meanings_of_text(text: str) -> list[tuple[str, Any]]:
    if len(text) > _MAX_LENGTH:
        return []
    if text.casefold() in ("true", "false"):
        return [("number", int(text.casefold() == "true"))]
    try:
        if _PLAIN_NUMBER.fullmatch(text):
            number = float(text)
            integer, _, decimals = text.partition(".")
            if not decimals.strip("0") and "e" not in text.lower():
                return [("number", int(integer))]  # of any size
            return [("number", number)] if math.isfinite(number) else []
        if _ISO_DATE.fullmatch(text):
            return [("date", _in_utc(pd.Timestamp(text)))]
        if text and _DURATION_TEXT.fullmatch(text):
            return [("duration", pd.Timedelta(text))]
    except (ValueError, OverflowError):  # a 13th month
        pass
    return []


def _short_decimals(number: float) -> list[tuple[str, Any]]:
    """The decimals that a number in half or single precision stands for."""
    with np.errstate(over="ignore"):
        rounded = [kind(number) for kind in (np.float16, np.float32)]
    return [("number", float(str(value))) for value in rounded if float(value) == number]


def _in_utc(moment: pd.Timestamp) -> pd.Timestamp:
    """A moment in UTC, as which one without a time zone counts."""
    return moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")


def _quoted(keys: Sequence[Key]) -> str:
    def quote(key: Key) -> str:
        text = repr(str(key) if isinstance(key, pd.Timestamp | pd.Timedelta) else key)
        return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."

    return list_names(keys, 3, quote)


def category_order(key: Key) -> tuple[int, Any]:
    """Numbers, then text, then the rest; each by value."""
    if isinstance(key, pd.Timestamp):
        return (3, key) if key.tzinfo is None else (4, key)
    if isinstance(key, pd.Timedelta):
        return 5, key
    if isinstance(key, bytes):
        return 2, key
    return (1, key) if isinstance(key, str) else (0, key)
