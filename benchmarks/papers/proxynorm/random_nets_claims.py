"""The paper's claims on random nets, judged by the rows of random_nets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from benchmarks.papers.common.claims import Claim, Finding
from benchmarks.papers.proxynorm.random_nets_numbers import (
    at_depth,
    bound_table,
    comparisons,
    equality_table,
    from_bn,
    main_net,
)

LEVEL = 0.05
ROUNDING = 1e-10  # what counts as exact in float64
CONSTANT = 0.01  # of the power, all that Theorem 1's "up to small constants" is allowed here
COMMON = 20  # the depth of Figure 2's right edge
COLLAPSED, KEPT = 0.5, 0.01  # P1 above the one, below the other
NEAR = 0.1  # share of the power that may lie elsewhere
LINEAR, NEARLY_LINEAR = 0.01, 0.1  # of the measure of Figure 5 (right)
WS_AND_PN = ["LN+WS", "LN+PN"]
CRITERIA = (
    f"Collapse is P1 above {COLLAPSED:g} and its absence below {KEPT:g}; powers resemble BN's "
    f"where less than {NEAR:g} of the power lies elsewhere; linear is a measure below {LINEAR:g}, "
    f"nearly so below {NEARLY_LINEAR:g}; more and less are tests over draws where P1 is compared "
    f"at l = {COMMON} (below), which too few draws cannot decide. Theorem 1's inequality holds up "
    "to constants that vanish as the width grows: where any cell is above the bound, the verdict "
    f"allows {CONSTANT:g} of the power, and asks that the widest net need no more than the "
    "narrowest. The thresholds are ours: the paper shows curves."
)


def _by_width(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return table.loc[table["width"].idxmax()], table.loc[table["width"].idxmin()]


def judge_bound(rows: pd.DataFrame) -> Finding | None:
    table = bound_table(rows)
    if table.empty:
        return None
    widest, narrow = _by_width(table)
    worst, above = widest["worst excess"], widest["above the bound"]
    return Finding(
        f"{above} of {widest['cells']} (draw, depth) above it at width {widest['width']}, by "
        f"{worst:.2g} at most; by {narrow['worst excess']:.2g} at width {narrow['width']}",
        [worst <= CONSTANT, worst <= narrow["worst excess"]],
    )


def judge_equality(rows: pd.DataFrame) -> Finding | None:
    table = equality_table(rows)
    if table.empty:
        return None
    widest, narrow = _by_width(table)
    wide, thin = widest["largest error"], narrow["largest error"]
    return Finding(
        f"largest error over depths, mean over draws: {wide:.2g} at width {widest['width']}, "
        f"{thin:.2g} at width {narrow['width']}",
        [wide <= CONSTANT, wide < thin],
    )


class Depth:
    """The main net of a kind at the depth that is compared.

    ``p1`` is the mean over draws, by norm; ``higher(a, b)`` whether a's is above b's, None with
    too few draws for any to be.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = main_net(rows)
        self.depth = min(COMMON, int(self.rows["depth"].max()))
        self.p1 = self.mean("P1")
        tests = comparisons(self.rows, self.depth).set_index(["higher", "lower"])
        self.p = tests["p (Holm)"]
        self.can_decide = least_p(self.rows["draw"].nunique(), len(tests)) < LEVEL

    def mean(self, column: str) -> pd.Series:
        return at_depth(self.rows, column, self.depth).mean()

    def higher(self, a: str, b: str) -> bool | None:
        found = bool(self.p1[a] > self.p1[b] and self.p[a, b] < LEVEL)
        return found if self.can_decide else None

    def finding(self, quantity: str, values: pd.Series, parts: Sequence[bool | None]) -> Finding:
        shown = ", ".join(f"{norm} {value:.3f}" for norm, value in values.items())
        numbers = f"at l = {self.depth}, {quantity} {shown}"
        return Finding(numbers, [None] if None in parts else parts)


def least_p(n_draws: int, n_tests: int) -> float:
    """Wilcoxon's p is never below 2^(1 - draws), nor Holm's below that times the tests."""
    return min(1.0, 2.0 ** (1 - n_draws) * n_tests)


def collapse(at: Depth) -> Finding:
    p1 = at.p1.loc[[norm for norm in ("LN", "GN", "BN", "IN") if norm in at.p1]]
    parts = [at.higher("LN", "GN"), p1["LN"] > COLLAPSED, p1["BN"] < KEPT]
    return at.finding("P1", p1, [*parts, *(p1[["IN"]] < KEPT if "IN" in p1 else ())])


def variability(at: Depth) -> Finding | None:
    if "IN" not in at.p1:
        return None
    varying = (at.mean("P2") + at.mean("P4"))[["BN", "GN", "IN"]]
    parts = [varying["IN"] < KEPT, varying["IN"] < varying["GN"] < varying["BN"]]
    return at.finding("P2 + P4", varying, parts)


