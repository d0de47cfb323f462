"""Conditions on sampled rows: as users write them, and as codes and ranges."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import is_now
from combutab.preprocessing import (
    ModeEncoder,
    NumberColumn,
    put_cells,
)
from combutab.preprocessing.amounts import Form as AmountForm

# ---- Conditions on sampled rows as codes and ranges, and the rows that meet them -----------------

_ISO = "%Y-%m-%d"
NEAREST = 100  # one row in this many may get a number that it is near to


@dataclass(frozen=True)
class Codes:
    """Values of a discrete column, or a missing one of any: codes of its span."""

    column: Any
    span: int
    codes: tuple[int, ...]

    def met(self, codes: np.ndarray, table: Any) -> np.ndarray:  # (n, n_spans) -> (n,)
        """Find the rows that meet it, given their codes."""
        return np.isin(codes[:, self.span], self.codes)

    def single_value(self, coder: Any) -> pd.Series | None:
        """The only value of a discrete column that meets it, a Series of one; None if several."""
        if len(self.codes) > 1 or coder.is_continuous:
            return None
        value: pd.Series = coder.decode(np.array(self.codes))
        return value


@dataclass(frozen=True)
class Range:
    """A range of a continuous column's values, both ends included; None for an open end.

    With ``open`` the upper end is not included.
    """

    column: Any
    low: Any
    high: Any
    open: bool = False

    def met(self, codes: np.ndarray, table: Any) -> np.ndarray:  # (n,)
        """Find the rows that meet it, given the decoded table."""
        column = column_of(table, self.column)
        inside = column.notna().to_numpy(dtype=bool, copy=True)
        if self.low is not None:
            inside &= column.ge(self.low).fillna(False).to_numpy(dtype=bool)
        if self.high is not None:
            below = column.lt(self.high) if self.open else column.le(self.high)
            inside &= below.fillna(False).to_numpy(dtype=bool)
        return inside

    def single_value(self, coder: Any) -> None:
        """See `Codes`; a range has several."""


@dataclass(frozen=True)
class Outside:
    """A continuous column's values that are in none of some ranges; missing ones too, if so."""

    column: Any
    ranges: tuple[Range, ...]
    missing: bool

    def met(self, codes: np.ndarray, table: Any) -> np.ndarray:  # (n,)
        """Find the rows that meet it, given the decoded table."""
        present = column_of(table, self.column).notna().to_numpy(dtype=bool)
        met = present | self.missing
        for excluded in self.ranges:
            met &= ~excluded.met(codes, table)
        return met

    def single_value(self, coder: Any) -> None:
        """See `Codes`."""


@dataclass(frozen=True, eq=False)
class PointConditions:
    """Numbers of a continuous column, any of which meets it, and possibly a missing value.

    Sampled rows may never have exactly this number. It is written into the rows with the nearest
    numbers.
    """

    column: Any
    coder: NumberColumn
    values: pd.Series  # of the column's dtype
    missing: bool = False  # whether a missing value meets it

    def single_value(self, coder: Any) -> pd.Series | None:
        """See `Codes`."""
        return self.values if len(self.values) == 1 and not self.missing else None

    def distances(self, table: pd.DataFrame | np.ndarray) -> np.ndarray:  # (n,)
        """Return each row's distance from these numbers; infinite if it may not be missing."""
        away, missing = self._away(column_of(table, self.column))
        return np.where(missing, 0.0 if self.missing else np.inf, away.min(axis=1))

    def write(self, table: Any) -> None:
        """Put the nearest requested number into each row that is not missing."""
        column = column_of(table, self.column)
        away, missing = self._away(column)
        nearest = self.values.take(away.argmin(axis=1)).set_axis(column.index)
        write_column(table, self.column, nearest.where(~missing, column))

    def _away(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray]:  # (n, n_values), (n,)
        x, missing = self.coder.format.read(column, str(self.column))
        points, _ = self.coder.format.read(self.values, str(self.column))
        return np.abs(np.where(missing, 0.0, x)[:, None] - points), missing


Condition = Codes | Range | Outside | PointConditions
RANGES = (Range, Outside)  # conditions on decoded numbers


