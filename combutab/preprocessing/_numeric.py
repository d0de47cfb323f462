"""Scaling of numeric columns: statistics in float64, result in float32, never inf or NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from combutab.preprocessing._blocks import Block, pieces
from combutab.preprocessing._moments import Moments, RunningMoments, missing_mask

Method = Literal["standard", "quantile", "robust", "none"]

# Scaled values are cut here: far beyond anything a fit saw (a z-score is at most sqrt(n)), and its
# square is still finite in float32.
_LIMIT = 1e15
_LIMIT_UNSCALED = float(np.finfo(np.float32).max)
_SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
_KNOTS = 1001
_EDGE = 1e-7  # quantiles nearer to 0 or 1 are cut, which is +-5.2 standard deviations


@dataclass(frozen=True, eq=False)
class NumericScaler:
    """What scaling needs of a fit; every array has one entry (or column) a numeric column.

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

    @property
    def n_columns(self) -> int:
        return len(self.centre)

    @property
    def limit(self) -> float:
        """Where scaled values are cut."""
        return _LIMIT_UNSCALED if self.method == "none" else _LIMIT

    @property
    def n_dense(self) -> int:
        """Columns written: the numeric ones, then the indicators."""
        return self.n_columns + int(self.missing.sum())


def moments(block: Block, weight: np.ndarray | None = None) -> Moments:
    """Mean, standard deviation (weighted) and range of each column."""
    running = RunningMoments(block.n_columns)
    for piece in pieces(block):
        rows = block.rows(piece.start, piece.stop)
        running.add(rows, None if weight is None else weight[piece])
    return running.result()


def fit_numeric(
    block: Block, method: Method, unscaled: np.ndarray, weight: np.ndarray | None = None
) -> NumericScaler:
    """Learn how to scale a block; `unscaled` marks the columns of truth values.

    Positive weights, (n_rows,), count in means, standard deviations and quantiles.
    """
    return make_scaler(moments(block, weight), block, method, unscaled, weight)


def make_scaler(
    stats: Moments,
    sample: Block,
    method: Method,
    unscaled: np.ndarray,
    weight: np.ndarray | None = None,
) -> NumericScaler:
    """How to scale columns of these statistics; quantiles are those of the sample and its weights.

    Where the sample is all rows, nothing is estimated.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.fmax(np.abs(stats.low), np.abs(stats.high))
        constant = ~(stats.high - stats.low > sample.tolerance * size)
    constant &= ~unscaled
    n_columns = sample.n_columns
    centre, scale = np.zeros(n_columns), np.ones(n_columns)
    fill = np.where(unscaled | (method == "none"), stats.mean, 0.0)
    knots = np.empty((0, n_columns))
    scaled = np.flatnonzero(~unscaled & ~constant).tolist()
    if method == "none":
        constant = np.zeros(n_columns, dtype=bool)
    elif method == "standard":
        scale[scaled] = np.maximum(stats.std[scaled], _SMALLEST)
        if sample.centred:
            centre[scaled] = stats.mean[scaled]
        else:
            fill[scaled] = stats.mean[scaled] / scale[scaled]
    elif method == "robust":
        for j in scaled:
            centre[j], scale[j] = _median_and_spread(
                sample.column(j), weight, stats.low[j], stats.high[j]
            )
    else:
        knots = np.zeros((_KNOTS, n_columns))
        for j in scaled:
            knots[:, j] = _quantiles(sample.column(j), weight, np.linspace(0, 1, _KNOTS))
    return NumericScaler(method, centre, scale, fill, constant, unscaled, stats.missing, knots)


def _quantiles(
    column: np.ndarray, weight: np.ndarray | None, levels: np.ndarray | list[float]
) -> np.ndarray:
    """Quantiles by the averaged inverse of the distribution function, missing values left out.

    Of all definitions this one is the same for a weight of k and for k copies of a row.
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
    below = values[np.minimum(np.searchsorted(reached, wanted, side="left"), last)]
    above = values[np.minimum(np.searchsorted(reached, wanted, side="right"), last)]
    # Halved first, for the sum may overflow; not where halving could only lose the last bit.
    return np.where(below == above, below, below / 2 + above / 2)


def _median_and_spread(
    column: np.ndarray, weight: np.ndarray | None, low: float, high: float
) -> tuple[float, float]:
    # RealMLP: the interquartile range, or half the whole range where that is zero.
    lower, median, upper = _quantiles(column, weight, [0.25, 0.5, 0.75])
    with np.errstate(over="ignore"):
        spread = upper - lower if upper > lower else high / 2 - low / 2
    return median, float(np.clip(spread, _SMALLEST, np.finfo(np.float64).max))


def apply_numeric(scaler: NumericScaler, block: Block, out: np.ndarray) -> None:
    """Write the scaled columns and then the indicators into `out`, (n_rows, >= n_dense)."""
    n_columns = scaler.n_columns
    indicated = np.flatnonzero(scaler.missing)
    fill = np.clip(scaler.fill, -scaler.limit, scaler.limit)
    out[:, n_columns : scaler.n_dense] = 0.0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for piece in pieces(block):
            rows = block.rows(piece.start, piece.stop)
            missing = missing_mask(rows)
            _scale(scaler, rows)
            np.clip(rows, -scaler.limit, scaler.limit, out=rows)
            if scaler.constant.any():
                rows[:, scaler.constant] = 0.0
            if missing is not None:
                np.copyto(rows, fill, where=missing)
                out[piece, n_columns : scaler.n_dense] = missing[:, indicated]
            out[piece, :n_columns] = rows


def _scale(scaler: NumericScaler, rows: np.ndarray) -> None:
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
    column = np.clip(column, knots[0], knots[-1])
    below = np.interp(column, knots, levels)
    above = -np.interp(-column, -knots[::-1], -levels[::-1])
    return ndtri(np.clip((below + above) / 2, _EDGE, 1 - _EDGE))
