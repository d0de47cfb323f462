"""How do a fit's seconds and memory grow with rows, columns, categories and members?

Every point is a fit in a process of its own, after a small one that loads all libraries; its peak
memory is what the process takes above that, the table included. Epochs are fixed and few. The
exponents are the slopes of the log-log fit over the upper half of each dimension's range, where
what a fit costs at any size no longer rules: 1 is linear. The steepest slope between neighbouring
points stands beside them.

    python -m benchmarks.speed.scaling [--quick] [--dimensions rows ...]
        [--most-rows 100000000] [--memory-limit 1GB] [--out benchmarks/speed/results]

Points of dimensions that are not measured stay in the file. "streamed" is `fit_parquet` of rows
that are made when they are read (which takes a part of the seconds), none of them stored; its
options are the size to go up to and the memory that a fit may take. That there is nothing lost by
it is shown by the loss on other rows beside those of two fits in memory to a sample, of as many
steps; the two differ in their seed alone.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.outputs import draw, write_picture
from benchmarks.speed.common import (
    PAGE,
    begin,
    block,
    call_apart,
    forget_peak,
    memory,
    wall,
    write,
)
from benchmarks.speed.streamed import measure_streamed
from combutab import MLPClassifier, MLPRegressor, paper_recipe

SIZES = {
    "rows": (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "columns": (10, 30, 100, 300, 1_000, 3_000, 10_000),
    "categories": (10, 100, 1_000, 10_000, 100_000, 300_000, 1_000_000),
    "members": (1, 4, 16, 32, 64, 128, 256, 512),
    "streamed": (300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000),
}
QUICK = {"rows": (500, 1_000), "columns": (5, 10), "categories": (5, 50), "members": (1, 2)}
QUICK |= {"streamed": (1_000, 2_000)}
WHAT = {
    "rows": "rows of 20 float32 columns, one epoch",
    "columns": "columns of 2,000 float32 rows, three epochs",
    "categories": "categories of one text column, each at least twice in 2,000,000 rows, one epoch",
    "members": "members of one estimator, 5,000 rows of 10 columns, three epochs",
    "streamed": "rows of 20 float32 columns from Parquet files, made when they are read, one epoch",
}
LONG_ENOUGH = 1.0  # seconds: a shorter fit is repeated
MEASURES = {"seconds": ("seconds of a fit", "#0072B2"), "megabytes": ("peak memory, MB", "#D55E00")}


def make(dimension: str, size: int, quick: bool) -> tuple[Any, np.ndarray, dict[str, Any]]:
    """The table of a point, what is to be predicted, and the parameters of the fit."""
    rng = np.random.default_rng(0)
    if dimension == "categories":  # all as frequent
        n_rows = 500 if quick else 2_000_000
        codes = rng.permutation(n_rows) % size
        names = np.array([f"category {i}" for i in range(size)], dtype=object)
        parameters = {"hidden_layer_sizes": (16,), "max_iter": 1, "batch_size": min(n_rows, 20_000)}
        return pd.DataFrame({"text": names[codes]}), (codes % 7).astype(np.float32), parameters
    shape, parameters = {
        "rows": ((size, 20), {"hidden_layer_sizes": (16,), "max_iter": 1}),
        "columns": ((200 if quick else 2_000, size), {"hidden_layer_sizes": (16,), "max_iter": 3}),
        "members": ((5_000, 10), {"hidden_layer_sizes": (32,), "max_iter": 3, "n_members": size}),
    }[dimension]
    X = rng.standard_normal(shape, dtype=np.float32)
    return X, X[:, 0] * X[:, 1], parameters


def measure(dimension: str, size: int, quick: bool, limit: str) -> dict[str, float]:
    """One point, in this process: seconds of a fit and its peak memory in MB."""
    warnings.filterwarnings("ignore", category=UserWarning)
    settings = {"n_iter_no_change": np.inf, "device": "cpu", "random_state": 0}
    few, many = ["a", "b", "c"] * 200, [f"text {i % 60}" for i in range(600)]
    small = pd.DataFrame({"x": np.arange(600.0), "few": few, "many": many})
    warm_up = {"hidden_layer_sizes": (8,), "max_iter": 1, **settings}
    for net in (
        MLPRegressor(**paper_recipe("regression", **warm_up)),
        MLPClassifier(**paper_recipe("classification", **warm_up)),
    ):
        net.fit(small, small["x"] > 300)
    if dimension == "streamed":
        measure_streamed(600, limit, {**settings, "hidden_layer_sizes": (8,)}, compared=False)
        parameters = {"hidden_layer_sizes": (16,), "early_stopping": False, **settings}
        return measure_streamed(size, limit, paper_recipe("regression", **parameters), True)
    before = memory("VmRSS")
    X, y, parameters = make(dimension, size, quick)
    forget_peak()
    parameters = paper_recipe("regression", **settings, **parameters)
    seconds: list[float] = []
    while not seconds or (sum(seconds) < LONG_ENOUGH and len(seconds) < 15 and not quick):
        seconds.append(wall(lambda: MLPRegressor(**parameters).fit(X, y)))
        if len(seconds) == 1:
            grown = max(memory("VmHWM") - before, PAGE)
    return {"seconds": float(np.median(seconds)), "megabytes": grown * 2**20 / 1e6}


def exponents(points: pd.DataFrame) -> pd.DataFrame:
    """Slopes over the upper half of each dimension's logarithmic range, and the steepest step."""
    rows = []
    for dimension, part in points.groupby("dimension", sort=False):
        part = part.sort_values("size")
        size = np.log(part["size"].to_numpy(float))
        upper = size >= (size[0] + size[-1]) / 2 - 1e-9
        if upper.sum() < 2:
            upper[-2:] = True
        row: dict[str, Any] = {"dimension": dimension}
        for name in MEASURES:
            values = np.log(part[name].to_numpy(float))
            row[name] = np.polyfit(size[upper], values[upper], 1)[0]
            row[f"{name}, steepest"] = (np.diff(values) / np.diff(size)).max()
        rows.append(row)
    return pd.DataFrame(rows).set_index("dimension")


