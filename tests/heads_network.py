"""A network as a reader might add one: embedded numbers, and heads that share weights."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.core.files import several, whole
from combutab.core.rng import Stream, fold_in
from combutab.nn import ChainNetwork, NetworkSpec, StackedActivation, StackedInputs, StackedLinear


class NumbersAndHeads(nn.Module):
    """ReLU(x w + b) of each number, then the codes' vectors; each row once a head, scaled."""

    def __init__(self, spec, generators):
        super().__init__()
        m, d = len(generators), spec.per_number
        self.n_heads = spec.n_heads
        self.weight, self.bias = (
            nn.Parameter(
                torch.stack(
                    [torch.randn(spec.n_dense, d, generator=g) for g in generators]
                ).unsqueeze(1)
            )
            for _ in range(2)
        )
        self.codes = StackedInputs(spec.cardinalities, 2, generators)
        self.scale = _scale(m, spec.n_heads, spec.widths[0] // spec.n_heads, generators)

    def forward(self, dense, codes=None):
        vectors = torch.relu(dense.unsqueeze(-1) * self.weight + self.bias).flatten(-2)
        return self.scale(self.codes(vectors, codes).repeat_interleave(self.n_heads, 1))


class Scale(nn.Module):
    """A factor of each unit and head."""

    def __init__(self, start: Tensor):
        super().__init__()
        self.factor = nn.Parameter(start)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        heads = x.unflatten(1, (-1, self.factor.shape[2]))
        return (heads * self.factor).flatten(1, 2)


def _scale(m, n_heads, width, generators):
    start = torch.stack([torch.randn(n_heads, width, generator=g) for g in generators])
    return Scale((1 + 0.3 * start).unsqueeze(1))


class Scaled(nn.Module):
    """An activation slot whose units the next layer sees scaled."""

    def __init__(self, slot, scale):
        super().__init__()
        self.slot, self.scale = slot, scale

    def forward(self, x, valid=None):
        return self.scale(self.slot(x, valid))


@dataclass(frozen=True)
class HeadsSpec(NetworkSpec, kind="heads-of-a-test"):
    n_dense: int
    hidden: tuple[int, ...]
    n_outputs: int
    cardinalities: tuple[int, ...] = ()
    n_heads: int = 4
    per_number: int = 3

    fields = {
        "n_dense": whole(),
        "hidden": several(whole(1)),
        "n_outputs": whole(1),
        "cardinalities": several(whole(1)),
        "n_heads": whole(1),
        "per_number": whole(1),
    }

    @property
    def widths(self):
        n_inputs = self.n_dense * self.per_number + sum(min(2, c) for c in self.cardinalities)
        return tuple(self.n_heads * w for w in (n_inputs, *self.hidden, self.n_outputs))

    def array_shapes(self):
        widths = [width // self.n_heads for width in self.widths]
        pairs = enumerate(itertools.pairwise(widths))
        return {f"linears.{i}.weight": pair for i, pair in pairs}

    def build(self, members, *, dtype=torch.float32, device="cpu"):
        generators = [torch.Generator().manual_seed(m.seed) for m in members]
        widths = [width // self.n_heads for width in self.widths]
        seeds = [fold_in(m.seed, Stream.WEIGHTS) >> 1 for m in members]
        m, n = len(members), self.n_heads
        return ChainNetwork(
            members,
            NumbersAndHeads(self, generators),
            [StackedLinear(a, b, generators) for a, b in itertools.pairwise(widths)],
            [_scale(m, n, width, generators) for width in self.hidden],
            [
                Scaled(
                    StackedActivation([x.activation for x in members], width, seeds),
                    _scale(m, n, width, generators),
                )
                for width in self.hidden
            ],
            n_heads=n,
            dtype=dtype,
            device=device,
        )
