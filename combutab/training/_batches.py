"""Batches: the rows that every member sees in each step, and their random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from combutab._random import Purpose, derive, random_permutations, starts
from combutab.training._records import MemberPlan, TrainConfig

_AHEAD = 1 << 16  # row numbers drawn at once: several epochs' of a small table


@dataclass(frozen=True)
class Padding:
    """Places of a step's batches that hold a row; the others are padding."""

    rows: tuple[int, ...]  # members that have any row
    valid: Tensor | None = None  # (M, b) which places hold one, None: all


class Batches:
    """Row numbers of every member's batches, epoch after epoch.

    They are asked for in the epochs before ``until``. ``before`` is the number of steps done
    before these rows, which are a part of a table that is streamed: each part has its own order.
    """

    def __init__(
        self,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        device: torch.device,
        until: int,
        before: int = 0,
    ) -> None:
        self.batch_size, self.device = config.batch_size, device
        self.until, self.before = until, before
        self.lengths = [len(p.rows) for p in plans]
        # one batch holds all rows: their order does not matter, so none is drawn
        self.shuffled = [config.shuffle and n > config.batch_size for n in self.lengths]
        self.table = _table([p.rows for p in plans], device)
        self._identity = len(self.table) == 1 and _counts_up(self.table[0])
        self._seeds = np.array([p.seed for p in plans], dtype=np.uint64)
        self._begun = np.array([p.start.epochs if p.start else 0 for p in plans], dtype=np.uint64)
        self._refresh()

    def _refresh(self) -> None:
        self.n_steps = -(-self.table.shape[1] // self.batch_size)
        self._full = Padding(tuple(range(len(self.lengths))))
        self._paddings: dict[int, Padding] = {}
        self._orders: tuple[int, Sequence[Tensor] | Tensor] = (0, ())  # first epoch, of each
        self._still = None
        if any(self.shuffled) and not all(self.shuffled):
            self._still = torch.tensor([not s for s in self.shuffled], device=self.device)

    @property
    def fixed(self) -> bool:
        """Tell whether every step has the same rows in the same order."""
        return self.n_steps == 1 and not any(self.shuffled)

    def order(self, epoch: int) -> Tensor:
        """(M, n_max) row numbers in this epoch's order; past a member's length, any."""
        if not any(self.shuffled):
            return self.table
        first, orders = self._orders
        if not 0 <= epoch - first < len(orders):
            first, orders = epoch, self._draw_orders(epoch)
            if len(orders) > 1:  # that of a large table is not kept
                self._orders = first, orders
        return orders[epoch - first]

    def _draw_orders(self, epoch: int) -> Tensor:
        """(n_epochs, M, n_max) row numbers, of this epoch and as many more as are cheap."""
        n_members, n = self.table.shape
        n_epochs = max(1, min(_AHEAD // (n_members * n), self.until - epoch))
        epochs = np.arange(epoch, epoch + n_epochs, dtype=np.uint64)[:, None]
        keys = derive(self._seeds, Purpose.SHUFFLE, self.before, self._begun + epochs).reshape(-1)
        order = random_permutations(
            starts(keys, self.device), self.lengths * n_epochs, self.device
        ).view(n_epochs, n_members, n)
        if self._still is not None:
            order[:, self._still] = torch.arange(n, device=self.device)
        return order if self._identity else self.table.expand_as(order).gather(2, order)

    def mask_keys(self, epoch: int) -> Tensor:
        """(n_steps, M) int64: where the dropout masks' counters start in each step."""
        epochs = self._begun + np.uint64(epoch)
        steps = np.arange(self.before, self.before + self.n_steps, dtype=np.uint64)[:, None]
        return starts(derive(self._seeds, Purpose.DROPOUT, epochs, steps), self.device)

    def span(self, step: int) -> tuple[int, int]:
        start = step * self.batch_size
        return start, min(start + self.batch_size, self.table.shape[1])

    def padding(self, step: int) -> Padding:
        """Find the members that have rows in this step, and where."""
        start, stop = self.span(step)
        if stop <= min(self.lengths):
            return self._full
        if step not in self._paddings:
            counts = [max(0, min(stop, n) - start) for n in self.lengths]
            places = torch.arange(stop - start, device=self.device)
            valid = places < torch.tensor(counts, device=self.device).unsqueeze(1)
            rows = tuple(m for m, count in enumerate(counts) if count)
            self._paddings[step] = Padding(rows, valid)
        return self._paddings[step]

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        self.lengths = [self.lengths[k] for k in keep]
        self.shuffled = [self.shuffled[k] for k in keep]
        kept = list(keep)
        self._seeds, self._begun = self._seeds[kept], self._begun[kept]
        n_max = max(self.lengths)
        self.table = self.table[torch.tensor(kept, device=self.device), :n_max]
        self._refresh()


def _table(rows: Sequence[Tensor], device: torch.device) -> Tensor:
    """(M, n_max) row numbers; one table in memory where all members have the same."""
    if all(r is rows[0] for r in rows):
        return rows[0].to(device).expand(len(rows), -1)
    # padding counts with weight 0, which only a row that the member can bear survives
    table = torch.stack([r[0] for r in rows]).to(device).unsqueeze(1)
    table = table.repeat(1, max(len(r) for r in rows))
    for m, own in enumerate(rows):
        table[m, : len(own)] = own.to(device)
    return table


def _counts_up(rows: Tensor) -> bool:
    """Tell whether the rows are 0, 1, 2, ...: a table as large as the data can then be spared."""
    return torch.equal(rows, torch.arange(len(rows), device=rows.device))
