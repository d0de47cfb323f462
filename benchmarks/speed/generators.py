"""How fast are CTGAN and TVAE, and how much memory do they take, beside the ctgan package's?

The same networks (``activation="original"``), batches, steps and epochs for both, on two data sets
of the CombU paper, in one process and in turns; ratios of medians. "Preprocessing" is all that a
fit does before its first epoch. A step of CTGAN (one of the critic, one of the generator) stands
beside its own matrix products alone, timed in the same turns. Then tables that grow, each fit in a
process of its own with a limit on its memory and its time.

    python -m benchmarks.speed.generators [--quick] [--data-home FOLDER]
        [--out benchmarks/speed/results]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import combutab
from benchmarks.machine import describe_machine
from benchmarks.outputs import write_table, write_text
from combutab.datasets import load_openml
from combutab.training import Callback

DATA = ("california_housing", "PhishingWebsites")
MODELS = ("CTGAN", "TVAE")
NOISE, HIDDEN, BATCH, PAC = 128, (256, 256), 500, 10  # both packages' defaults
ROWS, CATEGORIES = (10_000, 100_000, 1_000_000), (10, 1000, 100_000)
GIB, CLEAR = 2**30, Path("/proc/self/clear_refs")


@dataclass
class Times:
    """Seconds: of a fit before its first epoch, of each epoch, of a sample."""

    before: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    sample: list[float] = field(default_factory=list)


class Clock(Callback):
    """The moments at which epochs begin and end: as a callback, and as ctgan's progress bar."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def _mark(self) -> None:
        self.moments.append(time.perf_counter())

    def on_train_begin(self, n_members: int, max_epochs: int) -> None:
        self._mark()

    def on_epoch_end(self, report: Any) -> bool:
        self._mark()
        return False

    def progress_bar(self, iterable: Any, **_: Any) -> Clock:
        """In place of ``tqdm(iterable)``."""
        self.iterable = iterable
        return self

    def __iter__(self) -> Iterator[Any]:
        self._mark()
        for item in self.iterable:
            yield item
            self._mark()

    def set_description(self, *_: Any) -> None:
        """Nothing to show."""


def fit(package: str, model: str, table: pd.DataFrame, epochs: int, seed: int = 0) -> Any:
    """A fitted model; ``clock_`` has its moments, the first of them the fit's begin."""
    clock = Clock()
    clock.moments.append(time.perf_counter())
    if package == "combutab":
        ours = getattr(combutab, model)(
            epochs=epochs, activation="original", random_state=seed, device="cpu", callbacks=[clock]
        )
        ours.fit(table).clock_ = clock
        return ours
    import ctgan

    theirs = getattr(ctgan, model)(epochs=epochs, enable_gpu=False)
    theirs.set_random_state(seed)
    discrete = list(table.select_dtypes(object))
    with mock.patch(f"ctgan.synthesizers.{model.lower()}.tqdm", clock.progress_bar):
        theirs.fit(table, discrete)
    theirs.clock_ = clock
    return theirs


def products(width: int, n_condition: int) -> Callable[[], None]:
    """The matrix products of one step of CTGAN, each as one ``torch.mm``, and nothing else.

    For each linear layer and pass: the output; in backward passes also the weights' gradient, and
    the input's where one is needed. The penalty has no use for the last output, but for the
    derivatives of its gradient by the weights and by what is above.
    """
    sizes: list[tuple[int, int, int]] = []

    def generator(trained: bool) -> None:
        n_inputs = n_hidden = 0
        for i, out in enumerate((*HIDDEN, width)):
            n_inputs = NOISE + n_condition + n_hidden
            sizes.append((BATCH, n_inputs, out))
            if trained:
                sizes.append((n_inputs, BATCH, out))
            if trained and i:
                sizes.append((BATCH, out, n_hidden))
            n_hidden += out

    groups, last = BATCH // PAC, len(HIDDEN)
    shapes = list(zip((PAC * (width + n_condition), *HIDDEN), (*HIDDEN, 1), strict=True))
    generator(trained=False)
    for i, (a, b) in enumerate(shapes):  # the critic on real and on fake rows
        sizes += [(2 * groups, a, b), (a, 2 * groups, b)] + [(2 * groups, b, a)] * bool(i)
    for i, (a, b) in enumerate(shapes):  # and its gradient penalty
        sizes += [(groups, a, b)] * (i < last)
        sizes += [(groups, b, a), (a, groups, b)] + [(groups, a, b)] * (i < last)
    generator(trained=True)
    for a, b in shapes:  # the critic in the generator's step
        sizes += [(groups, a, b), (groups, b, a)]
    matrices = [(torch.ones(a, b), torch.ones(b, c), torch.empty(a, c)) for a, b, c in sizes]

    def run() -> None:
        for left, right, out in matrices:
            torch.mm(left, right, out=out)

    return run


