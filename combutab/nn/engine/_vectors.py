"""Vectors that kernels are given beside their input: functions of stacked modules' parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from combutab.activations.kernels import Activation, Gradients, Vectors
from combutab.nn._activation import StackedModules, bound

GradientOf = Callable[[nn.Module, str], Tensor]  # module, parameter -> where its gradient goes


class VectorSource(Protocol):
    """The vectors of one layer's kernel, or of several layers'; (M, 1, width) each."""

    trained: bool  # whether a parameter is behind any of them

    def begin(self, keep: bool) -> None:
        """A forward pass begins; ``keep`` if a backward pass follows."""

    def of(self, layer: int) -> Vectors:
        """A layer's vectors."""

    def collect(self, layer: int, grads: Gradients) -> None:
        """Take a layer's gradients by its vectors, and write those of the parameters."""


class NoVectors:
    """The source of kernels that are given none."""

    trained = False

    def begin(self, keep: bool) -> None:
        pass

    def of(self, layer: int) -> Vectors:
        return ()

    def collect(self, layer: int, grads: Gradients) -> None:
        pass


class OwnVectors:
    """Vectors that are parameters themselves, or buffers, which have no place of a gradient."""

    def __init__(self, values: Sequence[Tensor], places: Sequence[Tensor | None]) -> None:
        self._values, self._places = tuple(values), tuple(places)
        self.trained = any(place is not None for place in places)

    def begin(self, keep: bool) -> None:
        pass

    def of(self, layer: int) -> Vectors:
        return self._values

    def collect(self, layer: int, grads: Gradients) -> None:
        for place, grad in zip(self._places, grads, strict=True):
            if place is not None and grad is not None:
                place.copy_(grad)


class ComputedVectors:
    """Vectors that are computed of the parameters, for alike modules of several layers at once.

    ProxyNorm's moments take some sixty operations on a few hundred numbers, for five layers as
    for one. The modules differ in nothing but the values of their tensors.
    """

    def __init__(self, modules: Sequence[StackedModules], at: GradientOf) -> None:
        self._skeleton = modules[0].skeleton
        self._values, self._places = {}, {}
        for name, key in modules[0].names:
            tensors = [getattr(module, key) for module in modules]
            self._values[name] = [tensor.data.unsqueeze(1) for tensor in tensors]
            if tensors[0].requires_grad:
                self._places[name] = [at(module, key).unsqueeze(1) for module in modules]
        self._n_layers, self.trained = len(modules), bool(self._places)
        self._leaves: dict[str, Tensor] = {}
        self._vectors: Vectors = ()
        self._collected: dict[int, Gradients] = {}

    def begin(self, keep: bool) -> None:
        self._collected.clear()
        self._leaves = {name: torch.stack(values) for name, values in self._values.items()}
        for name in self._places if keep else ():
            self._leaves[name].requires_grad_()
        with torch.set_grad_enabled(keep):
            self._vectors = vectors_of(bound(self._skeleton, self._leaves))

    def of(self, layer: int) -> Vectors:
        return [vector[layer].detach() for vector in self._vectors]

    def collect(self, layer: int, grads: Gradients) -> None:
        self._collected[layer] = grads
        if len(self._collected) < self._n_layers:
            return
        by_layer = [self._collected[i] for i in range(self._n_layers)]
        outputs, upstream = [], []
        for vector, *own in zip(self._vectors, *by_layer, strict=True):
            given = [grad for grad in own if grad is not None]
            if vector.requires_grad and given:
                outputs.append(vector)
                upstream.append(torch.stack(given))
        leaves = [self._leaves[name] for name in self._places]
        found = torch.autograd.grad(outputs, leaves, upstream, allow_unused=True)
        for places, grad in zip(self._places.values(), found, strict=True):
            for i, place in enumerate(places):
                if grad is None:
                    place.zero_()
                else:
                    place.copy_(grad[i])


def vectors_of(module: nn.Module) -> Vectors:
    """The vectors of a module's kernel; torch's own modules have none."""
    return module.vectors() if isinstance(module, Activation) else ()


def own_vectors(module: StackedModules, at: GradientOf) -> OwnVectors | None:
    """The vectors of a module whose vectors are nothing but its tensors; None if they are not."""
    values = {name: getattr(module, key).data.unsqueeze(1) for name, key in module.names}
    vectors = vectors_of(bound(module.skeleton, values))
    keys = {id(values[name]): key for name, key in module.names}
    if not all(id(vector) in keys for vector in vectors):
        return None
    owned = [keys[id(vector)] for vector in vectors]
    trained = [getattr(module, key).requires_grad for key in owned]
    places = [
        at(module, k).unsqueeze(1) if t else None for k, t in zip(owned, trained, strict=True)
    ]
    return OwnVectors(vectors, places)
