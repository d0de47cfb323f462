"""Linear layers of several heads, forward and backward, in memory of a step's own."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from combutab.nn._head_layers import HeadLinear, HeadOutputs
from combutab.nn._layers import StackedLinear
from combutab.nn.engine._memory import StageMemory
from combutab.nn.engine._products import Allocate, input_gradient, weight_gradient
from combutab.nn.engine._vectors import GradientOf


class HeadMap(Protocol):
    """A linear layer that is more than one product; rows of heads stand one behind the other."""

    def forward(self, x: Tensor, allocate: Allocate) -> Tensor:
        """(M, batch * k, in) -> (M, batch * k, out); x must stay as it is until ``backward``."""

    def backward(self, x: Tensor, grad: Tensor, allocate: Allocate) -> Tensor:
        """Write the parameters' gradients; the gradient by x. ``grad`` is overwritten."""


def head_map(linear: StackedLinear, memory: StageMemory, at: GradientOf) -> HeadMap | None:
    """The passes of a layer of heads; None for another, which is one product."""
    if isinstance(linear, HeadLinear):
        return SharedMap(linear, memory, at)
    if isinstance(linear, HeadOutputs):
        return SeparateMaps(linear, at)
    return None


class SharedMap:
    """Passes of ``HeadLinear``: one product for all heads."""

    def __init__(self, linear: HeadLinear, memory: StageMemory, at: GradientOf) -> None:
        self._memory, self._scale, self._n_heads = memory, linear.scale, linear.n_heads
        self._weight, self._weight_grad = linear.weight.data, at(linear, "weight")
        names = ["bias", "s"] if linear.r is None else ["bias", "s", "r"]
        self._own = {name: _in_rows(getattr(linear, name).data) for name in names}
        self._grads = {name: _in_rows(at(linear, name)) for name in names}
        self._kept: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, allocate: Allocate) -> Tensor:
        scaled = x
        if "r" in self._own:
            scaled = self._memory.keep("scaled", *x.shape)
            torch.mul(self._rows(x), self._own["r"], out=self._rows(scaled))
        shape = *x.shape[:2], self._weight.shape[2]
        product = input_gradient(
            scaled,
            self._weight.transpose(1, 2),
            lambda: self._memory.keep("product", *shape),
            self._scale,
        )
        out = allocate()
        rows = self._rows(product)
        torch.addcmul(self._own["bias"], rows, self._own["s"], out=self._rows(out))
        self._kept = scaled, product
        return out

    def backward(self, x: Tensor, grad: Tensor, allocate: Allocate) -> Tensor:
        assert self._kept is not None
        scaled, product = self._kept
        rows = self._rows(grad)
        torch.sum(rows, 1, keepdim=True, out=self._grads["bias"])
        self._sum_of_products("s", rows, self._rows(product))
        rows.mul_(self._own["s"])
        weight_gradient(scaled, grad, self._weight_grad, self._scale)
        by_x = input_gradient(grad, self._weight, allocate, self._scale)
        if "r" in self._own:
            self._sum_of_products("r", self._rows(by_x), self._rows(x))
            self._rows(by_x).mul_(self._own["r"])
        return by_x

    def _sum_of_products(self, name: str, a: Tensor, b: Tensor) -> None:
        both = torch.mul(a, b, out=self._memory.work("of heads", *a.shape))
        torch.sum(both, 1, keepdim=True, out=self._grads[name])

    def _rows(self, x: Tensor) -> Tensor:  # (M, batch * k, n) -> (M, batch, k * n)
        return x.view(len(x), -1, self._n_heads * x.shape[2])


def _in_rows(own: Tensor) -> Tensor:  # (M, k, n) -> (M, 1, k * n)
    return own.view(len(own), 1, -1)


class SeparateMaps:
    """Passes of ``HeadOutputs``: a product for each head, without copies of their rows.

    The outputs are few, and a product with so few columns takes up to thirty times as long as its
    transpose.
    """

    def __init__(self, linear: HeadOutputs, at: GradientOf) -> None:
        self._scale, self._n_heads = linear.scale, linear.n_heads
        self._weight, self._bias = linear.weight.data, linear.bias.data.unsqueeze(2)
        self._weight_grad, self._bias_grad = at(linear, "weight"), at(linear, "bias")

    def forward(self, x: Tensor, allocate: Allocate) -> Tensor:
        out = allocate()
        for m, weight in enumerate(self._weight):
            turned = weight.transpose(1, 2).contiguous()
            product = torch.bmm(turned, self._heads(x[m]).transpose(1, 2)).transpose(1, 2)
            torch.add(self._bias[m], product, alpha=self._scale, out=self._heads(out[m]))
        return out

    def backward(self, x: Tensor, grad: Tensor, allocate: Allocate) -> Tensor:
        by_x = allocate()
        for m, weight in enumerate(self._weight):
            own = self._heads(grad[m])
            torch.sum(own, 1, out=self._bias_grad[m])
            turned = torch.bmm(own.transpose(1, 2), self._heads(x[m]))
            self._weight_grad[m].copy_(turned.transpose(1, 2))
            torch.bmm(own, weight.transpose(1, 2), out=self._heads(by_x[m]))
        if self._scale != 1:
            self._weight_grad.mul_(self._scale)
            by_x.mul_(self._scale)
        return by_x

    def _heads(self, x: Tensor) -> Tensor:  # (batch * k, n) -> (k, batch, n), a view
        return x.view(-1, self._n_heads, x.shape[1]).transpose(0, 1)
