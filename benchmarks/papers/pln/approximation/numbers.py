"""Numbers of the approximation study: the losses that count, and what the propositions promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from benchmarks.papers.pln.approximation.runs import (
    ACTIVATIONS,
    CLASSIC,
    HIGH,
    LOW,
    N_GRID,
    TARGETS,
    norm_size,
)
from combutab.constructions import lipschitz_network

DIVERGED = 1.0  # the log loss that a network counts with that has none: more than zero's is
PROVED = ("pln-2", "pln-4", "pls-1", "pls-2", *CLASSIC)
CELL = ["data", "activation", "width"]
SETTING = ["solver", "batch_size", "learning_rate"]


def finals(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each activation's best setting at each width, by its median over the seeds.

    ``log_loss`` is the natural logarithm of the squared error at the training points.
    """
    rows = rows[rows["stage"] == "final"].copy()
    rows["log_loss"] = np.log(rows["mse"]).fillna(DIVERGED).clip(upper=DIVERGED)
    medians = rows.groupby([*CELL, *SETTING], sort=False)["log_loss"].median().reset_index()
    best = medians.loc[medians.groupby(CELL, sort=False)["log_loss"].idxmin()]
    order = {name: i for i, name in enumerate(ACTIVATIONS)}
    return rows.merge(best[[*CELL, *SETTING]]).sort_values(
        "activation", key=lambda names: names.map(order), kind="stable", ignore_index=True
    )


def cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Median and range over seeds by ``data``, ``activation`` and ``width``."""
    loss, sup = "log_loss", "sup_error"
    return (
        rows.groupby(CELL, sort=False)
        .agg(
            median=(loss, "median"),
            low=(loss, "min"),
            high=(loss, "max"),
            sup=(sup, "median"),
            sup_low=(sup, "min"),
            sup_high=(sup, "max"),
        )
        .reset_index()
    )


@dataclass(frozen=True)
class Reference:
    """What propositions 1 to 3 promise for a width, and the network of their proofs."""

    bound: float  # errors above it are reached for every such function
    sup: float
    log_loss: float


def reference(data: str, activation: str, width: int) -> Reference:
    """The error that N units suffice for, and the written-down network's own.

    floor(L / 2 epsilon) + 1 <= N for every epsilon > L / 2N: N = width / d groups of d units, or
    the width itself; ReLU has N + 1 units. L is that of the function on [0, 1], 10 times ours.
    """
    target, size = TARGETS[data], norm_size(activation)
    kind = activation.partition("-")[0]
    n = width - 1 if kind == "relu" else width // size
    lipschitz = (HIGH - LOW) * target.lipschitz
    network = lipschitz_network(
        lambda t: target.function(LOW + (HIGH - LOW) * t),
        lipschitz,
        lipschitz / (2 * n - 1),
        kind,
        norm_size=size if kind in ("pln", "pls") else None,
    )

    @torch.inference_mode()
    def errors(x: np.ndarray) -> np.ndarray:
        t = torch.from_numpy((x - LOW) / (HIGH - LOW))[:, None]
        return network(t)[:, 0].numpy() - target.function(x)

    return Reference(
        lipschitz / (2 * n),
        float(np.abs(errors(np.linspace(LOW, HIGH, N_GRID))).max()),
        math.log(np.square(errors(target.points())).mean()),
    )


def slope(widths: Sequence[float], errors: Sequence[float]) -> float:
    """Of the least-squares line through the logarithms; NaN for less than two finite errors."""
    x, y = np.log(np.asarray(widths, float)), np.log(np.asarray(errors, float))
    finite = np.isfinite(y)
    if finite.sum() < 2:
        return math.nan
    return float(np.polyfit(x[finite], y[finite], 1)[0])


def against_bounds(table: pd.DataFrame) -> pd.DataFrame:
    """`cells` of the activations with proofs, with the theory's errors beside the trained ones."""
    table = table[table["activation"].isin(PROVED)].reset_index(drop=True)
    theory = [reference(row.data, row.activation, int(row.width)) for row in table.itertuples()]
    return table.assign(
        bound=[found.bound for found in theory],
        constructed=[found.sup for found in theory],
        constructed_log_loss=[found.log_loss for found in theory],
    )
