"""Seconds and memory of CTGAN and TVAE, compared with the ctgan package.

Both packages train the same networks (``activation="original"``) with the same batches, steps and
epochs. The first part takes turns in one process on two data sets of the CombU paper; ratios are of
medians, and "preprocessing" is the fit before its first epoch. The second part fits simulated
tables of increasing size, each in a separate process with limits on memory and time.

    python -m benchmarks.speed.generators [--quick] [--parts ratios growth] [--data-home FOLDER]
        [--out benchmarks/speed/results]

The data come from OpenML, or from CSV files in --data-home (or COMBUTAB_DATA).
"""

from __future__ import annotations

import itertools
import subprocess
import warnings
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import combutab
from benchmarks.speed import common
from combutab.datasets import load_openml

DATA = ("california_housing", "PhishingWebsites")
MODELS, PACKAGES = ("CTGAN", "TVAE"), ("combutab", "ctgan")
ROWS, CATEGORIES = (10_000, 100_000, 1_000_000), (10, 1000, 100_000)
PARTS = {"preprocessing": "CTGAN before"} | {f"{m} epoch": f"{m} epochs" for m in MODELS}
PARTS |= {f"{m} sample": f"{m} sample" for m in MODELS}
RATIOS = {f"{n}: ctgan / ours": (f"ctgan {p}, s", f"combutab {p}, s") for n, p in PARTS.items()}


class ProgressClock(common.Clock):
    """The moments at which epochs begin and end: as a callback, and as ctgan's progress bar."""

    def progress_bar(self, iterable: Any, **_: Any) -> ProgressClock:
        """In place of ``tqdm(iterable)``."""
        self.iterable = iterable
        return self

    def __iter__(self) -> Iterator[Any]:
        self.mark()
        for item in self.iterable:
            yield item
            self.mark()

    def set_description(self, *_: Any) -> None:
        """Nothing to show."""


def fit(
    package: str, model: str, table: pd.DataFrame, epochs: int, seed: int = 0
) -> tuple[Any, list[float]]:
    """A fitted model and its moments, the first of them the fit's begin."""
    clock = ProgressClock(torch.device("cpu"))
    clock.mark()
    if package == "combutab":
        settings = {"epochs": epochs, "activation": "original", "random_state": seed}
        settings |= {"min_frequency": 1, "identifiers": None}  # as the package: all is learned
        settings |= {"argmax": False} if model == "TVAE" else {}  # as what is stored was sampled
        ours = getattr(combutab, model)(**settings, device="cpu", callbacks=[clock])
        return ours.fit(table), clock.moments
    import ctgan

    theirs = getattr(ctgan, model)(epochs=epochs, enable_gpu=False)
    theirs.set_random_state(seed)
    with mock.patch(f"ctgan.synthesizers.{model.lower()}.tqdm", clock.progress_bar):
        theirs.fit(table, list(table.select_dtypes(object)))
    return theirs, clock.moments


def load(name: str, data_home: str | None) -> pd.DataFrame:
    """A data set without its missing values, which ctgan refuses."""
    data = load_openml(name, data_home=data_home)
    table = data.X.assign(target=data.y).dropna().reset_index(drop=True)
    return table.astype(dict.fromkeys(table.select_dtypes("category"), object))


