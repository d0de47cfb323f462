"""What the rows of the study on depth say: gradients, their growth, and which networks train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import gmean

from benchmarks.common.claims import Claim, Finding
from benchmarks.common.looks import label, listed

INIT_NAMES = {"torch": "torch's own", "kaiming": "Kaiming's"}
CLASSIC = ["sigmoid", "tanh", "relu"]
KIND = ["body", "init"]
CELL = ["data", *KIND, "depth", "activation"]
PAPER = pd.read_csv(Path(__file__).parents[1] / "expected" / "pln_depth.csv")
TABLE_1 = PAPER[PAPER["table"] == 1].pivot(index="activation", columns="quantity", values="value")
TABLE_2 = PAPER[PAPER["table"] == 2].pivot(index="activation", columns="depth", values="value")
STEADY = 100.0  # a first layer's gradient within this factor of the last hidden layer's should do


def gradient_table(rows: pd.DataFrame, norm: str) -> pd.DataFrame:
    """Activations x depths: the geometric mean of a norm over seeds, of one kind of network."""
    return rows.pivot_table(norm, "activation", "depth", gmean, sort=False)


def choose_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, at the learning rate with the best mean score on the training rows.

    ``train``, ``test`` and ``test_sd`` are over seeds; a network that diverged, or is worse than a
    constant answer, counts as that answer. ``trains``: every seed removed at least half of the
    constant answer's error on the training rows.
    """
    least = rows["trivial_score"]
    fit, test = (np.fmax(rows[name], least) for name in ("train_score", "test_score"))
    rows = rows.assign(train=fit, test=test, test_sd=test, trains=fit >= (1.0 + least) / 2.0)
    how = {"train": "mean", "test": "mean", "test_sd": "std", "trains": "all"}
    means = rows.groupby([*CELL, "learning_rate"], sort=False).agg(how).reset_index()
    return means.loc[means.groupby(CELL, sort=False)["train"].idxmax()].reset_index(drop=True)


@dataclass(frozen=True)
class Evidence:
    """The rows of one data set: the gradients at the start, and each cell at its best rate."""

    gradients: pd.DataFrame
    chosen: pd.DataFrame

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest depth that was trained."""
        return int(self.chosen["depth"].min()), int(self.chosen["depth"].max())

    def norms(self, body: str, init: str, norm: str = "mean") -> pd.DataFrame:
        return gradient_table(_part(self.gradients, body, init), norm)

    def growth(self, body: str, init: str, norm: str = "mean") -> pd.Series:
        """Powers of ten by which an activation's gradients grow from one end to the other."""
        table, (shallow, deep) = self.norms(body, init, norm), self.ends
        return np.log10(table[deep] / table[shallow])

    def trains(self, body: str, init: str) -> dict[int, list[str]]:
        """The activations that train, by depth, the best on test rows first."""
        rows = _part(self.chosen, body, init).sort_values("test", ascending=False, kind="stable")
        return {d: list(own["activation"][own["trains"]]) for d, own in rows.groupby("depth")}


def _part(rows: pd.DataFrame, body: str, init: str) -> pd.DataFrame:
    return rows[(rows["body"] == body) & (rows["init"] == init)]


def _labels(activations: Iterable[str]) -> str:
    return listed(map(label, activations))


def _texts(values: pd.Series, form: str) -> str:
    return ", ".join(f"{label(name)} {value:{form}}" for name, value in values.items())


def table_1(evidence: Evidence) -> Finding:
    """Of shallow plain networks, PLN-8 trains alone of the four."""
    depth, own = evidence.ends[0], _part(evidence.chosen, "plain", "torch")
    test = own[own["depth"] == depth].set_index("activation")["test"]
    trains = evidence.trains("plain", "torch")[depth]
    scores = _texts(test[["pln-8", *CLASSIC]], ".3f")
    return Finding(
        f"{depth} layers, on test rows: {scores}; all that train: {_labels(trains)}",
        ["pln-8" in trains, not set(CLASSIC) & set(trains)],
    )


def table_1_gradients(evidence: Evidence) -> Finding:
    """PLN-8's mean gradient is the largest of the four."""
    ours = evidence.norms("plain", "torch").loc[["pln-8", *CLASSIC], evidence.ends[0]]
    both = [norms.sort_values(ascending=False) for norms in (ours, TABLE_1["gradient"])]
    ratio, theirs = (norms["pln-8"] / norms[CLASSIC].max() for norms in both)
    said, paper = (_texts(norms, ".2g") for norms in both)
    return Finding(
        f"{ratio:.3g} times the largest of the other three (paper: {theirs:.3g} times): {said}; "
        f"the paper's: {paper}",
        [bool(ratio > 1.0)],
    )


