"""Dropout whose masks are a function of (member seed, step, row, unit), and cheap to draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._random import counters, random_int64_
from combutab.activations import fused_masks_, fused_wanted


class MaskMaker:
    """Draws one step's dropout masks of all layers at once: a 64-bit draw serves eight units.

    A rate is rounded to the nearest 1/256 (never to zero), and the kept units are scaled by the
    inverse of the keep probability that results, so the expected activation is exact.

    Parameters
    ----------
    widths : sequence of int
        Units of each layer that drops out.
    rates : sequence of float
        One a member, in [0, 1).

    >>> maker = MaskMaker([16, 8], [0.5, 0.0])
    >>> masks = maker.draw(keys=[1, 2], n_rows=3)
    >>> [tuple(mask.shape) for mask in masks], bool((masks[0][1] == 1).all())
    ([(2, 3, 16), (2, 3, 8)], True)
    """

    def __init__(
        self,
        widths: Sequence[int],
        rates: Sequence[float],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        # each layer starts on a multiple of 8 units: a draw is never split between layers
        self._offsets, total = [], 0
        for width in widths:
            self._offsets.append((total, total + width))
            total += -(-width // 8) * 8
        self._total = total
        dropped = [min(255, max(1, round(256 * r))) if r > 0 else 0 for r in rates]
        self.keep_probabilities = [(256 - d) / 256 for d in dropped]
        shape = (len(rates), 1, 1)
        self._dropped = torch.tensor(dropped, dtype=torch.uint8, device=self.device).view(shape)
        self._scale = torch.tensor(
            [1 / k for k in self.keep_probabilities], dtype=dtype, device=self.device
        ).view(shape)
        self.active = total > 0 and any(dropped)
        self._positions = torch.empty(0, dtype=torch.int64)
        self._masks = torch.empty(0, dtype=dtype, device=self.device)

    def draw(self, keys: Sequence[int], n_rows: int) -> list[Tensor]:
        """Masks of (M, n_rows, width), 0 or 1 / keep probability, one a layer.

        They are views of this object's memory: the next draw overwrites them.
        """
        if not self._total:
            return []
        if isinstance(keys, Tensor) and fused_wanted():
            n_units = len(keys) * n_rows * self._total
            if self._masks.numel() < n_units:
                self._masks = torch.empty(n_units, dtype=self.dtype, device=self.device)
            masks = self._masks[:n_units].view(len(keys), n_rows, self._total)
            if fused_masks_(keys, self._dropped, self._scale, masks):
                return [masks[..., start:stop] for start, stop in self._offsets]
        n_draws = n_rows * (self._total // 8)
        if self._positions.numel() < n_draws:
            self._positions = counters(n_draws, self.device)
            shape = (len(keys) * n_draws,)
            self._draws = torch.empty(shape, dtype=torch.int64, device=self.device)
            self._scratch = torch.empty_like(self._draws)
            self._masks = torch.empty(8 * shape[0], dtype=self.dtype, device=self.device)
        n = len(keys) * n_draws
        draws = random_int64_(
            keys,
            self._positions[:n_draws],
            self._draws[:n].view(len(keys), n_draws),
            self._scratch[:n].view(len(keys), n_draws),
        )
        units = draws.view(torch.uint8).view(len(keys), n_rows, self._total)
        masks = self._masks[: 8 * n].view(units.shape)
        torch.ge(units, self._dropped, out=units)  # bytes become 0 or 1
        masks.copy_(units).mul_(self._scale)
        return [masks[..., start:stop] for start, stop in self._offsets]
