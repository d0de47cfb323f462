"""The work of Table 7: generators that make tables, and networks that learn from these."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

from benchmarks.common import Row
from benchmarks.papers.combu import study
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, Fit, Recipe
from combutab.estimators import FitTask
from combutab.generators import CTGAN, TVAE, fit_stack, patch_ctgan
from combutab.preprocessing import TableEncoder

OURS = {"ctgan": CTGAN, "tvae": TVAE}
PATCHED = ("ctgan-patched", "tvae-patched")  # the ctgan package's CTGAN and TVAE
REAL = "real"  # the model, and the activation, of the real rows
LEARNERS = ("mlp", "boosting")
TARGET = "target"
PACKAGES = ("ctgan", *study.PACKAGES)
KEY = ("data", "model", "activation", "seed", "sample", "learner")
SETTINGS = (*KEY, "task", "epochs", "net_epochs", "hidden")
RESULTS = (
    *("n_train", "n_test", *study.SCORES, "target_std_train", "n_samples", "stack"),
    *("fit_seconds", "sample_seconds", "seconds", "error", "device"),
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


@dataclass(frozen=True)
class Score:
    """What learns from one sample; a row of the results."""

    generator: Generator
    sample: int
    learner: str
    recipe: Recipe

    @property
    def settings(self) -> Row:
        """List what tells this row from others, and what must be the same to go on."""
        maker, is_mlp = self.generator, self.learner == "mlp"
        values = {"data": maker.source.name, "task": maker.source.task, "model": maker.model}
        values |= {name: getattr(maker, name) for name in ("activation", "seed", "epochs")}
        values |= {"sample": self.sample, "learner": self.learner}
        values["net_epochs"] = self.recipe.epochs if is_mlp else 0
        values["hidden"] = ",".join(map(str, self.recipe.hidden)) if is_mlp else ""
        return values

    def estimator(self) -> Any:
        """Make the unfitted learner; the same for all activations of a seed and sample."""
        source, seed = self.generator.source, 10 * self.generator.seed + self.sample
        if self.learner == "mlp":
            # NOTE[DIFF]: the paper says that a machine learning model is trained, and not which;
            # this is its larger network, and ReLU favours no generator
            return Fit(source, PROTOCOLS["paper"], self.recipe, "relu", 0, seed).estimator()
        return boosting(source.task, seed)


def boosting(task: str, seed: int) -> Any:
    """Gradient boosting of a table's rows."""
    classifies = task == "classification"
    kind = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
    return make_pipeline(TableEncoder(min_frequency=1), kind(random_state=seed))


@lru_cache(maxsize=4)
def split(source: Source) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split into real rows to train and to test on, target among the columns; 4:1.

    Rows with missing values, which the ctgan package does not take, are left out.
    """
    X, y = source.load()
    table = X.assign(**{TARGET: y})
    train, test = PROTOCOLS["paper"].splits(source)[0]
    return tuple(table.iloc[rows].dropna().reset_index(drop=True) for rows in (train, test))


Made = tuple[dict[str, Any], list[pd.DataFrame]]  # how a generator was trained, and its samples


def generate(generators: Sequence[Generator]) -> list[Made]:
    """Train generators that share data, model and seed, and sample from them.

    Ours train as a stack, the patched package's come alone.
    """
    first, started, made = generators[0], time.perf_counter(), []
    table, _ = split(first.source)
    if first.model == REAL:
        return [({}, [table])]
    if first.model in OURS:
        models = [_ours(each) for each in generators]
        fit_stack(models, table)
        if any(model.n_iter_ < model.epochs for model in models):
            raise KeyboardInterrupt  # a fit turns it into an early end
    else:
        models, discrete = [_patched(first)], list(table.select_dtypes("category"))
        models[0].fit(table.astype(dict.fromkeys(discrete, str)), discrete)
    facts = {"fit_seconds": round((time.perf_counter() - started) / len(models), 2)}
    for each, model in zip(generators, models, strict=True):
        samples, started = [], time.perf_counter()
        for number in range(each.n_samples):
            own = {"random_state": 10 * each.seed + number} if first.model in OURS else {}
            samples.append(model.sample(len(table), **own)[list(table)].astype(table.dtypes))
        seconds = round((time.perf_counter() - started) / each.n_samples, 2)
        made.append((facts | {"sample_seconds": seconds, "stack": len(models)}, samples))
    return made


def _ours(each: Generator) -> Any:
    # TVAE's rows are drawn, as what is stored was
    own = {"argmax": False} if each.model == "tvae" else {}
    options = {"activation": each.activation, "random_state": each.seed, "device": "cpu"}
    return OURS[each.model](epochs=each.epochs, **options, **own)


def _patched(each: Generator) -> Any:
    import ctgan

    package = getattr(ctgan, each.model.removesuffix("-patched").upper())
    model = patch_ctgan(package, each.activation)(epochs=each.epochs, enable_gpu=False)
    model.set_random_state(each.seed)
    return model


def run(scores: Sequence[Score]) -> list[Row]:
    """Train generators that share data, model and seed, and score what learns from the samples."""
    warnings.filterwarnings("ignore")
    generators = list(dict.fromkeys(score.generator for score in scores))
    made = dict(zip(generators, generate(generators), strict=True))
    train, test = split(generators[0].source)
    X, y = test.drop(columns=TARGET), test[TARGET]
    rows, tasks = [], []
    for i, score in enumerate(scores):
        facts, samples = made[score.generator]
        rows.append({"device": "cpu", "n_samples": score.generator.n_samples} | facts)
        table = samples[score.sample]
        tasks.append(FitTask(score.estimator(), table.drop(columns=TARGET), table[TARGET], i))
    outcomes = zip(tasks, study.fit_all(tasks), strict=True)
    found = [study.scored(*both, X, y, train[TARGET]) for both in outcomes]
    return [row | own for row, own in zip(rows, found, strict=True)]
