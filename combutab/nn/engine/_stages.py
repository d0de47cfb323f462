"""Stages between two linear layers: normalisation and activations, forward and backward.

What has a kernel works in memory given; anything else goes through autograd, stage by stage, so
that the matrix products around it need not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from combutab.activations.kernels import Kernel, Memory
from combutab.nn._activation import SeparateModules
from combutab.nn._layers import StackedNorm
from combutab.nn.engine._vectors import GradientOf, NoVectors, VectorSource


class Stage(Protocol):
    """One stage of a layer for some members; tensors are (members, rows, width)."""

    @property
    def keeps_input(self) -> bool:
        """Tell whether x must stay as it is until ``backward``."""

    @property
    def keeps_output(self) -> bool:
        """Tell whether the result must stay as it is until ``backward``."""

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        """The result: in ``out``, or of a normalisation where the library allocates it.

        ``keep`` if ``backward`` is to come. ``out`` may be x if ``keeps_input`` is False or
        ``keep`` is. ``valid``, (members, rows), says which places hold a row; None: all.
        """
        ...

    def backward(self, grad: Tensor) -> None:
        """The gradient of the result becomes that of x; the parameters' are written."""


class KernelStage:
    """A module that has a kernel; ``layer`` is its place among those that share the vectors."""

    def __init__(
        self, kernel: Kernel, memory: Memory, vectors: VectorSource | None = None, layer: int = 0
    ) -> None:
        self.kernel, self._memory = kernel, memory
        self._source: VectorSource = NoVectors() if vectors is None else vectors
        self._layer = layer
        self._x: Tensor | None = None
        self._y: Tensor | None = None

    @property
    def keeps_input(self) -> bool:
        return self.kernel.keeps_input

    @property
    def keeps_output(self) -> bool:
        return self.kernel.keeps_output

    @property
    def scales(self) -> bool:
        """Tell whether its backward pass does no more than multiply by a slope of each unit."""
        return self.kernel.unitwise and not self._source.trained

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        self.kernel.forward(x, self._source.of(self._layer), self._memory, out)
        self._x, self._y = x, out
        return out

    def backward(self, grad: Tensor) -> None:
        vectors = self._source.of(self._layer)
        _, grads = self.kernel.backward(self._x, self._y, grad, vectors, self._memory, grad)
        self._source.collect(self._layer, grads)


class NormStage:
    """Layer, RMS or group normalisation, PLN or PLS: a kernel without vectors, gain and shift."""

    keeps_input = False

    def __init__(self, norm: StackedNorm, kernel: Kernel, memory: Memory, at: GradientOf) -> None:
        self._kernel, self._memory = kernel, memory
        self.keeps_output = norm.gain is None  # else it keeps what gain and shift are applied to
        self._gain = None if norm.gain is None else norm.gain.data
        self._shift = None if norm.shift is None else norm.shift.data
        self._gain_grad = None if norm.gain is None else at(norm, "gain")
        self._shift_grad = None if norm.shift is None else at(norm, "shift")
        self._n: Tensor | None = None

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        self._n = n = self._kernel.forward(x, (), self._memory)
        if self._gain is None:
            return n
        if self._shift is None:
            return torch.mul(n, self._gain, out=out)
        return torch.addcmul(self._shift, n, self._gain, out=out)

    def backward(self, grad: Tensor) -> None:
        if self._shift_grad is not None:
            torch.sum(grad, 1, keepdim=True, out=self._shift_grad)
        if self._gain is not None and self._gain_grad is not None:
            assert self._n is not None
            by_gain = torch.mul(grad, self._n, out=self._memory.work("by_gain", *grad.shape))
            torch.sum(by_gain, 1, keepdim=True, out=self._gain_grad)
            grad.mul_(self._gain)
        self._kernel.backward(None, self._n, grad, (), self._memory, grad)


