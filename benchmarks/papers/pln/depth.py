"""Deep networks without normalisation, by activation: Tables 1 and 2 and Figure 8 of the PLN paper.

Dense networks of 20, 56 and 110 layers, with and without residual connections, stand in for the
paper's VGG-16 and ResNets, scikit-learn's digits (8 x 8 images) and california_housing for
CIFAR-10. Two questions: how large are the gradients at the start, and which networks train?
"residual" activates after each sum, as the first ResNets did; "pre-activation" leaves the sum
alone. Both initialisations, torch's own and Kaiming's, have their gradients measured.

    python -m benchmarks.papers.pln.depth [--quick] [--out FOLDER] [--report] [--data-home FOLDER]

A run that was stopped goes on where it stood. --report only writes the page and figures again.
california_housing comes from OpenML, or from a CSV file in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd
import torch

import combutab
from benchmarks.machine import describe_machine
from benchmarks.papers.common.results import Row, Store
from benchmarks.papers.pln.depth_data import DATA, N_ROWS, Task, load_task
from benchmarks.papers.pln.depth_net import BODIES, Shape
from benchmarks.papers.pln.depth_report import write_report
from benchmarks.papers.pln.depth_train import initial_gradients, train

ACTIVATIONS = (
    *("relu", "sigmoid", "tanh", "pln-8", "pls-8"),
    *("combu", "nlrelu", "selu", "la-silu"),
)
INITS = ("torch", "kaiming")
DEPTHS = (20, 56, 110)
RATES = (0.1, 0.01, 0.001)
# Data, body, initialisation, and whether all depths are trained or both ends alone. The first kinds
# are those that the paper's numbers point to: its plain network fades as torch's own initialisation
# makes it, its ResNets grow as Kaiming's makes them. The last two show the other choice.
TRAINED = (
    ("digits", "plain", "torch", True),
    ("digits", "residual", "kaiming", True),
    ("digits", "pre-activation", "kaiming", True),
    ("california_housing", "plain", "torch", False),
    ("california_housing", "residual", "kaiming", False),
    ("california_housing", "pre-activation", "kaiming", False),
    ("digits", "plain", "kaiming", False),
    ("digits", "residual", "torch", False),
)
CELL = ("data", "body", "init", "depth", "activation")
VERSIONS = ("combutab", "torch")
GRADIENT_KEY = (*CELL, "seed")
GRADIENT_COLUMNS = (
    *(*GRADIENT_KEY, "width", "n_rows"),
    *("first", "last_hidden", "mean"),
    *VERSIONS,
)
KEY = (*CELL, "learning_rate", "seed")
COLUMNS = (
    *(*KEY, "width", "n_rows", "n_steps", "batch_size"),
    *("train_score", "test_score", "train_loss", "diverged", "trivial_score"),
    *VERSIONS,
)


@dataclass(frozen=True)
class Plan:
    """The sizes of a study."""

    activations: Sequence[str] = ACTIVATIONS
    gradient_depths: Sequence[int] = (8, 20, 38, 56, 80, 110)
    depths: Sequence[int] = DEPTHS
    width: int = 32
    n_rows: int = N_ROWS
    rates: Sequence[float] = RATES
    n_seeds: int = 3
    n_gradient_seeds: int = 5
    n_steps: int = 300
    batch_size: int = 64


QUICK = Plan(
    activations=("relu", "sigmoid", "tanh", "pln-8"),
    gradient_depths=(4, 6),
    depths=(4, 6),
    width=8,
    n_rows=200,
    rates=(0.1, 0.01),
    n_seeds=2,
    n_gradient_seeds=2,
    n_steps=4,
    batch_size=16,
)


@dataclass(frozen=True)
class Cell:
    """Networks that are trained, or looked at, together."""

    data: str
    body: str
    init: str
    depth: int
    activation: str

    def shape(self, plan: Plan) -> Shape:
        return Shape(self.body, self.depth, self.activation, self.init, plan.width)

    def row(self, **values: object) -> Row:
        return {name: str(value) for name, value in (asdict(self) | values).items()}


@dataclass(frozen=True)
class Study:
    """What is done with each cell: ``wanted`` are its rows' settings, ``run`` makes the rows."""

    store: Store
    cells: Sequence[Cell]
    wanted: Callable[[Cell], list[Row]]
    run: Callable[[Cell], list[Row]]

    def complete(self, name: str) -> pd.DataFrame:
        """Do what the file lacks, and return all its rows."""
        with self.store.open([row for cell in self.cells for row in self.wanted(cell)]) as journal:
            missing = [c for c in self.cells if not all(map(journal.has, self.wanted(c)))]
            print(f"{name}: {len(missing)} of {len(self.cells)} cells to go", flush=True)
            started = time.monotonic()
            for number, cell in enumerate(missing, 1):
                journal.add(self.run(cell))
                if number % 10 and number < len(missing):
                    continue
                minutes = (time.monotonic() - started) / 60
                what = " ".join(map(str, asdict(cell).values()))
                print(f"[{number}/{len(missing)}] {what}: {minutes:.1f} min", flush=True)
        return self.store.read()


