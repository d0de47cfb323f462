"""Intervals, tests and ranks of scores on the same folds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtr, stdtr

from combutab.core.rng import RandomState, as_generator

# ---- Intervals for the mean of scores over folds or seeds ----------------------------------------


class Interval(NamedTuple):
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def t_interval(scores: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Student's t confidence interval of the mean of independent scores, such as those of seeds.

    Scores of overlapping training sets (folds, repeated splits) are not independent. For them the
    interval is too short: use `corrected_interval`.

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
    """Confidence interval of a mean over folds, with Nadeau and Bengio's corrected variance.

    The training sets of folds overlap, so the k scores are not independent. The variance of
    the mean is therefore ``(1 / k + n_test / n_train) * s**2`` instead of ``s**2 / k``.

    Parameters
    ----------
    scores : array-like of shape (k,)
        One score per fold or split, at least 2, all finite.
    n_train, n_test : float
        Numbers of training and test rows in each fold, at least 1 (their means if they vary).
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

    It is too short by a factor of about ``sqrt((k - 1) / k)`` for k scores. Use `t_interval` for
    fewer than about ten scores.

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
            raise ValueError(f"{name} must be at least 1 (rows in each fold), got {value}")
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


# ---- Tests of whether two or more models differ, from scores on the same folds -------------------

_EXACT_LIMIT = 100  # Wilcoxon: up to here the exact distribution, above it the normal one
ROUNDING = 1e-12  # relative difference up to which scores are equal, in all tests and ranks


class Significance(NamedTuple):
    """A test statistic and its two-sided p-value."""

    statistic: float
    pvalue: float


def corrected_resampled_ttest(
    a: ArrayLike, b: ArrayLike, *, n_train: float, n_test: float
) -> Significance:
    """Nadeau and Bengio's corrected resampled t-test of paired scores.

    ``t = mean(d) / sqrt((1 / k + n_test / n_train) * var(d))`` with ``d = a - b``, where
    var has the divisor ``k - 1``, and ``k - 1`` degrees of freedom. The second term accounts for
    the overlap of the training sets. Without it, the test finds differences that do not exist.

    Parameters
    ----------
    a, b : array-like of shape (k,), at least 2
        Scores of two models on the same k splits or folds, all finite. Average the seeds of a
        split first.
    n_train, n_test : float
        Numbers of training and test rows in each fold, at least 1.

    Returns
    -------
    Significance (statistic, pvalue)
        Scores that are equal up to rounding give (0, 1). A difference that is the same in all
        folds has no variance and gives (+-inf, 0).

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
    if spread <= ROUNDING * float(np.max(np.abs([a, b]))):
        return Significance(math.copysign(math.inf, mean), 0.0)
    statistic = mean / (math.sqrt(factor) * float(d.std(ddof=1)))
    return Significance(statistic, float(2.0 * stdtr(len(d) - 1, -abs(statistic))))


def wilcoxon(a: ArrayLike, b: ArrayLike) -> Significance:
    """Wilcoxon's signed-rank test of paired scores, exact with ties and zeros.

    Equal pairs (up to rounding) are left out, and tied differences share their mean rank. With up
    to 100 remaining pairs the p-value is exact. With more it is the normal approximation with a
    correction for ties.

    The p-value cannot be below ``2 ** (1 - k)``, which is 0.0625 for 5 folds. The test assumes
    independent pairs, such as scores on different data sets. For folds of one data set, use
    `corrected_resampled_ttest`.

    Parameters
    ----------
    a, b : array-like of shape (k,), at least 2, all finite

    Returns
    -------
    Significance (statistic, pvalue)
        The statistic is the smaller of the two rank sums. If all pairs are equal, (0, 1).

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
    """Friedman's test of the hypothesis that no model differs from any other, corrected for ties.

    Parameters
    ----------
    scores : DataFrame or array of shape (n_resamples, n_models)
        At least 2 rows and 3 columns, all finite. The result is the same for scores and errors.
        Scores of a row that are equal up to rounding are tied.

    Returns
    -------
    Significance (statistic, pvalue)
        The chi-square approximation with ``n_models - 1`` degrees of freedom; (0, 1) if all models
        are tied in every fold.

    Examples
    --------
    >>> result = friedman([[1, 2, 3], [1, 2, 3], [2, 1, 3]])
    >>> round(result.statistic, 3), round(result.pvalue, 3)
    (4.667, 0.097)
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 3:
        raise ValueError(
            "friedman needs at least 2 rows (folds) and 3 columns (models), got shape "
            f"{values.shape}; compare two models with wilcoxon"
        )
    as_scores(values.ravel())
    values = merge_ties(values)
    if (values == values[:, :1]).all():
        return Significance(0.0, 1.0)
    result = stats.friedmanchisquare(*values.T)
    return Significance(float(result.statistic), float(result.pvalue))


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values for multiple comparisons by Holm's step-down method.

    Compare the adjusted p-values with the significance level of the whole family.

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
            f"a and b must be scores on the same folds, got {len(first)} and {len(second)}"
        )
    return first, second


def _differences(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``a - b``, 0 for scores that are equal up to rounding."""
    d = a - b
    return np.where(np.abs(d) <= ROUNDING * np.maximum(np.abs(a), np.abs(b)), 0.0, d)


