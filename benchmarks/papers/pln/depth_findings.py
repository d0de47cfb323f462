"""Verdicts of the study on depth, each computed from the numbers: what the PLN paper says, and we.

Each returns a sentence that begins with the claim's fate here: Holds, Holds in part, Does not hold.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from benchmarks.papers.pln.depth_numbers import (
    INIT_NAMES,
    decades,
    gradient_table,
    label,
    labels,
    paper_gradients,
    paper_vgg,
    that_train,
)

CLASSIC = ("sigmoid", "tanh", "relu")


def fate(claims: list[bool]) -> str:
    """All, some or none of a finding's claims hold."""
    return "Holds" if all(claims) else "Holds in part" if any(claims) else "Does not hold"


def part_of(rows: pd.DataFrame, data: str, body: str, init: str) -> pd.DataFrame:
    """The rows of one data set and kind of network."""
    return rows[(rows["data"] == data) & (rows["body"] == body) & (rows["init"] == init)]


def table_1(chosen: pd.DataFrame, depth: int) -> str:
    """Plain networks: does PLN-8 alone train? ``chosen`` are those of one kind of network."""
    own = chosen[chosen["depth"] == depth].set_index("activation")
    trains = that_train(chosen, depth)
    claims = ["pln-8" in trains, not set(CLASSIC) & set(trains)]
    test = own["test"]
    return (
        f"**{fate(claims)}.** Of plain networks of {depth} layers, PLN-8 reaches "
        f"{test['pln-8']:.3f} on test rows and {labels(list(CLASSIC))} "
        f"{', '.join(f'{test[name]:.3f}' for name in CLASSIC)}. All that train: {labels(trains)}."
    )


def table_1_gradients(table: pd.DataFrame, depth: int) -> str:
    """Plain networks: is PLN-8's mean gradient the largest of the four, and by how much?"""
    paper = paper_vgg()["gradient"]
    ours = table.loc[["pln-8", *CLASSIC], depth]
    others, theirs = ours[list(CLASSIC)].max(), paper[list(CLASSIC)].max()
    return (
        f"**{fate([bool(ours['pln-8'] > others)])}.** The mean norm of PLN-8's initial gradients "
        f"is {ours['pln-8'] / others:.3g} times the largest of the other three "
        f"(paper: {paper['pln-8'] / theirs:.3g} times). From the largest down: "
        f"{_descending(ours)}; the paper's: {_descending(paper)}."
    )


def _descending(norms: pd.Series) -> str:
    order = norms.sort_values(ascending=False)
    return ", ".join(f"{label(str(name))} {value:.2g}" for name, value in order.items())


def table_2(table: pd.DataFrame, shallow: int, deep: int) -> str:
    """Residual networks: growth with depth beside the paper's, of its four activations."""
    paper = decades(paper_gradients(), 20, 110)
    ours = decades(table.loc[list(paper.index)], shallow, deep)
    claims = [
        ours.idxmax() == "relu" and ours["relu"] > 4.0,
        bool(abs(ours["pln-8"]) < abs(ours["relu"]) / 2.0),
        *(bool(ours[name] * paper[name] > 0.0) for name in ("sigmoid", "tanh")),
    ]
    grown = "; ".join(
        f"{label(name)} {ours[name]:+.1f} (paper {paper[name]:+.1f})" for name in paper.index
    )
    return (
        f"**{fate(claims)}.** Powers of ten by which the mean norm grows from {shallow} to {deep} "
        f"layers: {grown}. ReLU's must be the largest and above 4, PLN-8's less than half of it, "
        "sigmoid's and tanh's of the paper's sign."
    )


def kept(rows: pd.DataFrame, shallow: int, deep: int) -> str:
    """How far the first layer's gradient moves with depth, by activation, the steadiest first."""
    moved = decades(gradient_table(rows, "first"), shallow, deep)
    order = moved.abs().sort_values().index
    place = list(order).index("pln-8") + 1
    listed = ", ".join(f"{label(name)} {moved[name]:+.1f}" for name in order)
    return f"PLN-8 is number {place} of {len(order)} in steadiness: {listed}."


def figure_8(chosen: pd.DataFrame) -> str:
    """Residual networks: sigmoid and tanh train, ReLU does not where it is deep, PLN-8 does."""
    depths = sorted(chosen["depth"].unique())
    trains = {depth: that_train(chosen, depth) for depth in depths}
    shallow, deep = depths[0], depths[-1]
    claims = {
        "sigmoid and tanh train when shallow": {"sigmoid", "tanh"} <= set(trains[shallow]),
        "ReLU trains when shallow and not when deep": "relu" in trains[shallow]
        and "relu" not in trains[deep],
        "PLN-8 trains at every depth": all("pln-8" in names for names in trains.values()),
    }
    said = "; ".join(f"{claim}: {'yes' if is_so else 'no'}" for claim, is_so in claims.items())
    listed = "; ".join(f"{depth} layers: {labels(names)}" for depth, names in trains.items())
    return f"**{fate(list(claims.values()))}** ({said}). What trains, the best first: {listed}."


def deepest(chosen: pd.DataFrame) -> str:
    """Which activations train at the largest depth, by kind of network, of one data set."""
    depth = int(chosen["depth"].max())
    listed = "; ".join(
        f"{body}, {INIT_NAMES[init]} initialisation: {labels(that_train(kind, depth))}"
        for (body, init), kind in chosen.groupby(["body", "init"], sort=False)
    )
    return f"{depth} layers, the best first: {listed}."


def threshold(chosen: pd.DataFrame, gradients: pd.DataFrame) -> str:
    """Whether the gradient at the start tells which networks train.

    ``gradients`` are of the same data set. Networks are parted by the ratio of the first hidden
    gradient to the last, in powers of ten: that within ``steady`` of zero should train.
    """
    steady = 2.0
    means = gradients.groupby(["body", "init", "depth", "activation"])[["first", "last_hidden"]]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = means.agg(lambda norms: np.log10(norms.astype(np.float64)).mean())
    ratio = (logs["first"] - logs["last_hidden"]).rename("ratio").reset_index()
    both = chosen.merge(ratio, on=["body", "init", "depth", "activation"])
    inside = both["ratio"].abs() <= steady
    shares = [
        f"{int(both.loc[where, 'trains'].sum())} of {int(where.sum())}" if where.any() else "0 of 0"
        for where in (inside, both["ratio"] > steady, both["ratio"] < -steady)
    ]
    unknown = int(both["ratio"].map(math.isnan).sum())
    rest = f"; {unknown} have no gradient at all" if unknown else ""
    return (
        f"Of the networks whose first layer's gradient is within a factor of {10**steady:.0f} of "
        f"the last hidden layer's, {shares[0]} train; of those where it is larger (exploding "
        f"towards the input) {shares[1]}, where it is smaller (vanishing) {shares[2]}{rest}."
    )
