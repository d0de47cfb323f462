"""What sampled rows are asked to be: values of discrete columns, ranges of continuous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing import CategoryColumn, ModeEncoder, NumberColumn


@dataclass(frozen=True)
class Wanted:
    """One column's condition: codes of its span, or a range of its values."""

    column: Any
    span: int | None = None  # of a discrete column
    codes: tuple[int, ...] = ()
    low: Any = None
    high: Any = None

    def met(self, codes: np.ndarray, table: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Which rows meet it, given their codes and the decoded table."""
        if self.span is not None:
            return np.isin(codes[:, self.span], self.codes)
        column = (
            table[self.column]
            if isinstance(table, pd.DataFrame)
            else pd.Series(table[:, self.column])
        )
        inside = column.notna().to_numpy(dtype=bool, copy=True)
        if self.low is not None:
            inside &= column.ge(self.low).fillna(False).to_numpy(dtype=bool)
        if self.high is not None:
            inside &= column.le(self.high).fillna(False).to_numpy(dtype=bool)
        return inside


def read_conditions(encoder: ModeEncoder, conditions: Any) -> list[Wanted]:
    """Check conditions and express them in the encoder's terms.

    Parameters
    ----------
    encoder : ModeEncoder, fitted
    conditions : mapping
        Column -> value, or list of values any of which will do, of a discrete column; or
        ``(low, high)`` of a continuous one, both included, None for an open end. None alone is a
        missing value. Those that a constant column meets are left out.

    Raises
    ------
    ValueError
        If there is no such column or value, or a range is empty, not one, or beyond all values.
    """
    if not isinstance(conditions, Mapping):
        raise ValueError(
            "conditions must be a mapping such as {column: value}, got "
            f"{type(conditions).__name__}; sample_from takes a DataFrame, a row of conditions each"
        )
    read = [_read(encoder, column, value) for column, value in conditions.items()]
    return [wanted for wanted in read if wanted is not None]


def read_each(encoder: ModeEncoder, conditions: pd.DataFrame) -> np.ndarray:
    """The codes that each row of conditions asks for, (n, n_spans), -1 where it asks for none.

    Raises
    ------
    ValueError
        If there is no such column or value, or a column is there twice.
    """
    if not conditions.columns.is_unique:
        twice = conditions.columns[conditions.columns.duplicated()].tolist()
        raise ValueError(f"conditions has the columns {twice} more than once")
    asked = np.full((len(conditions), len(encoder.layout_.spans)), -1)
    for position, column in enumerate(conditions.columns):
        codes, values = pd.factorize(conditions.iloc[:, position])  # -1 for a missing value
        for code, value in enumerate(values):
            wanted = _read_values(encoder, column, [value])
            if wanted is not None:
                asked[codes == code, wanted.span] = wanted.codes[0]
    return asked


def _read(encoder: ModeEncoder, column: Any, value: Any) -> Wanted | None:
    if isinstance(value, tuple):
        return _read_range(encoder, column, value)
    many = isinstance(value, list | set | frozenset | np.ndarray | pd.Index | pd.Series)
    values = list(value) if many else [value]
    if not values:
        raise ValueError(f"the condition on {column!r} has no values; leave it out")
    return _read_values(encoder, column, values)


def _read_values(encoder: ModeEncoder, column: Any, values: list[Any]) -> Wanted | None:
    """The codes of values of a discrete column; None for one that is always one of them."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    if isinstance(coder, CategoryColumn) and coder.size == 1:
        coder.code(values[0], label)  # raises for another value
        return None
    if isinstance(coder, NumberColumn) and all(
        value is None or value is pd.NaT for value in values
    ):
        if not coder.missing:
            raise ValueError(f"{label} had no missing values, so none will be generated")
        span = next(i for i, span in enumerate(encoder.layout_.spans) if span.column == j)
        return Wanted(column, span, (coder.size - 1,))
    found = [encoder.condition_code(column, value) for value in values]
    return Wanted(column, found[0][0], tuple(dict.fromkeys(code for _, code in found)))


def _read_range(encoder: ModeEncoder, column: Any, ends: tuple[Any, ...]) -> Wanted | None:
    if len(ends) != 2 or ends == (None, None):
        raise ValueError(
            f"the condition on {column!r} must be a value, a list of values or a range "
            f"(low, high), got {ends!r}"
        )
    coder = encoder.columns_[encoder.schema_.position(column)]
    if isinstance(coder, CategoryColumn):
        raise ValueError(
            f"column {column!r} is discrete, and {ends!r} is a range; give the values as a list"
        )
    bounds = coder.bounds
    low, high = (None if end is None else _end(column, end, bounds) for end in ends)
    if low is not None and high is not None and low > high:
        raise ValueError(f"the range {ends!r} of {column!r} is empty")
    least, most = bounds
    if (low is not None and low > most) or (high is not None and high < least):
        raise ValueError(
            f"no value of {column!r} lies in the range {ends!r}: they lie in {least} to {most}"
        )
    return Wanted(column, low=low, high=high)


def _end(column: Any, value: Any, bounds: pd.Series) -> Any:
    """An end of a range as a value of its column."""
    end: Any = pd.NaT  # what no value is
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    try:
        if types.is_datetime64_any_dtype(bounds.dtype):
            end = end if number else pd.Timestamp(value)
            zone = bounds.iloc[0].tz
            if zone is not None and end is not pd.NaT and end.tz is None:
                end = end.tz_localize(zone)
            if (end.tz is None) != (zone is None):
                end = pd.NaT
        elif types.is_timedelta64_dtype(bounds.dtype):
            end = end if number else pd.Timedelta(value)
        else:
            end = value if number else end
    except (ValueError, TypeError):
        end = pd.NaT
    if pd.isna(end):
        raise ValueError(
            f"{value!r} is no end of a range of {column!r}, whose values are like {bounds.iloc[0]}"
        )
    return end
