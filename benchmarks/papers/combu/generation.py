"""The work of Table 7: generators that make tables, and networks that learn from these.

A generator learns the real training rows and makes samples of their size, which are kept in files
until all that learns from them is scored on the real test rows. All of it can be stopped at any
moment: a generator is trained again only if its files are not whole.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

from benchmarks.outputs import write_table, write_text
from benchmarks.papers.combu import study
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, SCORES, VARIANTS, Fit, Recipe
from benchmarks.papers.common.command import versions
from benchmarks.papers.common.results import Row
from combutab.estimators import FitTask
from combutab.generators import CTGAN, TVAE, fit_stack, patch_ctgan
from combutab.preprocessing import TableEncoder

OURS = {"ctgan": CTGAN, "tvae": TVAE}
PATCHED = {"ctgan-patched": "CTGAN", "tvae-patched": "TVAE"}  # the ctgan package's classes
REAL = "real"  # the model, and the activation, of the real rows
LEARNERS = ("mlp", "boosting")
TARGET = "target"
FACTS = "facts.json"  # written last: the samples are whole
PACKAGES = ("ctgan", *study.PACKAGES)
KEY = ("data", "model", "activation", "seed", "sample", "learner")
COLUMNS = (
    *("data", "task", "model", "activation", "seed", "sample", "learner"),
    *("n_train", "n_test", *SCORES),
    *("target_std_train", "epochs", "n_samples", "net_epochs", "hidden", "stack"),
    *("fit_seconds", "sample_seconds", "seconds", "error", "device"),
    *("combutab", "ctgan", "torch", *study.PACKAGES),
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
        names = (self.source.name, self.model, self.activation, f"seed{self.seed}")
        return parent / "-".join([*names, f"{self.epochs}x{rows}x{self.n_samples}"])

    def is_sampled(self, parent: Path) -> bool:
        """Whether its samples are there, all of them."""
        return self.is_real or (self.folder(parent) / FACTS).exists()

    def facts(self, parent: Path) -> dict[str, Any]:
        """How its samples were made."""
        return {} if self.is_real else json.loads((self.folder(parent) / FACTS).read_text())

    def sample(self, number: int, parent: Path) -> pd.DataFrame:
        """A sample, with the real table's dtypes."""
        table, _ = split(self.source)
        if self.is_real:
            return table
        text = dict.fromkeys(table.select_dtypes("category"), str)
        path = self.folder(parent) / f"{number}.csv.gz"
        synthetic = pd.read_csv(path, dtype=text, float_precision="round_trip")
        return synthetic.astype(table.dtypes.to_dict())


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
        of, recipe, mlp = self.generator, self.recipe, self.learner == "mlp"
        values = {
            "data": of.source.name,
            "task": of.source.task,
            "model": of.model,
            "activation": of.activation,
            "seed": of.seed,
            "sample": self.sample,
            "learner": self.learner,
            "epochs": 0 if of.is_real else of.epochs,
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
        is_classification = source.task == "classification"
        kind = (
            HistGradientBoostingClassifier if is_classification else HistGradientBoostingRegressor
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
    for each, (model, facts) in zip(generators, fit(generators, table, device), strict=True):
        folder, started = each.folder(parent), time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(0 if facts["error"] else each.n_samples):
            own = {"random_state": 10 * each.seed + number} if each.model in OURS else {}
            sample = model.sample(len(table), **own)[list(table.columns)]
            write_table(sample, folder / f"{number}.csv.gz", index=False)
        facts["sample_seconds"] = round((time.perf_counter() - started) / each.n_samples, 2)
        write_text(folder / FACTS, json.dumps(facts))
    names = ", ".join(each.activation for each in generators)
    return f"{first.source.name}, {first.model}, seed {first.seed}: {names}"


Trained = tuple[Any, dict[str, Any]]  # a generator, and how it was trained


def _fit_ours(
    generators: Sequence[Generator], table: pd.DataFrame, device: str
) -> Iterator[Trained]:
    models = []
    for each in generators:
        variant = VARIANTS[each.activation]
        model = OURS[each.model](
            epochs=each.epochs, activation=variant.activation, random_state=each.seed, device=device
        )
        if variant.proxy_norm:
            # else the model's own: batch normalisation in CTGAN's generator, none in TVAE
            model.set_params(normalization=variant.normalization, proxy_norm=True)
        models.append(model)
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
        yield model, {"fit_seconds": round(seconds, 2), "stack": len(models), "error": error}


def _fit_patched(
    generators: Sequence[Generator], table: pd.DataFrame, device: str
) -> Iterator[Trained]:
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
        seconds = round(time.perf_counter() - started, 2)
        yield model, {"fit_seconds": seconds, "stack": 1, "error": error}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def score_together(scores: Sequence[Score], parent: Path) -> list[Row]:
    """Train on samples, networks as stacks, and score on the real test rows."""
    warnings.filterwarnings("ignore")
    rows: list[dict[str, Any]] = []
    tasks: dict[int, FitTask] = {}
    for i, each in enumerate(scores):
        maker = each.generator
        rows.append({"device": each.recipe.device, "n_samples": maker.n_samples})
        rows[i] |= maker.facts(parent)
        if rows[i].get("error"):
            rows[i]["error"] = f"generator: {rows[i]['error']}"
            continue
        table = maker.sample(each.sample, parent)
        X, y = table.drop(columns=TARGET), table[TARGET]
        tasks[i] = FitTask(each.estimator(), X, y, data_key=i)
    networks = [i for i in tasks if scores[i].learner == "mlp"]
    fitted = study.fit_networks([tasks[i] for i in networks])
    outcomes = dict(zip(networks, fitted, strict=True))
    for i, task in tasks.items():
        outcome, started = outcomes.get(i), time.perf_counter()
        train, test = split(scores[i].generator.source)
        try:
            if outcome is None:
                task.estimator.fit(task.X, task.y)
            elif outcome.error is not None:
                raise outcome.error
            X, y = test.drop(columns=TARGET), test[TARGET]
            rows[i] |= {"n_test": len(test), **study.score(task.estimator, X, y, train[TARGET])}
        except ValueError as error:  # it diverged, or the sample has one class
            rows[i]["error"] = _one_line(error)
        own = time.perf_counter() - started if outcome is None else outcome.seconds
        rows[i] |= {"seconds": round(own, 3), "n_train": len(task.y)}
    # of this process, which may be on another machine than the one that asked
    return [study.as_text(row) | versions(*PACKAGES) for row in rows]
