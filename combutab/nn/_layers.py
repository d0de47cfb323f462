"""Layers of a stack of networks: every parameter has a leading axis of members."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.nn import functional as F

from combutab.activations import PLN, PLS, ProxyNorm, make_activation
from combutab.activations.kernels import Kernel, Standardize, is_itself, is_known, kernel_of
from combutab.core.rng import SeededDraws, Stream, counters, fold_in, random_int64_

# ---- All parameters of a stack as one matrix, with one row per member ----------------------------
# Whatever is done per member is then an operation on rows: gradient norms, optimiser steps with a
# learning rate each, copies of the best weights, dropping members that have finished.


@dataclass(frozen=True)
class StackedTensor:
    """One tensor of a module, and the members that own it."""

    name: str  # does not depend on the other members of the stack
    module: nn.Module
    attribute: str
    start: int  # members [start, stop) own a row of the tensor
    stop: int
    stacked: bool = True  # whether its first axis is that of the members; else it is one member's

    @property
    def tensor(self) -> Tensor:
        """The tensor itself."""
        return getattr(self.module, self.attribute)

    def select(self, keep: Sequence[int]) -> Self | None:
        """The entry after all other members were dropped; None if no member owns it any more."""
        start, stop = (sum(m < end for m in keep) for end in (self.start, self.stop))
        return None if start == stop else replace(self, start=start, stop=stop)


@dataclass(frozen=True, kw_only=True)
class Slot(StackedTensor):
    """The place of a tensor in the matrix."""

    columns: slice
    tail: tuple[int, ...]  # shape after the member axis


def assign_columns(tensors: Sequence[StackedTensor], n_members: int) -> tuple[list[Slot], int]:
    """Give each tensor its columns.

    Tensors that all members own come first, in the given order. The rest (activations with
    parameters) share columns, since no two of them serve the same member.
    """
    everyone = (0, n_members)
    slots: list[Slot] = []
    ends = {everyone: 0}  # of the columns that are given, by the members that own them
    for entry in sorted(tensors, key=lambda t: (t.start, t.stop) != everyone):
        owners = (entry.start, entry.stop)
        tail = tuple(entry.tensor.shape[entry.stacked :])
        start = ends.get(owners, ends[everyone])
        ends[owners] = start + math.prod(tail)
        slots.append(Slot(**vars(entry), columns=slice(start, ends[owners]), tail=tail))
    return slots, max(ends.values())


class FlatTensors:
    """A (M, P) matrix whose views are the parameters (or buffers) of the modules.

    With ``with_grad`` it keeps a second matrix for the gradients, which ``backward`` fills.
    """

    def __init__(
        self,
        slots: list[Slot],
        width: int,
        n_members: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        with_grad: bool,
    ) -> None:
        self.slots = slots
        self.values = torch.zeros(n_members, width, dtype=dtype, device=device)
        self.grads = torch.zeros_like(self.values[:, : None if with_grad else 0])
        for slot in slots:
            self._view(self.values, slot).copy_(slot.tensor.detach())
        self._point()

    def _view(self, matrix: Tensor, slot: Slot) -> Tensor:
        rows = matrix[slot.start : slot.stop, slot.columns]
        return rows.view((slot.stop - slot.start, *slot.tail) if slot.stacked else slot.tail)

    def _point(self) -> None:
        for slot in self.slots:
            view = self._view(self.values, slot)
            if isinstance(slot.tensor, nn.Parameter):
                slot.tensor.data = view
            else:
                setattr(slot.module, slot.attribute, view)

    def backward(self, loss: Tensor) -> None:
        """Set ``grads`` to the derivative of a scalar by every parameter.

        NOTE: not ``loss.backward()``, which adds to ``.grad`` tensors: these need zeroing first,
        and as views of a matrix they are not laid out as it wants them.
        """
        backward(loss, [self])

    def backward_through(self, module: nn.Module, out: Tensor, by_out: Tensor) -> None:
        """Set the ``grads`` of one module, given its output and the derivative by that output."""
        inside = set(module.modules())
        slots = [slot for slot in self.slots if slot.module in inside]
        grads = gradients_through([out], [by_out], [slot.tensor for slot in slots])
        for slot, grad in zip(slots, grads, strict=True):
            write_gradient(self._view(self.grads, slot), grad)

    def gradient_of(self, module: nn.Module, attribute: str) -> Tensor:
        """The view of ``grads`` that belongs to one parameter."""
        slot = next(s for s in self.slots if s.module is module and s.attribute == attribute)
        return self._view(self.grads, slot)

    def select(self, keep: Sequence[int]) -> None:
        """Keep these members (increasing); columns stay where they are."""
        index = torch.tensor(list(keep), dtype=torch.int64, device=self.values.device)
        self.values = self.values[index]
        self.grads = self.grads.new_zeros(len(index), self.grads.shape[1])
        selected = [slot.select(keep) for slot in self.slots]
        self.slots = [slot for slot in selected if slot is not None]
        self._point()

    def member(self, i: int) -> dict[str, Tensor]:
        """Copies of what member i owns, by name."""
        return {
            slot.name: self.values[i, slot.columns].clone().view(slot.tail)
            for slot in self.slots
            if slot.start <= i < slot.stop
        }

    def load_member(self, i: int, state: dict[str, Tensor]) -> None:
        """Set what member i owns; shapes and names must be those of ``member``."""
        for slot in self.slots:
            if slot.start <= i < slot.stop:
                value = state[slot.name]
                if tuple(value.shape) != slot.tail:
                    raise ValueError(
                        f"{slot.name} has shape {tuple(value.shape)}, the network needs {slot.tail}"
                    )
                self.values[i, slot.columns].copy_(value.reshape(-1))


def backward(loss: Tensor, flats: Sequence[FlatTensors]) -> None:
    """Set the ``grads`` of several matrices in one backward pass."""
    slots = [(flat, slot) for flat in flats for slot in flat.slots]
    grads = torch.autograd.grad(loss, [slot.tensor for _, slot in slots], allow_unused=True)
    for (flat, slot), grad in zip(slots, grads, strict=True):
        write_gradient(flat._view(flat.grads, slot), grad)


def gradients_through(
    outputs: Sequence[Tensor], by_outputs: Sequence[Tensor], tensors: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The derivatives by tensors, given the derivatives by outputs computed from them.

    It is ``torch.autograd.grad(outputs, tensors, by_outputs, allow_unused=True)`` without its check
    of shapes, whose first call imports SymPy: most of the time of a process's first small fit.
    """
    derivatives: tuple[Tensor | None, ...] = _engine_run_backward(
        tuple(outputs), tuple(by_outputs), False, False, tuple(tensors), True, accumulate_grad=False
    )
    return derivatives


