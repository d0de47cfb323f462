"""Networks of every activation on every split and seed of some data sets, and their studies.

A study is a list of fits, one row of its file each. Neighbours train in stacks, as many as a kill
may lose; a study that was killed goes on where it stood.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from benchmarks.common import Arguments, Experiment, Job, Row, Study
from benchmarks.papers.combu.expected import ACTIVATIONS, Table
from benchmarks.papers.combu.sources import Source
from combutab import MLPClassifier, MLPRegressor
from combutab import paper_recipe as estimator_recipe
from combutab.activations import ACTIVATIONS as KNOWN
from combutab.estimators import BaseMLP, FitOutcome, FitTask, fit_stacked
from combutab.model_selection import score_classifier, score_regressor

TEST_SIZE = 0.2  # the CombU paper's 4:1
CHUNK = 16  # networks that train together, which a kill can lose: minutes on one core
# what every network of these studies has, and its rows say
FIXED = {"normalization": "none", "proxy_norm": False, "precision": "float32"}


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


_SOUND = Protocol("sound", n_splits=10, n_seeds=3, grouped=True)
PROTOCOLS = {
    "paper": Protocol("paper", n_splits=1, n_seeds=5),
    "sound": _SOUND,
    "sound-ungrouped": replace(_SOUND, name="sound-ungrouped", grouped=False),
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained; the CombU paper's appendix B unless said otherwise."""

    hidden: tuple[int, ...]
    epochs: int
    batch_size: int = 500
    learning_rate_init: float = 5e-4
    dropout: float = 0.1
    curve_block: int = 0  # epochs averaged to a point of the training curves; 0 keeps no curves


QUICK_RECIPE = Recipe(hidden=(16,), epochs=4)


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
    activation: str
    split: int
    seed: int

    @property
    def random_state(self) -> int:
        """Seed the network; the activations share it, as they share the split."""
        return 1000 * self.split + self.seed

    @property
    def settings(self) -> Row:
        """The columns that say which network this is, and how it is trained."""
        values = FIXED | asdict(self.recipe)
        values |= {"protocol": self.protocol.name, "data": self.source.name}
        values |= {n: getattr(self, n) for n in ("activation", "split", "seed", "random_state")}
        values |= {"task": self.source.task, "data_random_state": self.source.random_state}
        values["hidden"] = ",".join(map(str, self.recipe.hidden))
        del values["curve_block"]  # of the result
        return {name: str(value) for name, value in values.items()}

    def estimator(self) -> BaseMLP:
        """The unfitted network."""
        recipe = self.recipe
        kind = MLPClassifier if self.source.task == "classification" else MLPRegressor
        own = {"activation": self.activation, "hidden_layer_sizes": recipe.hidden, "alpha": 0.0}
        own |= {"max_iter": recipe.epochs, "n_iter_no_change": math.inf, "dropout": recipe.dropout}
        own |= {"batch_size": "paper" if recipe.batch_size == 500 else recipe.batch_size}
        own |= {"learning_rate_init": recipe.learning_rate_init, "random_state": self.random_state}
        own |= {"device": "cpu", "track_metric": bool(recipe.curve_block)}
        return kind(**estimator_recipe(self.source.task, **FIXED, **own))


PACKAGES = ("numpy", "sklearn", "pandas", "python", "cpu")
KEY = ("protocol", "data", "task", "activation", "split", "seed")
SCORES = ("mae", "mse", "r2", "accuracy", "f1", "log_loss", "roc_auc")
SETTINGS = (
    *(*KEY, "epochs", "random_state", "data_random_state", "hidden", "batch_size"),
    *("learning_rate_init", "dropout", "normalization", "proxy_norm", "precision"),
)
RESULTS = (
    *("n_train", "n_test", *SCORES, "target_std_train", "target_std_all"),
    *("seconds", "error", "loss_curve", "metric_curve", "curve_block", "device"),
)


def make_fits(
    sources: Iterable[Source],
    protocols: Collection[Protocol],
    activations: Collection[str],
    recipe: Recipe | None = None,
    curve_block: int = 0,
) -> list[Fit]:
    """All fits of a study: by data set, protocol, split, activation and seed.

    ``recipe`` replaces the paper's rule for all data sets.
    """
    return [
        Fit(source, protocol, settled, activation, split, seed)
        for source in sources
        for settled in [recipe or paper_recipe(len(source.load()[0]))]
        for settled in [replace(settled, curve_block=curve_block)]
        for protocol in protocols
        for split in range(protocol.n_splits)
        for activation in activations
        for seed in range(protocol.n_seeds)
    ]


def fit_jobs(fits: Iterable[Fit]) -> Iterator[Job]:
    """Jobs of at most `CHUNK` fits that share their rows and recipe."""
    for _, group in groupby(fits, lambda f: (f.source, f.protocol, f.recipe, f.split)):
        together = list(group)
        for start in range(0, len(together), CHUNK):
            chunk = together[start : start + CHUNK]
            yield Job([fit.settings for fit in chunk], train_chunk, chunk)


