"""The work of Table 7: generators that make tables, and networks that learn from these.

A generator learns the real training rows and makes samples of their size, which are kept in files
until all that learns from them is scored on the real test rows. All of it can be stopped at any
moment: a generator is trained again only if its files are not whole.
"""

from __future__ import annotations

import json
import platform
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

import combutab
from benchmarks.machine import processor
from benchmarks.outputs import write_table, write_text
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PAPER, PROTOCOLS, VARIANTS, Fit, Recipe
from benchmarks.papers.common.results import Row
from combutab.estimators import FitTask, fit_stacked
from combutab.generators import CTGAN, TVAE, fit_stack, patch_ctgan
from combutab.model_selection import score_classifier, score_regressor
from combutab.preprocessing import TableEncoder

DATA = {"california_housing": "regression", "PhishingWebsites": "classification"}
OURS = {"ctgan": CTGAN, "tvae": TVAE}
PATCHED = {"ctgan-patched": "CTGAN", "tvae-patched": "TVAE"}  # the ctgan package's classes
MODELS = (*OURS, *PATCHED)
REAL = "real"  # the model, and the activation, of the real rows
ACTIVATIONS = (*PAPER, "pln-8", "la-silu", "relu+ln+proxy", "combu+ln+proxy")
LEARNERS = ("mlp", "boosting")
TARGET = "target"
KEY = ("data", "model", "activation", "seed", "sample", "learner")
COLUMNS = (
    *("data", "task", "model", "activation", "seed", "sample", "learner"),
    *("n_train", "n_test", "mae", "mse", "r2", "accuracy", "f1", "log_loss", "roc_auc"),
    *("target_std_train", "epochs", "n_samples", "net_epochs", "hidden", "stack"),
    *("fit_seconds", "sample_seconds", "seconds", "error", "device"),
    *("combutab", "ctgan", "torch", "numpy", "sklearn", "pandas", "python", "cpu"),
)


@dataclass(frozen=True)
class Generator:
    """One generator to train, or the real rows in its place."""

    source: Source
    model: str
    activation: str
    seed: int
    epochs: int
    n_samples: int

    @property
    def is_real(self) -> bool:
        return self.model == REAL

    def folder(self, parent: Path) -> Path:
        """Where its samples lie; another one with other settings."""
        rows = len(split(self.source)[0])
        words = (self.source.name, self.model, self.activation, f"seed{self.seed}")
        return parent / "-".join([*words, f"{self.epochs}x{rows}x{self.n_samples}"])

    def is_made(self, parent: Path) -> bool:
        """Whether its samples are there, all of them."""
        return self.is_real or (self.folder(parent) / "made.json").exists()


@dataclass(frozen=True)
class Score:
    """What learns from one sample; a row of the results."""

    generator: Generator
    sample: int
    learner: str
    recipe: Recipe

    @property
    def settings(self) -> Row:
        """What tells this row from others, and what must be the same to go on."""
        made, recipe, mlp = self.generator, self.recipe, self.learner == "mlp"
        values = {
            "data": made.source.name,
            "task": made.source.task,
            "model": made.model,
            "activation": made.activation,
            "seed": made.seed,
            "sample": self.sample,
            "learner": self.learner,
            "epochs": 0 if made.is_real else made.epochs,
            "net_epochs": recipe.epochs if mlp else 0,
            "hidden": ",".join(map(str, recipe.hidden)) if mlp else "",
        }
        return {name: str(value) for name, value in values.items()}

    def estimator(self) -> Any:
        """Unfitted; the same for all activations of a seed and sample."""
        source, seed = self.generator.source, 10 * self.generator.seed + self.sample
        if self.learner == "mlp":
            # NOTE[DIFF]: the paper says that a machine learning model is trained, and not which;
            # this is its larger network, and ReLU favours no generator
            return Fit(source, PROTOCOLS["paper"], self.recipe, "relu", 0, seed).estimator()
        kind = (
            HistGradientBoostingClassifier
            if source.task == "classification"
            else HistGradientBoostingRegressor
        )
        return make_pipeline(TableEncoder(min_frequency=1), kind(random_state=seed))


