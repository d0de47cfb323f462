"""Are learned shares of CombU better than fixed ones: by gradient, by random search, by layer?

    python -m benchmarks.activations.learned [--quick] [--data-home FOLDER] [--jobs N] [--report]

In CombU half of a layer's units have ReLU, a quarter ELU and a quarter NLReLU. Here each unit
learns which of the three it has, by a softmax whose temperature decreases with each step, or by a
straight-through estimator; outside training the choice is hard. "Found" shares are those of the
softmax (of each layer, or their mean), in networks that are trained again; with the first training
this takes as long as two networks. Packs have the fixed shares, or random shares for each member,
drawn uniformly, for all layers or by layer. The recipe is the default with hidden layers of 256,
254 and 252 units (layers are identified by their widths), on the CombU paper's eight tables; their
source, rows, splits and errors are those of `benchmarks.activations.recipes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.activations import effects, tables
from benchmarks.activations.effects import by_table, logs_of
from benchmarks.activations.shares import PARTS, ByLayer, Learning
from benchmarks.activations.tables import MOST_TRAIN, OPENML
from benchmarks.common.command import Job, Study
from benchmarks.common.looks import label
from benchmarks.common.page import Page
from benchmarks.common.results import Row
from benchmarks.common.verdicts import Claim, Verdict, beats, claims_table
from benchmarks.papers.combu.sources import Source
from combutab import CombU, MLPClassifier, MLPRegressor, PackClassifier, PackRegressor
from combutab.evaluation import t_interval

N_SPLITS, N_MEMBERS = 3, 8  # of a table, of a pack
WIDTHS = (256, 254, 252)
FOUND = ("found, by layer", "found, all layers alike")
ARMS = {  # the first of each is what the others are compared with
    "networks": ("fixed", "blend", "two networks", "straight-through", "softmax", *FOUND),
    "packs": ("pack, fixed", "pack, random shares", "pack, random by layer"),
}
KEY = ("data", "arm", "split")
SETTINGS = (*KEY, "most_train", "widths")
RESULTS = ("n_train", "n_test", "loss", "r2", "accuracy", "epochs", "shares", "error")


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """A job for each split, group of arms and table."""
    quick = arguments.quick
    widths, most = ((16, 14), 60) if quick else (WIDTHS, MOST_TRAIN)
    names = ("wdbc", "boston", "autoMpg") if quick else OPENML
    for split, group, name in product(range(1 if quick else N_SPLITS), ARMS, names):
        shared = {"data": name, "split": str(split), "most_train": str(most)}
        shared["widths"] = ",".join(map(str, widths))
        wanted = [shared | {"arm": arm} for arm in ARMS[group]]
        table = tables.source(name, arguments.data_home)
        yield Job(wanted, partial(RUNS[group], table, wanted, quick), f"{split}, {group}, {name}")


class Case:
    """One table and split: its rows, and the networks and packs that all arms are of."""

    def __init__(self, table: Source, row: Row, quick: bool) -> None:
        self.split, regress = int(row["split"]), table.task == "regression"
        self.widths = tuple(map(int, row["widths"].split(",")))
        self.sides = tables.rows_of(table, self.split, int(row["most_train"]))
        given: dict[str, Any] = {"random_state": self.split, "device": "cpu"}
        given |= {"max_iter": 2} if quick else {}
        kind = (MLPClassifier, MLPRegressor)[regress]
        self.network = partial(kind, **{"hidden_layer_sizes": self.widths, "n_members": 1, **given})
        shape = {"hidden_layer_sizes": self.widths, "numeric_embedding_dim": 4}
        self.pack = partial(
            (PackClassifier, PackRegressor)[regress],
            n_members=N_MEMBERS, n_jobs=1, cv=None, boosting=False, member_params=shape, **given,
        )  # fmt: skip

    def outcomes(self, nets: Mapping[str, Any]) -> dict[str, Row]:
        """Fit estimators, and score each."""
        made = tables.outcomes(list(nets.values()), *self.sides, RESULTS)
        return dict(zip(nets, made, strict=True))


def run_networks(table: Source, wanted: Sequence[Row], quick: bool) -> list[Row]:
    """Train the arms that are single networks, and what they have found again."""
    case = Case(table, wanted[0], quick)
    learning = {"straight-through": Learning(straight=True), "softmax": Learning()}
    specs = {"fixed": "combu", "blend": "blend-combu", **learning}
    found = case.outcomes({arm: case.network(activation=spec) for arm, spec in specs.items()})
    found |= case.outcomes({"two networks": case.network(activation="combu", n_members=2)})
    # of the network that has just been scored
    units = {arm: spec.counts() for arm, spec in learning.items()}
    none = {"error": "no shares were found: it diverged"}
    again = {arm: dict.fromkeys(RESULTS, "") | none for arm in FOUND}
    if found["softmax"].get("loss"):
        own = units["softmax"]
        pooled = {n: sum(own[w][n] for w in own) / sum(case.widths) for n in PARTS}
        shares = {w: {n: own[w][n] / w for n in PARTS} for w in own}, dict.fromkeys(own, pooled)
        nets = [case.network(activation=ByLayer(some)) for some in shares]
        again = case.outcomes(dict(zip(FOUND, nets, strict=True)))
    found |= again
    for arm, layers in units.items():  # units of each part, "/" between them, by layer
        found[arm]["shares"] = " ".join("/".join(map(str, own.values())) for own in layers.values())
    return [found[row["arm"]] for row in wanted]


def run_packs(table: Source, wanted: Sequence[Row], quick: bool) -> list[Row]:
    """Train packs of members with the fixed shares, and with shares drawn at random."""
    case = Case(table, wanted[0], quick)
    rng = np.random.default_rng(case.split)
    random = [partial(CombU, ratios=_drawn(rng)) for _ in range(N_MEMBERS)]
    layered = [ByLayer({width: _drawn(rng) for width in case.widths}) for _ in range(N_MEMBERS)]
    specs = dict(zip(ARMS["packs"], (["combu"], random, layered), strict=True))
    found = case.outcomes({arm: case.pack(activations=some) for arm, some in specs.items()})
    return [found[row["arm"]] for row in wanted]


RUNS = {"networks": run_networks, "packs": run_packs}


def _drawn(rng: np.random.Generator) -> dict[str, float]:
    """Shares, all equally likely."""
    return dict(zip(PARTS, rng.dirichlet(np.ones(len(PARTS))).tolist(), strict=True))


Found = Mapping[str, pd.DataFrame]


def logs(rows: pd.DataFrame) -> Found:
    """Logarithms of errors of each group of arms."""
    return {group: logs_of(rows, "arm", arms) for group, arms in ARMS.items()}


def _beats(a: str, b: str, found: Found, margin: float) -> Verdict:
    means = by_table(found["packs" if a.startswith("pack") else "networks"])
    return beats(means[a], means[b], greater_is_better=False)


_CLAIMED = {
    "Straight-through beats the fixed shares.": ("straight-through", "fixed"),
    "The softmax beats the fixed shares.": ("softmax", "fixed"),
    "The softmax beats a blend with x.": ("softmax", "blend"),
    "Found shares, trained again, beat two networks.": (FOUND[1], "two networks"),
    "Found shares by layer beat the same for all layers.": FOUND,
    "A pack of random shares beats one of the fixed.": ARMS["packs"][1::-1],
    "A pack of random shares by layer beats one of the fixed.": ARMS["packs"][::-2],
}
CLAIMS = [
    Claim("learned shares", text, "table", partial(_beats, a, b), measure="log of error")
    for text, (a, b) in _CLAIMED.items()
]


def shares_of(rows: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Mean shares that were learned: a row for each table and layer."""
    own = rows[(rows["arm"] == arm) & rows["shares"].notna()]
    found = []
    for data, text in zip(own["data"], own["shares"].astype(str), strict=True):
        for layer, units in enumerate(text.split(), 1):
            counts = np.array(units.split("/"), float)
            found.append((data, layer, *(counts / counts.sum())))
    table = pd.DataFrame(found, columns=["data", "layer", *PARTS])
    return table.groupby(["data", "layer"], as_index=False).mean()


