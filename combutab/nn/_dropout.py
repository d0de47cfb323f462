"""Dropout whose masks are a function of (member seed, step, row, unit), and cheap to draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._random import counters, random_int64_


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
        self._spans, total = [], 0
        for width in widths:
            end = total + -(-width // 8) * 8
            self._spans.append((total, end, width))
            total = end
        self._total = total
        self._rates = tuple(rates)
        shape = (len(rates), 1, 1)
        self._dropped = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        self._scale = torch.ones(shape, dtype=dtype, device=self.device)
        self.set_factor(1.0)
        self.active = total > 0 and any(rate > 0 for rate in rates)
        self._positions: dict[tuple[int, int], Tensor] = {}  # by the first row and their number
        self._draws = torch.empty(0, dtype=torch.int64, device=self.device)
        self._masks = torch.empty(0, dtype=dtype, device=self.device)

    def set_factor(self, factor: float) -> None:
        """Multiply all rates by a factor from 0 to 1, until the next call."""
        rates = [factor * rate for rate in self._rates]
        dropped = [min(255, max(1, round(256 * r))) if r > 0 else 0 for r in rates]
        self.keep_probabilities = [(256 - d) / 256 for d in dropped]
        self._dropped.copy_(torch.tensor(dropped, dtype=torch.uint8).view_as(self._dropped))
        scale = torch.tensor([1 / k for k in self.keep_probabilities], dtype=self.dtype)
        self._scale.copy_(scale.view_as(self._scale))

    def draw(self, keys: Sequence[int] | Tensor, n_rows: int, first: int = 0) -> list[Tensor]:
        """Masks of (M, n_rows, width), 0 or 1 / keep probability, one a layer.

        They are those of the rows ``first`` on of a step.

        They are views of this object's memory: the next draw overwrites them.
        """
        if not self._total:
            return []
        positions = self.positions(n_rows, first)
        n_members, n_units = len(keys), n_rows * self._total
        if self._masks.numel() < n_members * n_units:
            self._masks = torch.empty(n_members * n_units, dtype=self.dtype, device=self.device)
        if self._draws.numel() < n_members * len(positions):
            shape = (n_members * len(positions),)
            self._draws = torch.empty(shape, dtype=torch.int64, device=self.device)
        masks = self._masks[: n_members * n_units]
        draws = self._draws[: n_members * len(positions)].view(n_members, -1)
        scratch = masks.view(torch.int64)[: draws.numel()].view(draws.shape)
        random_int64_(keys, positions, draws, scratch)
        units = draws.view(torch.uint8).view(n_members, 1, n_units)
        masks = masks.view(units.shape)
        torch.ge(units, self._dropped, out=units)  # bytes become 0 or 1
        return self._by_layer(masks.copy_(units).mul_(self._scale))

    def draw_compiled(self, keys: Tensor, positions: Tensor) -> list[Tensor]:
        """``draw`` for compiled code, which finds itself memory; given ``positions(n_rows)``.

        The positions are given because C++ code that makes them in a loop may assume that their
        integers never overflow.
        """
        draws = positions.new_empty(len(keys), len(positions))
        random_int64_(keys, positions, draws, torch.empty_like(draws))
        kept = draws.view(torch.uint8).view(len(keys), 1, -1) >= self._dropped
        return self._by_layer(kept.to(self.dtype) * self._scale)

    def _by_layer(self, masks: Tensor) -> list[Tensor]:  # (M, 1, all units of all rows)
        n_members, n_rows = len(masks), masks.shape[-1] // self._total
        return [
            masks[:, 0, n_rows * start : n_rows * end].view(n_members, n_rows, -1)[..., :width]
            for start, end, width in self._spans
        ]

    def positions(self, n_rows: int, first: int = 0) -> Tensor:
        """Counters of all units, layer by layer, so that each layer's masks are contiguous.

        A draw's counter follows from its row and its place among the units of all layers.
        """
        key, n_draws = (first, n_rows), self._total // 8
        if key not in self._positions:
            if len(self._positions) > 3:  # a full batch and an epoch's last one, usually
                self._positions.clear()
            every = counters(n_rows * n_draws, self.device, first * n_draws).view(n_rows, -1)
            parts = [every[:, start // 8 : end // 8].reshape(-1) for start, end, _ in self._spans]
            self._positions[key] = torch.cat(parts)
        return self._positions[key]