def load(name: str, quick: bool, data_home: str | None) -> pd.DataFrame:
    """A data set without its missing values, which ctgan refuses; quick: a made one."""
    if quick:
        return make_table(300, 4)
    data = load_openml(name, data_home=data_home)
    table = data.X.assign(target=data.y).dropna().reset_index(drop=True)
    return table.astype(dict.fromkeys(table.select_dtypes("category"), object))


def make_table(n_rows: int, n_columns: int, n_categories: int = 10) -> pd.DataFrame:
    """Half of the columns numbers with several modes, half of them text."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for i in range(n_columns // 2):
        columns[f"number{i}"] = rng.normal(rng.integers(0, 5, n_rows) * 4.0, 1)
        words = np.array([f"word{j}" for j in range(n_categories)], dtype=object)
        codes = rng.permutation(n_rows) % n_categories
        columns[f"text{i}"] = words[codes]
    return pd.DataFrame(columns)


def measure(name: str, table: pd.DataFrame, turns: int, n_sample: int) -> dict[str, Any]:
    """Medians for one data set, both packages and both models in turns."""
    packages = ("combutab", "ctgan")
    times = {(p, m): Times() for p in packages for m in MODELS}
    alone: list[float] = []
    for turn in range(turns):
        for model in MODELS:
            for package in packages:
                epochs = 3 if package == "ctgan" else 6
                fitted = fit(package, model, table, epochs, seed=turn)
                moments = fitted.clock_.moments
                seconds = times[package, model]
                seconds.before.append(moments[1] - moments[0])
                seconds.epochs += list(np.diff(moments[1:]))
                started = time.perf_counter()
                fitted.sample(n_sample)
                seconds.sample.append(time.perf_counter() - started)
                if (package, model) == ("combutab", "CTGAN"):
                    layout = fitted.encoder_.layout_
                    width = layout.n_values + sum(layout.sizes)
                    n_condition = sum(
                        size
                        for size, span in zip(layout.sizes, layout.spans, strict=True)
                        if span.kind == "category"
                    )
                    alone += _time(products(width, n_condition), 20)
    n_steps = max(1, len(table) // BATCH)
    row: dict[str, Any] = {"data": name, "rows": len(table), "columns": table.shape[1]}
    for (package, model), seconds in times.items():
        for part in ("before", "epochs", "sample"):
            row[f"{package} {model} {part}, s"] = statistics.median(getattr(seconds, part))
    row["CTGAN step, ms"] = 1e3 * row["combutab CTGAN epochs, s"] / n_steps
    row["its products, ms"] = 1e3 * statistics.median(alone)
    return row


def _time(run: Callable[[], None], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


RATIOS = {
    "preprocessing: ctgan / ours": ("ctgan CTGAN before, s", "combutab CTGAN before, s"),
    "CTGAN epoch: ctgan / ours": ("ctgan CTGAN epochs, s", "combutab CTGAN epochs, s"),
    "TVAE epoch: ctgan / ours": ("ctgan TVAE epochs, s", "combutab TVAE epochs, s"),
    "CTGAN sample: ctgan / ours": ("ctgan CTGAN sample, s", "combutab CTGAN sample, s"),
    "TVAE sample: ctgan / ours": ("ctgan TVAE sample, s", "combutab TVAE sample, s"),
    "our CTGAN step / its products": ("CTGAN step, ms", "its products, ms"),
}


# ---- growth ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One fit of a made table, of one epoch."""

    grows: str
    package: str
    model: str
    n_rows: int
    n_columns: int
    n_categories: int


def cases(quick: bool) -> list[Case]:
    """Rows grow with 20 columns; categories grow in one of two columns."""
    packages = ("combutab", "ctgan")
    if quick:
        return [Case("rows", package, "TVAE", 300, 2, 10) for package in packages]
    found = [Case("rows", p, m, n, 20, 10) for n in ROWS for m in MODELS for p in packages]
    for n in CATEGORIES:
        for model in MODELS:
            # NOTE: the paper's generator has a weight for each pair of a category asked for and
            # one made: 10^10 of them for 100,000 categories, in anyone's implementation.
            if model == "TVAE" or n <= 1000:
                found += [Case("categories", p, model, 100_000, 2, n) for p in packages]
    return found


