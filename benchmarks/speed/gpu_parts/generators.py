"""Epochs of CTGAN and TVAE beside the ctgan package's, on one device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import combutab
from benchmarks.speed.generators import Clock, make_table
from benchmarks.speed.gpu_parts.timing import Line, compiling, synchronize

TARGETS = {"CTGAN": 15.0, "TVAE": 8.0}
TOLERANCE = 2e-2  # of losses after a few steps, in float32
ROWS, COLUMNS = 20_000, 10


class DeviceClock(Clock):
    """Marks moments when all that was queued is done."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def _mark(self) -> None:
        synchronize(self.device)
        super()._mark()


def ours(
    model: str, table: pd.DataFrame, device: torch.device, epochs: int, compiled: bool = False
) -> Any:
    """A fitted model of ours, the original networks; ``clock_`` has its epochs' moments."""
    clock = DeviceClock(device)
    unfitted = getattr(combutab, model)(
        epochs=epochs, activation="original", random_state=0, device=device, callbacks=[clock]
    )
    with compiling(compiled, device):
        fitted = unfitted.fit(table)
    fitted.clock_ = clock
    return fitted


def theirs(model: str, table: pd.DataFrame, device: torch.device, epochs: int) -> Any:
    """The same of the ctgan package."""
    import ctgan

    clock = DeviceClock(device)
    fitted = getattr(ctgan, model)(epochs=epochs, enable_gpu=device.type == "cuda")
    fitted.set_random_state(0)
    with mock.patch(f"ctgan.synthesizers.{model.lower()}.tqdm", clock.progress_bar):
        fitted.fit(table, list(table.select_dtypes(object)))
    fitted.clock_ = clock
    return fitted


def epoch(fitted: Any) -> float:
    """Median seconds of the epochs but for the first two, which warm up."""
    epochs = np.diff(fitted.clock_.moments)
    return statistics.median(epochs[min(2, len(epochs) - 1) :])


def losses(fitted: Any) -> np.ndarray:
    """Of its epochs."""
    return fitted.history_.select_dtypes("number").to_numpy(float)


def measure(device: torch.device, quick: bool) -> Iterator[Line]:
    """An epoch's seconds by both packages."""
    table = make_table(300, 4) if quick else make_table(ROWS, COLUMNS)
    small = make_table(1000, 4)
    n_epochs = 3 if quick else 8
    for model, target in TARGETS.items():
        what = f"{model}, an epoch of {len(table)} x {table.shape[1]}"
        expected = losses(ours(model, small, torch.device("cpu"), 2))
        best = math.inf
        for compiled in [False] if model == "CTGAN" else [False, True]:
            found = losses(ours(model, small, device, 2, compiled))
            wrong = float(np.abs(found - expected).max() / np.abs(expected).max())
            seconds = epoch(ours(model, table, device, 2 * n_epochs, compiled))
            best = min(best, seconds)
            way = "ours, compiled" if compiled else "ours"
            yield Line(
                "generators", what, way, seconds, "s", difference=wrong, tolerance=TOLERANCE
            ).judged()
        if find_spec("ctgan") is None:
            note = "the ctgan package is not installed"
            yield Line("generators", what, "ctgan package", math.nan, "s", note=note)
            continue
        other = epoch(theirs(model, table, device, n_epochs))
        yield Line(
            "generators", what, "ctgan package", other, "s", share=other / best, target=target,
            note="share: these / ours",
        )  # fmt: skip
