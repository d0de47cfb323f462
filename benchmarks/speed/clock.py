"""The moments of a training's epochs, on any device."""

from __future__ import annotations

import time
from typing import Any

import torch

from combutab.training import Callback


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
