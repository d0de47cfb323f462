"""TabM: perceptrons of many heads that share their weights but for factors of rank one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from combutab.core.fields import whole
from combutab.nn._layers import HeadLinear, HeadOutputs, StackedLinear
from combutab.nn._mlp import MLPSpec, StackedMLP
from combutab.nn._network import Member


@dataclass(frozen=True)
class TabMSpec(MLPSpec, kind="tabm"):
    """Perceptrons of ``n_heads`` heads; all else is as of ``MLPSpec``."""

    n_heads: int = 32

    fields = {**MLPSpec.fields, "n_heads": whole(1)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ValueError("heads share hidden layers: hidden_layer_sizes must name one at least")
        if self.needs_rows:
            raise ValueError(
                f"init={self.init!r} scales each unit by the rows that it sees, which differ by "
                "head, while its weights do not; use 'torch', 'kaiming', 'xavier', 'lecun' or 'ntk'"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included, of all heads."""
        return tuple(self.n_heads * width for width in self.head_widths)

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, biases, embeddings and factors."""
        k, shapes = self.n_heads, super().array_shapes()
        pairs = list(itertools.pairwise(self.head_widths))
        for i, (n_in, n_out) in enumerate(pairs[:-1]):
            shapes |= {f"linears.{i}.{name}": (k, n_out) for name in ("bias", "s")}
            shapes[f"linears.{i}.r"] = (k, n_in)
        n_in, n_out = pairs[-1]
        last = f"linears.{len(pairs) - 1}"
        return shapes | {f"{last}.weight": (k, n_in, n_out), f"{last}.bias": (k, n_out)}

    def build(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> StackedTabM:
        """A stack of these members, sorted so that those of one activation are neighbours."""
        return StackedTabM(self, members, dtype=dtype, device=device)


class StackedTabM(StackedMLP):
    """M TabM networks of one shape: perceptrons of k heads each.

    Every linear map but the last is ((x * r) W) * s + b, of which a head has its own r, s and b;
    the last is a head's own. Only the first r is random at first, so that heads differ by how they
    see the inputs.

    Parameters
    ----------
    spec : TabMSpec
    members, dtype, device
        As of ``StackedMLP``.

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64
        -> (M, batch * n_heads, n_outputs)

    References
    ----------
    Gorishniy et al. (2024), "TabM: Advancing tabular deep learning with parameter-efficient
    ensembling", section 3.3 (arXiv 2410.24210).

    >>> net = StackedTabM(TabMSpec(4, (16, 16), 3, n_heads=8), [Member(0, "relu")])
    >>> net(torch.zeros(1, 5, 4)).shape
    torch.Size([1, 40, 3])
    """

    def _make_linears(
        self, spec: MLPSpec, generators: Sequence[torch.Generator], dtype: torch.dtype
    ) -> list[StackedLinear]:
        k, pairs = spec.n_heads, list(itertools.pairwise(spec.head_widths))
        layers: list[StackedLinear] = [
            HeadLinear(
                *pair,
                k,
                generators,
                r=None if i else _first_factors(spec, generators),
                init=spec.init,
                dtype=dtype,
            )
            for i, pair in enumerate(pairs[:-1])
        ]
        return [*layers, HeadOutputs(*pairs[-1], k, generators, init=spec.init, dtype=dtype)]


def _first_factors(spec: MLPSpec, generators: Sequence[torch.Generator]) -> torch.Tensor:
    """Draw what heads multiply the inputs by, (M, n_heads, n_inputs).

    It is N(0, 1), one number a column of the table, where numbers are embedded, else -1 or 1.
    """
    # NOTE[DIFF]: a one-hot column has a factor of its own, where the paper's code has one for all
    # columns of a category; a row has but one of them.
    widths = torch.tensor(spec.input_widths)
    embedded = spec.n_numeric > 0 and spec.numeric_embedding != "none"
    drawn = []
    for generator in generators:
        draws = torch.randn(spec.n_heads, len(widths), generator=generator, dtype=torch.float64)
        drawn.append(draws if embedded else draws.sign())
    return torch.stack(drawn).repeat_interleave(widths, 2)
