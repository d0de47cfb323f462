"""How long does a fit take, beside scikit-learn's MLP, skorch and the CombU paper's loop?

Everything runs in one process, in turns, several times; the medians' ratios are printed and
written. Same data, widths, batch size, epochs and optimiser for all; the peers get float32 input.

    python -m benchmarks.speed.fit [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor as SklearnRegressor
from torch import nn

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
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
BATCH, RATE = 500, 5e-4


class IndexedCombU(nn.Module):
    """CombU as its paper runs it: a loop over numpy index arrays, gathered and scattered."""

    def __init__(self, width: int) -> None:
        super().__init__()
        order = np.random.default_rng(0).permutation(width)
        half, quarter = width // 2, width // 4
        parts = order[:half], order[half : half + quarter], order[half + quarter :]
        self.parts = list(zip((nn.ReLU(), nn.ELU(), _nlrelu), parts, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for activation, index in self.parts:
            out[:, index] = activation(x[:, index])
        return out


def _nlrelu(x: torch.Tensor) -> torch.Tensor:
    return torch.log(torch.relu(x) + 1)


def _plain_network(
    size: Size, activation: Callable[[int], nn.Module], dropout: float
) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = size.n_columns
    for units in size.hidden:
        layers += [nn.Linear(width, units), activation(units)]
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = units
    return nn.Sequential(*layers, nn.Linear(width, 1))


def _plain_torch(size: Size, X: np.ndarray, y: np.ndarray, dropout: float) -> None:
    """The usual loop: rows shuffled each epoch, Adam, autograd; the data in memory as tensors."""
    net = _plain_network(size, IndexedCombU, dropout)
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
    from skorch import NeuralNetRegressor

    NeuralNetRegressor(
        _plain_network(size, lambda width: nn.ReLU(), dropout),
        optimizer=torch.optim.Adam,
        lr=RATE,
        batch_size=BATCH,
        max_epochs=size.epochs,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=0,
    ).fit(X, y[:, None])


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
    """Median seconds of each contender, taken in turns so that all see the same machine."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size.n_rows, size.n_columns)).astype(np.float32)
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2]).astype(np.float32)
    contenders: dict[str, Callable[[], None]] = {
        "matrix products alone": lambda: _products_alone(size, X),
        "ours relu": lambda: _ours(size, X, y, "relu", 0.0),
        "ours combu": lambda: _ours(size, X, y, "combu", 0.0),
        "scikit-learn relu": lambda: _sklearn(size, X, y),
        "skorch relu": lambda: _skorch(size, X, y, 0.0),
        "ours relu dropout": lambda: _ours(size, X, y, "relu", 0.1),
        "ours combu dropout": lambda: _ours(size, X, y, "combu", 0.1),
        "paper's loop combu": lambda: _plain_torch(size, X, y, 0.0),
        "paper's loop combu dropout": lambda: _plain_torch(size, X, y, 0.1),
        "skorch relu dropout": lambda: _skorch(size, X, y, 0.1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small problem, once")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="folder for speed_fit.csv and speed_fit.md")
    arguments = parser.parse_args()
    sizes = [Size("quick", 200, 8, (16, 16), 3)] if arguments.quick else list(SIZES)
    repeats = 1 if arguments.quick else arguments.repeats
    warnings.filterwarnings("ignore", category=UserWarning)  # peers' convergence warnings
    rows, ratios = [], []
    for size in sizes:
        seconds = measure(size, repeats)
        rows.append({"size": size.name, "epochs": size.epochs, **seconds})
        ratios.append(
            {"size": size.name} | {n: seconds[a] / seconds[b] for n, (a, b) in RATIOS.items()}
        )
    timings = pd.DataFrame(rows).set_index("size")
    table = pd.DataFrame(ratios).set_index("size")
    print(describe_machine())
    print("\nSeconds of a fit (medians):\n", timings.round(4).T.to_string(), sep="")
    print("\nRatios:\n", table.round(2).T.to_string(), sep="")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(timings.join(table), arguments.out / "speed_fit.csv")
        text = f"{describe_machine()}\n\n## Ratios\n\n```\n{table.round(2).T.to_string()}\n```\n"
        text += f"\n## Seconds of a fit\n\n```\n{timings.round(4).T.to_string()}\n```\n"
        write_text(arguments.out / "speed_fit.md", f"# speed_fit\n\n{text}")


if __name__ == "__main__":
    main()
