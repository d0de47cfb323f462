"""Intervals for the mean of scores over resamples, folds or seeds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from combutab._random_state import RandomState, as_generator


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def t_interval(scores: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Student's interval for the mean of independent scores, such as those of seeds.

    Scores of overlapping training sets (folds, repeated splits) are not independent and make it
    too short: use `corrected_interval` for them.

    Parameters
    ----------
    scores : array-like of shape (n_scores,), at least 2, all finite
    confidence : float in (0, 1), default=0.95

    Returns
    -------
    Interval (mean, low, high)

    Examples
    --------
    >>> low, high = t_interval([1.0, 2.0, 3.0])[1:]
    >>> round(low, 3), round(high, 3)
    (-0.484, 4.484)
    """
    scores = as_scores(scores)
    return _student(scores, 1.0 / len(scores), confidence)


def corrected_interval(
    scores: ArrayLike, *, n_train: float, n_test: float, confidence: float = 0.95
) -> Interval:
    """Student's interval for a mean over resamples, with Nadeau and Bengio's variance factor.

    The variance of the mean is ``(1 / k + n_test / n_train) * s**2`` rather than ``s**2 / k``:
    the training sets overlap, so the k scores carry less than k independent ones.

    Parameters
    ----------
    scores : array-like of shape (k,), one score a fold or split, at least 2, all finite
    n_train, n_test : float
        Rows trained on and tested on in each resample, at least 1 (their mean where they vary).
    confidence : float in (0, 1), default=0.95

    Returns
    -------
    Interval (mean, low, high)

    References
    ----------
    C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine Learning 52, 2003.

    Examples
    --------
    >>> low, high = corrected_interval([1.0, 2.0, 3.0], n_train=3, n_test=2)[1:]
    >>> round(low, 3), round(high, 3)
    (-2.303, 6.303)
    """
    scores = as_scores(scores)
    return _student(scores, variance_factor(len(scores), n_train, n_test), confidence)


def bootstrap_interval(
    scores: ArrayLike,
    *,
    confidence: float = 0.95,
    n_resamples: int = 9999,
    random_state: RandomState = None,
) -> Interval:
    """Percentile bootstrap interval for the mean of independent scores.

    With k scores it is about ``sqrt((k - 1) / k)`` as long as it should be, so take
    `t_interval` for fewer than about ten.

    Parameters
    ----------
    scores : array-like of shape (n_scores,), at least 2, all finite
    confidence : float in (0, 1), default=0.95
    n_resamples : int, default=9999
    random_state : None, int, RandomState or Generator
        Global random state is neither read nor set.

    Returns
    -------
    Interval (mean, low, high)

    Examples
    --------
    >>> mean, low, high = bootstrap_interval([1.0, 2.0, 3.0, 4.0], random_state=0)
    >>> mean, low <= mean <= high
    (2.5, True)
    """
    scores = as_scores(scores)
    _check_confidence(confidence)
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    generator = as_generator(random_state)
    means = np.empty(n_resamples)
    rows = max(1, 1_000_000 // len(scores))  # about 8 MB of drawn indices at a time
    for start in range(0, n_resamples, rows):
        part = means[start : start + rows]
        part[:] = scores[generator.integers(len(scores), size=(len(part), len(scores)))].mean(1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(scores.mean()), float(low), float(high))


def variance_factor(n_resamples: int, n_train: float, n_test: float) -> float:
    """Nadeau and Bengio's ``1 / k + n_test / n_train``, checked."""
    for name, value in (("n_train", n_train), ("n_test", n_test)):
        if not 1 <= value < math.inf:
            raise ValueError(f"{name} must be at least 1 (rows in each resample), got {value}")
    return 1.0 / n_resamples + n_test / n_train


def as_scores(scores: ArrayLike, name: str = "scores") -> NDArray[np.float64]:
    """Return the scores as float64, refusing all that has no mean and spread."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"{name} must be one-dimensional with at least 2 values, got shape {values.shape}"
        )
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(
            f"{name} has {bad} missing or infinite value(s) of {len(values)}; leave out the "
            "models that failed"
        )
    return values


def _student(scores: NDArray[np.float64], factor: float, confidence: float) -> Interval:
    _check_confidence(confidence)
    mean = float(scores.mean())
    quantile = float(stats.t.ppf(0.5 + confidence / 2.0, len(scores) - 1))
    half = quantile * math.sqrt(factor) * float(scores.std(ddof=1))
    return Interval(mean, mean - half, mean + half)


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, such as 0.95, got {confidence}")
