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

import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import joblib
import pandas as pd

import combutab
from benchmarks.papers.combu import study
from benchmarks.papers.combu.generation import TARGET, split
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.papers.common.results import Row

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
MODELS = ("real", "ctgan CTGAN", "combutab CTGAN", "ctgan TVAE", "combutab TVAE")
MORE_MODELS = ("combutab TVAE argmax", "combutab CTGAN combu", "combutab TVAE combu")
SHOWN = {"regression": ["mae", "mse"], "classification": ["accuracy", "f1"]}
SETTINGS = ("data", "model", "seed", "sample")
COLUMNS = (
    *(*SETTINGS, "n_train", "n_test", *study.SCORES),
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
        """List what tells a row of the results from another, and must be the same to go on."""
        values = {"data": self.source.name, "model": self.model, "seed": self.seed}
        values |= {"epochs": self.epochs, "sample": sample}
        return {name: str(value) for name, value in values.items()}


def run(trial: Trial) -> list[Row]:
    """Train a generator, sample from it, and score what is learned from the samples."""
    warnings.filterwarnings("ignore")
    table, test = split(trial.source)
    quick = trial.source.limit is not None
    recipe = study.QUICK_RECIPE if quick else study.paper_recipe(trial.source.n_rows())
    started = time.perf_counter()
    sample_rows = _fit(trial, table)
    fit_seconds = round(time.perf_counter() - started, 2)
    rows = []
    for number in range(trial.n_samples):
        begun = time.perf_counter()
        synthetic = sample_rows(len(table))[list(table.columns)].astype(table.dtypes.to_dict())
        sampled = time.perf_counter()
        seed, protocol = 10 * trial.seed + number, study.PROTOCOLS["paper"]
        net = study.Fit(trial.source, protocol, recipe, "relu", 0, seed).estimator()
        net.fit(synthetic.drop(columns=TARGET), synthetic[TARGET])
        scores = study.score(net, test.drop(columns=TARGET), test[TARGET], table[TARGET])
        values = {name: scores[name] for name in study.SCORES if name in scores}
        values |= {"n_train": len(synthetic), "n_test": len(test), "n_samples": trial.n_samples}
        values |= {"net_epochs": recipe.epochs, "fit_seconds": fit_seconds}
        values["sample_seconds"] = round(sampled - begun, 2)
        values["net_seconds"] = round(time.perf_counter() - sampled, 2)
        rows.append(study.as_text(values))
    return rows


def _fit(trial: Trial, table: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """Train the generator; returns what makes a table of n rows."""
    if trial.model == "real":
        return lambda n: table
    package, name, *rest = trial.model.split()
    if package == "combutab":
        ours = getattr(combutab, name)(epochs=trial.epochs, random_state=trial.seed)
        if name == "TVAE":  # "argmax" is as the ctgan package's samples; else drawn, as is stored
            ours.set_params(argmax=rest == ["argmax"])
        ours.set_params(activation="combu" if rest == ["combu"] else "original")
        return ours.fit(table).sample
    import ctgan

    discrete = list(table.select_dtypes("category"))
    theirs = getattr(ctgan, name)(epochs=trial.epochs, enable_gpu=False)
    theirs.set_random_state(trial.seed)
    theirs.fit(table.astype(dict.fromkeys(discrete, str)), discrete)
    return theirs.sample


def _jobs(arguments: Namespace) -> Iterator[Job]:
    n_seeds, n_samples, epochs = (1, 1, 2) if arguments.quick else (arguments.seeds, 3, 300)
    limit = 400 if arguments.quick else None
    for seed, data, model in product(range(n_seeds), arguments.data, arguments.models):
        source = Source("openml", data, DATA[data], limit=limit, data_home=arguments.data_home)
        sizes = (0, 1) if model == "real" else (epochs, n_samples)  # real rows are one table
        trial = Trial(source, model, seed, *sizes)
        wanted = [trial.settings(number) for number in range(trial.n_samples)]
        yield Job(wanted, partial(run, trial), f"{data}, {model}, seed {seed}")


def _write(page: Page, arguments: Namespace, rows: pd.DataFrame) -> None:
    page.text("Means over seeds and samples ± standard deviation of the seeds' means.")
    for data, own in rows.groupby("data", sort=False):
        page.heading(f"{data}: a network trained on each table, tested on real rows")
        shown, lines = SHOWN[DATA[str(data)]], []
        for model, part in own.groupby("model", sort=False):
            by_seed = part.groupby("seed")[[*shown, "fit_seconds"]].mean()
            cells = [
                f"{by_seed[name].mean():.3f} ± {by_seed[name].std():.3f}".removesuffix(" ± nan")
                for name in shown
            ]
            lines.append([model, len(by_seed), *cells, f"{by_seed['fit_seconds'].mean():.0f}"])
        page.table(["model", "seeds", *shown, "fit, s"], lines)


def _add_arguments(parser: ArgumentParser) -> None:
    known = [*MODELS, *MORE_MODELS]
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--models", nargs="+", choices=known, default=list(MODELS))
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")


ROWS = Experiment(
    *("quality_generators", SETTINGS, COLUMNS[len(SETTINGS) :], _jobs, (), ("ctgan",), COLUMNS),
    parallel=True,
)
STUDY = Study(
    *(ROWS.name, "quality_generators", __doc__.splitlines()[0], "benchmarks.quality.generators"),
    *([ROWS], _write, _add_arguments),
)

if __name__ == "__main__":
    STUDY.main()
