"""The matrix products of a step, each by the library that is quickest for its shape on a CPU.

Which library serves a product follows from shapes alone, and oneDNN's are one call a
member, so that a member of a stack has the numbers that it has alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from combutab.nn._one_dnn import ENOUGH, ENOUGH_TRANSPOSED, linear, linear_times, serves

_NARROW = 16  # columns of a result up to which it is a case of its own
_LONG = 2**15  # rows times depth from which a narrow result is slow by MKL


def _by_member(a: Tensor, b: Tensor, out: Tensor) -> None:
    # With a single column bmm takes up to ten times as long on a CPU as mm does, which knows
    # matrix times vector.
    if a.device.type == "cpu" and 1 in (a.shape[2], b.shape[2]):
        for i in range(len(out)):
            torch.mm(a[i], b[i], out=out[i])
    else:
        torch.bmm(a, b, out=out)


Room = Callable[[], Tensor]  # asks for memory of the result's shape


def affine(x: Tensor, weight: Tensor, bias: Tensor, room: Room, scale: float = 1.0) -> Tensor:
    """scale * x @ weight + bias for each member.

    The result is in ``room()``, or in memory of its own where the library allocates it: then it
    is one member's, and goes back to the allocator as soon as nobody holds it.

    Shape
    -----
    x : (M, n, k), weight : (M, k, m), bias : (M, 1, m) -> (M, n, m)
    """
    n, k, m = *x.shape[1:], weight.shape[2]
    if (n * k * m >= ENOUGH or (1 < m <= _NARROW and n * k >= _LONG)) and serves(x):
        weight = weight if scale == 1 else weight * scale
        if len(x) == 1:
            return linear(x[0], weight[0].t(), bias[0, 0]).unsqueeze(0)
        out = room()
        for i in range(len(out)):
            out[i].copy_(linear(x[i], weight[i].t(), bias[i, 0]))
        return out
    out = room()
    if m == 1 and scale == 1:
        _by_member(x, weight, out)
        return out.add_(bias)
    return torch.baddbmm(bias, x, weight, alpha=scale, out=out)


def input_gradient(
    grad: Tensor,
    weight: Tensor,
    room: Room,
    factor: Tensor | None,
    scale: float = 1.0,
    *,
    over: bool = False,
) -> Tensor:
    """scale * grad @ weight' * factor for each member, in memory as ``affine``'s.

    With ``over`` it is written over ``grad``, if that has its shape and the library would allocate
    the result: half the rows at a time, which takes a fifth longer and half the memory.

    Shape
    -----
    grad : (M, n, m), weight : (M, k, m), factor : (M, n, k) -> (M, n, k)
    """
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= ENOUGH and serves(grad):
        weight = weight if scale == 1 else weight * scale
        if over and k == m:
            for i in range(len(grad)):
                half = -(-n // 2)
                for rows in (slice(half), slice(half, n)):
                    by = None if factor is None else factor[i, rows]
                    grad[i, rows].copy_(linear_times(grad[i, rows], weight[i], by))
            return grad
        if len(grad) == 1:
            return linear_times(grad[0], weight[0], factor if factor is None else factor[0])[None]
        out = room()
        for i in range(len(out)):
            out[i].copy_(linear_times(grad[i], weight[i], factor if factor is None else factor[i]))
        return out
    out = room()
    _by_member(grad, weight.transpose(1, 2), out)
    if scale != 1:
        out.mul_(scale)
    return out if factor is None else out.mul_(factor)


def weight_gradient(
    x: Tensor, grad: Tensor, out: Tensor, scale: float = 1.0, *, parts: int = 1
) -> None:
    """scale * x' @ grad for each member, into ``out``, which may be rows of a wider matrix.

    Where the library needs memory of its own, ``parts`` make it smaller, and the product slower.

    Shape
    -----
    x : (M, n, k), grad : (M, n, m) -> (M, k, m)
    """
    n, k, m = *x.shape[1:], grad.shape[2]
    if 1 < m <= _NARROW and n * k >= _LONG and x.device.type == "cpu":
        out.copy_(torch.bmm(grad.transpose(1, 2), x).transpose(1, 2))
    elif n * k * m >= ENOUGH_TRANSPOSED and serves(x):
        for i in range(len(out)):
            columns, rows = x[i].chunk(parts, dim=1), out[i].chunk(parts)
            for some, target in zip(columns, rows, strict=True):
                target.copy_(linear(some.t(), grad[i].t(), None))
    elif out.is_contiguous():
        _by_member(x.transpose(1, 2), grad, out)
    else:  # bmm would allocate its result and copy
        out.copy_(torch.bmm(x.transpose(1, 2), grad))
    if scale != 1:
        out.mul_(scale)
