"""Forward and backward of one member of a block network, in memory of its own.

On a CPU, autograd's temporaries and its many small operations cost a generator as much as the
matrix products. Here each product writes to its place: outputs beside the inputs that they are
concatenated with, gradients into the gradient matrix. The numbers are those of autograd.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn

from combutab.activations import InPlace, in_place
from combutab.nn._activation import StackedActivation
from combutab.nn._generative import BlockNetwork
from combutab.nn._layers import StackedLinear, StackedNorm
from combutab.nn._member_products import (
    add_product,
    affine,
    affine_columns,
    product,
    weight_gradient,
)
from combutab.nn._scratch import Scratch


@dataclass(frozen=True)
class MemberLinear:
    """One member's part of a linear layer, and where its gradients go: views."""

    weight: Tensor  # (in, out)
    bias: Tensor  # (out,)
    weight_grad: Tensor
    bias_grad: Tensor


def linears_of(network: BlockNetwork, member: int) -> list[MemberLinear]:
    """The linear layers of one member."""
    grad, found = network.flat.gradient_of, []
    for module in network.linears:
        linear = cast(StackedLinear, module)
        weight_grad, bias_grad = grad(linear, "weight"), grad(linear, "bias")
        found.append(
            MemberLinear(
                linear.weight.data[member],
                linear.bias.data[member, 0],
                weight_grad[member],
                bias_grad[member, 0],
            )
        )
    return found


def activations_of(network: BlockNetwork, member: int) -> list[tuple[nn.Module, InPlace]]:
    """The activations of one member, each with its kernels."""
    found = []
    for module in network.activations:
        slot = cast(StackedActivation, module)
        group = next(g for g in slot.groups if g.start <= member < g.stop)
        kernel = in_place(slot.kinds[group.index])
        assert kernel is not None
        found.append((slot.kinds[group.index], kernel))
    return found


def has_kernels(network: BlockNetwork) -> bool:
    """Whether all members' activations have kernels."""
    return all(
        in_place(kind) is not None
        for slot in network.activations
        for kind in cast(StackedActivation, slot).kinds
    )


@dataclass(frozen=True)
class _MemberNorm:
    """One member's part of a batch normalisation: views."""

    gain: Tensor
    shift: Tensor
    mean: Tensor
    var: Tensor
    gain_grad: Tensor
    shift_grad: Tensor
    momentum: float
    eps: float

    @classmethod
    def of(cls, network: BlockNetwork, norm: StackedNorm, member: int) -> _MemberNorm:
        assert norm.gain is not None
        assert norm.shift is not None
        gain_grad, shift_grad = (network.flat.gradient_of(norm, n) for n in ("gain", "shift"))
        return cls(
            norm.gain.data[member, 0],
            norm.shift.data[member, 0],
            norm.running_mean[member],
            norm.running_var[member],
            gain_grad[member, 0],
            shift_grad[member, 0],
            norm.momentum,
            norm.eps,
        )


