"""PLN-8 in the place of batch and layer normalisation: section 5.2 and Figure 10 of the PLN paper.

Does a network that PLN-8 normalises still need activation functions, and is it as good as one with
batch or layer normalisation? Dense networks on tables stand in for VGG-16 and ResNet-20 on
CIFAR-10: 3 hidden layers on eight data sets, and 15 on scikit-learn's digits (8 x 8 images).

    python -m benchmarks.papers.pln.normalization [--quick] [--out FOLDER] [--report]
        [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figure again. The
other data sets come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits

import combutab
from benchmarks.machine import describe_machine
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import Protocol
from benchmarks.papers.common.results import Row, Store
from benchmarks.papers.pln.normalization_report import write_report
from combutab import MLPClassifier, MLPRegressor
from combutab.estimators import BaseMLP, FitTask, fit_stacked

TASKS = {
    "digits": "classification",
    "diabetes": "classification",
    "wdbc": "classification",
    "PhishingWebsites": "classification",
    "boston": "regression",
    "autoMpg": "regression",
    "california_housing": "regression",
    "wine_quality": "regression",
}
NORMALIZATIONS = ("none", "batch", "layer", "pln")
ACTIVATIONS = ("identity", "relu", "sigmoid", "tanh", "combu")
KEY = ("data", "depth", "normalization", "activation", "split")
SIZES = ("width", "n_rows", "n_steps", "batch_size", "learning_rate")
COLUMNS = (*KEY, *SIZES, "task", "n_train", "n_test", "train_score", "score", "combutab", "torch")


@dataclass(frozen=True)
class Digits(Source):
    """scikit-learn's 8 x 8 images of digits, as a table."""

    def load(self) -> tuple[pd.DataFrame, pd.Series]:
        X, y = load_digits(return_X_y=True, as_frame=True)
        return X[: self.limit], y[: self.limit]


@dataclass(frozen=True)
class Plan:
    """The sizes of a study. ``deep`` is trained on the digits alone, with twice the steps."""

    normalizations: Sequence[str] = NORMALIZATIONS
    activations: Sequence[str] = ACTIVATIONS
    shallow: int = 3
    deep: int = 15
    width: int = 32
    n_rows: int = 1500
    n_splits: int = 10
    n_steps: int = 500
    batch_size: int = 64
    learning_rate: float = 1e-3


QUICK = Plan(
    activations=("identity", "relu", "sigmoid", "tanh"),
    deep=4,
    width=8,
    n_rows=150,
    n_splits=2,
    n_steps=8,
)


@dataclass(frozen=True)
class Cell:
    """The networks of one kind on all splits of a data set: they train as one stack."""

    data: str
    depth: int
    normalization: str
    activation: str

    def wanted(self, plan: Plan) -> list[Row]:
        """The settings of the cell's rows."""
        sizes = {name: getattr(plan, name) for name in SIZES}
        sizes["n_steps"] = self.n_steps(plan)
        return [
            {name: str(value) for name, value in (asdict(self) | {"split": split} | sizes).items()}
            for split in range(plan.n_splits)
        ]

    def n_steps(self, plan: Plan) -> int:
        return plan.n_steps * (2 if self.depth == plan.deep else 1)

    def source(self, plan: Plan, data_home: str | None) -> Source:
        kind = Digits if self.data == "digits" else Source
        return kind("openml", self.data, TASKS[self.data], limit=plan.n_rows, data_home=data_home)

    def run(self, plan: Plan, data_home: str | None) -> list[Row]:
        """Train and score the networks of all splits."""
        source = self.source(plan, data_home)
        X, y = source.load()
        # equal rows stay on one side of a split: PhishingWebsites has many
        splits = Protocol("pln", plan.n_splits, 1, grouped=True).splits(source)
        tasks = [
            FitTask(self.estimator(plan, len(train), seed), X.iloc[train], y.iloc[train], seed)
            for seed, (train, _) in enumerate(splits)
        ]
        rows = []
        outcomes = fit_stacked(tasks, n_jobs=1)
        kinds = zip(self.wanted(plan), tasks, outcomes, splits, strict=True)
        for settings, task, outcome, (train, test) in kinds:
            if outcome.error is not None:
                raise outcome.error
            values = {
                "task": TASKS[self.data],
                "n_train": len(train),
                "n_test": len(test),
                "train_score": f"{task.estimator.score(task.X, task.y):.6g}",
                "score": f"{task.estimator.score(X.iloc[test], y.iloc[test]):.6g}",
                "combutab": combutab.__version__,
                "torch": torch.__version__,
            }
            rows.append(settings | {name: str(value) for name, value in values.items()})
        return rows

    def estimator(self, plan: Plan, n_train: int, seed: int) -> BaseMLP:
        """The unfitted network of a split."""
        kind = MLPClassifier if TASKS[self.data] == "classification" else MLPRegressor
        return kind(
            hidden_layer_sizes=(plan.width,) * self.depth,
            activation=self.activation,
            normalization=self.normalization,
            max_iter=math.ceil(self.n_steps(plan) / math.ceil(n_train / plan.batch_size)),
            n_iter_no_change=np.inf,
            batch_size=min(plan.batch_size, n_train),
            learning_rate_init=plan.learning_rate,
            dropout=0.0,
            alpha=0.0,
            random_state=seed,
            device="cpu",
        )


def make_cells(plan: Plan, data: Sequence[str]) -> list[Cell]:
    """All kinds of network on all data sets, and the deep ones on the digits."""
    places = [(name, plan.shallow) for name in data]
    places += [(name, plan.deep) for name in data if name == "digits"]
    return [
        Cell(name, depth, normalization, activation)
        for name, depth in places
        for normalization in plan.normalizations
        for activation in plan.activations
    ]


def complete(plan: Plan, cells: Sequence[Cell], store: Store, data_home: str | None) -> None:
    """Train what the file lacks."""
    with store.open([row for cell in cells for row in cell.wanted(plan)]) as journal:
        missing = [cell for cell in cells if not all(map(journal.has, cell.wanted(plan)))]
        print(f"{len(missing)} of {len(cells)} cells to go", flush=True)
        started = time.monotonic()
        for number, cell in enumerate(missing, 1):
            journal.add(cell.run(plan, data_home))
            if number % 10 == 0 or number == len(missing):
                minutes = (time.monotonic() - started) / 60
                what = " ".join(map(str, asdict(cell).values()))
                print(f"[{number}/{len(missing)}] {what}: {minutes:.1f} min", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows, narrow, eight steps")
    parser.add_argument("--report", action="store_true", help="only write the report again")
    parser.add_argument("--data", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick and arguments.out == parser.get_default("out"):
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    print(describe_machine(), flush=True)
    plan = QUICK if arguments.quick else Plan()
    store = Store(arguments.out / "pln_normalization.csv", COLUMNS, KEY)
    if not arguments.report:
        complete(plan, make_cells(plan, arguments.data), store, arguments.data_home)
    words = ["python -m benchmarks.papers.pln.normalization", *["--quick"] * arguments.quick]
    print(write_report(store.read(), arguments.out, " ".join(words)))


if __name__ == "__main__":
    main()
