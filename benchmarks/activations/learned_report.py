"""The page of `benchmarks.activations.learned`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.activations.effects import (
    Effect,
    block,
    by_table,
    effects,
    friedman_text,
    ranks,
    size,
)
from benchmarks.activations.figures import plot_effects
from benchmarks.activations.plan import ARMS, N_MEMBERS
from benchmarks.activations.shares import PARTS
from benchmarks.activations.tables import MOST_TEST
from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.looks import label
from benchmarks.common.page import Page, p_text
from combutab.evaluation import t_interval

FIXED = {"networks": "fixed", "packs": "pack, fixed"}
KINDS = ("openml", "formula")
LEARNED = ("straight-through", "softmax")
FOUND = ("found, by layer", "found, all layers alike")
RANDOM = ("pack, random shares", "pack, random by layer")


@dataclass(frozen=True)
class Arms:
    """Effects of the arms of a group beside the fixed shares, and the logarithms of errors."""

    logs: pd.DataFrame
    beside: dict[str, Effect]


Found = dict[str, Arms]


def make_found(rows: pd.DataFrame) -> Found:
    """What there is of each group on two tables at least."""
    found = {}
    for group, arms in ARMS.items():
        logs = block(rows, "arm", arms, KINDS)
        if len(by_table(logs)) > 1:
            found[group] = Arms(logs, effects(logs, FIXED[group]))
    return found


def _better(group: str, arms: Sequence[str], found: Found) -> Finding | None:
    """Each must have a significantly smaller error than the fixed shares."""
    if group not in found:
        return None
    beside = {arm: found[group].beside[arm] for arm in arms}
    said = "; ".join(f"{arm} {effect}, {p_text(effect.p)}" for arm, effect in beside.items())
    return Finding(said, [effect.smaller for effect in beside.values()])


def _beats(arms: Sequence[str], other: str, found: Found) -> Finding | None:
    """Each must have a significantly smaller error than another arm."""
    if "networks" not in found:
        return None
    beside = effects(found["networks"].logs[[other, *arms]], other)
    said = "; ".join(f"{arm} {effect}, {p_text(effect.p)}" for arm, effect in beside.items())
    return Finding(said, [effect.smaller for effect in beside.values()])


CLAIMS = [
    Claim(
        "gradient",
        "Shares learned by gradient and hardened are better than the fixed ones.",
        lambda found: _better("networks", LEARNED, found),
    ),
    Claim(
        "gradient",
        "They are better than a blend with x, which learns one parameter a unit.",
        lambda found: _beats(LEARNED, "blend", found),
    ),
    Claim(
        "gradient",
        "The shares found, in a network trained again, are better than twice the networks of "
        "fixed shares, which take as long.",
        lambda found: _beats(FOUND, "two networks", found),
    ),
    Claim(
        "by layer",
        "Shares by layer are better than the same for all layers.",
        lambda found: _beats(FOUND[:1], FOUND[1], found),
    ),
    Claim(
        "random search",
        "A pack of random shares is better than one of the fixed ones.",
        lambda found: _better("packs", RANDOM[:1], found),
    ),
    Claim(
        "random search",
        "A pack of random shares by layer is better than one of the fixed ones.",
        lambda found: _better("packs", RANDOM[1:], found),
    ),
]


def shares_of(rows: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Shares that were learned, a row a network and layer."""
    own = rows[(rows["arm"] == arm) & rows["shares"].notna()]
    found = []
    for data, text in zip(own["data"], own["shares"].astype(str), strict=True):
        for layer, units in enumerate(text.split(), 1):
            counts = np.array(units.split("/"), float)
            found.append(
                {
                    "data": data,
                    "layer": layer,
                    **dict(zip(PARTS, counts / counts.sum(), strict=True)),
                }
            )
    return pd.DataFrame(found)


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    found = make_found(rows)
    failed = int((rows["error"] != "").sum())
    page.text(
        f"""\
CombU gives half of a layer's units ReLU, a quarter ELU and a quarter NLReLU. Here units learn which
of the three they have: by a softmax over the parts that sharpens with each step, or by its gradient
alone (straight-through), hard outside training, so that the validation rows stop the training of
what is kept: a `CombU` of exact counts (`shares.py`), with its kernel and ProxyNorm. "Found" are
the shares of the softmax in networks that are trained again, each layer's own or their mean: with
the first training they cost what two networks do. Packs of {N_MEMBERS} members (one shape, varied
as ever) have the fixed shares, or each member its own, drawn evenly, for all layers or by layer.
A blend has one parameter more a unit than CombU; learning has three, until it is hardened.""",
        f"""\
The default recipe with hidden layers of {rows["widths"].iloc[0].replace(",", ", ")} units; at most
{rows["most_train"].max()} training and {MOST_TEST} test rows; splits, seeds, errors, tests and the
rule for cutting as in [activations_recipes.md](activations_recipes.md). Splits in order, single
networks before packs; where the time ended, the rest is not run. Networks and packs: {len(rows)},
of which {failed} diverged.""",
    )
    page.heading("Verdicts")
    page.text(claims_table(CLAIMS, {"here": found}))
    for group, arms in found.items():
        logs = arms.logs
        page.heading(f"{group.capitalize()}: {size(logs)} (tables x splits)")
        test = ranks(logs)
        lines = []
        for arm, rank in test.mean_ranks.items():
            effect = arms.beside.get(str(arm))
            cells = [str(effect), p_text(effect.p)] if effect else ["1", ""]
            lines.append([arm, f"{rank:.2f}", *cells, effect.own if effect else ""])
        page.table(["arm", "mean rank", "error over the fixed shares'", "p", "own"], lines)
        page.text(f"{friedman_text(test)}.")
    if found:
        shown = {group: arms.beside for group, arms in found.items()}
        figure = plot_effects(shown, {}, reference="the fixed shares'")
        page.figure(figure, "Errors over the fixed shares'")
    page.heading("Shares that were learned")
    page.text("Means over tables and splits, with Student's 95 % interval over tables.")
    for arm in LEARNED:
        shares = shares_of(rows, arm)
        if shares.empty or shares["data"].nunique() < 2:
            page.text(f"{arm}: not enough tables.")
            continue
        lines = []
        for layer, own in shares.groupby("layer"):
            means = own.groupby("data")[list(PARTS)].mean()
            cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*t_interval(means[n])) for n in PARTS]
            lines.append([layer, *cells])
        page.table([f"{arm}: layer", *map(label, PARTS)], lines)
