"""Columns of numbers, dates and durations as float64 that starts at 0, and exactly back.

Integers, dates and durations are counted from the smallest one in integer arithmetic, so that
nothing is lost beside a large offset; floats are counted from the smallest one in units of a power
of two near their range, so that nothing overflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._columns import raise_complex
from combutab.preprocessing.modes._bounds import find_bounds
from combutab.preprocessing.modes._grids import HELD, Grids, find_grids

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_UNITS["D"] = 24 * _UNITS["h"]
_NAT = np.iinfo(np.int64).min
# Decimal digits that the floating dtypes hold for certain, by bytes.
_DIGITS = {2: 3, 4: 6, 8: 15}


@dataclass(frozen=True)
class TickFormat:
    """Integers, dates or durations between `low` and `high`, on a grid of `step` ticks.

    A tick is 1, or the unit of the dtype. A grid of days is one of the column's own time zone.
    """

    dtype: Any
    low: int
    high: int
    step: int

    def read(self, column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Ticks above `low`, (n,) float64, and where they are missing, (n,) bool."""
        ticks, missing = _to_ticks(column)
        low, high = (np.asarray(each, dtype=ticks.dtype) for each in (self.low, self.high))
        offsets = np.clip(ticks, low, high).view(np.uint64) - low.view(np.uint64)
        return offsets.astype(np.float64), missing

    def numbers(self, x: np.ndarray) -> np.ndarray:
        """The integers that `read` made x of, within the bounds, (n,) float64."""
        return np.clip(x, 0.0, float(self.high - self.low)) + float(self.low)

    def above(self, numbers: np.ndarray) -> np.ndarray:
        """Invert `numbers`."""
        return numbers - float(self.low)

    def write(self, x: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Invert `read`, with all numbers brought to the grid and the bounds."""
        width = self.high - self.low
        zone = _zone(self.dtype)
        step = 1 if zone else self.step
        x = np.clip(np.rint(x / step) * step, 0.0, float(width))
        # float(width) may be above the integers of 64 bits
        offsets = np.minimum(x, np.nextafter(float(width), 0.0)).astype(np.uint64)
        offsets[x >= float(width)] = width
        ticks = offsets + np.uint64(self.low % 2**64)
        if self.high <= np.iinfo(np.int64).max:
            ticks = ticks.view(np.int64)
        if zone and self.step > 1:
            ticks = _snap(ticks, self.step, _unit(self.dtype), zone)
            ticks = np.clip(ticks, self.low, self.high)
        return _from_ticks(ticks, missing, self.dtype)


@dataclass(frozen=True)
class FloatFormat:
    """Floats between `low` and `high`, counted in units of 2**exponent.

    `decimals` is how many they all have, None if more than their dtype holds for certain.
    """

    dtype: Any
    low: float
    high: float
    exponent: int
    decimals: int | None

    def read(self, column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers above `low`, (n,) float64 in [0, 1], and where they are missing, (n,) bool."""
        x, missing = _to_floats(column, label)
        return self.above(np.clip(x, self.low, self.high)), missing

    def write(self, x: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Invert `read`, with all numbers brought to the decimals and the bounds."""
        return self.hold(self.numbers(x), missing)

    def numbers(self, x: np.ndarray) -> np.ndarray:
        """The numbers that `read` made x of, within the bounds."""
        x = np.clip(
            x, 0.0, np.ldexp(self.high, -self.exponent) - np.ldexp(self.low, -self.exponent)
        )
        with np.errstate(over="ignore"):  # beyond the bounds
            return np.ldexp(x + np.ldexp(self.low, -self.exponent), self.exponent)

    def above(self, numbers: np.ndarray) -> np.ndarray:
        """Invert `numbers`."""
        return np.ldexp(numbers, -self.exponent) - np.ldexp(self.low, -self.exponent)

    def hold(self, numbers: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Numbers as the column has them, with its decimals and bounds."""
        if self.decimals is not None:
            numbers = np.round(numbers, self.decimals) + 0.0  # no -0.0
        return _from_floats(np.clip(numbers, self.low, self.high), missing, self.dtype)


Format = TickFormat | FloatFormat


def grids_of(format: Format, x: np.ndarray, fewest: int = 1) -> Grids | None:
    """The grids that numbers are on which ``format.read`` gave, (n,); None for dates."""
    if isinstance(format, FloatFormat):
        return find_grids(format.numbers(x), format.decimals, fewest)
    if _unit(format.dtype) is not None or max(abs(format.low), abs(format.high)) >= HELD:
        return None
    return find_grids(format.numbers(x), 0, fewest)


def fit_format(column: pd.Series, label: str, fewest: int = 1) -> Format | None:
    """Find a column's number format; None for text, truth values and categories.

    An object column counts as numbers if all that is in it are. Bounds that fewer rows than
    `fewest` share are others, as `find_bounds` has them.

    Raises ValueError if a number is infinite or complex.
    """
    kind = _number_kind(column, label)
    if kind is None:
        return None
    dtype = column.dtype
    if kind == "ticks":
        try:
            ticks, missing = _to_ticks(column)
        except OverflowError:  # Python's integers beyond 64 bits
            kind = "floats"
        else:
            present = ticks[~missing]
            if not len(present):
                return TickFormat(dtype, 0, 0, 1)
            step = _resolution(present, dtype)
            return TickFormat(dtype, *_tick_bounds(present, dtype, step, fewest), step)
    x, missing = _to_floats(column, label)
    present = x[~missing]
    if not len(present):
        return FloatFormat(dtype, 0.0, 0.0, 0, None)
    decimals, most = _decimals(present, dtype), _greatest_float(dtype)
    low, high = (min(max(float(v), -most), most) for v in find_bounds(present, fewest))
    return FloatFormat(dtype, low, high, _exponent(low, high), decimals)


def _number_kind(column: pd.Series, label: str) -> str | None:
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.ArrowDtype):
        return _arrow_kind(dtype.pyarrow_dtype)
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype):
        return None
    if dtype.kind == "O" and isinstance(dtype, np.dtype):
        inferred = types.infer_dtype(column.to_numpy(), skipna=True)
        if inferred in ("floating", "mixed-integer-float"):
            return "floats"
        return "ticks" if inferred == "integer" else None
    if dtype.kind == "c":
        raise_complex(label)
    if isinstance(dtype, pd.PeriodDtype):
        return None
    return {"f": "floats", "i": "ticks", "u": "ticks", "M": "ticks", "m": "ticks"}.get(dtype.kind)


