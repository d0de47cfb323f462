"""Linear layers of members with several heads, whose rows stand one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from combutab.nn._layers import StackedLinear


class HeadLinear(StackedLinear):
    """M affine maps, each of k heads that share its weights: ((x * r) W) * s + b.

    r, s and b are a head's own; s is 1 at first, and all heads have one b.

    Parameters
    ----------
    in_features, out_features, n_heads : int
    generators : sequence of torch.Generator
        One a member.
    r : Tensor, (M, n_heads, in_features), optional
        What r is at first. Each row then comes once, for all heads. By default r is 1, and a row
        comes once a head.
    init : str
        As of ``StackedLinear``.

    Shape
    -----
    x : (M, batch * n_heads, in_features), or given r (M, batch, in_features)
        -> (M, batch * n_heads, out_features)

    References
    ----------
    Wen et al. (2020), "BatchEnsemble"; Gorishniy et al. (2024), "TabM", section 3.

    >>> layer = HeadLinear(3, 2, 4, [torch.Generator().manual_seed(0)])
    >>> layer(torch.zeros(1, 5 * 4, 3)).shape
    torch.Size([1, 20, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_heads: int,
        generators: Sequence[torch.Generator],
        *,
        r: Tensor | None = None,
        init: str = "torch",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(in_features, out_features, generators, init=init, dtype=dtype)
        shape = len(generators), n_heads
        self.n_heads, self.splits = n_heads, r is not None
        start = torch.ones(*shape, in_features) if r is None else r
        self.r = nn.Parameter(start.to(dtype))
        self.s = nn.Parameter(torch.ones(*shape, out_features, dtype=dtype))
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
    >>> layer(torch.zeros(1, 5 * 4, 3)).shape, layer.weight.shape
    (torch.Size([1, 20, 2]), torch.Size([1, 4, 3, 2]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_heads: int,
        generators: Sequence[torch.Generator],
        *,
        init: str = "torch",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        by_head = [generator for generator in generators for _ in range(n_heads)]
        super().__init__(in_features, out_features, by_head, init=init, dtype=dtype)
        shape = len(generators), n_heads
        self.n_heads = n_heads
        self.weight = nn.Parameter(self.weight.detach().unflatten(0, shape))
        self.bias = nn.Parameter(self.bias.detach().squeeze(1).unflatten(0, shape))

    def forward(self, x: Tensor) -> Tensor:
        by_head = x.unflatten(1, (-1, self.n_heads))
        product = torch.einsum("mbki,mkio->mbko", by_head, self.weight) * self.scale
        return (product + self.bias.unsqueeze(1)).flatten(1, 2)
