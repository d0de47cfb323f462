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
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import torch
from joblib import Parallel, delayed

import combutab
from benchmarks.machine import describe_machine
from benchmarks.outputs import write_text
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, Fit, Recipe, paper_recipe
from benchmarks.papers.common.results import Row, Store
from combutab.model_selection import score_classifier, score_regressor

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
MODELS = ("real", "ctgan CTGAN", "combutab CTGAN", "ctgan TVAE", "combutab TVAE")
MORE_MODELS = ("combutab TVAE argmax", "combutab CTGAN combu", "combutab TVAE combu")
SCORES = {"regression": ("mae", "mse"), "classification": ("accuracy", "f1")}
TARGET = "target"
KEY = ("data", "model", "seed", "sample")
COLUMNS = (
    *KEY,
    *("n_train", "n_test", "mae", "mse", "r2", "accuracy", "f1", "log_loss", "roc_auc"),
    *("epochs", "n_samples", "net_epochs", "fit_seconds", "sample_seconds", "net_seconds"),
    *("combutab", "ctgan", "torch"),
)
Make = Callable[[int], pd.DataFrame]


@dataclass(frozen=True)
class Trial:
    """One generator, trained once, and the tables that it makes."""

    data: str
    model: str
    seed: int
    epochs: int
    n_samples: int
    quick: bool
    data_home: str | None

    @property
    def source(self) -> Source:
        """Where the rows come from."""
        limit = 400 if self.quick else None
        return Source("openml", self.data, DATA[self.data], limit=limit, data_home=self.data_home)

    def settings(self, sample: int) -> Row:
        """What tells a row of the results from another, and must be the same to go on."""
        values = {name: asdict(self)[name] for name in ("data", "model", "seed")}
        values |= {"epochs": 0 if self.model == "real" else self.epochs, "sample": sample}
        return {name: str(value) for name, value in values.items()}

    @property
    def rows_to_make(self) -> range:
        """The numbers of its tables: real rows are one."""
        return range(1 if self.model == "real" else self.n_samples)


def run(trial: Trial) -> list[Row]:
    """Train a generator, sample from it, and score what is learned from the samples."""
    warnings.filterwarnings("ignore")
    X, y = trial.source.load()
    train, test = PROTOCOLS["paper"].splits(trial.source)[0]
    table = X.assign(**{TARGET: y}).iloc[train].dropna().reset_index(drop=True)
    recipe = Recipe(hidden=(16,), epochs=4) if trial.quick else paper_recipe(len(X))
    started = time.perf_counter()
    make = _fit(trial, table)
    fitted = time.perf_counter()
    rows = []
    for sample in trial.rows_to_make:
        begun = time.perf_counter()
        made = _as_real(make(len(table)), table)
        sampled = time.perf_counter()
        seed = 10 * trial.seed + sample
        net = Fit(trial.source, PROTOCOLS["paper"], recipe, "relu", 0, seed).estimator()
        net.fit(made.drop(columns=TARGET), made[TARGET])
        rest = X.iloc[test].dropna()
        truth = y.loc[rest.index].to_numpy()
        if DATA[trial.data] == "classification":
            scores = score_classifier(net, rest, truth)
        else:
            scores = score_regressor(net, rest, truth, target_std=float(table[TARGET].std(ddof=0)))
        values: dict[str, Any] = {
            "n_train": len(made),
            "n_test": len(rest),
            "n_samples": len(trial.rows_to_make),
            "net_epochs": recipe.epochs,
            "fit_seconds": round(fitted - started, 2),
            "sample_seconds": round(sampled - begun, 2),
            "net_seconds": round(time.perf_counter() - sampled, 2),
            **{name: f"{value:.6g}" for name, value in scores.items()},
            **_versions(),
        }
        text = {name: str(value) for name, value in values.items()}
        rows.append(dict.fromkeys(COLUMNS, "") | text | trial.settings(sample))
    return rows


def _fit(trial: Trial, table: pd.DataFrame) -> Make:
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


def _as_real(made: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The same columns with the real ones' dtypes."""
    return made[list(table.columns)].astype(table.dtypes.to_dict())


def _versions() -> Row:
    from importlib.metadata import version

    return {
        "combutab": combutab.__version__,
        "ctgan": version("ctgan"),
        "torch": torch.__version__,
    }


def summarise(rows: pd.DataFrame, data: str) -> pd.DataFrame:
    """Means over seeds and samples, and the standard deviation of the seeds' means."""
    own = rows[rows["data"] == data]
    table = []
    for model in dict.fromkeys(own["model"]):
        part = own[own["model"] == model]
        line: dict[str, Any] = {"model": model, "seeds": part["seed"].nunique()}
        for score in SCORES[DATA[data]]:
            by_seed = part.groupby("seed")[score].mean()
            spread = f" ± {by_seed.std():.3f}" if len(by_seed) > 1 else ""
            line[score] = f"{by_seed.mean():.3f}{spread}"
        line["fit, s"] = f"{part.groupby('seed')['fit_seconds'].first().mean():.0f}"
        table.append(line)
    return pd.DataFrame(table)


def report(rows: pd.DataFrame, folder: Path, command: str) -> None:
    """Print the scores, and write them beside the rows."""
    text = ""
    for data in dict.fromkeys(rows["data"]):
        title = f"{data}: a network trained on each table, tested on real rows"
        text += f"\n## {title}\n\n```\n{summarise(rows, data).to_string(index=False)}\n```\n"
    print(text)
    note = "Means over seeds and samples ± standard deviation of the seeds' means.\n"
    page = f"# quality_generators\n\n`{command}`\n\n{describe_machine()}\n\n{note}{text}"
    write_text(folder / "quality_generators.md", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="400 rows, 2 epochs, one seed")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    known = [*MODELS, *MORE_MODELS]
    parser.add_argument("--models", nargs="+", choices=known, default=list(MODELS))
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes")
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.quick:
        if arguments.out == parser.get_default("out"):
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        arguments.epochs, arguments.seeds, arguments.samples, arguments.jobs = 2, 1, 1, 1
    print(describe_machine(), flush=True)
    trials = [
        Trial(data, model, seed, arguments.epochs, arguments.samples, arguments.quick, home)
        for seed in range(arguments.seeds)
        for data in arguments.data
        for model in arguments.models
        for home in [arguments.data_home]
    ]
    store = Store(arguments.out / "quality_generators.csv", COLUMNS, KEY)
    wanted = [trial.settings(sample) for trial in trials for sample in trial.rows_to_make]
    with store.open(wanted) as journal:
        missing = [t for t in trials if not all(map(journal.has, map(t.settings, t.rows_to_make)))]
        if missing:
            print(f"{len(missing)} of {len(trials)} generators to go", flush=True)
        started = time.monotonic()
        parallel = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
        for number, rows in enumerate(parallel(delayed(run)(t) for t in missing), 1):
            journal.add(rows)
            first, minutes = rows[0], (time.monotonic() - started) / 60
            print(
                f"[{number}/{len(missing)}] {first['data']}, {first['model']}, seed "
                f"{first['seed']}: {minutes:.1f} min",
                flush=True,
            )
    words = ["python -m benchmarks.quality.generators", *["--quick"] * arguments.quick]
    if arguments.models != list(MODELS):
        words.append(f"--models {' '.join(map(shlex.quote, arguments.models))}")
    if not arguments.quick and arguments.epochs != parser.get_default("epochs"):
        words.append(f"--epochs {arguments.epochs}")
    report(store.read(), arguments.out, " ".join(words))


if __name__ == "__main__":
    main()
