"""Fits to Parquet files that nobody stores: their rows are made when they are read."""

from __future__ import annotations

import io
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.common import PAGE, forget_peak, memory, wall
from combutab import MLPRegressor

FEATURES = 20
FILE_ROWS = 100_000  # of float32: 8 MB a file
SAMPLE = 1_000_000  # rows of the fit in memory, at most
HELD_OUT = 100_000
FOLDER = "rows"


def rows(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and target of n_rows rows, with noise of variance 0.01: no loss is below."""
    rng = np.random.default_rng([7, seed])
    X = rng.standard_normal((n_rows, FEATURES), dtype=np.float32)
    noise = 0.1 * rng.standard_normal(n_rows, dtype=np.float32)
    return X, X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + noise


def sizes(n_rows: int) -> list[int]:
    """The rows of each file."""
    whole, rest = divmod(n_rows, FILE_ROWS)
    return [FILE_ROWS] * whole + [rest] * (rest > 0)


class MadeFiles(fsspec.AbstractFileSystem):
    """A folder of Parquet files, each made of its number when it is opened."""

    protocol = "made"
    cachable = False

    def __init__(self, n_rows: int) -> None:
        super().__init__()
        self.sizes = {f"{FOLDER}/{i:06d}.parquet": size for i, size in enumerate(sizes(n_rows))}

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = path.strip("/")
        if path not in self.sizes and path != FOLDER:
            raise FileNotFoundError(path)
        return {"name": path, "size": None, "type": "file" if path in self.sizes else "directory"}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        return [self.info(each) if detail else each for each in self.sizes]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.BytesIO:
        X, y = rows(list(self.sizes).index(path), self.sizes[path])
        columns = {f"x{j}": X[:, j].copy() for j in range(FEATURES)}
        file = io.BytesIO()
        # neither dictionaries nor compression: the time is to be the reader's
        pq.write_table(
            pa.table({**columns, "y": y}), file, use_dictionary=False, compression="none"
        )
        file.seek(0)
        return file


def measure_streamed(
    n_rows: int, limit: str, parameters: dict[str, Any], compared: bool
) -> dict[str, float]:
    """One point: seconds and peak memory of a fit to files, and what it has learned.

    The losses are mean squared errors on rows of their own: of this fit, and of two in memory to a
    sample of the rows, of SAMPLE at most, that take as many steps. The second starts from another
    seed: how far these two are apart is the noise.
    """
    net = MLPRegressor(**{**parameters, "max_iter": 1})
    files = MadeFiles(n_rows)
    before = memory("VmRSS")
    forget_peak()
    seconds = wall(lambda: net.fit_parquet(FOLDER, "y", memory_limit=limit, filesystem=files))
    grown = max(memory("VmHWM") - before, PAGE)
    point = {"seconds": seconds, "megabytes": grown * 2**20 / 1e6, "loss": loss(net)}
    if compared:
        n_files = -(-min(n_rows, SAMPLE) // FILE_ROWS)
        made = [rows(i, size) for i, size in enumerate(sizes(n_rows)[:n_files])]
        X, y = map(np.concatenate, zip(*made, strict=True))
        epochs = max(1, round(n_rows / len(X)))
        for seed, name in enumerate(("loss in memory", "of another seed")):
            settings = {**parameters, "max_iter": epochs, "random_state": seed}
            point[name] = loss(MLPRegressor(**settings).fit(X, y))
    return point


def loss(net: MLPRegressor) -> float:
    """Mean squared error on rows that no fit has seen."""
    X, y = rows(-1 % 2**32, HELD_OUT)
    named = hasattr(net, "feature_names_in_")
    predicted = net.predict(pd.DataFrame(X, columns=net.feature_names_in_) if named else X)
    return float(np.mean((predicted - y) ** 2))
