"""Noise of a stack's members, each a function of the member's key and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from combutab._random import random_int64

_ONE = 0x3F800000  # the bits of 1.0 in float32, whose fraction is the last 23


def uniforms(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 uniforms in the open interval (0, 1), (len(keys), *shape): two a 64-bit draw."""
    n = math.prod(shape)
    bits = random_int64(keys, -(-n // 2), device).view(torch.int32)
    # a random fraction is a number in [1, 2); half a step more, and neither end is met
    in_one_to_two = bits.bitwise_and_((1 << 23) - 1).bitwise_or_(_ONE).view(torch.float32)
    return in_one_to_two.sub_(1 - 2.0**-24)[:, :n].view(len(keys), *shape)


def log_exponentials(uniform: Tensor) -> Tensor:
    """Logarithms of exponential draws, which are minus Gumbel noise, in place of uniforms."""
    return uniform.log_().neg_().log_()


def normals(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 standard normals, (len(keys), *shape), by Box and Muller's method."""
    n = math.prod(shape)
    half = -(-n // 2)
    radius, angle = uniforms(keys, 2, half, device=device).unbind(1)
    radius = radius.log().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    both = torch.empty(len(keys), 2, half, device=device)
    torch.mul(torch.cos(angle), radius, out=both[:, 0])
    torch.mul(angle.sin_(), radius, out=both[:, 1])
    return both.view(len(keys), -1)[:, :n].reshape(len(keys), *shape)


class Blocks:
    """Draws of a range of steps, kept until a step beyond them is asked for.

    On small tensors an operation costs more than its work: so numbers are drawn for some steps at
    once, as many as make about ``at_once`` numbers.
    """

    def __init__(
        self, n_numbers: int, draw: Callable[[range], list[Tensor]], *, at_once: int = 2**18
    ) -> None:
        self._size, self._draw = max(1, at_once // max(1, n_numbers)), draw
        self._block = -1
        self._drawn: list[Tensor] = []

    def __call__(self, step: int) -> list[Tensor]:
        """The part of one step: item ``step`` of the range, from each tensor."""
        block, place = divmod(step, self._size)
        if block != self._block:
            self._drawn = self._draw(range(block * self._size, (block + 1) * self._size))
            self._block = block
        return [drawn[place] for drawn in self._drawn]
