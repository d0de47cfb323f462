"""What the rows say: means by setting, paired differences over seeds, words for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from combutab.evaluation import holm, t_interval

EXPECTED = Path(__file__).parent / "expected" / "proxynorm_training.csv"
LEVEL = 0.05
MARGIN = 0.01  # of accuracy: two norms within a point of each other match
SETTING = ("data", "regularisation", "batch_size")
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
    n: int

    @property
    def words(self) -> str:
        """What can be said of it, for p-values that are adjusted."""
        if self.p < LEVEL:
            return "higher" if self.mean > 0 else "lower"
        return "equal within a point" if self.equal else "not told apart"

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
    mean, low, high = t_interval(d)
    if np.ptp(d) <= 1e-12:
        return Difference(mean, low, high, float(abs(mean) <= 1e-12), len(d))
    return Difference(mean, low, high, float(stats.ttest_1samp(d, 0.0).pvalue), len(d))


def adjust(family: Sequence[Difference]) -> list[Difference]:
    """The same with Holm's p-values: the family is what is passed."""
    adjusted = holm([d.p for d in family]) if family else []
    return [
        Difference(d.mean, d.low, d.high, float(p), d.n)
        for d, p in zip(family, adjusted, strict=True)
    ]


def by_seed(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """(seed) x (norm, batch_size): means over data sets and regularisations that all norms have."""
    wide = rows.pivot_table(
        index=["seed", "data", "regularisation"], columns=["norm", "batch_size"], values=metric
    )
    return wide.dropna().groupby("seed").mean()


def contrasts(
    rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], metric: str = "accuracy"
) -> pd.DataFrame:
    """Each pair's difference at each batch size and over all of them.

    The unit is the seed: its mean over data sets and regularisations. Holm's families are the
    differences over all sizes, and those at single sizes.

    Returns
    -------
    DataFrame
        ``pair``, ``batch_size`` ("all" for their mean) and ``difference``, a `Difference`.
    """
    means = by_seed(rows, metric)
    present = set(means.columns.get_level_values(0))
    gaps = {f"{a} - {b}": means[a] - means[b] for a, b in pairs if {a, b} <= present}
    single = [(name, size, paired(gap[size])) for name, gap in gaps.items() for size in gap]
    overall = [(name, "all", paired(gap.mean(axis=1))) for name, gap in gaps.items()]
    parts = []
    for family in (single, overall):
        table = pd.DataFrame(family, columns=["pair", "batch_size", "difference"])
        parts.append(table.assign(difference=adjust(list(table["difference"]))))
    return pd.concat(parts, ignore_index=True)


def by_setting(rows: pd.DataFrame, pair: tuple[str, str], metric: str = "accuracy") -> pd.DataFrame:
    """A pair's difference in each data set, regularisation and batch size; one family for Holm."""
    wide = rows.pivot_table(index=[*SETTING, "seed"], columns="norm", values=metric)
    if not set(pair) <= set(wide.columns):
        return pd.DataFrame(columns=[*SETTING, "difference"])
    gaps = (wide[pair[0]] - wide[pair[1]]).dropna()
    groups = list(gaps.groupby(level=list(SETTING), sort=False))
    table = pd.DataFrame([key for key, _ in groups], columns=list(SETTING))
    return table.assign(difference=adjust([paired(d) for _, d in groups]))


def change_with_batch(
    rows: pd.DataFrame, first: str, second: str, metric: str = "accuracy"
) -> Difference:
    """By how much first - second is larger at the smallest batch than at the largest."""
    means = by_seed(rows, metric)
    gaps = means[first] - means[second]
    return paired(gaps[min(gaps.columns)] - gaps[max(gaps.columns)])


def change_with_regularisation(
    rows: pd.DataFrame, first: str, second: str, metric: str = "accuracy"
) -> Difference:
    """By how much first - second is larger with the extra regularisation than without."""
    wide = rows.pivot_table(
        index=["seed", "regularisation"], columns=["data", "batch_size", "norm"], values=metric
    )
    gaps = (wide.xs(first, axis=1, level="norm") - wide.xs(second, axis=1, level="norm")).mean(
        axis=1
    )
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
            with_pn, without = (part[part["norm"] == name] for name in (first, second))
            for _, row in without.iterrows():
                same = with_pn[with_pn["groups"].eq(row["groups"]) | with_pn["groups"].isna()]
                other = with_pn if same.empty else same
                for _, match in other.iterrows():
                    gain = match["mean"] - row["mean"]
                    lines.append((net, kind, f"{first} - {second}", row["groups"], gain))
    return pd.DataFrame(lines, columns=["net", "regularisation", "pair", "groups", "gain"])
