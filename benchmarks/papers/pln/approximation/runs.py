"""What is trained for the PLN paper's approximation study, and the training of a stack of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch

from benchmarks.common.results import Row
from benchmarks.papers.pln.shared import combinations, row_of, trained
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import MemberPlan, OptimizerConfig, Rows, TrainConfig, make_regression_loss

LOW, HIGH = -5.0, 5.0
GRID = np.linspace(LOW, HIGH, 1001)  # where the error between the training points is measured
CURVE = np.linspace(LOW, HIGH, 101)  # where a fit that is kept is drawn
FIT_WIDTH = 16  # of Figure 5
FITS = ("sigmoid", "tanh", "relu", "pln-4", "pls-2", "combu")
KEY = ("data", "stage", "width", "activation", "solver", "batch_size", "learning_rate", "seed")
SETTINGS = (*KEY, "n_points", "epochs")
STACK = ("data", "stage", "width", "solver", "batch_size")  # what the networks of a stack share
MEASURED = ("tail_mse", "mse", "grid_mse", "sup_error")
RESULTS = (*MEASURED, "error", "core_seconds", "curve")


@dataclass(frozen=True)
class Target:
    """A function on [-5, 5], the points it is learned from, and how often these are seen."""

    label: str
    function: Callable[[np.ndarray], np.ndarray]
    lipschitz: float
    points: np.ndarray
    epochs: int


def _trigonometric(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x + 1) + np.cos(x)


_X = np.linspace(LOW, HIGH, 21)  # Eq. 61, and straight lines between its points
_Y = 2 * np.random.default_rng(0).random(21) - 1
_STEEPEST = float(np.abs(np.diff(_Y)).max() / np.diff(_X)[0])
_EVEN = np.linspace(LOW, HIGH, 51)
TARGETS = {
    "trigonometric": Target("sin(2x + 1) + cos(x)", _trigonometric, 3.0, _EVEN, 400),
    "random": Target("random values", lambda x: np.interp(x, _X, _Y), _STEEPEST, _X, 1000),
}
FAMILIES = {
    "PLN": tuple(f"pln-{size}" for size in (2, 4, 8, 16, 32)),
    "PLS": tuple(f"pls-{size}" for size in (1, 2, 4, 8, 16, 32)),
}
CLASSIC = ("sigmoid", "tanh", "relu")  # of Figure 4
FURTHER = ("gelu", "nlrelu", "combu", "la-silu")  # not in the paper
ACTIVATIONS = (*FAMILIES["PLN"], *FAMILIES["PLS"], *CLASSIC, *FURTHER)

SIZES = {
    "width": (8, 16, 64, 256, 1024, 4096),
    "data": list(TARGETS),
    "solver": ("adam", "sgd"),
    "batch_size": (4, 16),
    "activation": ACTIVATIONS,
    "learning_rate": (1e-1, 1e-2, 1e-3, 1e-4),
    "seed": [0],
    "epochs": [1.0],  # the share of the targets' own that is trained
}
SEARCHED, N_FINALISTS, FINAL_SEEDS = 0.2, 3, (1, 2, 3, 4, 5)  # searched: of the epochs


def norm_size(activation: str) -> int:
    """Units in a group: d of "pln-d" and "pls-d", 1 for what acts on single units."""
    kind, _, size = activation.partition("-")
    return int(size) if kind in ("pln", "pls") else 1


def search(sizes: Mapping[str, Iterable[object]]) -> pd.DataFrame:
    """Every setting once, for a part of the epochs."""
    every = combinations(**sizes)
    every = every[every["activation"].map(norm_size) <= every["width"]]
    return _staged(every, "search", SEARCHED * every["epochs"])


def finals(sizes: Mapping[str, Iterable[object]], rows: pd.DataFrame) -> pd.DataFrame:
    """Each activation's settings that ended the search best, from new seeds.

    Several: what is ahead early need not be ahead in the end. ``rows`` of the search: as text.
    """
    tried = search(sizes).astype(str).merge(rows[[*KEY, "tail_mse"]], how="left")
    tried["tail_mse"] = tried["tail_mse"].astype(float)
    tried["cell"] = tried.groupby(["width", "data", "activation"], sort=False).ngroup()
    best = tried.sort_values(["cell", "tail_mse"]).groupby("cell").head(N_FINALISTS)
    runs = best.drop(columns="seed").merge(pd.DataFrame({"seed": FINAL_SEEDS}), how="cross")
    return _staged(runs, "final", *sizes["epochs"])


def _staged(runs: pd.DataFrame, stage: str, share: float | pd.Series) -> pd.DataFrame:
    own, points = (
        runs["data"].map({name: value(target) for name, target in TARGETS.items()})
        for value in (lambda target: target.epochs, lambda target: len(target.points))
    )
    epochs = (own * share).round().clip(lower=2).astype(int)
    return runs.assign(stage=stage, n_points=points, epochs=epochs)[list(SETTINGS)]


def train(stack: Sequence[Row]) -> list[Row]:
    """Train the networks of one stack, those of one activation side by side, and measure them."""
    first, target = stack[0], TARGETS[stack[0]["data"]]
    width, epochs = int(first["width"]), int(first["epochs"])
    members = [Member(int(row["seed"]), row["activation"]) for row in stack]
    everything = torch.arange(len(target.points))
    config = TrainConfig(
        loss=make_regression_loss("squared_error", ()),
        # NOTE[DIFF]: the paper says "SGD"; we take it without momentum, as torch's default is
        optimizer=OptimizerConfig(first["solver"], momentum=0.0, nesterov=False),
        batch_size=int(first["batch_size"]),
        max_epochs=epochs,
        n_iter_no_change=math.inf,
    )
    started = time.process_time()
    net, results = trained(
        partial(StackedMLP, MLPSpec(n_dense=1, hidden=(width,), n_outputs=1), members),
        Rows(_column(target.points), _column(target.function(target.points))),
        [MemberPlan(int(row["seed"]), everything, float(row["learning_rate"])) for row in stack],
        config,
    )
    seconds, rows = f"{(time.process_time() - started) / len(stack):.3g}", []
    found = zip(stack, results, _errors(net, target), _outputs(net, CURVE), strict=True)
    for run, result, errors, curve in found:
        row = dict.fromkeys(RESULTS, "") | {"core_seconds": seconds}
        if result.reason == "diverged" or not np.isfinite(errors[-1]):
            row["error"] = f"diverged in epoch {result.epochs}"
        else:
            tail = 2 * np.mean(result.train_loss[-max(1, epochs // 10) :])  # of half the square
            row |= row_of(MEASURED, tail, *errors)
            if run["stage"] == "final" and width == FIT_WIDTH and run["activation"] in FITS:
                row["curve"] = " ".join(f"{value:.3f}" for value in curve)
        rows.append(row)
    return rows


def _errors(net: StackedMLP, target: Target) -> np.ndarray:  # (M, 3)
    """Mean squares at the training points and between them, and the greatest error."""
    with np.errstate(over="ignore", invalid="ignore"):  # of networks that diverged
        at_points, on_grid = (_outputs(net, x) - target.function(x) for x in (target.points, GRID))
        squares = [np.square(errors).mean(1) for errors in (at_points, on_grid)]
        return np.stack([*squares, np.abs(on_grid).max(1)], axis=1)


def _outputs(net: StackedMLP, x: np.ndarray) -> np.ndarray:  # (n,) -> (M, n)
    return net.predict(_column(x), None, chunk=64)[..., 0].numpy()


def _column(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))[:, None]
