"""A study's search, 7 activations x 5 folds x 5 seeds: one stack, or one fit after another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold

from benchmarks.speed.common import synchronize, wall
from benchmarks.speed.gpu_parts.timing import Line
from benchmarks.speed.peers import BATCH, fixed_epochs, skorch_net
from combutab import MLPClassifier, StackedGridSearchCV

ACTIVATIONS = ["relu", "elu", "selu", "silu", "nlrelu", "gelu", "combu"]
FOLDS, SEEDS, DROPOUT, N_HIDDEN = 5, 5, 0.1, 5
TARGET, TOLERANCE = 30.0, 1e-2


def make(activation: str, device: torch.device, epochs: int, width: int) -> MLPClassifier:
    """The paper's network: six linear layers."""
    own = {"batch_size": BATCH, "dropout": DROPOUT, "random_state": 0, "device": device}
    own["activation"] = activation
    hidden = (width,) * N_HIDDEN
    return MLPClassifier(**fixed_epochs("classification", hidden, epochs, **own))


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds on the wall."""

    def run_all() -> None:
        run()
        synchronize(device)

    synchronize(device)
    return wall(run_all)


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """The whole search as stacks, and samples of single fits, times their number."""
    epochs, n_rows, width = (2, 100, 8) if quick else (200, 5000, 256)
    activations, seeds = (ACTIVATIONS[-2:], 2) if quick else (ACTIVATIONS, SEEDS)
    X, y = make_classification(n_rows, 20, n_informative=10, random_state=0)
    X = X.astype(np.float32)
    rows, _ = next(StratifiedKFold(FOLDS).split(X, y))
    wrong = 0.0
    for activation in activations:
        curves = [
            np.array(make(activation, d, 4, width).fit(X[rows], y[rows]).loss_curve_)
            for d in (device, torch.device("cpu"))
        ]
        wrong = max(wrong, float(np.abs(curves[0] / curves[1] - 1).max()))
    grid = {"activation": activations, "random_state": list(range(seeds))}
    n_fits = len(activations) * FOLDS * seeds
    what = f"{len(activations)} activations x {FOLDS} folds x {seeds} seeds, {epochs} epochs"

    def search() -> None:
        model = make("relu", device, epochs, width)
        StackedGridSearchCV(model, grid, cv=FOLDS, refit=False).fit(X, y)

    ours = statistics.median(timed(search, device) for _ in range(2))
    yield Line(
        "search", what, "stacks", ours, "s", difference=wrong, tolerance=TOLERANCE,
        note=f"{n_fits} networks",
    ).judged()  # fmt: skip
    singles: dict[str, Callable[[str], object]] = {
        "one fit at a time": lambda a: make(a, device, epochs, width).fit(X[rows], y[rows])
    }
    if find_spec("skorch"):
        shape = X.shape[1], (width,) * N_HIDDEN, 2
        singles["skorch, one fit at a time"] = lambda a: skorch_net(
            "NeuralNetClassifier", epochs, *shape, device=device, activation=a, dropout=DROPOUT
        ).fit(X[rows], y[rows])
    else:
        yield Line("search", what, "skorch, one fit at a time", math.nan, "s",
                   note="skorch is not installed")  # fmt: skip
    for way, fit in singles.items():
        fit(activations[0])
        sample = [timed(lambda: fit(a), device) for a in activations]  # noqa: B023
        total = statistics.mean(sample) * n_fits
        note = f"extrapolated from {len(sample)} fits, share: these / the stacks'"
        yield Line("search", what, way, total, "s", share=total / ours, target=TARGET, note=note)
