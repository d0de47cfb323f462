"""The multilayer perceptron of the estimators, M of them at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.core.fields import choice, kind, number, optional, several, whole
from combutab.core.rng import Stream, fold_in
from combutab.nn._activation import StackedActivation
from combutab.nn._inputs import (
    NUMERIC_EMBEDDINGS,
    NumericEmbedding,
    StackedInputs,
    input_widths,
    n_input_columns,
)
from combutab.nn._layers import INITIALISATIONS, NORMALIZATIONS, StackedLinear, StackedNorm
from combutab.nn._network import ChainNetwork, NetworkSpec
from combutab.nn._stack import Member, check_proxy_norm

_N_POINTS = 5  # rows between which a unit's zero lies at first


@dataclass(frozen=True)
class MLPSpec(NetworkSpec, kind="mlp"):
    """Perceptrons: their widths, normalisation and first weights.

    ``cardinalities`` are those of the columns that come as integer codes, each of which gets an
    embedding of ``embedding_dim`` (or its cardinality, if that is smaller). The first
    ``n_numeric`` of the others are numbers, which may get one too.
    """

    n_dense: int
    hidden: tuple[int, ...]
    n_outputs: int
    cardinalities: tuple[int, ...] = ()
    embedding_dim: int = 8
    normalization: str = "none"
    proxy_norm: bool = False
    init: str = "torch"
    n_numeric: int = 0
    numeric_embedding: str = "none"
    numeric_embedding_dim: int = 4
    n_frequencies: int = 16
    frequency_scale: float = 0.1
    scale_inputs: bool = False
    n_bins: int = 48
    n_heads = 1

    fields = {
        "n_dense": whole(),
        "hidden": several(whole(1)),
        "n_outputs": whole(1),
        "cardinalities": several(whole(1)),
        "embedding_dim": whole(1),
        "normalization": choice(*NORMALIZATIONS),
        "proxy_norm": kind(bool),
        "init": choice(*INITIALISATIONS),
        # files of before there were such inputs lack these
        "n_numeric": optional(whole()),
        "numeric_embedding": optional(choice(*NUMERIC_EMBEDDINGS)),
        "numeric_embedding_dim": optional(whole(2)),
        "n_frequencies": optional(whole(1)),
        "frequency_scale": optional(number()),
        "scale_inputs": optional(kind(bool)),
        "n_bins": optional(whole(1)),
    }

    def __post_init__(self) -> None:
        check_proxy_norm(self.proxy_norm, self.normalization)
        if self.n_numeric > self.n_dense:
            raise ValueError(f"{self.n_numeric} of {self.n_dense} dense columns cannot be numbers")

    @property
    def numeric(self) -> NumericEmbedding:
        """The embedding of the numbers."""
        return NumericEmbedding(
            self.numeric_embedding,
            self.numeric_embedding_dim,
            self.n_frequencies,
            self.frequency_scale,
            self.n_bins,
        )

    @property
    def needs_rows(self) -> bool:
        return self.init == "data"

    @property
    def n_inputs(self) -> int:
        """Width of the first linear layer's input: dense columns and embeddings."""
        return n_input_columns(
            self.n_dense, self.n_numeric, self.cardinalities, self.embedding_dim, self.numeric
        )

    @property
    def input_widths(self) -> tuple[int, ...]:
        """How much of that each column takes."""
        return input_widths(
            self.n_dense, self.n_numeric, self.cardinalities, self.embedding_dim, self.numeric
        )

    @property
    def peak_units(self) -> int:
        """Units of the widest layer, cosines or bins of numbers included."""
        return max(*self.widths, self.n_numeric * self.numeric.n_parts)

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included, of one head."""
        return (self.n_inputs, *self.hidden, self.n_outputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included."""
        return self.head_widths

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, biases and embeddings."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(itertools.pairwise(self.head_widths)):
            shapes |= {f"linears.{i}.weight": (n_in, n_out), f"linears.{i}.bias": (1, n_out)}
        for i, n in enumerate(self.cardinalities):
            shapes[f"inputs.embeddings.{i}.weight"] = (n, min(self.embedding_dim, n))
        for name, shape in self.numeric.array_shapes(self.n_numeric).items():
            shapes[f"inputs.numeric.{name}"] = shape
        if self.scale_inputs:
            shapes["inputs.scale"] = (1, self.n_inputs)
        return shapes

    def build(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> StackedMLP:
        """A stack of these members, sorted so that those of one activation are neighbours."""
        return StackedMLP(self, members, dtype=dtype, device=device)


class StackedMLP(ChainNetwork):
    """M perceptrons of one shape: linear, normalisation, activation, dropout; linear at the end.

    Members must be sorted so that those of one activation are neighbours.

    Parameters
    ----------
    spec : MLPSpec
    members : sequence of Member
    dtype : torch.dtype
    device : torch.device or str

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64 -> (M, batch, n_outputs)

    >>> spec = MLPSpec(n_dense=4, hidden=(16, 16), n_outputs=3)
    >>> net = StackedMLP(spec, [Member(0, "relu"), Member(1, "combu")])
    >>> net(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(
        self,
        spec: MLPSpec,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        generators = [
            torch.Generator().manual_seed(fold_in(member.seed, Stream.WEIGHTS) >> 1)
            for member in members
        ]
        super().__init__(
            members,
            self._make_inputs(spec, members, generators, dtype),
            self._make_linears(spec, generators, dtype),
            [
                nn.Identity()
                if spec.normalization == "none"
                else StackedNorm(
                    spec.normalization,
                    width,
                    len(members),
                    affine=not spec.proxy_norm,
                    dtype=dtype,
                )
                for width in spec.hidden
            ],
            [
                StackedActivation(
                    [member.activation for member in members],
                    width,
                    [fold_in(member.seed, Stream.ACTIVATION, layer) >> 1 for member in members],
                    proxy_norm=spec.proxy_norm,
                    dtype=dtype,
                )
                for layer, width in enumerate(spec.hidden)
            ],
            n_heads=spec.n_heads,
            dtype=dtype,
            device=device,
        )
        self.spec = spec

    def _make_inputs(
        self,
        spec: MLPSpec,
        members: Sequence[Member],
        generators: Sequence[torch.Generator],
        dtype: torch.dtype,
    ) -> StackedInputs:
        return StackedInputs(
            spec.cardinalities,
            spec.embedding_dim,
            generators,
            n_dense=spec.n_dense,
            n_numeric=spec.n_numeric,
            numeric=spec.numeric,
            scaled=spec.scale_inputs,
            bins=[member.bins for member in members],
            dtype=dtype,
        )

    def _make_linears(
        self, spec: MLPSpec, generators: Sequence[torch.Generator], dtype: torch.dtype
    ) -> list[StackedLinear]:
        return [
            StackedLinear(n_in, n_out, generators, init=spec.init, dtype=dtype)
            for n_in, n_out in itertools.pairwise(spec.widths)
        ]

    @torch.no_grad()
    def start_from(
        self, dense: Tensor, codes: Tensor | None, seeds: Sequence[int], members: Sequence[int]
    ) -> None:
        generators = [torch.Generator().manual_seed(seed >> 1) for seed in seeds]

        def draw(*shape: int) -> Tensor:
            draws = [torch.rand(*shape, generator=g, dtype=torch.float64) for g in generators]
            return torch.stack(draws)

        n = dense.shape[1]
        self.train(False)
        x = self.inputs(dense, codes)
        for i, linear in enumerate(self.linears):
            assert isinstance(linear, StackedLinear)
            shape = (_N_POINTS, linear.weight.shape[2])
            points = (draw(*shape) * n).long().clamp_(max=n - 1).to(x.device)
            shares = -torch.log1p(-draw(*shape))  # uniform over the simplex
            shares = (shares / shares.sum(1, keepdim=True)).to(x)
            linear.fit_to(x, points, shares, members)
            if i < len(self.norms):
                x = linear(x)
                norm = self.norms[i]
                x = norm(x, None) if isinstance(norm, StackedNorm) else norm(x)
                x = self.activations[i](x, None)
        self.train(True)