def table_2(evidence: Evidence, body: str) -> Finding:
    """Growth of residual networks' mean gradients beside the paper's, of its four activations."""
    paper, (shallow, deep) = np.log10(TABLE_2[110] / TABLE_2[20]), evidence.ends
    ours = evidence.growth(body, "kaiming")[paper.index]
    grown = ", ".join(f"{label(n)} {ours[n]:+.1f} (paper {paper[n]:+.1f})" for n in paper.index)
    return Finding(
        f"powers of ten from {shallow} to {deep} layers: {grown}",
        [
            bool(ours.idxmax() == "relu" and ours["relu"] > 4.0),
            bool(abs(ours["pln-8"]) < abs(ours["relu"]) / 2.0),
            *(bool(ours[name] * paper[name] > 0.0) for name in ("sigmoid", "tanh")),
        ],
    )


def figure_8(evidence: Evidence, body: str) -> Finding:
    """Sigmoid and tanh train shallow, ReLU shallow and not deep, PLN-8 at every depth."""
    trains = evidence.trains(body, "kaiming")
    shallow, *_, deep = trains.values()
    parts = [
        {"sigmoid", "tanh"} <= set(shallow),
        "relu" in shallow and "relu" not in deep,
        all("pln-8" in names for names in trains.values()),
    ]
    fates = ", ".join("yes" if part else "no" for part in parts)
    found = "; ".join(f"{depth} layers: {_labels(names)}" for depth, names in trains.items())
    return Finding(f"{fates}; what trains, the best first: {found}", parts)


_GROWTH = """The mean norm of the gradients grows with depth: ReLU's the most and above 4 powers \
of ten, PLN-8's less than half of that, sigmoid's and tanh's with the paper's sign."""
_TRAINING = """Sigmoid and tanh train when shallow; ReLU trains when shallow and not when deep; \
PLN-8 trains at every depth."""
_LARGEST = "PLN-8's gradients do not vanish: their mean norm at the start is the largest."
CLAIMS: tuple[Claim[Evidence], ...] = (
    Claim("Table 1", "Plain networks: PLN-8 trains; sigmoid, tanh and ReLU do not.", table_1),
    Claim("Table 1", _LARGEST, table_1_gradients),
    *(
        Claim(f"{where}, {body}", text, partial(judge, body=body))
        for body in ("residual", "pre-activation")
        for where, text, judge in (("Table 2", _GROWTH, table_2), ("Figure 8", _TRAINING, figure_8))
    ),
)


def steadiness(evidence: Evidence, body: str, init: str) -> str:
    """How far the first layer's gradient moves with depth, by activation, the steadiest first."""
    moved = evidence.growth(body, init, "first").sort_values(key=np.abs)
    place = list(moved.index).index("pln-8") + 1
    return f"PLN-8 is number {place} of {len(moved)} in steadiness: {_texts(moved, '+.1f')}"


def deepest(evidence: Evidence) -> str:
    """Which activations train at the largest depth, by kind of network."""
    kinds = evidence.chosen[KIND].drop_duplicates().itertuples(index=False)
    trains = {kind: evidence.trains(*kind)[evidence.ends[1]] for kind in kinds}
    return "; ".join(
        f"{body}, {INIT_NAMES[init]} initialisation: {_labels(names)}"
        for (body, init), names in trains.items()
    )


def threshold(evidence: Evidence) -> str:
    """Whether the gradient at the start tells which networks train.

    By the ratio of the first hidden gradient to the last, their geometric mean over seeds.
    """
    rows = evidence.gradients.assign(ratio=lambda own: own["first"] / own["last_hidden"])
    ratios = rows.groupby(CELL)["ratio"].agg(gmean).reset_index()
    both = evidence.chosen.merge(ratios, on=CELL)
    exploding, vanishing = both["ratio"] > STEADY, both["ratio"] < 1.0 / STEADY
    shares = [
        f"{both['trains'][where].sum()} of {where.sum()}"
        for where in (~exploding & ~vanishing, exploding, vanishing)
    ]
    return (
        f"of networks whose first layer's gradient is within a factor of {STEADY:.0f} of the last "
        f"hidden layer's, {shares[0]} train; larger (exploding towards the input): {shares[1]}; "
        f"smaller (vanishing): {shares[2]}"
    )


MOVED = "powers of ten by which the first layer's gradient moves from the smallest depth to the"
SHOWN = ["plain torch", "plain kaiming", "residual kaiming", "pre-activation kaiming"]
BEYOND = {
    f"{MOVED} largest ({body}, {INIT_NAMES[init]} initialisation)": partial(
        steadiness, body=body, init=init
    )
    for body, init in map(str.split, SHOWN)
}
BEYOND["what trains at the largest depth"] = deepest
BEYOND["does the gradient at the start tell?"] = threshold
