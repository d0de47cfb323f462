"""The multilayer perceptron of the estimators, M of them at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from combutab._fields import choice, kind, several, whole
from combutab._random import Purpose, derive
from combutab.nn._activation import StackedActivation
from combutab.nn._inputs import StackedInputs
from combutab.nn._layers import INITIALISATIONS, NORMALIZATIONS, StackedLinear, StackedNorm
from combutab.nn._stack import Member, check_proxy_norm
from combutab.nn.networks._network import ChainNetwork
from combutab.nn.networks._spec import NetworkSpec


@dataclass(frozen=True)
class MLPSpec(NetworkSpec, kind="mlp"):
    """Perceptrons: their widths, normalisation and first weights.

    ``cardinalities`` are those of the columns that come as integer codes, each of which gets an
    embedding of ``embedding_dim`` (or its cardinality, if that is smaller).
    """

    n_dense: int
    hidden: tuple[int, ...]
    n_outputs: int
    cardinalities: tuple[int, ...] = ()
    embedding_dim: int = 8
    normalization: str = "none"
    proxy_norm: bool = False
    init: str = "torch"

    fields = {
        "n_dense": whole(),
        "hidden": several(whole(1)),
        "n_outputs": whole(1),
        "cardinalities": several(whole(1)),
        "embedding_dim": whole(1),
        "normalization": choice(*NORMALIZATIONS),
        "proxy_norm": kind(bool),
        "init": choice(*INITIALISATIONS),
    }

    def __post_init__(self) -> None:
        check_proxy_norm(self.proxy_norm, self.normalization)

    @property
    def n_inputs(self) -> int:
        """Width of the first linear layer's input: dense columns and embeddings."""
        return self.n_dense + sum(min(self.embedding_dim, c) for c in self.cardinalities)

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included."""
        return (self.n_inputs, *self.hidden, self.n_outputs)

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights, biases and embeddings."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(itertools.pairwise(self.widths)):
            shapes |= {f"linears.{i}.weight": (n_in, n_out), f"linears.{i}.bias": (1, n_out)}
        for i, n in enumerate(self.cardinalities):
            shapes[f"inputs.embeddings.{i}.weight"] = (n, min(self.embedding_dim, n))
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
            torch.Generator().manual_seed(derive(member.seed, Purpose.WEIGHTS) >> 1)
            for member in members
        ]
        inputs = StackedInputs(spec.cardinalities, spec.embedding_dim, generators, dtype=dtype)
        super().__init__(
            members,
            inputs,
            [
                StackedLinear(n_in, n_out, generators, init=spec.init, dtype=dtype)
                for n_in, n_out in itertools.pairwise(spec.widths)
            ],
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
                    [derive(member.seed, Purpose.ACTIVATION, layer) >> 1 for member in members],
                    proxy_norm=spec.proxy_norm,
                    dtype=dtype,
                )
                for layer, width in enumerate(spec.hidden)
            ],
            dtype=dtype,
            device=device,
        )
        self.spec = spec
