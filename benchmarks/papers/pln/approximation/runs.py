"""What is trained for the PLN paper's approximation study, and the training of a stack of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np
import torch

from benchmarks.papers.common.results import Row
from combutab.nn import Member, MLPSpec, StackedMLP
from combutab.training import (
    MemberPlan,
    OptimizerConfig,
    Rows,
    TrainConfig,
    make_regression_loss,
    train_stack,
)

LOW, HIGH = -5.0, 5.0
N_GRID = 1001  # points that the error between the training points is measured on
FIT_WIDTH = 16  # of Figure 5
FITS = ("sigmoid", "tanh", "relu", "pln-4", "pls-2", "combu")
N_CURVE = 101  # points of a fit that is kept
KEY = ("data", "stage", "width", "activation", "solver", "batch_size", "learning_rate", "seed")
ERRORS = ("mse", "grid_mse", "sup_error")
RESULTS = ("tail_mse", *ERRORS, "error", "core_seconds", "curve")


@dataclass(frozen=True)
class Target:
    """A function on [-5, 5], the points it is learned from, and how often these are seen."""

    label: str
    function: Callable[[np.ndarray], np.ndarray]
    lipschitz: float
    n_points: int
    epochs: int

    def points(self) -> np.ndarray:
        return np.linspace(LOW, HIGH, self.n_points)


def _trigonometric(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x + 1) + np.cos(x)


_RANDOM_POINTS = np.linspace(LOW, HIGH, 21)  # Eq. 61
_RANDOM_VALUES = 2 * np.random.default_rng(0).random(21) - 1
_STEEPEST = float(np.abs(np.diff(_RANDOM_VALUES)).max() / np.diff(_RANDOM_POINTS)[0])


def _random(x: np.ndarray) -> np.ndarray:
    """Eq. 61 at its points, straight lines between them."""
    return np.interp(x, _RANDOM_POINTS, _RANDOM_VALUES)


TARGETS = {
    "trigonometric": Target("sin(2x + 1) + cos(x)", _trigonometric, 3.0, 51, 400),
    "random": Target("random values", _random, _STEEPEST, 21, 1000),
}
FAMILIES = {
    "PLN": tuple(f"pln-{size}" for size in (2, 4, 8, 16, 32)),
    "PLS": tuple(f"pls-{size}" for size in (1, 2, 4, 8, 16, 32)),
}
SIZED = (*FAMILIES["PLN"], *FAMILIES["PLS"])
CLASSIC = ("sigmoid", "tanh", "relu")  # of Figure 4
ACTIVATIONS = (*SIZED, *CLASSIC, "gelu", "nlrelu", "combu", "la-silu")


@dataclass(frozen=True)
class Run:
    """One network to train."""

    data: str
    stage: str  # "search" or "final"
    width: int
    activation: str
    solver: str
    batch_size: int
    learning_rate: float
    seed: int
    epochs: int

    @property
    def settings(self) -> Row:
        """What tells a row of the results from another, and must be the same to go on."""
        values = {**asdict(self), "n_points": TARGETS[self.data].n_points}
        return {name: str(value) for name, value in values.items()}

    @property
    def stack(self) -> tuple[object, ...]:
        """What the networks of a stack share."""
        return self.data, self.stage, self.width, self.solver, self.batch_size, self.epochs

    def __str__(self) -> str:
        return (
            f"{self.stage}, {self.data}, width {self.width}, {self.solver}, batches of "
            f"{self.batch_size}"
        )


@dataclass(frozen=True)
class Grid:
    """All that is tried, and how much of it."""

    widths: tuple[int, ...] = (8, 16, 64, 256, 1024, 4096)
    activations: tuple[str, ...] = ACTIVATIONS
    solvers: tuple[str, ...] = ("adam", "sgd")
    batch_sizes: tuple[int, ...] = (4, 16)
    rates: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    search_share: float = 0.2  # of the epochs
    epoch_share: float = 1.0
    n_finalists: int = 3
    final_seeds: tuple[int, ...] = (1, 2, 3, 4, 5)

    def search(self) -> list[Run]:
        """Every setting once, for a part of the epochs."""
        settings = product(
            *(self.widths, TARGETS, self.solvers, self.batch_sizes, self.activations, self.rates)
        )
        return [
            Run(data, "search", width, name, *(solver, size, rate, 0), self._epochs(data, False))
            for width, data, solver, size, name, rate in settings
            if norm_size(name) <= width
        ]

    def finals(self, rows: Iterable[Row]) -> list[Run]:
        """Each activation's settings that ended the search with the lowest losses, from new seeds.

        Several: what is ahead early need not be ahead in the end.
        """
        losses = {_key(row): float(row["tail_mse"] or math.inf) for row in rows}
        tried: dict[tuple[object, ...], list[Run]] = {}
        for run in self.search():
            tried.setdefault((run.width, run.data, run.activation), []).append(run)
        return [
            replace(run, stage="final", seed=seed, epochs=self._epochs(run.data, True))
            for runs in tried.values()
            for run in sorted(runs, key=lambda r: losses[_key(r.settings)])[: self.n_finalists]
            for seed in self.final_seeds
        ]

    def _epochs(self, data: str, final: bool) -> int:
        share = self.epoch_share * (1.0 if final else self.search_share)
        return max(2, round(TARGETS[data].epochs * share))


def _key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)


def norm_size(activation: str) -> int:
    """Units in a group: d of "pln-d" and "pls-d", 1 for what acts on single units."""
    kind, _, size = activation.partition("-")
    return int(size) if kind in ("pln", "pls") else 1


def stacks(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """The runs that train together, in the order in which their stacks come up first."""
    together: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        together.setdefault(run.stack, []).append(run)
    yield from together.values()


def train(runs: Sequence[Run]) -> list[Row]:
    """Train the networks of one stack, those of one activation side by side, and measure them."""
    first, target = runs[0], TARGETS[runs[0].data]
    shape = MLPSpec(n_dense=1, hidden=(first.width,), n_outputs=1)
    members = [Member(run.seed, run.activation) for run in runs]
    x, y = _column(target.points()), _column(target.function(target.points()))
    everything = torch.arange(len(x))
    config = TrainConfig(
        loss=make_regression_loss("squared_error", ()),
        # NOTE[DIFF]: the paper says "SGD"; we take it without momentum, as torch's default is
        optimizer=OptimizerConfig(first.solver, momentum=0.0, nesterov=False),
        batch_size=first.batch_size,
        max_epochs=first.epochs,
        n_iter_no_change=math.inf,
    )
    started = time.process_time()
    results = train_stack(
        StackedMLP(shape, members),
        Rows(x, y),
        [MemberPlan(run.seed, everything, run.learning_rate) for run in runs],
        config,
    )
    if any(result.reason == "interrupted" for result in results):
        raise KeyboardInterrupt
    row = dict.fromkeys(RESULTS, "")
    row["core_seconds"] = f"{(time.process_time() - started) / len(runs):.3g}"
    net = StackedMLP(shape, members)
    for i, result in enumerate(results):
        net.load_member(i, result.state)
    rows, errors, curves = [], *_measure(net, target)
    for run, result, found, curve in zip(runs, results, errors, curves, strict=True):
        if result.reason == "diverged" or not np.isfinite(found[-1]):
            rows.append(row | {"error": f"diverged in epoch {result.epochs}"})
            continue
        tail = 2 * np.mean(result.train_loss[-max(1, run.epochs // 10) :])  # of half the square
        values = dict(zip(("tail_mse", *ERRORS), (f"{v:.6g}" for v in (tail, *found)), strict=True))
        if run.stage == "final" and run.width == FIT_WIDTH and run.activation in FITS:
            values["curve"] = " ".join(f"{value:.3f}" for value in curve)
        rows.append(row | values)
    return rows


def _measure(net: StackedMLP, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """`ERRORS`, and values to draw: a row a member."""

    def outputs(x: np.ndarray) -> np.ndarray:
        return net.predict(_column(x), None, chunk=64)[..., 0].numpy()

    points, grid = target.points(), np.linspace(LOW, HIGH, N_GRID)
    with np.errstate(over="ignore", invalid="ignore"):  # of networks that diverged
        at_points = outputs(points) - target.function(points)
        on_grid = outputs(grid) - target.function(grid)
        errors = [np.square(at_points).mean(1), np.square(on_grid).mean(1), np.abs(on_grid).max(1)]
    return np.stack(errors, axis=1), outputs(np.linspace(LOW, HIGH, N_CURVE))


def _column(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))[:, None]
