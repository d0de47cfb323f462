"""In-place kernels of what looks at many units at once: normalisation, LayerAct, ProxyNorm.

Each leaves its result in the memory of its input, where it must stay until ``backward_``, and
keeps what else it needs in memory that it asks for by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from combutab.activations._known import is_itself
from combutab.activations._layeract import LayerAct, _hard_sigmoid
from combutab.activations._parallel_norm import _ParallelNorm
from combutab.activations._standardize import Blocks, _keeps_precision

_aten = torch.ops.aten

Memory = Callable[..., Tensor]  # (name, *shape) -> what was last written there


class GroupKernel(Protocol):
    """A pair of kernels with memory between them."""

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        """x becomes the result; ``keep`` what ``backward_`` needs."""

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        """grad becomes the gradient of x, given the result, which may be destroyed."""


class Standardize:
    """x -> (x - mean) rstd inside groups of neighbouring units, or x rstd without centring.

    Parameters
    ----------
    eps : float
        Added to the variance.
    center : bool
        Subtract the mean.
    blocks : Blocks or None
        Groups of up to 16 units; None if all units are one group.
    kept, work : Memory
        For what ``backward_`` needs, and for what is needed within a call alone.
    """

    def __init__(
        self, eps: float, center: bool, blocks: Blocks | None, kept: Memory, work: Memory
    ) -> None:
        self.eps, self.center, self.blocks = eps, center, blocks
        self._kept, self._work = kept, work
        self._rstd: Tensor | None = None

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        """x becomes the result, of shape (..., width)."""
        work = self._work("work", *x.shape)
        if self.center:
            self._center_(x, work)
        torch.mul(x, x, out=work)
        rstd = self._mean(work, self._work("mean", *self._shape(x)), self.eps).rsqrt_()
        x.mul_(rstd)
        if keep:
            size = self.blocks.size if self.blocks else 1
            kept = self._kept("rstd", *x.shape[:-1], rstd.shape[-1] // size)
            self._rstd = kept.copy_(rstd[..., ::size])  # a group has one

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        """The gradient of the result becomes that of x."""
        assert self._rstd is not None
        work = torch.mul(grad, out, out=self._work("work", *grad.shape))
        along = self._mean(work, self._work("mean", *self._shape(grad)))
        if self.center:
            self._center_(grad, work)
        grad.addcmul_(out, along, value=-1)
        grad.unflatten(-1, (self._rstd.shape[-1], -1)).mul_(self._rstd.unsqueeze(-1))

    def _shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape) if self.blocks else (*x.shape[:-1], 1)

    def _mean(self, x: Tensor, out: Tensor, eps: float = 0.0) -> Tensor:
        if self.blocks is None:
            torch.mean(x, -1, keepdim=True, out=out)
        elif self.blocks.size == 1:
            out.copy_(x)
        else:
            matrix = self.blocks.averaging[x.dtype]
            n = len(matrix)
            torch.mm(x.reshape(-1, n), matrix, out=out.view(-1, n))
        return out.add_(eps) if eps else out

    def _center_(self, x: Tensor, work: Tensor) -> None:
        if self.blocks is None:
            x.sub_(x.mean(-1, keepdim=True))
            return
        matrix = self.blocks.ones[x.dtype]  # summing first keeps a constant group exactly constant
        n = len(matrix)
        torch.mm(x.reshape(-1, n), matrix, out=work.view(-1, n))
        x.add_(work.div_(-self.blocks.size))


class InPlaceLayerAct:
    """y -> y s(n), n being y standardised over all units."""

    def __init__(self, alpha: float, hard: bool, kept: Memory, work: Memory) -> None:
        self._standardize = Standardize(alpha, True, None, kept, work)
        self.hard, self._kept, self._work = hard, kept, work
        self._y: Tensor | None = None

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        if keep:
            self._y = self._kept("y", *x.shape).copy_(x)
        x.mul_(self._scale(self._standardized(x, keep)))

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        assert self._y is not None
        y = self._y
        n = self._standardized(y, True)  # once more: cheaper than memory for each layer
        through_scale = y.mul_(grad)
        grad.mul_(self._scale(n))
        if self.hard:
            _aten.hardtanh_backward.grad_input(through_scale, n, -3, 3, grad_input=through_scale)
            through_scale.div_(6)
        else:
            scale = self._work("scale", *n.shape)
            _aten.sigmoid_backward.grad_input(through_scale, scale, grad_input=through_scale)
        self._standardize.backward_(n, through_scale)
        grad.add_(through_scale)

    def _standardized(self, y: Tensor, keep: bool) -> Tensor:
        n = self._work("n", *y.shape).copy_(y)
        self._standardize.forward_(n, keep)
        return n

    def _scale(self, n: Tensor) -> Tensor:
        scale = self._work("scale", *n.shape)
        if self.hard:  # aten.hardsigmoid has 1/6 in single precision
            return torch.clamp(n, -3, 3, out=scale).div_(6).add_(0.5)
        return torch.sigmoid(n, out=scale)


def standardize_of(
    size: int, width: int, eps: float, center: bool, like: Tensor, kept: Memory, work: Memory
) -> Standardize | None:
    """Kernels that standardise groups of ``size`` of ``width`` units; None if there are none."""
    if size == width:
        return Standardize(eps, center, None, kept, work)
    if size > 16 or width % size or not _keeps_precision(like):
        return None
    return Standardize(eps, center, Blocks(width // size, size), kept, work)


def in_place_group(
    module: nn.Module, like: Tensor, kept: Memory, work: Memory
) -> GroupKernel | None:
    """The kernels of PLN, PLS and LayerAct for tensors like ``like``, or None."""
    if not is_itself(module):
        return None
    if isinstance(module, _ParallelNorm) and module.dim == -1 and len(module.runs) == 1:
        size = module.runs[0][1]
        return standardize_of(size, module.width, module.eps, module._center, like, kept, work)
    if isinstance(module, LayerAct) and module.dim == -1:
        if module.scale is torch.sigmoid:
            return InPlaceLayerAct(module.alpha, False, kept, work)
        if module.scale is _hard_sigmoid:
            return InPlaceLayerAct(module.alpha, True, kept, work)
    return None
