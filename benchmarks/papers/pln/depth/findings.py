"""What the rows of the study on depth say: gradients, their growth, and which networks train."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.papers.common.claims import Finding
from benchmarks.papers.common.looks import label, listed

INIT_NAMES = {"torch": "torch's own", "kaiming": "Kaiming's"}
CLASSIC = ("sigmoid", "tanh", "relu")
CELL = ["data", "body", "init", "depth", "activation"]
PAPER = pd.read_csv(Path(__file__).parents[1] / "expected" / "pln_depth.csv")
TABLE_1 = PAPER[PAPER["table"] == 1].pivot(index="activation", columns="quantity", values="value")
TABLE_2 = PAPER[PAPER["table"] == 2].pivot(index="activation", columns="depth", values="value")


def gradient_table(rows: pd.DataFrame, norm: str) -> pd.DataFrame:
    """Activations x depths: the geometric mean of a norm over seeds, of one data set and network.

    A norm of zero, and a norm that is not finite, stay so.
    """
    with np.errstate(divide="ignore"):
        logs = np.log10(rows[norm].astype(np.float64))
    means = logs.groupby([rows["activation"], rows["depth"]]).mean().unstack()
    return 10.0 ** means.loc[list(dict.fromkeys(rows["activation"]))]


def decades(table: pd.DataFrame, shallow: int, deep: int) -> pd.Series:
    """By how many powers of ten each row grows from one depth to another."""
    with np.errstate(divide="ignore"):
        return np.log10(table[deep]) - np.log10(table[shallow])


def choose_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: the learning rate with the best mean score on the training rows.

    A network that diverged, or is worse than a constant answer, counts as that answer. Of equal
    means the first rate is taken.

    Returns
    -------
    DataFrame
        The columns of the cell, ``learning_rate``, ``train`` and ``test`` (means over seeds),
        ``test_sd``, and ``trains``: whether every seed removed at least half of the constant
        answer's error on the training rows.
    """
    least = rows["trivial_score"]
    filled = rows.assign(
        train=rows["train_score"].fillna(-np.inf).clip(lower=least),
        test=rows["test_score"].fillna(-np.inf).clip(lower=least),
    )
    filled["fits"] = filled["train"] >= least + (1.0 - least) / 2.0
    groups = filled.groupby([*CELL, "learning_rate"], sort=False)
    means = groups.agg(
        train=("train", "mean"),
        test=("test", "mean"),
        test_sd=("test", "std"),
        trains=("fits", "all"),
    ).reset_index()
    best = means.groupby(CELL, sort=False)["train"].idxmax()
    return means.loc[best].reset_index(drop=True)


def that_train(chosen: pd.DataFrame, depth: int) -> list[str]:
    """The activations that train at a depth, the best on test rows first."""
    own = chosen[(chosen["depth"] == depth) & chosen["trains"]]
    return list(own.sort_values("test", ascending=False)["activation"])


def table_1(chosen: pd.DataFrame, depth: int) -> Finding:
    """Of plain networks, PLN-8 trains alone of the four. ``chosen`` are those of one kind."""
    test = chosen[chosen["depth"] == depth].set_index("activation")["test"]
    trains = that_train(chosen, depth)
    scores = ", ".join(f"{label(name)} {test[name]:.3f}" for name in ("pln-8", *CLASSIC))
    return Finding(
        f"{depth} layers, on test rows: {scores}; all that train: {_labels(trains)}",
        ["pln-8" in trains, not set(CLASSIC) & set(trains)],
    )


def table_1_gradients(table: pd.DataFrame, depth: int) -> Finding:
    """PLN-8's mean gradient is the largest of the four."""
    paper, ours = TABLE_1["gradient"], table.loc[["pln-8", *CLASSIC], depth]
    ratio, theirs = (norms["pln-8"] / norms[list(CLASSIC)].max() for norms in (ours, paper))
    return Finding(
        f"{ratio:.3g} times the largest of the other three (paper: {theirs:.3g} times): "
        f"{_descending(ours)}; the paper's: {_descending(paper)}",
        [bool(ratio > 1.0)],
    )


