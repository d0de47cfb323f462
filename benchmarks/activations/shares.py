"""CombU's shares, learned by gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations import make_activation

PARTS = ("relu", "elu", "nlrelu")  # CombU's
_SHARPNESS = 10.0  # of the softmax: a hundred steps of Adam are to decide a unit
_STEPS = 10  # after which that of the softmax of training has grown by as much again


class LearnedUnits(nn.Module):
    """Each unit's activation is one of CombU's parts, which one is learned.

    In training a unit is the mean of the parts by a softmax, which sharpens from step to step; or,
    ``straight``, the likeliest part, with the softmax's gradient. Outside training it is the
    likeliest part, so that the validation rows see a CombU of exact counts.

    Shape
    -----
    (..., width) -> (..., width).
    """

    n_steps: Tensor

    def __init__(self, width: int, *, straight: bool) -> None:
        super().__init__()
        self.width, self.straight = width, straight
        self.parts = nn.ModuleList(make_activation(name, width) for name in PARTS)
        # near equal: a tie would give all units the first part
        self.logits = nn.Parameter(0.01 * torch.randn(width, len(PARTS)))
        self.register_buffer("n_steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        values = torch.stack([part(x) for part in self.parts], -1)
        return (values * self._weights().to(x.dtype)).sum(-1)

    def _weights(self) -> Tensor:  # (width, parts)
        hard = F.one_hot(self.logits.argmax(-1), len(PARTS)).to(self.logits.dtype)
        if not self.training:
            return hard
        if self.straight:
            soft = (_SHARPNESS * self.logits).softmax(-1)
            return hard + soft - soft.detach()
        sharpness = _SHARPNESS * (1.0 + self.n_steps / _STEPS)
        self.n_steps += 1
        return (sharpness * self.logits).softmax(-1)
