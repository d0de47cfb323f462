"""What the rows of training say: means by setting, and paired differences over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.papers.common.page import p_text
from combutab.evaluation import holm, t_interval

EXPECTED = Path(__file__).parents[1] / "expected" / "proxynorm_training.csv"
LEVEL = 0.05
MARGIN = 0.01  # of accuracy: two norms within a point of each other match
SETTING = ("data", "regularisation", "batch_size")
Pair = tuple[str, str]
Key = TypeVar("Key")
PN_PAIRS = (("LN+PN", "LN"), ("GN+PN", "GN"), ("GN+WS+PN", "GN+WS"), ("BN+PN", "BN"))
BN_PAIRS = (("LN", "BN"), ("LN+PN", "BN"), ("GN", "BN"), ("GN+PN", "BN"))


@dataclass(frozen=True)
class Difference:
    """The mean over seeds of a paired difference, its interval of 95 % and p-value.

    ``p`` is that of Student's paired t-test, until ``adjust`` puts Holm's in its place.
    """

    mean: float
    low: float
    high: float
    p: float

    def __neg__(self) -> Difference:
        return Difference(-self.mean, -self.high, -self.low, self.p)

    def __str__(self) -> str:
        """In points, with its interval and p-value.

        >>> str(Difference(0.012, 0.002, 0.022, 0.0312))
        '+1.20 [+0.20, +2.20], p = 0.031'
        """
        ends = (self.mean, self.low, self.high)
        mean, low, high = (f"{round(100 * end, 2) + 0.0:+.2f}" for end in ends)  # no minus zero
        return f"{mean} [{low}, {high}], {p_text(self.p)}"

    @property
    def outcome(self) -> str:
        """What can be said of it, for p-values that are adjusted."""
        if self.p < LEVEL:
            return "higher" if self.mean > 0 else "lower"
        return "equal within a point" if self.equal else "not significantly different"

    @property
    def equal(self) -> bool:
        """Whether the whole interval lies within the margin."""
        return self.low > -MARGIN and self.high < MARGIN

    @property
    def not_below(self) -> bool:
        """Whether a shortfall of the margin or more is excluded."""
        return self.low > -MARGIN


def paired(differences: Sequence[float]) -> Difference:
    """Judge the differences of at least two seeds.

    Differences that are all zero have p = 1; all equal but not zero leave no variance to judge by,
    and p = 0.
    """
    d = np.asarray(differences, dtype=np.float64)
    p = float(stats.ttest_1samp(d, 0.0).pvalue) if np.ptp(d) > 1e-12 else float(abs(d[0]) <= 1e-12)
    return Difference(*t_interval(d), p)


def adjust(family: dict[Key, Difference]) -> dict[Key, Difference]:
    """The same with Holm's p-values: the family is what is passed."""
    adjusted = holm([d.p for d in family.values()]) if family else []
    return {k: replace(d, p=float(p)) for (k, d), p in zip(family.items(), adjusted, strict=True)}


def by_seed(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """(seed) x (norm, batch_size): means over data sets and regularisations that all norms have."""
    wide = rows.pivot_table(
        index=["seed", "data", "regularisation"], columns=["norm", "batch_size"], values=metric
    )
    return wide.dropna().groupby("seed").mean()


def contrasts(
    rows: pd.DataFrame, pairs: Sequence[Pair], metric: str = "accuracy"
) -> dict[tuple[str, object], Difference]:
    """Each pair's difference ("LN - BN") at each batch size and over "all" of them.

    The unit is the seed: its mean over data sets and regularisations. Holm's families are the
    differences over all sizes, and those at single sizes.
    """
    means = by_seed(rows, metric)
    present = set(means.columns.get_level_values(0))
    gaps = {f"{a} - {b}": means[a] - means[b] for a, b in pairs if {a, b} <= present}
    single = adjust({(name, n): paired(gap[n]) for name, gap in gaps.items() for n in gap})
    return single | adjust({(n, "all"): paired(gap.mean(axis=1)) for n, gap in gaps.items()})


def by_setting(rows: pd.DataFrame, pair: Pair) -> dict[object, Difference]:
    """A pair's difference in each data set, regularisation and batch size; one family for Holm."""
    wide = rows.pivot_table(index=[*SETTING, "seed"], columns="norm", values="accuracy")
    if not set(pair) <= set(wide.columns):
        return {}
    gaps = (wide[pair[0]] - wide[pair[1]]).dropna()
    return adjust({k: paired(gap) for k, gap in gaps.groupby(level=list(SETTING), sort=False)})


def change_with_batch(rows: pd.DataFrame, first: str, second: str) -> Difference:
    """By how much first - second is larger at the smallest batch than at the largest."""
    means = by_seed(rows, "accuracy")
    gaps = means[first] - means[second]
    return paired(gaps[min(gaps.columns)] - gaps[max(gaps.columns)])


def change_with_regularisation(rows: pd.DataFrame, first: str, second: str) -> Difference:
    """By how much first - second is larger with the extra regularisation than without."""
    wide = rows.pivot_table(
        index=["seed", "regularisation"], columns=["data", "batch_size", "norm"], values="accuracy"
    )
    first_rows, second_rows = (wide.xs(name, axis=1, level="norm") for name in (first, second))
    gaps = (first_rows - second_rows).mean(axis=1)
    return paired(gaps.xs("extra", level=1) - gaps.xs("plain", level=1))


def cells(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean, standard deviation and number of seeds of each norm in each setting."""
    grouped = rows.groupby([*SETTING, "norm"], sort=False)[metric]
    return grouped.agg(["mean", "std", "count"]).reset_index()


def load_paper() -> pd.DataFrame:
    """The paper's cells, in percent; NaN where the text lost them."""
    return pd.read_csv(EXPECTED).fillna({"note": ""})


def paper_gains(metric: str) -> pd.DataFrame:
    """What PN adds in the paper, in points: by network, regularisation and pair.

    Where a table has GN with 32 groups alone, GN+PN with 8 is set against that, as there.
    """
    paper = load_paper()
    own = paper[(paper["metric"] == metric) & paper["mean"].notna()]
    lines = []
    for (net, kind), part in own.groupby(["net", "regularisation"], sort=False):
        for first, second in PN_PAIRS:
            with_pn = part[part["norm"] == first]
            for row in part[part["norm"] == second].itertuples():
                same = with_pn[with_pn["groups"].eq(row.groups) | with_pn["groups"].isna()]
                for mean in (with_pn if same.empty else same)["mean"]:
                    lines.append((net, kind, f"{first} - {second}", row.groups, mean - row.mean))
    return pd.DataFrame(lines, columns=["net", "regularisation", "pair", "groups", "gain"])
