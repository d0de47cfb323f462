"""Activations applied in the memory of their input, for a training loop that owns its buffers.

Allocating an output for each activation and each gradient of each step costs more than computing
them. These kernels overwrite; autograd never sees them, so they are no part of the modules.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.activations._combu import CombU
from combutab.activations._elementwise import NLReLU, Swish
from combutab.activations._known import is_itself

_aten = torch.ops.aten


class InPlace:
    """A pair of kernels; the derivative is a function of the output, or of the input."""

    keeps_input = False  # whether backward_ is given x instead of phi(x)

    def forward_(self, x: Tensor) -> None:
        """x becomes phi(x)."""

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        """grad becomes grad * phi'(x), given phi(x) or x; ``kept`` may be destroyed."""

    def drop_(self, x: Tensor, mask: Tensor, out: Tensor) -> None:
        """``out`` becomes phi(x) mask, mask becomes mask phi'(x); not where ``keeps_input``."""
        self.forward_(x)
        torch.mul(x, mask, out=out)
        self.backward_(x, mask)


class _Identity(InPlace):
    pass


@dataclass(frozen=True)
class _ReLU(InPlace):
    slope: float = 0.0

    def forward_(self, x: Tensor) -> None:
        if self.slope:
            _aten.leaky_relu_.default(x, self.slope)
        else:
            x.clamp_min_(0)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        if self.slope:
            _aten.leaky_relu_backward.grad_input(grad, kept, self.slope, True, grad_input=grad)
        else:
            _aten.threshold_backward.grad_input(grad, kept, 0, grad_input=grad)


@dataclass(frozen=True)
class _ELU(InPlace):
    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0

    def forward_(self, x: Tensor) -> None:
        _aten.elu_.default(x, self.alpha, self.scale, self.input_scale)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.elu_backward.grad_input(
            grad, self.alpha, self.scale, self.input_scale, True, kept, grad_input=grad
        )


@dataclass(frozen=True)
class _NLReLU(InPlace):
    beta: float = 1.0

    def forward_(self, x: Tensor) -> None:
        x.clamp_min_(0)
        if self.beta != 1:
            x.mul_(self.beta)
        x.log1p_()

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.threshold_backward.grad_input(grad, kept, 0, grad_input=grad)
        grad.mul_(kept.neg_().exp_())
        if self.beta != 1:
            grad.mul_(self.beta)


class _Tanh(InPlace):
    def forward_(self, x: Tensor) -> None:
        x.tanh_()

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.tanh_backward.grad_input(grad, kept, grad_input=grad)


class _Sigmoid(InPlace):
    def forward_(self, x: Tensor) -> None:
        x.sigmoid_()

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.sigmoid_backward.grad_input(grad, kept, grad_input=grad)


class _SiLU(InPlace):
    keeps_input = True

    def forward_(self, x: Tensor) -> None:
        _aten.silu_.default(x)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.silu_backward.grad_input(grad, kept, grad_input=grad)


@dataclass(frozen=True)
class _GELU(InPlace):
    approximate: str = "none"
    keeps_input = True

    def forward_(self, x: Tensor) -> None:
        _aten.gelu_.default(x, approximate=self.approximate)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.gelu_backward.grad_input(grad, kept, approximate=self.approximate, grad_input=grad)


class _Mish(InPlace):
    keeps_input = True

    def forward_(self, x: Tensor) -> None:
        _aten.mish_.default(x)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        grad.copy_(_aten.mish_backward.default(grad, kept))


class _HardSiLU(InPlace):
    keeps_input = True

    def forward_(self, x: Tensor) -> None:
        _aten.hardswish_.default(x)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        grad.copy_(_aten.hardswish_backward.default(grad, kept))


@dataclass(frozen=True)
class _Softplus(InPlace):
    beta: float = 1.0
    threshold: float = 20.0
    keeps_input = True

    def forward_(self, x: Tensor) -> None:
        _aten.softplus.out(x, self.beta, self.threshold, out=x)

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        _aten.softplus_backward.grad_input(grad, kept, self.beta, self.threshold, grad_input=grad)


@dataclass(frozen=True)
class _Parts(InPlace):
    """Each part on its own slice of the features."""

    parts: tuple[tuple[int, int, InPlace], ...]  # start, length, kernels

    def forward_(self, x: Tensor) -> None:
        for start, length, part in self.parts:
            part.forward_(x.narrow(-1, start, length))

    def backward_(self, kept: Tensor, grad: Tensor) -> None:
        for start, length, part in self.parts:
            part.backward_(kept.narrow(-1, start, length), grad.narrow(-1, start, length))


def in_place(module: nn.Module) -> InPlace | None:
    """The kernels of a module, or None where it has none.

    A subclass has none, nor has a module with hooks or a ``forward`` of its own: they may compute
    something else.

    >>> kernels = in_place(nn.ReLU())
    >>> x, grad = torch.tensor([-1.0, 2.0]), torch.ones(2)
    >>> kernels.forward_(x)
    >>> kernels.backward_(x, grad)
    >>> x.tolist(), grad.tolist()
    ([0.0, 2.0], [0.0, 1.0])
    """
    if not is_itself(module):
        return None
    if isinstance(module, nn.ReLU):
        return _ReLU()
    if isinstance(module, nn.LeakyReLU) and module.negative_slope >= 0:
        return _ReLU(module.negative_slope)
    if isinstance(module, nn.ELU) and module.alpha >= 0:  # else the output does not give the slope
        return _ELU(module.alpha)
    if isinstance(module, nn.CELU) and module.alpha > 0:
        return _ELU(module.alpha, 1.0, 1.0 / module.alpha)
    if isinstance(module, nn.SELU):
        return _ELU(1.6732632423543772, 1.0507009873554805)
    if isinstance(module, NLReLU):
        return _NLReLU(module.beta)
    if isinstance(module, nn.Tanh):
        return _Tanh()
    if isinstance(module, nn.Sigmoid):
        return _Sigmoid()
    if isinstance(module, nn.Identity):
        return _Identity()
    if isinstance(module, Swish) and module.beta == 1:
        return _SiLU()
    if isinstance(module, nn.GELU):
        return _GELU(module.approximate)
    if isinstance(module, nn.Mish):
        return _Mish()
    if isinstance(module, nn.Hardswish):
        return _HardSiLU()
    if isinstance(module, nn.Softplus):
        return _Softplus(module.beta, module.threshold)
    if isinstance(module, CombU) and module.partition is None and module.dim == -1:
        kernels = [in_place(part) for part in module.parts]
        if all(kernel is not None and not kernel.keeps_input for kernel in kernels):
            spans = module.spans
            return _Parts(
                tuple((s[1], s[2], k) for s, k in zip(spans, kernels, strict=True) if k is not None)
            )
    return None
