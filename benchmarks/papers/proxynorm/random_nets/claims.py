"""The paper's claims on random nets, judged by the rows of random_nets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from benchmarks.papers.common.claims import Claim, Finding
from benchmarks.papers.proxynorm.random_nets.numbers import (
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
CRITERIA = (
    f"Collapse is P1 above {COLLAPSED:g} and its absence below {KEPT:g}; powers resemble BN's "
    f"where less than {NEAR:g} of the power lies elsewhere; linear is a measure below {LINEAR:g}, "
    f"nearly so below {NEARLY_LINEAR:g}; more and less are tests over draws where P1 is compared "
    f"at l = {COMMON} (below), which too few draws cannot decide. Theorem 1's inequality holds up "
    "to constants that vanish as the width grows: where any cell is above the bound, the verdict "
    f"allows {CONSTANT:g} of the power, and asks that the widest net need no more than the "
    "narrowest. The thresholds are ours: the paper shows curves."
)


def claim(where: str, text: str) -> Callable[[Callable[[Any], Finding | None]], Claim[Any]]:
    """Make a claim of the function that judges it."""
    return lambda judge: Claim(where, text, judge)


class Kind:
    """The rows of one kind of network, and of its main net at the depth that is compared.

    ``p1`` is the mean over draws, by norm; ``higher(a, b)`` whether a's is above b's, None with
    too few draws for any to be.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows, self.main = rows, main_net(rows)
        self.last = int(self.main["depth"].max())
        self.depth = min(COMMON, self.last)
        self.p1 = self.mean("P1")
        self.tests = comparisons(self.main, self.depth)
        self.p = self.tests.set_index(["higher", "lower"])["p (Holm)"]
        # Wilcoxon's p is never below 2^(1 - draws), nor Holm's below that times the tests
        self.n_draws = self.main["draw"].nunique()
        self.least_p = min(1.0, 2.0 ** (1 - self.n_draws) * len(self.tests))

    def mean(self, column: str) -> pd.Series:
        return at_depth(self.main, column, self.depth).mean()

    def higher(self, a: str, b: str) -> bool | None:
        found = bool(self.p1[a] > self.p1[b] and self.p[a, b] < LEVEL)
        return found if self.least_p < LEVEL else None

    def finding(self, quantity: str, values: pd.Series, parts: Sequence[bool | None]) -> Finding:
        shown = ", ".join(f"{norm} {value:.3f}" for norm, value in values.items())
        numbers = f"at l = {self.depth}, {quantity} {shown}"
        return Finding(numbers, [None] if None in parts else parts)


@claim(
    "Theorem 1, Figure 5 left",
    "with LN, P - P1 stays below rho^(l-1), up to constants that vanish with the width",
)
def bound(kind: Kind) -> Finding:
    table = bound_table(kind.rows).sort_values("width")
    widest, narrow = table.iloc[-1], table.iloc[0]
    worst, above = widest["worst excess"], widest["above the bound"]
    return Finding(
        f"{above} of {widest['cells']} (draw, depth) above it at width {widest['width']}, by "
        f"{worst:.2g} at most; by {narrow['worst excess']:.2g} at width {narrow['width']}",
        [worst <= CONSTANT, worst <= narrow["worst excess"]],
    )


@claim("Proposition 6", "with phi = identity, P - P1 equals rho^(l-1) up to such constants")
def equality(kind: Kind) -> Finding | None:
    table = equality_table(kind.rows).sort_values("width")
    if table.empty:
        return None
    width, error = table["width"], table["largest error"]
    return Finding(
        f"largest error over depths, mean over draws: {error.iloc[-1]:.2g} at width "
        f"{width.iloc[-1]}, {error.iloc[0]:.2g} at width {width.iloc[0]}",
        [error.iloc[-1] <= CONSTANT, error.iloc[-1] < error.iloc[0]],
    )


