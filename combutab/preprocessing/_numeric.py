"""Scaling of numeric columns: statistics in float64, result in float32, never inf or NaN.

No statistic that is kept is one row's value: quantiles lie between means of `min_frequency` rows,
and means of fewer rows than that are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from scipy.special import ndtri

from combutab.core.world import ONE_PROCESS, World
from combutab.preprocessing._columns import LARGEST, raise_infinity, refuse_large, rows_needed
from combutab.preprocessing._tables import Block

T = TypeVar("T")
Method = Literal["standard", "quantile", "robust", "none"]

# Scaled values are cut here: far beyond anything a fit saw (a z-score is at most sqrt(n)), and its
# square is still finite in float32.
_LIMIT = 1e15
_LIMIT_UNSCALED = float(np.finfo(np.float32).max)
_MIN_SCALE = float(np.finfo(np.float64).smallest_subnormal)
_KNOTS = 1001
_MIN_LEVEL = 1e-7  # quantiles nearer to 0 or 1 are cut, which is +-5.2 standard deviations


# ---- Means, standard deviations and ranges of columns that come piece by piece -------------------


@dataclass(frozen=True)
class Moments:
    """Statistics of the known values of each column, arrays of shape (n_columns,)."""

    missing: np.ndarray  # bool: some are missing
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_known: np.ndarray  # int: rows that have a value


def binary_unit(size: np.ndarray) -> np.ndarray:
    """Return a power of two near each size if its weighted square may exceed float64, else 1."""
    odd = (size > 1e140) | ((size < 1e-140) & (size > 0))
    exponent = np.frexp(np.where(odd, size, 0.5))[1]
    return np.where(odd, np.exp2(exponent - 1.0), 1.0)


def missing_mask(
    rows: np.ndarray, label: Callable[[int], str], what: str = "X"
) -> np.ndarray | None:
    """Find where rows are NaN, None if nowhere.

    Infinite and too large numbers are errors that name columns by `label`.
    """
    # two cheap passes settle almost every piece; BLAS's threads would spin after a product
    if not rows.size or (rows.max() < LARGEST and rows.min() > -LARGEST):  # False for NaN
        return None
    infinite = np.isinf(rows).any(axis=0)
    if infinite.any():
        raise_infinity(map(label, np.flatnonzero(infinite).tolist()), what)
    for j, size in enumerate(np.fmax.reduce(np.abs(rows), axis=0).tolist()):
        refuse_large(size, label(j))
    missing = np.isnan(rows)
    return missing if missing.any() else None


class RunningMoments:
    """Weighted mean, standard deviation and range of each column, in one pass over the rows.

    The statistics of the parts are merged by Chan's update, which is as accurate as two passes.
    Infinite values raise a ValueError that names the columns by `label` and the table by
    `what`.

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
        """Add rows, (n, n_columns) float64, which are overwritten, with optional weights, (n,)."""
        missing = missing_mask(rows, self._label, self._what)
        n_known = np.full(len(self._count), len(rows))
        if missing is not None:
            n_known -= missing.sum(axis=0)
        self._n_known += n_known
        self._low = np.fmin(self._low, np.fmin.reduce(rows, axis=0))
        self._high = np.fmax(self._high, np.fmax.reduce(rows, axis=0))
        self._choose_units()
        if (self._unit != 1).any():
            rows /= self._unit
        total = float(len(rows)) if weight is None else weight.sum()
        part_count = np.full(len(self._count), total)
        if missing is not None:
            rows[missing] = 0.0
            self._missing |= missing.any(axis=0)
            part_count -= missing.sum(axis=0) if weight is None else weight @ missing
            part_count[n_known == 0] = 0.0  # rounding leaves a little less, or more
        sums = rows.sum(axis=0) if weight is None else weight @ rows
        mean = sums / np.where(part_count > 0, part_count, 1)
        rows -= mean
        if missing is not None:
            rows[missing] = 0.0
        total_count = np.where(self._count + part_count > 0, self._count + part_count, 1)
        delta = mean - self._mean
        self._mean += delta * (part_count / total_count)
        if weight is None:
            self._squares += np.einsum("ij,ij->j", rows, rows)
        else:
            self._squares += np.einsum("i,ij,ij->j", weight, rows, rows)
        self._squares += delta**2 * (self._count * part_count / total_count)
        self._count += part_count

    def _choose_units(self) -> None:
        # Squares of values under 1e-154 vanish, and sums of those near 1e150 overflow: such columns
        # are measured in a power of two near their largest value so far.
        unit = binary_unit(np.fmax(np.abs(self._low), np.abs(self._high)))
        if (unit == 1).all() and (self._unit == 1).all():
            return
        with np.errstate(over="ignore"):  # of a column that was zero up to here
            ratio = np.where(self._mean != 0, self._unit / unit, 1.0)
        self._mean *= ratio
        self._squares *= np.where(self._squares > 0, ratio**2, 1.0)
        self._unit = unit

    def result(self) -> Moments:
        """Return the statistics of all rows so far."""
        std = np.sqrt(self._squares / np.where(self._count > 0, self._count, 1))
        mean, std = self._mean * self._unit, std * self._unit
        low, high = self._low.copy(), self._high.copy()
        return Moments(self._missing.copy(), mean, std, low, high, self._n_known.copy())


