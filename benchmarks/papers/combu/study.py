"""Train every activation on every split and seed of some data sets, resumably.

A study is a list of fits. They train in chunks, a stack or a few each, in the processes of any
joblib backend; each finished chunk is added to a journal beside the results, so that a study that
was killed, at any moment, goes on where it stood. ``Study.run`` ends with one CSV file: one row a
network, in the study's order, with all that its reproduction needs.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np
import pandas as pd
import sklearn
import torch
from joblib import Parallel, delayed
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

import combutab
from benchmarks.machine import processor
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.results import Row, Store
from combutab import MLPClassifier, MLPRegressor
from combutab.estimators import BaseMLP, FitTask, fit_stacked
from combutab.model_selection import score_classifier, score_regressor

TEST_SIZE = 0.2  # the CombU paper's 4:1
# Floating-point operations of a chunk: a minute or two on one core, what a kill can lose.
CHUNK_OPERATIONS = {"cpu": 8e12, "cuda": 8e15}


@dataclass(frozen=True)
class Variant:
    """What is compared: an activation, and the normalisation before it."""

    activation: str
    normalization: str = "none"
    proxy_norm: bool = False


PAPER = ("relu", "elu", "selu", "swish", "nlrelu", "gelu", "combu")
OTHERS = ("pln-4", "pln-8", "pls-2", "la-silu", "la-hardsilu", "relu+ln+proxy", "combu+ln+proxy")
VARIANTS = {
    **{name: Variant(name) for name in (*PAPER, *OTHERS) if "+" not in name},
    **{f"{name}+ln+proxy": Variant(name, "layer", True) for name in ("relu", "combu")},
}


@dataclass(frozen=True)
class Protocol:
    """How often each network is trained, and on which rows."""

    name: str
    n_splits: int
    n_seeds: int
    grouped: bool = False  # equal rows stay on one side of the split

    def splits(self, source: Source) -> list[tuple[np.ndarray, np.ndarray]]:
        """Training and test rows of each split; the same for every activation and seed."""
        X, _ = source.load()
        kind = GroupShuffleSplit if self.grouped else ShuffleSplit
        splitter = kind(self.n_splits, test_size=TEST_SIZE, random_state=0)
        return list(splitter.split(X, groups=source.row_groups() if self.grouped else None))


PROTOCOLS = {
    "paper": Protocol("paper", n_splits=1, n_seeds=5),
    "sound": Protocol("sound", n_splits=10, n_seeds=3, grouped=True),
    "sound-ungrouped": Protocol("sound-ungrouped", n_splits=10, n_seeds=3),
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; the CombU paper's appendix B unless said otherwise."""

    hidden: tuple[int, ...]
    epochs: int
    batch_size: int = 500
    learning_rate_init: float = 5e-4
    dropout: float = 0.1
    device: str = "cpu"
    precision: str = "float32"
    curve_block: int = 0  # epochs averaged to a point of the training curves; 0 keeps no curves


def paper_recipe(n_rows: int) -> Recipe:
    """The paper's two networks: 3 layers of 128 below 1,000 rows, else 6 layers of 256."""
    if n_rows < 1000:
        return Recipe(hidden=(128,) * 2, epochs=500)
    return Recipe(hidden=(256,) * 5, epochs=200)


@dataclass(frozen=True)
class Fit:
    """One network to train."""

    source: Source
    protocol: Protocol
    recipe: Recipe
    activation: str  # a key of VARIANTS
    split: int
    seed: int

    @property
    def random_state(self) -> int:
        """Of the network; the activations share it, as they share the split."""
        return 1000 * self.split + self.seed

    @property
    def settings(self) -> Row:
        """The columns that say which network this is, and how it is trained."""
        variant, recipe = VARIANTS[self.activation], self.recipe
        values = {
            "protocol": self.protocol.name,
            "data": self.source.name,
            "task": self.source.task,
            "activation": self.activation,
            "split": self.split,
            "seed": self.seed,
            "random_state": self.random_state,
            "data_random_state": self.source.random_state,
            "epochs": recipe.epochs,
            "hidden": ",".join(map(str, recipe.hidden)),
            "batch_size": recipe.batch_size,
            "learning_rate_init": recipe.learning_rate_init,
            "dropout": recipe.dropout,
            "normalization": variant.normalization,
            "proxy_norm": variant.proxy_norm,
            "precision": recipe.precision,
        }
        return {name: str(value) for name, value in values.items()}

    def estimator(self) -> BaseMLP:
        """The unfitted network."""
        variant, recipe = VARIANTS[self.activation], self.recipe
        kind = MLPClassifier if self.source.task == "classification" else MLPRegressor
        return kind(
            activation=variant.activation,
            normalization=variant.normalization,
            proxy_norm=variant.proxy_norm,
            hidden_layer_sizes=recipe.hidden,
            max_iter=recipe.epochs,
            n_iter_no_change=math.inf,
            batch_size="auto" if recipe.batch_size == 500 else recipe.batch_size,
            learning_rate_init=recipe.learning_rate_init,
            dropout=recipe.dropout,
            alpha=0.0,
            random_state=self.random_state,
            device=recipe.device,
            precision=recipe.precision,
            track_metric=bool(recipe.curve_block),
        )