def plot(points: pd.DataFrame, slopes: pd.DataFrame) -> Figure:
    """Seconds above, memory below, one column a dimension; dashed: linear growth."""
    figure = Figure(figsize=(3.4 * len(slopes), 6.2), layout="constrained")
    axes = figure.subplots(2, len(slopes), squeeze=False)
    for j, dimension in enumerate(slopes.index):
        part = points[points["dimension"] == dimension].sort_values("size")
        last = part.iloc[-1]
        for panel, (name, (label, colour)) in zip(axes[:, j], MEASURES.items(), strict=True):
            panel.loglog(part["size"], part[name], "o-", color=colour, clip_on=False)
            linear = last[name] * part["size"] / last["size"]
            shown = linear >= part[name].min() / 3
            panel.loglog(part["size"][shown], linear[shown], "--", color="#777777", linewidth=1)
            panel.set_title(f"{dimension}: exponent {slopes.loc[dimension, name]:.2f}", fontsize=11)
            panel.set_xlabel(dimension)
            panel.grid(alpha=0.3)
            if j == 0:
                panel.set_ylabel(label)
    figure.suptitle("Growth of a fit on a CPU (dashed: linear)")
    return figure


def main() -> None:
    dimensions = {"nargs": "+", "choices": list(SIZES), "default": list(SIZES)}
    options = {"dimensions": dimensions, "most_rows": SIZES["streamed"][-1], "memory_limit": "1GB"}
    arguments = begin(__doc__, "two small sizes a dimension", **options)
    quick = arguments.quick
    rows = []
    for dimension in arguments.dimensions:
        for size in (QUICK if quick else SIZES)[dimension]:
            if dimension == "streamed" and size > arguments.most_rows:
                continue
            point = call_apart(measure, dimension, size, quick, arguments.memory_limit, here=quick)
            rows.append({"dimension": dimension, "size": size, **point})
            print(f"{dimension} {size}: {point['seconds']:.4g} s, {point['megabytes']:.4g} MB")
    points = pd.DataFrame(rows)
    file = (arguments.out or Path()) / "scaling.csv.gz"
    if arguments.out and file.exists():
        earlier = pd.read_csv(file)
        points = pd.concat([earlier[~earlier["dimension"].isin(arguments.dimensions)], points])
    order = {name: i for i, name in enumerate(SIZES)}
    points = points.sort_values("size", ignore_index=True)
    points = points.sort_values("dimension", key=lambda names: names.map(order), kind="stable")
    slopes = exponents(points)
    pages = ["## Exponents\n\nSlope over the upper half of the range; 1 is linear.\n"]
    pages.append(block(slopes.round(2)))
    for name in slopes.index:
        pages.append(f"## {name}\n\n{WHAT[name]}\n")
        part = points[points["dimension"] == name].drop(columns="dimension").dropna(axis=1)
        pages.append(block(part, index=False, float_format=lambda value: f"{value:.4g}"))
    write(arguments.out, "scaling", points, *pages, index=False)
    if arguments.out:
        write_picture(arguments.out / "scaling", *draw(plot(points, slopes)))


if __name__ == "__main__":
    main()
