"""What does ``import combutab`` cost over torch, scikit-learn and pandas, and the first fit?

Each statement is the first thing that a fresh interpreter does, in turns; medians and ratios are
printed. The first fit is that of a table of 200 rows and 8 columns, its ``import`` included.

    python -m benchmarks.speed.imports [--quick] [--repeats 11] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from functools import partial

import pandas as pd

from benchmarks.speed.common import begin, in_turns, medians, ratios, write

TIMED = """
import time
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""
FIRST_FIT = """
import warnings, numpy as np
{imports}
warnings.simplefilter("ignore")
X = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
settings = dict(hidden_layer_sizes=(128, 128), max_iter=10)
MLPRegressor({settings}).fit(X, X[:, 0] * X[:, 1])
"""
OURS, SKLEARN = "first fit, combutab", "first fit, scikit-learn"
PREPARED = f"{SKLEARN}, torch and pandas imported"
LIBRARIES = "import torch, sklearn, pandas"
OF_SKLEARN = FIRST_FIT.format(
    imports="from sklearn.neural_network import MLPRegressor", settings="**settings"
)
OF_OURS = FIRST_FIT.format(
    imports="from combutab import MLPRegressor, paper_recipe",
    settings='**paper_recipe("regression", **settings)',
)
CONTENDERS = {
    LIBRARIES: LIBRARIES,
    "import combutab": "import combutab",
    SKLEARN: OF_SKLEARN,
    PREPARED: f"import torch, pandas\n{OF_SKLEARN}",
    OURS: OF_OURS,
}
RATIOS = {  # (slower, faster)
    "import combutab / of what it needs": ("import combutab", LIBRARIES),
    "first fit, combutab / scikit-learn": (OURS, SKLEARN),
    "the same, with torch and pandas imported": (OURS, PREPARED),
}


def seconds(statement: str, here: bool) -> float:
    """Time a statement as the first thing that a new interpreter does; quick: in this one."""
    code, printed = TIMED.format(statement=statement), io.StringIO()
    if here:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        return float(printed.getvalue())
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    arguments = begin(__doc__, "once, in this interpreter", repeats=11)
    quick = arguments.quick
    contenders = {name: partial(seconds, each, quick) for name, each in CONTENDERS.items()}
    # the first turn fills the disk's cache
    times = in_turns(contenders, arguments.repeats, warm_up=int(not quick))
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
