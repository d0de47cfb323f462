"""How much of a GPU do training and activations use? Figures for one device, in one process.

Four parts: activations' gigabytes a second beside a copy's (kernels), a stack's TFLOP/s beside
those of its matrix products, and one network's step (stack), a study's search as stacks beside
single fits (search), epochs of CTGAN and TVAE beside the ctgan package's (generators). Before a
time is printed, the numbers must agree with the CPU's to the part's tolerance. Sizes and turns are
chosen for less than ten minutes in all on an H200, which it has not run on yet.

    python -m benchmarks.speed.gpu [--parts kernels stack] [--out benchmarks/speed/results]
    python -m benchmarks.speed.gpu --device cpu --quick       # the same code, tiny, on a CPU

Without a GPU it says so and ends with status 2; with status 1 if numbers disagree.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
import torch

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
from benchmarks.speed.gpu_parts import generators as gpu_generators
from benchmarks.speed.gpu_parts import kernels as gpu_kernels
from benchmarks.speed.gpu_parts import search as gpu_search
from benchmarks.speed.gpu_parts import stack as gpu_stack
from benchmarks.speed.gpu_parts.timing import Line

PARTS = {
    "kernels": gpu_kernels,
    "stack": gpu_stack,
    "search": gpu_search,
    "generators": gpu_generators,
}


def tables(lines: list[Line]) -> str:
    """A page with a table for each part."""
    text = f"# speed_gpu\n\n{describe_machine()}\n"
    for part in dict.fromkeys(line.part for line in lines):
        text += f"\n## {part}\n\n{PARTS[part].__doc__}\n"
        text += "| what | way | value | share | target | difference from the CPU | |\n"
        text += "|---|---|---:|---:|---:|---:|---|\n"
        for line in lines:
            if line.part == part:
                cells = [
                    line.what, line.way, f"{_number(line.value)} {line.unit}".strip(),
                    _number(line.share), _number(line.target), _number(line.difference, "{:.0e}"),
                    line.note,
                ]  # fmt: skip
                text += f"| {' | '.join(cells)} |\n"
    return text


def _number(value: float, form: str = "{:.3g}") -> str:
    return "" if value != value else form.format(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny shapes")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="folder for speed_gpu.csv and speed_gpu.md")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing is measured; --device cpu --quick runs the code on a CPU")
        sys.exit(2)
    warnings.filterwarnings("ignore")
    print(describe_machine(), flush=True)
    lines: list[Line] = []
    for part in arguments.parts:
        started = time.perf_counter()
        for line in PARTS[part].measure(device, arguments.quick):
            lines.append(line)
            print(
                f"{line.part:10} {line.what:44} {line.way:32} {_number(line.value):>8} "
                f"{line.unit:8} {_number(line.share):>6} {line.note}",
                flush=True,
            )
        print(f"{part}: {time.perf_counter() - started:.0f} s\n", flush=True)
        if arguments.out:  # part by part: a limit on the time leaves what was measured
            arguments.out.mkdir(parents=True, exist_ok=True)
            write_table(pd.DataFrame(lines), arguments.out / "speed_gpu.csv", index=False)
            write_text(arguments.out / "speed_gpu.md", tables(lines))
    if not all(line.agrees for line in lines):
        sys.exit("numbers differ from the CPU's: see the lines without a value")


if __name__ == "__main__":
    main()
