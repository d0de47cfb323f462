"""Standardising groups of neighbouring units, with a derivative of few operations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from combutab.activations.kernels._kernel import Gradients, Kernel, Maybe, Memory, Vectors

_EXACT = ("none", "ieee")


class Blocks:
    """Group sums and means over a last axis, as products with small block-diagonal matrices.

    Reductions over a last axis of 2 to 16 numbers are slow on a CPU; a product with ones in
    diagonal blocks is several times faster and broadcasts on its way. A block holds the widest
    run of groups, up to 16 units, that divides a row: products never cross rows, so what is in
    one sample (or member) cannot reach another, not even a NaN.
    """

    def __init__(self, groups: int, size: int) -> None:
        run = next(n for n in range(16 // size, 0, -1) if groups % n == 0)
        ones = torch.block_diag(*[torch.ones(size, size, dtype=torch.float64)] * run)
        self.size = size
        self.ones = {torch.float64: ones, torch.float32: ones.float()}
        self.averaging = {dtype: ones / size for dtype, ones in self.ones.items()}

    def mean(self, x: Tensor, memory: Memory) -> Tensor:
        return _product(x, self.averaging[x.dtype], memory.work("mean", *x.shape))

    def center(self, x: Tensor, memory: Memory, out: Tensor | None) -> Tensor:
        work = memory.work("square", *x.shape)
        sums = _product(x, self.ones[x.dtype], work)
        # summing first keeps a constant group exactly constant
        return torch.sub(x, torch.div(sums, self.size, out=work), out=out)


def _product(x: Tensor, matrix: Tensor, out: Tensor | None) -> Tensor:
    n = len(matrix)
    if out is not None:
        torch.mm(x.reshape(-1, n), matrix, out=out.view(-1, n))
        return out
    return (x.reshape(-1, n) @ matrix).view(x.shape)


class _Reductions:
    """The same by reductions; means keep the axis with length 1."""

    def mean(self, x: Tensor, memory: Memory) -> Tensor:
        return torch.mean(x, -1, keepdim=True, out=memory.work("mean", *x.shape[:-1], 1))

    def center(self, x: Tensor, memory: Memory, out: Tensor | None) -> Tensor:
        mean = torch.mean(x, -1, keepdim=True, out=memory.work("center", *x.shape[:-1], 1))
        return torch.sub(x, mean, out=out)


_blocks = lru_cache(maxsize=64)(Blocks)
_REDUCTIONS = _Reductions()


@dataclass(frozen=True)
class Standardize(Kernel):
    """x -> (x - mean) rstd inside groups of neighbouring units, or x rstd without centring.

    Of float32 or float64, ``width`` units in groups of ``size``.
    """

    size: int
    width: int
    eps: float
    center: bool = True
    unitwise: bool = False

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        # PLN Eq. (3), centred; PLS Eq. (6), not
        if self._by_torch:
            n, _, memory["rstd"] = torch.native_layer_norm(
                self._grouped(x), [self.size], None, None, self.eps
            )
            n = n.reshape(x.shape)
            return n if out is None else out.copy_(n)
        by, x_g = self._means(x), self._grouped(x)
        out_g = None if out is None else self._grouped(out)
        n = by.center(x_g, memory, out_g) if self.center else x_g
        mean = by.mean(torch.mul(n, n, out=memory.work("square", *n.shape)), memory)
        work = memory.work("mean", *mean.shape)
        rstd = torch.rsqrt(torch.add(mean, self.eps, out=work), out=work)
        kept = memory.keep("rstd", *rstd.shape[:-1], 1)  # a group has one
        memory["rstd"] = rstd if kept is None else kept.copy_(rstd[..., :1])
        n = torch.mul(n, rstd, out=out_g)
        return n.reshape(x.shape) if out is None else out

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert y is not None
        y_g, grad_g = self._grouped(y), self._grouped(grad)
        out_g = None if out is None else self._grouped(out)
        if self._by_torch:  # of y, whose mean is 0 and deviation 1 already
            rstd = memory["rstd"]
            nothing, one = torch.zeros_like(rstd), torch.ones_like(rstd)
            grad_in, _, _ = torch.ops.aten.native_layer_norm_backward(
                grad_g, y_g, [self.size], nothing, one, None, None, [True, False, False]
            )
            grad_in = torch.mul(grad_in, rstd, out=out_g)
            return grad_in.reshape(grad.shape) if out is None else out, ()
        by = self._means(grad)
        along = by.mean(torch.mul(grad_g, y_g, out=memory.work("square", *y_g.shape)), memory)
        grad_in = by.center(grad_g, memory, out_g) if self.center else grad_g
        grad_in = torch.addcmul(grad_in, y_g, along, value=-1, out=out_g)
        grad_in = torch.mul(grad_in, memory["rstd"], out=out_g)
        return grad_in.reshape(grad.shape) if out is None else out, ()

    @property
    def _by_torch(self) -> bool:
        """Tell whether torch's own layer normalisation serves: in two passes, into new memory."""
        return self.center and self.size > 16

    def _grouped(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.width // self.size, self.size)

    def _means(self, x: Tensor) -> Blocks | _Reductions:
        if 1 < self.size <= 16 and x.stride(-1) == 1 and _keeps_precision(x):
            return _blocks(self.width // self.size, self.size)
        return _REDUCTIONS


def _keeps_precision(x: Tensor) -> bool:
    """Tell whether a CPU's matrix product is as precise as this tensor."""
    if torch.compiler.is_compiling():  # the compiler fuses reductions itself
        return False
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return x.dtype is torch.float64 or getattr(matmul, "fp32_precision", "none") in _EXACT
