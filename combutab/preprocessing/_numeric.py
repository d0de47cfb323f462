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

from combutab.core.world import Ranks
from combutab.preprocessing._categories import rows_needed
from combutab.preprocessing._columns import Moments, missing_mask
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


@dataclass(frozen=True, eq=False)
class NumericScaler:
    """Fitted scaling of numeric columns; every array has one entry (or column) for each of them.

    A value x becomes ``(x - centre) / scale`` (`robust` then bends it, `quantile` takes its normal
    score between `knots` instead); a missing one becomes `fill`; columns in `constant` become 0.
    """

    method: Method
    centre: np.ndarray
    scale: np.ndarray
    fill: np.ndarray
    constant: np.ndarray  # bool: constant in fit
    unscaled: np.ndarray  # bool: truth values, kept as 0 and 1
    missing: np.ndarray  # bool: had missing values in fit, so has an indicator
    knots: np.ndarray  # (n_knots, n_columns), for method="quantile" only
    edges: np.ndarray  # (n_bins + 1, n_columns), of bins of scaled values, where they are wanted

    @property
    def n_columns(self) -> int:
        return len(self.centre)

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
    weight: np.ndarray | None,
    min_frequency: float,
    n_rows: int,
    n_bins: int | None = None,
    ranks: Ranks | None = None,
) -> NumericScaler:
    """Make the scaler of columns of these statistics; quantiles are those of the weighted sample.

    `unscaled` marks the columns of truth values; positive weights, (n_rows,), count in quantiles.
    Where the sample is all `n_rows` rows, nothing is estimated. With `n_bins` it learns the edges
    of so many bins a column, too. Ranks, of which each has the whole sample, each find the
    quantiles of a part of the columns.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.fmax(np.abs(stats.low), np.abs(stats.high))
        constant = ~(stats.high - stats.low > sample.tolerance * size)
    constant &= ~unscaled
    n_columns = sample.n_columns
    few = (stats.n_known < rows_needed(min_frequency, n_rows)) & ~unscaled
    spread = np.where(constant, np.abs(stats.mean), stats.std)
    mean = np.where(few, _rounded(stats.mean, spread), stats.mean)
    std = np.where(few, _rounded(stats.std, spread), stats.std)
    group = rows_needed(min_frequency, sample.n_rows)
    centre, scale = np.zeros(n_columns), np.ones(n_columns)
    fill = np.where(unscaled | (method == "none"), mean, 0.0)
    knots = np.empty((0, n_columns))
    scaled = np.flatnonzero(~unscaled & ~constant).tolist()
    if method == "none":
        constant = np.zeros(n_columns, dtype=bool)
    elif method == "standard":
        scale[scaled] = np.maximum(std[scaled], _MIN_SCALE)
        if sample.centred:
            centre[scaled] = mean[scaled]
        else:
            fill[scaled] = mean[scaled] / scale[scaled]
    elif method == "robust":
        both = _map_columns(
            scaled, lambda j: _median_and_spread(sample.column(j), weight, group, std[j]), ranks
        )
        for j, (median, width) in zip(scaled, both, strict=True):
            centre[j], scale[j] = median, width
    else:
        knots, levels = np.zeros((_KNOTS, n_columns)), np.linspace(0, 1, _KNOTS)
        found = _map_columns(
            scaled, lambda j: _quantiles(sample.column(j), weight, levels, group), ranks
        )
        for j, values in zip(scaled, found, strict=True):
            knots[:, j] = values
    edges = np.empty((0, n_columns))
    scaler = NumericScaler(
        method, centre, scale, fill, constant, unscaled, stats.missing, knots, edges
    )
    if n_bins is None:
        return scaler
    levels = np.linspace(0, 1, n_bins + 1)
    quantiles = _map_columns(
        scaled, lambda j: _quantiles(sample.column(j), weight, levels, group), ranks
    )
    return replace(scaler, edges=_bin_edges(scaler, scaled, quantiles, n_bins))


def _map_columns(
    columns: Sequence[int], find: Callable[[int], T], ranks: Ranks | None
) -> Sequence[T]:
    """Find something of each column, which takes a sort of it; ranks share the columns out."""
    if ranks is None:
        return [find(j) for j in columns]
    start, stop = ranks.span(len(columns))
    return ranks.collected([find(j) for j in columns[start:stop]], len(columns))


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
    edges[:, scaler.constant] = 0.0
    edges[:, scaler.unscaled] = np.arange(n_bins + 1)[:, None] > 0
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
        reached = np.arange(1.0, len(values) + 1)
    else:
        order = np.argsort(column)
        order = order[: len(order) - int(np.isnan(column).sum())]
        values, reached = column[order], np.cumsum(weight[order])
    wanted = np.asarray(levels) * reached[-1]
    last = len(values) - 1
    ends = [np.searchsorted(reached, wanted, side=side) for side in ("left", "right")]
    below, above = _shared_values(values, np.minimum(ends, last), group)
    # Halved first, for the sum may overflow; not where halving could only lose the last bit.
    return np.where(below == above, below, below / 2 + above / 2)


def _shared_values(values: np.ndarray, ranks: np.ndarray, group: int) -> np.ndarray:
    """Values at these ranks of a sorted column, (n,), none of which is one row's own.

    Each `group` neighbours, or a few more, have their mean, rounded to two digits of its distance
    to the next; rows lie on the straight lines between those. What a whole group has stays as it
    is. A column of fewer than two groups counts as a normal distribution.
    """
    if group == 1:
        return values[ranks]
    size = max(abs(values[0]), abs(values[-1]))
    unit = np.exp2(np.frexp(size)[1] - 1.0) if size > 0 else 1.0  # sums would over- or underflow
    found = _between_groups(values / unit, ranks, group)
    with np.errstate(over="ignore", under="ignore"):
        largest = np.finfo(np.float64).max / unit
        return np.clip(found, -largest, largest) * unit


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
    found = np.interp(ranks, middles, means)
    for end, beside in ((0, 1), (-1, -2)):  # straight on, where the ends are no point masses
        if low[end] < high[end]:
            slope = (means[end] - means[beside]) / (middles[end] - middles[beside])
            beyond = (ranks - middles[end]) * (1 if end else -1) > 0
            found = np.where(beyond, means[end] + (ranks - middles[end]) * slope, found)
    return found


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
    with np.errstate(over="ignore"):
        spread = upper - lower if upper > lower else high / 2 - low / 2
    if spread <= 0:  # of a sample that has one value, or of groups that have one mean
        spread = std
    return median, float(np.clip(spread, _MIN_SCALE, np.finfo(np.float64).max))


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
    if scaler.method == "none":
        return
    if scaler.method == "quantile":
        levels = np.linspace(0, 1, len(scaler.knots))
        for j in np.flatnonzero(~scaler.unscaled & ~scaler.constant):
            rows[:, j] = _normal_score(rows[:, j], scaler.knots[:, j], levels)
        return
    centre, scale = scaler.centre, scaler.scale
    if (scale > 1e290).any():  # two values of such a column may differ by more than float64 holds
        unit = np.where(scale > 1e290, 2.0**-10, 1.0)
        rows *= unit
        centre, scale = centre * unit, scale * unit
    rows -= centre
    rows /= scale
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
        place = np.clip(first_above + min(step, 0), 0, last)
        knot = knots[place]
        repeated = knot == knots[np.clip(place + step, 0, last)]
        return knot, repeated & ((single == knot) | (column == knot.astype(np.float32)))

    (below, is_below), (above, is_above) = nearest(-1), nearest(1)
    moved = (column != below) & (is_below != is_above)
    return np.where(moved, np.where(is_below, below, above), column)
