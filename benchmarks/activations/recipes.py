"""Which activation, in strong recipes: does the choice still matter once the recipe is good?

    python -m benchmarks.activations.recipes [--quick] [--data-home FOLDER] [--stages NAME ...]
        [--splits 10] [--jobs N] [--report]

Ten activations and blends of them in the default recipe, packs, TabM and the CombU paper's plain
network; beside them the default recipe without each of its parts, and with twice its time. What is
run, and by which rule the budget cuts it, is in plan.py and on the page. A run that was stopped
goes on where it stood. Data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

from benchmarks.activations.plan import N_SPLITS, PARTS, PLAN, SINGLE, STAGES
from benchmarks.activations.recipes_report import write
from benchmarks.activations.tables import FORMULAS, MOST_TRAIN, OPENML, equations, rows_of, source
from benchmarks.common.command import Experiment, Job, Study
from benchmarks.common.results import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import as_text, score
from combutab import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
    paper_recipe,
)
from combutab.estimators import BaseMLP, FitTask, fit_stacked


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: an estimator, and what it is given beside its activation."""

    kinds: tuple[type, type]  # classifier, regressor
    changes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    settings: Callable[..., dict[str, Any]] = lambda task, **changes: changes

    def make(self, task: str, activation: str, **changes: Any) -> Any:
        """The unfitted estimator."""
        if issubclass(self.kinds[0], PackClassifier):
            changes["activations"] = SINGLE if activation == "mix" else (activation,)
        else:
            changes["activation"] = activation
        kind = self.kinds[task == "regression"]
        return kind(**self.settings(task, **{**self.changes, **changes}))


_MLP = MLPClassifier, MLPRegressor
_ONE = {"n_members": 1}
RECIPES = {
    "default": Recipe(_MLP, _ONE),
    "paper": Recipe(_MLP, settings=paper_recipe),
    "TabM": Recipe(
        (TabMClassifier, TabMRegressor), {"n_heads": 8, "hidden_layer_sizes": (128, 128)}
    ),
    "pack": Recipe(  # of networks alone
        (PackClassifier, PackRegressor),
        {"n_members": len(SINGLE), "n_jobs": 1, "cv": None, "boosting": False},
    ),
    **{name: Recipe(_MLP, {**_ONE, **changes}) for name, changes in PARTS.items()},
}


KEY = ("kind", "data", "recipe", "activation", "split")
SETTINGS = (*KEY, "task", "most_train")
RESULTS = ("n_train", "n_test", "loss", "mae", "r2", "accuracy", "f1", "roc_auc", "epochs")
RESULTS += ("chosen", "error")
_TINY = {"max_iter": 2, "hidden_layer_sizes": (8, 8)}
QUICK: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("default", "paper", *PARTS), _TINY),
    "TabM": {**_TINY, "n_heads": 2, "n_bins": 4},
    "pack": {"max_iter": 2, "n_members": 3, "member_params": {"hidden_layer_sizes": (8,)}},
}


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """A job for each recipe, table and split of a stage, in rounds."""
    quick, home = arguments.quick, arguments.data_home
    tables = {"openml": OPENML, "formula": FORMULAS, "feynman": ()}
    if "equations" in arguments.stages or "mixes" in arguments.stages:
        tables["feynman"] = equations(home)
    if quick:
        tables = {kind: names[:1] for kind, names in tables.items()} | {
            "openml": ("wdbc", "boston")
        }
    most = 2 if quick else arguments.splits
    for turn in range(max(stage.begins for stage in PLAN) + most):
        for stage in PLAN:
            split = turn - stage.begins
            n_splits = 1 if quick else min(most, stage.n_splits)
            if stage.name not in arguments.stages or not 0 <= split < n_splits:
                continue
            for recipe, kind in product(stage.recipes, stage.kinds):
                for name in tables[kind]:
                    table = source(kind, name, home)
                    yield _job(table, recipe, stage.activations, split, quick)


def _job(table: Source, recipe: str, activations: Sequence[str], split: int, quick: bool) -> Job:
    shared = {"kind": table.kind, "data": table.name, "recipe": recipe, "task": table.task}
    shared |= {"split": str(split), "most_train": str(60 if quick else MOST_TRAIN)}
    wanted = [shared | {"activation": name} for name in activations]
    run = partial(run_networks, table, wanted, QUICK[recipe] if quick else {})
    return Job(wanted, run, f"split {split}, {recipe}, {table.name}")


def run_networks(table: Source, wanted: Sequence[Row], changes: Mapping[str, Any]) -> list[Row]:
    """Train the networks of one recipe, table and split; score them."""
    split, recipe = int(wanted[0]["split"]), RECIPES[wanted[0]["recipe"]]
    train, test = rows_of(table, split, int(wanted[0]["most_train"]))
    given = {"random_state": split, "device": "cpu", **changes}
    nets = [recipe.make(table.task, row["activation"], **given) for row in wanted]
    failures = fitted(nets, *train)
    rows = []
    for net, failure in zip(nets, failures, strict=True):
        values: dict[str, object] = {"n_train": len(train[1]), "n_test": len(test[1])}
        values |= scores(net, failure, test, train)
        rows.append(as_text({name: values.get(name, "") for name in RESULTS}))
    return rows


def scores(
    net: Any, failure: Exception | None, test: tuple[Any, Any], train: tuple[Any, Any]
) -> dict[str, object]:
    """What a row has of an estimator; ``loss`` is the log loss, or the RMSE.

    Of one that diverged, alone or in its predictions, ``error`` says so; all else is raised.
    """
    try:
        if failure is not None:
            raise failure
        found = score(net, *test, train[1])
    except ValueError as error:
        if not re.search("finite|diverged", str(error)):
            raise
        return {"error": " ".join(str(error).split())}
    found["loss"] = found["log_loss"] if "log_loss" in found else float(found["mse"]) ** 0.5
    weights = getattr(net, "activation_weights_", {})
    chosen = " ".join(f"{name}:{weight:.4g}" for name, weight in weights.items() if weight)
    return {**found, "epochs": net.n_iter_, "chosen": chosen}


def fitted(nets: Sequence[Any], X: Any, y: Any) -> list[Exception | None]:
    """Fit all to the same rows, in stacks where they can be; an interrupt ends the program.

    Returns what went wrong, for each.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of epochs, and of what diverged: the rows have it
        warnings.filterwarnings("error", message="Training interrupted")
        try:
            if isinstance(nets[0], BaseMLP):
                outcomes = fit_stacked([FitTask(net, X, y, 0) for net in nets], n_jobs=1)
                return [outcome.error for outcome in outcomes]
            return [_failure(net, X, y) for net in nets]
        except UserWarning as interrupted:
            raise KeyboardInterrupt from interrupted


def _failure(net: Any, X: Any, y: Any) -> Exception | None:
    try:
        net.fit(X, y)
    except ValueError as error:
        return error
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the studies of activations."""
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="at most (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data-home", help="folder of local copies of the data")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    add_arguments(parser)


STUDY = Study(
    name="activations_recipes",
    title="Which activation, in strong recipes",
    description=__doc__.splitlines()[0],
    module="benchmarks.activations.recipes",
    experiments=[
        Experiment(
            "activations_recipes", SETTINGS, RESULTS, jobs, KEY,
            packages=("numpy", "sklearn", "pandas", "python", "cpu"), parallel=True,
        )
    ],
    write=write,
    add_arguments=_add_arguments,
)  # fmt: skip

if __name__ == "__main__":
    STUDY.main()
