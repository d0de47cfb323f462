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

import sys
import time
import warnings

import pandas as pd
import torch

from benchmarks.common.page import markdown_table
from benchmarks.machine import describe_machine
from benchmarks.speed.common import parse, write
from benchmarks.speed.gpu_parts import generators, kernels, search, stack
from benchmarks.speed.gpu_parts.timing import Line

PARTS = {"kernels": kernels, "stack": stack, "search": search, "generators": generators}


def section(part: str, lines: list[Line]) -> str:
    """A table of a part's lines, for the page."""
    cells = [
        [
            line.what, line.way, f"{_number(line.value)} {line.unit}".strip(),
            _number(line.share), _number(line.target), _number(line.difference, "{:.0e}"),
            line.note,
        ]
        for line in lines
        if line.part == part
    ]  # fmt: skip
    head = ["what", "way", "value", "share", "target", "difference from the CPU", ""]
    return f"## {part}\n\n{PARTS[part].__doc__}\n{markdown_table(head, cells)}"


def _number(value: float, form: str = "{:.3g}") -> str:
    return "" if value != value else form.format(value)


def main() -> None:
    parts = {"nargs": "+", "choices": list(PARTS), "default": list(PARTS)}
    arguments = parse(__doc__, "tiny shapes", parts=parts, device="cuda")
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
        # part by part: a limit on the time leaves what was measured
        pages = [section(name, lines) for name in dict.fromkeys(line.part for line in lines)]
        write(arguments.out, "speed_gpu", pd.DataFrame(lines), *pages, show=False, index=False)
    if not all(line.agrees for line in lines):
        sys.exit("numbers differ from the CPU's: see the lines without a value")


if __name__ == "__main__":
    main()
