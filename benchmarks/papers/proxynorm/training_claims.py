"""The paper's claims on training, judged by the rows of one kind of network."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from benchmarks.papers.common.claims import Claim, Finding
from benchmarks.papers.proxynorm.training_numbers import (
    BN_PAIRS,
    LEVEL,
    PN_PAIRS,
    Difference,
    Pair,
    adjust,
    by_seed,
    change_with_batch,
    change_with_regularisation,
    contrasts,
    paired,
)

Decide = Callable[[Difference], bool | None]
FOUR = ("LN", "LN+PN", "GN", "GN+PN")
PN_ON_LN_GN = (("LN+PN", "LN"), ("GN+PN", "GN"))


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


def nothing(difference: Difference) -> bool | None:
    """Whether it is no gain."""
    return not difference.mean > 0 if difference.p < LEVEL else difference.equal or None


def finding(found: dict[str, Difference], decide: Decide) -> Finding:
    numbers = "; ".join(f"{name}: {difference}" for name, difference in found.items())
    return Finding(numbers, [decide(difference) for difference in found.values()])


def claim(
    where: str, text: str, norms: tuple[str, ...], judge: Callable[[pd.DataFrame], Finding]
) -> Claim[pd.DataFrame]:
    """A claim that rows without these norms, or of a single seed, do not speak of."""

    def judge_if_there(rows: pd.DataFrame) -> Finding | None:
        is_there = rows["seed"].nunique() > 1 and set(norms) <= set(rows["norm"])
        return judge(rows) if is_there else None

    return Claim(where, text, judge_if_there)


def _of_pairs(
    pairs: tuple[Pair, ...],
    decide: Decide = above_zero,
    family: tuple[Pair, ...] = PN_PAIRS,
    metric: str = "accuracy",
) -> Callable[[pd.DataFrame], Finding]:
    """Judge pairs over all batch sizes, by Holm among the pairs of ``family``."""

    def judge(rows: pd.DataFrame) -> Finding:
        found = contrasts(rows, family, metric)
        names = [f"{a} - {b}" for a, b in pairs]
        return finding({name: found[name, "all"] for name in names}, decide)

    return judge


def _matches_bn(rows: pd.DataFrame) -> Finding:
    found = contrasts(rows, BN_PAIRS)
    own = finding({name: found[name, "all"] for name in ("LN+PN - BN", "GN+PN - BN")}, matches)
    closed = ""
    for name in ("LN", "GN"):
        gap, left = found[f"{name} - BN", "all"], found[f"{name}+PN - BN", "all"]
        if gap.p < LEVEL and gap.mean < 0:
            closed += f"; PN closes {100 * (1 - left.mean / gap.mean):.0f} % of {name}'s gap"
    return Finding(own.numbers + closed, own.parts)


def _matches_bn_where_small(rows: pd.DataFrame) -> Finding:
    found, size = contrasts(rows, BN_PAIRS), min(rows["batch_size"])
    names = ("LN+PN - BN", "GN+PN - BN")
    return finding({f"{name} at {size}": found[name, size] for name in names}, matches)


def _more_for_ln(rows: pd.DataFrame) -> Finding:
    means = by_seed(rows, "accuracy")
    gains = (means["LN+PN"] - means["LN"]) - (means["GN+PN"] - means["GN"])
    return finding({"(LN+PN - LN) - (GN+PN - GN)": paired(gains.mean(axis=1))}, above_zero)


def _bn_loses(rows: pd.DataFrame) -> Finding:
    label = f"BN, at {min(rows['batch_size'])} less at {max(rows['batch_size'])}"
    found = {f"{name} - {label}": change_with_batch(rows, name, "BN") for name in ("LN", "GN")}
    return finding(adjust(found), above_zero)


def _more_with_regularisation(rows: pd.DataFrame) -> Finding:
    found = {
        f"{a} - {b}, extra less plain": change_with_regularisation(rows, a, b)
        for a, b in PN_ON_LN_GN
    }
    return finding(adjust(found), above_zero)


_WS = (("GN+WS+PN", "GN+WS"),)
_BN = (("BN+PN", "BN"),)
_BELOW = (("LN", "BN"), ("GN", "BN"))
CLAIMS = (
    claim("Table 2", "PN raises the accuracy of LN and GN", FOUR, _of_pairs(PN_ON_LN_GN)),
    claim("Table 2", "PN raises that of GN+WS too", _WS[0], _of_pairs(_WS)),
    claim("Table 2", "PN adds more to LN than to GN", FOUR, _more_for_ln),
    claim("Table 2", "PN adds nothing to BN", _BN[0], _of_pairs(_BN, nothing)),
    claim(
        "Tables 2 to 4",
        "LN and GN alone stay below BN",
        ("BN", "LN", "GN"),
        _of_pairs(_BELOW, lambda d: above_zero(-d), BN_PAIRS),
    ),
    claim("Tables 2 to 4", "LN+PN and GN+PN match BN", ("BN", *FOUR), _matches_bn),
    claim(
        "Tables 2 to 4", "... where the batch is smallest", ("BN", *FOUR), _matches_bn_where_small
    ),
    claim("Section 6", "BN loses where the batch is small", ("BN", "LN", "GN"), _bn_loses),
    claim("Section 6", "PN adds most with extra regularisation", FOUR, _more_with_regularisation),
    claim(
        "Tables 9 to 11",
        "PN raises training accuracy",
        FOUR,
        _of_pairs(PN_ON_LN_GN, metric="train_accuracy"),
    ),
    claim(
        "Tables 9 to 11",
        "... but not that of BN",
        _BN[0],
        _of_pairs(_BN, nothing, metric="train_accuracy"),
    ),
)