COLUMNS = (
    *("protocol", "data", "task", "activation", "split", "seed"),
    *("n_train", "n_test"),
    *("mae", "mse", "r2", "accuracy", "f1", "log_loss", "roc_auc"),
    *("target_std_train", "target_std_all"),
    *("epochs", "seconds", "error"),
    *("loss_curve", "metric_curve", "curve_block"),
    *("random_state", "data_random_state", "hidden", "batch_size", "learning_rate_init"),
    *("dropout", "normalization", "proxy_norm", "device", "precision"),
    *("combutab", "torch", "numpy", "sklearn", "pandas", "python", "cpu"),
)
KEY = ("protocol", "data", "task", "activation", "split", "seed")


@dataclass(frozen=True)
class Study:
    """Fits, and the file that their rows go to."""

    fits: Sequence[Fit]
    store: Store

    def run(self, *, n_jobs: int = 1) -> pd.DataFrame:
        """Train what is not in the file yet, and return all rows of the study.

        Raises
        ------
        ValueError
            The file has rows of the same networks with other settings.
        RuntimeError
            Another process is writing to it.
        """
        with self.store.open([fit.settings for fit in self.fits]) as journal:
            missing = [fit for fit in self.fits if not journal.has(fit.settings)]
            progress = _Progress(len(self.fits), missing)
            chunks = list(_chunks(missing))
            for rows in _in_parallel(chunks, n_jobs):
                journal.add(rows)
                progress.report(rows)
        return self.store.read()


def make_fits(
    sources: Iterable[Source],
    protocols: Iterable[Protocol],
    activations: Iterable[str],
    recipe: Recipe | None = None,
    **changes: object,
) -> list[Fit]:
    """All fits of a study: by data set, protocol, split, activation and seed.

    ``recipe`` replaces the paper's rule for all data sets; ``changes`` change single settings.
    """
    activations, protocols = list(activations), list(protocols)
    fits = []
    for source in sources:
        settled = replace(recipe or paper_recipe(source.n_rows()), **changes)
        for protocol in protocols:
            if protocol.name.endswith("-ungrouped") and not source.has_equal_rows():
                continue  # it would be the grouped one again
            fits += [
                Fit(source, protocol, settled, activation, split, seed)
                for split in range(protocol.n_splits)
                for activation in activations
                for seed in range(protocol.n_seeds)
            ]
    return fits


def _chunks(fits: Iterable[Fit]) -> Iterator[list[Fit]]:
    """Neighbours that share their rows and recipe, as many as the operations of a chunk allow."""
    for _, group in groupby(fits, lambda f: (f.source, f.protocol, f.recipe, f.split)):
        same = list(group)
        size = max(1, int(CHUNK_OPERATIONS[same[0].recipe.device] / _operations(same[0])))
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _operations(fit: Fit) -> float:
    X, _ = fit.source.load()
    widths = (len(X.columns), *fit.recipe.hidden, 1)
    weights = sum(a * b for a, b in pairwise(widths))
    return 6.0 * weights * len(X) * (1 - TEST_SIZE) * fit.recipe.epochs


def _in_parallel(chunks: Sequence[list[Fit]], n_jobs: int) -> Iterator[list[Row]]:
    """The rows of each chunk as it ends; joblib's backends that cannot say so end by the wave."""
    jobs = [delayed(train_chunk)(chunk) for chunk in chunks]
    try:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except ValueError:
        for start in range(0, len(jobs), n_jobs):
            yield from Parallel(n_jobs=n_jobs)(jobs[start : start + n_jobs])
        return
    yield from parallel(jobs)


