"""Activations that do something to the worker process that builds them, and are ReLU at home."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Killer:
    """Kills all processes that are named in a file, its own the last; the first time, or always."""

    mark: Path
    home: int
    always: bool = False
    others: Path | None = None

    def __call__(self, width):
        if os.getpid() != self.home and (self.always or not self.mark.exists()):
            self.mark.touch()
            for pid in self.others.read_text().split() if self.others else ():
                if int(pid) != os.getpid():
                    os.kill(int(pid), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.ReLU()


@dataclass(frozen=True)
class Slow:
    """Waits for a file."""

    wanted: Path
    home: int
    seconds: float = 300  # at most

    def __call__(self, width):
        end = time.monotonic() + self.seconds
        while os.getpid() != self.home and not self.wanted.exists():
            if time.monotonic() > end:
                raise TimeoutError("nothing came back before this")
            time.sleep(0.02)
        return torch.nn.ReLU()
