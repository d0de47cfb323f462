"""Residual networks with a norm and an activation before each map, M of them as one stack.

A network is the paper's pre-activation ResNet in small: a first linear map or convolution, blocks
of (norm, activation, map) twice with a skip connection, a last norm and activation, the mean over
positions, a linear classifier. Inside, tensors are (M, batch, positions, channels); a row of a
table has one position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.papers.proxynorm.random_nets.model import draw_weight, standardised
from combutab.activations import ProxyNorm
from combutab.nn import (
    ActivationSpec,
    MaskMaker,
    Member,
    NetworkSpec,
    StackedActivation,
    StackedNorm,
    TableNetwork,
)

EPS = 1e-6  # of every norm, as in the paper
MOMENTUM = 0.03  # of BN's running statistics: the paper's decay factor is 0.97
DEPTH_DROP = 0.1  # the paper's, of the branches of members with dropout; masks round it to 26 / 256
SIDE = 8  # of an image


@dataclass(frozen=True)
class Norm:
    """What stands before each activation.

    ``kind`` is "batch" or "group", with ``groups`` in a layer (0: the spec's own number; 1 is
    layer norm); ``proxy`` follows it by ProxyNorm, ``standardized`` standardises the weights.
    """

    kind: str
    groups: int = 0
    proxy: bool = False
    standardized: bool = False


_KINDS = {"BN": ("batch", 0), "LN": ("group", 1), "GN": ("group", 0)}
NORMS = {
    name: Norm(*_KINDS[name[:2]], name.endswith("+PN"), "+WS" in name)
    for name in ("BN", "BN+PN", "LN", "LN+PN", "GN", "GN+PN", "GN+WS", "GN+WS+PN")
}


@dataclass(frozen=True)
class ResidualSpec(NetworkSpec, kind="proxynorm-residual"):
    """What all members share.

    ``image`` tells 3 x 3 convolutions over 8 x 8 images from linear maps of rows.

    >>> net = ResidualSpec(5, 3, "LN+PN", width=8, n_blocks=2, groups=2).build([Member(0, "relu")])
    >>> net(torch.zeros(1, 4, 5)).shape
    torch.Size([1, 4, 3])
    """

    n_dense: int
    n_outputs: int
    norm: str
    width: int
    n_blocks: int
    groups: int
    image: bool = False
    cardinalities: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.width % self.groups:
            raise ValueError(f"groups must divide the width, got {self.groups=}, {self.width=}")

    @property
    def positions(self) -> int:
        """Of what the first map gives, which halves the sides of an image."""
        return (SIDE // 2) ** 2 if self.image else 1

    @property
    def widths(self) -> tuple[int, ...]:
        units = self.width * self.positions
        return (self.n_dense, *(units,) * (2 * self.n_blocks + 1), self.n_outputs)

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        state = self.build([Member(0, "relu")]).flat.member(0)
        return {name: tuple(value.shape) for name, value in state.items()}

    def build(
        self,
        members: Sequence[Member],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> ResidualNets:
        return ResidualNets(self, members, dtype, torch.device(device))


class StackedMap(nn.Module):
    """M linear maps, or 3 x 3 convolutions, without bias.

    Shape
    -----
    (M, batch, positions, n_in) -> (M, batch, positions / stride^2, n_out)
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        generators: Sequence[torch.Generator],
        *,
        image: bool,
        standardized: bool = False,
        stride: int = 1,
    ) -> None:
        super().__init__()
        self.stride, self.standardized = stride, standardized
        shape = (n_out, n_in, 3, 3) if image else (n_out, n_in)
        self.weight = nn.Parameter(torch.stack([draw_weight(shape, g) for g in generators]))

    def effective_weight(self) -> Tensor:
        """(M, n_out, n_in, ...): standardised by output unit where that was asked for."""
        if not self.standardized:
            return self.weight
        return standardised(self.weight.flatten(0, 1)).view_as(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight, m = self.effective_weight(), len(x)
        if weight.ndim == 3:
            return torch.bmm(x.flatten(1, 2), weight.mT).unflatten(1, x.shape[1:3])
        planes = x.unflatten(2, (math.isqrt(x.shape[2]), -1)).permute(1, 0, 4, 2, 3).flatten(1, 2)
        out = F.conv2d(planes, weight.flatten(0, 1), stride=self.stride, padding=1, groups=m)
        return out.unflatten(1, (m, -1)).flatten(3).permute(1, 0, 3, 2)


@lru_cache
def at_site(activation: str, proxy: bool, scale: bool) -> ActivationSpec:
    """An activation where it stands; ``scale`` is whether ProxyNorm divides too."""
    # a random partition, each member's own, as group norm reads neighbours together
    name = "combu-random" if activation == "combu" else activation
    return partial(ProxyNorm, name, scale=scale) if proxy else name


class NormAct(nn.Module):
    """The norm and the activation of M members, (M, batch, positions, width) -> the same."""

    def __init__(
        self, spec: ResidualSpec, members: Sequence[Member], layer: int, *, scale: bool = True
    ) -> None:
        super().__init__()
        own, width, m = NORMS[spec.norm], spec.width, len(members)
        self.over_batch, units = own.kind == "batch", width * spec.positions
        make = partial(StackedNorm, n_members=m, affine=False, eps=EPS)
        self.norm = (
            make("batch", width, momentum=MOMENTUM)
            if self.over_batch
            else make("group", units, group_size=units // (own.groups or spec.groups))
        )
        # ProxyNorm brings gain and shift
        self.gain = None if own.proxy else nn.Parameter(torch.ones(m, 1, width))
        self.shift = None if own.proxy else nn.Parameter(torch.zeros(m, 1, width))
        sites = [at_site(member.activation, own.proxy, scale) for member in members]
        seeds = [1000 * member.seed + layer for member in members]
        self.activation = StackedActivation(sites, width, seeds)

    def forward(self, x: Tensor) -> Tensor:
        if self.over_batch:
            y = self.norm(x.flatten(1, 2))
        else:  # a group is of channels and of all positions
            y = self.norm(x.mT.flatten(2)).unflatten(2, x.mT.shape[2:]).mT.flatten(1, 2)
        if self.gain is not None and self.shift is not None:
            y = torch.addcmul(self.shift, y, self.gain)
        return self.activation(y).unflatten(1, x.shape[1:3])


class Masks:
    """A step's factors, 0 or 1 / (1 - rate): of residual branches, and of features at the end."""

    def __init__(self, spec: ResidualSpec, members: Sequence[Member]) -> None:
        rates = [member.dropout for member in members]
        self.depth = MaskMaker([spec.n_blocks], [DEPTH_DROP * (rate > 0) for rate in rates])
        self.features = MaskMaker([spec.width], rates)
        self.active = self.features.active

    def draw(self, keys: Tensor, n_rows: int) -> list[Tensor]:
        """(M, n_rows, n_blocks) and (M, n_rows, width)."""
        return [*self.depth.draw(keys, n_rows), *self.features.draw(~keys, n_rows)]


class ResidualNets(TableNetwork):
    """M residual networks; those of equal seeds begin with equal weights whatever their norm."""

    def __init__(
        self,
        spec: ResidualSpec,
        members: Sequence[Member],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(members)
        self.spec, width, standardized = spec, spec.width, NORMS[spec.norm].standardized
        generators = [torch.Generator().manual_seed(member.seed) for member in members]
        make_map = partial(
            StackedMap, generators=generators, image=spec.image, standardized=standardized
        )
        n_maps = 2 * spec.n_blocks
        self.stem = make_map(1, width, stride=2) if spec.image else make_map(spec.n_dense, width)
        self.maps = nn.ModuleList(make_map(width, width) for _ in range(n_maps))
        # the paper leaves ProxyNorm's scale out before a mean over positions
        self.sites = nn.ModuleList(
            NormAct(spec, members, i, scale=i < n_maps or not spec.image) for i in range(n_maps + 1)
        )
        # after standardised weights nothing else could weigh a branch
        gains = torch.ones(len(members), spec.n_blocks, 1, 1, width)
        self.gains = nn.Parameter(gains) if standardized else None
        self.classifier = StackedMap(width, spec.n_outputs, generators, image=False)
        self.bias = nn.Parameter(torch.zeros(len(members), 1, spec.n_outputs))
        self.to(device)
        self._flatten(dtype, device)
        self.n_decayed = self.flat.values.shape[1]  # all parameters, as torch.optim.SGD has it

    def mask_maker(self) -> Masks:
        return Masks(self.spec, self.members)

    def forward(
        self, dense: Tensor, codes: object = None, masks: Sequence[Tensor] | None = None, *_: object
    ) -> Tensor:
        # (M, batch, n_dense) -> (M, batch, n_outputs)
        h = self.stem(dense.unsqueeze(3 if self.spec.image else 2))
        *sites, end = self.sites
        for i in range(self.spec.n_blocks):
            z = self.maps[2 * i](sites[2 * i](h))
            z = self.maps[2 * i + 1](sites[2 * i + 1](z))
            if self.gains is not None:
                z = z * self.gains[:, i]
            if masks is not None:
                z = z * masks[0][..., i, None, None]
            h = h + z
        h = end(h).mean(2, keepdim=True)
        if masks is not None:
            h = h * masks[1].unsqueeze(2)
        return self.classifier(h).squeeze(2) + self.bias
