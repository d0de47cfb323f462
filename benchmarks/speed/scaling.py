"""Growth of a fit's seconds and memory with rows, columns, categories and members.

Each fit runs in a separate process, after a small one that loads all libraries. Peak memory is the
growth of the process in MB, including the table. The exponents are slopes of the logarithms over
the upper half of each range, where fixed costs no longer dominate; 1 is linear growth. The steepest
slope between neighbouring points is also shown.

"streamed" is `fit_parquet` on rows that are generated when they are read, which takes part of the
seconds; none of them is stored. Its loss (mean squared error) on held-out rows is compared with the
losses of two fits in memory, which train on a sample of the rows for as many steps and differ only
in the seed. The variance of the noise, 0.01, is the smallest loss possible.

    python -m benchmarks.speed.scaling [--quick] [--out benchmarks/speed/results]
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from benchmarks.speed.common import begin, block, call_apart, memory, seconds_and_peak, wall, write
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
    "rows": "Rows of 20 float32 columns; one epoch.",
    "columns": "Columns of 2,000 float32 rows; three epochs.",
    "categories": "Categories of one text column with 2,000,000 rows; one epoch.",
    "members": "Members of one estimator; 5,000 rows of 10 columns, three epochs.",
    "streamed": "Rows of 20 float32 columns, streamed from Parquet files; one epoch.",
}
MEASURES = ("seconds", "megabytes")
# of the streamed fits; the sample is the fit's in memory, at most
FEATURES, FILE_ROWS, SAMPLE, HELD_OUT, FOLDER = 20, 100_000, 1_000_000, 100_000, "rows"


def make(dimension: str, size: int, quick: bool) -> tuple[Any, np.ndarray, dict[str, Any]]:
    """The table of a point, what is to be predicted, and the parameters of the fit."""
    if dimension == "categories":  # all as frequent
        n_rows = 500 if quick else 2_000_000
        codes = np.random.default_rng(0).permutation(n_rows) % size
        names = np.array([f"category {i}" for i in range(size)], dtype=object)
        parameters = {"hidden_layer_sizes": (16,), "max_iter": 1, "batch_size": min(n_rows, 20_000)}
        return pd.DataFrame({"text": names[codes]}), (codes % 7).astype(np.float32), parameters
    few = 200 if quick else 2_000
    shape = {"rows": (size, 20), "columns": (few, size), "members": (5_000, 10)}[dimension]
    parameters = {"hidden_layer_sizes": (16,), "max_iter": 1 if dimension == "rows" else 3}
    if dimension == "members":
        parameters |= {"hidden_layer_sizes": (32,), "n_members": size}
    X = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return X, X[:, 0] * X[:, 1], parameters


def rows(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and target of n_rows rows, with noise of variance 0.01: no loss is below."""
    rng = np.random.default_rng([7, seed])
    X = rng.standard_normal((n_rows, FEATURES), dtype=np.float32)
    noise = 0.1 * rng.standard_normal(n_rows, dtype=np.float32)
    return X, X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + noise


class MadeFiles(MemoryFileSystem):
    """A folder of Parquet files, each made of its number when it is opened."""

    cachable, pseudo_dirs = False, (f"/{FOLDER}",)

    def __init__(self, n_rows: int) -> None:
        super().__init__()
        starts = range(0, n_rows, FILE_ROWS)
        self.sizes = {f"/{FOLDER}/{a:012d}.parquet": min(FILE_ROWS, n_rows - a) for a in starts}
        self.store = {path: MemoryFile(self, path) for path in self.sizes}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.BytesIO:
        X, y = rows(list(self.sizes).index(path), self.sizes[path])
        table = pa.table({**{f"x{j}": X[:, j].copy() for j in range(FEATURES)}, "y": y})
        file = io.BytesIO()
        # neither dictionaries nor compression: the time is to be the reader's
        pq.write_table(table, file, use_dictionary=False, compression="none")
        file.seek(0)
        return file


