"""Tests of whether two or more models differ, from scores on the same resamples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtr, stdtr

from combutab.evaluation.stats._intervals import as_scores, variance_factor

_EXACT_LIMIT = 100  # Wilcoxon: up to here the exact distribution, above it the normal one
_ROUNDING = 8 * np.finfo(np.float64).eps


class Significance(NamedTuple):
    """A test statistic and its two-sided p-value."""

    statistic: float
    pvalue: float


def corrected_resampled_ttest(
    a: ArrayLike, b: ArrayLike, *, n_train: float, n_test: float
) -> Significance:
    """Nadeau and Bengio's corrected resampled t-test of paired scores.

    ``t = mean(d) / sqrt((1 / k + n_test / n_train) * var(d))`` with ``d = a - b``, the variance
    over ``k - 1``, and ``k - 1`` degrees of freedom. Without the second term the overlap of the
    training sets makes differences out of nothing.

    Parameters
    ----------
    a, b : array-like of shape (k,), at least 2
        Scores of two models on the same k splits or folds, all finite. Where several seeds were
        trained on a split, their mean: the split is the unit.
    n_train, n_test : float
        Rows trained on and tested on in each resample, at least 1.

    Returns
    -------
    Significance (statistic, pvalue)
        Scores that are the same up to rounding give (0, 1). A difference that is the same in
        all resamples, which leaves no variance to judge it by, gives (+-inf, 0).

    References
    ----------
    C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine Learning 52, 2003.

    Examples
    --------
    >>> result = corrected_resampled_ttest([3, 4, 8], [2, 2, 5], n_train=2, n_test=1)
    >>> round(result.statistic, 3), round(result.pvalue, 3)
    (2.191, 0.16)
    """
    a, b = _paired(a, b)
    factor = variance_factor(len(a), n_train, n_test)
    d = _differences(a, b)
    mean, spread = float(d.mean()), float(np.ptp(d))
    if not d.any():
        return Significance(0.0, 1.0)
    if spread <= _ROUNDING * float(np.max(np.abs([a, b]))):
        return Significance(math.copysign(math.inf, mean), 0.0)
    statistic = mean / (math.sqrt(factor) * float(d.std(ddof=1)))
    return Significance(statistic, float(2.0 * stdtr(len(d) - 1, -abs(statistic))))


def wilcoxon(a: ArrayLike, b: ArrayLike) -> Significance:
    """Wilcoxon's signed-rank test of paired scores, exact with ties and zeros.

    Equal pairs are left out (Wilcoxon's own rule) and tied differences share their mean rank.
    Up to 100 remaining pairs the p-value is exact given these ranks: each sign is equally
    likely. Above that it is the normal approximation with the correction for ties.
    Differences at the level of rounding count as equal.

    Its p-value cannot be below ``2 ** (1 - k)``: with 5 folds never below 0.0625. Folds are
    not independent, which it does not know: prefer `corrected_resampled_ttest` there, and this
    for scores on different data sets.

    Parameters
    ----------
    a, b : array-like of shape (k,), at least 2, all finite

    Returns
    -------
    Significance (statistic, pvalue)
        The statistic is the smaller of the two rank sums; no different pair gives (0, 1).

    Examples
    --------
    >>> wilcoxon([1, 2, 3, 4], [0, 0, 0, 9])
    Significance(statistic=4.0, pvalue=0.875)
    """
    a, b = _paired(a, b)
    d = _differences(a, b)
    d = d[d != 0.0]
    if len(d) == 0:
        return Significance(0.0, 1.0)
    # Ten digits: 0.9 - 0.8 and 0.2 - 0.1 are the same step and shall be a tie.
    ranks = stats.rankdata([float(f"{size:.9e}") for size in np.abs(d)])
    smaller = float(min(ranks[d > 0].sum(), ranks[d < 0].sum()))
    if len(d) <= _EXACT_LIMIT:
        tail = _signed_rank_tail(ranks, smaller)
    else:
        n = len(d)
        ties = np.unique(ranks, return_counts=True)[1].astype(np.float64)
        variance = n * (n + 1) * (2 * n + 1) / 24.0 - float((ties**3 - ties).sum()) / 48.0
        tail = float(ndtr((smaller - n * (n + 1) / 4.0) / math.sqrt(variance)))
    return Significance(smaller, min(1.0, 2.0 * tail))


def friedman(scores: pd.DataFrame | ArrayLike) -> Significance:
    """Friedman's test that all columns come from the same distribution, corrected for ties.

    Parameters
    ----------
    scores : DataFrame or array of shape (n_resamples, n_models)
        At least 2 rows and 3 columns, all finite; greater or smaller may be better.

    Returns
    -------
    Significance (statistic, pvalue)
        The chi-square approximation with ``n_models - 1`` degrees of freedom; (0, 1) when every
        row ties all its columns.

    Examples
    --------
    >>> result = friedman([[1, 2, 3], [1, 2, 3], [2, 1, 3]])
    >>> round(result.statistic, 3), round(result.pvalue, 3)
    (4.667, 0.097)
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 3:
        raise ValueError(
            "friedman needs at least 2 rows (resamples) and 3 columns (models), got shape "
            f"{values.shape}; compare two models with wilcoxon"
        )
    as_scores(values.ravel())
    if (values == values[:, :1]).all():
        return Significance(0.0, 1.0)
    result = stats.friedmanchisquare(*values.T)
    return Significance(float(result.statistic), float(result.pvalue))


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjustment: compare the result with the level for the whole family.

    Parameters
    ----------
    pvalues : array-like of shape (m,), each in [0, 1]

    Returns
    -------
    ndarray of shape (m,), in the order given

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(pvalues, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"pvalues must be one-dimensional and in [0, 1], got {pvalues!r}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)


def _paired(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = as_scores(a, "a"), as_scores(b, "b")
    if len(first) != len(second):
        raise ValueError(
            f"a and b must be scores on the same resamples, got {len(first)} and {len(second)}"
        )
    return first, second


def _differences(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``a - b`` with differences no larger than their own rounding error set to zero."""
    d = a - b
    return np.where(np.abs(d) <= _ROUNDING * np.maximum(np.abs(a), np.abs(b)), 0.0, d)


def _signed_rank_tail(ranks: NDArray[np.float64], at_most: float) -> float:
    """P(sum of the ranks with a fair random subset <= at_most), by adding one rank at a time."""
    steps = np.rint(2.0 * ranks).astype(int)  # mean ranks are halves
    distribution = np.zeros(int(steps.sum()) + 1)
    distribution[0] = 1.0
    for step in steps:
        shifted = np.zeros_like(distribution)
        shifted[step:] = distribution[: len(distribution) - step]
        distribution = 0.5 * (distribution + shifted)
    return float(distribution[: round(2.0 * at_most) + 1].sum())