@claim("Figure 2 top", "channels collapse with LN, less with GN, not with BN and IN")
def collapse(kind: Kind) -> Finding:
    p1 = kind.p1.loc[[norm for norm in ("LN", "GN", "BN", "IN") if norm in kind.p1]]
    kept = p1.drop(["LN", "GN"]) < KEPT
    return kind.finding("P1", p1, [kind.higher("LN", "GN"), p1["LN"] > COLLAPSED, *kept])


@claim("Figure 2 top", "instances lack variability with IN, less with GN")
def variability(kind: Kind) -> Finding | None:
    if "IN" not in kind.p1:
        return None
    varying = (kind.mean("P2") + kind.mean("P4"))[["BN", "GN", "IN"]]
    parts = [varying["IN"] < KEPT, varying["IN"] < varying["GN"] < varying["BN"]]
    return kind.finding("P2 + P4", varying, parts)


@claim("Figure 2 top", "the powers with LN+PN and GN+PN resemble BN's")
def cure(kind: Kind) -> Finding:
    far = from_bn(kind.main, kind.depth).mean()[["LN", "LN+PN", "GN", "GN+PN"]]
    parts = [kind.higher(n, f"{n}+PN") and far[f"{n}+PN"] < NEAR for n in ("LN", "GN")]
    return kind.finding("power that lies elsewhere than BN's:", far, parts)


@claim("Figure 2 top", "LN+WS, made for beta = 0 and gamma = 1, does so less well than LN+PN")
def weight_standardisation(kind: Kind) -> Finding:
    return kind.finding("P1", kind.p1[["LN+WS", "LN+PN"]], [kind.higher("LN+WS", "LN+PN")])


@claim(
    "Figure 5 right",
    "layers are very close to channel-wise linear with LN, close with GN, not with the others",
)
def linearity(kind: Kind) -> Finding:
    found = at_depth(kind.main, "nonlinearity", kind.last).mean()
    shown = ", ".join(f"{norm} {value:.2g}" for norm, value in found.items())
    others = found[["BN", "LN+PN", "GN+PN"]].min() > NEARLY_LINEAR
    parts = [found["LN"] < LINEAR, found["LN"] < found["GN"] < NEARLY_LINEAR, others]
    return Finding(f"at l = {kind.last}, P(z - z~) / P(z): {shown}", parts)


@claim("Figure 6", "at initialisation LN collapses, GN less, and neither immoderately")
def residual_collapse(kind: Kind) -> Finding:
    parts = [kind.higher("LN", "GN"), kind.p1["GN"] > NEAR, kind.p1["LN"] < 1 - NEAR]
    return kind.finding("P1", kind.p1, parts)


@claim("Figure 6", "at initialisation LN+WS and LN+PN both keep P1 near BN's")
def residual_cure(kind: Kind) -> Finding:
    p1 = kind.p1[["LN+WS", "LN+PN"]]
    return kind.finding("P1", p1, list(p1 < NEAR))


@claim("Proposition 3, Figure 5 centre", "P = 1 with every normalisation")
def power(rows: pd.DataFrame) -> Finding:
    off = (rows["P"] - 1).abs()
    worst = rows.loc[off.idxmax()]
    return Finding(
        f"off by {off.max():.1g} at most ({worst['norm']}, {worst['net']}), float32 and a "
        "stability constant of 1e-6",
        [off.max() < 1e-3],
    )


@claim("Theorem 2", "with IN each channel has P1 = P2 = P4 = 0 and P3 = 1")
def theorem2(theorems: pd.DataFrame) -> Finding:
    worst = theorems[theorems["theorem"] == 2].groupby("case")["error"].max()
    shown = "; ".join(f"{error:.1g} ({case})" for case, error in worst.items())
    exact = worst[worst.index.str.startswith("float64")]
    numbers = f"off, over channels, depths and draws, by at most {shown}"
    return Finding(numbers, [bool((exact < ROUNDING).all())])


@claim("Theorem 3", "given standard normal channels, PN gives channels with P1 = 0 and P = 1")
def theorem3(theorems: pd.DataFrame) -> Finding:
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


RANDOM = (bound, equality, collapse, variability, cure, weight_standardisation, linearity)
RESIDUAL = (residual_collapse, residual_cure)
THEOREMS = (theorem2, theorem3)
