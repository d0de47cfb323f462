"""Every pair of models on one data set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pandas as pd

from combutab._random_state import RandomState
from combutab.evaluation.stats._intervals import bootstrap_interval
from combutab.evaluation.stats._ranks import best_first, check_alpha, one_score_a_resample
from combutab.evaluation.stats._significance import corrected_resampled_ttest, holm, wilcoxon


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
    """Compare every pair of models over the same resamples of one data set.

    As in `compare_with_best` the unit is the resample: scores that repeat inside one, as over
    seeds, are averaged first.

    Parameters
    ----------
    results, score, group, resample, n_train, n_test, greater_is_better, alpha
        As in `compare_with_best`.
    random_state : None, int, RandomState or Generator, default=0
        Of the bootstrap.

    Returns
    -------
    DataFrame, one row a pair
        ``group`` and ``other_<group>``, such as activation and other_activation, the better mean
        first; ``difference``, the first one's mean minus the other's; ``bootstrap_low`` and
        ``bootstrap_high``, the percentile interval of the mean of the paired differences;
        ``p_corrected_t`` (`corrected_resampled_ttest`) and ``p_wilcoxon`` (`wilcoxon`), each
        Holm-adjusted over all pairs; ``distinguishable``, whether ``p_corrected_t < alpha``;
        ``n_resamples``. The pairs of the best model come first, then those of the second.

    Raises
    ------
    ValueError
        A column is not there, scores are missing, a group lacks a resample, or there are fewer
        than 2 groups or resamples.

    Notes
    -----
    Wilcoxon's test and the bootstrap take the resamples as independent. Those of one data set
    overlap, so these two find too much: the corrected t-test is the one to go by, and an interval
    without zero is no proof of a difference.

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
    wide = one_score_a_resample(results, score, group, resample)
    if wide.shape[1] < 2:
        raise ValueError(f"at least 2 values of {group!r} are needed to compare, got 1")
    wide = best_first(wide, greater_is_better=greater_is_better)
    rows = []
    for (name, a), (other, b) in itertools.combinations(wide.items(), 2):
        interval = bootstrap_interval(a - b, confidence=1.0 - alpha, random_state=random_state)
        corrected = corrected_resampled_ttest(a, b, n_train=n_train, n_test=n_test)
        rows.append(
            {
                group: name,
                f"other_{group}": other,
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
