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
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit

import combutab
from benchmarks.machine import describe_machine, processor
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.common.results import Row, Store
from benchmarks.papers.layeract.robustness_numbers import ELEMENT_LEVEL, LAYER_LEVEL, OTHERS
from benchmarks.papers.layeract.robustness_report import write_report
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import CORRUPTIONS, robustness

NAME = "layeract_robustness"
DATA = ("diabetes", "breast-w", "wdbc", "PhishingWebsites", "digits")
NORMALIZATIONS = ("batch", "layer", "none")
ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, *OTHERS)
TEST_SIZE = 0.2
SEVERITIES = (1, 3, 5)
KEY = ("data", "normalization", "activation", "seed")
SETTINGS = ("n_rows", "hidden", "epochs", "batch_size", "learning_rate_init", "severities")
COLUMNS = (
    *KEY,
    *("clean", "corrupted", *CORRUPTIONS, *(f"severity_{level}" for level in range(1, 6))),
    *("n_train", "n_test", "error", *SETTINGS, "combutab", "torch", "python", "cpu"),
)


@dataclass(frozen=True)
class Plan:
    """How the networks are trained and judged; a random subset of larger sets keeps it short."""

    hidden: tuple[int, ...] = (64, 64, 64)
    epochs: int = 30
    batch_size: int = 64
    learning_rate_init: float = 1e-3
    severities: tuple[int, ...] = SEVERITIES
    n_rows: int = 2000
    n_seeds: int = 10

    def settings(self, key: Sequence[object]) -> Row:
        """What must be the same for a run to go on."""
        values = {"hidden": self.hidden, "severities": self.severities}
        text = {name: ",".join(map(str, value)) for name, value in values.items()}
        for name in ("n_rows", "epochs", "batch_size", "learning_rate_init"):
            text[name] = str(getattr(self, name))
        return dict(zip(KEY, map(str, key), strict=True)) | text


QUICK = Plan(hidden=(16, 16), epochs=3, severities=(3,), n_rows=200, n_seeds=2)


def load(data: str, n_rows: int, data_home: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """Features and target of a set, a random subset where it has more rows."""
    if data != "digits":
        return Source("openml", data, "classification", limit=n_rows, data_home=data_home).load()
    X, y = load_digits(return_X_y=True, as_frame=True)
    kept = X.sample(min(n_rows, len(X)), random_state=0).index
    return X.loc[kept].reset_index(drop=True), y.loc[kept].reset_index(drop=True)


def split(
    X: pd.DataFrame, y: pd.Series, seed: int
) -> tuple[tuple[pd.DataFrame, pd.Series], tuple[pd.DataFrame, pd.Series]]:
    """Training and test rows of a seed; rows that are equal stay on one side."""
    groups = X.groupby(list(X.columns), dropna=False, observed=True, sort=False).ngroup()
    splitter = GroupShuffleSplit(1, test_size=TEST_SIZE, random_state=seed)
    train, test = next(splitter.split(X, groups=groups))
    return (X.iloc[train], y.iloc[train]), (X.iloc[test], y.iloc[test])


def train_and_judge(
    data: str,
    normalization: str,
    activations: Sequence[str],
    seeds: Sequence[int],
    plan: Plan,
    data_home: str | None,
) -> list[Row]:
    """All activations and seeds of a set and normalisation: a stack that trains, then the scores.

    A seed is a split and the initial weights of its networks; the activations share them.
    """
    X, y = load(data, plan.n_rows, data_home)
    splits = {seed: split(X, y, seed) for seed in seeds}
    tasks = {
        (seed, activation): FitTask(
            MLPClassifier(
                activation=activation,
                normalization=normalization,
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
        for seed, activation in product(seeds, activations)
    }
    outcomes = dict(zip(tasks, fit_stacked(list(tasks.values())), strict=True))
    rows = []
    for seed in seeds:
        (X_train, _), (X_test, y_test) = splits[seed]
        errors = {name: outcomes[seed, name].error for name in activations}
        fitted = {name: tasks[seed, name].estimator for name in activations if not errors[name]}
        found = _judge(fitted, X_train, X_test, y_test, plan.severities, seed)
        for name in activations:
            if errors[name] and not isinstance(errors[name], ValueError):
                raise errors[name]
            values = {"n_train": len(X_train), "n_test": len(X_test), **_versions()}
            values["error"] = " ".join(str(errors[name] or "").split())
            values |= {score: f"{value:.6g}" for score, value in found.get(name, {}).items()}
            text = {column: str(value) for column, value in values.items()}
            rows.append(
                dict.fromkeys(COLUMNS, "") | text | plan.settings((data, normalization, name, seed))
            )
    return rows


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


def _versions() -> Row:
    return {
        "combutab": combutab.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": processor(),
    }


def chunks(
    missing: Sequence[tuple[str, str, str, int]],
) -> Iterator[tuple[str, str, list[str], list[int]]]:
    """What is not there yet, as stacks: a set, a normalisation, activations, seeds."""
    table = pd.DataFrame(missing, columns=list(KEY))
    for (data, normalization), part in table.groupby(["data", "normalization"], sort=False):
        by_seed = part.groupby("seed", sort=False)["activation"].agg(tuple)
        for activations, seeds in by_seed.groupby(by_seed, sort=False):
            yield data, normalization, list(activations), list(seeds.index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two sets of 200 rows, 4 activations")
    parser.add_argument("--report", action="store_true", help="train nothing, write the report")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    plan, data, activations = Plan(), arguments.data, ACTIVATIONS
    if arguments.quick:
        if arguments.out == parser.get_default("out"):
            sys.exit("--quick writes no results of meaning: choose a folder for them with --out")
        plan, data, activations = QUICK, ["breast-w", "digits"], ("relu", "silu", *LAYER_LEVEL)
    print(describe_machine(), flush=True)
    store = Store(arguments.out / f"{NAME}.csv", COLUMNS, KEY)
    keys = list(product(data, NORMALIZATIONS, activations, range(plan.n_seeds)))
    if not arguments.report:
        warnings.filterwarnings("ignore", message="Got `batch_size`")
        with store.open([plan.settings(key) for key in keys]) as journal:
            missing = [key for key in keys if not journal.has(plan.settings(key))]
            if missing:
                print(f"{len(missing)} of {len(keys)} networks to go", flush=True)
            started, cpu = time.monotonic(), time.process_time()
            for chunk in chunks(missing):
                journal.add(train_and_judge(*chunk, plan, arguments.data_home))
                minutes = (time.monotonic() - started) / 60
                core = (time.process_time() - cpu) / 60
                print(f"{chunk[0]}, {chunk[1]}: {minutes:.1f} min, {core:.1f} of CPU", flush=True)
    words = [f"python benchmarks/{NAME}.py", *["--quick"] * arguments.quick]
    write_report(store.read(), arguments.out, " ".join(words))


if __name__ == "__main__":
    main()