@lru_cache(maxsize=4)
def split(source: Source) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Real rows to train and to test on, target among the columns; 4:1.

    Rows with missing values, which the ctgan package does not take, are left out.
    """
    X, y = source.load()
    table = X.assign(**{TARGET: y})
    train, test = PROTOCOLS["paper"].splits(source)[0]
    return tuple(table.iloc[rows].dropna().reset_index(drop=True) for rows in (train, test))


# ---- generators ----------------------------------------------------------------------------------


def generate(generators: Sequence[Generator], parent: Path, device: str) -> str:
    """Train generators that share data, model and seed, and write their samples.

    Ours train as stacks, the patched package's one by one. One that fails leaves its message.

    Returns
    -------
    str
        What was done, for a line of progress.
    """
    warnings.filterwarnings("ignore")
    first = generators[0]
    table, _ = split(first.source)
    fit = _fit_ours if first.model in OURS else _fit_patched
    for each, trained in zip(generators, fit(generators, table, device), strict=True):
        _write_samples(each, trained, table, parent)
    names = ", ".join(each.activation for each in generators)
    return f"{first.source.name}, {first.model}, seed {first.seed}: {names}"


@dataclass(frozen=True)
class _Trained:
    """A generator with its share of the seconds, how many trained together, and what failed."""

    model: Any
    seconds: float
    stack: int
    error: str


def _fit_ours(
    generators: Sequence[Generator], table: pd.DataFrame, device: str
) -> Iterator[_Trained]:
    models = []
    for each in generators:
        variant = VARIANTS[each.activation]
        normalised = {"normalization": variant.normalization, "proxy_norm": variant.proxy_norm}
        models.append(
            OURS[each.model](
                epochs=each.epochs,
                activation=variant.activation,
                random_state=each.seed,
                device=device,
                # else the model's own: batch normalisation in CTGAN's generator, none in TVAE
                **(normalised if variant.proxy_norm else {}),
            )
        )
    message, started = "", time.perf_counter()
    try:
        fit_stack(models, table)
    except ValueError as diverged:
        message = _one_line(diverged)
    seconds = (time.perf_counter() - started) / len(models)
    for model in models:
        error = "" if model.__sklearn_is_fitted__() else message
        if not error and model.n_iter_ < model.epochs:
            raise KeyboardInterrupt  # a fit turns it into an early end
        yield _Trained(model, seconds, len(models), error)


def _fit_patched(
    generators: Sequence[Generator], table: pd.DataFrame, device: str
) -> Iterator[_Trained]:
    import ctgan

    discrete = list(table.select_dtypes("category"))
    text = table.astype(dict.fromkeys(discrete, str))
    for each in generators:
        package = getattr(ctgan, PATCHED[each.model])
        patched = patch_ctgan(package, VARIANTS[each.activation].activation)
        model = patched(epochs=each.epochs, enable_gpu=device != "cpu")
        model.set_random_state(each.seed)
        error, started = "", time.perf_counter()
        try:
            model.fit(text, discrete)
        except ValueError as diverged:
            error = _one_line(diverged)
        yield _Trained(model, time.perf_counter() - started, 1, error)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _write_samples(each: Generator, trained: _Trained, table: pd.DataFrame, parent: Path) -> None:
    """Samples of the size of the real table; the facts last, they say that all is there."""
    folder = each.folder(parent)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    for number in range(0 if trained.error else each.n_samples):
        if each.model in OURS:
            made = trained.model.sample(len(table), random_state=10 * each.seed + number)
        else:
            made = trained.model.sample(len(table))
        write_table(made[list(table.columns)], folder / f"{number}.csv.gz", index=False)
    facts = {
        "fit_seconds": round(trained.seconds, 2),
        "sample_seconds": round((time.perf_counter() - started) / each.n_samples, 2),
        "stack": trained.stack,
        "error": trained.error,
    }
    write_text(folder / "made.json", json.dumps(facts))


def _read_sample(generator: Generator, number: int, parent: Path) -> pd.DataFrame:
    """A sample with the real table's dtypes."""
    table, _ = split(generator.source)
    if generator.is_real:
        return table
    text = dict.fromkeys(table.select_dtypes("category"), str)
    made = pd.read_csv(
        generator.folder(parent) / f"{number}.csv.gz", dtype=text, float_precision="round_trip"
    )
    return made.astype(table.dtypes.to_dict())


# ---- scores --------------------------------------------------------------------------------------


def score_together(scores: Sequence[Score], parent: Path) -> list[Row]:
    """Train on samples, networks as stacks, and score on the real test rows."""
    warnings.filterwarnings("ignore")
    rows: dict[int, dict[str, Any]] = {}
    tasks: dict[int, FitTask] = {}
    for i, score in enumerate(scores):
        facts = {}
        if not score.generator.is_real:
            facts = json.loads((score.generator.folder(parent) / "made.json").read_text())
        rows[i] = {"device": score.recipe.device, "n_samples": score.generator.n_samples} | facts
        if rows[i].get("error"):
            rows[i]["error"] = f"generator: {rows[i]['error']}"
            continue
        table = _read_sample(score.generator, score.sample, parent)
        X, y = table.drop(columns=TARGET), table[TARGET]
        tasks[i] = FitTask(score.estimator(), X, y, data_key=i)
    networks = {i: task for i, task in tasks.items() if scores[i].learner == "mlp"}
    outcomes = dict(zip(networks, fit_stacked(list(networks.values())), strict=True))
    for i, outcome in outcomes.items():
        if outcome.error is None and tasks[i].estimator.n_iter_ < scores[i].recipe.epochs:
            raise KeyboardInterrupt  # a single fit turns it into an early end
    for i, task in tasks.items():
        outcome, started = outcomes.get(i), time.perf_counter()
        try:
            if outcome is None:
                task.estimator.fit(task.X, task.y)
            elif outcome.error is not None:
                raise outcome.error
            rows[i] |= _test(task.estimator, scores[i].generator.source)
        except ValueError as error:  # it diverged, or the sample has one class
            rows[i]["error"] = _one_line(error)
        own = time.perf_counter() - started if outcome is None else outcome.seconds
        rows[i] |= {"seconds": round(own, 3), "n_train": len(task.y)}
    return [
        dict.fromkeys(COLUMNS, "")
        | {name: _text(value) for name, value in (rows[i] | _versions()).items()}
        | scores[i].settings
        for i in range(len(scores))
    ]


def _test(estimator: Any, source: Source) -> dict[str, Any]:
    train, test = split(source)
    X, y = test.drop(columns=TARGET), test[TARGET].to_numpy()
    if source.task == "classification":
        return {"n_test": len(test), **score_classifier(estimator, X, y)}
    unit = float(train[TARGET].std(ddof=0))
    scores = score_regressor(estimator, X, y, target_std=unit)
    return {"n_test": len(test), "target_std_train": unit, **scores}


def _text(value: object) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.8g}"
    return str(value)


@lru_cache
def _versions() -> dict[str, str]:
    """Of this process: it may be on another machine than the one that asked."""
    try:
        package = version("ctgan")
    except PackageNotFoundError:
        package = ""
    return {
        "combutab": combutab.__version__,
        "ctgan": package,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
        "pandas": pd.__version__,
        "python": platform.python_version(),
        "cpu": processor(),
    }