def merge_ties(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace scores that are equal up to rounding by one of them, along the last axis.

    >>> merge_ties(np.array([0.3, 0.1 + 0.2, 0.4])).tolist()
    [0.3, 0.3, 0.4]
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ascending = np.take_along_axis(scores, order, axis=-1)
    begins = np.ones(scores.shape, dtype=bool)
    begins[..., 1:] = _differences(ascending[..., 1:], ascending[..., :-1]) != 0.0
    first = np.maximum.accumulate(np.where(begins, np.arange(scores.shape[-1]), 0), axis=-1)
    merged = np.empty_like(scores)
    np.put_along_axis(merged, order, np.take_along_axis(ascending, first, axis=-1), axis=-1)
    return merged


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


# ---- Mean ranks, and tests of all models against the best one ------------------------------------

TESTS = ("corrected-t", "wilcoxon")


def mean_ranks(scores: pd.DataFrame, *, greater_is_better: bool = True) -> pd.Series:
    """Average the ranks of the models over the folds: 1 is the best, ties share the mean rank.

    Scores that are equal up to rounding are tied, as in the tests.

    Parameters
    ----------
    scores : DataFrame of shape (n_resamples, n_models), all finite
    greater_is_better : bool, default=True
        False for losses and errors.

    Returns
    -------
    Series of length n_models named "mean_rank", indexed by the columns of ``scores``

    Examples
    --------
    >>> wide = pd.DataFrame({"relu": [0.8, 0.9], "combu": [0.9, 0.9]})
    >>> mean_ranks(wide).to_dict()
    {'relu': 1.75, 'combu': 1.25}
    """
    values = scores.to_numpy(dtype=np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"scores must be finite and not empty, got shape {values.shape} with "
            f"{int((~np.isfinite(values)).sum())} missing or infinite value(s)"
        )
    values = merge_ties(values)
    ranks = stats.rankdata(-values if greater_is_better else values, axis=1)
    return pd.Series(ranks.mean(axis=0), index=scores.columns, name="mean_rank")


def compare_with_best(
    results: pd.DataFrame,
    *,
    score: str = "score",
    group: str = "activation",
    resample: str | Sequence[str] = "fold",
    n_train: float,
    n_test: float,
    greater_is_better: bool = True,
    test: Literal["corrected-t", "wilcoxon"] = "corrected-t",
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Test every model for a significant difference from the model with the best mean score.

    The unit of the test is the fold (or random split). Scores of several seeds in one fold
    are averaged first, because they share their rows. List in ``resample`` every column that
    changes the split: ``["repeat", "fold"]`` for repeated cross-validation, but only ``"fold"`` if
    the seed changes only the network.

    Parameters
    ----------
    results : DataFrame
        One row per trained model, with the columns named below; other columns are ignored.
    score : column name, default="score"
        Column of the scores.
    group : column name, default="activation"
        Column that identifies the models to compare.
    resample : column name or list of column names, default="fold"
        Columns that identify a fold.
    n_train, n_test : float
        Numbers of training and test rows in each fold (their means if they vary).
    greater_is_better : bool, default=True
        False for losses and errors.
    test : {"corrected-t", "wilcoxon"}, default="corrected-t"
        Significance test: `corrected_resampled_ttest` or `wilcoxon`.
    alpha : float in (0, 1), default=0.05
        Significance level; the intervals have confidence ``1 - alpha``.

    Returns
    -------
    DataFrame, one row per group, the best first
        The group; ``mean``; ``low`` and ``high`` (`corrected_interval` of its mean);
        ``mean_rank``; ``p`` (p-value of the difference from the best, Holm-adjusted over all
        comparisons; NaN for the best); ``distinguishable`` (whether ``p < alpha``);
        ``n_resamples``; ``test``. Equal means are ordered by mean rank, then by first occurrence.

    Raises
    ------
    ValueError
        If a column is missing, scores are missing, a group lacks a fold, or there are fewer
        than 2 folds.

    Notes
    -----
    The best model is selected by the same scores that are tested, so its mean is slightly
    optimistic. With few folds the test has little power: "not significantly different" does not
    mean "equal".

    Examples
    --------
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 2,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89],
    ... })
    >>> table = compare_with_best(results, n_train=75, n_test=25)
    >>> table[["activation", "mean", "mean_rank", "distinguishable"]]
      activation   mean  mean_rank  distinguishable
    0      combu  0.905        1.0            False
    1       relu  0.805        2.0             True
    """
    if test not in TESTS:
        raise ValueError(f"test must be one of {', '.join(TESTS)}, got {test!r}")
    check_alpha(alpha)
    wide = best_first(
        one_score_per_fold(results, score, group, resample), greater_is_better=greater_is_better
    )
    rows = []
    for name, scores in wide.items():
        interval = corrected_interval(
            scores, n_train=n_train, n_test=n_test, confidence=1.0 - alpha
        )
        rows.append({group: name, **interval._asdict()})
    table = pd.DataFrame(rows)
    table["mean_rank"] = mean_ranks(wide, greater_is_better=greater_is_better).to_numpy()

    best, *other_scores = (wide[name].to_numpy() for name in wide)
    raw = [
        corrected_resampled_ttest(best, scores_of_other, n_train=n_train, n_test=n_test).pvalue
        if test == "corrected-t"
        else wilcoxon(best, scores_of_other).pvalue
        for scores_of_other in other_scores
    ]
    table["p"] = [np.nan, *holm(raw)]
    table["distinguishable"] = table["p"] < alpha
    table["n_resamples"] = len(wide)
    table["test"] = test
    return table


def one_score_per_fold(
    results: pd.DataFrame,
    score: str,
    group: str,
    resample: str | Sequence[str],
) -> pd.DataFrame:
    """Return a frame with a row per fold and a column per group, as first met; seeds averaged.

    Raises ValueError where a column or a score is missing, or there are fewer than 2 folds.
    """
    keys = [resample] if isinstance(resample, str) else list(resample)
    for column in (score, group, *keys):
        if column not in results.columns:
            raise ValueError(
                f"results has no column {column!r}; it has {', '.join(map(str, results.columns))}"
            )
    bad = ~np.isfinite(results[score].to_numpy(dtype=np.float64))
    if bad.any():
        failed = ", ".join(sorted({str(name) for name in results.loc[bad, group]}))
        raise ValueError(
            f"{int(bad.sum())} of {len(bad)} values of {score!r} are missing or infinite "
            f"({group}: {failed}); leave out what failed or give it the worst score"
        )
    means = results.groupby([*keys, group], sort=False, observed=True, dropna=False)[score].mean()
    wide = means.unstack(group)
    lacking = [f"{name} lacks {int(n)}" for name, n in wide.isna().sum().items() if n]
    if lacking:
        raise ValueError(
            f"every {group} needs a score in each of the {len(wide)} folds; " + ", ".join(lacking)
        )
    wide = wide[list(pd.unique(results[group]))].astype(np.float64)
    if len(wide) < 2:
        raise ValueError(f"at least 2 folds are needed to compare, got {len(wide)}")
    return wide


def best_first(wide: pd.DataFrame, *, greater_is_better: bool) -> pd.DataFrame:
    """Order the columns by mean, then by mean rank, then as they came."""
    means = merge_ties(np.array([scores.to_numpy().mean() for _, scores in wide.items()]))
    ranks = mean_ranks(wide, greater_is_better=greater_is_better)
    return wide.iloc[:, np.lexsort((ranks, -means if greater_is_better else means))]


def check_alpha(alpha: float) -> None:
    """Raise ValueError where alpha is no level of a test."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be between 0 and 1, such as 0.05, got {alpha}")


