"""What does ``import combutab`` cost over importing torch, scikit-learn and pandas?

Each import runs in a fresh interpreter, in turns; the medians and their ratio are printed.

    python benchmarks/speed_import.py [--quick] [--repeats 11] [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import pandas as pd
from machine import describe_machine

CONTENDERS = {
    "import torch, sklearn, pandas": "import torch, sklearn, pandas",
    "import combutab": "import combutab",
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
    for turn in range(repeats + 1):
        for name, statement in CONTENDERS.items():
            elapsed = seconds(statement)
            if turn:  # the first fills the disk's cache
                times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base, ours = medians.values()
    print(describe_machine(), end="\n\n")
    for name, median in medians.items():
        print(f"{name:32}{median:6.2f} s  ({min(times[name]):.2f} to {max(times[name]):.2f})")
    print(f"{'ratio of the medians':32}{ours / base:6.2f}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        table = pd.Series({**medians, "ratio": ours / base}, name="seconds")
        table.to_csv(arguments.out / "speed_import.csv", index_label="statement")


if __name__ == "__main__":
    main()
