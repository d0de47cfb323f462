"""Scores of a stack on its members' validation rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._ranks import current
from combutab.training._calibration import best_factors
from combutab.training._losses import Loss, accuracy, r2
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
        self.lengths, self.scorers = lengths, [plan.scorer for plan in plans]
        self.table = table
        self.factors = [1.0] * len(plans)  # of the raw outputs that were scored last
        self.weight = weight if data.weight is None else weight * data.weight[table]

    @torch.inference_mode()
    def scores(self, net: TrainableNetwork) -> Tensor:
        """Each member's score, (M,) float64 on the device."""
        net.train(False)
        n_rows, ranks = self.table.shape[1], current()
        if ranks is not None and n_rows < ranks.count:
            ranks = None
        first, end = (0, n_rows) if ranks is None else ranks.span(n_rows)
        config, data, loss = self.config, self.data, self.config.loss.unsmoothed()
        found, n_heads = list[Tensor](), net.n_heads
        finite = torch.ones(len(self.table), dtype=torch.bool, device=self.table.device)
        for start in range(first, end, _ROWS):
            index = self.table[:, start : min(start + _ROWS, end)]
            codes = None if data.codes is None else data.codes[index]
            with config.precision.context(data.dense.device)():
                raw = net(data.dense[index], codes)
            raw = raw.to(config.precision.dtype)
            finite &= raw.isfinite().flatten(1).all(1)
            if config.calibrated:
                found.append(raw)
            elif config.score == "scorer":
                found.append(raw.unflatten(1, (-1, n_heads)))
            elif config.score == "loss":  # of what is predicted: the heads' average
                found.append(loss.rows(loss.average(raw, n_heads), data.y[index]))
            else:
                found.append(loss.point(loss.average(raw, n_heads)))
        # what is no number has no score: it would be some class's share of the rows
        scored = torch.cat(found, 1)
        if ranks is not None:
            scored = ranks.joined(scored, n_rows)
            finite = ranks.all(finite)
        if config.calibrated:
            scored = self._calibrated(scored, loss, n_heads)
        return self._agreed(torch.where(finite, self._score(scored, finite), torch.nan))

    def _agreed(self, scores: Tensor) -> Tensor:
        """The scores, and factors, of rank 0: processors may round differently."""
        ranks = current()
        if ranks is None:
            return scores
        both = torch.stack([scores, scores.new_tensor(self.factors)])
        ranks.first_(both)
        self.factors = both[1].tolist()
        return both[0]

    def _calibrated(self, raw: Tensor, loss: Loss, n_heads: int) -> Tensor:
        """What is scored of raw outputs (M, n * n_heads, n_outputs), once these are scaled."""
        y = self.data.y[self.table]

        def losses(scaled: Tensor) -> Tensor:
            return loss.rows(loss.average(scaled, n_heads), y)

        factors = best_factors(losses, raw, self.weight)
        self.factors = factors.tolist()
        raw = raw * factors.to(raw)[:, None, None]
        if self.config.score == "scorer":
            return raw.unflatten(1, (-1, n_heads))
        return (
            losses(raw) if self.config.score == "loss" else loss.point(loss.average(raw, n_heads))
        )

    def _score(self, scored: Tensor, finite: Tensor) -> Tensor:
        """Score predictions, losses or raw outputs of all validation rows."""
        if self.config.score == "scorer":
            known = enumerate(finite.tolist())
            scores = [self._judge(m, scored[m]) if is_known else 0.0 for m, is_known in known]
            return torch.tensor(scores, dtype=torch.float64, device=scored.device)
        if self.config.score == "loss":
            weight = self.weight.to(torch.float64)
            return -(scored * weight).sum(1) / weight.sum(1)
        metric = accuracy if self.config.score == "accuracy" else r2
        return metric(scored, self.data.y[self.table], self.weight)

    def _judge(self, m: int, raw: Tensor) -> float:  # (n, n_heads, n_outputs)
        scorer, rows = self.scorers[m], self.table[m, : self.lengths[m]]
        assert scorer is not None
        weight = None if self.data.weight is None else self.data.weight[rows]
        return scorer(raw[: len(rows)].transpose(0, 1), self.data.y[rows], weight)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing)."""
        index = torch.tensor(list(keep), device=self.table.device)
        self.table, self.weight = self.table[index], self.weight[index]
        self.lengths = [self.lengths[k] for k in keep]
        self.scorers = [self.scorers[k] for k in keep]
