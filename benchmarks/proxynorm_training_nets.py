"""Residual networks, many as one program: member m has the channels m * width and on.

A network is the paper's pre-activation ResNet in small: a first linear map or convolution, blocks
of (norm, activation, map) twice with a skip connection, a last norm and activation, the mean over
positions, a linear classifier. All members share shape and norm; each has its own weights, from its
own seed, and its own rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations import CombU, ProxyNorm, make_activation

EPS = 1e-6  # of every norm, as in the paper
MOMENTUM = 0.03  # of BN's running statistics: the paper's decay factor is 0.97


@dataclass(frozen=True)
class Norm:
    """What stands before each activation.

    ``kind`` is "batch" or "group", with ``groups`` in a layer (0: the shape's own number; 1 is
    layer norm); ``proxy`` follows it by ProxyNorm, ``standardized`` standardises the weights.
    """

    kind: str
    groups: int = 0
    proxy: bool = False
    standardized: bool = False


NORMS = {
    "BN": Norm("batch"),
    "BN+PN": Norm("batch", proxy=True),
    "LN": Norm("group", 1),
    "LN+PN": Norm("group", 1, proxy=True),
    "GN": Norm("group"),
    "GN+PN": Norm("group", proxy=True),
    "GN+WS": Norm("group", standardized=True),
    "GN+WS+PN": Norm("group", proxy=True, standardized=True),
}


@dataclass(frozen=True)
class Shape:
    """What all members share.

    ``image`` tells 3 x 3 convolutions over (channels, height, width) from linear maps of rows.
    """

    n_inputs: int
    n_classes: int
    width: int
    n_blocks: int
    groups: int
    image: bool = False

    def __post_init__(self) -> None:
        if self.width % self.groups:
            raise ValueError(f"groups must divide the width, got {self.groups=}, {self.width=}")


class StackedMap(nn.Module):
    """M linear maps of rows, or 3 x 3 convolutions, without bias.

    Shape
    -----
    (batch, M * n_in) -> (batch, M * n_out), or with (height, width) behind
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
        self.members, self.stride, self.standardized = len(generators), stride, standardized
        shape = (n_out, n_in, 3, 3) if image else (n_out, n_in)
        self.fan_in = math.prod(shape[1:])
        drawn = []
        for generator in generators:
            # the paper's: a truncated normal scaled by the fan-in
            weight = nn.init.trunc_normal_(torch.empty(shape), generator=generator)
            drawn.append(weight / math.sqrt(self.fan_in))
        self.weight = nn.Parameter(torch.stack(drawn))

    def effective_weight(self) -> Tensor:
        """(M, n_out, n_in, ...): standardised by output unit where that was asked for."""
        if not self.standardized:
            return self.weight
        over = tuple(range(2, self.weight.ndim))
        var, mean = torch.var_mean(self.weight, dim=over, correction=0, keepdim=True)
        return (self.weight - mean) * torch.rsqrt(var * self.fan_in)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.effective_weight()
        if x.ndim > 2:
            kernels = weight.flatten(0, 1)
            return F.conv2d(x, kernels, stride=self.stride, padding=1, groups=self.members)
        rows = x.unflatten(1, (self.members, -1)).transpose(0, 1)
        return torch.bmm(rows, weight.transpose(1, 2)).transpose(0, 1).flatten(1)


class NormAct(nn.Module):
    """The norm and the activation of M members.

    Parameters
    ----------
    norm : Norm
    shape : Shape
    activation : str
        "relu", another elementwise one, or "combu", whose partition is each member's own.
    generators : sequence of torch.Generator
        One a member.
    scale : bool
        Whether ProxyNorm divides too; the paper leaves that out before the final mean pooling.

    Shape
    -----
    (batch, M * width, ...) -> the same
    """

    def __init__(
        self,
        norm: Norm,
        shape: Shape,
        activation: str,
        generators: Sequence[torch.Generator],
        *,
        scale: bool = True,
    ) -> None:
        super().__init__()
        members = len(generators)
        channels = members * shape.width
        self.kind, self.groups = norm.kind, members * (norm.groups or shape.groups)
        self.running_mean: Tensor | None
        self.running_var: Tensor | None
        is_batch = norm.kind == "batch"
        self.register_buffer("running_mean", torch.zeros(channels) if is_batch else None)
        self.register_buffer("running_var", torch.ones(channels) if is_batch else None)
        # ProxyNorm brings gain and shift
        self.gamma = None if norm.proxy else nn.Parameter(torch.ones(channels))
        self.beta = None if norm.proxy else nn.Parameter(torch.zeros(channels))
        module = _activation(activation, shape.width, generators, dim=-1 if norm.proxy else 1)
        self.activation = ProxyNorm(module, channels, scale=scale, dim=1) if norm.proxy else module

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "batch":
            stats = (self.running_mean, self.running_var)
            x = F.batch_norm(x, *stats, self.gamma, self.beta, self.training, MOMENTUM, EPS)
        else:
            x = F.group_norm(x, self.groups, self.gamma, self.beta, EPS)
        return self.activation(x)