@lru_cache(maxsize=2)
def _task(name: str, n_rows: int, data_home: str | None) -> Task:
    return load_task(name, n_rows=n_rows, data_home=data_home)


def gradient_study(plan: Plan, data: Sequence[str], folder: Path, home: str | None) -> Study:
    """The norms of the initial gradients, of all bodies with both initialisations."""

    def wanted(cell: Cell) -> list[Row]:
        sizes = {"width": plan.width, "n_rows": plan.n_rows}
        return [cell.row(seed=seed, **sizes) for seed in range(plan.n_gradient_seeds)]

    def run(cell: Cell) -> list[Row]:
        task = _task(cell.data, plan.n_rows, home)
        norms = initial_gradients(task, cell.shape(plan), range(plan.n_gradient_seeds))
        values = {name: getattr(norms, name).tolist() for name in ("first", "last_hidden", "mean")}
        return [
            row | _versions() | {name: f"{column[i]:.6g}" for name, column in values.items()}
            for i, row in enumerate(wanted(cell))
        ]

    cells = [
        Cell(name, body, init, depth, activation)
        for name in data
        for body in BODIES
        for init in INITS
        for depth in plan.gradient_depths
        for activation in plan.activations
    ]
    store = Store(folder / "pln_depth_gradients.csv", GRADIENT_COLUMNS, GRADIENT_KEY)
    return Study(store, cells, wanted, run)


def training_study(plan: Plan, data: Sequence[str], folder: Path, home: str | None) -> Study:
    """Networks trained from several seeds with several learning rates."""

    def wanted(cell: Cell) -> list[Row]:
        names = ("width", "n_rows", "n_steps", "batch_size")
        sizes = {name: getattr(plan, name) for name in names}
        return [
            cell.row(learning_rate=rate, seed=seed, **sizes)
            for rate in plan.rates
            for seed in range(plan.n_seeds)
        ]

    def run(cell: Cell) -> list[Row]:
        task = _task(cell.data, plan.n_rows, home)
        outcomes = train(
            task,
            cell.shape(plan),
            range(plan.n_seeds),
            plan.rates,
            n_steps=plan.n_steps,
            batch_size=plan.batch_size,
        )
        rows = []
        for settings, outcome in zip(wanted(cell), outcomes, strict=True):
            scores = {
                name: "" if outcome.diverged else f"{getattr(outcome, name):.6g}"
                for name in ("train_score", "test_score", "train_loss")
            }
            scores["diverged"] = str(outcome.diverged)
            scores["trivial_score"] = f"{task.trivial_score:.6g}"
            rows.append(settings | scores | _versions())
        return rows

    cells = [
        Cell(name, body, init, depth, activation)
        for name, body, init, everywhere in TRAINED
        if name in data
        for depth in (plan.depths if everywhere else (plan.depths[0], plan.depths[-1]))
        for activation in plan.activations
    ]
    return Study(Store(folder / "pln_depth.csv", COLUMNS, KEY), cells, wanted, run)


def _versions() -> Row:
    return {"combutab": combutab.__version__, "torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shallow, narrow, four steps")
    parser.add_argument("--report", action="store_true", help="only write the report again")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick and arguments.out == parser.get_default("out"):
        sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
    print(describe_machine(), flush=True)
    plan = QUICK if arguments.quick else Plan()
    where = (arguments.data, arguments.out, arguments.data_home)
    gradients, training = gradient_study(plan, *where), training_study(plan, *where)
    if arguments.report:
        rows = gradients.store.read(), training.store.read()
    else:
        # Gradients that fade below 1e-38 are as good as none, and slow the processor down
        torch.set_flush_denormal(True)
        rows = gradients.complete("gradients"), training.complete("training")
    command = " ".join(["python -m benchmarks.papers.pln.depth", *["--quick"] * arguments.quick])
    print(write_report(*rows, arguments.out, command))


if __name__ == "__main__":
    main()
