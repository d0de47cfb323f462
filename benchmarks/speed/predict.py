"""How long does predict take, of one row and of a million, beside scikit-learn's MLP?

Same data, widths and activation; networks barely trained, since their weights do not matter.
Everything runs in one process and in turns; medians, ratios and, for many rows, the peak memory
that a process of its own needed above the table, are printed and written.

    python -m benchmarks.speed.predict [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.speed.common import begin, block, call_apart, forget_peak, memory, timed, write
from combutab import MLPRegressor

NETWORKS = {"3 x 128": (128, 128), "6 x 256": (256,) * 5}
N_COLUMNS = 9
MODELS = ("ours, array", "ours, DataFrame", "ours, mixed DataFrame", "scikit-learn, array",
          "scikit-learn, DataFrame")  # fmt: skip


def tables(n_rows: int) -> dict[str, np.ndarray | pd.DataFrame]:
    """The same rows as a float32 array, as a DataFrame of it, and with a column of text."""
    array = np.random.default_rng(0).normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(N_COLUMNS)])
    colour = pd.Series(["red", "green", "blue"]).reindex(np.arange(n_rows) % 3)
    mixed = frame.assign(colour=colour.to_numpy())
    return {"array": array, "DataFrame": frame, "mixed DataFrame": mixed}


def fitted(model: str, hidden: tuple[int, ...], activation: str) -> object:
    """A model that has seen a thousand rows once."""
    X = tables(1000)[model.split(", ")[1]]
    y = np.sin(np.arange(1000.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # neither has converged
        if model.startswith("scikit-learn"):
            return SklearnRegressor(hidden_layer_sizes=hidden, max_iter=1).fit(X, y)
        return MLPRegressor(hidden_layer_sizes=hidden, activation=activation, max_iter=1,
                            device="cpu").fit(X, y)  # fmt: skip


def seconds(hidden: tuple[int, ...], n_rows: int, repeats: int, calls: int) -> dict[str, float]:
    """Median seconds of a call, taken in turns."""
    rows = tables(n_rows)
    runs: dict[str, Callable[[], object]] = {}
    for model in MODELS:
        for activation in ("relu", "combu") if model == "ours, array" else ("relu",):
            name = f"{model}, combu" if activation == "combu" else model
            X, estimator = rows[model.split(", ")[1]], fitted(model, hidden, activation)
            runs[name] = lambda e=estimator, X=X: e.predict(X)  # type: ignore[misc]
    return timed(runs, repeats, calls)


def grown(model: str, hidden: tuple[int, ...], n_rows: int) -> float:
    """MiB by which this process's peak grows when it predicts."""
    X, estimator = tables(n_rows)[model.split(", ")[1]], fitted(model, hidden, "relu")
    estimator.predict(X[:100])  # type: ignore[attr-defined]
    before = memory("VmRSS")
    forget_peak()
    estimator.predict(X)  # type: ignore[attr-defined]
    return memory("VmHWM") - before


def main() -> None:
    arguments = begin(__doc__, "a small network, few rows, once", repeats=9, rows=1_000_000)
    networks = {"3 x 8": (8, 8)} if arguments.quick else NETWORKS
    n_rows = 1000 if arguments.quick else arguments.rows
    results = []
    for network, hidden in networks.items():
        for rows, turns, calls in ((1, arguments.repeats, 50), (n_rows, arguments.repeats // 3, 1)):
            found = seconds(hidden, rows, max(1, turns), calls)
            peer = found["scikit-learn, array"]
            for name, value in found.items():
                asked = rows > 1 and not name.endswith("combu")
                peak = call_apart(grown, name, hidden, rows) if asked else float("nan")
                results.append((network, rows, name, value, peer / value, peak))
    columns = ["network", "rows", "model", "seconds", "scikit-learn, array / this", "peak MB"]
    table = pd.DataFrame(results, columns=columns)
    shown = table.assign(seconds=table["seconds"].map("{:.3g}".format))
    shown = shown.round({columns[4]: 2, columns[5]: 0})
    page = block(shown, index=False, na_rep="")
    write(arguments.out, "speed_predict", table, page, index=False)


if __name__ == "__main__":
    main()