def _activation(
    name: str, width: int, generators: Sequence[torch.Generator], dim: int
) -> nn.Module:
    channels = width * len(generators)
    if name != "combu":
        return make_activation(name, channels, dim=dim)
    # a random partition, as group norm reads neighbours together; drawn member by member
    own = [CombU(width, assignment="random", generator=g).partition for g in generators]
    module = CombU(channels, assignment="random", dim=dim, generator=torch.Generator())
    module.partition = torch.cat([partition for partition in own if partition is not None])
    return module


@dataclass(frozen=True)
class Masks:
    """A step's random factors, 0 or 1 / (1 - rate); 1 where nothing is dropped.

    Shape
    -----
    depth : (n_blocks, batch, M), one a residual branch; features : (batch, M * width)
    """

    depth: Tensor
    features: Tensor


class ResidualNets(nn.Module):
    """M residual networks.

    Parameters
    ----------
    shape : Shape
    norm : Norm
    seeds : sequence of int
        One a member; networks of equal seeds begin with equal weights whatever their norm.
    activation : str

    Shape
    -----
    x : (batch, M * n_inputs), or (batch, M * n_inputs, height, width) -> (M, batch, n_classes)

    >>> nets = ResidualNets(Shape(5, 3, width=8, n_blocks=2, groups=2), NORMS["LN+PN"], [0, 1])
    >>> nets(torch.zeros(4, 2 * 5)).shape
    torch.Size([2, 4, 3])
    """

    def __init__(
        self, shape: Shape, norm: Norm, seeds: Sequence[int], activation: str = "relu"
    ) -> None:
        super().__init__()
        self.shape, self.members = shape, len(seeds)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        width, image = shape.width, shape.image

        def make_map(n_in: int, stride: int = 1) -> StackedMap:
            return StackedMap(
                n_in,
                width,
                generators,
                image=image,
                standardized=norm.standardized,
                stride=stride,
            )

        def make_norm(scale: bool = True) -> NormAct:
            return NormAct(norm, shape, activation, generators, scale=scale)

        self.stem = make_map(shape.n_inputs, stride=2 if image else 1)
        self.branches = nn.ModuleList(
            nn.Sequential(make_norm(), make_map(width), make_norm(), make_map(width))
            for _ in range(shape.n_blocks)
        )
        # after standardised weights nothing else could weigh a branch
        self.gains = nn.ParameterList(
            nn.Parameter(torch.ones(self.members * width))
            for _ in range(shape.n_blocks if norm.standardized else 0)
        )
        self.last = make_norm(scale=not image)
        self.classifier = StackedMap(width, shape.n_classes, generators, image=False)
        self.bias = nn.Parameter(torch.zeros(self.members, 1, shape.n_classes))

    def forward(self, x: Tensor, masks: Masks | None = None) -> Tensor:
        h = self.stem(x)
        positions = (1,) * (h.ndim - 2)
        for i, branch in enumerate(self.branches):
            z = branch(h)
            if len(self.gains):
                z = z * self.gains[i].view(-1, *positions)
            if masks is not None:
                factors = masks.depth[i].repeat_interleave(self.shape.width, dim=1)
                z = z * factors.view(*factors.shape, *positions)
            h = h + z
        h = self.last(h)
        if self.shape.image:
            h = h.mean((2, 3))
        if masks is not None:
            h = h * masks.features
        logits = self.classifier(h).unflatten(1, (self.members, -1)).transpose(0, 1)
        return logits + self.bias
