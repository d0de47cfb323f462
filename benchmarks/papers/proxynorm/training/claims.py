"""What the rows of training say: paired differences over seeds, and the paper's claims by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.common.claims import Claim, Finding
from benchmarks.common.page import p_text
from combutab.evaluation import holm, t_interval

EXPECTED = Path(__file__).parents[1] / "expected" / "proxynorm_training.csv"
LEVEL = 0.05
MARGIN = 0.01  # of accuracy: two norms within a point of each other match
SETTING = ["data", "regularisation", "batch_size"]
Pair = tuple[str, str]
Key = TypeVar("Key")
PN_PAIRS = (("LN+PN", "LN"), ("GN+PN", "GN"), ("GN+WS+PN", "GN+WS"), ("BN+PN", "BN"))
BN_PAIRS = (("LN", "BN"), ("LN+PN", "BN"), ("GN", "BN"), ("GN+PN", "BN"))


@dataclass(frozen=True)
class Difference:
    """The mean over seeds of a paired difference, its interval of 95 % and p-value."""

    mean: float
    low: float
    high: float
    p: float  # of Student's paired t-test, until `adjust` puts Holm's in its place

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
        return self.not_below and self.high < MARGIN

    @property
    def not_below(self) -> bool:
        """Whether a shortfall of the margin or more is excluded."""
        return self.low > -MARGIN


def paired(differences: Sequence[float]) -> Difference:
    """Judge the differences of seeds; where they are all equal p is 1, or 0 if they are not 0."""
    d = np.asarray(differences, dtype=np.float64)
    p = float(stats.ttest_1samp(d, 0.0).pvalue) if np.ptp(d) > 1e-12 else float(abs(d[0]) <= 1e-12)
    return Difference(*t_interval(d), p)


def adjust(family: dict[Key, Difference]) -> dict[Key, Difference]:
    """Put Holm's p-values in place: the family is what is passed."""
    adjusted = holm([d.p for d in family.values()])
    return {k: replace(d, p=float(p)) for (k, d), p in zip(family.items(), adjusted, strict=True)}


def gaps(rows: pd.DataFrame, pair: Pair, metric: str = "accuracy") -> pd.Series:
    """Subtract the second norm from the first, by data, regularisation, batch size and seed."""
    wide = rows.pivot_table(index=[*SETTING, "seed"], columns="norm", values=metric, sort=False)
    return wide[pair[0]] - wide[pair[1]]


def over(gap: pd.Series, by: str) -> pd.DataFrame:
    """Average each seed's differences over all else: seeds x levels of ``by``."""
    return gap.groupby(["seed", by]).mean().unstack(by)


def contrasts(
    rows: pd.DataFrame, pairs: Sequence[Pair], metric: str = "accuracy"
) -> dict[tuple[str, object], Difference]:
    """Each pair's difference ("LN - BN") at each batch size and over "all" of them.

    The unit is the seed: its mean over data sets and regularisations. Holm's families are the
    differences over all sizes, and those at single sizes.
    """
    there = set(rows["norm"])
    found = {
        f"{a} - {b}": over(gaps(rows, (a, b), metric), "batch_size")
        for a, b in pairs
        if {a, b} <= there
    }
    single = {(name, size): paired(gap[size]) for name, gap in found.items() for size in gap}
    return adjust(single) | adjust({(n, "all"): paired(g.mean(axis=1)) for n, g in found.items()})


def by_setting(rows: pd.DataFrame, pair: Pair) -> dict[object, Difference]:
    """A pair's difference in each data set, regularisation and batch size; one family for Holm."""
    groups = gaps(rows, pair).groupby(level=SETTING, sort=False)
    return adjust({key: paired(gap) for key, gap in groups})


