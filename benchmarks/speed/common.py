"""What the timings share: a command line, contenders in turns, new processes, tables and pages."""

from __future__ import annotations

import argparse
import json
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

from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
from combutab.training import Callback

T = TypeVar("T")
DATA_HOME = {"help": "folder with the CSV files; else OpenML"}
THREADS = {"type": int, "help": "torch threads; default: as they are"}
PROCESS = Path("/proc/self")
PAGE = 2**12 / 2**20  # MiB: the least that a process takes of a system


def parse(doc: str, quick: str, **options: Any) -> argparse.Namespace:
    """Read --quick, --out and what is named: a default each, or what ``add_argument`` takes.

    --quick takes a single turn.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    for name, option in options.items():
        settings = option if isinstance(option, dict) else {"type": type(option), "default": option}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    parser.add_argument("--out", type=Path, help="folder for the results")
    arguments = parser.parse_args()
    if arguments.quick:
        vars(arguments).update({name: 1 for name in ("repeats", "turns") if name in arguments})
    if getattr(arguments, "threads", None):
        torch.set_num_threads(arguments.threads)
    return arguments


def begin(doc: str, quick: str, **options: Any) -> argparse.Namespace:
    """Read the command line as `parse` does, and describe the machine."""
    arguments = parse(doc, quick, **options)
    print(describe_machine(), flush=True)
    return arguments


def synchronize(device: torch.device) -> None:
    """Wait for all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock(Callback):
    """The moments at which the first epoch begins and each ends, once all queued work is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.moments: list[float] = []

    def mark(self) -> None:
        synchronize(self.device)
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
    taken: dict[Any, list[T]] = {name: [] for name in contenders}
    for turn in range(warm_up + turns):
        for name, measure in contenders.items():
            value = measure()
            if turn >= warm_up:
                taken[name].append(value)
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
    function: Callable[..., T], *arguments: Any, here: bool = False, timeout: float | None = None
) -> T:
    """Call a module's function in a new interpreter; arguments and result go as JSON.

    ``here`` calls it in this interpreter, as quick forms do.

    Raises
    ------
    subprocess.CalledProcessError
    subprocess.TimeoutExpired
    """
    given = json.dumps(arguments)
    if here:
        return json.loads(json.dumps(function(*json.loads(given))))
    module = function.__module__
    if module == "__main__":
        module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
    code = (
        f"import json, sys\nfrom {module} import {function.__name__} as function\n"
        "print(json.dumps(function(*json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, given]
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


def block(table: pd.DataFrame, title: str = "", **options: Any) -> str:
    """A table as it is printed, under its title, for a page."""
    heading = f"## {title}\n\n" if title else ""
    return f"{heading}```\n{table.to_string(**options)}\n```\n"


def write(
    folder: Path | None,
    name: str,
    table: pd.DataFrame | pd.Series,
    *parts: str,
    show: bool = True,
    **options: Any,
) -> None:
    """Print the page's parts; where there is a folder, write them and the table as CSV."""
    if show and parts:
        print(*parts, sep="\n", flush=True)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        write_table(table, folder / f"{name}.csv.gz", **options)
        if parts:
            page = "\n".join([f"# {name}\n\n{describe_machine()}\n", *parts])
            write_text(folder / f"{name}.md", page)
