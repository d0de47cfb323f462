"""Mean ranks, and all models beside the best: which are not significantly different from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from combutab.evaluation.stats._intervals import corrected_interval
from combutab.evaluation.stats._significance import corrected_resampled_ttest, holm, wilcoxon

TESTS = ("corrected-t", "wilcoxon")


def mean_ranks(scores: pd.DataFrame, *, greater_is_better: bool = True) -> pd.Series:
    """Rank the models in each resample and average: 1 is best, ties share their mean rank.

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
    """Compare every model with the one of the best mean score, on the same resamples.

    The unit is the resample (fold or split): scores that repeat inside one, as over seeds, are
    averaged first, since they share their rows and say nothing about other rows. Name every
    column that changes the split in ``resample``: ``["repeat", "fold"]`` for repeated
    cross-validation, but ``"fold"`` alone when the seed changes only the network.

    Parameters
    ----------
    results : DataFrame
        One row a trained model, with the columns named below; others are ignored.
    score, group, resample : column name(s)
        The score; what is compared, such as the activation; what identifies a resample.
    n_train, n_test : float
        Rows trained on and tested on in each resample (their mean where they vary).
    greater_is_better : bool, default=True
        False for losses and errors.
    test : {"corrected-t", "wilcoxon"}, default="corrected-t"
    alpha : float in (0, 1), default=0.05
        Level of the tests; the intervals have confidence ``1 - alpha``.

    Returns
    -------
    DataFrame, one row a group, the best first
        The group; ``mean``, ``low`` and ``high`` (the corrected interval of `corrected_interval`
        for its own mean); ``mean_rank``; ``p`` against the best, Holm-adjusted over all
        comparisons (NaN for the best itself); ``distinguishable``, whether ``p < alpha``;
        ``n_resamples``; ``test``. Equal means are ordered by mean rank, then as first met.

    Raises
    ------
    ValueError
        A column is not there, scores are missing, a group lacks a resample, or there are fewer
        than 2 resamples.

    Notes
    -----
    The best is picked by the same scores that it is then tested on, which flatters it; a small
    number of resamples finds few differences. "Not distinguishable" is not "equal".

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
        one_score_a_resample(results, score, group, resample), greater_is_better=greater_is_better
    )
    rows = []
    for name, scores in wide.items():
        interval = corrected_interval(
            scores, n_train=n_train, n_test=n_test, confidence=1.0 - alpha
        )
        rows.append({group: name, **interval._asdict()})
    table = pd.DataFrame(rows)
    table["mean_rank"] = mean_ranks(wide, greater_is_better=greater_is_better).to_numpy()

    best, *others = (wide[name].to_numpy() for name in wide)
    raw = [
        corrected_resampled_ttest(best, other, n_train=n_train, n_test=n_test).pvalue
        if test == "corrected-t"
        else wilcoxon(best, other).pvalue
        for other in others
    ]
    table["p"] = [np.nan, *holm(raw)]
    table["distinguishable"] = table["p"] < alpha
    table["n_resamples"] = len(wide)
    table["test"] = test
    return table


def one_score_a_resample(
    results: pd.DataFrame,
    score: str,
    group: str,
    resample: str | Sequence[str],
) -> pd.DataFrame:
    """Return a frame with a row a resample and a column a group, as first met; seeds averaged.

    Raises ValueError where a column or a score is missing, or there are fewer than 2 resamples.
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
            f"every {group} needs a score in each of the {len(wide)} resamples; "
            + ", ".join(lacking)
        )
    wide = wide[list(pd.unique(results[group]))].astype(np.float64)
    if len(wide) < 2:
        raise ValueError(f"at least 2 resamples are needed to compare, got {len(wide)}")
    return wide


def best_first(wide: pd.DataFrame, *, greater_is_better: bool) -> pd.DataFrame:
    """Order the columns by mean, then by mean rank, then as they came."""
    means = np.array([scores.to_numpy().mean() for _, scores in wide.items()])
    ranks = mean_ranks(wide, greater_is_better=greater_is_better)
    return wide.iloc[:, np.lexsort((ranks, -means if greater_is_better else means))]


def check_alpha(alpha: float) -> None:
    """Raise ValueError where alpha is no level of a test."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be between 0 and 1, such as 0.05, got {alpha}")