def write_points(table: Any, conditions: Sequence[Condition]) -> None:
    """Put requested numbers into rows that meet the same conditions."""
    for condition in conditions:
        if isinstance(condition, PointConditions):
            condition.write(table)


def write_each(table: Any, patterns: Sequence[Sequence[Condition]], which: np.ndarray) -> None:
    """Put requested numbers into rows that meet different conditions.

    The pattern of row i is ``patterns[which[i]]``, with points of one value each.
    """
    by_column: dict[Any, tuple[list[int], list[pd.Series]]] = {}
    for p, pattern in enumerate(patterns):
        for condition in pattern:
            if isinstance(condition, PointConditions):
                indices, values = by_column.setdefault(condition.column, ([], []))
                indices.append(p)
                values.append(condition.values)
    for name, (indices, values) in by_column.items():
        value_of_pattern = np.full(len(patterns), -1)
        value_of_pattern[indices] = range(len(indices))
        value_of_row = value_of_pattern[which]
        column = column_of(table, name)
        numbers = pd.concat(values, ignore_index=True).take(np.maximum(value_of_row, 0))
        numbers = numbers.set_axis(column.index)
        write_column(table, name, numbers.where(value_of_row >= 0, column))


def warn_of_others(cells_by_column: Mapping[Any, pd.Series]) -> None:
    """Warn that values that are never sampled are kept."""
    name, cells = next(iter(cells_by_column.items()))
    first = cells.iloc[0]
    n = len({row for column in cells_by_column.values() for row in column.index})
    warnings.warn(
        f"seed_data has values that are never sampled, such as "
        f"{first.item() if isinstance(first, np.generic) else first!r} in {name!r} (rows with "
        f"such values: {n}); they are kept, and the other columns are sampled as for the "
        "nearest number, or as if the category were not given",
        stacklevel=5,
    )


def write_others(table: Any, cells_by_column: Mapping[Any, pd.Series], rows: np.ndarray) -> Any:
    """The table with values that are never sampled.

    The cells are those of `read_each`, and ``rows`` the positions of the table's rows in it.
    """
    for name, cells in cells_by_column.items():
        has_cell = np.isin(rows, cells.index)
        column = put_cells(column_of(table, name), has_cell, cells.loc[rows[has_cell]])
        if isinstance(table, np.ndarray):
            table = table.astype(np.result_type(table, column.to_numpy()))
        write_column(table, name, column)
    return table


def column_of(table: pd.DataFrame | np.ndarray, name: Any) -> pd.Series:
    """A column of a decoded table."""
    return table[name] if isinstance(table, pd.DataFrame) else pd.Series(table[:, name])


def equal_cells(first: pd.Series, second: pd.Series) -> np.ndarray:
    """Find the rows where two columns have the same value, or both none, (n,) bool."""
    equal = (first == second).fillna(False).to_numpy(dtype=bool)
    return np.asarray(equal | (first.isna() & second.isna()))


def write_column(table: Any, name: Any, column: pd.Series) -> None:
    """Put a column of the same dtype into a decoded table."""
    if isinstance(table, pd.DataFrame):
        table[name] = column
    else:
        table[:, name] = column.to_numpy()


def all_met(conditions: Sequence[Condition], codes: np.ndarray, table: Any) -> np.ndarray:
    """Find the rows that meet all conditions, (n,), or have the numbers nearest to points.

    The decoded table is needed where there are ranges or points.
    """
    met, points = np.ones(len(codes), dtype=bool), []
    for condition in conditions:
        if isinstance(condition, PointConditions):
            points.append(condition.distances(table))
        else:
            met &= condition.met(codes, table)
    return met & _nearest_rows(np.stack(points)) if points else met


