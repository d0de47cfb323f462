"""Layers with a leading member axis: M networks of one shape as one batched program."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations import PLN, PLS
from combutab.activations.kernels import Kernel, Standardize, kernel_of

INITIALISATIONS = ("torch", "kaiming", "xavier", "lecun", "ntk", "data")
"""Names of rules for initial weights."""
NTK = ("ntk", "data")  # whose weights are divided by sqrt(in_features) in the forward pass
NORMALIZATIONS = ("none", "batch", "layer", "group", "rms", "pln", "pls")
"""Names of what may stand between a linear layer and its activation."""


def _draw_weights(
    fan_in: int, fan_out: int, init: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw (fan_in, fan_out) weights and (fan_out,) biases in float64."""

    def uniform(bound: float, *shape: int) -> Tensor:
        draws = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return draws.mul_(2 * bound).sub_(bound)

    def normal(std: float) -> Tensor:
        draws = torch.randn(fan_in, fan_out, generator=generator, dtype=torch.float64)
        return draws.mul_(std)

    zeros = torch.zeros(fan_out, dtype=torch.float64)
    if init == "torch":  # nn.Linear's own, which the CombU paper uses
        bound = 1 / math.sqrt(fan_in)
        return uniform(bound, fan_in, fan_out), uniform(bound, fan_out)
    if init == "kaiming":
        return normal(math.sqrt(2 / fan_in)), zeros
    if init == "xavier":
        return uniform(math.sqrt(6 / (fan_in + fan_out)), fan_in, fan_out), zeros
    if init == "lecun":
        return normal(math.sqrt(1 / fan_in)), zeros
    if init in NTK:
        return normal(1.0), torch.randn(fan_out, generator=generator, dtype=torch.float64)
    raise ValueError(f"init must be one of {INITIALISATIONS}, got {init!r}")


