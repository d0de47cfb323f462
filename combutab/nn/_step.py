"""Forward and backward of a stack in memory of its own, step after step.

On a CPU the temporaries of autograd cost as much as the matrix products: each is fresh memory
that the system must map and clear. Here every layer's output and gradient has its place, and the
matrix products of the backward pass write into the gradient matrix itself. The numbers are those
of the autograd path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from combutab.activations import InPlaceProxyNorm
from combutab.nn._activation import StackedActivation
from combutab.nn._flat import FlatTensors
from combutab.nn._layers import StackedLinear, StackedNorm
from combutab.nn._scratch import Scratch
from combutab.nn._step_products import affine, input_gradient, weight_gradient
from combutab.nn._step_stages import (
    AutogradStage,
    GradientOf,
    NormStage,
    PointwiseStage,
    Stage,
    StageMemory,
    activation_stage,
    parameters_of,
)


@dataclass(frozen=True)
class _Layer:
    """A hidden layer: its normalisation, and each activation with its members."""

    norm: Stage | None
    parts: list[tuple[int, int, Stage]]  # first member, past the last, stage

    @property
    def pointwise(self) -> bool:
        """Whether all it does after the linear map is to multiply the gradient by a slope."""
        return self.norm is None and all(isinstance(p, PointwiseStage) for _, _, p in self.parts)


class InPlaceStep:
    """The gradients of a stack of linear layers, normalisations, activations and dropout masks.

    Parameters
    ----------
    linears : sequence of StackedLinear
    norms : sequence of nn.Module
        ``StackedNorm`` or ``nn.Identity``, one less than the linears.
    slots : sequence of StackedActivation
        One less than the linears.
    flat : FlatTensors, optional
        Where gradients go; without, the step is for ``outputs`` alone.
    """

    def __init__(
        self,
        linears: Sequence[StackedLinear],
        norms: Sequence[nn.Module],
        slots: Sequence[StackedActivation],
        flat: FlatTensors | None = None,
    ) -> None:
        self.linears, self.norms, self.slots = linears, norms, slots
        # who only predicts writes no gradients: any place will do
        self._at: GradientOf = getattr if flat is None else flat.gradient_of
        self.refresh()

    def refresh(self) -> None:
        """Look at members and memory anew, after members were dropped."""
        like, at = self.linears[0].weight, self._at
        self._scratch = Scratch(like.dtype, like.device)
        self._valid: Tensor | None = None  # for batch normalisation
        self._targets = [(at(layer, "weight"), at(layer, "bias")) for layer in self.linears]
        self._weights = [layer.weight.data for layer in self.linears]
        self._biases = [layer.bias.data for layer in self.linears]
        self._layers = [self._layer(i) for i in range(len(self.slots))]
        stages = [stage for layer in self._layers for _, _, stage in layer.parts]
        InPlaceProxyNorm.share([s for s in stages if isinstance(s, InPlaceProxyNorm)])

    def _layer(self, i: int) -> _Layer:
        norm, slot, like = self.norms[i], self.slots[i], self.linears[0].weight
        at = self._at
        stage: Stage | None = None
        if isinstance(norm, StackedNorm):
            stage = NormStage.of(norm, StageMemory(self._scratch, f"{i}.norm"), at, like)
            if stage is None:
                call = partial(self._normalize, norm)
                stage = AutogradStage(call, parameters_of(norm, at))
        parts = []
        for group in slot.groups:
            memory = StageMemory(self._scratch, f"{i}.{group.index}")
            part = activation_stage(slot.kinds[group.index], memory, at, like)
            parts.append((group.start, group.stop, part))
        return _Layer(stage, parts)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but linear layers and activations of single units."""
        return all(layer.pointwise for layer in self._layers)

    def _normalize(self, norm: StackedNorm, x: Tensor) -> Tensor:
        return cast(Tensor, norm(x, self._valid))

    @torch.no_grad()
    def run(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None,
        objective: Callable[[Tensor], Tensor],
        valid: Tensor | None = None,
    ) -> Tensor | None:
        """Set the gradients to the derivatives of ``objective(raw outputs)``, a scalar.

        Returns that by x, if x requires it.

        An objective may have a method ``gradient`` that gives the derivative by the raw outputs,
        in memory that may be overwritten. ``masks`` are overwritten.
        """
        self._valid = valid
        inputs, outs, slopes = self._forward(x.detach(), masks)
        raw = self._linear(len(self._layers), inputs[-1], "raw")
        gradient = getattr(objective, "gradient", None)
        if gradient is not None:
            grad = gradient(raw)
        else:
            with torch.enable_grad():
                leaf = raw.detach().requires_grad_()
                (grad,) = torch.autograd.grad(objective(leaf), leaf)
            del leaf
        del raw
        for i in reversed(range(len(self.linears))):
            weight_grad, bias_grad = self._targets[i]
            scale = self.linears[i].scale
            shape = inputs[i].shape
            weight_gradient(inputs.pop(), grad, weight_grad, scale)
            torch.sum(grad, dim=1, keepdim=True, out=bias_grad)
            if i == 0 and not x.requires_grad:
                return None
            room = partial(self._scratch, f"below{i % 2}", *shape)
            factor = slopes[i - 1] if i else None
            grad = input_gradient(grad, self._weights[i], room, factor, scale)
            if i == 0:
                break
            layer, out = self._layers[i - 1], outs.pop()
            if out is not None:
                for start, stop, part in layer.parts:
                    part.backward_(out[start:stop], grad[start:stop])
                if layer.norm is not None:
                    layer.norm.backward_(out, grad)
        return grad

    def _forward(
        self, x: Tensor, masks: Sequence[Tensor] | None
    ) -> tuple[list[Tensor], list[Tensor | None], list[Tensor | None]]:
        """Inputs of the linear layers; what the stages left, if they are to be called again;
        and what each gradient is multiplied by.
        """
        inputs: list[Tensor] = [x]
        outs: list[Tensor | None] = []
        slopes: list[Tensor | None] = []
        for i, layer in enumerate(self._layers):
            # where the slope is kept, the activation itself is not needed again
            name = "a" if masks is not None and layer.pointwise else f"a{i}"
            a = self._linear(i, inputs[-1], name)
            if masks is None:
                self._activate(layer, a)
                slopes.append(None)
                inputs.append(a)
                outs.append(a)
                continue
            mask, h = masks[i], self._scratch(f"h{i}", *a.shape)
            if layer.pointwise:
                for start, stop, part in layer.parts:
                    cast(PointwiseStage, part).drop_(a[start:stop], mask[start:stop], h[start:stop])
            else:
                self._activate(layer, a)
                torch.mul(a, mask, out=h)
            slopes.append(mask)
            inputs.append(h)
            outs.append(None if layer.pointwise else a)
        return inputs, outs, slopes

    def _linear(self, i: int, x: Tensor, name: str) -> Tensor:
        room = partial(self._scratch, name, *x.shape[:2], self._weights[i].shape[2])
        return affine(x, self._weights[i], self._biases[i], room, self.linears[i].scale)

    @staticmethod
    def _activate(layer: _Layer, a: Tensor, keep: bool = True) -> None:
        if layer.norm is not None:
            layer.norm.forward_(a, keep)
        for start, stop, part in layer.parts:
            part.forward_(a[start:stop], keep)

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """The raw outputs, (M, batch, n_outputs), without dropout."""
        for i, layer in enumerate(self._layers):
            x = self._linear(i, x, f"a{i % 2}")
            self._activate(layer, x, keep=False)
        return self._linear(len(self._layers), x, "raw").clone()
