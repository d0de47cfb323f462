"""Seconds of a fit, compared with scikit-learn's MLP, skorch and the CombU paper's loop.

All contenders take turns in one process, with the same data, widths, batch size, epochs and
optimiser; the peers get float32 input. Ratios are of medians.

The second part measures ``import combutab`` and a first fit, compared with importing torch,
scikit-learn and pandas and with scikit-learn's first fit. Each statement runs in a fresh
interpreter. The first fit has 200 rows and 8 columns, and includes its imports.

    python -m benchmarks.speed.fit [--quick] [--parts fit import]
        [--out benchmarks/speed/results]
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed import peers
from benchmarks.speed.common import block, in_turns, medians, ratios, run_parts, timed, write
from benchmarks.speed.peers import BATCH, RATE
from combutab import MLPRegressor

SIZES = {  # rows, columns, hidden layers, epochs
    "614 x 8, 3 x 128": (614, 8, (128, 128), 100),
    "4000 x 9, 6 x 256": (4000, 9, (256,) * 5, 10),
    "16512 x 13, 6 x 256": (16512, 13, (256,) * 5, 3),
}
Run = Callable[[], object]
QUICK = {"quick": (200, 8, (16, 16), 3)}
RATIOS = {  # what is claimed: (slower, faster)
    "scikit-learn / ours, relu": ("scikit-learn relu", "ours relu"),
    "skorch / ours, relu": ("skorch relu", "ours relu"),
    "skorch / ours, relu, dropout": ("skorch relu dropout", "ours relu dropout"),
    "paper's loop / ours, combu": ("paper's loop combu", "ours combu"),
    "paper's loop / ours, combu, dropout": ("paper's loop combu dropout", "ours combu dropout"),
    "combu / relu, ours": ("ours combu", "ours relu"),
    "combu / relu, ours, dropout": ("ours combu dropout", "ours relu dropout"),
}
TIMED = "import time\nstarted = time.perf_counter()\n{}\ntaken = time.perf_counter() - started"
FIRST_FIT = """
import warnings, numpy as np
warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
MLPRegressor({}hidden_layer_sizes=(128, 128), max_iter=10{}).fit(X, X[:, 0] * X[:, 1])
"""
OF_SKLEARN = "from sklearn.neural_network import MLPRegressor" + FIRST_FIT.format("", "")
OF_OURS = FIRST_FIT.format('**paper_recipe("regression", ', ")")
FIRST = {
    "import torch, sklearn, pandas": "import torch, sklearn, pandas",
    "import combutab": "import combutab",
    "first fit, scikit-learn": OF_SKLEARN,
    "first fit, scikit-learn, torch and pandas imported": f"import torch, pandas\n{OF_SKLEARN}",
    "first fit, combutab": f"from combutab import MLPRegressor, paper_recipe{OF_OURS}",
}
_, _, SKLEARN, PREPARED, OURS = FIRST
FIRST_RATIOS = {  # (slower, faster)
    "import combutab / of what it needs": ("import combutab", "import torch, sklearn, pandas"),
    "first fit, combutab / scikit-learn": (OURS, SKLEARN),
    "the same, with torch and pandas imported": (OURS, PREPARED),
}


def contenders(n_rows: int, n_columns: int, hidden: Sequence[int], epochs: int) -> dict[str, Run]:
    """What fits each to the same rows, by name."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2]).astype(np.float32)
    shape = (n_columns, hidden, 1)

    def ours(activation: str, dropout: float) -> None:
        own = {"batch_size": min(BATCH, n_rows), "dropout": dropout, "activation": activation}
        MLPRegressor(**peers.fixed_epochs("regression", hidden, epochs, **own)).fit(X, y)

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

    made: dict[str, Run] = {"scikit-learn relu": sklearn}
    for suffix, dropout in (("", 0.0), (" dropout", 0.1)):
        made |= {f"ours {name}{suffix}": partial(ours, name, dropout) for name in ("relu", "combu")}
        made[f"skorch relu{suffix}"] = partial(skorch, dropout)
        made[f"paper's loop combu{suffix}"] = partial(plain_torch, dropout)
    return made


def time_fits(arguments: Namespace) -> None:
    sizes = QUICK if arguments.quick else SIZES
    warnings.filterwarnings("ignore", category=UserWarning)  # peers' convergence warnings
    found = {name: timed(contenders(*size), arguments.repeats) for name, size in sizes.items()}
    timings = pd.DataFrame(found).T.rename_axis("size")
    table = pd.DataFrame(ratios(timings, RATIOS))
    timings.insert(0, "epochs", [size[-1] for size in sizes.values()])
    pages = (block(table.T, "Ratios"), block(timings.T, "Seconds of a fit"))
    write(arguments, "speed_fit", timings.join(table), *pages)


def seconds(statement: str, here: bool) -> float:
    """Time a statement as the first thing that a new interpreter does; quick: in this one."""
    scope = dict[str, float]()
    if here:
        exec(TIMED.format(statement), scope)
        return scope["taken"]
    command = [sys.executable, "-c", f"{TIMED.format(statement)}\nprint(taken)"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def time_imports(arguments: Namespace) -> None:
    runs = {name: partial(seconds, each, arguments.quick) for name, each in FIRST.items()}
    # the first turn fills the disk's cache
    found = medians(in_turns(runs, arguments.repeats, warm_up=int(not arguments.quick)))
    table = pd.Series(found | ratios(found, FIRST_RATIOS), name="seconds").rename_axis("statement")
    page = block(table.to_frame(), "Seconds, and ratios")
    write(arguments, "speed_import", table, page)


def main() -> None:
    parts = {"fit": time_fits, "import": time_imports}
    run_parts(__doc__, parts, repeats=7)


if __name__ == "__main__":
    main()