class StackedLinear(nn.Module):
    """M affine maps at once: one ``torch.baddbmm``.

    Parameters
    ----------
    in_features, out_features : int
    generators : sequence of torch.Generator
        One a member: its weights are drawn from its own generator alone.
    init : {"torch", "kaiming", "xavier", "lecun", "ntk", "data"}
        ``"ntk"`` draws unit normals and divides by sqrt(in_features) in the forward pass;
        ``"data"`` too, for ``fit_to`` to go on from.

    Shape
    -----
    x : (M, batch, in_features) -> (M, batch, out_features)

    >>> layer = StackedLinear(3, 2, [torch.Generator().manual_seed(s) for s in (0, 1)])
    >>> layer(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generators: Sequence[torch.Generator],
        *,
        init: str = "torch",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        drawn = [_draw_weights(in_features, out_features, init, g) for g in generators]
        self.weight = nn.Parameter(torch.stack([w for w, _ in drawn]).to(dtype))
        self.bias = nn.Parameter(torch.stack([b for _, b in drawn]).unsqueeze(1).to(dtype))
        self.scale = 1 / math.sqrt(in_features) if init in NTK else 1.0

    def forward(self, x: Tensor) -> Tensor:  # (M, batch, in) -> (M, batch, out)
        return torch.baddbmm(self.bias, x, self.weight, alpha=self.scale)

    @torch.no_grad()
    def fit_to(self, x: Tensor, points: Tensor, shares: Tensor, members: Sequence[int]) -> None:
        """Scale each unit to variance 1 over rows, and put its zero between some of them.

        Parameters
        ----------
        x : Tensor, (M, n, in_features)
        points : Tensor of int64, (M, k, out_features)
            Rows, between which the unit is zero: at their mean by ``shares``, of the same shape.
        members : sequence of int
            Whose weights are set.
        """
        z = torch.matmul(x, self.weight) * self.scale
        spread = z.std(1, correction=0, keepdim=True)
        spread = torch.where(spread > 1e-6, spread, 1.0)  # nothing comes of constant inputs
        middle = (z.gather(1, points) * shares).sum(1, keepdim=True) / spread
        for m in members:
            self.weight[m].div_(spread[m])
            self.bias[m].copy_(-middle[m])

    def effective_weight(self) -> Tensor:
        """The (M, in, out) matrix that multiplies the input."""
        return self.weight.detach() * self.scale


class StackedEmbedding(nn.Module):
    """M tables of category vectors, drawn N(0, 1 / dim); code 0, for unseen categories, is zero.

    Shape
    -----
    codes : (M, batch) int64 -> (M, batch, dim)
    """

    def __init__(
        self,
        cardinality: int,
        dim: int,
        generators: Sequence[torch.Generator],
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        drawn = [
            torch.randn(cardinality, dim, generator=g, dtype=torch.float64) / math.sqrt(dim)
            for g in generators
        ]
        weight = torch.stack(drawn)
        weight[:, 0] = 0.0  # what no training row has, no gradient reaches
        self.weight = nn.Parameter(weight.to(dtype))

    def forward(self, codes: Tensor) -> Tensor:
        n_members, cardinality, dim = self.weight.shape
        offsets = torch.arange(n_members, device=codes.device).mul_(cardinality).unsqueeze(1)
        return F.embedding(codes + offsets, self.weight.reshape(-1, dim))


class StackedNorm(nn.Module):
    """The normalisation slot of M members: layer, group, rms, batch, PLN or PLS.

    Parameters
    ----------
    kind : {"batch", "layer", "group", "rms", "pln", "pls"}
    width, n_members : int
    affine : bool
        Learn a gain and a shift per unit; left out where ProxyNorm brings its own.
    group_size : int
        Units in a group of group norm, PLN and PLS.

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
        group_size: int = 8,
        eps: float = 1e-5,
        momentum: float = 0.1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if kind not in NORMALIZATIONS or kind == "none":
            raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {kind!r}")
        if kind == "group" and width % group_size:
            raise ValueError(
                f"group normalization needs a width that group_size divides, got {width=} and "
                f"{group_size=}; use normalization='layer' or change hidden_layer_sizes"
            )
        self.kind, self.width, self.eps, self.momentum = kind, width, eps, momentum
        self.group_size = group_size
        makers = {"pln": PLN, "pls": PLS}
        self.parallel = makers[kind](width, group_size) if kind in makers else None
        affine = affine and self.parallel is None  # PLN and PLS have no affine part
        self.gain = nn.Parameter(torch.ones(n_members, 1, width, dtype=dtype)) if affine else None
        self.shift = (
            nn.Parameter(torch.zeros(n_members, 1, width, dtype=dtype))
            if affine and kind != "rms"
            else None
        )
        self.running_mean: Tensor
        self.running_var: Tensor
        if kind == "batch":
            self.register_buffer("running_mean", torch.zeros(n_members, width, dtype=dtype))
            self.register_buffer("running_var", torch.ones(n_members, width, dtype=dtype))

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        if self.parallel is not None:
            return self.parallel(x)
        if self.kind == "layer":
            x = F.layer_norm(x, (self.width,), eps=self.eps)
        elif self.kind == "rms":
            x = F.rms_norm(x, (self.width,), eps=self.eps)
        elif self.kind == "group":
            groups = x.unflatten(-1, (-1, self.group_size))
            x = F.layer_norm(groups, (self.group_size,), eps=self.eps).flatten(-2)
        else:
            x = self._batch_norm(x, valid)
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
            # one row has no variance: such a batch is scaled by the running statistics
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
        """Scale and shift, (M, 1, width), of batch normalisation by the running statistics."""
        scale = torch.rsqrt(self.running_var + self.eps).unsqueeze(1)
        shift = -self.running_mean.unsqueeze(1) * scale
        if self.gain is None or self.shift is None:
            return scale, shift
        return scale * self.gain, torch.addcmul(self.shift, shift, self.gain)

    def kernel(self) -> Kernel | None:
        """Return the kernel before gain and shift; None for batch normalisation."""
        if self.kind == "batch":
            return None
        if self.parallel is not None:
            return kernel_of(self.parallel)
        size = self.group_size if self.kind == "group" else self.width
        return Standardize(size, self.width, self.eps, center=self.kind != "rms")

    def extra_repr(self) -> str:
        return f"{self.kind!r}, width={self.width}"
