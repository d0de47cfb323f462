"""How long does predict take, of one row and of a million, beside scikit-learn's MLP?

Same data, widths and activation; networks barely trained, since their weights do not matter.
Everything runs in one process and in turns; medians, ratios and, for many rows, the peak memory
that a process of its own needed above the table, are printed and written.

    python -m benchmarks.speed.predict [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neural_network import MLPRegressor as SklearnRegressor

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
from combutab import MLPRegressor

NETWORKS = {"3 x 128": (128, 128), "6 x 256": (256,) * 5}
N_COLUMNS = 9
LINUX = sys.platform == "linux"
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
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            started = time.perf_counter()
            for _ in range(calls):
                run()
            if turn:  # the first warms up
                times[name].append((time.perf_counter() - started) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_megabytes(model: str, hidden: tuple[int, ...], n_rows: int) -> float:
    """Memory that predicting takes at its peak, above what stands before, in a fresh process."""
    code = (
        f"from benchmarks.speed.predict import grown\nprint(grown({model!r}, {hidden!r}, {n_rows}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def grown(model: str, hidden: tuple[int, ...], n_rows: int) -> float:
    """Megabytes by which this process's peak grows when it predicts."""
    X, estimator = tables(n_rows)[model.split(", ")[1]], fitted(model, hidden, "relu")
    estimator.predict(X[:100])  # type: ignore[attr-defined]
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    estimator.predict(X)  # type: ignore[attr-defined]
    return memory("VmHWM") - before


def memory(name: str) -> float:
    """A line of Linux' account of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, few rows, once")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="folder for speed_predict.csv and .md")
    arguments = parser.parse_args()
    networks = {"3 x 8": (8, 8)} if arguments.quick else NETWORKS
    n_rows, repeats = (1000, 1) if arguments.quick else (arguments.rows, arguments.repeats)
    results = []
    for network, hidden in networks.items():
        for rows, turns, calls in ((1, repeats, 50), (n_rows, max(1, repeats // 3), 1)):
            found = seconds(hidden, rows, turns, calls)
            peer = found["scikit-learn, array"]
            for name, value in found.items():
                peak = float("nan")
                if rows > 1 and not name.endswith("combu") and LINUX:
                    peak = peak_megabytes(name, hidden, rows)
                results.append((network, rows, name, value, peer / value, peak))
    columns = ["network", "rows", "model", "seconds", "scikit-learn, array / this", "peak MB"]
    table = pd.DataFrame(results, columns=columns)
    shown = table.assign(
        seconds=table["seconds"].map("{:.3g}".format),
        **{columns[4]: table[columns[4]].round(2), columns[5]: table[columns[5]].round(0)},
    ).to_string(index=False, na_rep="")
    print(f"{describe_machine()}\n\n{shown}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / "speed_predict.csv", index=False)
        text = f"# speed_predict\n\n{describe_machine()}\n\n```\n{shown}\n```\n"
        write_text(arguments.out / "speed_predict.md", text)


if __name__ == "__main__":
    main()