# ---- Every pair of models on one data set --------------------------------------------------------


def compare_pairs(
    results: pd.DataFrame,
    *,
    score: str = "score",
    group: str = "activation",
    resample: str | Sequence[str] = "fold",
    n_train: float,
    n_test: float,
    greater_is_better: bool = True,
    alpha: float = 0.05,
    random_state: RandomState = 0,
) -> pd.DataFrame:
    """Test all pairs of models for significant differences on the same folds of one data set.

    As in `compare_with_best`, scores of several seeds in one fold are averaged first.

    Parameters
    ----------
    results, score, group, resample, n_train, n_test, greater_is_better, alpha
        As in `compare_with_best`.
    random_state : None, int, RandomState or Generator, default=0
        Random seed for the bootstrap.

    Returns
    -------
    DataFrame, one row per pair
        ``group`` and ``other_<group>`` (such as activation and other_activation), the one with the
        better mean first; ``difference`` (mean of the first minus mean of the other);
        ``bootstrap_low`` and ``bootstrap_high`` (percentile bootstrap interval of the mean
        difference); ``p_corrected_t`` (`corrected_resampled_ttest`) and ``p_wilcoxon``
        (`wilcoxon`), each Holm-adjusted over all pairs; ``distinguishable`` (whether
        ``p_corrected_t < alpha``); ``n_resamples``. Pairs of the best model come first, then those
        of the second.

    Raises
    ------
    ValueError
        If a column is missing, scores are missing, a group lacks a fold, or there are fewer
        than 2 groups or folds.

    Notes
    -----
    Wilcoxon's test and the bootstrap assume independent folds. Folds of one data set
    overlap, so their p-values and intervals are too small. Decide by the corrected t-test. A
    bootstrap interval that excludes zero does not prove a difference.

    Examples
    --------
    >>> results = pd.DataFrame({
    ...     "activation": ["relu"] * 4 + ["combu"] * 4 + ["elu"] * 4,
    ...     "fold": [0, 1, 2, 3] * 3,
    ...     "score": [0.80, 0.82, 0.81, 0.79, 0.90, 0.91, 0.92, 0.89, 0.91, 0.90, 0.89, 0.90],
    ... })
    >>> pairs = compare_pairs(results, n_train=75, n_test=25)
    >>> pairs[["activation", "other_activation", "difference", "distinguishable"]].round(3)
      activation other_activation  difference  distinguishable
    0      combu              elu       0.005            False
    1      combu             relu       0.100             True
    2        elu             relu       0.095             True
    """
    check_alpha(alpha)
    wide = one_score_per_fold(results, score, group, resample)
    if wide.shape[1] < 2:
        raise ValueError(f"at least 2 values of {group!r} are needed to compare, got 1")
    wide = best_first(wide, greater_is_better=greater_is_better)
    rows = []
    for (name, a), (second_name, b) in itertools.combinations(wide.items(), 2):
        interval = bootstrap_interval(a - b, confidence=1.0 - alpha, random_state=random_state)
        corrected = corrected_resampled_ttest(a, b, n_train=n_train, n_test=n_test)
        rows.append(
            {
                group: name,
                f"other_{group}": second_name,
                "difference": interval.mean,
                "bootstrap_low": interval.low,
                "bootstrap_high": interval.high,
                "p_corrected_t": corrected.pvalue,
                "p_wilcoxon": wilcoxon(a, b).pvalue,
            }
        )
    pairs = pd.DataFrame(rows)
    for column in ("p_corrected_t", "p_wilcoxon"):
        pairs[column] = holm(pairs[column])
    pairs["distinguishable"] = pairs["p_corrected_t"] < alpha
    pairs["n_resamples"] = len(wide)
    return pairs


