"""CombU's shares learned instead of chosen: by gradient, by random search in packs, by layer.

    python -m benchmarks.activations.learned [--quick] [--data-home FOLDER] [--splits 10]
        [--jobs N] [--report]

Against the fixed shares of CombU and the blend of CombU and the identity, in the default recipe
with three hidden layers of 256, 254 and 252 units (layers are told apart by their widths). Rows,
splits and the rule for cutting are those of `benchmarks.activations.recipes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.activations.learned_report import write
from benchmarks.activations.plan import ARMS, N_MEMBERS
from benchmarks.activations.recipes import add_arguments, fitted, scores
from benchmarks.activations.shares import PARTS, ByLayer, Learning
from benchmarks.activations.tables import FORMULAS, MOST_TRAIN, OPENML, rows_of, source
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.results import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import as_text
from combutab import CombU, MLPClassifier, MLPRegressor, PackClassifier, PackRegressor

WIDTHS = (256, 254, 252)
KEY = ("kind", "data", "arm", "split")
SETTINGS = (*KEY, "task", "most_train", "widths")
RESULTS = ("n_train", "n_test", "loss", "mae", "r2", "accuracy", "f1", "roc_auc", "epochs")
RESULTS += ("shares", "error")


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """A job for each split, group of arms and table, splits first."""
    quick = arguments.quick
    kinds = {"openml": ("wdbc",), "formula": ("gs",)} if quick else {}
    kinds = kinds or {"openml": OPENML, "formula": FORMULAS}
    tables = [source(kind, name, arguments.data_home) for kind in kinds for name in kinds[kind]]
    widths, most = ((16, 14), 60) if quick else (WIDTHS, MOST_TRAIN)
    for split, group in product(range(1 if quick else arguments.splits), ARMS):
        for table in tables:
            shared = {"kind": table.kind, "data": table.name, "task": table.task}
            shared |= {"split": str(split), "most_train": str(most)}
            shared["widths"] = ",".join(map(str, widths))
            wanted = [shared | {"arm": arm} for arm in ARMS[group]]
            run = partial(RUNS[group], table, wanted, 2 if quick else None)
            yield Job(wanted, run, f"split {split}, {group}, {table.name}")


class Case:
    """One table and split: its rows, and the networks and packs that all arms are of."""

    def __init__(self, table: Source, row: Row, epochs: int | None) -> None:
        self.split, regress = int(row["split"]), table.task == "regression"
        self.widths = tuple(map(int, row["widths"].split(",")))
        self.train, self.test = rows_of(table, self.split, int(row["most_train"]))
        given: dict[str, Any] = {"random_state": self.split, "device": "cpu"}
        given |= {"max_iter": epochs} if epochs else {}
        kind = (MLPClassifier, MLPRegressor)[regress]
        self.network = partial(kind, hidden_layer_sizes=self.widths, n_members=1, **given)
        shape = {"hidden_layer_sizes": self.widths, "numeric_embedding_dim": 4}
        self.pack = partial(
            (PackClassifier, PackRegressor)[regress],
            n_members=N_MEMBERS, n_jobs=1, cv=None, boosting=False, member_params=shape, **given,
        )  # fmt: skip

    def outcomes(self, nets: Mapping[str, Any]) -> dict[str, dict[str, object]]:
        """Fit estimators, and score each."""
        failures = fitted(list(nets.values()), *self.train)
        return {
            arm: scores(net, failure, self.test, self.train) | {"chosen": ""}
            for (arm, net), failure in zip(nets.items(), failures, strict=True)
        }

    def rows(self, wanted: Sequence[Row], found: Mapping[str, dict[str, object]]) -> list[Row]:
        """What the file has of them."""
        sizes = {"n_train": len(self.train[1]), "n_test": len(self.test[1])}
        return [
            as_text({name: (sizes | found[row["arm"]]).get(name, "") for name in RESULTS})
            for row in wanted
        ]


def run_networks(table: Source, wanted: Sequence[Row], epochs: int | None = None) -> list[Row]:
    """Train the arms that are single networks, and what they have found again."""
    case = Case(table, wanted[0], epochs)
    learning = {"straight-through": Learning(straight=True), "softmax": Learning()}
    specs = {"fixed": "combu", "blend": "blend-combu", **learning}
    found = case.outcomes({arm: case.network(activation=spec) for arm, spec in specs.items()})
    found |= case.outcomes({"two networks": case.network(activation="combu", n_members=2)})
    # of the network that has just been scored
    units = {arm: spec.counts() for arm, spec in learning.items()}
    none = "no shares were found: it diverged"
    again: dict[str, dict[str, object]] = {arm: {"error": none} for arm in ARMS["networks"][-2:]}
    if "loss" in found["softmax"]:
        own = units["softmax"]
        pooled = {n: sum(own[w][n] for w in own) / sum(case.widths) for n in PARTS}
        shares = {w: {n: own[w][n] / w for n in PARTS} for w in own}, dict.fromkeys(own, pooled)
        again = case.outcomes(
            {
                arm: case.network(activation=ByLayer(some))
                for arm, some in zip(again, shares, strict=True)
            }
        )
    found |= again
    for arm, layers in units.items():
        found[arm]["shares"] = _text(layers)
    return case.rows(wanted, found)


def run_packs(table: Source, wanted: Sequence[Row], epochs: int | None = None) -> list[Row]:
    """Train packs of members with the fixed shares, and with shares drawn at random."""
    case = Case(table, wanted[0], epochs)
    rng = np.random.default_rng(case.split)
    random = [partial(CombU, ratios=_drawn(rng)) for _ in range(N_MEMBERS)]
    layered = [ByLayer({width: _drawn(rng) for width in case.widths}) for _ in range(N_MEMBERS)]
    specs = dict(zip(ARMS["packs"], (["combu"], random, layered), strict=True))
    found = case.outcomes({arm: case.pack(activations=some) for arm, some in specs.items()})
    return case.rows(wanted, found)


RUNS = {"networks": run_networks, "packs": run_packs}


def _drawn(rng: np.random.Generator) -> dict[str, float]:
    """Shares, all equally likely."""
    return dict(zip(PARTS, rng.dirichlet(np.ones(len(PARTS))).tolist(), strict=True))


def _text(layers: Mapping[int, Mapping[str, int]]) -> str:
    """Units of each part, "/" between them, by layer."""
    return " ".join("/".join(map(str, layers[width].values())) for width in layers)


STUDY = Study(
    name="activations_learned",
    title="CombU's shares, learned instead of chosen",
    description=__doc__.splitlines()[0],
    module="benchmarks.activations.learned",
    experiments=[
        Experiment(
            "activations_learned", SETTINGS, RESULTS, jobs, KEY,
            packages=("numpy", "sklearn", "pandas", "python", "cpu"), parallel=True,
        )
    ],
    write=write,
    add_arguments=add_arguments,
)  # fmt: skip

if __name__ == "__main__":
    STUDY.main()