def _descending(norms: pd.Series) -> str:
    order = norms.sort_values(ascending=False)
    return ", ".join(f"{label(str(name))} {value:.2g}" for name, value in order.items())


def _labels(activations: Sequence[str]) -> str:
    return listed(map(label, activations))


def table_2(table: pd.DataFrame, shallow: int, deep: int) -> Finding:
    """Growth of residual networks' mean gradients beside the paper's, of its four activations."""
    paper = decades(TABLE_2, 20, 110)
    ours = decades(table.loc[list(paper.index)], shallow, deep)
    grown = ", ".join(f"{label(n)} {ours[n]:+.1f} (paper {paper[n]:+.1f})" for n in paper.index)
    return Finding(
        f"powers of ten from {shallow} to {deep} layers: {grown}",
        [
            bool(ours.idxmax() == "relu" and ours["relu"] > 4.0),
            bool(abs(ours["pln-8"]) < abs(ours["relu"]) / 2.0),
            *(bool(ours[name] * paper[name] > 0.0) for name in ("sigmoid", "tanh")),
        ],
    )


def figure_8(chosen: pd.DataFrame) -> Finding:
    """Sigmoid and tanh train shallow, ReLU shallow and not deep, PLN-8 at every depth."""
    trains = {depth: that_train(chosen, depth) for depth in sorted(set(chosen["depth"]))}
    shallow, *_, deep = trains.values()
    parts = [
        {"sigmoid", "tanh"} <= set(shallow),
        "relu" in shallow and "relu" not in deep,
        all("pln-8" in names for names in trains.values()),
    ]
    fates = ", ".join("yes" if part else "no" for part in parts)
    found = "; ".join(f"{depth} layers: {_labels(names)}" for depth, names in trains.items())
    return Finding(f"{fates}; what trains, the best first: {found}", parts)


def kept(rows: pd.DataFrame, shallow: int, deep: int) -> str:
    """How far the first layer's gradient moves with depth, by activation, the steadiest first."""
    moved = decades(gradient_table(rows, "first"), shallow, deep)
    order = moved.abs().sort_values().index
    place = list(order).index("pln-8") + 1
    moves = ", ".join(f"{label(name)} {moved[name]:+.1f}" for name in order)
    return f"PLN-8 is number {place} of {len(order)} in steadiness: {moves}"


def deepest(chosen: pd.DataFrame) -> str:
    """Which activations train at the largest depth, by kind of network, of one data set."""
    depth = int(chosen["depth"].max())
    return "; ".join(
        f"{body}, {INIT_NAMES[init]} initialisation: {_labels(that_train(kind, depth))}"
        for (body, init), kind in chosen.groupby(["body", "init"], sort=False)
    )


def threshold(chosen: pd.DataFrame, gradients: pd.DataFrame) -> str:
    """Whether the gradient at the start tells which networks train, of one data set.

    Networks are parted by the ratio of the first hidden gradient to the last, in powers of ten:
    that within ``steady`` of zero should train.
    """
    steady, place = 2.0, ["body", "init", "depth", "activation"]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(gradients[["first", "last_hidden"]].astype(np.float64))
        means = logs.groupby([gradients[name] for name in place]).mean()
        ratios = (means["first"] - means["last_hidden"]).rename("ratio").reset_index()
    both = chosen.merge(ratios, on=place)
    ratio, trains = both["ratio"], both["trains"]
    shares = [
        f"{int(trains[where].sum())} of {int(where.sum())}"
        for where in (ratio.abs() <= steady, ratio > steady, ratio < -steady)
    ]
    unknown = int(ratio.isna().sum())
    return (
        f"of networks whose first layer's gradient is within a factor of {10**steady:.0f} of the "
        f"last hidden layer's, {shares[0]} train; larger (exploding towards the input): "
        f"{shares[1]}; smaller (vanishing): {shares[2]}"
        + (f"; {unknown} have no gradient at all" if unknown else "")
    )
