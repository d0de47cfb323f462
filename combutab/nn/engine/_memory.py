"""Memory that is asked for by name, step after step, and allocated once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from combutab.activations.kernels import Memory


class Scratch:
    """Tensors by name; each grows to the largest size asked for and is reused for smaller ones.

    Fresh memory, which the system must map and clear, costs a CPU as much as the work on it.

    >>> scratch = Scratch(torch.float32, torch.device("cpu"))
    >>> scratch("a", 2, 3).shape, scratch("a", 2, 3).data_ptr() == scratch("a", 6).data_ptr()
    (torch.Size([2, 3]), True)
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._held: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A contiguous tensor of this shape; what it holds is what was last written there."""
        view = self._views.get((name, shape))
        if view is not None:
            return view
        n = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < n:
            held = torch.empty(n, dtype=self.dtype, device=self.device)
            self._held[name] = held
            self._views = {key: x for key, x in self._views.items() if key[0] != name}
        view = held[:n].view(shape)
        self._views[name, shape] = view
        return view


class StageMemory(Memory):
    """A stage's own part of a scratch, and the part that all stages share."""

    def __init__(self, scratch: Scratch, prefix: str) -> None:
        super().__init__()
        self._scratch, self._prefix = scratch, prefix

    def keep(self, name: str, *shape: int) -> Tensor:
        """Give memory that stays from a stage's forward to its backward pass."""
        return self._scratch(f"{self._prefix}.{name}", *shape)

    def work(self, name: str, *shape: int) -> Tensor:
        """Give memory that is used within a call alone."""
        return self._scratch(name, *shape)
