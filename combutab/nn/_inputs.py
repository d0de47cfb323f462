"""The input module: encoded columns of a table to what the first layer takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from combutab.nn._layers import StackedEmbedding

NUMERIC_EMBEDDINGS = ("none", "pbld")


@dataclass(frozen=True)
class NumericEmbedding:
    """The embedding of each number: its kind, its width and its frequencies.

    ``"pbld"`` is (x, W cos(2 pi f x + p) + b) a column, with learned frequencies f, drawn from
    N(0, frequency_scale^2), phases p, and W and b, in all ``dim`` numbers.

    References
    ----------
    Gorishniy et al. (2022), "On embeddings for numerical features in tabular deep learning";
    Holzmueller et al. (2024), "Better by default", section 3, for PBLD.
    """

    kind: str = "none"
    dim: int = 4
    n_frequencies: int = 16
    frequency_scale: float = 0.1

    @property
    def width(self) -> int:
        """Numbers that a column becomes."""
        return 1 if self.kind == "none" else self.dim


class PeriodicEmbedding(nn.Module):
    """PBLD embeddings of M members: each number, and linear maps of its cosines.

    Shape
    -----
    (M, batch, n_columns) -> (M, batch, n_columns * dim)

    >>> embedding = PeriodicEmbedding(3, NumericEmbedding("pbld"), [torch.Generator()])
    >>> embedding(torch.zeros(1, 5, 3)).shape
    torch.Size([1, 5, 12])
    """

    def __init__(
        self,
        n_columns: int,
        settings: NumericEmbedding,
        generators: Sequence[torch.Generator],
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        k, n_mapped = settings.n_frequencies, settings.dim - 1

        def uniform(bound: float, *shape: int) -> Tensor:
            draws = [torch.rand(*shape, generator=g, dtype=torch.float64) for g in generators]
            return torch.stack(draws).mul_(2 * bound).sub_(bound).to(dtype)

        draws = [torch.randn(n_columns, k, generator=g, dtype=torch.float64) for g in generators]
        self.frequency = nn.Parameter(torch.stack(draws).mul_(settings.frequency_scale).to(dtype))
        self.phase = nn.Parameter(uniform(math.pi, n_columns, k))
        self.weight = nn.Parameter(uniform(1 / math.sqrt(k), n_columns, k, n_mapped))
        self.bias = nn.Parameter(uniform(1 / math.sqrt(k), n_columns, n_mapped))

    def forward(self, x: Tensor) -> Tensor:
        columns = x.transpose(1, 2).unsqueeze(-1)  # (M, n_columns, batch, 1)
        frequency = (2 * math.pi * self.frequency).unsqueeze(2)
        waves = torch.cos(torch.addcmul(self.phase.unsqueeze(2), columns, frequency))
        mapped = torch.baddbmm(
            self.bias.flatten(0, 1).unsqueeze(1), waves.flatten(0, 1), self.weight.flatten(0, 1)
        )
        mapped = mapped.unflatten(0, self.bias.shape[:2])  # (M, n_columns, batch, dim - 1)
        return torch.cat([columns, mapped], -1).transpose(1, 2).flatten(2)


class StackedInputs(nn.Module):
    """Numbers, as they are or embedded, and a learned vector for each code, of M members.

    A network takes any module of this signature in its place: its parameters, with a leading
    member axis, are differentiated all the same. One that makes several heads gives each row as
    often as there are heads, one behind the other.

    Parameters
    ----------
    cardinalities : sequence of int
        Of the columns that come as codes; each gets an embedding.
    embedding_dim : int
        Its width, unless the cardinality is smaller.
    generators : sequence of torch.Generator
        One a member.
    n_dense : int, optional
        Columns that do not come as codes; needed by what follows.
    n_numeric : int, default=0
        How many of them, the first, are numbers.
    numeric : NumericEmbedding, optional
        Of the numbers.
    scaled : bool, default=False
        Multiply each input of the first layer by a learned factor, 1 at first.

    Shape
    -----
    dense : (M, batch, n_dense), codes : (M, batch, n_codes) int64 -> (M, batch, n_inputs)

    >>> inputs = StackedInputs([5], 2, [torch.Generator().manual_seed(0)])
    >>> inputs(torch.zeros(1, 3, 4), torch.ones(1, 3, 1, dtype=torch.int64)).shape
    torch.Size([1, 3, 6])
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        embedding_dim: int,
        generators: Sequence[torch.Generator],
        *,
        n_dense: int = 0,
        n_numeric: int = 0,
        numeric: NumericEmbedding | None = None,
        scaled: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(
            StackedEmbedding(c, min(embedding_dim, c), generators, dtype=dtype)
            for c in cardinalities
        )
        self.n_numeric = n_numeric
        self.numeric: nn.Module | None = None
        self.scale: nn.Parameter | None = None
        settings = numeric or NumericEmbedding()
        if settings.kind == "pbld" and n_numeric:
            self.numeric = PeriodicEmbedding(n_numeric, settings, generators, dtype=dtype)
        if scaled:
            width = n_input_columns(n_dense, n_numeric, cardinalities, embedding_dim, settings)
            self.scale = nn.Parameter(torch.ones(len(generators), 1, width, dtype=dtype))

    def forward(self, dense: Tensor, codes: Tensor | None = None) -> Tensor:
        parts = [dense]
        if self.numeric is not None:
            parts = [self.numeric(dense[..., : self.n_numeric]), dense[..., self.n_numeric :]]
        if codes is not None:
            parts += [table(codes[..., i]) for i, table in enumerate(self.embeddings)]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return x if self.scale is None else x * self.scale


def n_input_columns(
    n_dense: int,
    n_numeric: int,
    cardinalities: Sequence[int],
    embedding_dim: int,
    numeric: NumericEmbedding,
) -> int:
    """Count the inputs of the first layer."""
    embedded = sum(min(embedding_dim, c) for c in cardinalities)
    return n_dense + n_numeric * (numeric.width - 1) + embedded