class BatchNormStage:
    """Batch normalisation of full batches by torch's own; the rest goes through autograd."""

    keeps_input, keeps_output = True, False

    def __init__(self, norm: StackedNorm, at: GradientOf) -> None:
        self._norm = norm
        self._any = AutogradStage(norm, parameters_of(norm, at))
        self._running = list(zip(norm.running_mean, norm.running_var, strict=True))
        # a member's gain and shift, and the places of their gradients
        self._affine: list[list[Tensor | None]] = [[None, None] for _ in self._running]
        self._places: list[list[Tensor | None]] = [[None, None] for _ in self._running]
        for k, name in enumerate(("gain", "shift")):
            parameter = getattr(norm, name)
            if parameter is not None:
                place = at(norm, name)
                for i, (affine, places) in enumerate(zip(self._affine, self._places, strict=True)):
                    affine[k], places[k] = parameter.data[i, 0], place[i, 0]
        self._statistics: list[list[Tensor]] = []
        self._x: Tensor | None = None

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        norm, self._x = self._norm, None
        if not (keep or norm.training):
            by, plus = norm.running_affine()
            return torch.addcmul(plus, x, by, out=out)
        if not keep or valid is not None or x.shape[1] == 1 or not norm.training:
            return self._any.forward(x, out, valid, keep)
        self._x, self._statistics = x, []
        for i, (gain, shift) in enumerate(self._affine):
            mean, var = self._running[i]
            values, *statistics = torch.native_batch_norm(
                x[i], gain, shift, mean, var, True, norm.momentum, norm.eps
            )
            self._statistics.append(statistics)
            if len(x) == 1:
                return values.unsqueeze(0)
            out[i].copy_(values)
        return out

    def backward(self, grad: Tensor) -> None:
        if self._x is None:
            self._any.backward(grad)
            return
        for i, (gain, _) in enumerate(self._affine):
            by_x, *found = torch.ops.aten.native_batch_norm_backward(
                grad[i], self._x[i], gain, *self._running[i], *self._statistics[i], True,
                self._norm.eps, [True, True, True],
            )  # fmt: skip
            grad[i].copy_(by_x)
            for place, own in zip(self._places[i], found, strict=True):
                if place is not None:
                    place.copy_(own)


class AutogradStage:
    """Any module, differentiated by autograd in the middle of a step.

    ``sees_rows``: it is told which places hold a row, as our own modules are that want to know.
    """

    keeps_input, keeps_output = False, False

    def __init__(
        self,
        module: nn.Module,
        parameters: Sequence[tuple[Tensor, Tensor]],
        *,
        sees_rows: bool = False,
    ) -> None:
        self._module = module
        self._sees_rows = sees_rows or isinstance(module, StackedNorm | SeparateModules)
        self._parameters = [parameter for parameter, _ in parameters]
        self._places = [place for _, place in parameters]
        self._ends: tuple[Tensor, Tensor] | None = None

    def call(self, valid: Tensor | None) -> Callable[[Tensor], Tensor]:
        """The module, told which places hold a row if it wants to know."""
        return partial(self._module, valid=valid) if self._sees_rows else self._module

    def forward(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> Tensor:
        if not keep:
            return out.copy_(self.call(valid)(x))
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            # a copy: the module may work in place, and x's memory is used again
            result = self.call(valid)(leaf.clone())
        self._ends = leaf, result
        return out.copy_(result.detach())

    def backward(self, grad: Tensor) -> None:
        assert self._ends is not None
        leaf, result = self._ends
        self._ends = None
        found: list[Tensor | None] = [None] * (1 + len(self._places))
        if result.requires_grad:
            wanted = [leaf, *self._parameters]
            found = list(torch.autograd.grad(result, wanted, grad, allow_unused=True))
        # ``grad`` last: of one row, a parameter's gradient may be ``grad`` itself
        for place, value in zip([*self._places, grad], [*found[1:], found[0]], strict=True):
            if value is None:
                place.zero_()
            else:
                place.copy_(value)


def parameters_of(module: nn.Module, at: GradientOf) -> list[tuple[Tensor, Tensor]]:
    """The parameters of a module that are trained, each with the place of its gradient."""
    return [
        (parameter, at(owner, name))
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if parameter.requires_grad
    ]
