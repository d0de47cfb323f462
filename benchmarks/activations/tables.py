"""Tables and activations of the studies; how rows are split, and networks trained and scored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from benchmarks.common import Row
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import fit_all, scored
from benchmarks.quality.predictions import split_rows
from combutab.datasets import list_feynman
from combutab.estimators import FitTask

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


def outcomes(
    nets: Sequence[Any], train: Side, test: Side, columns: Sequence[str], **more: object
) -> list[Row]:
    """Train and score estimators: the results of each one's row.

    ``cpu_seconds`` are the processor seconds of all, divided by their number.
    """
    started = time.process_time()
    tasks = [FitTask(net, *train, 0) for net in nets]
    fits = fit_all(tasks)
    shared = {"cpu_seconds": (time.process_time() - started) / len(nets), **more}
    rows = []
    for task, outcome in zip(tasks, fits, strict=True):
        found, net = shared | scored(task, outcome, *test, train[1]), task.estimator
        if "error" not in found:  # the loss is the log loss, or the RMSE
            loss = found["log_loss"] if "log_loss" in found else found["mse"] ** 0.5
            found |= {"loss": loss, "epochs": net.n_iter_}
        weights = getattr(net, "activation_weights_", {})
        found["chosen"] = " ".join(f"{name}:{w:.4g}" for name, w in weights.items() if w)
        rows.append({name: found.get(name) for name in columns})
    return rows