def _nearest_rows(distances: np.ndarray) -> np.ndarray:  # (n_points, n) -> (n,)
    """The rows that are nearest in all columns: one in NEAREST, or all that are there exactly."""
    from scipy.stats import rankdata  # takes half a second to import

    ranks = rankdata(distances, method="min", axis=1).max(axis=0)
    possible = np.isfinite(distances).all(axis=0)
    ranks = np.where(possible, ranks, np.inf)
    n_exact = int((distances == 0).all(axis=0).sum())
    n_kept = min(int(possible.sum()), max(n_exact, -(-len(ranks) // NEAREST)))
    nearest = np.zeros(len(ranks), dtype=bool)
    nearest[np.argsort(ranks, kind="stable")[:n_kept]] = True
    return nearest


# ---- Conditions on sampled rows, as users write them: values of columns, or ranges of numbers ----

_MANY = (list, set, frozenset, np.ndarray, pd.Index, pd.Series, pd.api.extensions.ExtensionArray)


def check_conditions(encoder: ModeEncoder, conditions: Mapping[Any, Any]) -> None:
    """Check whether a generator of a table can sample rows that meet conditions.

    Parameters
    ----------
    encoder : ModeEncoder
        Encoder, fitted on the table.
    conditions : mapping
        Conditions, as in ``CTGAN.sample``.

    Raises
    ------
    ValueError
        As in ``sample``, except for rows that are too rare.

    Examples
    --------
    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> check_conditions(encoder, {"age": 45, "city": "b"})
    """
    read_conditions(encoder, conditions)


def read_conditions(encoder: ModeEncoder, conditions: Any) -> list[Condition]:
    """Check conditions and express them in the encoder's terms.

    They are as ``BaseGenerator.sample`` has them; those that a constant column meets are left out.
    Raises ValueError if there is no such column or value, or a range is empty, not one, or beyond
    all values.
    """
    if not isinstance(conditions, Mapping):
        raise ValueError(
            "conditions must be a mapping such as {column: value}, got "
            f"{type(conditions).__name__}; sample_from takes a DataFrame with one row each"
        )
    read = [_read_condition(encoder, column, value) for column, value in conditions.items()]
    return [condition for condition in read if condition is not None]


def read_each(
    encoder: ModeEncoder, conditions: pd.DataFrame, nearest: bool = False
) -> tuple[list[list[Condition]], np.ndarray, dict[Any, pd.Series]]:
    """Read rows of conditions: the different ones, and which of them each row is, (n,).

    A missing value is no condition. With ``nearest``, a number that is never sampled stands for the
    nearest one that is, and such a category is no condition. The third result has these cells by
    column, with the positions of their rows as index.

    Raises ValueError if there is no such column or value, or a column is there twice.
    """
    if not conditions.columns.is_unique:
        twice = conditions.columns[conditions.columns.duplicated()].tolist()
        name = "seed_data" if nearest else "conditions"
        raise ValueError(f"{name} has the columns {twice} more than once")
    codes = np.zeros((len(conditions), conditions.shape[1]), dtype=np.intp)
    read: list[list[Condition | None]] = []
    unsampled: dict[Any, pd.Series] = {}
    for j, column in enumerate(conditions.columns):
        try:
            codes[:, j], values = pd.factorize(conditions.iloc[:, j])  # -1 for a missing value
        except TypeError:
            raise ValueError(
                f"conditions on {column!r} must be single values, one per row; a cell holds several"
            ) from None
        read.append([None] * (len(values) + 1))
        cells: dict[int, Any] = {}
        for code, value in enumerate(values):
            try:
                read[j][code] = read_values(encoder, column, [value])
            except ValueError:
                if not nearest:
                    raise
                read[j][code], cells[code] = _read_nearest(encoder, column, value)
        rows = np.flatnonzero(np.isin(codes[:, j], list(cells)))
        if len(rows):
            unsampled[column] = pd.Series([cells[code] for code in codes[rows, j]], index=rows)
    patterns, which = np.unique(codes, axis=0, return_inverse=True)
    read_patterns = [
        [
            condition
            for column, code in zip(read, pattern, strict=True)
            if (condition := column[code])
        ]
        for pattern in patterns
    ]
    return read_patterns, which.reshape(-1), unsampled


def _read_nearest(encoder: ModeEncoder, column: Any, value: Any) -> tuple[Condition | None, Any]:
    """The condition nearest to a value that is never sampled, and the value itself."""
    coder = encoder.columns_[encoder.schema_.position(column)]
    if not coder.is_continuous:
        return None, value
    number = _as_number(column, coder, value)
    if isinstance(number, Real) and math.isinf(number):
        raise ValueError(
            f"{column!r} is given as {value!r}; leave such cells missing, or bound them"
        )
    lowest, highest = map(python_scalar, coder.bounds)
    return PointConditions(
        column, coder, _as_written(coder, min(max(number, lowest), highest))
    ), number


def _read_condition(encoder: ModeEncoder, column: Any, value: Any) -> Condition | None:
    if isinstance(value, tuple):
        return read_range(encoder, column, value)
    values = list(value) if isinstance(value, _MANY) else [value]
    if not values:
        raise ValueError(f"the condition on {column!r} has no values; leave it out")
    return read_values(encoder, column, values)


def read_values(encoder: ModeEncoder, column: Any, values: list[Any]) -> Condition | None:
    """Read a condition on values of a column; None if every row meets it."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    if coder.is_continuous:
        return _read_numbers(encoder, j, coder, values)
    if coder.categories is not None and _is_moment(coder.values.dtype):
        values = [v if _is_no_value(v) else _as_value(v, coder.values) for v in values]
    codes = [coder.code(value, label) for value in values]  # raises for unknown ones
    if coder.size == 1:
        return None
    return Codes(column, span_of(encoder, j), tuple(dict.fromkeys(codes)))


def _read_numbers(
    encoder: ModeEncoder, j: int, coder: NumberColumn, values: list[Any]
) -> Codes | PointConditions:
    column, label = encoder.schema_.keys[j], encoder.schema_.label(j)
    numbers = [value for value in values if not _is_no_value(value)]
    missing = len(numbers) < len(values)
    if missing and (coder.rare or not coder.missing):
        few = ", or in fewer rows than min_frequency (with differential privacy: than noise hides)"
        raise ValueError(
            f"{label} had no missing values{few if coder.rare else ''}, so none will be generated"
        )
    if not numbers:
        return Codes(column, span_of(encoder, j), (coder.size - 1,))
    values_of_column = pd.concat(
        [_as_held(column, coder, value) for value in numbers], ignore_index=True
    )
    return PointConditions(column, coder, values_of_column, missing)


def _as_held(column: Any, coder: NumberColumn, value: Any) -> pd.Series:
    """Convert a number to the dtype of its column, a Series of one.

    Raises ValueError if the column cannot hold it: the error has the nearest one that it can.
    """
    number = _as_number(column, coder, value)
    lowest, highest = map(python_scalar, coder.bounds)
    if not lowest <= number <= highest:
        raise ValueError(f"{column!r} is never {value!r}: its values lie in {lowest} to {highest}")
    column_value = _as_written(coder, number)
    if (
        coder.format.is_integer and coder.format.step == 1
    ):  # of all whole numbers or ticks: not by way of floats
        integer = number if _is_moment(coder.bounds.dtype) else round(number)
        column_value = pd.Series([integer]).astype(coder.format.dtype)
    if coder.format.decimals is None:  # of any number of digits: as it is
        column_value = pd.Series([number]).astype(coder.format.dtype)
    elif not _same_number(python_scalar(column_value.iloc[0]), number):
        raise ValueError(
            f"{column!r} is never {value!r}, because its values are rounded; use "
            f"{column_value.iloc[0]}, or a range (low, high)"
        )
    return column_value


def _as_number(column: Any, coder: NumberColumn, value: Any) -> Any:
    """Convert a value to a number, date or duration of a column; raises ValueError if it fails."""
    number = _as_value(value, coder.bounds)
    if pd.isna(number):
        raise ValueError(
            f"{value!r} is not a value of {column!r}, which has values like {coder.bounds.iloc[0]}"
        )
    return number


def _as_written(coder: NumberColumn, number: Any) -> pd.Series:
    """Round a number within a column's bounds as the column does, a Series of one."""
    return coder.format.write(offset_of(coder, number), np.zeros(1, dtype=bool))


def _same_number(column_value: Any, number: Any) -> bool:
    """Compare two numbers up to the rounding of floats: 0.1 + 0.2 is 0.3."""
    if isinstance(column_value, float | np.floating | Decimal):
        eps = np.finfo(column_value.dtype if isinstance(column_value, np.floating) else float).eps
        return bool(abs(float(column_value) - float(number)) <= 4 * eps * abs(float(number)))
    return bool(column_value == number)


def read_range(encoder: ModeEncoder, column: Any, ends: tuple[Any, ...]) -> Range | None:
    if len(ends) != 2 or all(end is None for end in ends):
        raise ValueError(
            f"the condition on {column!r} must be a value, a list of values or a range "
            f"(low, high), got {ends!r}"
        )
    j = encoder.schema_.position(column)
    coder = encoder.columns_[j]
    if coder.is_identifier:
        coder.code(ends, encoder.schema_.label(j))  # raises
        return None
    is_ordered = coder.size == 1 and not coder.missing and _is_ordered(coder.examples)
    if not coder.is_continuous and not is_ordered:
        raise ValueError(
            f"column {column!r} is discrete, and {ends!r} is a range; give the values as a list"
        )
    values = coder.bounds if coder.is_continuous else coder.values.iloc[[0, 0]]
    low, high = (None if end is None else range_end(column, end, values) for end in ends)
    if low is not None and high is not None and low > high:
        raise ValueError(f"the range {ends!r} of {column!r} is empty")
    lowest, highest = map(python_scalar, values)
    is_outside = (low is not None and low > highest) or (high is not None and high < lowest)
    if not is_outside:  # an end outside is open: a column of dates may not hold it
        low = None if low is None or low <= lowest else low
        high = None if high is None or high >= highest else high
    between = not is_outside and coder.is_continuous and not _holds_any(coder, low, high)
    if is_outside or between:
        rounded = ", rounded" if between else ""
        raise ValueError(
            f"no value of {column!r} lies in the range {ends!r}: they lie in {lowest} to "
            f"{highest}{rounded}"
        )
    return Range(column, low, high) if coder.is_continuous else None


def _holds_any(coder: NumberColumn, low: Any, high: Any) -> bool:
    """Whether a column can have a number in a range that overlaps its bounds."""
    if low is None or high is None:
        return True
    ends = np.concatenate([offset_of(coder, end) for end in (low, high)])
    # of equidistant numbers, one that a range holds is the nearest to an end or to its middle
    probes = coder.format.write(np.append(ends, ends.mean()), np.zeros(3, dtype=bool))
    return bool((probes.ge(low) & probes.le(high)).any())


def offset_of(coder: NumberColumn, value: Any) -> np.ndarray:
    """A number in the units of the column's format, (1,), even if the column cannot have it."""
    format = coder.format
    if _is_moment(coder.bounds.dtype):
        return format.read(pd.Series([value]).astype(format.dtype), "")[0]
    low, exponent = float(format.low), getattr(format, "exponent", 0)
    if not exponent and abs(low) >= 2**53:  # float64 would round it with such a large offset
        return np.array([float(int(value) - int(format.low))])
    return np.ldexp([float(value)], -exponent) - np.ldexp(low, -exponent)


def range_end(column: Any, value: Any, values: pd.Series) -> Any:
    """An end of a range as a value of its column."""
    end = _as_value(value, values)
    if pd.isna(end):
        raise ValueError(
            f"{value!r} cannot be an end of a range of {column!r}, which has values like "
            f"{values.iloc[0]}"
        )
    return end


def _as_value(value: Any, values: pd.Series) -> Any:
    """Convert a value to the number, date, duration or time of a column; NaT for other values."""
    excluded = bool | np.bool_ | np.timedelta64  # the last is a whole number to numpy
    number = isinstance(value, Real | Decimal) and not isinstance(value, excluded)
    try:
        if types.is_datetime64_any_dtype(values.dtype):
            moment: Any = pd.NaT if number or is_now(value) else pd.Timestamp(value)
        elif types.is_timedelta64_dtype(values.dtype):
            return pd.NaT if number else pd.Timedelta(value)
        elif _is_moment(values.dtype):  # a time of day
            return value if isinstance(value, time) else pd.NaT
        else:
            return value if number else pd.NaT
    except (ValueError, TypeError):
        return pd.NaT
    zone = getattr(values.iloc[0], "tz", None)
    if zone is not None and moment is not pd.NaT and moment.tz is None:
        moment = on_clocks(moment, zone)
    return pd.NaT if (moment.tz is None) != (zone is None) else moment


def on_clocks(moment: pd.Timestamp, zone: Any) -> pd.Timestamp:
    """The moment that the clocks of a time zone show; midnight is the begin of a day.

    Raises ValueError if they show it twice, or never.

    >>> on_clocks(pd.Timestamp("2024-03-31 03:00"), "Europe/Oslo").isoformat()
    '2024-03-31T03:00:00+02:00'
    """
    day = moment == moment.normalize()
    shown_moment: Any = moment.tz_localize(
        zone, ambiguous=True if day else "NaT", nonexistent="shift_forward" if day else "NaT"
    )
    if shown_moment is pd.NaT:
        raise ValueError(
            f"the clocks of {zone}, which were changed that day, showed {moment} twice or never; "
            f"give it with its offset, such as {moment}+00:00"
        )
    return shown_moment


def read_moments(text: str, form: str | None, zone: Any) -> tuple[pd.Timestamp, pd.Timestamp]:
    """Read a date as text in its ``form``, or in ISO 8601; a day is its first and last moment.

    Raises ValueError if it is not a date.

    >>> first, last = read_moments("31.12.2024", "%d.%m.%Y", None)
    >>> str(first), str(last)
    ('2024-12-31 00:00:00', '2024-12-31 23:59:59.999999999')
    """
    text = text.strip()
    moment = None
    for pattern in (form, form and form.split("%H")[0].rstrip(" T")):
        if pattern and moment is None:
            try:
                moment = datetime.strptime(text, pattern)
            except ValueError:
                continue
    try:
        low = pd.Timestamp(moment or datetime.fromisoformat(text))
    except ValueError:
        examples = dict.fromkeys(
            pd.Timestamp(2025, 1, 31).strftime(f) for f in (_ISO, form or _ISO)
        )
        raise ValueError(f"{text!r} is not a date; write it as {' or '.join(examples)}") from None
    is_day = not re.search(r"[T:\s]", text)
    high = low + timedelta(days=1) if is_day else low
    if low.tz is None and zone is not None:
        low, high = on_clocks(low, zone), on_clocks(high, zone)
    elif low.tz is not None and zone is None:
        low = high = low.tz_convert("UTC").tz_localize(None)
    if is_day:  # nanoseconds exist only for these years
        has_nanoseconds = 1700 < high.year < 2200
        high -= pd.Timedelta(1, "ns") if has_nanoseconds else timedelta(microseconds=1)
    return low, high


def read_number(text: str, form: AmountForm | None = None) -> tuple[Any, Any]:
    """Read a number in the format of the column's file, or as Python writes it; it comes twice."""
    if form is not None and (numbers := form.read([text])) is not None:
        return numbers[text], numbers[text]
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            if math.isfinite(number := kind(text)):
                return number, number
    raise ValueError(f"{text!r} is not a number")


def read_duration(text: str) -> tuple[pd.Timedelta, pd.Timedelta]:
    """Read a duration, which comes twice, as the first and the last value of the text."""
    try:
        duration = pd.Timedelta(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a duration; write it as '2 days 03:00:00'") from None
    return duration, duration


def python_scalar(value: Any) -> Any:
    """Convert a date without a time to one with a time."""
    return pd.Timestamp(value) if isinstance(value, date) else value


def _is_moment(dtype: Any) -> bool:
    of_day = getattr(dtype, "type", None) is time  # of pyarrow
    return of_day or types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype)


def _is_ordered(values: pd.Series) -> bool:
    number = types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype)
    return number or _is_moment(values.dtype)


def _is_no_value(value: Any) -> bool:
    return bool(types.is_scalar(value) and pd.isna(value))


def span_of(encoder: ModeEncoder, j: int) -> int:
    """The span of a column, by its position."""
    return next(i for i, span in enumerate(encoder.layout_.spans) if span.column == j)
