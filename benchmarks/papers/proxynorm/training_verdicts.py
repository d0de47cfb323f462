"""The paper's claims on training, judged by the rows of one kind of network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.papers.proxynorm.training_numbers import (
    BN_PAIRS,
    LEVEL,
    PN_PAIRS,
    Difference,
    adjust,
    by_seed,
    change_with_batch,
    change_with_regularisation,
    contrasts,
    paired,
)

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold here"
UNDECIDED = "not decided"


def show(difference: Difference) -> str:
    """In points, with its interval and p-value.

    >>> show(Difference(0.012, 0.002, 0.022, 0.0312, 6))
    '+1.20 [+0.20, +2.20], p = 0.031'
    """
    ends = (difference.mean, difference.low, difference.high)
    mean, low, high = (f"{round(100 * end, 2) + 0.0:+.2f}" for end in ends)  # no minus zero
    p = "p < 0.001" if difference.p < 0.001 else f"p = {difference.p:.3f}"
    return f"{mean} [{low}, {high}], {p}"


@dataclass(frozen=True)
class Judged:
    """What came out of a claim, and the numbers that say so."""

    verdict: str
    numbers: str


@dataclass(frozen=True)
class Claim:
    """One of the paper's, and how it is judged from rows of one kind of network."""

    text: str
    norms: tuple[str, ...]
    judge: Callable[[pd.DataFrame], Judged]


def verdict_of(outcomes: Sequence[bool | None]) -> str:
    """Of several findings, True for the claim, False against it, None undecided.

    >>> verdict_of([True, None]), verdict_of([False, None]), verdict_of([None])
    ('holds in part', 'does not hold here', 'not decided')
    """
    if all(outcomes):
        return HOLDS
    if any(outcomes):
        return IN_PART
    return FAILS if False in outcomes else UNDECIDED


def above_zero(difference: Difference) -> bool | None:
    """Whether it is more than nothing; None where it is neither that nor shown to be small."""
    if difference.p < LEVEL:
        return difference.mean > 0
    return False if difference.equal else None


def matches(difference: Difference) -> bool | None:
    """Whether the first is no point or more below the second."""
    if difference.not_below or (difference.p < LEVEL and difference.mean > 0):
        return True
    return False if difference.p < LEVEL else None


def at(table: pd.DataFrame, pair: str, size: object = "all") -> Difference:
    """One cell of `contrasts`."""
    found = table[(table["pair"] == pair) & (table["batch_size"] == size)]
    return found["difference"].iloc[0]


def _gains(metric: str, pairs: Sequence[tuple[str, str]]) -> Callable[[pd.DataFrame], Judged]:
    def judge(rows: pd.DataFrame) -> Judged:
        table = contrasts(rows, PN_PAIRS, metric)
        found = {f"{a} - {b}": at(table, f"{a} - {b}") for a, b in pairs}
        return _judged(found, above_zero)

    return judge


def _judged(found: dict[str, Difference], decide: Callable[[Difference], bool | None]) -> Judged:
    numbers = "; ".join(f"{name}: {show(difference)}" for name, difference in found.items())
    return Judged(verdict_of([decide(d) for d in found.values()]), numbers)


def _matches_bn(rows: pd.DataFrame) -> Judged:
    table = contrasts(rows, BN_PAIRS)
    found = {pair: at(table, pair) for pair in ("LN+PN - BN", "GN+PN - BN")}
    judged = _judged(found, matches)
    return Judged(judged.verdict, judged.numbers + _closed(table))


def _closed(table: pd.DataFrame) -> str:
    """How much of the gap of LN and GN to BN is closed by PN, where there is one."""
    words = ""
    for name in ("LN", "GN"):
        gap, left = at(table, f"{name} - BN"), at(table, f"{name}+PN - BN")
        if gap.p < LEVEL and gap.mean < 0:
            words += f"; PN closes {100 * (1 - left.mean / gap.mean):.0f} % of {name}'s gap"
    return words