def train_chunk(fits: Sequence[Fit]) -> list[Row]:
    """Train networks that share their rows as stacks, and score them."""
    source = fits[0].source
    X, y = source.load()
    train, test = fits[0].protocol.splits(source)[fits[0].split]
    tasks = [FitTask(fit.estimator(), X.iloc[train], y.iloc[train], data_key=0) for fit in fits]
    rows = []
    for fit, task, outcome in zip(fits, tasks, fit_all(tasks), strict=True):
        values = scored(task, outcome, X.iloc[test], y.iloc[test], y.iloc[train])
        if "error" not in values and source.task == "regression":
            values["target_std_all"] = float(np.std(y))
        if "error" not in values and fit.recipe.curve_block:
            values |= _curves(task.estimator.history_, fit.recipe.curve_block, source.task)
        rows.append(values | {"device": "cpu"})
    return rows


def fit_all(tasks: Sequence[FitTask]) -> list[FitOutcome]:
    """Fit networks as stacks, and other estimators alone.

    An interrupt, which a fit turns into an early end, is one here.
    """
    networks = [task for task in tasks if isinstance(task.estimator, BaseMLP)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of epochs, and of what diverged: the rows have it
        warnings.filterwarnings("error", message="Training interrupted")
        try:
            stacked = fit_stacked(networks, n_jobs=1) if networks else ()
            found = dict(zip(map(id, networks), stacked, strict=True))
            return [found.get(id(task)) or _fit_alone(task) for task in tasks]
        except UserWarning as interrupted:
            raise KeyboardInterrupt from interrupted


def _fit_alone(task: FitTask) -> FitOutcome:
    started, error = time.perf_counter(), None
    try:
        task.estimator.fit(task.X, task.y)
    except ValueError as failure:
        error = failure
    return FitOutcome(time.perf_counter() - started, error)


def scored(
    task: FitTask, outcome: FitOutcome, X: pd.DataFrame, y: pd.Series, y_train: pd.Series
) -> Row:
    """The results of a fit.

    What diverged, in training or in its predictions, or learned from rows of one class has
    ``error``; other errors are raised.
    """
    row = {"n_train": len(task.y), "n_test": len(y), "seconds": round(outcome.seconds, 3)}
    try:
        if outcome.error is not None:
            raise outcome.error
        return row | score(task.estimator, X, y, y_train)
    except ValueError as error:
        if not re.search("finite|diverged|class", str(error)):
            raise
        return row | {"error": " ".join(str(error).split())}


def score(net: object, X: pd.DataFrame, y: pd.Series, y_train: pd.Series) -> dict[str, object]:
    """Scores of a fitted estimator; errors in standard deviations of the training rows' target."""
    if is_classifier(net):
        scores = score_classifier(net, X, np.asarray(y))
        scores["f1"] = scores["f1_macro"]  # the paper's
    else:
        scale = float(np.std(y_train))
        scores = score_regressor(net, X, np.asarray(y), target_std=scale)
        scores["target_std_train"] = scale
    return {name: scores[name] for name in (*SCORES, "target_std_train") if name in scores}


def _curves(history: pd.DataFrame, block: int, task: str) -> dict[str, object]:
    """Means over blocks of epochs; the loss of a regression as the squared error, not its half."""
    means = history.groupby((history["epoch"] - 1) // block)[["train_loss", "train_metric"]].mean()
    if task == "regression":
        means["train_loss"] *= 2.0
    loss, metric = (" ".join(f"{value:.4g}" for value in means[name]) for name in means)
    return {"loss_curve": loss, "metric_curve": metric, "curve_block": block}


def combu_study(
    table: Table,
    doc: str,
    sources: Callable[[bool, str | None], Sequence[Source]],
    write: Callable[..., None],
    default: Sequence[str] = tuple(PROTOCOLS),
    curve_block: int = 0,
) -> Study:
    """A study of this paper, to be run from the command line as the module of the table's name.

    ``sources(quick, data_home)`` gives its data sets, ``write(page, arguments, rows)`` fills its
    page; ``default`` names the protocols that run unless ``--protocols`` says otherwise.
    """

    def jobs(arguments: Arguments) -> Iterator[Job]:
        quick, known = arguments.quick, sources(arguments.quick, arguments.data_home)
        wanted = [PROTOCOLS[name] for name in arguments.protocols]
        fits = make_fits(
            [source for source in known if source.name in arguments.data],
            [replace(p, n_splits=min(2, p.n_splits), n_seeds=2) if quick else p for p in wanted],
            arguments.activations,
            QUICK_RECIPE if quick else None,
            curve_block,
        )
        return fit_jobs(fits)

    chosen = {"protocols": (PROTOCOLS, default), "activations": (KNOWN, list(ACTIVATIONS))}
    options: dict[str, Any] = {"data": tuple(table.data)}
    for name, (choices, own) in chosen.items():
        options[name] = {"nargs": "+", "choices": choices, "metavar": "NAME", "default": own}
    module = f"benchmarks.papers.combu.{table.name}"
    return Study(module, table.title, doc, [experiment(table.name, jobs)], write, options)


def experiment(name: str, jobs: Callable[[Arguments], Iterable[Job]]) -> Experiment:
    """The file of a study's rows."""
    return Experiment(name, SETTINGS, RESULTS, jobs, KEY, PACKAGES)
