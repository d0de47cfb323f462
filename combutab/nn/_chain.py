"""Forward and backward of a stack of layers in memory of their own, step after step.

On a CPU the temporaries of autograd cost as much as the matrix products: each is fresh memory
that the system must map and clear. Here every layer's output and gradient has its place, and the
matrix products of the backward pass write into the gradient matrix itself. The numbers are those
of the autograd path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from combutab.activations.kernels import kernel_of
from combutab.nn._activation import SeparateModules, StackedActivation, StackedModules
from combutab.nn._layers import FlatTensors, HeadLinear, HeadOutputs, StackedLinear, StackedNorm
from combutab.nn._stages import (
    AutogradStage,
    BatchNormStage,
    ComputedVectors,
    GradientOf,
    KernelStage,
    NormStage,
    Scratch,
    Stage,
    StageMemory,
    VectorSource,
    add_input_gradient,
    affine_rows,
    input_gradient,
    own_vectors,
    parameters_of,
    weight_gradient,
)

# ---- Linear layers of several heads, forward and backward, in memory of a step's own -------------

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


@dataclass
class Layer:
    """The stages after a linear layer: normalisation, activations of some members each, dropout."""

    norm: Stage | None
    parts: list[tuple[int, int, Stage]]  # first member, past the last, stage

    def __post_init__(self) -> None:
        self.keeps_input = any(part.keeps_input for _, _, part in self.parts)
        scales = all(isinstance(p, KernelStage) and p.scales for _, _, p in self.parts)
        self.scales_units = scales  # the activations, whatever comes before them
        self.scales = scales and self.norm is None
        self.factor: Tensor | None = None  # of the gradient of the result: a mask, or a slope
        self.done = False  # whether the factor is the activations' slope as well

    def activate(
        self, x: Tensor, out: Tensor, valid: Tensor | None = None, keep: bool = True
    ) -> None:
        """``out`` becomes the activations of x."""
        if len(self.parts) == 1:
            self.parts[0][2].forward(x, out, valid, keep)
            return
        for start, stop, part in self.parts:
            rows = None if valid is None else valid[start:stop]
            part.forward(x[start:stop], out[start:stop], rows, keep)

    def derive(self, grad: Tensor) -> None:
        """The gradient of the activations becomes that of their input."""
        if len(self.parts) == 1:
            self.parts[0][2].backward(grad)
            return
        for start, stop, part in self.parts:
            part.backward(grad[start:stop])

    def backward(self, grad: Tensor) -> None:
        """The gradient of the layer's result becomes that of the linear map's."""
        if self.factor is not None:
            grad.mul_(self.factor)
        if not self.done:
            self.derive(grad)
        if self.norm is not None:
            self.norm.backward(grad)


class Chain:
    """The gradients of a stack of linear layers, normalisations, activations and dropout masks.

    Parameters
    ----------
    linears : sequence of StackedLinear
        Or all of ``HeadLinear``, and ``HeadOutputs`` at the end; not in a residual network.
    norms : sequence of nn.Module
        One less than the linears: ``nn.Identity`` for none, ``StackedNorm``, or any module
        (M, rows, width) -> the same.
    slots : sequence of nn.Module
        One less than the linears: ``StackedActivation``, or any module that is called with
        (M, rows, width) and with which places hold a row, (M, rows) or None.
    flat : FlatTensors, optional
        Where gradients go; without, the chain is for ``outputs`` alone.
    residual : bool
        A layer passes on its input beside its output, concatenated.
    """

    def __init__(
        self,
        linears: Sequence[StackedLinear],
        norms: Sequence[nn.Module],
        slots: Sequence[nn.Module],
        flat: FlatTensors | None = None,
        *,
        residual: bool = False,
    ) -> None:
        self.linears, self.norms, self.slots = linears, norms, slots
        self.residual = residual
        # who only predicts writes no gradients: any place will do
        self.at: GradientOf = getattr if flat is None else flat.gradient_of
        self.refresh()

    # ---- what it is made of ----------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at members and memory anew, after members were dropped."""
        like = self.linears[0].weight
        self.scratch = Scratch(like.dtype, like.device)
        self.weights = [layer.weight.data for layer in self.linears]
        self.biases = [layer.bias.data for layer in self.linears]
        self.weight_grads = [self.at(layer, "weight") for layer in self.linears]
        self.bias_grads = [self.at(layer, "bias") for layer in self.linears]
        self.n_members, self.n_inputs = like.shape[0], like.shape[1]
        self.widths = [layer.weight.shape[2] for layer in self.linears[:-1]]
        self._heads: list[HeadMap | None] = [
            head_map(layer, StageMemory(self.scratch, f"{i}.heads"), self.at)
            for i, layer in enumerate(self.linears)
        ]
        self._ends = list(accumulate(self.widths, initial=0))  # of hidden units, side by side
        self._sources: dict[str, VectorSource] = {}
        vectors = self._vectors()
        self.layers = [self._layer(i, vectors) for i in range(len(self.slots))]
        self._inputs: list[Tensor] = []

    def _vectors(self) -> dict[tuple[int, int], tuple[VectorSource, int]]:
        """The vectors of stacked modules with kernels, by layer and group, and their place there.

        Alike modules of several layers, which serve the same members, compute theirs together.
        """
        found: dict[tuple[int, int], tuple[VectorSource, int]] = {}
        alike: dict[str, list[tuple[int, int, StackedModules]]] = {}
        for i, slot in enumerate(self.slots):
            if not isinstance(slot, StackedActivation):
                continue
            for group in slot.groups:
                kind = slot.kinds[group.index]
                if not isinstance(kind, StackedModules) or kernel_of(kind.skeleton) is None:
                    continue
                own = own_vectors(kind, self.at)
                if own is not None:
                    found[i, group.index] = own, 0
                    continue
                shapes = [tuple(getattr(kind, key).shape) for _, key in kind.names]
                kernel = kernel_of(kind.skeleton)
                key = f"{group} {kind.skeleton!r} {kernel!r} {shapes}"
                alike.setdefault(key, []).append((i, group.index, kind))
        for modules in alike.values():
            source = ComputedVectors([kind for _, _, kind in modules], self.at)
            for place, (i, index, _) in enumerate(modules):
                found[i, index] = source, place
        self._computed = list({id(source): source for source, _ in found.values()}.values())
        return found

    def _layer(self, i: int, vectors: dict[tuple[int, int], tuple[VectorSource, int]]) -> Layer:
        parts: list[tuple[int, int, Stage]] = []
        slot = self.slots[i]
        if not isinstance(slot, StackedActivation):
            stage = AutogradStage(slot, parameters_of(slot, self.at), sees_rows=True)
            return Layer(self._norm(i), [(0, self.n_members, stage)])
        for group in slot.groups:
            kind = slot.kinds[group.index]
            module = kind.skeleton if isinstance(kind, StackedModules) else kind
            kernel = None if isinstance(kind, SeparateModules) else kernel_of(module)
            part: Stage
            if kernel is None:
                part = AutogradStage(kind, parameters_of(kind, self.at))
            else:
                memory = StageMemory(self.scratch, f"{i}.{group.index}")
                source, place = vectors.get((i, group.index), (None, 0))
                part = KernelStage(kernel, memory, source, place)
            parts.append((group.start, group.stop, part))
        return Layer(self._norm(i), parts)

    def _norm(self, i: int) -> Stage | None:
        norm = self.norms[i]
        if isinstance(norm, nn.Identity):
            return None
        if isinstance(norm, StackedNorm):
            if norm.kind == "batch":
                return BatchNormStage(norm, self.at)
            kernel = norm.kernel()
            if kernel is not None:
                return NormStage(norm, kernel, StageMemory(self.scratch, f"{i}.norm"), self.at)
        return AutogradStage(norm, parameters_of(norm, self.at))

    @property
    def plain(self) -> bool:
        """Tell whether there is nothing but linear layers and activations of single units."""
        return all(layer.scales for layer in self.layers)

    # ---- passes ----------------------------------------------------------------------------------

    def inputs(self, n_rows: int) -> Tensor:
        """Return the memory to write the inputs of the next pass to, (M, n_rows, n_inputs)."""
        if self.residual:
            return self._units(n_rows)[..., : self.n_inputs]
        return self.scratch("x", self.n_members, n_rows, self.n_inputs)

    def _units(self, n_rows: int) -> Tensor:
        """A residual network's inputs and hidden units, side by side."""
        return self.scratch("units", self.n_members, n_rows, self.n_inputs + self._ends[-1])

    @torch.no_grad()
    def forward(
        self,
        x: Tensor,
        masks: Sequence[Tensor] | None = None,
        valid: Tensor | None = None,
        *,
        keep: bool = True,
    ) -> Tensor:
        """Raw outputs, (M, rows, n_outputs), in memory that the next pass uses again.

        Parameters
        ----------
        x : Tensor, (M, rows, n_inputs)
        masks : sequence of Tensor, (M, rows, width), optional
            Of dropout, one a hidden layer; they are overwritten.
        valid : Tensor of bool, (M, rows), optional
            Which places hold a row; all by default.
        keep : bool
            A backward pass follows.
        """
        n_rows, x = x.shape[1], x.detach()
        for source in self._computed:
            source.begin(keep)
        if self.residual:
            units = self._units(n_rows)
            if x.data_ptr() != units.data_ptr():
                units[..., : self.n_inputs].copy_(x)
            x = units[..., : self.n_inputs]
        self._inputs = [x]
        for i in range(len(self.layers)):
            x = self._hidden(i, x, None if masks is None else masks[i], valid, keep)
            if self.residual:
                x = self._units(n_rows)[..., : self.n_inputs + self._ends[i + 1]]
            self._inputs.append(x)
        return self._linear(len(self.layers), x, "raw")

    def _linear(self, i: int, x: Tensor, name: str) -> Tensor:
        heads = self._heads[i]
        if heads is not None:
            return heads.forward(x, partial(self.scratch, name))
        place = partial(self.scratch, name, *x.shape[:2], self.weights[i].shape[2])
        return affine_rows(
            x, self.weights[i], self.biases[i], place, self.linears[i].scale, free=True
        )

    def _hidden(
        self, i: int, x: Tensor, mask: Tensor | None, valid: Tensor | None, keep: bool
    ) -> Tensor:
        layer, kept = self.layers[i], f"{i}" if keep else f"{i % 2}"
        # where the slope is all that is kept, the next layer uses the memory again
        kept = "" if keep and mask is not None and layer.scales else kept
        x = self._linear(i, x, f"a{kept}")
        if layer.norm is not None:
            out = self.scratch(f"n{kept}", *x.shape) if layer.norm.keeps_input and keep else x
            x = layer.norm.forward(x, out, valid, keep)
        into = None
        if self.residual:
            start = self.n_inputs + self._ends[i]
            into = self._units(x.shape[1])[..., start : start + self.widths[i]]
        normed = layer.norm is not None and layer.norm.keeps_output
        in_place = not (keep and (layer.keeps_input or normed))
        # a kernel of single units may write to a part of wider rows; others want their own
        direct = into is not None and mask is None and layer.scales_units
        y = into if direct else x if in_place else self.scratch(f"y{kept}", *x.shape)
        assert y is not None
        layer.activate(x, y, valid, keep)
        layer.factor, layer.done = mask, False
        if mask is not None:
            h = self.scratch(f"h{i}", *x.shape) if into is None else into
            torch.mul(y, mask, out=h)
            if keep and layer.scales_units:  # the mask becomes mask phi'(x), while x is at hand
                layer.derive(mask)
                layer.done = True
            return h
        if into is not None and not direct:
            return into.copy_(y)
        return y

    @torch.no_grad()
    def backward(
        self,
        grad: Tensor,
        *,
        to_inputs: bool = False,
        to_weights: bool = True,
    ) -> Tensor | None:
        """Set the gradients of the parameters, given those of the outputs of ``forward``.

        Parameters
        ----------
        grad : Tensor, as ``forward`` gave
            Overwritten.
        to_inputs : bool
            Return the inputs' gradient, (M, rows, n_inputs); not for a residual network.
        to_weights : bool
            False: the gradients of linear layers are not wanted.
        """
        n_rows, n_layers = grad.shape[1], len(self.layers)
        of_units: Tensor | None = None
        for i in reversed(range(n_layers + 1)):
            heads = self._heads[i]
            if heads is not None:
                by_x = heads.backward(
                    self._inputs[i],
                    grad,
                    partial(self.scratch, f"d{i % 2}"),
                    to_inputs=i > 0 or to_inputs,
                )
                if by_x is None:
                    return None
                grad = by_x
                if i:
                    self.layers[i - 1].backward(grad)
                continue
            if to_weights:
                scale = self.linears[i].scale
                weight_gradient(self._inputs[i], grad, self.weight_grads[i], scale)
                torch.sum(grad, dim=1, keepdim=True, out=self.bias_grads[i])
            if i == 0 and not to_inputs:
                return None
            if self.residual:
                of_units = self._add_below(i, grad, of_units)
                if i == 0 or of_units is None:
                    return None
                start, stop = self._ends[i - 1], self._ends[i]
                grad = self.scratch(f"d{i % 2}", self.n_members, n_rows, stop - start)
                grad.copy_(of_units[..., start:stop])
            else:
                place = partial(self.scratch, f"d{i % 2}", *self._inputs[i].shape)
                grad = input_gradient(grad, self.weights[i], place, self.linears[i].scale)
            if i:
                self.layers[i - 1].backward(grad)
        return grad

    def _add_below(self, i: int, grad: Tensor, so_far: Tensor | None) -> Tensor | None:
        """The gradient of all hidden units below linear layer i of a residual network."""
        if i == 0 or not self.widths:
            return so_far
        weight = self.weights[i][:, self.n_inputs :]
        if so_far is None:
            place = partial(self.scratch, "of units", *grad.shape[:2], weight.shape[1])
            return input_gradient(grad, weight, place)
        add_input_gradient(grad, weight, so_far[..., : self._ends[i]])
        return so_far

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
        raw = self.forward(x, masks, valid)
        gradient = getattr(objective, "gradient", None)
        if gradient is not None:
            grad = gradient(raw)
        else:
            with torch.enable_grad():
                leaf = raw.detach().requires_grad_()
                (grad,) = torch.autograd.grad(objective(leaf), leaf)
        return self.backward(grad, to_inputs=x.requires_grad)

    def outputs(self, x: Tensor) -> Tensor:
        """The raw outputs, (M, rows, n_outputs), without dropout, in new memory."""
        return self.forward(x, keep=False).clone()