@lru_cache(maxsize=4)
def _splits(protocol: Protocol, source: Source) -> list[tuple[np.ndarray, np.ndarray]]:
    return protocol.splits(source)


def train_chunk(fits: Sequence[Fit]) -> list[Row]:
    """Train networks that share their rows as stacks, and score them."""
    X, y = fits[0].source.load()
    train, test = _splits(fits[0].protocol, fits[0].source)[fits[0].split]
    X_train, y_train = X.iloc[train], y.iloc[train]
    tasks = [FitTask(fit.estimator(), X_train, y_train, data_key=0) for fit in fits]
    outcomes = fit_stacked(tasks)
    if any(
        outcome.error is None and task.estimator.n_iter_ < fit.recipe.epochs
        for fit, task, outcome in zip(fits, tasks, outcomes, strict=True)
    ):
        raise KeyboardInterrupt  # a single fit turns it into an early end: no row of this study
    rows = []
    for fit, task, outcome in zip(fits, tasks, outcomes, strict=True):
        values: dict[str, object] = {
            "n_train": len(train),
            "n_test": len(test),
            "seconds": round(outcome.seconds, 3),
            "device": str(task.estimator.device),
            **_versions(),
        }
        error = outcome.error
        if error is None:
            try:
                values |= _scores(task.estimator, X.iloc[test], y.iloc[test], y_train, y)
            except ValueError as diverged:
                error = diverged
        if error is not None:
            if not isinstance(error, ValueError):
                raise error
            values["error"] = " ".join(str(error).split())
        elif fit.recipe.curve_block:
            values |= _curves(task.estimator.history_, fit.recipe.curve_block, fit.source.task)
        rows.append(dict.fromkeys(COLUMNS, "") | _as_text(values) | fit.settings)
    return rows


def _as_text(values: dict[str, object]) -> Row:
    def text(value: object) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.8g}"
        return str(value)

    return {name: text(value) for name, value in values.items()}


def _scores(
    net: BaseMLP, X: pd.DataFrame, y: pd.Series, y_train: pd.Series, y_all: pd.Series
) -> dict[str, object]:
    if isinstance(net, MLPClassifier):
        return dict(score_classifier(net, X, np.asarray(y)))
    scale = float(np.std(y_train))
    return {
        **score_regressor(net, X, np.asarray(y), target_std=scale),
        "target_std_train": scale,
        "target_std_all": float(np.std(y_all)),
    }


def _curves(history: pd.DataFrame, block: int, task: str) -> dict[str, object]:
    """Means over blocks of epochs; the loss of a regression as the squared error, not its half."""
    means = history.groupby((history["epoch"] - 1) // block)[["train_loss", "train_metric"]].mean()
    factor = 1.0 if task == "classification" else 2.0

    def text(values: pd.Series) -> str:
        return " ".join(f"{value:.4g}" for value in values)

    return {
        "loss_curve": text(factor * means["train_loss"]),
        "metric_curve": text(means["train_metric"]),
        "curve_block": block,
    }


@lru_cache
def _versions() -> dict[str, str]:
    """Of this process: it may be on another machine than the one that asked."""
    return {
        "combutab": combutab.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sklearn": sklearn.__version__,
        "pandas": pd.__version__,
        "python": platform.python_version(),
        "cpu": processor(),
    }


class _Progress:
    """A line for every chunk: what it was, and how long the rest will take."""

    def __init__(self, n_fits: int, missing: Sequence[Fit]) -> None:
        self.n_fits, self.done = n_fits, n_fits - len(missing)
        self.work = sum(map(_operations, missing))
        self.worked, self.started = 0.0, time.monotonic()
        self.operations = {tuple(f.settings[name] for name in KEY): _operations(f) for f in missing}
        if missing:
            print(f"{self.done} of {n_fits} networks are trained, {len(missing)} to go", flush=True)

    def report(self, rows: Sequence[Row]) -> None:
        self.done += len(rows)
        self.worked += sum(self.operations[tuple(row[name] for name in KEY)] for row in rows)
        elapsed = time.monotonic() - self.started
        left = elapsed * (self.work / self.worked - 1)
        names = ", ".join(dict.fromkeys(row["activation"] for row in rows))
        first = rows[0]
        print(
            f"[{self.done:{len(str(self.n_fits))}}/{self.n_fits}] {first['data']} "
            f"{first['task']}, {first['protocol']} split {first['split']}: {names}; "
            f"{elapsed / 60:.1f} min, {left / 60:.1f} left",
            flush=True,
        )