def write_gradient(destination: Tensor, grad: Tensor | None) -> None:
    """Write a gradient to its destination, or zeros if autograd returned None."""
    if grad is None:
        destination.zero_()
    else:
        destination.copy_(grad)


# ---- Dropout whose masks are a function of (member seed, step, row, unit), and cheap to draw -----


class MaskMaker:
    """Generator of the dropout masks of all layers, with one 64-bit draw per eight units.

    Rates are rounded to multiples of 1/256 (a positive rate never to zero). Kept units are scaled
    by the inverse of the resulting keep probability, so that the expected activation is exact.

    Parameters
    ----------
    widths : sequence of int
        Number of units of each layer with dropout.
    rates : sequence of float
        Dropout rate of each member, in [0, 1).
    device, dtype
        Device and dtype of the masks.

    Examples
    --------
    >>> maker = MaskMaker([16, 8], [0.5, 0.0])
    >>> masks = maker.draw(keys=[1, 2], n_rows=3)
    >>> [tuple(mask.shape) for mask in masks], bool((masks[0][1] == 1).all())
    ([(2, 3, 16), (2, 3, 8)], True)
    """

    def __init__(
        self,
        widths: Sequence[int],
        rates: Sequence[float],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        # each layer starts on a multiple of 8 units: a draw is never split between layers
        self._spans, total = [], 0
        for width in widths:
            end = total + -(-width // 8) * 8
            self._spans.append((total, end, width))
            total = end
        self._total = total
        self._rates = tuple(rates)
        shape = (len(rates), 1, 1)
        self._dropped = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        self._scale = torch.ones(shape, dtype=dtype, device=self.device)
        self.set_factor(1.0)
        self.active = total > 0 and any(rate > 0 for rate in rates)
        self._positions: dict[tuple[int, int], Tensor] = {}  # by the first row and their number
        self._draws = torch.empty(0, dtype=torch.int64, device=self.device)
        self._masks = torch.empty(0, dtype=dtype, device=self.device)

    def set_factor(self, factor: float) -> None:
        """Multiply all rates by a factor from 0 to 1, until the next call."""
        rates = [factor * rate for rate in self._rates]
        dropped = [min(255, max(1, round(256 * r))) if r > 0 else 0 for r in rates]
        self.keep_probabilities = [(256 - d) / 256 for d in dropped]
        self._dropped.copy_(torch.tensor(dropped, dtype=torch.uint8).view_as(self._dropped))
        scale = torch.tensor([1 / k for k in self.keep_probabilities], dtype=self.dtype)
        self._scale.copy_(scale.view_as(self._scale))

    def draw(self, keys: Sequence[int] | Tensor, n_rows: int, first: int = 0) -> list[Tensor]:
        """Draw the masks of a step, one per layer, (M, n_rows, width): 0, or 1 / keep probability.

        They are the masks of the rows from ``first`` on. They are views of the memory of this
        object, which the next call overwrites.
        """
        if not self._total:
            return []
        positions = self._positions_of(n_rows, first)
        n_members, n_units = len(keys), n_rows * self._total
        if self._masks.numel() < n_members * n_units:
            self._masks = torch.empty(n_members * n_units, dtype=self.dtype, device=self.device)
        if self._draws.numel() < n_members * len(positions):
            shape = (n_members * len(positions),)
            self._draws = torch.empty(shape, dtype=torch.int64, device=self.device)
        masks = self._masks[: n_members * n_units]
        draws = self._draws[: n_members * len(positions)].view(n_members, -1)
        scratch = masks.view(torch.int64)[: draws.numel()].view(draws.shape)
        random_int64_(keys, positions, draws, scratch)
        units = draws.view(torch.uint8).view(n_members, 1, n_units)
        masks = masks.view(units.shape)
        torch.ge(units, self._dropped, out=units)  # bytes become 0 or 1
        masks.copy_(units).mul_(self._scale)
        return [
            masks[:, 0, n_rows * start : n_rows * end].view(n_members, n_rows, -1)[..., :width]
            for start, end, width in self._spans
        ]

    def _positions_of(self, n_rows: int, first: int = 0) -> Tensor:
        """Counters of all units, layer by layer, so that each layer's masks are contiguous.

        A draw's counter follows from its row and its place among the units of all layers.
        """
        key, n_draws = (first, n_rows), self._total // 8
        if key not in self._positions:
            if len(self._positions) > 3:  # a full batch and an epoch's last one, usually
                self._positions.clear()
            every = counters(n_rows * n_draws, self.device, first * n_draws).view(n_rows, -1)
            parts = [every[:, start // 8 : end // 8].reshape(-1) for start, end, _ in self._spans]
            self._positions[key] = torch.cat(parts)
        return self._positions[key]


# ---- Layers with a leading member axis: M networks of one shape as one batched program -----------
# Weights are drawn in float64; a network takes all that its layers hold to its own type and device.

INITIALISATIONS = ("torch", "kaiming", "xavier", "lecun", "ntk", "data")
"""Names of rules for initial weights."""
NTK = ("ntk", "data")  # whose weights are divided by sqrt(in_features) in the forward pass
NORMALIZATIONS = ("none", "batch", "layer", "group", "rms", "pln", "pls")
"""Names of what may stand between a linear layer and its activation."""
GROUP_SIZE = 8  # units in a group of group norm, PLN and PLS


Generators = Sequence[torch.Generator | None]
"""A generator a member; None where nothing is drawn, as a state is loaded."""


def draw_float64(
    sample: Callable[..., Tensor], generator: torch.Generator | None, *shape: int
) -> Tensor:
    """Draw float64 numbers by ``torch.rand`` or ``torch.randn``; zeros without a generator."""
    if generator is None:
        return torch.zeros(shape, dtype=torch.float64)
    return sample(shape, generator=generator, dtype=torch.float64)


def draw_uniform(generator: torch.Generator | None, bound: float, *shape: int) -> Tensor:
    """Draw float64 numbers between minus ``bound`` and ``bound``; zeros without a generator."""
    draws = draw_float64(torch.rand, generator, *shape)
    return draws if generator is None else draws.mul_(2 * bound).sub_(bound)


def _draw_linear(
    fan_in: int, fan_out: int, init: str, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw (fan_in, fan_out) weights and (fan_out,) biases in float64."""
    zeros = torch.zeros(fan_out, dtype=torch.float64)
    if init == "torch":  # nn.Linear's own, which the CombU paper uses
        bound = 1 / math.sqrt(fan_in)
        weight = draw_uniform(generator, bound, fan_in, fan_out)
        return weight, draw_uniform(generator, bound, fan_out)
    if init == "xavier":
        bound = math.sqrt(6 / (fan_in + fan_out))
        return draw_uniform(generator, bound, fan_in, fan_out), zeros
    scales = {"kaiming": math.sqrt(2 / fan_in), "lecun": math.sqrt(1 / fan_in)}
    if init not in INITIALISATIONS:
        raise ValueError(f"init must be one of {INITIALISATIONS}, got {init!r}")
    weight = draw_float64(torch.randn, generator, fan_in, fan_out).mul_(scales.get(init, 1.0))
    return weight, draw_float64(torch.randn, generator, fan_out) if init in NTK else zeros


class StackedLinear(nn.Module):
    """Linear layers of M members, computed as one ``torch.baddbmm``.

    Parameters
    ----------
    in_features, out_features : int
        Number of inputs and outputs.
    generators : sequence of torch.Generator
        Random generator of each member, for its initial weights.
    init : {"torch", "kaiming", "xavier", "lecun", "ntk", "data"}, default="torch"
        Initialisation. ``"ntk"`` draws standard normal weights and divides by sqrt(in_features) in
        the forward pass. ``"data"`` does the same; call ``fit_to`` afterwards.

    Shape
    -----
    x : (M, batch, in_features) -> (M, batch, out_features)

    Examples
    --------
    >>> layer = StackedLinear(3, 2, [torch.Generator().manual_seed(s) for s in (0, 1)])
    >>> layer.float()(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generators: Generators,
        *,
        init: str = "torch",
    ) -> None:
        super().__init__()
        drawn = [_draw_linear(in_features, out_features, init, g) for g in generators]
        self.weight = nn.Parameter(torch.stack([w for w, _ in drawn]))
        self.bias = nn.Parameter(torch.stack([b for _, b in drawn]).unsqueeze(1))
        self.scale = 1 / math.sqrt(in_features) if init in NTK else 1.0

    def forward(self, x: Tensor) -> Tensor:  # (M, batch, in) -> (M, batch, out)
        return torch.baddbmm(self.bias, x, self.weight, alpha=self.scale)

    def add_to(self, h: Tensor, x: Tensor) -> Tensor:
        """Compute ``h + forward(x)``, (M, batch, out), with fewer passes over memory."""
        return torch.baddbmm(h, x, self.weight, alpha=self.scale).add_(self.bias)

    @torch.no_grad()
    def fit_to(self, x: Tensor, points: Tensor, shares: Tensor, members: Sequence[int]) -> None:
        """Scale each unit to variance 1 over the rows, and shift it so that it is zero among them.

        Parameters
        ----------
        x : Tensor, (M, n, in_features)
            Rows of each member.
        points, shares : Tensor, (M, k, out_features)
            Indices of rows (int64) and their weights. The unit is zero at the weighted mean of
            these rows.
        members : sequence of int
            Members whose weights are set.
        """
        z = torch.matmul(x, self.weight) * self.scale
        spread = z.std(1, correction=0, keepdim=True)
        spread = torch.where(spread > 1e-6, spread, 1.0)  # constant inputs have no effect
        middle = (z.gather(1, points) * shares).sum(1, keepdim=True) / spread
        for m in members:
            self.weight[m].div_(spread[m])
            self.bias[m].copy_(-middle[m])


class StackedEmbedding(nn.Module):
    """M tables of category vectors, drawn N(0, 1 / dim); code 0, for unseen categories, is zero.

    If the codes from 1 to ``n_ordered`` are in an order, the first number of each vector is the
    rank of its code, scaled to mean 0 and variance 1 over these codes, and 0 for other codes.

    Shape
    -----
    codes : (M, batch) int64 -> (M, batch, dim)
    """

    def __init__(
        self,
        cardinality: int,
        dim: int,
        generators: Generators,
        n_ordered: int = 0,
    ) -> None:
        super().__init__()
        drawn = [
            draw_float64(torch.randn, g, cardinality, dim) / math.sqrt(dim) for g in generators
        ]
        weight = torch.stack(drawn)
        weight[:, 0] = 0.0  # what no training row has, no gradient reaches
        if n_ordered > 1:
            ranks = torch.arange(n_ordered, dtype=torch.float64)
            weight[:, :, 0] = 0.0
            weight[:, 1 : n_ordered + 1, 0] = (ranks - ranks.mean()) / ranks.std(correction=0)
        self.weight = nn.Parameter(weight)

    def forward(self, codes: Tensor) -> Tensor:
        n_members, cardinality, dim = self.weight.shape
        offsets = torch.arange(n_members, device=codes.device).mul_(cardinality).unsqueeze(1)
        return F.embedding(codes + offsets, self.weight.reshape(-1, dim))


class StackedNorm(nn.Module):
    """Normalisation of M members: batch, layer, group, RMS, PLN or PLS.

    Parameters
    ----------
    kind : {"batch", "layer", "group", "rms", "pln", "pls"}
        Kind of the normalisation.
    width, n_members : int
        Number of units and of members.
    affine : bool, default=True
        Whether to learn a gain and a shift per unit. Use False with ProxyNorm, which has its own.

    Shape
    -----
    x : (M, batch, width) -> (M, batch, width)
    """

    def __init__(
        self,
        kind: str,
        width: int,
        n_members: int,
        *,
        affine: bool = True,
    ) -> None:
        super().__init__()
        if kind not in NORMALIZATIONS or kind == "none":
            raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {kind!r}")
        if kind == "group" and width % GROUP_SIZE:
            raise ValueError(
                f"group normalization needs a width that {GROUP_SIZE} divides, got {width=}; "
                "use normalization='layer' or change hidden_layer_sizes"
            )
        self.kind, self.width, self.eps, self.momentum = kind, width, 1e-5, 0.1
        self.group_size = GROUP_SIZE if kind == "group" else width
        makers = {"pln": PLN, "pls": PLS}
        self.parallel = makers[kind](width, GROUP_SIZE) if kind in makers else None
        affine = affine and self.parallel is None  # PLN and PLS have no affine part
        self.gain = nn.Parameter(torch.ones(n_members, 1, width)) if affine else None
        self.shift = (
            nn.Parameter(torch.zeros(n_members, 1, width)) if affine and kind != "rms" else None
        )
        self.running_mean: Tensor
        self.running_var: Tensor
        if kind == "batch":
            self.register_buffer("running_mean", torch.zeros(n_members, width))
            self.register_buffer("running_var", torch.ones(n_members, width))

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        if self.parallel is not None:
            return self.parallel(x)
        if self.kind == "batch":
            x = self._batch_norm(x, valid)
        elif self.kind == "rms":
            x = F.rms_norm(x, (self.width,), eps=self.eps)
        elif self.kind == "layer" and self.gain is not None and len(self.gain) == 1:
            shift = None if self.shift is None else self.shift[0, 0]
            return F.layer_norm(x, (self.width,), self.gain[0, 0], shift, eps=self.eps)  # fused
        else:
            groups = x.unflatten(-1, (-1, self.group_size))
            x = F.layer_norm(groups, (self.group_size,), eps=self.eps).flatten(-2)
        if self.gain is None:
            return x
        return x * self.gain if self.shift is None else torch.addcmul(self.shift, x, self.gain)

    def _batch_norm(self, x: Tensor, valid: Tensor | None) -> Tensor:
        mean, var = self.running_mean.unsqueeze(1), self.running_var.unsqueeze(1)
        if self.training:
            if valid is None:
                n = torch.full((x.shape[0], 1, 1), x.shape[1], dtype=x.dtype, device=x.device)
                batch_mean = x.mean(1, keepdim=True)
                batch_var = (x - batch_mean).square().mean(1, keepdim=True)
            else:  # rows that only fill a shorter member's batch do not count
                mask = valid.unsqueeze(-1).to(x.dtype)
                n = mask.sum(1, keepdim=True)
                batch_mean = (x * mask).sum(1, keepdim=True) / n.clamp_min(1)
                batch_var = ((x - batch_mean).square() * mask).sum(1, keepdim=True)
                batch_var = batch_var / n.clamp_min(1)
            # one row has no variance: its batch is scaled by the running statistics
            enough = n > 1
            with torch.no_grad():
                rate = self.momentum * enough.to(x.dtype)
                unbiased = batch_var * (n / (n - 1).clamp_min(1))
                self.running_mean.lerp_(batch_mean[:, 0].to(mean.dtype), rate[:, 0].to(mean.dtype))
                self.running_var.lerp_(unbiased[:, 0].to(var.dtype), rate[:, 0].to(var.dtype))
            mean = torch.where(enough, batch_mean, mean)
            var = torch.where(enough, batch_var, var)
        return (x - mean) * torch.rsqrt(var + self.eps)

    def running_affine(self) -> tuple[Tensor, Tensor]:
        """Return scale and shift, (M, 1, width), of batch normalisation with running statistics."""
        scale = torch.rsqrt(self.running_var + self.eps).unsqueeze(1)
        shift = -self.running_mean.unsqueeze(1) * scale
        if self.gain is None or self.shift is None:
            return scale, shift
        return scale * self.gain, torch.addcmul(self.shift, shift, self.gain)

    def kernel(self) -> Kernel | None:
        """Return the kernel without gain and shift; None for batch normalisation."""
        if self.kind == "batch":
            return None
        if self.parallel is not None:
            return kernel_of(self.parallel)
        return Standardize(self.group_size, self.width, self.eps, center=self.kind != "rms")

    def extra_repr(self) -> str:
        return f"{self.kind!r}, width={self.width}"


def make_norm(kind: str, width: int, n_members: int, *, affine: bool = True) -> nn.Module:
    """The normalisation slot of M members; nothing by "none"."""
    if kind == "none":
        return nn.Identity()
    return StackedNorm(kind, width, n_members, affine=affine)


# ---- Linear layers of members with several heads; the heads of a row are consecutive rows --------


class HeadLinear(StackedLinear):
    """M affine maps, each of k heads that share its weights: ((x * r) W) * s + b.

    Each head has its own r, s and b. At first, s is 1 and b is equal for all heads.

    Parameters
    ----------
    in_features, out_features, n_heads : int
    generators : sequence of torch.Generator
        One per member.
    r : Tensor, (M, n_heads, in_features), optional
        Initial value of r. The input then has each row once, for all heads. By default r is 1, and
        the input has each row once per head.
    init : str
        As in ``StackedLinear``.

    Shape
    -----
    x : (M, batch * n_heads, in_features), or given r (M, batch, in_features)
        -> (M, batch * n_heads, out_features)

    References
    ----------
    Wen et al. (2020), "BatchEnsemble"; Gorishniy et al. (2024), "TabM", section 3.

    >>> layer = HeadLinear(3, 2, 4, [torch.Generator().manual_seed(0)])
    >>> layer.float()(torch.zeros(1, 5 * 4, 3)).shape
    torch.Size([1, 20, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_heads: int,
        generators: Generators,
        *,
        r: Tensor | None = None,
        init: str = "torch",
    ) -> None:
        super().__init__(in_features, out_features, generators, init=init)
        shape = len(generators), n_heads
        self.n_heads, self.splits = n_heads, r is not None
        start = torch.ones(*shape, in_features) if r is None else r
        self.r = nn.Parameter(start)
        self.s = nn.Parameter(torch.ones(*shape, out_features))
        self.bias = nn.Parameter(self.bias.detach().repeat(1, n_heads, 1))

    def forward(self, x: Tensor) -> Tensor:
        by_head = x.unflatten(1, (-1, 1 if self.splits else self.n_heads))
        scaled = (by_head * self.r.unsqueeze(1)).flatten(1, 2)
        product = (scaled @ self.weight) * self.scale
        by_head = product.unflatten(1, (-1, self.n_heads))
        return torch.addcmul(self.bias.unsqueeze(1), by_head, self.s.unsqueeze(1)).flatten(1, 2)


class HeadOutputs(StackedLinear):
    """M times k affine maps, one of each head, that share nothing.

    Shape
    -----
    x : (M, batch * n_heads, in_features) -> (M, batch * n_heads, out_features)

    >>> layer = HeadOutputs(3, 2, 4, [torch.Generator().manual_seed(0)])
    >>> layer.float()(torch.zeros(1, 5 * 4, 3)).shape, layer.weight.shape
    (torch.Size([1, 20, 2]), torch.Size([1, 4, 3, 2]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_heads: int,
        generators: Generators,
        *,
        init: str = "torch",
    ) -> None:
        by_head = [generator for generator in generators for _ in range(n_heads)]
        super().__init__(in_features, out_features, by_head, init=init)
        shape = len(generators), n_heads
        self.n_heads = n_heads
        self.weight = nn.Parameter(self.weight.detach().unflatten(0, shape))
        self.bias = nn.Parameter(self.bias.detach().squeeze(1).unflatten(0, shape))

    def forward(self, x: Tensor) -> Tensor:
        by_head = x.unflatten(1, (-1, self.n_heads))
        product = torch.einsum("mbki,mkio->mbko", by_head, self.weight) * self.scale
        return (product + self.bias.unsqueeze(1)).flatten(1, 2)


# ---- Activation slots: each member's own activation on its own slice of members -----------------
# A module of the user is a plain torch module: each member has a separate one, which is called with
# the rows of this member, (rows, width), for any number of members. Known modules, ours and torch's
# elementwise ones, compute the same for all members at once: their input is (members, rows, width).

ActivationSpec = str | Callable[[int], nn.Module]
"""What `activation=` takes: a name, or a callable from a width to a module."""


def build_activation(
    spec: ActivationSpec, width: int, seed: int = 0, *, proxy_norm: bool = False
) -> nn.Module:
    """Make a new activation module, whose random parameters depend only on the seed.

    Torch's global generator is neither read nor set.
    """
    with SeededDraws(lambda: seed):
        module = make_activation(spec, width)
        return ProxyNorm(module, width) if proxy_norm else module


class StackedModules(nn.Module):
    """Known modules with a value for each unit (PReLU, ProxyNorm), whose tensors are stacked.

    Their parameters and buffers are (m, width), and broadcast as (m, 1, width).
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self._skeleton = [modules[0]]  # in a list: not registered, its values unused
        self.names: list[tuple[str, str]] = []  # of each tensor in the skeleton, and here
        for name, _ in modules[0].named_parameters():
            stacked = torch.stack([m.get_parameter(name).detach() for m in modules])
            self.register_parameter(self._name("p_", name), nn.Parameter(stacked))
        for name, _ in modules[0].named_buffers():
            stacked = torch.stack([m.get_buffer(name) for m in modules])
            self.register_buffer(self._name("b_", name), stacked)

    def _name(self, prefix: str, name: str) -> str:
        self.names.append((name, prefix + name.replace(".", "_")))
        return self.names[-1][1]

    @property
    def skeleton(self) -> nn.Module:
        """One member's module; the values of its tensors are not used."""
        return self._skeleton[0]

    def forward(self, x: Tensor) -> Tensor:
        state = {name: getattr(self, key).unsqueeze(1) for name, key in self.names}
        if torch.compiler.is_compiling():  # the compiler cannot see into copies
            return torch.func.functional_call(self.skeleton, state, (x,))
        return bound(self.skeleton, state)(x)


def bound(module: nn.Module, state: dict[str, Tensor], prefix: str = "") -> nn.Module:
    """A copy of a known module with other tensors; threads may call one module's at once."""
    # torch.func.functional_call would put them into the module itself, and takes ten times as long
    twin, attributes = copy.copy(module), vars(module)
    for kind in ("_parameters", "_buffers"):
        tensors = attributes[kind].items()
        vars(twin)[kind] = {n: None if t is None else state[prefix + n] for n, t in tensors}
    vars(twin)["_modules"] = {
        n: None if child is None else bound(child, state, f"{prefix}{n}.")
        for n, child in attributes["_modules"].items()
    }
    return twin


class SeparateModules(nn.Module):
    """Modules of the user, one per member, each called with the rows of its member, (rows, width).

    Their random numbers in training come from the seed of their member. The padding of a member
    whose batch is shorter is not passed to its module; its outputs are 0.
    """

    def __init__(self, modules: Sequence[nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)
        self._seeds = list(seeds)
        self.n_draws: Tensor | None  # calls that drew, of each member: part of its state
        may_draw = not all(is_itself(part) for part in modules[0].modules())
        counts = torch.zeros(len(modules), dtype=torch.int64) if may_draw else None
        self.register_buffer("n_draws", counts)

    def tensors(self, i: int) -> Iterator[tuple[str, nn.Module, str]]:
        """Name, owner and the owner's attribute of all that member i's module holds."""
        for kind, pairs in (
            ("p_", self.each[i].named_parameters()),
            ("b_", self.each[i].named_buffers()),
        ):
            names = [name for name, _ in pairs]
            flat = [name.replace(".", "_") for name in names]
            for name, short in zip(names, flat, strict=True):
                path, _, attribute = name.rpartition(".")
                # "a.b" and "a_b" are two tensors
                key = kind + (short if len(set(flat)) == len(flat) else name)
                yield key, self.each[i].get_submodule(path), attribute

    def keep(self, members: Sequence[int]) -> None:
        """Drop the modules of all members but these; their tensors are the stack's to drop."""
        self.each = nn.ModuleList(self.each[i] for i in members)
        self._seeds = [self._seeds[i] for i in members]

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return torch.stack(
            [self._rows(i, x[i], None if valid is None else valid[i]) for i in range(len(x))]
        )

    def _rows(self, i: int, x: Tensor, valid: Tensor | None) -> Tensor:
        n = len(x) if valid is None else int(valid.sum())
        if n == 0:
            return torch.zeros_like(x)
        out = self._call(i, x[:n])
        return out if n == len(x) else F.pad(out, (0, 0, 0, len(x) - n))

    def _call(self, i: int, x: Tensor) -> Tensor:
        module = self.each[i]
        if not self.training or self.n_draws is None:
            return module(x)
        buffers = [
            (owner, name, value)
            for owner in module.modules()
            for name, value in owner.named_buffers(recurse=False)
        ]
        with SeededDraws(partial(self._next_seed, i)):
            out = module(x)
        for owner, name, value in buffers:  # a buffer may be another tensor now
            now = getattr(owner, name)
            if now is not None and now is not value:
                setattr(owner, name, value.copy_(now.detach()))
        return out

    def _next_seed(self, i: int) -> int:
        assert self.n_draws is not None
        self.n_draws[i] += 1
        return fold_in(self._seeds[i], Stream.ACTIVATION_CALL, int(self.n_draws[i])) >> 1


class StackedActivation(nn.Module):
    """Activations of M members, sorted by kind, with one call per kind.

    Parameters
    ----------
    specs : sequence of str or callable
        Activation of each member: a name in ``ACTIVATIONS`` or a callable ``width -> nn.Module``.
    width : int
        Number of units.
    seeds : sequence of int
        Seed of each member, for modules with random parameters.
    proxy_norm : bool, default=False
        Whether to wrap each activation in ProxyNorm.

    Shape
    -----
    x : (M, batch, width) -> (M, batch, width)
    """

    def __init__(
        self,
        specs: Sequence[ActivationSpec],
        width: int,
        seeds: Sequence[int],
        *,
        proxy_norm: bool = False,
    ) -> None:
        super().__init__()
        self.kinds = nn.ModuleList()
        self.groups: list[slice] = []  # members that each of the kinds serves
        start = 0
        while start < len(specs):
            stop = start + 1
            while stop < len(specs) and specs[stop] == specs[start]:
                stop += 1
            modules = (
                build_activation(specs[i], width, seeds[i], proxy_norm=proxy_norm)
                for i in range(start, stop)
            )
            self.groups.append(slice(start, stop))
            first = next(modules)
            tensors = [*first.parameters(), *first.buffers()]
            if not is_known(first) or any(tensor.ndim != 1 for tensor in tensors):
                self.kinds.append(SeparateModules([first, *modules], seeds[start:stop]))
            else:
                self.kinds.append(StackedModules([first, *modules]) if tensors else first)
            start = stop

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """Apply the activations. ``valid``, (M, batch), marks positions with a row; None: all."""
        outputs = []
        for members, kind in zip(self.groups, self.kinds, strict=True):
            rows = x if len(self.groups) == 1 else x[members]
            if isinstance(kind, SeparateModules):
                outputs.append(kind(rows, None if valid is None else valid[members]))
            else:
                outputs.append(kind(rows))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def select_groups(self, keep: Sequence[int]) -> None:
        """Keep only these members; the stack selects the tensors."""
        groups, kinds, start = list[slice](), nn.ModuleList(), 0
        for group, kind in zip(self.groups, self.kinds, strict=True):
            rows = [m - group.start for m in keep if group.start <= m < group.stop]
            if not rows:
                continue
            if isinstance(kind, SeparateModules):
                kind.keep(rows)
            kinds.append(kind)
            groups.append(slice(start, start + len(rows)))
            start += len(rows)
        self.groups, self.kinds = groups, kinds


def make_activations(
    specs: Sequence[ActivationSpec],
    widths: Sequence[int],
    seeds: Sequence[int],
    *,
    proxy_norm: bool = False,
) -> list[StackedActivation]:
    """The activation slots of layers of these widths, each with its own random parameters."""
    return [
        StackedActivation(
            specs,
            width,
            [fold_in(seed, Stream.ACTIVATION, layer) >> 1 for seed in seeds],
            proxy_norm=proxy_norm,
        )
        for layer, width in enumerate(widths)
    ]


def make_hidden(
    widths: Sequence[int],
    specs: Sequence[ActivationSpec],
    seeds: Sequence[int],
    *,
    normalization: str = "none",
    proxy_norm: bool = False,
) -> tuple[list[nn.Module], list[StackedActivation]]:
    """The normalisations and the activation slots of layers of these widths."""
    norms = [make_norm(normalization, w, len(specs), affine=not proxy_norm) for w in widths]
    return norms, make_activations(specs, widths, seeds, proxy_norm=proxy_norm)