# ---- Friedman's test with Nemenyi's after it: which models differ over many data sets? -----------

Clique = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class NemenyiResult:
    """Result of `nemenyi`; `summarise_nemenyi` describes it in sentences.

    Attributes
    ----------
    mean_ranks : Series of length n_models, the best first
        1 is the best possible rank. The index has the names of the models.
    friedman : Significance (statistic, pvalue)
        Friedman's test of the hypothesis that no model differs from any other.
    critical_difference : float
        Two models whose mean ranks differ by more are significantly different.
    p : DataFrame of shape (n_models, n_models), in the order of ``mean_ranks``
        Nemenyi's p-values, adjusted for all pairs; 1 on the diagonal.
    cliques : tuple of tuples
        The maximal groups of at least two models whose mean ranks differ by no more than the
        critical difference. A model can be in several groups. A model in none differs
        significantly from all others.
    alpha : float
        Significance level of both tests.
    n_rows : int
        Number of data sets (rows of the scores).
    rows : str
        Name of the rows in sentences, such as "data sets".
    """

    mean_ranks: pd.Series
    friedman: Significance
    critical_difference: float
    p: pd.DataFrame
    cliques: tuple[Clique, ...]
    alpha: float
    n_rows: int
    rows: str

    @property
    def differ(self) -> bool:
        """Whether Friedman's test finds a significant difference."""
        return self.friedman.pvalue < self.alpha

    @property
    def not_different(self) -> tuple[Clique, ...]:
        """The cliques; one clique of all models if Friedman's test finds no difference."""
        return self.cliques if self.differ else (tuple(self.mean_ranks.index),)

    @property
    def n_rows_needed(self) -> int:
        """Minimum number of rows for a significant difference if all rows have the same ranks."""
        # n equal rows: mean ranks 1 to k, Friedman's statistic n (k - 1), of k - 1 degrees
        widest = len(self.mean_ranks) - 1
        for_nemenyi = (critical_difference(widest + 1, 1, self.alpha) / widest) ** 2
        for_friedman = float(stats.chi2.isf(self.alpha, widest)) / widest
        return max(2, 1 + math.floor(max(for_nemenyi, for_friedman)))


