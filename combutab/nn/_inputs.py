"""The input module: encoded columns of a table to what the first layer takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from combutab.nn._layers import StackedEmbedding


class StackedInputs(nn.Module):
    """Numbers as they are, and a learned vector for each code: the inputs of M members.

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
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(
            StackedEmbedding(c, min(embedding_dim, c), generators, dtype=dtype)
            for c in cardinalities
        )

    def forward(self, dense: Tensor, codes: Tensor | None = None) -> Tensor:
        if codes is None or not len(self.embeddings):
            return dense
        vectors = [table(codes[..., i]) for i, table in enumerate(self.embeddings)]
        return torch.cat([dense, *vectors], dim=-1)
