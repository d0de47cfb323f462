"""Greedy selection of an ensemble (Caruana et al., 2004): forwards, with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from combutab.training import Loss

_VALUES = 1 << 22  # of predictions looked at together: bounds the memory


@dataclass(frozen=True)
class Pool:
    """Out-of-sample predictions to choose from, of rows that none of their networks trained on.

    Shapes: predictions (K, n, k) as ``loss.averaged`` gives them, y (n,) or (n, T), weight (n,) or
    None where all weigh the same.
    """

    loss: Loss
    predictions: Tensor
    y: Tensor
    weight: Tensor | None = None

    @torch.inference_mode()
    def losses_with(self, total: Tensor, n_picked: int) -> np.ndarray:
        """Losses of the ensemble whose predictions add up to ``total`` and each of the pool's."""
        found = []
        step = max(1, _VALUES // max(1, total.numel()))
        for start in range(0, len(self.predictions), step):
            block = self.predictions[start : start + step].to(torch.float64)
            average = (block + total) / (n_picked + 1)
            rows = self.loss.rows_of_average(average, self.y.expand(len(block), *self.y.shape))
            found.append(_mean(rows, self.weight))
        return np.nan_to_num(torch.cat(found).numpy(), nan=np.inf)


def _mean(rows: Tensor, weight: Tensor | None) -> Tensor:  # (K, n) -> (K,)
    if weight is None:
        return rows.mean(1)
    return (rows * weight).sum(1) / weight.sum()


def pick_greedily(pool: Pool, n_picks: int) -> tuple[list[int], list[float]]:
    """Pick, again and again, what makes the ensemble's loss smallest.

    Returns
    -------
    list of int
        Positions in the pool, which may repeat; of equal losses the first.
    list of float
        The ensemble's loss after each pick.
    """
    total = torch.zeros(pool.predictions.shape[1:], dtype=torch.float64)
    picks: list[int] = []
    losses: list[float] = []
    for n_picked in range(n_picks):
        candidates = pool.losses_with(total, n_picked)
        best = int(candidates.argmin())
        picks.append(best)
        losses.append(float(candidates[best]))
        total += pool.predictions[best]
    return picks, losses


def pick_from_folds(
    pools: Sequence[Pool], n_picks: int
) -> tuple[list[list[int]], list[float], list[float]]:
    """Pick from each fold's pool as many: the number at which the folds' mean loss is smallest.

    Returns
    -------
    list of list of int
        Each fold's picks.
    list of float
        Each fold's loss of these.
    list of float
        Each fold's loss of the best alone.
    """
    found = [pick_greedily(pool, n_picks) for pool in pools]
    n_best = int(np.mean([losses for _, losses in found], axis=0).argmin()) + 1
    return (
        [picks[:n_best] for picks, _ in found],
        [losses[n_best - 1] for _, losses in found],
        [losses[0] for _, losses in found],
    )
