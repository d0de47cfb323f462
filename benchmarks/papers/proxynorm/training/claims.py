"""The paper's claims on training, judged by the rows of one kind of network."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from benchmarks.papers.common.claims import Claim, Finding
from benchmarks.papers.proxynorm.training.numbers import (
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

Decide = Callable[[Difference], bool | None]
Judge = Callable[[pd.DataFrame], Finding]
Pairs = tuple[tuple[str, str], ...]
FOUR = ("LN", "LN+PN", "GN", "GN+PN")


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


def no_gain(difference: Difference) -> bool | None:
    """Whether it is no gain."""
    return not difference.mean > 0 if difference.p < LEVEL else difference.equal or None


def finding(found: dict[str, Difference], decide: Decide) -> Finding:
    numbers = "; ".join(f"{name}: {difference}" for name, difference in found.items())
    return Finding(numbers, [decide(difference) for difference in found.values()])


def claim(where: str, text: str, *norms: str) -> Callable[[Judge], Claim[pd.DataFrame]]:
    """Make a claim of the function that judges it; rows without these norms do not speak of it.

    Nor do rows of a single seed.
    """

    def made(judge: Judge) -> Claim[pd.DataFrame]:
        def judge_if_there(rows: pd.DataFrame) -> Finding | None:
            is_there = rows["seed"].nunique() > 1 and set(norms) <= set(rows["norm"])
            return judge(rows) if is_there else None

        return Claim(where, text, judge_if_there)

    return made


def of_pairs(
    *names: str, decide: Decide = above_zero, family: Pairs = PN_PAIRS, metric: str = "accuracy"
) -> Judge:
    """Judge pairs over all batch sizes, by Holm among those of ``family``."""

    def judge(rows: pd.DataFrame) -> Finding:
        found = contrasts(rows, family, metric)
        return finding({name: found[name, "all"] for name in names}, decide)

    return judge


@claim("Tables 2 to 4", "LN+PN and GN+PN match BN", "BN", *FOUR)
def matches_bn(rows: pd.DataFrame) -> Finding:
    found, closed = contrasts(rows, BN_PAIRS), ""
    for name in ("LN", "GN"):
        gap, left = found[f"{name} - BN", "all"], found[f"{name}+PN - BN", "all"]
        if gap.p < LEVEL and gap.mean < 0:
            closed += f"; PN closes {100 * (1 - left.mean / gap.mean):.0f} % of {name}'s gap"
    own = of_pairs("LN+PN - BN", "GN+PN - BN", decide=matches, family=BN_PAIRS)(rows)
    return Finding(own.numbers + closed, own.parts)


@claim("Tables 2 to 4", "... where the batch is smallest", "BN", *FOUR)
def matches_bn_where_small(rows: pd.DataFrame) -> Finding:
    found, size = contrasts(rows, BN_PAIRS), min(rows["batch_size"])
    names = ("LN+PN - BN", "GN+PN - BN")
    return finding({f"{name} at {size}": found[name, size] for name in names}, matches)


@claim("Table 2", "PN adds more to LN than to GN", *FOUR)
def more_for_ln(rows: pd.DataFrame) -> Finding:
    means = by_seed(rows, "accuracy")
    gains = (means["LN+PN"] - means["LN"]) - (means["GN+PN"] - means["GN"])
    return finding({"(LN+PN - LN) - (GN+PN - GN)": paired(gains.mean(axis=1))}, above_zero)


@claim("Section 6", "BN loses where the batch is small", "BN", "LN", "GN")
def bn_loses(rows: pd.DataFrame) -> Finding:
    label = f"BN, at {min(rows['batch_size'])} less at {max(rows['batch_size'])}"
    found = {f"{name} - {label}": change_with_batch(rows, name, "BN") for name in ("LN", "GN")}
    return finding(adjust(found), above_zero)


@claim("Section 6", "PN adds most with extra regularisation", *FOUR)
def more_with_regularisation(rows: pd.DataFrame) -> Finding:
    changes = {name: change_with_regularisation(rows, f"{name}+PN", name) for name in ("LN", "GN")}
    found = {f"{name}+PN - {name}, extra less plain": d for name, d in changes.items()}
    return finding(adjust(found), above_zero)


ON_LN_GN = ("LN+PN - LN", "GN+PN - GN")
TRAINING = "train_accuracy"
CLAIMS = (
    claim("Table 2", "PN raises the accuracy of LN and GN", *FOUR)(of_pairs(*ON_LN_GN)),
    claim("Table 2", "PN raises that of GN+WS too", "GN+WS", "GN+WS+PN")(
        of_pairs("GN+WS+PN - GN+WS")
    ),
    more_for_ln,
    claim("Table 2", "PN adds nothing to BN", "BN", "BN+PN")(
        of_pairs("BN+PN - BN", decide=no_gain)
    ),
    claim("Tables 2 to 4", "LN and GN alone stay below BN", "BN", "LN", "GN")(
        of_pairs("LN - BN", "GN - BN", decide=lambda d: above_zero(-d), family=BN_PAIRS)
    ),
    matches_bn,
    matches_bn_where_small,
    bn_loses,
    more_with_regularisation,
    claim("Tables 9 to 11", "PN raises training accuracy", *FOUR)(
        of_pairs(*ON_LN_GN, metric=TRAINING)
    ),
    claim("Tables 9 to 11", "... but not that of BN", "BN", "BN+PN")(
        of_pairs("BN+PN - BN", decide=no_gain, metric=TRAINING)
    ),
)