def run_case(case: Case) -> None:
    """Fit in this process: memory before and at its peak, and the moments, to standard output."""
    import resource

    warnings.filterwarnings("ignore")
    table = make_table(case.n_rows, case.n_columns, case.n_categories)
    fit(case.package, case.model, make_table(600, 2), 1)  # what is loaded once is no part of it
    resource.setrlimit(resource.RLIMIT_AS, (20 * GIB, 20 * GIB))
    gc.collect()
    CLEAR.write_text("5")  # the peak so far is forgotten
    before = memory("VmRSS")
    moments = fit(case.package, case.model, table, 1).clock_.moments
    print(json.dumps({"moments": moments, "peak": memory("VmHWM") - before}))


def memory(field: str) -> float:
    """Of this process on Linux, in MiB: resident now (VmRSS), or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measure_case(case: Case, limit: float) -> dict[str, Any]:
    """Seconds before the epoch and in it, and the peak of memory over what there was before."""
    row: dict[str, Any] = {**vars(case), "before, s": np.nan, "epoch, s": np.nan}
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.generators",
        "--case",
        json.dumps(vars(case)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return row | {"peak, MiB": np.nan, "note": f"over {limit:.0f} s"}
    if done.returncode:
        error = (done.stderr.splitlines() or ["killed"])[-1]
        known = "memory" in error.lower() or "alloc" in error.lower() or done.returncode < 0
        return row | {"peak, MiB": np.nan, "note": "over 20 GiB" if known else error[:60]}
    result = json.loads(done.stdout.splitlines()[-1])
    begun, trained, ended = result["moments"]
    return row | {
        "before, s": trained - begun, "epoch, s": ended - trained, "peak, MiB": result["peak"],
        "note": "",
    }  # fmt: skip


def compare(growth: pd.DataFrame) -> pd.DataFrame:
    """Both packages beside each other."""
    keys = ["grows", "model", "n_rows", "n_columns", "n_categories"]
    ours, theirs = (growth[growth["package"] == p].set_index(keys) for p in ("combutab", "ctgan"))
    parts = ["before, s", "epoch, s", "peak, MiB"]
    table = ours[parts].join(theirs[[*parts, "note"]], lsuffix=" ours", rsuffix=" ctgan")
    for part in parts:
        table[f"{part.split(',')[0]} ratio"] = table[f"{part} ctgan"] / table[f"{part} ours"]
    return table.reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="made tables, one turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--parts", nargs="+", choices=("ratios", "growth"), default=["ratios", "growth"]
    )
    parser.add_argument(
        "--limit", type=float, default=1800, help="seconds for a growing table's fit"
    )
    parser.add_argument("--data-home", help="folder with the CSV files; else OpenML")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for speed_generators*")
    arguments = parser.parse_args()
    if arguments.case:
        run_case(Case(**json.loads(arguments.case)))
        return
    warnings.filterwarnings("ignore")
    print(describe_machine(), flush=True)
    if "ratios" in arguments.parts:
        rows = []
        for name in DATA[:1] if arguments.quick else DATA:
            table = load(name, arguments.quick, arguments.data_home)
            turns, n_sample = (1, 300) if arguments.quick else (arguments.turns, 100_000)
            rows.append(measure(name, table, turns, n_sample))
        timings = pd.DataFrame(rows).set_index("data")
        ratios = pd.DataFrame({n: timings[a] / timings[b] for n, (a, b) in RATIOS.items()})
        pages = {"Ratios": ratios.round(2).T, "Medians": timings.round(4).T}
        _write(arguments.out, "speed_generators", timings.join(ratios), pages)
    if "growth" in arguments.parts:
        grown = []
        for case in cases(arguments.quick):
            grown.append(measure_case(case, arguments.limit))
            print("  ".join(str(value) for value in grown[-1].values()), flush=True)
        table = pd.DataFrame(grown)
        pages = {"Growth": compare(table).round(2)}
        _write(arguments.out, "speed_generators_growth", table, pages)


def _write(folder: Path | None, name: str, table: pd.DataFrame, pages: dict[str, Any]) -> None:
    """Print the pages; write them, and the whole table, where there is a folder."""
    text = "".join(f"\n## {t}\n\n```\n{page.to_string()}\n```\n" for t, page in pages.items())
    print(text, flush=True)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        write_table(table, folder / f"{name}.csv")
        write_text(folder / f"{name}.md", f"# {name}\n\n{describe_machine()}\n{text}")


if __name__ == "__main__":
    main()
