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

import gc
import itertools
import subprocess
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
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
NOISE, HIDDEN, BATCH, PAC = 128, (256, 256), 500, 10  # both packages' defaults
ROWS, CATEGORIES = (10_000, 100_000, 1_000_000), (10, 1000, 100_000)
GIB = 2**30
PARTS = {
    "preprocessing": "CTGAN before",
    "CTGAN epoch": "CTGAN epochs",
    "TVAE epoch": "TVAE epochs",
    "CTGAN sample": "CTGAN sample",
    "TVAE sample": "TVAE sample",
}
RATIOS = {
    **{f"{n}: ctgan / ours": (f"ctgan {p}, s", f"combutab {p}, s") for n, p in PARTS.items()},
    "our CTGAN step / its products": ("CTGAN step, ms", "its products, ms"),
}


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
    package: str, model: str, table: pd.DataFrame, epochs: int, seed: int = 0, device: str = "cpu"
) -> tuple[Any, list[float]]:
    """A fitted model and its moments, the first of them the fit's begin."""
    clock = ProgressClock(torch.device(device))
    clock.mark()
    if package == "combutab":
        settings = {"epochs": epochs, "activation": "original", "random_state": seed}
        settings |= {"min_frequency": 1, "identifiers": None}  # as the package: all is learned
        settings |= {"argmax": False} if model == "TVAE" else {}  # as what is stored was sampled
        ours = getattr(combutab, model)(**settings, device=device, callbacks=[clock])
        return ours.fit(table), clock.moments
    import ctgan

    theirs = getattr(ctgan, model)(epochs=epochs, enable_gpu=device.startswith("cuda"))
    theirs.set_random_state(seed)
    with mock.patch(f"ctgan.synthesizers.{model.lower()}.tqdm", clock.progress_bar):
        theirs.fit(table, list(table.select_dtypes(object)))
    return theirs, clock.moments


def products(width: int, n_condition: int) -> Callable[[], None]:
    """The matrix products of one step of CTGAN, each as one ``torch.mm``, and nothing else.

    For each linear layer and pass: the output; in backward passes also the weights' gradient, and
    the input's where one is needed. The penalty has no use for the last output, but for the
    derivatives of its gradient by the weights and by what is above.
    """
    sizes: list[tuple[int, int, int]] = []
    groups, last, first = BATCH // PAC, len(HIDDEN), NOISE + n_condition
    shapes = list(zip((PAC * (width + n_condition), *HIDDEN), (*HIDDEN, 1), strict=True))
    made = list(zip(itertools.accumulate((0, *HIDDEN)), (*HIDDEN, width), strict=True))
    sizes += [(BATCH, first + a, b) for a, b in made]
    for i, (a, b) in enumerate(shapes):  # the critic on real and on fake rows
        sizes += [(2 * groups, a, b), (a, 2 * groups, b)] + [(2 * groups, b, a)] * bool(i)
    for i, (a, b) in enumerate(shapes):  # and its gradient penalty
        sizes += [(groups, a, b)] * (i < last)
        sizes += [(groups, b, a), (a, groups, b)] + [(groups, a, b)] * (i < last)
    for a, b in made:  # the generator in its own step
        sizes += [(BATCH, first + a, b), (first + a, BATCH, b)] + [(BATCH, b, a)] * bool(a)
    for a, b in shapes:  # and the critic in it
        sizes += [(groups, a, b), (groups, b, a)]
    matrices = [(torch.ones(a, b), torch.ones(b, c), torch.empty(a, c)) for a, b, c in sizes]

    def run() -> None:
        for left, right, out in matrices:
            torch.mm(left, right, out=out)

    return run


def load(name: str, quick: bool, data_home: str | None) -> pd.DataFrame:
    """A data set without its missing values, which ctgan refuses; quick: a synthetic one."""
    if quick:
        return make_table(300, 4)
    data = load_openml(name, data_home=data_home)
    table = data.X.assign(target=data.y).dropna().reset_index(drop=True)
    return table.astype(dict.fromkeys(table.select_dtypes("category"), object))


