"""Effects on the error, as ratios over tables, and the tests of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from benchmarks.activations.tables import N_TEST, N_TRAIN
from benchmarks.common.page import p_text
from combutab.evaluation import (
    Interval,
    NemenyiResult,
    corrected_resampled_ttest,
    holm,
    nemenyi,
    t_interval,
    wilcoxon,
)

LEVEL = 0.05
TINY = 1e-12


def block(
    rows: pd.DataFrame, column: str, levels: Sequence[str], kinds: Collection[str], **where: str
) -> pd.DataFrame:
    """Logarithms of errors: a row a table and split, a column a level, nothing missing.

    Of each table the splits that have all levels, which a budget may have cut. What diverged has
    the largest error of its table and split.
    """
    own = rows[rows["kind"].isin(kinds) & rows[column].isin(levels)]
    for name, value in where.items():
        own = own[own[name] == value]
    found = own.groupby(["data", "split"], sort=False)[column].transform("nunique")
    own = own[found == len(levels)]
    own = own.assign(log=np.log(own["loss"].clip(lower=TINY)))
    wide = own.set_index(["data", "split", column])["log"].unstack(column).reindex(columns=levels)
    order = {data: i for i, data in enumerate(dict.fromkeys(own["data"]))}
    wide = wide.sort_index(key=lambda index: index.map(order) if index.name == "data" else index)
    return wide.apply(lambda row: row.fillna(row.max()), axis=1)


def of_splits(logs: pd.DataFrame) -> pd.DataFrame:
    """The tables that have at least two splits."""
    counts = logs.groupby(level="data").size()
    return logs[logs.index.get_level_values("data").isin(counts.index[counts > 1])]


def rectangle(logs: pd.DataFrame) -> tuple[np.ndarray, str] | None:
    """As many tables and first splits, two at least, as make the largest whole block, and its size.

    Shape: (tables, splits, levels).
    """
    counts = logs.groupby(level="data", sort=False).size()
    sizes = {k: k * int((counts >= k).sum()) for k in set(counts) if k > 1}
    sizes = {k: n for k, n in sizes.items() if n > k}  # of two tables
    if not sizes:
        return None
    n = max(sizes, key=lambda k: (sizes[k], k))
    of_whole = logs.index.get_level_values("data").isin(counts.index[counts >= n])
    first = logs.groupby(level="data", sort=False).cumcount() < n
    values = logs[of_whole & first].to_numpy().reshape(-1, n, logs.shape[1])
    return values, f"{len(values)} x {n}"


def by_table(logs: pd.DataFrame) -> pd.DataFrame:
    """Means over splits: a row a table."""
    return logs.groupby(level="data", sort=False).mean()


def size(logs: pd.DataFrame) -> str:
    """Tables x splits."""
    counts = logs.groupby(level="data").size()
    few, many = counts.min(), counts.max()
    return f"{len(counts)} x {few}" + f" to {many}" * bool(few < many)


@dataclass(frozen=True)
class Effect:
    """What one level does to the error beside another, over tables.

    ``ratio``: of errors, the geometric mean over tables and its 95 % interval; ``p``: Wilcoxon's
    over tables, Holm-adjusted over the levels that are compared; ``better``, ``worse``: tables
    whose own corrected resampled t-test is significant, Holm-adjusted over tables and levels;
    None where no table has two splits.
    """

    ratio: Interval
    p: float
    better: int | None
    worse: int | None

    @property
    def smaller(self) -> bool | None:
        """Say whether the error is smaller; None where its mean is, but not significantly."""
        if self.ratio.mean >= 1.0:
            return False
        return True if self.p < LEVEL else None

    @property
    def own(self) -> str:
        return "—" if self.better is None else f"{self.better} / {self.worse}"

    def __str__(self) -> str:
        return ratio_text(self.ratio)


def ratio_text(ratio: Interval) -> str:
    """
    >>> ratio_text(Interval(0.99, 0.97, 1.01))
    '0.990 [0.970, 1.010]'
    """
    return "{:.3f} [{:.3f}, {:.3f}]".format(*ratio)


@dataclass(frozen=True)
class Paired:
    """An effect, and on how many tables and splits."""

    effect: Effect
    size: str


def effects(logs: pd.DataFrame, reference: str) -> dict[str, Effect]:
    """Each level beside the reference; all but it."""
    means = by_table(logs)
    levels = [level for level in logs if level != reference]
    ratios, pvalues, single = {}, [], {}
    for level in levels:
        change = means[level] - means[reference]
        ratios[level] = Interval(*np.exp(t_interval(change)).tolist())
        pvalues.append(wilcoxon(means[level], means[reference]).pvalue)
        for data, own in of_splits(logs).groupby(level="data", sort=False):
            test = corrected_resampled_ttest(
                own[level], own[reference], n_train=N_TRAIN, n_test=N_TEST
            )
            single[level, data] = test.pvalue, np.sign(change[data])
    decided: dict[str, list[float]] = {level: [] for level in levels}
    if single:
        adjusted = holm([p for p, _ in single.values()])
        for (level, _), (_, sign), p in zip(single, single.values(), adjusted, strict=True):
            decided[level] += [sign] if p < LEVEL else []
    return {
        level: Effect(
            ratios[level],
            float(p),
            sum(s < 0 for s in decided[level]) if single else None,
            sum(s > 0 for s in decided[level]) if single else None,
        )
        for level, p in zip(levels, holm(pvalues), strict=True)
    }


def paired(
    rows: pd.DataFrame,
    column: str,
    pairs: Mapping[str, tuple[str, str]],
    kinds: Collection[str],
    **where: str,
) -> dict[str, Paired]:
    """Effects of levels, each beside a reference of its own: by name, (reference, level).

    Each pair on all that it has, of two tables at least; p is Holm-adjusted over the pairs.
    """
    found = {}
    for name, (reference, level) in pairs.items():
        logs = block(rows, column, (reference, level), kinds, **where)
        if len(by_table(logs)) > 1:
            found[name] = Paired(effects(logs, reference)[level], size(logs))
    adjusted = holm([pair.effect.p for pair in found.values()]) if found else []
    return {
        name: replace(pair, effect=replace(pair.effect, p=float(p)))
        for (name, pair), p in zip(found.items(), adjusted, strict=True)
    }


def ranks(logs: pd.DataFrame) -> NemenyiResult:
    """Friedman's and Nemenyi's tests over tables."""
    return nemenyi(by_table(logs), greater_is_better=False)


def friedman_text(test: NemenyiResult) -> str:
    """What both tests say, in a sentence."""
    apart = "tells some apart" if test.differ else "finds no difference"
    return (
        f"Friedman's test {apart} ({p_text(test.friedman.pvalue)}); Nemenyi's critical difference "
        f"of mean ranks is {test.critical_difference:.2f}"
    )


def spread_of_splits(logs: pd.DataFrame) -> float:
    """By what factor a table's error differs from one split to another: a standard deviation.

    NaN where no table has two splits.
    """
    of_split = of_splits(logs).mean(axis=1)
    within = of_split.groupby(level="data").var(ddof=1)
    return float(np.exp(np.sqrt(within.mean())))


def range_of_levels(logs: pd.DataFrame) -> float:
    """The worst level's error over the best's, each the mean over tables."""
    means = by_table(logs).mean()
    return float(np.exp(means.max() - means.min()))