# ---- Scales of columns, and columns scaled -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NumericScaler:
    """Fitted scaling of numeric columns; every array has one entry (or column) for each of them.

    A value x is cut to [`low`, `high`] and becomes ``(x - centre) / scale`` (`robust` then bends
    it, `quantile` takes its normal score between `knots` instead); a missing one becomes `fill`;
    columns in `constant` become 0.
    """

    method: Method
    centre: np.ndarray
    scale: np.ndarray
    fill: np.ndarray
    constant: np.ndarray  # bool: constant in fit
    unscaled: np.ndarray  # bool: truth values, kept as 0 and 1
    missing: np.ndarray  # bool: had some missing values in fit, so has an indicator
    knots: np.ndarray  # (n_knots, n_columns), for method="quantile" only
    edges: np.ndarray  # (n_bins + 1, n_columns), of bins of scaled values, where they are wanted
    low: np.ndarray  # of dates the first one in fit, or a little earlier, so that no trend goes on
    high: np.ndarray  # of dates the last one, or a little later; LARGEST of other columns

    @property
    def n_columns(self) -> int:
        return len(self.centre)

    @property
    def is_cut(self) -> np.ndarray:
        """Which columns are cut to their range in fit, (n_columns,) bool."""
        return self.high < LARGEST

    @property
    def limit(self) -> float:
        """The absolute value at which scaled values are cut."""
        return _LIMIT_UNSCALED if self.method == "none" else _LIMIT

    @property
    def n_dense(self) -> int:
        """Columns written: the numeric ones, then the indicators."""
        return self.n_columns + int(self.missing.sum())


def make_scaler(
    stats: Moments,
    sample: Block,
    method: Method,
    unscaled: np.ndarray,
    left_out: np.ndarray,
    weight: np.ndarray | None,
    min_frequency: float,
    n_rows: int,
    n_bins: int | None = None,
    world: World = ONE_PROCESS,
) -> NumericScaler:
    """Make the scaler of columns of these statistics; quantiles are those of the weighted sample.

    `unscaled` marks the columns of truth values, `left_out` those that become 0; positive weights,
    (n_rows,), count in quantiles. Where the sample is all `n_rows` rows, nothing is estimated. With
    `n_bins` it also learns the edges of `n_bins` bins per column. Ranks, each with the whole
    sample, each find the quantiles of a part of the columns.
    """
    size = np.fmax(np.abs(stats.low), np.abs(stats.high))
    constant = ~(stats.high - stats.low > sample.tolerance * size) | left_out
    n_columns = sample.n_columns
    few = (stats.n_known < rows_needed(min_frequency, n_rows)) & ~unscaled
    spread = np.where(constant, np.abs(stats.mean), stats.std)
    mean = np.where(few, _rounded(stats.mean, spread), stats.mean)
    std = np.where(few, _rounded(stats.std, spread), stats.std)
    group = rows_needed(min_frequency, sample.n_rows)
    centre, scale = np.zeros(n_columns), np.ones(n_columns)
    fill = np.where((unscaled | (method == "none")) & ~constant, mean, 0.0)
    knots = np.empty((0, n_columns))
    scaled = np.flatnonzero(~unscaled & ~constant).tolist()
    if method == "standard":
        scale[scaled] = np.maximum(std[scaled], _MIN_SCALE)
        if sample.centred:
            centre[scaled] = mean[scaled]
        else:
            fill[scaled] = mean[scaled] / scale[scaled]
    elif method == "robust":
        both = _map_columns(
            scaled, lambda j: _median_and_spread(sample.column(j), weight, group, std[j]), world
        )
        for j, (median, width) in zip(scaled, both, strict=True):
            centre[j], scale[j] = median, width
    elif method == "quantile":
        knots, levels = np.zeros((_KNOTS, n_columns)), np.linspace(0, 1, _KNOTS)
        column_quantiles = _map_columns(
            scaled, lambda j: _quantiles(sample.column(j), weight, levels, group), world
        )
        for j, values in zip(scaled, column_quantiles, strict=True):
            knots[:, j] = values
    edges = np.empty((0, n_columns))
    # where all values are missing, an indicator would be constant
    indicated = stats.missing & (stats.n_known > 0)
    low, high = np.full(n_columns, -LARGEST), np.full(n_columns, LARGEST)
    scaler = NumericScaler(
        method, centre, scale, fill, constant, unscaled, indicated, knots, edges, low, high
    )
    if n_bins is None:
        return scaler
    levels = np.linspace(0, 1, n_bins + 1)
    quantiles = _map_columns(
        scaled, lambda j: _quantiles(sample.column(j), weight, levels, group), world
    )
    return replace(scaler, edges=_bin_edges(scaler, scaled, quantiles, n_bins))


