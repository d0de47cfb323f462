"""How long does a fit take, beside scikit-learn's MLP, skorch and the CombU paper's loop?

Everything runs in one process, in turns, several times; the medians' ratios are printed and
written. Same data, widths, batch size, epochs and optimiser for all; the peers get float32 input.

    python -m benchmarks.speed.fit [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor as SklearnRegressor
from torch import nn

from benchmarks.speed.common import begin, block, ratios, timed, write
from benchmarks.speed.peers import BATCH, RATE, IndexedCombU, plain_network, relu, skorch_net
from combutab import MLPRegressor


@dataclass(frozen=True)
class Size:
    """One problem: rows, columns, hidden layers, epochs."""

    name: str
    n_rows: int
    n_columns: int
    hidden: tuple[int, ...]
    epochs: int


SIZES = (
    Size("614 x 8, 3 x 128", 614, 8, (128, 128), 100),
    Size("4000 x 9, 6 x 256", 4000, 9, (256,) * 5, 10),
    Size("16512 x 13, 6 x 256", 16512, 13, (256,) * 5, 3),
)


def _plain_torch(size: Size, X: np.ndarray, y: np.ndarray, dropout: float) -> None:
    """The usual loop: rows shuffled each epoch, Adam, autograd; the data in memory as tensors."""
    net = plain_network(size.n_columns, size.hidden, 1, IndexedCombU, dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    for _ in range(size.epochs):
        order = torch.randperm(len(inputs))
        for start in range(0, len(inputs), BATCH):
            rows = order[start : start + BATCH]
            optimizer.zero_grad()
            nn.functional.mse_loss(net(inputs[rows]), targets[rows]).backward()
            optimizer.step()


def _skorch(size: Size, X: np.ndarray, y: np.ndarray, dropout: float) -> None:
    shape = size.n_columns, size.hidden, 1
    net = skorch_net("NeuralNetRegressor", size.epochs, *shape, activation=relu, dropout=dropout)
    net.fit(X, y[:, None])


def _sklearn(size: Size, X: np.ndarray, y: np.ndarray) -> None:
    SklearnRegressor(
        hidden_layer_sizes=size.hidden,
        batch_size=min(BATCH, len(X)),
        learning_rate_init=RATE,
        max_iter=size.epochs,
        n_iter_no_change=size.epochs + 1,
        tol=0.0,
    ).fit(X, y)


def _ours(size: Size, X: np.ndarray, y: np.ndarray, activation: str, dropout: float) -> None:
    MLPRegressor(
        hidden_layer_sizes=size.hidden,
        activation=activation,
        dropout=dropout,
        learning_rate_init=RATE,
        batch_size=min(BATCH, len(X)),
        max_iter=size.epochs,
        n_iter_no_change=np.inf,
        device="cpu",
    ).fit(X, y)


def _products_alone(size: Size, X: np.ndarray) -> None:
    """The floor: three matrix products a layer and step (forward, two gradients), nothing else."""
    widths = (size.n_columns, *size.hidden, 1)
    for rows in [min(BATCH, len(X) - start) for start in range(0, len(X), BATCH)]:
        layers = [
            (torch.ones(rows, n_in), torch.ones(n_in, n_out), torch.ones(rows, n_out))
            for n_in, n_out in itertools.pairwise(widths)
        ]
        for _ in range(size.epochs):
            for i, (x, weight, grad) in enumerate(layers):
                torch.mm(x, weight)
                torch.mm(x.t(), grad)
                if i:
                    torch.mm(grad, weight.t())


def measure(size: Size, repeats: int) -> dict[str, float]:
    """Median seconds of each contender."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size.n_rows, size.n_columns)).astype(np.float32)
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2]).astype(np.float32)
    contenders: dict[str, Callable[[], None]] = {
        "matrix products alone": lambda: _products_alone(size, X),
        "ours relu": partial(_ours, size, X, y, "relu", 0.0),
        "ours combu": partial(_ours, size, X, y, "combu", 0.0),
        "scikit-learn relu": partial(_sklearn, size, X, y),
        "skorch relu": partial(_skorch, size, X, y, 0.0),
        "ours relu dropout": partial(_ours, size, X, y, "relu", 0.1),
        "ours combu dropout": partial(_ours, size, X, y, "combu", 0.1),
        "paper's loop combu": partial(_plain_torch, size, X, y, 0.0),
        "paper's loop combu dropout": partial(_plain_torch, size, X, y, 0.1),
        "skorch relu dropout": partial(_skorch, size, X, y, 0.1),
    }
    return timed(contenders, repeats)


RATIOS = {  # what is claimed: (slower, faster)
    "scikit-learn / ours, relu": ("scikit-learn relu", "ours relu"),
    "skorch / ours, relu": ("skorch relu", "ours relu"),
    "skorch / ours, relu, dropout": ("skorch relu dropout", "ours relu dropout"),
    "paper's loop / ours, combu": ("paper's loop combu", "ours combu"),
    "paper's loop / ours, combu, dropout": ("paper's loop combu dropout", "ours combu dropout"),
    "paper's loop / products, dropout": ("paper's loop combu dropout", "matrix products alone"),
    "ours combu dropout / products": ("ours combu dropout", "matrix products alone"),
    "combu / relu, ours": ("ours combu", "ours relu"),
    "combu / relu, ours, dropout": ("ours combu dropout", "ours relu dropout"),
}


def main() -> None:
    arguments = begin(__doc__, "one small problem, once", repeats=7)
    sizes = [Size("quick", 200, 8, (16, 16), 3)] if arguments.quick else list(SIZES)
    warnings.filterwarnings("ignore", category=UserWarning)  # peers' convergence warnings
    found = {size: measure(size, arguments.repeats) for size in sizes}
    index = pd.Index([size.name for size in sizes], name="size")
    timings = pd.DataFrame([{"epochs": s.epochs, **seconds} for s, seconds in found.items()], index)
    table = pd.DataFrame([ratios(seconds, RATIOS) for seconds in found.values()], index)
    pages = block(table.round(2).T, "Ratios"), block(timings.round(4).T, "Seconds of a fit")
    write(arguments.out, "speed_fit", timings.join(table), *pages)


if __name__ == "__main__":
    main()
