"""Noise of a stack's members, each a function of the member's key and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from combutab._random import random_int64


def uniforms(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 uniforms in the open interval (0, 1), (len(keys), *shape): two a 64-bit draw."""
    n = math.prod(shape)
    bits = random_int64(keys, -(-n // 2), device).view(torch.int32)[:, :n]
    top = (bits >> 8).bitwise_and_((1 << 24) - 1)
    return top.float().add_(0.5).mul_(2.0**-24).view(len(keys), *shape)


def normals(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 standard normals, (len(keys), *shape), by Box and Muller's method."""
    n = math.prod(shape)
    radius, angle = uniforms(keys, 2, -(-n // 2), device=device).unbind(1)
    radius = radius.log().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    both = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
    return both[:, :n].reshape(len(keys), *shape)
