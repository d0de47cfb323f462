"""Cells that an encoded column can have: their kind, bounds and number, and values as cells."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.generators.conditions import (
    Codes,
    Condition,
    PointConditions,
    Range,
    offset_of,
    python_scalar,
)
from combutab.generators.expressions import (
    as_floats,
    exact_operand,
    is_exact,
    is_number,
    subtract,
)
from combutab.preprocessing import CategoryColumn, IdentifierColumn, NumberColumn

Coder = CategoryColumn | NumberColumn | IdentifierColumn
_GRID_SLACK = 1e-6  # steps of a grid, by which its ends are rounded


def number_kind(dtype: Any) -> str | None:
    """The kind of numbers, whose differences can be learned; None for other dtypes."""
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.SparseDtype):
        return None
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    return "duration" if types.is_timedelta64_dtype(dtype) else None


def is_binary(coder: Coder) -> bool:
    """Whether the only values of a column are 0 and 1, or False and True."""
    if coder.is_continuous:
        return number_kind(coder.bounds.dtype) == "number" and bool(coder.bounds.iloc[1] == 1)
    return coder.categories is not None and set(coder.keys) <= {0, 1}


def count_values(coder: Coder, condition: Condition | None, is_computed: bool) -> float:
    """The largest number of different values of a column; infinite if cells may be missing.

    Rows with missing values are not compared with others. The bounds of a column that is computed
    do not limit its values.
    """
    if coder.is_identifier:
        return math.inf
    if isinstance(condition, Codes):
        return math.inf if coder.missing_code in condition.codes else len(condition.codes)
    if isinstance(condition, PointConditions):
        return math.inf if condition.missing else len(condition.values)
    if not coder.is_continuous:
        return math.inf if coder.missing else len(coder.keys)
    has_range = isinstance(condition, Range)
    step = _grid_step(coder)
    if is_computed or step == 0 or (coder.missing and not coder.rare and not has_range):
        return math.inf
    low, high = (offset_of(coder, end)[0] for end in map(python_scalar, coder.bounds))
    if isinstance(condition, Range):
        low = low if condition.low is None else max(low, offset_of(coder, condition.low)[0])
        high = high if condition.high is None else min(high, offset_of(coder, condition.high)[0])
    return max(0, math.floor((high - low) / step + _GRID_SLACK) + 1)


def _grid_step(coder: NumberColumn) -> float:
    """The distance of neighbouring numbers, in the units of the format; 0 if it is unknown."""
    format = coder.format
    if format.is_integer:  # days of a time zone may be an hour shorter
        has_zone = getattr(format.dtype, "tz", None) is not None
        return float(format.step * 23 / 24 if has_zone else format.step)
    return 0.0 if format.decimals is None else math.ldexp(10.0**-format.decimals, -format.exponent)


def extend_bounds(coder: Coder, values: pd.Series) -> Coder:
    """A column whose bounds include the values."""
    if not coder.is_continuous:
        return coder
    format, kind = coder.format, number_kind(coder.bounds.dtype)
    if kind != "number" and isinstance(coder.bounds.dtype, pd.ArrowDtype):
        return coder
    try:
        if kind != "number":
            values = values.dropna().astype(coder.bounds.dtype).astype("int64")
        numbers = exact_operand(values)
    except (TypeError, ValueError):  # values of another kind
        return coder
    x = numbers[np.isfinite(as_floats(numbers))] if is_number(numbers) else numbers[:0]
    if not len(x):
        return coder
    low, high = x.min(), x.max()
    if format.is_integer:
        low, high = math.floor(low), math.ceil(high)
    low, high = min(format.low, low), max(format.high, high)
    return replace(coder, format=replace(format, low=low, high=high))


def hold_values(coder: Coder, values: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """Values in the dtype and format of a column, and which of them it can have, (n,) bool."""
    if coder.categories is not None:
        codes = np.array([coder.codes.get(value, -1) for value in values.astype(object)], dtype=int)
        return coder.decode(np.maximum(codes, 0)), codes >= 0
    assert coder.is_continuous
    if number_kind(coder.bounds.dtype) != "number":
        return _hold_moments(coder, values)
    if types.is_bool_dtype(values.dtype):
        values = pd.Series(as_floats(values))
    values = exact_operand(values)
    if not is_number(values):
        return _hold_nothing(coder, len(values))
    if coder.format.is_integer:
        return _hold_integers(coder, values)
    x, format = as_floats(values), coder.format
    if format.decimals is not None:
        x = np.round(x, format.decimals)
    possible = np.isfinite(x) & (x >= format.low) & (x <= format.high)
    none_missing = np.zeros(len(x), dtype=bool)
    return format.hold(np.where(possible, x, format.low), none_missing), possible


def _hold_nothing(coder: NumberColumn, n: int) -> tuple[pd.Series, np.ndarray]:
    return coder.bounds.iloc[[0] * n], np.zeros(n, dtype=bool)


def _hold_moments(coder: NumberColumn, values: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """`hold_values` for dates and durations."""
    low, high = coder.bounds
    try:
        values = values.astype(coder.bounds.dtype)
        possible = (values.ge(low) & values.le(high)).fillna(False).to_numpy(dtype=bool)
    except (TypeError, ValueError):  # values of another kind
        return _hold_nothing(coder, len(values))
    x, _ = coder.format.read(values.where(possible, low), "")
    return coder.format.write(x, np.zeros(len(values), dtype=bool)), possible


def _hold_integers(coder: NumberColumn, values: pd.Series) -> tuple[pd.Series, np.ndarray]:
    """`hold_values` for integers, which are exact although float64 would round large ones."""
    format: Any = coder.format
    x = np.rint(as_floats(subtract(values, pd.Series(format.low, values.index, dtype=object))))
    possible = np.isfinite(x) & (x >= 0) & (x <= format.high - format.low)
    column = format.write(np.where(possible, x, 0.0), np.zeros(len(values), dtype=bool))
    rows = np.flatnonzero(possible & (x >= 2**53) & is_exact(values))
    if len(rows):
        exact = column.astype(object)
        exact.iloc[rows] = [int(number) for number in values.iloc[rows]]
        column = exact.astype(column.dtype)
    return column, possible
