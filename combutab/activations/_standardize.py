"""Standardising over one axis, with a derivative of few kernels that is twice differentiable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from combutab.activations._functions import HALF, with_signature

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

    def mean(self, x: Tensor) -> Tensor:
        if self.size == 1:
            return x
        matrix = self.averaging[x.dtype]
        return (x.reshape(-1, len(matrix)) @ matrix).view(x.shape)

    def center(self, x: Tensor) -> Tensor:
        matrix = self.ones[x.dtype]  # summing first keeps a constant group exactly constant
        sums = (x.reshape(-1, len(matrix)) @ matrix).view(x.shape)
        return x - sums / self.size if torch.is_grad_enabled() else sums.div_(-self.size).add_(x)


class _Along:
    """The same by reductions, over any axis; means keep the axis with length 1."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def mean(self, x: Tensor) -> Tensor:
        return x.mean(self.axis, keepdim=True)

    def center(self, x: Tensor) -> Tensor:
        return x - x.mean(self.axis, keepdim=True)


class _Standardize(torch.autograd.Function):
    """x -> ((x - mean) rstd, rstd) inside groups; saves both outputs, not x.

    ``rstd`` is an output, not an intermediate, so that the second derivative sees it.
    """

    generate_vmap_rule = True

    @staticmethod
    @with_signature
    def forward(
        x: Tensor, by: Blocks | _Along, size: int, eps: float, center: bool
    ) -> tuple[Tensor, Tensor]:
        out = by.center(x) if center else x
        rstd = by.mean(out * out).add_(eps).rsqrt_()
        return (out.mul_(rstd) if center else out * rstd), rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ctx.by, ctx.size, _, ctx.center = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        out, rstd = ctx.saved_tensors
        along_out = ctx.by.mean(tangent * out)
        if ctx.center:
            tangent = ctx.by.center(tangent)
        return (tangent - out * along_out) * rstd, -along_out * rstd * rstd

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_rstd: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        out, rstd = ctx.saved_tensors
        grad_in = None
        if grad is not None:
            along_out = ctx.by.mean(grad * out)
            grad_in = ctx.by.center(grad) if ctx.center else grad
            if ctx.center and not torch.is_grad_enabled():
                grad_in.addcmul_(out, along_out, value=-1).mul_(rstd)
            else:
                grad_in = torch.addcmul(grad_in, out, along_out, value=-1) * rstd
        if grad_rstd is not None:  # only when the gradient itself is differentiated
            whole = ctx.by.mean(grad_rstd) if rstd.shape == out.shape else grad_rstd / ctx.size
            from_rstd = out * (rstd * rstd * whole)
            grad_in = -from_rstd if grad_in is None else grad_in - from_rstd
        return grad_in, None, None, None, None


def _keeps_precision(x: Tensor) -> bool:
    """Whether a matrix product on the CPU is computed as precisely as this tensor is stored."""
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return x.dtype is torch.float64 or getattr(matmul, "fp32_precision", "none") in _EXACT


def standardize(
    x: Tensor, axis: int, eps: float, center: bool = True, blocks: Blocks | None = None
) -> Tensor:
    """Standardise (or RMS-scale, without centring) over one negative axis, in at least float32."""
    size = x.shape[axis]
    wide = x.float() if x.dtype in HALF else x
    if center and axis == -1 and size >= (32 if x.is_cuda else 8):
        # From these sizes on the library's own kernel is the faster one. The CUDA kernel widens
        # half precision itself; the CPU's folds mean and scale into one product and loses digits.
        return F.layer_norm(x if x.is_cuda else wide, (size,), eps=eps).to(x.dtype)
    if torch.compiler.is_compiling():  # the compiler fuses the plain expression itself
        if center:
            wide = wide - wide.mean(axis, keepdim=True)
        out = wide * torch.rsqrt((wide * wide).mean(axis, keepdim=True) + eps)
    else:
        by = blocks if blocks and axis == -1 and _keeps_precision(wide) else _Along(axis)
        out, _ = _Standardize.apply(wide, by, size, eps, center)
    return out.to(x.dtype)
