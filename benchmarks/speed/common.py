"""Shared by the timings: a command line, contenders in turns, processes, tables and pages."""

from __future__ import annotations

import argparse
import gc
import json
import pkgutil
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from benchmarks.common.command import parser_of
from benchmarks.common.page import Page, described
from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table
from combutab.training import Callback

T = TypeVar("T")
Part = Callable[[argparse.Namespace], None]
DATA_HOME = {"help": "Folder with CSV files; OpenML by default"}
PROCESS = Path("/proc/self")
PAGE = 2**12 / 2**20  # MiB: the least that a process takes of a system


def begin(doc: str, **options: Any) -> argparse.Namespace:
    """Read --quick, which takes a single turn, --out and other options; describe the machine."""
    out = {"type": Path, "help": "Folder for the results"}
    arguments = parser_of(doc, {**options, "out": out}).parse_args()
    if arguments.quick:
        vars(arguments).update({name: 1 for name in ("repeats", "turns") if name in arguments})
    arguments.doc = doc
    torch.set_num_threads(vars(arguments).get("threads") or torch.get_num_threads())
    print(describe_machine(), flush=True)
    return arguments


def run_parts(doc: str, parts: Mapping[str, Part], **options: Any) -> None:
    """Read the command line as `begin` does, and run what --parts names; all by default."""
    arguments = begin(doc, parts=tuple(parts), **options)
    for name in arguments.parts:
        parts[name](arguments)


class Clock(Callback):
    """The moments at which the first epoch begins and each ends, once all queued work is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moments: list[float] = []

    def mark(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.moments.append(time.perf_counter())

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self.mark()

    def on_epoch_end(self, report: Any) -> bool:
        self.mark()
        return False


def wall(run: Callable[[], object], calls: int = 1) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started) / calls


def in_turns(
    contenders: Mapping[Any, Callable[[], T]], turns: int, warm_up: int = 1
) -> dict[Any, list[T]]:
    """Take what each contender measures, all in every turn, so that they see the same machine."""
    for measure in [*contenders.values()] * warm_up:
        measure()
    taken: dict[Any, list[T]] = {name: [] for name in contenders}
    for name, measure in [*contenders.items()] * turns:
        taken[name].append(measure())
    return taken


def medians(taken: Mapping[Any, list[float]]) -> dict[Any, float]:
    return {name: statistics.median(values) for name, values in taken.items()}


def timed(runs: Mapping[Any, Callable[[], object]], turns: int, calls: int = 1) -> dict[Any, float]:
    """Median seconds of a call of each, in turns; the first turn warms up."""
    return medians(in_turns({n: partial(wall, run, calls) for n, run in runs.items()}, turns))


def ratios(values: Mapping[str, Any], pairs: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Divide the first of each pair by the second, by what is claimed of them."""
    return {name: values[slower] / values[faster] for name, (slower, faster) in pairs.items()}


def call_apart(
    function: str, *arguments: Any, here: bool = False, timeout: float | None = None
) -> Any:
    """Call a function, named as ``"package.module:function"``, in a new interpreter.

    Arguments and result go as JSON. ``here`` calls it in this interpreter, as quick forms do. A
    name, because the module of a function in a worker of joblib's is not what Python says it is.

    Raises
    ------
    subprocess.CalledProcessError
    subprocess.TimeoutExpired
    """
    given = json.dumps(arguments)
    if here:
        return json.loads(json.dumps(pkgutil.resolve_name(function)(*json.loads(given))))
    code = "import json, sys, {} as module\nprint(json.dumps(module.{}(*json.loads(sys.argv[1]))))"
    command = [sys.executable, "-c", code.format(*function.split(":")), given]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout)
    return json.loads(done.stdout.splitlines()[-1])


def memory(field: str) -> float:
    """MiB that this process holds (VmRSS), or held at most (VmHWM); NaN where there is no Linux."""
    if not PROCESS.exists():
        return float("nan")
    lines = (PROCESS / "status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def forget_peak() -> None:
    """Let VmHWM begin anew."""
    if PROCESS.exists():
        (PROCESS / "clear_refs").write_text("5")


def seconds_and_peak(run: Callable[[], object], before: float | None = None) -> tuple[float, float]:
    """Seconds of a call, and MiB of this process's peak in it above what it held before."""
    gc.collect()
    before = memory("VmRSS") if before is None else before
    forget_peak()
    seconds = wall(run)
    return seconds, max(memory("VmHWM") - before, PAGE)


def block(table: pd.DataFrame, title: str = "", **options: Any) -> str:
    """A table as it is printed, under its title, for a page; numbers have three digits or more."""
    heading = f"## {title}\n\n" if title else ""
    text = table.to_string(float_format=_digits, na_rep="", **options)
    return f"{heading}```\n{text}\n```\n"


def _digits(value: float) -> str:
    """
    >>> _digits(0.012345), _digits(123456.0)
    ('0.0123', '123,456')
    """
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def write(
    arguments: argparse.Namespace,
    name: str,
    table: Any,
    *parts: str,
    title: str = "",
    **options: Any,
) -> None:
    """Print the page's parts; where there is a folder, write the page and the table as CSV."""
    print(*parts, sep="\n", flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_table(table, arguments.out / f"{name}.csv.gz", **options)
        first, method = described(arguments.doc)
        command = re.findall(r"python -m [\w.]+", arguments.doc)[0]
        page = Page(name, title or first.rstrip("."), command)
        with page.details("What was done"):
            page.text(method)
        page.text(*parts)
        page.write(arguments.out)
