"""The matrix products of a step, for all members at once, by the library that is quick for them.

torch's own products (MKL's, on most builds) serve but where oneDNN's are known to be quicker:
on AMD's processors from Zen 5 (family 26) on, whose AVX-512 is of full width and which MKL takes
for a processor without. There, on two cores, 500 x 256 times 256 x 256 in float32 takes torch.mm
350 us and oneDNN 165 us; on two cores of a Zen 4 (family 25) 353 and 323 us, and the gradient of
the weights 368 and 462 us, which the copies of what oneDNN allocates turn into a loss. Which
library serves follows from the processor and from shapes alone, so that runs repeat and a member
of a stack has the numbers that it has alone. ``COMBUTAB_MATMUL=torch`` or ``=onednn`` decides for
the process.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

_ENOUGH = 2**21  # multiply-adds from which oneDNN wins
_ENOUGH_TRANSPOSED = 2**23  # where the left factor is transposed, which oneDNN has to copy
_NARROW = 16  # columns; a result of fewer, and more than one, is faster by its transpose

Allocate = Callable[[], Tensor]  # memory for a result, asked for where it is needed


def _is_zen_5_or_later() -> bool:
    try:
        words = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
        vendor, family = (
            re.search(rf"^{field}\s*: (\S+)", words, re.MULTILINE)
            for field in ("vendor_id", "cpu family")
        )
    except OSError:  # Windows says "AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD"
        words = platform.processor()
        vendor = re.search(r"(\w+)$", words)
        family = re.search(r"Family (\d+)", words)
    if vendor is None or family is None:
        return False
    return vendor[1] == "AuthenticAMD" and int(family[1]) >= 26


@functools.cache
def _by_one_dnn() -> bool:
    """Tell whether oneDNN multiplies large matrices here, as torch has it in compiled code."""
    wanted = os.environ.get("COMBUTAB_MATMUL", "")
    if wanted not in ("", "torch", "onednn"):
        raise ValueError(f"COMBUTAB_MATMUL must be 'torch' or 'onednn', got {wanted!r}")
    return (
        (wanted == "onednn" if wanted else _is_zen_5_or_later())
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _serves(x: Tensor) -> bool:
    return (
        x.dtype is torch.float32
        and x.device.type == "cpu"
        and _by_one_dnn()
        and bool(torch.backends.mkldnn.enabled)
    )


def _one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.t() + bias, in new memory."""
    by = torch.ops.mkldnn._linear_pointwise.default
    return cast(Tensor, by(x, weight, bias, "none", [], ""))


def _each(one: Callable[[int], Tensor], n: int, allocate: Allocate | None) -> Tensor:
    """A member's results one after the other, of a single one as they were allocated."""
    if n == 1 and allocate is None:
        return one(0).unsqueeze(0)
    assert allocate is not None
    out = allocate()
    for i in range(n):
        out[i].copy_(one(i))
    return out


def _matmul(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    # With a single column bmm takes up to ten times as long on a CPU as mm does, which knows
    # matrix times vector.
    if a.device.type == "cpu" and 1 in (a.shape[2], b.shape[2]):
        for i in range(len(out)):
            torch.mm(a[i], b[i], out=out[i])
        return out
    return torch.bmm(a, b, out=out)


def affine(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    allocate: Allocate,
    scale: float = 1.0,
    *,
    free: bool = False,
) -> Tensor:
    """scale * x @ weight + bias for each member, in ``allocate()``.

    Where it is ``free`` to, the result may be in memory of its own instead, if the library
    allocates it.

    Shape
    -----
    x : (M, n, k), weight : (M, k, m), bias : (M, 1, m) -> (M, n, m)
    """
    n, k, m = *x.shape[1:], weight.shape[2]
    if n * k * m >= _ENOUGH and _serves(x):
        weight = weight if scale == 1 else weight * scale
        own = free and len(x) == 1
        return _each(
            lambda i: _one_dnn(x[i], weight[i].t(), bias[i, 0]), len(x), None if own else allocate
        )
    out = allocate()
    if m == 1 and scale == 1:
        return _matmul(x, weight, out).add_(bias)
    if 1 < m < _NARROW and x.device.type == "cpu":
        columns = torch.bmm(weight.transpose(1, 2).contiguous(), x.transpose(1, 2))
        return torch.add(bias, columns.transpose(1, 2), alpha=scale, out=out)
    return torch.baddbmm(bias, x, weight, alpha=scale, out=out)


def affine_columns(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """Compute ``affine`` with the result's columns first: (M, m, n)."""
    weight, bias = weight.transpose(1, 2), bias.transpose(1, 2)
    # oneDNN takes a thousand times as long where its right factor is a part of wider rows
    if x.shape[1] * weight[0].numel() >= _ENOUGH and x.is_contiguous() and _serves(x):
        for i in range(len(out)):
            torch.add(_one_dnn(weight[i], x[i]), bias[i], out=out[i])
        return out
    return torch.baddbmm(bias, weight, x.transpose(1, 2), out=out)


def input_gradient(grad: Tensor, weight: Tensor, allocate: Allocate, scale: float = 1.0) -> Tensor:
    """scale * grad @ weight' for each member, in ``allocate()`` or memory of its own.

    Shape
    -----
    grad : (M, n, m), weight : (M, k, m) -> (M, n, k)
    """
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= _ENOUGH and grad.stride(2) == 1 and _serves(grad):
        weight = weight if scale == 1 else weight * scale
        return _each(
            lambda i: _one_dnn(grad[i], weight[i]), len(grad), None if len(grad) == 1 else allocate
        )
    out = _matmul(grad, weight.transpose(1, 2), allocate())
    return out if scale == 1 else out.mul_(scale)


def add_input_gradient(grad: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Add grad @ weight' to ``out``, which may be a part of wider rows; shapes as above."""
    n, m, k = *grad.shape[1:], weight.shape[1]
    if n * k * m >= _ENOUGH and _serves(grad):
        for i in range(len(out)):
            out[i].add_(_one_dnn(grad[i], weight[i]))
        return out
    return torch.baddbmm(out, grad, weight.transpose(1, 2), out=out)


def weight_gradient(x: Tensor, grad: Tensor, out: Tensor, scale: float = 1.0) -> None:
    """scale * x' @ grad for each member, into ``out``, which may be a part of wider rows.

    Shape
    -----
    x : (M, n, k), grad : (M, n, m) -> (M, k, m)
    """
    n, k, m = *x.shape[1:], grad.shape[2]
    if n * k * m >= _ENOUGH_TRANSPOSED and grad.stride(2) == 1 and _serves(x):
        for i in range(len(out)):
            out[i].copy_(_one_dnn(x[i].t(), grad[i].t()))
    elif 1 < m < _NARROW and x.device.type == "cpu":
        out.copy_(torch.bmm(grad.transpose(1, 2), x).transpose(1, 2))
    elif out.is_contiguous():
        _matmul(x.transpose(1, 2), grad, out)
    else:
        for i in range(len(out)):
            torch.mm(x[i].t(), grad[i], out=out[i])
    if scale != 1:
        out.mul_(scale)


def add_weight_gradient(x: Tensor, grad: Tensor, out: Tensor) -> None:
    """Add x' @ grad to ``out``; shapes as above."""
    torch.baddbmm(out, x.transpose(1, 2), grad, out=out)


def product(x: Tensor, weight: Tensor, allocate: Allocate) -> Tensor:
    """x @ weight for each member, (M, n, k), (M, k, m) -> (M, n, m)."""
    return input_gradient(x, weight.transpose(1, 2), allocate)
