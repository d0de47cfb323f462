"""What stands between two linear layers of a step: normalisation and activations, in place.

Where the library has kernels they work in memory of their own; anything else goes through
autograd, stage by stage, so that the matrix products around it need not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from combutab.activations import (
    InPlace,
    InPlaceProxyNorm,
    ProxyNorm,
    Standardize,
    in_place,
    in_place_group,
    standardize_of,
)
from combutab.nn._activation import SeparateModules, StackedModules
from combutab.nn._layers import StackedNorm
from combutab.nn._scratch import Scratch

GradientOf = Callable[[nn.Module, str], Tensor]  # module, parameter -> where its gradient goes


class Stage(Protocol):
    """One stage of a layer for some members; tensors are (members, rows, width)."""

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        """x becomes the output, which nobody changes until ``backward_``, if that is to come."""

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        """The gradient of the output becomes that of the input; ``out`` may be destroyed."""


class StageMemory:
    """A stage's own part of the memory of a step, and the part that all share."""

    def __init__(self, scratch: Scratch, prefix: str) -> None:
        self._scratch, self._prefix = scratch, prefix

    def kept(self, name: str, *shape: int) -> Tensor:
        """What stays from a stage's forward to its backward pass."""
        return self._scratch(f"{self._prefix}.{name}", *shape)

    def work(self, name: str, *shape: int) -> Tensor:
        """What is used within a call alone."""
        return self._scratch(name, *shape)


class PointwiseStage:
    """An activation of single units with kernels of its own."""

    def __init__(self, kernel: InPlace, memory: StageMemory) -> None:
        self.kernel, self._memory = kernel, memory
        self._input: Tensor | None = None

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        if keep and self.kernel.keeps_input:
            self._input = self._memory.kept("input", *x.shape).copy_(x)
        self.kernel.forward_(x)

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        self.kernel.backward_(out if self._input is None else self._input, grad)

    def apply(self, x: Tensor, out: Tensor, again: bool = False) -> None:
        """``out`` becomes phi(x), and x what ``derive_`` is given; ``again`` if x is that."""
        if self.kernel.keeps_input:
            self.kernel.forward_(out.copy_(x))
            return
        if not again:
            self.kernel.forward_(x)
        out.copy_(x)

    def derive_(self, x: Tensor, grad: Tensor) -> None:
        """The gradient of ``apply``'s result becomes that of its input."""
        self.kernel.backward_(x, grad)

    def drop_(self, x: Tensor, mask: Tensor, out: Tensor) -> None:
        """``out`` becomes phi(x) mask, and mask becomes the slope: mask phi'(x)."""
        if not self.kernel.keeps_input:
            self.kernel.drop_(x, mask, out)
            return
        kept = self._memory.work("input", *x.shape).copy_(x)
        self.kernel.forward_(x)
        torch.mul(x, mask, out=out)
        self.kernel.backward_(kept, mask)


class NormStage:
    """Layer, RMS, group normalisation, PLN or PLS, with their gain and shift."""

    def __init__(
        self, norm: StackedNorm, standardize: Standardize, memory: StageMemory, at: GradientOf
    ) -> None:
        self._standardize, self._memory = standardize, memory
        self._gain = None if norm.gain is None else norm.gain.data
        self._shift = None if norm.shift is None else norm.shift.data
        self._gain_grad = None if norm.gain is None else at(norm, "gain")
        self._shift_grad = None if norm.shift is None else at(norm, "shift")
        self._n: Tensor | None = None

    @staticmethod
    def of(norm: StackedNorm, memory: StageMemory, at: GradientOf, like: Tensor) -> Stage | None:
        """The stage, or None where there are no kernels."""
        if norm.kind == "batch":
            return None
        size = norm.width if norm.kind in ("layer", "rms") else norm.group_size
        center = norm.kind not in ("rms", "pls")
        kernels = standardize_of(size, norm.width, norm.eps, center, like, memory.kept, memory.work)
        return None if kernels is None else NormStage(norm, kernels, memory, at)

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        self._standardize.forward_(x, keep)
        if keep:
            self._n = self._memory.kept("n", *x.shape).copy_(x)  # what follows overwrites x
        if self._gain is not None:
            x.mul_(self._gain)
        if self._shift is not None:
            x.add_(self._shift)

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        assert self._n is not None
        if self._shift_grad is not None:
            torch.sum(grad, 1, keepdim=True, out=self._shift_grad)
        if self._gain is not None and self._gain_grad is not None:
            work = torch.mul(grad, self._n, out=self._memory.work("work", *grad.shape))
            torch.sum(work, 1, keepdim=True, out=self._gain_grad)
            grad.mul_(self._gain)
        self._standardize.backward_(self._n, grad)


class AutogradStage:
    """Any module, differentiated by autograd in the middle of a step."""

    def __init__(
        self,
        call: Callable[[Tensor], Tensor],
        parameters: list[tuple[Tensor, Tensor]],
    ) -> None:
        self._call = call
        self._parameters = [parameter for parameter, _ in parameters]
        self._targets = [target for _, target in parameters]
        self._ends: tuple[Tensor, Tensor] | None = None

    def forward_(self, x: Tensor, keep: bool = True) -> None:
        if not keep:
            x.copy_(self._call(x))
            return
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            out = self._call(leaf.clone())  # no leaf: a module may work in place
        self._ends = leaf, out
        x.copy_(out.detach())

    def backward_(self, out: Tensor, grad: Tensor) -> None:
        assert self._ends is not None
        leaf, raw = self._ends
        self._ends = None
        of: list[Tensor | None] = [None] * (1 + len(self._targets))
        if raw.requires_grad:
            of = list(torch.autograd.grad(raw, [leaf, *self._parameters], grad, allow_unused=True))
        # ``grad`` last: of one row, a parameter's gradient may be ``grad`` itself
        for target, value in zip([*self._targets, grad], [*of[1:], of[0]], strict=True):
            if value is None:
                target.zero_()
            else:
                target.copy_(value)


def activation_stage(
    module: nn.Module,
    memory: StageMemory,
    at: GradientOf,
    like: Tensor,
    valid: Callable[[], Tensor | None],
) -> Stage:
    """The stage of one activation module of a slot; ``valid``: which places hold a row."""
    kernel = in_place(module)
    if kernel is not None:
        return PointwiseStage(kernel, memory)
    stage = in_place_group(module, like, memory.kept, memory.work)
    if stage is not None:
        return stage
    if isinstance(module, StackedModules) and isinstance(module.skeleton, ProxyNorm):
        phi = InPlaceProxyNorm.kernel_of(module.skeleton)
        if phi is not None:
            values = {name: getattr(module, key).data.unsqueeze(1) for name, key in module.names}
            grads = {name: at(module, key).unsqueeze(1) for name, key in module.names}
            return InPlaceProxyNorm(module.skeleton, phi, values, grads, memory.kept, memory.work)
    if isinstance(module, SeparateModules):
        return AutogradStage(partial(_of_rows, module, valid), parameters_of(module, at))
    return AutogradStage(module, parameters_of(module, at))


def _of_rows(module: SeparateModules, valid: Callable[[], Tensor | None], x: Tensor) -> Tensor:
    return cast(Tensor, module(x, valid()))


def parameters_of(module: nn.Module, at: GradientOf) -> list[tuple[Tensor, Tensor]]:
    """The parameters of a module that are trained, each with the place of its gradient."""
    return [
        (parameter, at(owner, name))
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad
    ]