def write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    """The page: verdicts, each arm beside the fixed shares, and what was learned."""
    found = logs(rows)
    page.text(__doc__.split("\n\n", 2)[2])
    page.text(f"{int((rows['error'] != '').sum())} of {len(rows)} networks and packs diverged.")
    page.text(claims_table(CLAIMS, {"here": found}))
    for group, own in found.items():
        page.heading(f"{group.capitalize()}: error over the fixed shares', {effects.size(own)}")
        effects.answers_table(page, effects.beside(by_table(own), ARMS[group][0]), "error")
    with page.details("Shares that were learned: means over tables with 95 % intervals"):
        for arm in ("straight-through", "softmax"):
            lines = [
                [layer, *("{:.2f} [{:.2f}, {:.2f}]".format(*t_interval(own[n])) for n in PARTS)]
                for layer, own in shares_of(rows, arm).groupby("layer")
            ]
            page.table([f"{arm}: layer", *map(label, PARTS)], lines)


STUDY = Study(
    name="activations_learned",
    title="CombU's shares, learned instead of chosen",
    description=__doc__.splitlines()[0],
    module="benchmarks.activations.learned",
    experiments=[tables.experiment("activations_learned", SETTINGS, RESULTS, jobs, KEY)],
    write=write,
    add_arguments=tables.add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
