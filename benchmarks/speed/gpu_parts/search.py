"""A study's search, 7 activations x 5 folds x 5 seeds: one stack, or one fit after another."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold
from torch import nn

from benchmarks.speed.gpu_parts.timing import Line, compiling, synchronize
from combutab import MLPClassifier, StackedGridSearchCV
from combutab.activations import make_activation

ACTIVATIONS = ["relu", "elu", "selu", "silu", "nlrelu", "gelu", "combu"]
FOLDS, SEEDS, BATCH, RATE, DROPOUT = 5, 5, 500, 5e-4, 0.1
TARGET, TOLERANCE = 30.0, 1e-2


def make(activation: str, device: torch.device, epochs: int, width: int) -> MLPClassifier:
    """The paper's network: six linear layers."""
    return MLPClassifier(
        hidden_layer_sizes=(width,) * 5, activation=activation, batch_size=BATCH, max_iter=epochs,
        learning_rate_init=RATE, dropout=DROPOUT, n_iter_no_change=math.inf, random_state=0,
        device=device,
    )  # fmt: skip


class Network(nn.Module):
    """The same for skorch."""

    def __init__(self, n_inputs: int, width: int, activation: str) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(5):
            layers += [nn.Linear(n_inputs, width), make_activation(activation, width)]
            layers.append(nn.Dropout(DROPOUT))
            n_inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(n_inputs, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (batch, n_inputs) -> (batch, 2)
        return self.layers(x)


def skorch_fit(activation: str, X: np.ndarray, y: np.ndarray, device: torch.device, epochs: int,
               width: int) -> None:  # fmt: skip
    """One fit by skorch."""
    from skorch import NeuralNetClassifier

    NeuralNetClassifier(
        Network, module__n_inputs=X.shape[1], module__width=width, module__activation=activation,
        criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=RATE, batch_size=BATCH,
        max_epochs=epochs, train_split=None, iterator_train__shuffle=True, verbose=0,
        device=str(device),
    ).fit(X, y)  # fmt: skip


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds on the wall."""
    synchronize(device)
    started = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - started


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

    def search(compiled: bool) -> None:
        with compiling(compiled, device):
            model = make("relu", device, epochs, width)
            StackedGridSearchCV(model, grid, cv=FOLDS, refit=False).fit(X, y)

    seconds = {
        way: statistics.median(timed(lambda: search(compiled), device) for _ in range(2))  # noqa: B023
        for way, compiled in (("stacks", False), ("stacks, compiled", True))
    }
    ours = min(seconds.values())
    for way, value in seconds.items():
        yield Line(
            "search", what, way, value, "s", difference=wrong, tolerance=TOLERANCE,
            note=f"{n_fits} networks",
        ).judged()  # fmt: skip

    def one(activation: str, compiled: bool) -> object:
        with compiling(compiled, device):
            return make(activation, device, epochs, width).fit(X[rows], y[rows])

    singles: dict[str, Callable[[str], object]] = {
        "one fit at a time": lambda a: one(a, False),
        "one fit at a time, compiled": lambda a: one(a, True),
    }
    if find_spec("skorch"):
        singles["skorch, one fit at a time"] = lambda a: skorch_fit(
            a, X[rows], y[rows], device, epochs, width
        )
    else:
        yield Line("search", what, "skorch, one fit at a time", math.nan, "s",
                   note="skorch is not installed")  # fmt: skip
    for way, fit in singles.items():
        fit(activations[0])
        sample = [timed(lambda: fit(a), device) for a in activations]  # noqa: B023
        total = statistics.mean(sample) * n_fits
        note = f"extrapolated from {len(sample)} fits, share: these / the stacks'"
        yield Line("search", what, way, total, "s", share=total / ours, target=TARGET, note=note)