def measure_streamed(n_rows: int, parameters: dict[str, Any]) -> dict[str, float]:
    """One point: seconds and peak memory of a fit to files, and what it has learned.

    The losses are mean squared errors on rows of their own: of this fit, and of two in memory to a
    sample of the rows, of SAMPLE at most, that take as many steps. The second starts from another
    seed: how far these two are apart is the noise.
    """
    nets = {"loss": MLPRegressor(**parameters | {"max_iter": 1, "random_state": 0})}
    files = MadeFiles(n_rows)
    read = {"memory_limit": "1GB", "filesystem": files}
    seconds, peak = seconds_and_peak(lambda: nets["loss"].fit_parquet(FOLDER, "y", **read))
    made = [rows(i, n) for i, n in enumerate(files.sizes.values()) if i * FILE_ROWS < SAMPLE]
    X, y = map(np.concatenate, zip(*made, strict=True))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(FEATURES)])
    for seed, name in enumerate(("loss in memory", "of another seed")):
        settings = {"max_iter": max(1, round(n_rows / len(X))), "random_state": seed}
        nets[name] = MLPRegressor(**parameters | settings).fit(frame, y)
    X, truth = rows(-1 % 2**32, HELD_OUT)  # that no fit has seen
    held = pd.DataFrame(X, columns=frame.columns)
    losses = {name: float(np.mean((net.predict(held) - truth) ** 2)) for name, net in nets.items()}
    return {"seconds": seconds, "megabytes": peak * 2**20 / 1e6, **losses}


def measure(dimension: str, size: int, quick: bool) -> dict[str, float]:
    """One point, in this process: seconds of a fit and its peak memory in MB."""
    warnings.filterwarnings("ignore", category=UserWarning)
    settings = {"n_iter_no_change": np.inf, "device": "cpu"}
    few, many = ["a", "b", "c"] * 200, [f"text {i % 60}" for i in range(600)]
    small = pd.DataFrame({"x": np.arange(600.0), "few": few, "many": many})
    warm_up = {"hidden_layer_sizes": (8,), "max_iter": 1, **settings}
    MLPRegressor(**paper_recipe("regression", **warm_up)).fit(small, small["x"])
    MLPClassifier(**paper_recipe("classification", **warm_up)).fit(small, small["x"] > 300)
    if dimension == "streamed":
        own = {"hidden_layer_sizes": (16,), "early_stopping": False, **settings}
        parameters = paper_recipe("regression", **own)
        measure_streamed(600, parameters)
        return measure_streamed(size, parameters)
    before = memory("VmRSS")
    X, y, own = make(dimension, size, quick)
    net = MLPRegressor(**paper_recipe("regression", **settings, random_state=0, **own))
    first, peak = seconds_and_peak(lambda: net.fit(X, y), before)
    seconds = [first]
    while sum(seconds) < 1 and len(seconds) < 15 and not quick:  # a short fit is repeated
        seconds.append(wall(lambda: net.fit(X, y)))
    return {"seconds": float(np.median(seconds)), "megabytes": peak * 2**20 / 1e6}


def exponents(points: pd.DataFrame) -> pd.DataFrame:
    """Slopes over the upper half of each dimension's logarithmic range, and the steepest step."""
    found = {}
    for dimension, part in points.groupby("dimension", sort=False):
        table = np.log(part.sort_values("size")[["size", *MEASURES]].astype(float))
        upper = table["size"] >= table["size"].iloc[[0, -1]].mean() - 1e-9
        upper.iloc[-2:] = True
        steps = table.diff()
        found[dimension] = row = {}
        for name in MEASURES:
            row[name] = np.polyfit(table["size"][upper], table[name][upper], 1)[0]
            row[f"{name}, steepest"] = (steps[name] / steps["size"]).max()
    return pd.DataFrame(found).T.rename_axis("dimension")


def main() -> None:
    arguments = begin(__doc__)
    quick, found = arguments.quick, []
    for dimension, sizes in (QUICK if quick else SIZES).items():
        for size in sizes:
            point = call_apart(
                "benchmarks.speed.scaling:measure", dimension, size, quick, here=quick
            )
            found.append({"dimension": dimension, "size": size, **point})
            print(*found[-1].values(), flush=True)
    points = pd.DataFrame(found)
    pages = ["## Exponents\n\nSlopes of the logarithms, upper half of each range; 1 is linear.\n"]
    pages.append(block(exponents(points)))
    for name, part in points.groupby("dimension", sort=False):
        shown = part.drop(columns="dimension").dropna(axis=1)
        pages.append(f"## {name}\n\n{WHAT[name]}\n")
        pages.append(block(shown, index=False))
    write(arguments, "scaling", points, *pages, index=False)


if __name__ == "__main__":
    main()