def make_table(n_rows: int, n_columns: int, n_categories: int = 10, seed: int = 0) -> pd.DataFrame:
    """Half of the columns numbers with several modes, half of them text."""
    rng = np.random.default_rng(seed)
    values = np.array([f"word{j}" for j in range(n_categories)], dtype=object)
    columns: dict[str, Any] = {}
    for i in range(n_columns // 2):
        columns[f"number{i}"] = rng.normal(rng.integers(0, 5, n_rows) * 4.0, 1)
        columns[f"text{i}"] = values[rng.permutation(n_rows) % n_categories]
    return pd.DataFrame(columns)


def measure(table: pd.DataFrame, turns: int, n_sample: int) -> dict[str, Any]:
    """Medians for one data set, both packages and both models in turns."""
    times: dict[str, list[float]] = defaultdict(list)

    def trial(package: str, model: str, seeds: Iterator[int]) -> None:
        epochs, what = 3 if package == "ctgan" else 6, f"{package} {model}"
        fitted, moments = fit(package, model, table, epochs, seed=next(seeds))
        times[f"{what} before, s"].append(moments[1] - moments[0])
        times[f"{what} epochs, s"] += np.diff(moments[1:]).tolist()
        times[f"{what} sample, s"].append(common.wall(partial(fitted.sample, n_sample)))

    trials = itertools.product(PACKAGES, MODELS)
    runs = {which: partial(trial, *which, itertools.count()) for which in trials}
    common.in_turns(runs, turns, warm_up=0)
    return {"rows": len(table), "columns": table.shape[1], **common.medians(times)}


# ---- growth ---------------------------------------------------------------------------------

CASE = ("grows", "package", "model", "n_rows", "n_columns", "n_categories")
MEASURED = ("before, s", "epoch, s", "peak, MiB")


def cases(quick: bool) -> Iterator[tuple[Any, ...]]:
    """Rows grow with 20 columns; categories grow in one of two columns. Fits of one epoch."""
    if quick:
        yield from (("rows", package, "TVAE", 300, 2, 10) for package in PACKAGES)
        return
    for n, model, package in itertools.product(ROWS, MODELS, PACKAGES):
        yield "rows", package, model, n, 20, 10
    for n, model, package in itertools.product(CATEGORIES, MODELS, PACKAGES):
        # NOTE: the paper's generator has a weight for each pair of a category asked for and
        # one made: 10^10 of them for 100,000 categories, in anyone's implementation.
        if model == "TVAE" or n <= 1000:
            yield "categories", package, model, 100_000, 2, n


def run_case(grows: str, package: str, model: str, *shape: int) -> tuple[float, float, float]:
    """Fit in this process: what `MEASURED` names, the peak over what there was before."""
    import resource

    warnings.filterwarnings("ignore")
    table = make_table(*shape)
    fit(package, model, make_table(600, 2), 1)  # what is loaded once is no part of it
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (20 * 2**30, limits[1]))
    moments: list[float] = []
    try:
        run = partial(fit, package, model, table, 1)
        _, grown = common.seconds_and_peak(lambda: moments.extend(run()[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return *np.diff(moments).tolist(), grown


def measure_case(case: tuple[Any, ...], arguments: Namespace) -> dict[str, Any]:
    """A row of the case, or what it ended with."""
    found, note = (np.nan,) * 3, ""
    try:
        found = common.call_apart(
            "benchmarks.speed.generators:run_case",
            *case,
            here=arguments.quick,
            timeout=arguments.limit,
        )
    except subprocess.TimeoutExpired:
        note = f"over {arguments.limit:.0f} s"
    except subprocess.CalledProcessError as failed:
        error = (failed.stderr.splitlines() or ["killed"])[-1]
        known = "memory" in error.lower() or "alloc" in error.lower() or failed.returncode < 0
        note = "over 20 GiB" if known else error[:60]
    row = dict(zip((*CASE, *MEASURED, "note"), (*case, *found, note), strict=True))
    print(*row.values(), sep="  ", flush=True)
    return row


def compare(growth: pd.DataFrame) -> pd.DataFrame:
    """Both packages beside each other."""
    keys = [name for name in CASE if name != "package"]
    ours, theirs = (growth[growth["package"] == p].set_index(keys) for p in PACKAGES)
    table = ours[[*MEASURED]].join(theirs[[*MEASURED, "note"]], lsuffix=" ours", rsuffix=" ctgan")
    for part in MEASURED:
        table[f"{part.split(',')[0]} ratio"] = table[f"{part} ctgan"] / table[f"{part} ours"]
    return table.reset_index()


def ratios(arguments: Namespace) -> None:
    quick, home = arguments.quick, arguments.data_home
    n_sample = 300 if quick else 100_000
    tables = {"made": make_table(300, 4)} if quick else {name: load(name, home) for name in DATA}
    found = {name: measure(t, arguments.turns, n_sample) for name, t in tables.items()}
    timings = pd.DataFrame(found).T.rename_axis("data")
    compared = pd.DataFrame(common.ratios(timings, RATIOS))
    page = common.block(compared.T, "Ratios")
    medians = common.block(timings.T, "Medians")
    common.write(arguments, "speed_generators", timings.join(compared), page, medians)


def growth(arguments: Namespace) -> None:
    table = pd.DataFrame([measure_case(case, arguments) for case in cases(arguments.quick)])
    page = common.block(compare(table), "Growth", index=False)
    title = "Seconds and memory of CTGAN and TVAE by rows and categories"
    common.write(arguments, "speed_generators_growth", table, page, title=title)


def main() -> None:
    parts = {"ratios": ratios, "growth": growth}
    options = {"turns": 5, "limit": 1800.0, "data_home": common.DATA_HOME}
    warnings.filterwarnings("ignore")
    common.run_parts(__doc__, parts, **options)


if __name__ == "__main__":
    main()
