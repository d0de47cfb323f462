"""The activations by fused kernels on a GPU, where they are asked for.

They are off unless asked for because they have run in Triton's interpreter and been compiled for
Hopper, but never run on a GPU. Before that changes, ``benchmarks/speed_gpu.py --parts kernels``
must show on one that they agree with the CPU, and that forward and backward together take less
time than both the plain implementations and ``torch.compile`` for every activation, in float32
and bfloat16; and ``tests/activations/test_activations_fused.py`` must pass there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from combutab.activations._functions import ContiguousFunction, Span, with_signature
from combutab.activations._standardize import Blocks, _Along, _Standardize, standardize

_asked_for = False
_DEVICES = ("cuda",)  # the tests add "cpu", which Triton's interpreter serves
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_LONGEST = 8192  # numbers standardised together that one program holds in registers


@contextmanager
def fused_kernels() -> Iterator[None]:
    """Compute activations on a CUDA device by fused Triton kernels, within a ``with`` block.

    CombU, PLN, PLS, LASiLU, LAHardSiLU, and ProxyNorm of ReLU, ELU, NLReLU or CombU then read and
    write memory once, forward and backward, in float32, float16 and bfloat16. Elsewhere (on a
    CPU, in float64, along another axis than the last, under ``torch.compile`` and ``torch.func``)
    nothing changes, and the numbers are the same to rounding everywhere. The setting holds for
    the whole process. Networks of ReLU, ELU,
    NLReLU and CombU units, which train and predict in memory of their own, take them where a fit
    or prediction begins within the block.

    Raises
    ------
    ImportError
        In the forward pass on a CUDA device, if there is no triton.

    Examples
    --------
    >>> import torch
    >>> from combutab.activations import CombU, fused_kernels
    >>> with fused_kernels():
    ...     out = CombU(4)(torch.tensor([[1.0, -1.0, -1.0, 1.0]]))
    >>> out
    tensor([[ 1.0000,  0.0000, -0.6321,  0.6931]])
    """
    global _asked_for
    before, _asked_for = _asked_for, True
    try:
        yield
    finally:
        _asked_for = before


def fused_wanted() -> bool:
    """Whether ``fused_kernels`` is entered."""
    return _asked_for


def use_fused(x: Tensor) -> bool:
    """Whether the fused kernels are asked for, and serve this tensor along its last axis."""
    return (
        not torch.compiler.is_compiling()  # first: the compiler is not to see the rest
        and _asked_for
        and x.device.type in _DEVICES
        and x.dtype in _DTYPES
        and x.numel() > 0
        and x.shape[-1] <= _LONGEST
        and not torch._C._are_functorch_transforms_active()  # vmap's tensors have no memory
    )


def _kernels() -> Any:
    from combutab.activations import _fused_kernels  # needs triton

    return _fused_kernels


def step_kernels() -> Any:
    """The kernels of ``_fused_step_kernels``."""
    from combutab.activations import _fused_step_kernels  # needs triton

    return _fused_step_kernels


def fused_masks_(starts: Tensor, dropped: Tensor, scale: Tensor, out: Tensor) -> bool:
    """Draw dropout masks by a kernel, where kernels are asked for; returns whether it did.

    Parameters
    ----------
    starts : Tensor of int64, (M,)
        Where the counters of the members' keys begin.
    dropped : Tensor of uint8, (M,) or (M, 1, 1)
        A byte below it drops its unit.
    scale : Tensor, as ``dropped``
        What kept units are multiplied by.
    out : Tensor, (M, rows, units), contiguous
        Becomes 0 or ``scale``, the units of a row counted in eights from its first.
    """
    if not use_fused(out) or not out.is_contiguous():
        return False
    step_kernels().masks_(starts, dropped, scale, out)
    return True


class FusedCombU(ContiguousFunction):
    """``ContiguousFunction`` along the last axis."""

    @staticmethod
    @with_signature
    def forward(x: Tensor, spans: tuple[Span, ...], dim: int) -> Tensor:
        return _kernels().combu(x.contiguous(), spans)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # someone will differentiate this gradient
            return ContiguousFunction.backward(ctx, grad)
        (out,) = ctx.saved_tensors
        return _kernels().combu_backward(grad.contiguous(), out, ctx.spans), None, None


class FusedStandardize(_Standardize):
    """``_Standardize`` over the last axis, for half precision too."""

    @staticmethod
    @with_signature
    def forward(
        x: Tensor, by: Blocks | _Along, size: int, eps: float, center: bool
    ) -> tuple[Tensor, Tensor]:
        out, _, rstd = _kernels().normalise(x.contiguous(), eps, center)
        return out, rstd

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_rstd: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        if torch.is_grad_enabled() or grad is None or grad_rstd is not None:
            return _Standardize.backward(ctx, grad, grad_rstd)
        out, rstd = ctx.saved_tensors
        grad_in = _kernels().normalise_backward(grad.contiguous(), out, rstd, rstd, ctx.center)
        return grad_in, None, None, None, None


def fused_standardize(x: Tensor, eps: float, center: bool) -> Tensor:
    """``standardize`` over the last axis."""
    out, _ = FusedStandardize.apply(x, _Along(-1), x.shape[-1], eps, center)
    return out


class FusedLayerAct(torch.autograd.Function):
    """LayerAct over the last axis; the scale by its name and as a function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, name: str, scale: Any) -> Tensor:
        out, mean, rstd = _kernels().normalise(x.contiguous(), eps, True, name)
        ctx.eps, ctx.name, ctx.scale = eps, name, scale
        ctx.save_for_backward(x, mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x, mean, rstd = ctx.saved_tensors
        if torch.is_grad_enabled():  # someone will differentiate this gradient
            out = x * ctx.scale(standardize(x, -1, ctx.eps))
            (grad_in,) = torch.autograd.grad(out, x, grad, create_graph=True)
        else:
            tensors = (grad.contiguous(), x.contiguous(), mean, rstd)
            grad_in = _kernels().normalise_backward(*tensors, True, ctx.name)
        return grad_in, None, None, None


class FusedProxyNorm(torch.autograd.Function):
    """``phi(gamma y + beta) ratio + shift``; phi by its spans of ReLU, ELU and NLReLU."""

    @staticmethod
    def forward(
        ctx: Any,
        y: Tensor,
        gamma: Tensor,
        beta: Tensor,
        ratio: Tensor,
        shift: Tensor,
        spans: tuple[Span, ...],
    ) -> Tensor:
        ctx.spans = spans
        ctx.save_for_backward(y, gamma, beta, ratio, shift)
        vectors = (t.contiguous() for t in (gamma, beta, ratio, shift))
        return _kernels().proxy_norm(y.contiguous(), *vectors, spans)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, *vectors = ctx.saved_tensors
        if not torch.is_grad_enabled():
            tensors = (t.contiguous() for t in (grad, y, *vectors[:3]))
            return *_kernels().proxy_norm_backward(*tensors, ctx.spans), None
        gamma, beta, ratio, shift = (v.to(y.dtype) for v in vectors)
        z = ContiguousFunction.apply(torch.addcmul(beta, y, gamma), ctx.spans, -1)
        inputs = [t for t, n in zip((y, *vectors), ctx.needs_input_grad, strict=False) if n]
        found = iter(
            torch.autograd.grad(torch.addcmul(shift, z, ratio), inputs, grad, create_graph=True)
        )
        return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