def _matches_bn_where_small(rows: pd.DataFrame) -> Judged:
    table, size = contrasts(rows, BN_PAIRS), min(rows["batch_size"])
    found = {f"{pair} at {size}": at(table, pair, size) for pair in ("LN+PN - BN", "GN+PN - BN")}
    return _judged(found, matches)


def _falls_short(rows: pd.DataFrame) -> Judged:
    table = contrasts(rows, BN_PAIRS)
    found = {pair: at(table, pair) for pair in ("LN - BN", "GN - BN")}
    return _judged(found, lambda d: above_zero(_negated(d)))


def _negated(d: Difference) -> Difference:
    return Difference(-d.mean, -d.high, -d.low, d.p, d.n)


def _nothing_for_bn(metric: str) -> Callable[[pd.DataFrame], Judged]:
    def judge(rows: pd.DataFrame) -> Judged:
        found = {"BN+PN - BN": at(contrasts(rows, PN_PAIRS, metric), "BN+PN - BN")}
        return _judged(found, lambda d: not d.mean > 0 if d.p < LEVEL else d.equal or None)

    return judge


def _more_for_ln(rows: pd.DataFrame) -> Judged:
    means = by_seed(rows, "accuracy")
    ln = means["LN+PN"] - means["LN"]
    gn = means["GN+PN"] - means["GN"]
    found = {"(LN+PN - LN) - (GN+PN - GN)": paired((ln - gn).mean(axis=1))}
    return _judged(found, above_zero)


def _bn_loses(rows: pd.DataFrame) -> Judged:
    sizes = sorted(set(rows["batch_size"]))
    names = ("LN", "GN")
    family = adjust([change_with_batch(rows, name, "BN") for name in names])
    label = f"at {sizes[0]} less at {sizes[-1]}"
    found = {f"{name} - BN, {label}": d for name, d in zip(names, family, strict=True)}
    return _judged(found, above_zero)


def _more_with_regularisation(rows: pd.DataFrame) -> Judged:
    pairs = (("LN+PN", "LN"), ("GN+PN", "GN"))
    family = adjust([change_with_regularisation(rows, *pair) for pair in pairs])
    found = {f"{a} - {b}, extra less plain": d for (a, b), d in zip(pairs, family, strict=True)}
    return _judged(found, above_zero)


PN_ON_LN_GN = (("LN+PN", "LN"), ("GN+PN", "GN"))
FOUR = ("LN", "LN+PN", "GN", "GN+PN")
WS = (("GN+WS+PN", "GN+WS"),)
CLAIMS = (
    Claim("PN raises the accuracy of LN and GN (Table 2)", FOUR, _gains("accuracy", PN_ON_LN_GN)),
    Claim("PN raises that of GN+WS too (Table 2)", WS[0], _gains("accuracy", WS)),
    Claim("PN adds more to LN than to GN (Table 2)", FOUR, _more_for_ln),
    Claim("PN adds nothing to BN (Table 2)", ("BN", "BN+PN"), _nothing_for_bn("accuracy")),
    Claim("LN and GN alone stay below BN (Tables 2 to 4)", ("BN", "LN", "GN"), _falls_short),
    Claim("LN+PN and GN+PN match BN (Tables 2 to 4)", ("BN", *FOUR), _matches_bn),
    Claim("... where the batch is smallest", ("BN", *FOUR), _matches_bn_where_small),
    Claim("BN loses where the batch is small (section 6)", ("BN", "LN", "GN"), _bn_loses),
    Claim("PN adds most with extra regularisation (section 6)", FOUR, _more_with_regularisation),
    Claim(
        "PN raises training accuracy (Tables 9 to 11)",
        FOUR,
        _gains("train_accuracy", PN_ON_LN_GN),
    ),
    Claim("... but not that of BN", ("BN", "BN+PN"), _nothing_for_bn("train_accuracy")),
)


def judge(rows: pd.DataFrame) -> list[tuple[Claim, Judged | None]]:
    """Every claim; None where these rows lack a norm that it speaks of, or have a single seed."""
    present, several = set(rows["norm"]), rows["seed"].nunique() > 1
    return [
        (claim, claim.judge(rows) if several and present.issuperset(claim.norms) else None)
        for claim in CLAIMS
    ]
