"""Epochs of CTGAN and TVAE beside the ctgan package's, on one device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.speed.generators import fit, make_table
from benchmarks.speed.gpu_parts.timing import Line

TARGETS = {"CTGAN": 15.0, "TVAE": 8.0}
TOLERANCE = 2e-2  # of losses after a few steps, in float32
ROWS, COLUMNS = 20_000, 10


def epoch(moments: list[float]) -> float:
    """Median seconds of the epochs but for the first two, which warm up."""
    epochs = np.diff(moments[1:])
    return statistics.median(epochs[min(2, len(epochs) - 1) :])


def losses(fitted: Any) -> np.ndarray:
    """Of its epochs."""
    return fitted.history_.select_dtypes("number").to_numpy(float)


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """An epoch's seconds by both packages."""

    def ours(table: pd.DataFrame, epochs: int, on: str) -> Any:
        return fit("combutab", model, table, epochs, device=on)

    table = make_table(300, 4) if quick else make_table(ROWS, COLUMNS)
    small = make_table(1000, 4)
    n_epochs = 3 if quick else 8
    for model, target in TARGETS.items():
        what = f"{model}, an epoch of {len(table)} x {table.shape[1]}"
        expected = losses(ours(small, 2, "cpu")[0])
        found = losses(ours(small, 2, str(device))[0])
        wrong = float(np.abs(found - expected).max() / np.abs(expected).max())
        seconds = epoch(ours(table, 2 * n_epochs, str(device))[1])
        yield Line(
            "generators", what, "ours", seconds, "s", difference=wrong, tolerance=TOLERANCE
        ).judged()
        if find_spec("ctgan") is None:
            note = "the ctgan package is not installed"
            yield Line("generators", what, "ctgan package", math.nan, "s", note=note)
            continue
        other = epoch(fit("ctgan", model, table, n_epochs, device=str(device))[1])
        yield Line(
            "generators", what, "ctgan package", other, "s", share=other / seconds, target=target,
            note="share: these / ours",
        )  # fmt: skip
