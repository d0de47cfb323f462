"""What does ``import combutab`` cost over torch, scikit-learn and pandas, and the first fit?

Each statement is the first thing that a fresh interpreter does, in turns; medians and ratios are
printed. The first fit is that of a table of 200 rows and 8 columns, its ``import`` included.

    python -m benchmarks.speed.imports [--quick] [--repeats 11] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pandas as pd

from benchmarks.speed.common import begin, in_turns, medians, ratios, write

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
    arguments = begin(__doc__, "one interpreter each", repeats=11)
    contenders = {name: partial(seconds, statement) for name, statement in CONTENDERS.items()}
    # the first turn fills the disk's cache
    times = in_turns(contenders, arguments.repeats, warm_up=int(not arguments.quick))
    found = medians(times)
    compared = ratios(found, RATIOS)
    for name, median in found.items():
        print(f"{name:52}{median:6.2f} s  ({min(times[name]):.2f} to {max(times[name]):.2f})")
    for name, ratio in compared.items():
        print(f"{name:52}{ratio:6.2f}")
    table = pd.Series({**found, **compared}, name="seconds")
    write(arguments.out, "speed_import", table, index_label="statement")


if __name__ == "__main__":
    main()