def nemenyi(
    scores: pd.DataFrame, *, greater_is_better: bool = True, alpha: float = 0.05
) -> NemenyiResult:
    """Friedman's test of mean ranks, and Nemenyi's test of all pairs.

    Parameters
    ----------
    scores : DataFrame of shape (n_data_sets, n_models)
        One score per model and data set (the mean over splits and seeds), all finite; at least 2
        rows and 3 columns. The names of the index and of the columns, such as "data_set" and
        "activation", are used in the sentences and in the diagram.
    greater_is_better : bool, default=True
        False for losses and errors.
    alpha : float in (0, 1), default=0.05

    Returns
    -------
    NemenyiResult

    Raises
    ------
    ValueError
        If scores are missing, there are too few rows or columns, or two columns have the same name.

    Notes
    -----
    Both tests assume independent rows, such as data sets. For folds or splits of one data set,
    which share their rows, the p-values are too small: use `compare_pairs`. The p-values are
    approximations for many rows, and inaccurate for fewer than about ten.

    Nemenyi's test has less power than Friedman's: it may find no pair where Friedman's test finds
    a difference, and rarely the opposite. Use its pairs only if Friedman's test finds a
    difference.

    References
    ----------
    J. Demsar, "Statistical comparisons of classifiers over multiple data sets", Journal of
    Machine Learning Research 7, 2006.

    Examples
    --------
    >>> scores = pd.DataFrame({
    ...     "relu": [0.71, 0.82, 0.63, 0.94, 0.75, 0.86],
    ...     "combu": [0.74, 0.83, 0.67, 0.95, 0.79, 0.84],
    ...     "tanh": [0.68, 0.77, 0.61, 0.90, 0.70, 0.80],
    ... })
    >>> result = nemenyi(scores)
    >>> result.mean_ranks.round(2).to_dict()
    {'combu': 1.17, 'relu': 1.83, 'tanh': 3.0}
    >>> round(result.critical_difference, 2), result.cliques
    (1.35, (('combu', 'relu'), ('relu', 'tanh')))
    """
    check_alpha(alpha)
    if not scores.columns.is_unique:
        repeated = scores.columns[scores.columns.duplicated()].unique().tolist()
        raise ValueError(f"scores must have one column per model, got several of {repeated}")
    test = friedman(scores)
    ranks = mean_ranks(scores, greater_is_better=greater_is_better)
    ranks = ranks.iloc[np.argsort(ranks.to_numpy(), kind="stable")]
    names, values = ranks.index, ranks.to_numpy()
    rank_differences = np.abs(values[:, None] - values)
    p = stats.studentized_range.sf(
        rank_differences / _rank_scale(len(names), len(scores)), len(names), math.inf
    )
    critical = critical_difference(len(names), len(scores), alpha)
    return NemenyiResult(
        mean_ranks=ranks,
        friedman=test,
        critical_difference=critical,
        p=pd.DataFrame(p, index=names, columns=names),
        cliques=maximal_cliques(
            pd.DataFrame(rank_differences <= critical, index=names, columns=names)
        ),
        alpha=alpha,
        n_rows=len(scores),
        rows=_what_rows_are(scores.index),
    )