def _map_columns(columns: Sequence[int], find: Callable[[int], T], world: World) -> Sequence[T]:
    """Find something of each column, which takes a sort of it; ranks share the columns out."""
    start, stop = world.span(len(columns))
    return world.all_gather_list([find(j) for j in columns[start:stop]], len(columns))


def _bin_edges(
    scaler: NumericScaler, columns: Sequence[int], quantiles: Sequence[np.ndarray], n_bins: int
) -> np.ndarray:
    """Scaled quantiles between which lie equally many rows, (n_bins + 1, n_columns).

    Of equal ones one is kept, and the last repeated at the end, which makes bins of no width:
    all of a column that is not among `columns`. Truth values have one bin, from 0 to 1.
    """
    edges = np.zeros((n_bins + 1, scaler.n_columns))
    for j, values in zip(columns, quantiles, strict=True):
        edges[:, j] = values
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        _scale_rows(scaler, edges)
    edges = np.clip(edges, -scaler.limit, scaler.limit).astype(np.float32).astype(np.float64)
    edges[:, scaler.unscaled] = np.arange(n_bins + 1)[:, None] > 0
    edges[:, scaler.constant] = 0.0
    for j in range(scaler.n_columns):
        distinct = np.unique(edges[:, j])
        edges[:, j] = np.append(distinct, np.repeat(distinct[-1], n_bins + 1 - len(distinct)))
    return edges


def _quantiles(
    column: np.ndarray, weight: np.ndarray | None, levels: np.ndarray | list[float], group: int
) -> np.ndarray:
    """Quantiles by the averaged inverse of the distribution function, missing values left out.

    Of all definitions this one is the same for a weight of k and for k copies of a row. In a group
    of more than one the rows' values are those of `_shared_values`.
    """
    if weight is None:
        values = np.sort(column)  # NaN last
        values = values[: len(values) - int(np.isnan(values).sum())]
        cumulative = np.arange(1.0, len(values) + 1)
    else:
        order = np.argsort(column)
        order = order[: len(order) - int(np.isnan(column).sum())]
        values, cumulative = column[order], np.cumsum(weight[order])
    targets = np.asarray(levels) * cumulative[-1]
    last = len(values) - 1
    ends = [np.searchsorted(cumulative, targets, side=side) for side in ("left", "right")]
    below, above = _shared_values(values, np.minimum(ends, last), group)
    return (below + above) / 2


def _shared_values(values: np.ndarray, ranks: np.ndarray, group: int) -> np.ndarray:
    """Values at these ranks of a sorted column, (n,), without values of single rows.

    Each `group` neighbours, or a few more, have their mean, rounded to two digits of its distance
    to the next; rows lie on the straight lines between those. A value that a whole group has stays
    as it is. A column of fewer than two groups counts as a normal distribution.
    """
    if group == 1:
        return values[ranks]
    size = max(abs(values[0]), abs(values[-1]))
    unit = np.exp2(np.frexp(size)[1] - 1.0) if size > 0 else 1.0  # the smallest would vanish
    return _between_groups(values / unit, ranks, group) * unit


def _between_groups(values: np.ndarray, ranks: np.ndarray, group: int) -> np.ndarray:
    n, n_groups = len(values), len(values) // group
    if n_groups < 2:
        return _rounded(values.mean() + values.std() * ndtri((ranks + 0.5) / n), values.std())
    starts = np.arange(n_groups) * n // n_groups
    sizes = np.diff(starts, append=n)
    low, high = values[starts], values[starts + sizes - 1]
    means = np.clip(np.add.reduceat(values, starts) / sizes, low, high)
    gaps = np.append(np.diff(means), np.inf)
    gaps = np.minimum(gaps, np.roll(gaps, 1))  # of the nearer one, so that order is kept
    means = np.where(low == high, means, _rounded(means, gaps))
    middles = starts + (sizes - 1) / 2
    interpolated = np.interp(ranks, middles, means)
    for end, inner in ((0, 1), (-1, -2)):  # straight on, where the ends are no point masses
        if low[end] < high[end]:
            slope = (means[end] - means[inner]) / (middles[end] - middles[inner])
            is_outside = (ranks - middles[end]) * (1 if end else -1) > 0
            interpolated = np.where(
                is_outside, means[end] + (ranks - middles[end]) * slope, interpolated
            )
    return interpolated


