"""Tables and activations of the studies; how rows are split, and networks trained and scored."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from benchmarks.common import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import score
from benchmarks.quality.predictions import split_rows
from combutab.datasets import list_feynman
from combutab.estimators import BaseMLP, FitTask, fit_stacked

REFERENCE = "combu"  # the default
SINGLE = (REFERENCE, "relu", "selu", "mish", "gelu", "pln-8", "la-silu", "snake", "rational")
CLASSES = ("diabetes", "wdbc", "breast-w", "PhishingWebsites")
OPENML = (*CLASSES, "boston", "autoMpg", "california_housing", "wine_quality")
N_EQUATIONS = 30
N_SAMPLES = 5000  # drawn from an equation
MOST_TRAIN, MOST_TEST = 400, 1000  # rows
TINY = {"max_iter": 2, "hidden_layer_sizes": (8, 8)}  # networks of quick forms

Side = tuple[pd.DataFrame, pd.Series]


@lru_cache
def equations(data_home: str | None) -> tuple[str, ...]:
    """Every fourth of the 120 Feynman equations in the order of their list, from the first."""
    names = list(list_feynman(data_home)["name"])
    return tuple(names[:: len(names) // N_EQUATIONS])


def source(name: str, data_home: str | None) -> Source:
    """One of the eight tables, or rows drawn from a Feynman equation."""
    task = "classification" if name in CLASSES else "regression"
    kind = "openml" if name in OPENML else "feynman"
    return Source(kind, name, task, N_SAMPLES, data_home=data_home)


def rows_of(table: Source, split: int, most: int = MOST_TRAIN) -> tuple[Side, Side]:
    """Training and test rows, 4:1, equal ones on one side."""
    X, y = table.load()
    train, test = split_rows(X, split, most)
    return (X.iloc[train], y.iloc[train]), (X.iloc[test[:MOST_TEST]], y.iloc[test[:MOST_TEST]])


def fitted(nets: Sequence[Any], X: Any, y: Any) -> list[Exception | None]:
    """Fit all to the same rows, in stacks where they can be; what went wrong, for each.

    An interrupt ends the program.
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


def scores(net: Any, failure: Exception | None, train: Side, test: Side) -> dict[str, object]:
    """What a row has of an estimator; ``loss`` is the log loss, or the RMSE.

    The row of one that diverged, in training or in its predictions, has ``error``; other errors are
    raised.
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
    return {**found, "epochs": net.n_iter_}


def outcomes(
    nets: Sequence[Any], train: Side, test: Side, columns: Sequence[str], **more: object
) -> list[Row]:
    """Train and score estimators: the results of each one's row.

    ``cpu_seconds`` are the processor seconds of all, divided by their number.
    """
    started = time.process_time()
    failures = fitted(nets, *train)
    shared: dict[str, object] = {"n_train": len(train[1]), "n_test": len(test[1]), **more}
    shared["cpu_seconds"] = (time.process_time() - started) / len(nets)
    rows = []
    for net, failure in zip(nets, failures, strict=True):
        found = shared | scores(net, failure, train, test)
        weights = getattr(net, "activation_weights_", {})
        found["chosen"] = " ".join(f"{name}:{w:.4g}" for name, w in weights.items() if w)
        rows.append({name: found.get(name) for name in columns})
    return rows
