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
from combutab.nn._step_loan import GradientLoan
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

    @property
    def keeps_input(self) -> bool:
        """Whether a slope is a function of the input of the activation, not of its output."""
        return any(isinstance(p, PointwiseStage) and p.kernel.keeps_input for _, _, p in self.parts)

    def apply(self, a: Tensor, h: Tensor, again: bool = False) -> None:
        """h becomes the output of a pointwise layer, and a what ``derive_`` is given."""
        for start, stop, part in self.parts:
            cast(PointwiseStage, part).apply(a[start:stop], h[start:stop], again)

    def derive_(self, a: Tensor, grad: Tensor) -> None:
        for start, stop, part in self.parts:
            cast(PointwiseStage, part).derive_(a[start:stop], grad[start:stop])


@dataclass(frozen=True)
class _Passed:
    """What a layer leaves for the backward pass."""

    layer: _Layer
    h: Tensor  # the next linear layer's input
    a: Tensor | None  # what the stages left, if they are to be called again
    slope: Tensor | None  # what the gradient is multiplied by
    shared: bool  # whether h is in memory that the next layer overwrites

    def remake(self) -> Tensor:
        """h, written once more."""
        assert self.a is not None
        if self.slope is None:
            self.layer.apply(self.a, self.h, again=True)
        else:
            torch.mul(self.a, self.slope, out=self.h)
        return self.h

    def backward_(self, grad: Tensor) -> None:
        """The gradient of h over the slope becomes that of the linear layer's output."""
        layer, a = self.layer, self.a
        if a is None:
            return
        if layer.pointwise and self.shared:
            layer.derive_(a, grad)
            return
        for start, stop, part in layer.parts:
            part.backward_(a[start:stop], grad[start:stop])
        if layer.norm is not None:
            layer.norm.backward_(a, grad)


class InPlaceStep:
    """The gradients of a stack of linear layers, normalisations, activations and dropout masks.

    Parameters
    ----------
    linears : sequence of StackedLinear
    norms : sequence of nn.Module
        ``StackedNorm``, ``nn.Identity`` or another, one less than the linears.
    slots : sequence of nn.Module
        ``StackedActivation``, or another that is called with the places that hold a row; one less
        than the linears.
    flat : FlatTensors, optional
        Where gradients go; without, the step is for ``outputs`` alone.
    """

    def __init__(
        self,
        linears: Sequence[StackedLinear],
        norms: Sequence[nn.Module],
        slots: Sequence[nn.Module],
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
        self._valid: Tensor | None = None  # for what looks across rows
        self._targets = [(at(layer, "weight"), at(layer, "bias")) for layer in self.linears]
        self._loan = GradientLoan([weight for weight, _ in self._targets])
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
        elif not isinstance(norm, nn.Identity):
            stage = AutogradStage(norm, parameters_of(norm, at))
        parts: list[tuple[int, int, Stage]] = []
        if not isinstance(slot, StackedActivation):
            call = partial(self._normalize, slot)
            parts.append((0, len(like), AutogradStage(call, parameters_of(slot, at))))
            return _Layer(stage, parts)
        for group in slot.groups:
            memory = StageMemory(self._scratch, f"{i}.{group.index}")
            valid = partial(self._valid_rows, group.start, group.stop)
            part = activation_stage(slot.kinds[group.index], memory, at, like, valid)
            parts.append((group.start, group.stop, part))
        return _Layer(stage, parts)

    @property
    def plain(self) -> bool:
        """Whether there is nothing but linear layers and activations of single units."""
        return all(layer.pointwise for layer in self._layers)

    def _normalize(self, norm: nn.Module, x: Tensor) -> Tensor:
        return cast(Tensor, norm(x, self._valid))

    def _valid_rows(self, start: int, stop: int) -> Tensor | None:
        return None if self._valid is None else self._valid[start:stop]

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
        places = self._loan.places(x.shape[1])
        passed = self._forward(x.detach(), masks, places)
        raw = self._linear(len(passed), passed[-1].h if passed else x.detach(), "raw", places[-1])
        gradient = getattr(objective, "gradient", None)
        if gradient is not None:
            grad = gradient(raw)
        else:
            with torch.enable_grad():
                leaf = raw.detach().requires_grad_()
                (grad,) = torch.autograd.grad(objective(leaf), leaf)
            del leaf
        del raw
        if self._loan.holds(grad):
            grad = grad.clone()
        for i in reversed(range(len(self.linears))):
            weight_grad, bias_grad = self._targets[i]
            scale, top = self.linears[i].scale, i == len(self._layers)
            below = passed.pop() if i else None
            if below is None:
                h = x.detach()
            else:
                h = below.remake() if below.shared and not top else below.h
            # at the top all outputs are in memory: there it is that memory is saved
            weight_gradient(h, grad, weight_grad, scale, parts=2 if top else 1)
            torch.sum(grad, dim=1, keepdim=True, out=bias_grad)
            if i == 0 and not x.requires_grad:
                return None
            room = partial(self._scratch, f"below{i % 2}", *h.shape)
            factor = None if below is None else below.slope
            # autograd's may be anybody's, and what a method gets from autograd be expanded
            over = top and gradient is not None and grad.is_contiguous()
            grad = input_gradient(grad, self._weights[i], room, factor, scale, over=over)
            if below is not None:
                below.backward_(grad)
        return grad

    def _forward(
        self, x: Tensor, masks: Sequence[Tensor] | None, places: Sequence[Tensor | None]
    ) -> list[_Passed]:
        passed: list[_Passed] = []
        for i, layer in enumerate(self._layers):
            if masks is not None and layer.pointwise:
                # the slope is kept: the activation itself is not needed again
                a, mask = self._linear(i, x, "a"), masks[i]
                place = places[i]
                x = self._scratch(f"h{i}", *a.shape) if place is None else place
                for start, stop, part in layer.parts:
                    cast(PointwiseStage, part).drop_(a[start:stop], mask[start:stop], x[start:stop])
                passed.append(_Passed(layer, x, None, mask, False))
                continue
            a = self._linear(i, x, f"a{i}", places[i])
            if masks is not None:
                self._activate(layer, a)
                x = torch.mul(a, masks[i], out=self._scratch("h", *a.shape))
                passed.append(_Passed(layer, x, a, masks[i], True))
            elif layer.pointwise and layer.keeps_input:
                x = self._scratch("h", *a.shape)
                layer.apply(a, x)
                passed.append(_Passed(layer, x, a, None, True))
            else:
                self._activate(layer, a)
                x = a
                passed.append(_Passed(layer, x, a, None, False))
        return passed

    def _linear(self, i: int, x: Tensor, name: str, place: Tensor | None = None) -> Tensor:
        def room() -> Tensor:
            if place is not None:
                return place
            return self._scratch(name, *x.shape[:2], self._weights[i].shape[2])

        out = affine(x, self._weights[i], self._biases[i], room, self.linears[i].scale)
        return out if place is None or out is place else place.copy_(out)

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
