"""The LayerAct paper's Tables 1, 2, 4 to 6 and 15 to 23, on tables: accuracy, clean and corrupted.

    python -m benchmarks.papers.layeract.robustness [--quick] [--report] [--out FOLDER]

CIFAR and ImageNet give way to four classification sets of OpenML and scikit-learn's digits, CIFAR-C
to `combutab.evaluation.robustness`, ResNets to perceptrons. The sets come from OpenML, or from CSV
files in --data-home (or COMBUTAB_DATA). All activations and seeds of a set and normalisation train
as one stack. A run that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import math
import platform
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit

from benchmarks.machine import processor
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.results import Row
from benchmarks.papers.layeract.robustness_numbers import ELEMENT_LEVEL, LAYER_LEVEL, NAME, OTHERS
from benchmarks.papers.layeract.robustness_report import NORMS, write_page
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import CORRUPTIONS, robustness

DATA = ("diabetes", "breast-w", "wdbc", "PhishingWebsites", "digits")
ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, *OTHERS)
TEST_SIZE = 0.2
KEY = ("data", "normalization", "activation", "seed")
SETTINGS = ("n_rows", "hidden", "epochs", "batch_size", "learning_rate_init", "severities")
RESULTS = (
    *("clean", "corrupted", *CORRUPTIONS, *(f"severity_{level}" for level in range(1, 6))),
    *("n_train", "n_test", "error", "python", "cpu"),
)
Table = tuple[pd.DataFrame, pd.Series]


@dataclass(frozen=True)
class Plan:
    """How the networks are trained and judged; a random subset of larger sets keeps it short."""

    hidden: tuple[int, ...] = (64, 64, 64)
    epochs: int = 30
    batch_size: int = 64
    learning_rate_init: float = 1e-3
    severities: tuple[int, ...] = (1, 3, 5)
    n_rows: int = 2000
    n_seeds: int = 10

    def settings(self, *key: object) -> Row:
        """What must be the same for a run to go on."""
        values = dict(zip(KEY, key, strict=True)) | {name: getattr(self, name) for name in SETTINGS}
        return {
            name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in values.items()
        }


QUICK = Plan(hidden=(16, 16), epochs=3, severities=(3,), n_rows=200, n_seeds=2)


def load(data: str, n_rows: int, data_home: str | None) -> Table:
    """Features and target of a set, a random subset where it has more rows."""
    if data != "digits":
        return Source("openml", data, "classification", limit=n_rows, data_home=data_home).load()
    X, y = load_digits(return_X_y=True, as_frame=True)
    kept = X.sample(min(n_rows, len(X)), random_state=0).index
    return X.loc[kept].reset_index(drop=True), y.loc[kept].reset_index(drop=True)


def split(X: pd.DataFrame, y: pd.Series, seed: int) -> tuple[Table, Table]:
    """Training and test rows of a seed; rows that are equal stay on one side."""
    groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False).ngroup()
    splitter = GroupShuffleSplit(1, test_size=TEST_SIZE, random_state=seed)
    train, test = next(splitter.split(X, groups=groups))
    return (X.iloc[train], y.iloc[train]), (X.iloc[test], y.iloc[test])


def train_and_judge(
    data: str, norm: str, activations: Sequence[str], plan: Plan, data_home: str | None
) -> list[Row]:
    """All activations and seeds of a set and normalisation: a stack that trains, then the scores.

    A seed is a split and the initial weights of its networks; the activations share them.
    """
    warnings.filterwarnings("ignore", message="Got `batch_size`")
    X, y = load(data, plan.n_rows, data_home)
    splits = [split(X, y, seed) for seed in range(plan.n_seeds)]
    tasks = {
        (seed, activation): FitTask(
            MLPClassifier(
                activation=activation,
                normalization=norm,
                hidden_layer_sizes=plan.hidden,
                max_iter=plan.epochs,
                n_iter_no_change=math.inf,
                batch_size=plan.batch_size,
                learning_rate_init=plan.learning_rate_init,
                alpha=0.0,
                random_state=seed,
            ),
            *splits[seed][0],
            data_key=seed,
        )
        for seed, activation in product(range(plan.n_seeds), activations)
    }
    outcomes = dict(zip(tasks, fit_stacked(list(tasks.values())), strict=True))
    rows = {}
    for seed, ((X_train, _), (X_test, y_test)) in enumerate(splits):
        errors = {name: outcomes[seed, name].error for name in activations}
        fitted = {name: tasks[seed, name].estimator for name in activations if not errors[name]}
        found = _judge(fitted, X_train, X_test, y_test, plan.severities, seed)
        for name, error in errors.items():
            if error and not isinstance(error, ValueError):
                raise error
            row = dict.fromkeys(RESULTS, "")
            row |= {score: f"{value:.6g}" for score, value in found.get(name, {}).items()}
            row |= {"n_train": str(len(X_train)), "n_test": str(len(X_test))}
            row |= {"python": platform.python_version(), "cpu": processor()}
            rows[name, seed] = row | {"error": " ".join(str(error or "").split())}
    return [rows[key] for key in product(activations, range(plan.n_seeds))]


def _judge(
    fitted: dict[str, MLPClassifier],
    X_train: pd.DataFrame,
    X_test: pd.DataFrame,
    y_test: pd.Series,
    severities: Sequence[int],
    seed: int,
) -> dict[str, dict[str, float]]:
    """Accuracies by activation: clean, over all corruptions, of each, and by severity."""
    if not fitted:
        return {}
    result = robustness(
        fitted, X_test, y_test, severities=severities, X_reference=X_train, random_state=seed
    )
    wrong = result.scores[result.scores["severity"] > 0]
    scores = result.summary.set_index("estimator")[["clean", "corrupted"]]
    for column in ("corruption", "severity"):
        means = wrong.groupby(["estimator", column])["score"].mean().unstack()
        names = means.columns if column == "corruption" else [f"severity_{s}" for s in means]
        scores = scores.join(means.set_axis(names, axis=1))
    return scores.to_dict("index")


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """A stack for each set and normalisation."""
    plan, data, activations = Plan(), arguments.data, ACTIVATIONS
    if arguments.quick:
        plan, data, activations = QUICK, ["breast-w", "digits"], ("relu", "silu", *LAYER_LEVEL)
    for name, norm in product(data, NORMS):
        members = product(activations, range(plan.n_seeds))
        wanted = [plan.settings(name, norm, activation, seed) for activation, seed in members]
        run = partial(train_and_judge, name, norm, activations, plan, arguments.data_home)
        yield Job(wanted, run, f"{name}, {NORMS[norm]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")


STUDY = Study(
    NAME,
    "LayerAct: accuracies on clean and corrupted tables",
    __doc__.splitlines()[0],
    "benchmarks.papers.layeract.robustness",
    [Experiment(NAME, (*KEY, *SETTINGS), RESULTS, jobs, KEY)],
    write_page,
    add_arguments,
)

if __name__ == "__main__":
    STUDY.main()
