"""Which rows every member sees in which step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._random import fold_in, random_permutations
from combutab.training._records import MemberPlan, TrainConfig

_SHUFFLE = 3  # purpose of a member's key


class Batches:
    """Row numbers of every member's batches, epoch after epoch.

    ``part`` tells parts of a table that is streamed apart: each has its own order.
    """

    def __init__(
        self,
        plans: Sequence[MemberPlan],
        config: TrainConfig,
        device: torch.device,
        part: int = 0,
    ) -> None:
        self.batch_size, self.device = config.batch_size, device
        self.purpose = (_SHUFFLE,) if part == 0 else (_SHUFFLE, part)
        self.lengths = [len(p.rows) for p in plans]
        # one batch holds all rows: their order does not matter, so none is drawn
        self.shuffled = [config.shuffle and n > config.batch_size for n in self.lengths]
        n_max = max(self.lengths)
        self.table = torch.zeros(len(plans), n_max, dtype=torch.int64, device=device)
        for m, plan in enumerate(plans):
            self.table[m, : self.lengths[m]] = plan.rows.to(device)
            # filling counts with weight 0, which only a row that the member can bear survives
            self.table[m, self.lengths[m] :] = int(plan.rows[0])
        self.seeds = [p.seed for p in plans]
        self.starts = [p.start.epochs if p.start else 0 for p in plans]
        self.n_steps = -(-n_max // config.batch_size)

    def order(self, epoch: int) -> Tensor:
        """(M, n_max) row numbers in this epoch's order; past a member's length, any."""
        if not any(self.shuffled):
            return self.table
        keys = [
            fold_in(s, *self.purpose, e + epoch)
            for s, e in zip(self.seeds, self.starts, strict=True)
        ]
        order = random_permutations(keys, self.lengths, self.device)
        if not all(self.shuffled):
            still = torch.tensor([not s for s in self.shuffled], device=self.device)
            order[still] = torch.arange(order.shape[1], device=self.device)
        return self.table.gather(1, order)

    def span(self, step: int) -> tuple[int, int]:
        start = step * self.batch_size
        return start, min(start + self.batch_size, self.table.shape[1])

    def counts(self, step: int) -> list[int]:
        """Rows that each member has in this step's batch."""
        start, stop = self.span(step)
        return [max(0, min(stop, n) - start) for n in self.lengths]

    def select(self, keep: Sequence[int]) -> None:
        self.lengths = [self.lengths[k] for k in keep]
        self.shuffled = [self.shuffled[k] for k in keep]
        self.seeds = [self.seeds[k] for k in keep]
        self.starts = [self.starts[k] for k in keep]
        n_max = max(self.lengths)
        self.table = self.table[torch.tensor(list(keep), device=self.device), :n_max]
        self.n_steps = -(-n_max // self.batch_size)
