"""Confidence intervals of scores: a bootstrap of rows, or of groups of rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from combutab.core.metrics import Metric

LEVEL = 0.95
# Fewer do not show how much a score varies (measured by benchmarks/quality/intervals.py).
_FEWEST_ROWS = 30
_FEWEST_OF_A_CLASS = 10
_FEWEST_GROUPS = 10
# Rows that a mean of squares rests on: a few large errors make it vary more than samples show.
_FEWEST_SQUARES = 20


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Bootstrap samples of scored rows, and facts about the rows that intervals depend on.

    Parameters
    ----------
    samples : list of ndarray
        Positions of the rows of each sample; empty for no intervals.
    n_units : int
        Number of rows, or of groups of rows that are drawn together.
    inflation : float, default=1.0
        Factor of the variance of a score: above 1 where scored rows have trained networks that
        predict other scored rows.
    """

    samples: list[np.ndarray]
    n_units: int
    inflation: float = 1.0

    def interval(
        self,
        metric: Metric,
        score: float,
        y: np.ndarray,
        predictions: tuple[np.ndarray, np.ndarray],
    ) -> tuple[float, float]:
        """Compute the interval of a score; NaN if it has no interval.

        The standard error is that of the bootstrap, on a scale on which scores near a bound of the
        metric vary evenly: the log odds of shares, and the logarithm of errors. Quantiles are those
        of Student's t distribution. Percentiles of the bootstrap would be too narrow for few rows.
        """
        if (
            not self.samples
            or not np.isfinite(score)
            or not _enough_squares(metric, y, predictions)
        ):
            return np.nan, np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a sample may lack a class
            values = [
                _score_sample(metric, y[rows], (predictions[0][rows], predictions[1][rows]))
                for rows in self.samples
            ]
        drawn = np.array(values)[np.isfinite(values)]
        if len(drawn) < 0.5 * len(self.samples):
            return np.nan, np.nan
        scale = _Scale(metric.low, metric.high, self.n_units)
        center = scale.transform(np.array([score]))[0]
        with np.errstate(invalid="ignore"):  # the logarithm of an error of 0 is infinite
            spread = scale.transform(drawn).std(ddof=1)
        # Samples that all have the same score, such as an accuracy of 1, do not show how it varies.
        if not np.isfinite(center) or not np.isfinite(spread) or spread < 1e-9:
            return np.nan, np.nan
        n = self.n_units
        error = spread * np.sqrt(self.inflation * n / (n - 1))
        half = student_t.ppf(0.5 + LEVEL / 2, n - 1) * error
        low, high = scale.invert(np.array([center - half, center + half]))
        return float(min(low, score)), float(max(high, score))


def _score_sample(
    metric: Metric, y: np.ndarray, predictions: tuple[np.ndarray, np.ndarray]
) -> float:
    """Score a sample; NaN if the metric is not defined for it, as without rows of a class."""
    try:
        return metric.values(y, *predictions)
    except ValueError:
        return np.nan


def _enough_squares(
    metric: Metric, y: np.ndarray, predictions: tuple[np.ndarray, np.ndarray]
) -> bool:
    """Tell whether a metric of squared errors rests on enough rows, by the squares' kurtosis."""
    if metric.name not in ("r2", "rmse", "mse"):
        return True
    squares = [(predictions[0] - y) ** 2]
    squares += [(y - y.mean(0)) ** 2] * (metric.name == "r2")
    n_rows = [values.sum(0) ** 2 / np.maximum((values**2).sum(0), 1e-300) for values in squares]
    return bool(np.min(n_rows) >= _FEWEST_SQUARES)


@dataclass(frozen=True)
class _Scale:
    """The scale on which a metric's interval is symmetric, by the metric's range."""

    low: float
    high: float
    n_units: int

    def transform(self, values: np.ndarray) -> np.ndarray:
        if np.isfinite(self.low) and np.isfinite(self.high):
            share = (values - self.low) / (self.high - self.low)
            share = (share * self.n_units + 0.5) / (self.n_units + 1)  # finite at both ends
            return np.log(share / (1 - share))
        with np.errstate(divide="ignore"):
            if np.isfinite(self.low):
                return np.log(values - self.low)
            if np.isfinite(self.high):
                return -np.log(self.high - values)
        return values

    def invert(self, values: np.ndarray) -> np.ndarray:
        if np.isfinite(self.low) and np.isfinite(self.high):
            share = 1 / (1 + np.exp(-values))
            share = (share * (self.n_units + 1) - 0.5) / self.n_units
            return self.low + np.clip(share, 0, 1) * (self.high - self.low)
        if np.isfinite(self.low):
            return self.low + np.exp(values)
        if np.isfinite(self.high):
            return self.high - np.exp(-values)
        return values


def draw_samples(
    n_rows: int,
    n_resamples: int,
    rng: np.random.Generator,
    groups: np.ndarray | None = None,
    *,
    inflation: float = 1.0,
) -> Bootstrap:
    """Draw bootstrap samples of rows, or of whole ``groups`` of rows, (n_rows,)."""
    if groups is None:
        samples = [*rng.integers(n_rows, size=(n_resamples, n_rows))]
        return Bootstrap(samples, n_rows, inflation)
    codes = np.unique(groups, return_inverse=True)[1]
    n_groups = int(codes.max()) + 1
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    samples = [
        np.concatenate([rows[group] for group in chosen])
        for chosen in rng.integers(n_groups, size=(n_resamples, n_groups))
    ]
    return Bootstrap(samples, n_groups, inflation)


def reason_for_no_interval(positions: np.ndarray | None, n_rows: int, n_groups: int | None) -> str:
    """Give the reason why scores have no interval, by the number of rows; empty if they have one.

    ``positions`` are the classes of the rows, as numbers, or 0 and 1 for each of several labels.
    """
    if n_groups is not None and n_groups < _FEWEST_GROUPS:
        return f"too few groups for intervals: {n_groups}, of at least {_FEWEST_GROUPS}"
    if n_rows < _FEWEST_ROWS:
        return f"too few rows for intervals: {n_rows}, of at least {_FEWEST_ROWS}"
    if positions is None:
        return ""
    counts = [np.bincount(labels) for labels in positions.reshape(n_rows, -1).T]
    fewest = min(int(count[count > 0].min()) for count in counts)
    if fewest < _FEWEST_OF_A_CLASS:
        return f"too few rows of a class for intervals: {fewest}, of at least {_FEWEST_OF_A_CLASS}"
    return ""
