"""Temperature scaling: the factor of raw outputs that suits held-out rows best."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_STEPS = (1.0, 0.5, 0.25, 0.12, 0.06)  # of the factor's logarithm: factors from 1/7 to 7


def best_factors(losses: Callable[[Tensor], Tensor], raw: Tensor, weight: Tensor) -> Tensor:
    """Find each member's factor (one over the temperature) of its raw outputs.

    It minimises the sum of the rows' losses, weighted by 1 on average, and half the square of its
    own logarithm: a few rows that are all right would have it grow without bound. The loss of one
    head's logits is convex in it, so that smaller and smaller steps find it.

    Parameters
    ----------
    losses : callable
        (M, n, n_outputs), raw outputs -> (M, n).
    raw : Tensor, (M, n, n_outputs)
    weight : Tensor, (M, n)

    Returns
    -------
    Tensor, (M,) float64

    References
    ----------
    Guo et al. (2017), "On calibration of modern neural networks". Berta et al. (2025),
    "Rethinking early stopping: refine, then calibrate": epochs are compared once calibrated.

    >>> from combutab.training import CrossEntropy
    >>> y = torch.tensor([[0, 1]])  # which the outputs take for one class, and are too sure of
    >>> raw = torch.tensor([[[9.0, 0.0], [9.0, 0.0]]])
    >>> best_factors(lambda r: CrossEntropy().rows(r, y), raw, torch.ones(1, 2)).item() < 0.3
    True
    """
    weight = weight.to(torch.float64)
    weight = weight * ((weight > 0).sum(1) / weight.sum(1)).unsqueeze(1)  # whatever their scale

    def cost(log_factor: Tensor) -> Tensor:
        scaled = raw * log_factor.exp().to(raw)[:, None, None]
        of_rows = losses(scaled).to(torch.float64) * weight
        return of_rows.sum(1) + 0.5 * log_factor.square()

    found = torch.zeros(len(raw), dtype=torch.float64, device=raw.device)
    lowest = cost(found)
    for step in _STEPS:
        for moved in (found - step, found + step):
            costs = cost(moved)
            found = torch.where(costs < lowest, moved, found)
            lowest = torch.minimum(costs, lowest)
    return found.exp()