def cure(at: Depth) -> Finding:
    far = from_bn(at.rows, at.depth).mean()[["LN", "LN+PN", "GN", "GN+PN"]]
    parts = [at.higher(n, f"{n}+PN") and far[f"{n}+PN"] < NEAR for n in ("LN", "GN")]
    return at.finding("power that lies elsewhere than BN's:", far, parts)


def linearity(at: Depth) -> Finding:
    depth = int(at.rows["depth"].max())
    values = at_depth(at.rows, "nonlinearity", depth).mean()
    return Finding(
        f"at l = {depth}, P(z - z~) / P(z): "
        + ", ".join(f"{norm} {value:.2g}" for norm, value in values.items()),
        [
            values["LN"] < LINEAR,
            values["LN"] < values["GN"] < NEARLY_LINEAR,
            values[["BN", "LN+PN", "GN+PN"]].min() > NEARLY_LINEAR,
        ],
    )


def of(
    judge: Callable[[Depth], Finding | None], *, residual: bool = False
) -> Callable[[pd.DataFrame], Finding | None]:
    """Judge the rows of residual networks alone, or of the others alone."""
    return lambda rows: judge(Depth(rows)) if ("residual" in set(rows["net"])) is residual else None


CLAIMS = (  # on one kind of network
    Claim(
        "Theorem 1, Figure 5 left",
        "with LN, P - P1 stays below rho^(l-1), up to constants that vanish with the width",
        judge_bound,
    ),
    Claim(
        "Proposition 6",
        "with phi = identity, P - P1 equals rho^(l-1) up to such constants",
        judge_equality,
    ),
    Claim(
        "Figure 2 top", "channels collapse with LN, less with GN, not with BN and IN", of(collapse)
    ),
    Claim("Figure 2 top", "instances lack variability with IN, less with GN", of(variability)),
    Claim("Figure 2 top", "the powers with LN+PN and GN+PN resemble BN's", of(cure)),
    Claim(
        "Figure 2 top",
        "LN+WS, made for beta = 0 and gamma = 1, does so less well than LN+PN",
        of(lambda at: at.finding("P1", at.p1[WS_AND_PN], [at.higher(*WS_AND_PN)])),
    ),
    Claim(
        "Figure 5 right",
        "layers are very close to channel-wise linear with LN, close with GN, not with the others",
        of(linearity),
    ),
    Claim(
        "Figure 6",
        "at initialisation LN collapses, GN less, and neither immoderately",
        of(
            lambda at: at.finding(
                "P1", at.p1, [at.higher("LN", "GN"), at.p1["GN"] > NEAR, at.p1["LN"] < 1 - NEAR]
            ),
            residual=True,
        ),
    ),
    Claim(
        "Figure 6",
        "at initialisation LN+WS and LN+PN both keep P1 near BN's",
        of(
            lambda at: at.finding("P1", at.p1[WS_AND_PN], list(at.p1[WS_AND_PN] < NEAR)),
            residual=True,
        ),
    ),
)


Both = tuple[pd.DataFrame, pd.DataFrame]  # rows of networks, and of theorems


def judge_power(both: Both) -> Finding:
    rows, _ = both
    off = (rows["P"] - 1).abs()
    worst = rows.loc[off.idxmax()]
    return Finding(
        f"off by {off.max():.1g} at most ({worst['norm']}, {worst['net']}), float32 and a "
        "stability constant of 1e-6",
        [off.max() < 1e-3],
    )


def judge_theorem2(both: Both) -> Finding:
    _, theorems = both
    worst = theorems[theorems["theorem"] == 2].groupby("case")["error"].max()
    exact = worst[worst.index.str.startswith("float64")]
    return Finding(
        "off, over channels, depths and draws, by at most "
        + "; ".join(f"{error:.1g} ({case})" for case, error in worst.items()),
        [bool((exact < ROUNDING).all())],
    )


def judge_theorem3(both: Both) -> Finding:
    _, theorems = both
    own = theorems[theorems["theorem"] == 3]
    normal, many = own["case"].str.contains(", normal"), own["case"].str.contains("proxy of")
    mean, power = (own["error"].where(own["term"] == term) for term in ("P1", "P"))
    usual, exact = power[normal & ~many].max(), power[normal & many].max()
    return Finding(
        f"P1 off by {mean[normal].max():.1g} at most; P by {usual:.1g}, with a proxy of as many "
        f"points as the data by {exact:.1g}; with uniform and Laplace channels by "
        f"{power[~normal].min():.1g} to {power[~normal].max():.1g}",
        [mean[normal].max() < CONSTANT, exact < CONSTANT],
    )


EXACT_CLAIMS = (  # on networks of all kinds and on the theorems' checks
    Claim("Proposition 3, Figure 5 centre", "P = 1 with every normalisation", judge_power),
    Claim("Theorem 2", "with IN each channel has P1 = P2 = P4 = 0 and P3 = 1", judge_theorem2),
    Claim(
        "Theorem 3",
        "given standard normal channels, PN gives channels with P1 = 0 and P = 1",
        judge_theorem3,
    ),
)