def _arrow_kind(dtype: Any) -> str | None:
    import pyarrow.types as pat

    if pat.is_floating(dtype) or pat.is_decimal(dtype):
        return "floats"
    return "ticks" if pat.is_integer(dtype) or pat.is_temporal(dtype) else None


def _to_ticks(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """(n,) int64, or uint64 where the dtype is, and where they are missing."""
    dtype: Any = column.dtype
    missing = column.isna().to_numpy(dtype=bool)
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        kind: Any = dtype.pyarrow_dtype
        array = pa.array(column.array)
        if kind.bit_width == 32 and pa.types.is_temporal(kind):
            array = array.cast(pa.int32())
        wide = pa.uint64() if kind == pa.uint64() else pa.int64()
        ticks = array.cast(wide).fill_null(0).to_numpy(zero_copy_only=False)
        return ticks, missing
    if isinstance(dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    elif isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
    if column.dtype.kind in "Mm":
        return column.to_numpy().view(np.int64), missing
    if column.dtype.kind == "O":
        values = column.to_numpy(dtype=object, copy=True)
        values[missing] = 0
        return values.astype(np.int64), missing
    wide = np.uint64 if column.dtype.kind == "u" else np.int64
    if missing.any():
        return column.to_numpy(dtype=wide, na_value=0), missing
    return column.to_numpy(dtype=wide), missing


def _from_ticks(ticks: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        kind: Any = dtype.pyarrow_dtype
        array = pa.array(ticks, mask=missing)
        if kind.bit_width == 32 and pa.types.is_temporal(kind):
            array = array.cast(pa.int32())
        return pd.Series(pd.arrays.ArrowExtensionArray(array.cast(kind)))
    if dtype.kind in "Mm":
        ticks = np.where(missing, _NAT, ticks)
        if isinstance(dtype, pd.DatetimeTZDtype):
            moments = pd.Series(ticks.view(f"M8[{dtype.unit}]"))
            return moments.dt.tz_localize("UTC").dt.tz_convert(dtype.tz)
        return pd.Series(ticks.view(dtype))
    return _from_numbers(ticks, missing, dtype)


def from_integers(numbers: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    """Whole numbers, (n,) uint64 that fit into any dtype of numbers or objects, as a column."""
    if types.is_float_dtype(dtype):
        return _from_floats(np.where(missing, np.nan, numbers.astype(np.float64)), missing, dtype)
    unsigned = types.is_unsigned_integer_dtype(dtype)
    return _from_ticks(numbers if unsigned else numbers.astype(np.int64), missing, dtype)


def _to_floats(column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float64, and where they are missing."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        values = column.to_numpy(dtype=object, copy=True)
        values[column.isna().to_numpy()] = np.nan
        x = values.astype(np.float64)
    elif isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        x = pa.array(column.array).cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        x = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(x).any():
        raise ValueError(f"{label} has infinite values; replace them by missing ones or by a bound")
    return x, np.isnan(x)


def _from_floats(x: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        array = pa.array(x, mask=missing).cast(dtype.pyarrow_dtype)
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    return _from_numbers(x, missing, dtype)


def _from_numbers(numbers: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if hasattr(dtype, "numpy_dtype"):  # pandas' nullable ones
        return pd.Series(dtype.construct_array_type()(numbers.astype(dtype.numpy_dtype), missing))
    if missing.any():
        objects = dtype.kind == "O"
        numbers = numbers.astype(object) if objects else numbers.astype(np.float64)
        numbers[missing] = np.nan
    return pd.Series(numbers).astype(dtype)


def _tick_bounds(ticks: np.ndarray, dtype: Any, step: int, fewest: int) -> tuple[int, int]:
    """Bounds on the grid of the steps, within what the dtype holds."""
    unit, zone = _unit(dtype), _zone(dtype)
    if fewest <= 1:
        return int(ticks.min()), int(ticks.max())
    local = ticks if zone is None else _local(ticks, unit, zone)
    found = find_bounds(local if step == 1 else local // step, fewest)
    least, most = _tick_range(dtype, step)
    low, high = (min(max(each * step, least), most) for each in found)
    if zone is None:
        return low, high
    moments = pd.DatetimeIndex(np.array([low, high]).view(f"M8[{unit}]"))
    # of a clock's hour that is there twice the outer one; one that is left out is moved
    earlier = np.array([True, False])
    moments = moments.tz_localize(zone, ambiguous=earlier, nonexistent="shift_forward")
    low, high = moments.tz_convert("UTC").tz_localize(None).to_numpy().view(np.int64).tolist()
    return low, high


def _tick_range(dtype: Any, step: int) -> tuple[int, int]:
    """The least and the greatest whole number of steps that a dtype holds."""
    bits: Any = np.int64
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow.types as pat

        kind: Any = dtype.pyarrow_dtype
        if pat.is_time(kind):  # of day
            return 0, _UNITS["D"] // _UNITS[kind.unit] - step
        bits = f"{'u' if pat.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}"
    elif dtype.kind in "iu":  # nullable and sparse ones name the numpy dtype
        bits = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    bounds = np.iinfo(bits)
    # the least one of all is a missing date
    least = int(bounds.min) if _unit(dtype) is None else -int(bounds.max)
    return -(-least // step) * step, int(bounds.max) // step * step


def _greatest_float(dtype: Any) -> float:
    if isinstance(dtype, pd.ArrowDtype) and hasattr(dtype.pyarrow_dtype, "scale"):
        kind: Any = dtype.pyarrow_dtype
        return float(10.0 ** (kind.precision - kind.scale) - 10.0**-kind.scale)
    return float(np.finfo(_float_dtype(dtype)).max)


def _exponent(low: float, high: float) -> int:
    """A power of two by which the range becomes at most 1, found without overflow."""
    exponent = max(np.frexp(low)[1], np.frexp(high)[1]) + 1
    return int(exponent + np.frexp(np.ldexp(high, -exponent) - np.ldexp(low, -exponent))[1])


def _decimals(x: np.ndarray, dtype: Any) -> int | None:
    """The fewest decimals that all numbers have, None if their dtype could not tell."""
    if isinstance(dtype, pd.ArrowDtype) and hasattr(dtype.pyarrow_dtype, "scale"):
        return int(dtype.pyarrow_dtype.scale)
    numpy_dtype = _float_dtype(dtype)
    digits = _DIGITS[numpy_dtype.itemsize]
    largest = float(np.abs(x).max())
    for decimals in range(digits + 1):
        if largest > 10.0 ** (digits - decimals):
            return None
        # A few first: most columns that have more decimals show it there.
        for some in (x[:1000], x):
            if (np.round(some, decimals).astype(numpy_dtype) != some).any():
                break
        else:
            return decimals
    return None


def _float_dtype(dtype: Any) -> np.dtype:
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.ArrowDtype):
        return np.dtype(f"f{dtype.pyarrow_dtype.bit_width // 8}")
    dtype = getattr(dtype, "numpy_dtype", dtype)
    return np.dtype(dtype if dtype.kind == "f" and dtype.itemsize in _DIGITS else np.float64)


def _resolution(ticks: np.ndarray, dtype: Any) -> int:
    """Ticks of the coarsest of day, hour, ... that all dates or durations are whole numbers of."""
    unit = _unit(dtype)
    if unit is None:
        return 1
    zone = _zone(dtype)
    local = ticks if zone is None else _local(ticks, unit, zone)
    for size in sorted(_UNITS.values(), reverse=True):
        step, rest = divmod(size, _UNITS[unit])
        if rest == 0 and not (local % step).any():
            return step
    return 1


def _unit(dtype: Any) -> str | None:
    """The unit of a dtype of dates or durations, None for other ones."""
    if isinstance(dtype, pd.ArrowDtype):
        kind: Any = dtype.pyarrow_dtype
        return getattr(kind, "unit", {"date32[day]": "D", "date64[ms]": "ms"}.get(str(kind)))
    if isinstance(dtype, pd.DatetimeTZDtype):
        return dtype.unit
    return np.datetime_data(dtype)[0] if dtype.kind in "Mm" else None


def _zone(dtype: Any) -> Any:
    if isinstance(dtype, pd.ArrowDtype):
        return getattr(dtype.pyarrow_dtype, "tz", None)
    return getattr(dtype, "tz", None)


def _local(ticks: np.ndarray, unit: str | None, zone: Any) -> np.ndarray:
    """Moments as the clocks of a time zone show them."""
    moments = pd.DatetimeIndex(ticks.view(f"M8[{unit}]")).tz_localize("UTC").tz_convert(zone)
    return moments.tz_localize(None).to_numpy().view(np.int64)


def _snap(ticks: np.ndarray, step: int, unit: str | None, zone: Any) -> np.ndarray:
    """The nearest moments whose clocks show a whole number of steps."""
    local = _local(ticks, unit, zone)
    target = (local + step // 2) // step * step
    snapped = target - (local - ticks)
    # Where the clocks were changed between the two, they show no whole step yet.
    shown = _local(snapped, unit, zone)
    result: np.ndarray = np.where(shown % step, target - (shown - snapped), snapped)
    return result
