"""Residual networks with a norm and an activation before each map, M of them as one stack.

A network is the paper's pre-activation ResNet in small: a first map, blocks of (norm, activation,
map) twice with a skip connection, a last norm and activation, the mean over positions, a linear
classifier. Maps are 3 x 3 convolutions of 8 x 8 images; a row of a table is an image of one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.papers.proxynorm.random_nets.nets import EPS, Conv, draw_weight
from combutab.activations import ProxyNorm
from combutab.nn import Member, StackedActivation, TableNetwork

NORMS = ("BN", "BN+PN", "LN", "LN+PN", "GN", "GN+PN", "GN+WS", "GN+WS+PN")
MOMENTUM = 0.03  # of BN's running statistics: the paper's decay factor is 0.97
DROPOUT, DEPTH_DROP = 0.25, 0.1  # of the extra regularisation, the paper's on CIFAR


@dataclass(frozen=True)
class Shape:
    """What all members share; ``groups`` are of group norm, ``extra`` is whether they drop out."""

    n_inputs: int
    n_classes: int
    norm: str
    groups: int
    width: int
    n_blocks: int
    image: bool = False
    extra: bool = False

    def conv(self, n_in: int, n_out: int, stride: int = 1) -> nn.Module:
        return Conv(self.norm, n_in, n_out, 3 if self.image else 1, stride)

    def norm_act(self, *, scale: bool = True) -> list[nn.Module]:
        """Make a norm and an activation; ``scale`` is whether ProxyNorm divides too."""
        proxy, width = self.norm.endswith("+PN"), self.width
        return [
            nn.BatchNorm2d(width, EPS, MOMENTUM, affine=not proxy)
            if self.norm.startswith("BN")
            else nn.GroupNorm(self.groups, width, EPS, affine=not proxy),
            # ProxyNorm brings gain and shift
            ProxyNorm("relu", width, scale=scale, dim=1) if proxy else nn.ReLU(),
        ]


class Block(nn.Module):
    """A residual block, (rows, width, h, w) -> the same; ``extra`` drops its branch, by rows."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        first, second = (
            [*shape.norm_act(), shape.conv(shape.width, shape.width)] for _ in range(2)
        )
        self.branch, self.rate = nn.Sequential(*first, *second), DEPTH_DROP * shape.extra
        # after standardised weights nothing else could weigh a branch
        gain = torch.ones(shape.width, 1, 1)
        self.gain = nn.Parameter(gain) if "+WS" in shape.norm else None

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.branch(x)
        if self.gain is not None:
            z = z * self.gain
        if self.rate and self.training:
            z = z * F.dropout(x.new_ones(len(x), 1, 1, 1), self.rate)
        return x + z


def residual_network(shape: Shape) -> nn.Sequential:
    """Make a network of rows, (rows, n_inputs) -> (rows, n_classes)."""
    side, channels = (8, 1) if shape.image else (1, shape.n_inputs)
    classifier = nn.Linear(shape.width, shape.n_classes)
    classifier.weight = nn.Parameter(draw_weight(classifier.weight.shape))
    nn.init.zeros_(classifier.bias)
    return nn.Sequential(
        nn.Unflatten(1, (channels, side, side)),
        shape.conv(channels, shape.width, 2 if shape.image else 1),
        *(Block(shape) for _ in range(shape.n_blocks)),
        # the paper leaves ProxyNorm's scale out before a mean over positions
        *shape.norm_act(scale=not shape.image),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(DROPOUT * shape.extra),
        classifier,
    )


class ResidualNets(TableNetwork):
    """M residual networks; those of equal seeds begin with equal weights whatever their norm.

    >>> nets = ResidualNets(Shape(5, 3, "LN+PN", groups=1, width=8, n_blocks=2), seeds=[0, 1])
    >>> nets(torch.zeros(2, 4, 5)).shape
    torch.Size([2, 4, 3])
    """

    def __init__(self, shape: Shape, seeds: Sequence[int]) -> None:
        super().__init__([Member(seed, "relu") for seed in seeds])

        def make(width: int) -> nn.Module:
            return residual_network(shape)

        # a stack of modules of a user's takes any: one a member, with draws from its seed
        self.nets = StackedActivation([make] * len(seeds), shape.width, seeds)
        self._flatten(torch.float32, torch.device("cpu"))
        self.n_decayed = self.flat.values.shape[1]  # all parameters, as torch.optim.SGD has it

    def forward(self, dense: Tensor, *_: object) -> Tensor:
        # (M, batch, n_inputs) -> (M, batch, n_classes)
        return self.nets(dense)