class BlockPass:
    """Member ``member`` of a network: outputs of rows, then gradients of its parameters.

    Batch normalisation is that of training mode, and moves the running statistics.

    Parameters
    ----------
    network : BlockNetwork
        One that ``fits``.
    member : int
    scratch : Scratch
        Of this kind of network; members may share it, as one is done before the next begins.

    Examples
    --------
    >>> from combutab.nn import Member, StackedGenerator
    >>> net = StackedGenerator(4, 2, 3, (8,), [Member(0, "relu")])
    >>> run = BlockPass(net, 0, Scratch(net.dtype, net.device))
    >>> rows = run.inputs(5).normal_(generator=torch.Generator().manual_seed(0))
    >>> outputs = net(rows[None, :, :4], rows[None, :, 4:])[0]
    >>> bool(torch.allclose(run.forward(5), outputs, atol=1e-6))
    True
    """

    def __init__(self, network: BlockNetwork, member: int, scratch: Scratch) -> None:
        self._scratch, self._residual = scratch, network.residual
        self._linears = linears_of(network, member)
        self._kernels = [kernel for _, kernel in activations_of(network, member)]
        self._norms = [
            _MemberNorm.of(network, cast(StackedNorm, norm), member)
            for norm in network.norms
            if network.normalization == "batch"
        ]
        self._kept: list[Tensor] = []
        self._statistics: list[tuple[Tensor, Tensor]] = []
        self.n_inputs, self.widths = self._linears[0].weight.shape[0], network.widths
        self._ends = list(accumulate(self.widths, initial=0))  # of hidden units, side by side

    @staticmethod
    def fits(network: BlockNetwork) -> bool:
        """Whether the passes know all of its layers."""
        return network.normalization in ("none", "batch") and has_kernels(network)

    def inputs(self, n_rows: int) -> Tensor:
        """Where the inputs of the next pass are to be written, (n_rows, n_inputs)."""
        return self._input(0, n_rows)

    def _input(self, i: int, n_rows: int) -> Tensor:
        """What layer i sees."""
        if self._residual:
            all_units = self._scratch("h", n_rows, self.n_inputs + self._ends[-1])
            return all_units[:, : self.n_inputs + self._ends[i]]
        return self._scratch(f"h{i}", n_rows, self.widths[i - 1] if i else self.n_inputs)

    def _units(self, i: int, n_rows: int) -> Tensor:
        """The outputs of hidden layer i: a part of the input of the next."""
        return self._input(i + 1, n_rows)[:, -self.widths[i] :]

    @torch.no_grad()
    def forward(self, n_rows: int, *, columns_first: bool = False) -> Tensor:
        """Raw outputs for ``inputs``, (n_rows, n_outputs), or its transpose in memory."""
        self._kept.clear()
        self._statistics.clear()
        for i, kernel in enumerate(self._kernels):
            out = self._units(i, n_rows)
            if self._norms:
                self._linear(i, n_rows, self._scratch(f"a{i}", n_rows, self.widths[i]))
                out.copy_(self._normalize(i, n_rows))
            else:
                self._linear(i, n_rows, out)
            if kernel.keeps_input:
                self._kept.append(self._scratch(f"x{i}", n_rows, self.widths[i]).copy_(out))
            else:
                self._kept.append(out)
            kernel.forward_(out)
        linear = self._linears[-1]
        n_outputs = len(linear.bias)
        if columns_first:
            out = self._scratch("out", n_outputs, n_rows)
            last = self._input(len(self.widths), n_rows)
            return affine_columns(last, linear.weight, linear.bias, out)
        return self._linear(-1, n_rows, self._scratch("out", n_rows, n_outputs))

    def _linear(self, i: int, n_rows: int, out: Tensor) -> Tensor:
        linear = self._linears[i]
        inputs = self._input(i % len(self._linears), n_rows)
        return affine(inputs, linear.weight, linear.bias, out)

    def _normalize(self, i: int, n_rows: int) -> Tensor:
        norm, before = self._norms[i], self._scratch(f"a{i}", n_rows, self.widths[i])
        out, mean, inverse = torch.native_batch_norm(
            before, norm.gain, norm.shift, norm.mean, norm.var, True, norm.momentum, norm.eps
        )
        self._statistics.append((mean, inverse))
        return out

    @torch.no_grad()
    def backward(
        self, grad: Tensor, *, columns_first: bool = False, to_inputs: bool = False
    ) -> Tensor | None:
        """Set the gradients of the parameters, given those of the outputs of ``forward``.

        Parameters
        ----------
        grad : Tensor, as ``forward`` gave
        to_inputs : bool
            Return the inputs' gradient, (n_rows, n_inputs); not for a residual network.
        """
        if columns_first:
            torch.sum(grad, 1, out=self._linears[-1].bias_grad)
            grad = grad.t()
        else:
            torch.sum(grad, 0, out=self._linears[-1].bias_grad)
        n_rows = grad.shape[0]
        depth = len(self.widths)
        weight_gradient(self._input(depth, n_rows), grad, self._linears[-1].weight_grad)
        below = self._below(depth, grad)
        for i in reversed(range(depth)):
            grad = self._gradient_of_units(i, below)
            self._kernels[i].backward_(self._kept[i], grad)
            if self._norms:
                grad = self._normalize_backward(i, grad)
            weight_gradient(self._input(i, n_rows), grad, self._linears[i].weight_grad)
            torch.sum(grad, 0, out=self._linears[i].bias_grad)
            if i or to_inputs:
                below = self._below(i, grad, below)
        return below if to_inputs else None

    def _below(self, i: int, grad: Tensor, so_far: Tensor | None = None) -> Tensor | None:
        """The gradient of what layer i sees: of a residual network, of the hidden units there."""
        weight, n_rows = self._linears[i].weight, grad.shape[0]
        if not self._residual:
            out = self._scratch(f"d{i}", n_rows, weight.shape[0])
            return product(grad, weight.t(), out)
        if not self.widths:
            return None
        weight = weight[self.n_inputs :]
        if so_far is None:
            out = self._scratch("d", n_rows, weight.shape[0])
            return product(grad, weight.t(), out)
        add_product(grad, weight.t(), so_far[:, : self._ends[i]])
        return so_far

    def _gradient_of_units(self, i: int, below: Tensor | None) -> Tensor:
        assert below is not None
        if not self._residual:
            return below
        out = self._scratch(f"g{i}", below.shape[0], self.widths[i])
        return out.copy_(below[:, self._ends[i] : self._ends[i + 1]])

    def _normalize_backward(self, i: int, grad: Tensor) -> Tensor:
        norm, before = self._norms[i], self._scratch(f"a{i}", *grad.shape)
        grad, of_gain, of_shift = torch.ops.aten.native_batch_norm_backward(
            grad, before, norm.gain, norm.mean, norm.var, *self._statistics[i], True, norm.eps,
            [True, True, True],
        )  # fmt: skip
        norm.gain_grad.copy_(of_gain)
        norm.shift_grad.copy_(of_shift)
        return grad