def make_table(n_rows: int, n_columns: int, n_categories: int = 10) -> pd.DataFrame:
    """Half of the columns numbers with several modes, half of them text."""
    rng = np.random.default_rng(0)
    values = np.array([f"word{j}" for j in range(n_categories)], dtype=object)
    columns: dict[str, Any] = {}
    for i in range(n_columns // 2):
        columns[f"number{i}"] = rng.normal(rng.integers(0, 5, n_rows) * 4.0, 1)
        columns[f"text{i}"] = values[rng.permutation(n_rows) % n_categories]
    return pd.DataFrame(columns)


def measure(name: str, table: pd.DataFrame, turns: int, n_sample: int) -> dict[str, Any]:
    """Medians for one data set, both packages and both models in turns."""
    times: dict[str, list[float]] = defaultdict(list)

    def trial(model: str, package: str, seeds: Iterator[int]) -> None:
        epochs = 3 if package == "ctgan" else 6
        fitted, moments = fit(package, model, table, epochs, seed=next(seeds))
        what = f"{package} {model}"
        times[f"{what} before, s"].append(moments[1] - moments[0])
        times[f"{what} epochs, s"] += np.diff(moments[1:]).tolist()
        times[f"{what} sample, s"].append(common.wall(lambda: fitted.sample(n_sample)))
        if (package, model) == ("combutab", "CTGAN"):
            layout = fitted.encoder_.layout_
            kinds = zip(layout.sizes, layout.spans, strict=True)
            n_condition = sum(size for size, span in kinds if span.kind == "category")
            run = products(layout.n_values + sum(layout.sizes), n_condition)
            times["its products, ms"] += [1e3 * common.wall(run) for _ in range(20)][1:]

    trials = list(itertools.product(MODELS, PACKAGES))
    runs = {which: partial(trial, *which, itertools.count()) for which in trials}
    common.in_turns(runs, turns, warm_up=0)
    found = common.medians(times)
    alone = found.pop("its products, ms")
    row: dict[str, Any] = {"data": name, "rows": len(table), "columns": table.shape[1]}
    row |= {what: found[what] for p in PACKAGES for what in found if what.startswith(p)}
    row["CTGAN step, ms"] = 1e3 * row["combutab CTGAN epochs, s"] / max(1, len(table) // BATCH)
    return row | {"its products, ms": alone}


# ---- growth ---------------------------------------------------------------------------------

CASE = ("grows", "package", "model", "n_rows", "n_columns", "n_categories")
MEASURED = ("before, s", "epoch, s", "peak, MiB")


def cases(quick: bool) -> list[tuple[Any, ...]]:
    """Rows grow with 20 columns; categories grow in one of two columns. Fits of one epoch."""
    if quick:
        return [("rows", package, "TVAE", 300, 2, 10) for package in PACKAGES]
    found = [("rows", p, m, n, 20, 10) for n in ROWS for m in MODELS for p in PACKAGES]
    for n, model in itertools.product(CATEGORIES, MODELS):
        # NOTE: the paper's generator has a weight for each pair of a category asked for and
        # one made: 10^10 of them for 100,000 categories, in anyone's implementation.
        if model == "TVAE" or n <= 1000:
            found += [("categories", p, model, 100_000, 2, n) for p in PACKAGES]
    return found


def run_case(grows: str, package: str, model: str, *shape: int) -> tuple[float, float, float]:
    """Fit in this process: what `MEASURED` names, the peak over what there was before."""
    import resource

    warnings.filterwarnings("ignore")
    table = make_table(*shape)
    fit(package, model, make_table(600, 2), 1)  # what is loaded once is no part of it
    gc.collect()
    common.forget_peak()
    before, limits = common.memory("VmRSS"), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (20 * GIB, limits[1]))
    try:
        _, (begun, trained, ended) = fit(package, model, table, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return trained - begun, ended - trained, common.memory("VmHWM") - before


def measure_case(case: tuple[Any, ...], limit: float, quick: bool) -> dict[str, Any]:
    """A row of the case, or what it ended with."""
    found, note = [np.nan] * 3, ""
    try:
        found = common.call_apart(run_case, *case, here=quick, timeout=limit)
    except subprocess.TimeoutExpired:
        note = f"over {limit:.0f} s"
    except subprocess.CalledProcessError as failed:
        error = (failed.stderr.splitlines() or ["killed"])[-1]
        known = "memory" in error.lower() or "alloc" in error.lower() or failed.returncode < 0
        note = "over 20 GiB" if known else error[:60]
    return dict(zip((*CASE, *MEASURED, "note"), (*case, *found, note), strict=True))


def compare(growth: pd.DataFrame) -> pd.DataFrame:
    """Both packages beside each other."""
    keys = [name for name in CASE if name != "package"]
    ours, theirs = (growth[growth["package"] == p].set_index(keys) for p in PACKAGES)
    parts = list(MEASURED)
    table = ours[parts].join(theirs[[*parts, "note"]], lsuffix=" ours", rsuffix=" ctgan")
    for part in parts:
        table[f"{part.split(',')[0]} ratio"] = table[f"{part} ctgan"] / table[f"{part} ours"]
    return table.reset_index()


def main() -> None:
    parts = {"nargs": "+", "choices": ("ratios", "growth"), "default": ["ratios", "growth"]}
    limit = {"type": float, "default": 1800, "help": "seconds for a growing table's fit"}
    options = {"turns": 5, "parts": parts, "limit": limit, "data_home": common.DATA_HOME}
    arguments = common.begin(__doc__, "synthetic tables, one turn", **options)
    quick = arguments.quick
    warnings.filterwarnings("ignore")
    if "ratios" in arguments.parts:
        rows = []
        for name in DATA[:1] if quick else DATA:
            table = load(name, quick, arguments.data_home)
            rows.append(measure(name, table, arguments.turns, 300 if quick else 100_000))
        timings = pd.DataFrame(rows).set_index("data")
        compared = pd.DataFrame(common.ratios(timings, RATIOS))
        pages = (
            common.block(compared.round(2).T, "Ratios"),
            common.block(timings.round(4).T, "Medians"),
        )
        common.write(arguments.out, "speed_generators", timings.join(compared), *pages)
    if "growth" in arguments.parts:
        grown = []
        for case in cases(quick):
            grown.append(measure_case(case, arguments.limit, quick))
            print("  ".join(str(value) for value in grown[-1].values()), flush=True)
        table = pd.DataFrame(grown)
        page = common.block(compare(table).round(2), "Growth")
        common.write(arguments.out, "speed_generators_growth", table, page)


if __name__ == "__main__":
    main()
