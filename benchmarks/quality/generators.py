"""How good are synthetic rows to learn from? Ours beside the ctgan package's.

Each generator learns the training rows of a data set of the CombU paper, from several seeds, and
makes three tables of their size; a network with that paper's settings learns from each of these and
is scored on the held-out real rows (train on synthetic, test on real). "real" is the same network
trained on the real rows. All networks are the papers' own (``activation="original"``), rows with
missing values, which the ctgan package does not take, are left out.

    python -m benchmarks.quality.generators [--quick] [--jobs 2] [--data-home FOLDER]

A run that was stopped goes on where it stood. The data come from OpenML, or from CSV files in
--data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import joblib
import pandas as pd

import combutab
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import (
    PROTOCOLS,
    QUICK_RECIPE,
    SCORES,
    Fit,
    as_text,
    paper_recipe,
    score,
)
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
MODELS = ("real", "ctgan CTGAN", "combutab CTGAN", "ctgan TVAE", "combutab TVAE")
MORE_MODELS = ("combutab TVAE argmax", "combutab CTGAN combu", "combutab TVAE combu")
SHOWN = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}
TARGET = "target"
SETTINGS = ("data", "model", "seed", "sample")
COLUMNS = (
    *(*SETTINGS, "n_train", "n_test", *SCORES),
    *("epochs", "n_samples", "net_epochs", "fit_seconds", "sample_seconds", "net_seconds"),
    *("combutab", "ctgan", "torch"),
)


@dataclass(frozen=True)
class Trial:
    """One generator, trained once, and the tables that it makes."""

    source: Source
    model: str
    seed: int
    epochs: int
    n_samples: int

    def settings(self, sample: int) -> Row:
        """What tells a row of the results from another, and must be the same to go on."""
        values = {"data": self.source.name, "model": self.model, "seed": self.seed}
        values |= {"epochs": self.epochs, "sample": sample}
        return {name: str(value) for name, value in values.items()}


def run(trial: Trial) -> list[Row]:
    """Train a generator, sample from it, and score what is learned from the samples."""
    warnings.filterwarnings("ignore")
    X, y = trial.source.load()
    train, test = PROTOCOLS["paper"].splits(trial.source)[0]
    table = X.assign(**{TARGET: y}).iloc[train].dropna().reset_index(drop=True)
    recipe = QUICK_RECIPE if trial.source.limit else paper_recipe(len(X))
    held_out = X.iloc[test].dropna()
    started = time.perf_counter()
    sample_rows = _fit(trial, table)
    fitted = time.perf_counter()
    rows = []
    for number in range(trial.n_samples):
        begun = time.perf_counter()
        synthetic = sample_rows(len(table))[list(table.columns)].astype(table.dtypes.to_dict())
        sampled = time.perf_counter()
        seed = 10 * trial.seed + number
        net = Fit(trial.source, PROTOCOLS["paper"], recipe, "relu", 0, seed).estimator()
        net.fit(synthetic.drop(columns=TARGET), synthetic[TARGET])
        scores = score(net, held_out, y.loc[held_out.index], table[TARGET])
        values = {
            "n_train": len(synthetic),
            "n_test": len(held_out),
            "n_samples": trial.n_samples,
            "net_epochs": recipe.epochs,
            "fit_seconds": round(fitted - started, 2),
            "sample_seconds": round(sampled - begun, 2),
            "net_seconds": round(time.perf_counter() - sampled, 2),
            **{name: scores[name] for name in SCORES if name in scores},
        }
        rows.append(as_text(values))
    return rows


def _fit(trial: Trial, table: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """Train the generator; returns what makes a table of n rows."""
    if trial.model == "real":
        return lambda n: table
    package, name, *rest = trial.model.split()
    if package == "combutab":
        ours = getattr(combutab, name)(epochs=trial.epochs, random_state=trial.seed)
        if rest == ["argmax"]:  # as the ctgan package's TVAE samples
            ours.set_params(argmax=True)
        ours.set_params(activation="combu" if rest == ["combu"] else "original")
        return ours.fit(table).sample
    import ctgan

    discrete = list(table.select_dtypes("category"))
    theirs = getattr(ctgan, name)(epochs=trial.epochs, enable_gpu=False)
    theirs.set_random_state(trial.seed)
    theirs.fit(table.astype(dict.fromkeys(discrete, str)), discrete)
    return theirs.sample


def _jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    quick = arguments.quick
    n_seeds, n_samples, epochs = (
        (1, 1, 2) if quick else (arguments.seeds, arguments.samples, arguments.epochs)
    )
    for seed in range(n_seeds):
        for data in arguments.data:
            limit = 400 if quick else None
            source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
            for model in arguments.models:
                real = model == "real"  # real rows are one table
                trial = Trial(source, model, seed, *((0, 1) if real else (epochs, n_samples)))
                wanted = [trial.settings(number) for number in range(trial.n_samples)]
                yield Job(wanted, partial(run, trial), f"{data}, {model}, seed {seed}")


def _write(page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
    page.text("Means over seeds and samples ± standard deviation of the seeds' means.")
    for data, own in rows.groupby("data", sort=False):
        page.heading(f"{data}: a network trained on each table, tested on real rows")
        shown = SHOWN[DATA[str(data)]]
        lines = []
        for model, part in own.groupby("model", sort=False):
            by_seed = part.groupby("seed")[[*shown, "fit_seconds"]].mean()
            spread = by_seed.std()
            cells = [
                f"{by_seed[name].mean():.3f}" + f" ± {spread[name]:.3f}" * (len(by_seed) > 1)
                for name in shown
            ]
            lines.append([model, len(by_seed), *cells, f"{by_seed['fit_seconds'].mean():.0f}"])
        page.table(["model", "seeds", *shown, "fit, s"], lines)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    known = [*MODELS, *MORE_MODELS]
    parser.add_argument("--models", nargs="+", choices=known, default=list(MODELS))
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")


ROWS = Experiment(
    "quality_generators",
    SETTINGS,
    COLUMNS[len(SETTINGS) :],
    _jobs,
    packages=("ctgan",),
    columns=COLUMNS,
    parallel=True,
)
STUDY = Study(
    ROWS.name,
    "quality_generators",
    __doc__.splitlines()[0],
    "benchmarks.quality.generators",
    [ROWS],
    _write,
    _add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
