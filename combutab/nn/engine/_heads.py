"""Linear layers of several heads, forward and backward, in memory of a step's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from combutab.nn._head_layers import HeadLinear, HeadOutputs
from combutab.nn._layers import StackedLinear
from combutab.nn.engine._memory import StageMemory
from combutab.nn.engine._products import input_gradient, weight_gradient
from combutab.nn.engine._vectors import GradientOf

Place = Callable[..., Tensor]  # shape -> memory for a result


class HeadMap(Protocol):
    """A linear layer that is more than one product; rows of heads stand one behind the other."""

    def forward(self, x: Tensor, allocate: Place) -> Tensor:
        """(M, rows, in) -> (M, batch * k, out); x must stay as it is until ``backward``."""

    def backward(
        self, x: Tensor, grad: Tensor, allocate: Place, *, to_inputs: bool = True
    ) -> Tensor | None:
        """Write the parameters' gradients; the gradient by x if asked. ``grad`` is overwritten."""


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
        self._splits = linear.splits
        self._weight, self._weight_grad = linear.weight.data, at(linear, "weight")
        self._bias, self._s = _in_rows(linear.bias.data), _in_rows(linear.s.data)
        self._bias_grad, self._s_grad = _in_rows(at(linear, "bias")), _in_rows(at(linear, "s"))
        self._r, self._r_grad = linear.r.data.unsqueeze(1), at(linear, "r").unsqueeze(1)
        self._scaled = self._product = linear.weight.data

    def forward(self, x: Tensor, allocate: Place) -> Tensor:
        heads = self._heads(x)
        n_rows = heads.shape[1] * self._n_heads
        self._scaled = self._memory.keep("scaled", len(x), n_rows, x.shape[2])
        torch.mul(heads, self._r, out=self._heads(self._scaled, split=False))
        shape = len(x), n_rows, self._weight.shape[2]
        self._product = input_gradient(
            self._scaled,
            self._weight.transpose(1, 2),
            lambda: self._memory.keep("product", *shape),
            self._scale,
        )
        out = allocate(*shape)
        torch.addcmul(self._bias, self._rows(self._product), self._s, out=self._rows(out))
        return out

    def backward(
        self, x: Tensor, grad: Tensor, allocate: Place, *, to_inputs: bool = True
    ) -> Tensor | None:
        rows = self._rows(grad)
        torch.sum(rows, 1, keepdim=True, out=self._bias_grad)
        both = torch.mul(rows, self._rows(self._product), out=self._work(rows))
        torch.sum(both, 1, keepdim=True, out=self._s_grad)
        rows.mul_(self._s)
        weight_gradient(self._scaled, grad, self._weight_grad, self._scale)
        place = partial(allocate, *self._scaled.shape)
        by_scaled = input_gradient(grad, self._weight, place, self._scale)
        by_head = self._heads(by_scaled, split=False)
        both = torch.mul(by_head, self._heads(x), out=self._work(by_head))
        torch.sum(both, 1, keepdim=True, out=self._r_grad)
        if not to_inputs:
            return None
        by_head.mul_(self._r)
        if not self._splits:
            return by_scaled
        return torch.sum(by_head, 2, out=self._memory.keep("by_x", *x.shape))

    def _work(self, like: Tensor) -> Tensor:
        return self._memory.work("of heads", *like.shape)

    def _rows(self, x: Tensor) -> Tensor:  # (M, batch * k, n) -> (M, batch, k * n)
        return x.view(len(x), -1, self._n_heads * x.shape[2])

    def _heads(self, x: Tensor, *, split: bool = True) -> Tensor:
        """(M, batch * k, n) -> (M, batch, k, n); of rows that are all heads' (M, batch, 1, n)."""
        k = 1 if split and self._splits else self._n_heads
        return x.unflatten(1, (-1, k))


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

    def forward(self, x: Tensor, allocate: Place) -> Tensor:
        out = allocate(*x.shape[:2], self._weight.shape[3])
        for m, weight in enumerate(self._weight):
            turned = weight.transpose(1, 2).contiguous()
            product = torch.bmm(turned, self._heads(x[m]).transpose(1, 2)).transpose(1, 2)
            torch.add(self._bias[m], product, alpha=self._scale, out=self._heads(out[m]))
        return out

    def backward(
        self, x: Tensor, grad: Tensor, allocate: Place, *, to_inputs: bool = True
    ) -> Tensor | None:
        by_x = allocate(*x.shape)
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