def critical_difference(n_models: int, n_rows: int, alpha: float) -> float:
    """Return the difference of two mean ranks that Nemenyi's test finds at the level ``alpha``."""
    quantile = float(stats.studentized_range.isf(alpha, n_models, math.inf))
    return quantile * _rank_scale(n_models, n_rows)


def _rank_scale(n_models: int, n_rows: int) -> float:
    """Return the standard deviation of each of the normal variables whose range mean ranks have."""
    return math.sqrt(n_models * (n_models + 1) / (12.0 * n_rows))


def maximal_cliques(alike: pd.DataFrame) -> tuple[Clique, ...]:
    """Return all groups of two or more that are alike pair by pair and cannot be enlarged.

    ``alike`` is symmetric; members and groups are in the order of its labels. The algorithm is that
    of C. Bron and J. Kerbosch, "Algorithm 457: finding all cliques of an undirected graph",
    Communications of the ACM 16, 1973.
    """
    neighbours = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(alike.to_numpy())]
    cliques: list[list[int]] = []

    def grow(clique: set[int], candidates: set[int], seen: set[int]) -> None:
        if not candidates and not seen:
            cliques.append(sorted(clique))
            return
        # Of a pivot and its neighbours, a group without the pivot holds a stranger to it
        pivot = max(candidates | seen, key=lambda i: len(neighbours[i] & candidates))
        for i in sorted(candidates - neighbours[pivot]):
            grow(clique | {i}, candidates & neighbours[i], seen & neighbours[i])
            candidates, seen = candidates - {i}, seen | {i}

    grow(set(), set(range(len(alike))), set())
    labels = list(alike.index)
    return tuple(tuple(labels[i] for i in clique) for clique in sorted(cliques) if len(clique) > 1)


def plural(word: str) -> str:
    """Return the English plural of a regular noun."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def _what_rows_are(index: pd.Index) -> str:
    if isinstance(index, pd.MultiIndex):  # such as (repeat, fold)
        return "folds"
    return "data sets" if index.name is None else plural(str(index.name).replace("_", " "))
