"""Forward and backward of a plain stack in buffers of its own: no allocation in a step.

On a CPU the temporaries of autograd cost as much as the matrix products: each is fresh memory
that the system must map and clear. Here every layer's output, mask product and gradient has its
place, and the matrix products of the backward pass write into the gradient matrix itself.
The numbers are those of the autograd path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from combutab.activations import InPlace, in_place
from combutab.nn._activation import StackedActivation
from combutab.nn._layers import StackedLinear


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a @ b for each member, into ``out``."""
    # With a single column bmm takes up to ten times as long on a CPU as mm does, which knows
    # matrix times vector.
    if a.device.type == "cpu" and 1 in (a.shape[2], b.shape[2]):
        for i in range(a.shape[0]):
            torch.mm(a[i], b[i], out=out[i])
    else:
        torch.bmm(a, b, out=out)


class _Buffer:
    """Memory that grows to the largest shape asked for, and is reused for smaller ones."""

    def __init__(self) -> None:
        self._memory = torch.empty(0)

    def view(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        n = math.prod(shape)
        if self._memory.numel() < n or self._memory.dtype != like.dtype:
            self._memory = torch.empty(n, dtype=like.dtype, device=like.device)
        return self._memory[:n].view(shape)


class InPlaceStep:
    """The gradients of a stack of linear layers, in-place activations and dropout masks.

    Parameters
    ----------
    linears : sequence of StackedLinear
    slots : sequence of StackedActivation
        One less than the linears.
    gradients : callable
        ``gradients()`` gives, for each linear layer, the views of the gradient matrix that its
        weight's and its bias's gradients go to.
    """

    def __init__(
        self,
        linears: Sequence[StackedLinear],
        slots: Sequence[StackedActivation],
        gradients: Callable[[], list[tuple[Tensor, Tensor]]],
    ) -> None:
        self.linears, self.slots, self.gradients = linears, slots, gradients
        n_layers = len(linears)
        self._outputs = [_Buffer() for _ in range(n_layers)]
        self._inputs = [_Buffer() for _ in range(n_layers)]
        self._dropped = [_Buffer() for _ in range(n_layers)]
        self._upstream = [_Buffer(), _Buffer()]
        self._weights = _Buffer()
        self.refresh()

    def refresh(self) -> None:
        """Look the kernels up anew, after members were dropped."""
        self._kernels = [self.kernels(slot) or [] for slot in self.slots]

    @staticmethod
    def kernels(slot: StackedActivation) -> list[tuple[int, int, InPlace]] | None:
        """(first member, past the last, kernels) of a slot, None if an activation has none."""
        found = []
        for group in slot.groups:
            kernels = in_place(slot.kinds[group.index])
            if kernels is None:
                return None
            found.append((group.start, group.stop, kernels))
        return found

    @torch.no_grad()
    def run(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None,
        objective: Callable[[Tensor], Tensor],
    ) -> None:
        """Fill the gradient matrix with the derivatives of ``objective(raw outputs)``."""
        inputs, kept, out = self._forward(x, masks, training=True)
        with torch.enable_grad():
            raw = out.detach().requires_grad_()
            (grad,) = torch.autograd.grad(objective(raw), raw)
        targets = self.gradients()
        for i in reversed(range(len(self.linears))):
            linear, (weight_grad, bias_grad) = self.linears[i], targets[i]
            self._weight_gradient(inputs[i], grad, linear.scale, weight_grad)
            torch.sum(grad, dim=1, keepdim=True, out=bias_grad)
            if i == 0:
                return
            below = self._upstream[i % 2].view(tuple(inputs[i].shape), x)
            _product(grad, linear.weight.transpose(1, 2), below)
            if linear.scale != 1:
                below.mul_(linear.scale)
            if masks is not None:
                below.mul_(masks[i - 1])
            for (start, stop, kernel), values in zip(
                self._kernels[i - 1], kept[i - 1], strict=True
            ):
                kernel.backward_(values, below[start:stop])
            grad = below

    def _forward(
        self, x: Tensor, masks: Sequence[Tensor] | None, training: bool
    ) -> tuple[list[Tensor], list[list[Tensor]], Tensor]:
        """Inputs of the linear layers, what each activation's derivative needs, raw outputs."""
        inputs, kept = [x], []
        for i, linear in enumerate(self.linears):
            shape = (*inputs[-1].shape[:2], linear.weight.shape[2])
            out = self._outputs[i].view(shape, x)
            if shape[2] == 1 and linear.scale == 1:
                _product(inputs[-1], linear.weight, out)
                out.add_(linear.bias)
            else:
                torch.baddbmm(linear.bias, inputs[-1], linear.weight, alpha=linear.scale, out=out)
            if i < len(self._kernels):
                kept.append(self._activate(i, out, training))
                if masks is None:
                    inputs.append(out)
                else:
                    dropped = self._dropped[i].view(shape, x)
                    inputs.append(torch.mul(out, masks[i], out=dropped))
        return inputs, kept, out

    def _activate(self, i: int, out: Tensor, training: bool) -> list[Tensor]:
        """Apply layer i's activations to ``out``; returns what their derivatives need."""
        kept = []
        for start, stop, kernel in self._kernels[i]:
            part = out[start:stop]
            if kernel.keeps_input and training:
                kept.append(self._inputs[i].view(tuple(out.shape), out)[start:stop].copy_(part))
            else:
                kept.append(part)
            kernel.forward_(part)
        return kept

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """The raw outputs, (M, batch, n_outputs), without dropout."""
        return self._forward(x, None, training=False)[2].clone()

    def _weight_gradient(self, x: Tensor, grad: Tensor, scale: float, target: Tensor) -> None:
        if target.is_contiguous():
            _product(x.transpose(1, 2), grad, target)
        else:  # rows of a wider matrix: bmm would allocate its result and copy
            result = self._weights.view(tuple(target.shape), x)
            _product(x.transpose(1, 2), grad, result)
            target.copy_(result)
        if scale != 1:
            target.mul_(scale)