def cells(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Find mean and standard deviation over seeds of each norm in each setting."""
    return rows.groupby([*SETTING, "norm"], sort=False)[metric].agg(["mean", "std"]).reset_index()


def load_paper() -> pd.DataFrame:
    """Load the paper's cells, in percent; NaN where the text lost them."""
    return pd.read_csv(EXPECTED)


def paper_gains(metric: str, pair: Pair) -> pd.DataFrame:
    """Find what PN adds in the paper, in points: by network, regularisation and groups.

    Where a table has GN with 32 groups alone, GN+PN with 8 is set against that, as there.
    """
    paper, key = load_paper().dropna(subset="mean"), ["net", "regularisation"]
    with_pn, alone = (paper[(paper["metric"] == metric) & (paper["norm"] == n)] for n in pair)
    both = alone.merge(with_pn, on=key, suffixes=("", "_pn")).fillna({"groups": 0, "groups_pn": 0})
    same = both["groups_pn"].isin([0]) | (both["groups_pn"] == both["groups"])
    has_same = same.groupby([both[name] for name in (*key, "groups")]).transform("any")
    return both[same | ~has_same].assign(gain=lambda found: found["mean_pn"] - found["mean"])


Differences = dict[str, Difference]
Find = Callable[[pd.DataFrame, Sequence[Pair]], Differences]
LN_GN = PN_PAIRS[:2]


def above_zero(difference: Difference) -> bool | None:
    """Tell whether it is more than nothing; None where neither that nor shown to be small."""
    if difference.p < LEVEL:
        return difference.mean > 0
    return False if difference.equal else None


def below_zero(difference: Difference) -> bool | None:
    return difference.mean < 0 if difference.p < LEVEL else above_zero(difference)


def matches(difference: Difference) -> bool | None:
    """Tell whether the first is no point or more below the second."""
    if difference.not_below or (difference.p < LEVEL and difference.mean > 0):
        return True
    return False if difference.p < LEVEL else None


def no_gain(difference: Difference) -> bool | None:
    """Tell whether it is no gain."""
    return not difference.mean > 0 if difference.p < LEVEL else difference.equal or None


def claim(
    where: str,
    text: str,
    pairs: Sequence[Pair],
    decide: Callable[[Difference], bool | None] = above_zero,
    find: Find | None = None,
    metric: str = "accuracy",
) -> Claim[pd.DataFrame]:
    """Make a claim of what ``find`` gives, or of the pairs over all batch sizes.

    Holm's family are then all pairs with PN and without, or all beside BN. Rows that lack a norm of
    the pairs do not speak of the claim.
    """
    family = PN_PAIRS if set(pairs) <= set(PN_PAIRS) else BN_PAIRS

    def overall(rows: pd.DataFrame, pairs: Sequence[Pair]) -> Differences:
        found = contrasts(rows, family, metric)
        return {f"{a} - {b}": found[f"{a} - {b}", "all"] for a, b in pairs}

    def judge(rows: pd.DataFrame) -> Finding | None:
        if not {norm for pair in pairs for norm in pair} <= set(rows["norm"]):
            return None
        found = (find or overall)(rows, pairs)
        numbers = "; ".join(f"{name}: {difference}" for name, difference in found.items())
        return Finding(numbers, [decide(difference) for difference in found.values()])

    return Claim(where, text, judge)


def beside_bn(rows: pd.DataFrame, pairs: Sequence[Pair]) -> Differences:
    found, differences = contrasts(rows, pairs), {}
    for name in ("LN", "GN"):
        gap, left = found[f"{name} - BN", "all"], found[f"{name}+PN - BN", "all"]
        label = f"{name}+PN - BN"
        if gap.p < LEVEL and gap.mean < 0:
            label += f" (PN closes {100 * (1 - left.mean / gap.mean):.0f} % of {name}'s gap)"
        differences[label] = left
    return differences


def where_small(rows: pd.DataFrame, pairs: Sequence[Pair]) -> Differences:
    found, size = contrasts(rows, pairs), min(rows["batch_size"])
    return {f"{a} - {b} at {size}": found[f"{a} - {b}", size] for a, b in pairs[1::2]}


def more_for_ln(rows: pd.DataFrame, pairs: Sequence[Pair]) -> Differences:
    ln, gn = (gaps(rows, pair) for pair in pairs)
    return {"(LN+PN - LN) - (GN+PN - GN)": paired((ln - gn).groupby("seed").mean())}


def change(by: str) -> Find:
    """Find by how much pairs differ more at the first level of ``by`` than at its last."""

    def find(rows: pd.DataFrame, pairs: Sequence[Pair]) -> Differences:
        found = {}
        for a, b in pairs:
            gap = over(gaps(rows, (a, b)), by)
            first, *_, last = gap
            found[f"{a} - {b}, {first} less {last}"] = paired(gap[first] - gap[last])
        return adjust(found)

    return find


TRAINING, BN = "train_accuracy", PN_PAIRS[3:]
CLAIMS = (
    claim("Table 2", "PN raises the accuracy of LN and GN", LN_GN),
    claim("Table 2", "PN raises that of GN+WS too", PN_PAIRS[2:3]),
    claim("Table 2", "PN adds more to LN than to GN", LN_GN, find=more_for_ln),
    claim("Table 2", "PN adds nothing to BN", BN, no_gain),
    claim("Tables 2 to 4", "LN and GN alone stay below BN", BN_PAIRS[::2], below_zero),
    claim("Tables 2 to 4", "LN+PN and GN+PN match BN", BN_PAIRS, matches, beside_bn),
    claim("Tables 2 to 4", "... where the batch is smallest", BN_PAIRS, matches, where_small),
    claim(
        "Section 6", "BN loses where the batch is small", BN_PAIRS[::2], find=change("batch_size")
    ),
    claim(
        "Section 6", "PN adds most with extra regularisation", LN_GN, find=change("regularisation")
    ),
    claim("Tables 9 to 11", "PN raises training accuracy", LN_GN, metric=TRAINING),
    claim("Tables 9 to 11", "... but not that of BN", BN, no_gain, metric=TRAINING),
)