class ChainPass:
    """A chain's passes as one operation of autograd: (x, masks) -> raw outputs.

    It is differentiated once, by x and the parameters, before the next pass, which uses the memory
    of this one again.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        modules = (*chain.linears, *chain.norms, *chain.slots)
        trained = [pair for module in modules for pair in parameters_of(module, chain.at)]
        self._parameters = [parameter for parameter, _ in trained]
        self._places = [place for _, place in trained]

    def __call__(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        return cast(
            Tensor, _ChainFunction.apply(self._chain, masks, self._places, x, *self._parameters)
        )


class _ChainFunction(torch.autograd.Function):
    """A chain's passes as one operation of autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        chain: Chain,
        masks: Sequence[Tensor] | None,
        places: Sequence[Tensor],
        x: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.chain, ctx.places = chain, places
        own = None if masks is None else [mask.clone() for mask in masks]  # they are overwritten
        return chain.forward(x, own).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _, _, _, to_inputs, *trained = ctx.needs_input_grad
        by_x = ctx.chain.backward(
            grad.clone(memory_format=torch.contiguous_format),
            to_inputs=to_inputs,
            to_weights=any(trained),
        )
        grads = [place if own else None for place, own in zip(ctx.places, trained, strict=True)]
        return None, None, None, by_x, *grads
