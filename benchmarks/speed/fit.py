"""How long does a fit take, beside scikit-learn's MLP, skorch and the CombU paper's loop?

Everything runs in one process, in turns, several times; the medians' ratios are printed and
written. Same data, widths, batch size, epochs and optimiser for all; the peers get float32 input.

    python -m benchmarks.speed.fit [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed import peers
from benchmarks.speed.common import begin, block, ratios, timed, write
from benchmarks.speed.peers import BATCH, RATE
from combutab import MLPRegressor

SIZES = {  # rows, columns, hidden layers, epochs
    "614 x 8, 3 x 128": (614, 8, (128, 128), 100),
    "4000 x 9, 6 x 256": (4000, 9, (256,) * 5, 10),
    "16512 x 13, 6 x 256": (16512, 13, (256,) * 5, 3),
}
QUICK = {"quick": (200, 8, (16, 16), 3)}
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


def contenders(
    n_rows: int, n_columns: int, hidden: tuple[int, ...], epochs: int
) -> dict[str, Callable[[], object]]:
    """What fits each to the same rows, by name."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2]).astype(np.float32)
    batch, shape = min(BATCH, n_rows), (n_columns, hidden, 1)

    def ours(activation: str, dropout: float) -> None:
        parameters = peers.fixed_epochs(
            "regression", hidden, epochs, batch_size=batch, dropout=dropout, activation=activation
        )
        MLPRegressor(**parameters).fit(X, y)

    def plain_torch(dropout: float) -> None:
        net = peers.plain_network(*shape, peers.IndexedCombU, dropout)
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)[:, None]
        for _ in range(epochs):
            peers.plain_epoch(net, optimizer, inputs, targets, BATCH)

    def skorch(dropout: float) -> None:
        options = {"activation": peers.relu, "dropout": dropout}
        peers.skorch_net("NeuralNetRegressor", epochs, *shape, **options).fit(X, y[:, None])

    def sklearn() -> None:
        SklearnRegressor(**peers.fixed_epochs_sklearn(hidden, epochs, n_rows)).fit(X, y)

    return {
        "matrix products alone": partial(products_alone, n_rows, (n_columns, *hidden, 1), epochs),
        "ours relu": partial(ours, "relu", 0.0),
        "ours combu": partial(ours, "combu", 0.0),
        "scikit-learn relu": sklearn,
        "skorch relu": partial(skorch, 0.0),
        "ours relu dropout": partial(ours, "relu", 0.1),
        "ours combu dropout": partial(ours, "combu", 0.1),
        "paper's loop combu": partial(plain_torch, 0.0),
        "paper's loop combu dropout": partial(plain_torch, 0.1),
        "skorch relu dropout": partial(skorch, 0.1),
    }


def products_alone(n_rows: int, widths: tuple[int, ...], epochs: int) -> None:
    """The floor: three matrix products a layer and step (forward, two gradients), nothing else."""
    for rows in [min(BATCH, n_rows - start) for start in range(0, n_rows, BATCH)]:
        layers = [
            (torch.ones(rows, n_in), torch.ones(n_in, n_out), torch.ones(rows, n_out))
            for n_in, n_out in itertools.pairwise(widths)
        ]
        for _ in range(epochs):
            for i, (x, weight, grad) in enumerate(layers):
                torch.mm(x, weight)
                torch.mm(x.t(), grad)
                if i:
                    torch.mm(grad, weight.t())


def main() -> None:
    arguments = begin(__doc__, "one small problem, once", repeats=7)
    sizes = QUICK if arguments.quick else SIZES
    warnings.filterwarnings("ignore", category=UserWarning)  # peers' convergence warnings
    found = {name: timed(contenders(*size), arguments.repeats) for name, size in sizes.items()}
    index = pd.Index(list(found), name="size")
    rows = [{"epochs": sizes[name][-1], **seconds} for name, seconds in found.items()]
    timings = pd.DataFrame(rows, index)
    table = pd.DataFrame([ratios(seconds, RATIOS) for seconds in found.values()], index)
    pages = block(table.round(2).T, "Ratios"), block(timings.round(4).T, "Seconds of a fit")
    write(arguments.out, "speed_fit", timings.join(table), *pages)


if __name__ == "__main__":
    main()
