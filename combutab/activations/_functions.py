"""Autograd functions of the unit-wise activations: they save their output and little else.

Each is twice differentiable (its gradient is made of differentiable operations when somebody
will differentiate it, of in-place ones otherwise) and works under ``torch.func``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


Span = tuple[str, int, int]  # (name, start, length) along the feature axis

Forward = TypeVar("Forward", bound=Callable[..., Any])


def with_signature(forward: Forward) -> Forward:
    """Attach its signature, which ``torch.autograd.Function.apply`` else works out at each call."""
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward


class NLReLUFunction(torch.autograd.Function):
    """Saves the output alone: the derivative beta / (1 + beta x) is beta exp(-output)."""

    generate_vmap_rule = True

    @staticmethod
    @with_signature
    def forward(x: Tensor, beta: float) -> Tensor:
        out = x.clamp_min(0)
        if beta != 1:
            out.mul_(beta)
        return out.log1p_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.beta = inputs[1]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (out,) = ctx.saved_tensors
        return tangent * (ctx.beta * torch.exp(-out)) * (out > 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # someone will differentiate this gradient
            return grad * (ctx.beta * torch.exp(-out)) * (out > 0), None
        grad_in = torch.ops.aten.threshold_backward.default(grad, out, 0)
        grad_in.mul_(torch.neg(out).exp_())
        return (grad_in if ctx.beta == 1 else grad_in.mul_(ctx.beta)), None


class ContiguousFunction(torch.autograd.Function):
    """ReLU, ELU and NLReLU on slices of one tensor; saves its output alone.

    The output tells the derivative: above zero it is 1 (ReLU, ELU) or exp(-output) (NLReLU),
    below zero it is output + 1 (ELU).
    """

    generate_vmap_rule = True

    @staticmethod
    @with_signature
    def forward(x: Tensor, spans: tuple[Span, ...], dim: int) -> Tensor:
        out = x.clamp_min(0)  # right for ReLU, half the way for the other two
        for name, start, length in spans:
            if name == "elu":
                out.narrow(dim, start, length).add_(
                    x.narrow(dim, start, length).clamp_max(0).expm1_()
                )
            elif name == "nlrelu":
                out.narrow(dim, start, length).log1p_()
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.spans, ctx.dim = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def slope(out: Tensor, spans: tuple[Span, ...], dim: int) -> Tensor:
        slopes = []
        for name, start, length in spans:
            part = out.narrow(dim, start, length)
            if name == "elu":
                slopes.append(part.clamp_max(0) + 1)
            elif name == "nlrelu":
                slopes.append(torch.exp(-part) * (part > 0))
            else:
                slopes.append((part > 0).to(part.dtype))
        return torch.cat(slopes, dim)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (out,) = ctx.saved_tensors
        return tangent * ContiguousFunction.slope(out, ctx.spans, ctx.dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        dim = ctx.dim
        if torch.is_grad_enabled():  # someone will differentiate this gradient
            return grad * ContiguousFunction.slope(out, ctx.spans, dim), None, None
        grad_in = torch.ops.aten.threshold_backward.default(grad, out, 0)
        for name, start, length in ctx.spans:
            part = out.narrow(dim, start, length)
            if name == "elu":
                grad_out = grad.narrow(dim, start, length)
                grad_in.narrow(dim, start, length).copy_(
                    torch.addcmul(grad_out, grad_out, part.clamp_max(0))
                )
            elif name == "nlrelu":
                grad_in.narrow(dim, start, length).mul_(torch.neg(part).exp_())
        return grad_in, None, None


class MaskedFunction(torch.autograd.Function):
    """The same for units scattered over the layer: 0/1 masks say which is ELU, which NLReLU.

    Faster than gathering and scattering columns, and masks of shape (members, 1, width)
    give every member of a stack a partition of its own.
    """

    generate_vmap_rule = True

    @staticmethod
    @with_signature
    def forward(x: Tensor, elu: Tensor, nlrelu: Tensor) -> Tensor:
        above = x.clamp(0, torch.finfo(x.dtype).max)  # lerp would take inf - inf
        out = torch.lerp(above, above.log1p(), nlrelu)
        return out.add_(x.clamp_max(0).expm1_().mul_(elu))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, elu, nlrelu = inputs
        ctx.save_for_backward(output, elu, nlrelu)
        ctx.save_for_forward(output, elu, nlrelu)

    @staticmethod
    def slope(out: Tensor, elu: Tensor, nlrelu: Tensor) -> Tensor:
        return torch.lerp(torch.exp(-(out * nlrelu)) * (out > 0), out.clamp_max(0) + 1, elu)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * MaskedFunction.slope(*ctx.saved_tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        out, elu, nlrelu = ctx.saved_tensors
        if torch.is_grad_enabled():
            return grad * MaskedFunction.slope(out, elu, nlrelu), None, None
        grad_in = torch.ops.aten.threshold_backward.default(grad, out, 0)
        grad_in.mul_((out * nlrelu).neg_().exp_())
        below = torch.addcmul(grad, grad, out.clamp_max(0))
        return torch.lerp(grad_in, below, elu), None, None  # lerp_ has no vmap rule
