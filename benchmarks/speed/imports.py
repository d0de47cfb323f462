"""What does ``import combutab`` cost over torch, scikit-learn and pandas, and the first fit?

Each statement is the first thing that a fresh interpreter does, in turns; medians and ratios are
printed. The first fit is that of a table of 200 rows and 8 columns, its ``import`` included.

    python -m benchmarks.speed.imports [--quick] [--repeats 11] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import pandas as pd

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table

FIRST_FIT = """
import warnings, numpy as np
from {module} import MLPRegressor
warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
MLPRegressor(hidden_layer_sizes=(128, 128), max_iter=10).fit(X, X[:, 0] * X[:, 1])
"""
CONTENDERS = {
    "import torch, sklearn, pandas": "import torch, sklearn, pandas",
    "import combutab": "import combutab",
    "first fit, scikit-learn": FIRST_FIT.format(module="sklearn.neural_network"),
    "first fit, scikit-learn, torch and pandas imported": "import torch, pandas\n"
    + FIRST_FIT.format(module="sklearn.neural_network"),
    "first fit, combutab": FIRST_FIT.format(module="combutab"),
}
RATIOS = {  # (slower, faster)
    "import combutab / of what it needs": ("import combutab", "import torch, sklearn, pandas"),
    "first fit, combutab / scikit-learn": ("first fit, combutab", "first fit, scikit-learn"),
    "the same, with torch and pandas imported": (
        "first fit, combutab",
        "first fit, scikit-learn, torch and pandas imported",
    ),
}
TIMED = """
import time
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""


def seconds(statement: str) -> float:
    """Time a statement as the first thing that a new interpreter does."""
    code = TIMED.format(statement=statement)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one interpreter each")
    parser.add_argument("--repeats", type=int, default=11, help="fresh interpreters each")
    parser.add_argument("--out", type=Path, help="folder for speed_import.csv")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else arguments.repeats
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for turn in range(repeats + (not arguments.quick)):
        for name, statement in CONTENDERS.items():
            elapsed = seconds(statement)
            if turn or arguments.quick:  # the first fills the disk's cache
                times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: medians[a] / medians[b] for name, (a, b) in RATIOS.items()}
    print(describe_machine(), end="\n\n")
    for name, median in medians.items():
        print(f"{name:52}{median:6.2f} s  ({min(times[name]):.2f} to {max(times[name]):.2f})")
    for name, ratio in ratios.items():
        print(f"{name:52}{ratio:6.2f}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        table = pd.Series({**medians, **ratios}, name="seconds")
        write_table(table, arguments.out / "speed_import.csv", index_label="statement")


if __name__ == "__main__":
    main()