def _rounded(values: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Values to about two digits of the spread: multiples of a power of two below 1/64 of it."""
    unit = np.exp2(np.where(spread > 0, np.maximum(np.frexp(spread)[1] - 7.0, -1074.0), -1074.0))
    # where denormal numbers are flushed the smallest unit is zero: values stay as they are
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steps = values / unit
        return np.where(np.abs(steps) < 2.0**52, np.rint(steps) * unit, values)


def _median_and_spread(
    column: np.ndarray, weight: np.ndarray | None, group: int, std: float
) -> tuple[float, float]:
    # RealMLP: the interquartile range, or half the whole range where that is zero.
    levels = [0, 0.25, 0.5, 0.75, 1]
    low, lower, median, upper, high = _quantiles(column, weight, levels, group)
    spread = upper - lower if upper > lower else (high - low) / 2
    if spread <= 0:  # of a sample that has one value, or of groups that have one mean
        spread = std
    return median, float(max(spread, _MIN_SCALE))


def apply_numeric(scaler: NumericScaler, block: Block, out: np.ndarray) -> None:
    """Write the scaled columns and then the indicators into `out`, (n_rows, >= n_dense)."""
    n_columns = scaler.n_columns
    indicated = np.flatnonzero(scaler.missing)
    fill = np.clip(scaler.fill, -scaler.limit, scaler.limit)
    out[:, n_columns : scaler.n_dense] = 0.0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for piece in block.pieces():
            rows = block.rows(piece.start, piece.stop)
            missing = missing_mask(rows, block.label)
            _scale_rows(scaler, rows)
            np.clip(rows, -scaler.limit, scaler.limit, out=rows)
            if scaler.constant.any():
                rows[:, scaler.constant] = 0.0
            if missing is not None:
                np.copyto(rows, fill, where=missing)
                out[piece, n_columns : scaler.n_dense] = missing[:, indicated]
            out[piece, :n_columns] = rows


def _scale_rows(scaler: NumericScaler, rows: np.ndarray) -> None:
    if scaler.is_cut.any():
        np.clip(rows, scaler.low, scaler.high, out=rows)
    if scaler.method == "none":
        return
    if scaler.method == "quantile":
        levels = np.linspace(0, 1, len(scaler.knots))
        for j in np.flatnonzero(~scaler.unscaled & ~scaler.constant):
            rows[:, j] = _normal_score(rows[:, j], scaler.knots[:, j], levels)
        return
    rows -= scaler.centre
    rows /= scaler.scale
    if scaler.method == "robust":
        np.clip(rows, -_LIMIT, _LIMIT, out=rows)
        # RealMLP's smooth clip: x / sqrt(1 + (x/3)^2), within (-3, 3)
        np.divide(rows, np.sqrt(1 + (rows / 3) ** 2), out=rows, where=~scaler.unscaled)


def _normal_score(column: np.ndarray, knots: np.ndarray, levels: np.ndarray) -> np.ndarray:
    # Interpolated from both sides, so that a value repeated over many knots gets their middle.
    # What lies outside of the fit counts as its outermost value.
    column = np.clip(_snapped_to_knots(column, knots), knots[0], knots[-1])
    below = np.interp(column, knots, levels)
    above = -np.interp(-column, -knots[::-1], -levels[::-1])
    return ndtri(np.clip((below + above) / 2, _MIN_LEVEL, 1 - _MIN_LEVEL))


def _snapped_to_knots(column: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """A column in which a repeated knot's copy in single precision, or its original, is that knot.

    The score jumps at a value that many rows share, so that 0.1 and float32(0.1) would be far from
    each other. A value stays as it is if it is a knot, or if it is a copy of two of them.
    """
    last = len(knots) - 1
    first_above = np.searchsorted(knots, column, side="right")
    single = column.astype(np.float32)

    def nearest(step: int) -> tuple[np.ndarray, np.ndarray]:
        index = np.clip(first_above + min(step, 0), 0, last)
        knot = knots[index]
        repeated = knot == knots[np.clip(index + step, 0, last)]
        return knot, repeated & ((single == knot) | (column == knot.astype(np.float32)))

    (below, is_below), (above, is_above) = nearest(-1), nearest(1)
    moved = (column != below) & (is_below != is_above)
    return np.where(moved, np.where(is_below, below, above), column)
