"""Scores of a stack on its members' validation rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab.training._losses import accuracy, r2
from combutab.training._records import MemberPlan, Rows, TrainableNetwork, TrainConfig

_ROWS = 8192  # scored at a time: bounds the memory of a pass


class Scorer:
    """The scoring of members on held-out rows, which stay the same while members train."""

    def __init__(self, data: Rows, plans: Sequence[MemberPlan], config: TrainConfig) -> None:
        self.data, self.config = data, config
        device, dtype = data.dense.device, data.dense.dtype
        lengths = [0 if p.val_rows is None else len(p.val_rows) for p in plans]
        table = torch.zeros(len(plans), max(lengths), dtype=torch.int64, device=device)
        weight = torch.zeros(table.shape, dtype=dtype, device=device)
        for m, plan in enumerate(plans):
            if plan.val_rows is not None:
                table[m] = plan.val_rows[0].to(device)  # padding, of weight 0
                table[m, : lengths[m]] = plan.val_rows.to(device)
                weight[m, : lengths[m]] = 1.0
        self.table = table
        self.weight = weight if data.weight is None else weight * data.weight[table]

    @torch.inference_mode()
    def scores(self, net: TrainableNetwork) -> Tensor:
        """Each member's score, (M,) float64 on the device."""
        net.train(False)
        config, data, points = self.config, self.data, []
        for start in range(0, self.table.shape[1], _ROWS):
            index = self.table[:, start : start + _ROWS]
            codes = None if data.codes is None else data.codes[index]
            with config.precision.context(data.dense.device)():
                raw = net(data.dense[index], codes)
            points.append(config.loss.points(raw.to(config.precision.dtype), net.n_heads))
        metric = accuracy if config.score == "accuracy" else r2
        return metric(torch.cat(points, 1), data.y[self.table], self.weight)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        index = torch.tensor(list(keep), device=self.table.device)
        self.table, self.weight = self.table[index], self.weight[index]
