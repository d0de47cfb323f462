"""How long does predict take, of one row and of a million, beside scikit-learn's MLP?

Same data, widths and activation; networks barely trained, since their weights do not matter.
Everything runs in one process and in turns; medians, ratios and, for many rows, the peak memory
that a process of its own needed above the table, are printed and written.

    python -m benchmarks.speed.predict [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed.common import begin, block, call_apart, forget_peak, memory, timed, write
from combutab import MLPRegressor, paper_recipe

NETWORKS = {"3 x 128": (128, 128), "6 x 256": (256,) * 5}
N_COLUMNS = 9
MODELS = ("ours, array", "ours, array, combu", "ours, DataFrame", "ours, mixed DataFrame",
          "scikit-learn, array", "scikit-learn, DataFrame")  # fmt: skip


def table(kind: str, n_rows: int) -> Any:
    """The same rows as a float32 array, as a DataFrame of it, or with a column of text."""
    array = np.random.default_rng(0).normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    if kind == "array":
        return array
    frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(N_COLUMNS)])
    colours = np.array(["red", "green", "blue"], dtype=object)[np.arange(n_rows) % 3]
    return frame.assign(colour=colours) if kind.startswith("mixed") else frame


def fitted(model: str, hidden: tuple[int, ...], n_rows: int) -> tuple[Any, Any]:
    """A model that has seen a thousand rows once, and the rows to predict."""
    package, kind, *activation = model.split(", ")
    settings = {"hidden_layer_sizes": hidden, "max_iter": 1}
    if package == "ours":
        ours = {"activation": activation[0] if activation else "relu", "device": "cpu"}
        estimator = MLPRegressor(**paper_recipe("regression", **settings, **ours))
    else:
        estimator = SklearnRegressor(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # neither has converged
        estimator.fit(table(kind, 1000), np.sin(np.arange(1000.0)))
    return estimator, table(kind, n_rows)


def seconds(hidden: tuple[int, ...], n_rows: int, repeats: int, calls: int) -> dict[str, float]:
    """Median seconds of a call, taken in turns."""
    pairs = {model: fitted(model, hidden, n_rows) for model in MODELS}
    runs = {model: partial(estimator.predict, X) for model, (estimator, X) in pairs.items()}
    return timed(runs, repeats, calls)


def grown(model: str, hidden: tuple[int, ...], n_rows: int) -> float:
    """MiB by which this process's peak grows when it predicts."""
    estimator, X = fitted(model, hidden, n_rows)
    estimator.predict(X[:100])
    before = memory("VmRSS")
    forget_peak()
    estimator.predict(X)
    return memory("VmHWM") - before


def main() -> None:
    arguments = begin(__doc__, "a small network, few rows, once", repeats=9, rows=1_000_000)
    quick = arguments.quick
    networks = {"3 x 8": (8, 8)} if quick else NETWORKS
    n_rows = 1000 if quick else arguments.rows
    results = []
    for network, hidden in networks.items():
        for rows, turns, calls in ((1, arguments.repeats, 50), (n_rows, arguments.repeats // 3, 1)):
            found = seconds(hidden, rows, max(1, turns), calls)
            peer = found["scikit-learn, array"]
            for name, value in found.items():
                peak = float("nan")
                if rows > 1 and not name.endswith("combu"):
                    peak = call_apart(grown, name, hidden, rows, here=quick)
                results.append((network, rows, name, value, peer / value, peak))
    columns = ["network", "rows", "model", "seconds", "scikit-learn, array / this", "peak MB"]
    measured = pd.DataFrame(results, columns=columns)
    shown = measured.assign(seconds=measured["seconds"].map("{:.3g}".format))
    page = block(shown.round({columns[4]: 2, columns[5]: 0}), index=False, na_rep="")
    write(arguments.out, "speed_predict", measured, page, index=False)


if __name__ == "__main__":
    main()
