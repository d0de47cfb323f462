"""Residual networks at initialisation, as Figure 6 of the Proxy Normalization paper.

ResNet-50 (v2): bottleneck blocks of normalisation, activation and convolution, thrice. Digits take
the place of ImageNet, so the stem is one 3 x 3 convolution and only the second stage halves the
image (8 x 8 to 4 x 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.papers.proxynorm.random_nets.model import (
    NORMS,
    PROXY_EPS,
    TERMS,
    Measured,
    draw_weight,
    make_norm,
    standardised,
)
from combutab.activations import ProxyNorm
from combutab.evaluation import power_decomposition

EXPANSION = 4
STRIDES = (1, 2, 1, 1)  # of the stages
GROUP_SIZE = 2  # in the first stage's narrowest layers, as the paper's 64 channels in 32 groups


@dataclass(frozen=True)
class Residual:
    """A residual network; ``width`` is that of the first stage's 3 x 3 convolutions."""

    width: int
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    norms: tuple[str, ...] = tuple(name for name in NORMS if name != "IN")
    n_inputs: int = 128
    kind: str = "residual"
    phi: str = "relu"

    @property
    def depth(self) -> int:
        """Its number of blocks."""
        return sum(self.blocks)

    @property
    def sites(self) -> list[tuple[str, int]]:
        """Norms and blocks that are measured."""
        return [(norm, block) for norm in self.norms for block in range(1, self.depth + 1)]

    def measure(self, draw: int) -> Measured:
        """Each norm's powers by block, the channels of a block's three normalisations pooled."""
        images, found = torch.from_numpy(load_digits().images).float().unsqueeze(1), {}
        for norm in self.norms:
            generator = torch.Generator().manual_seed(draw)  # the same weights for each
            X = images[torch.randperm(len(images), generator=generator)[: self.n_inputs]]
            X = (X - X.mean()) / X.std()
            net = build(self, norm, generator)
            power = power_decomposition(net, X, dim=1, per_channel=True, batch_size=len(X))
            block = power["layer"].str.split(".").str[0].astype(int)  # 0 is the stem
            for depth, values in power.groupby(block)[list(TERMS)].mean().iterrows():
                found[norm, int(depth)] = values.to_dict()
        return found


class Block(nn.Module):
    """A bottleneck block of version 2: the skip connection starts after the first activation.

    The skip connection is a convolution where the shape changes.
    """

    def __init__(
        self,
        norm: str,
        groups: int,
        width_in: int,
        width: int,
        stride: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        inside = (width_in, width, width, EXPANSION * width)
        self.norms = nn.ModuleList(make_norm(norm, w, 4, groups=groups) for w in inside[:3])
        proxy = partial(ProxyNorm, "relu", eps=PROXY_EPS, proxy_params=False, dim=1)
        self.activations = nn.ModuleList(
            proxy(w) if norm.endswith("+PN") else nn.ReLU() for w in inside[:3]
        )
        self.convs = nn.ModuleList(
            _conv(norm, inside[i], inside[i + 1], (1, 3, 1)[i], stride if i == 1 else 1, generator)
            for i in range(3)
        )
        changes = stride > 1 or width_in != inside[3]
        self.skip = _conv(norm, width_in, inside[3], 1, stride, generator) if changes else None

    def forward(self, x: Tensor) -> Tensor:  # (rows, width_in, h, w) -> (rows, width_out, h', w')
        z = self.activations[0](self.norms[0](x))
        skipped = x if self.skip is None else self.skip(z)
        z = self.convs[0](z)
        for i in (1, 2):
            z = self.convs[i](self.activations[i](self.norms[i](z)))
        return z + skipped


def _conv(
    norm: str, width_in: int, width: int, kernel: int, stride: int, generator: torch.Generator
) -> nn.Conv2d:
    conv = nn.Conv2d(width_in, width, kernel, stride, padding=kernel // 2, bias=False)
    with torch.no_grad():
        weight = draw_weight(tuple(conv.weight.shape), generator)
        conv.weight.copy_(standardised(weight) if norm.endswith("+WS") else weight)
    return conv


def build(net: Residual, norm: str, generator: torch.Generator) -> nn.Sequential:
    """Build the network as it is initialised: gamma = 1 and beta = 0, so left out of the steps."""
    groups = max(1, net.width // GROUP_SIZE)
    layers: list[nn.Module] = [_conv(norm, 1, net.width, 3, 1, generator)]
    width_in = net.width
    for stage, n_blocks in enumerate(net.blocks):
        width = net.width * 2**stage
        for number in range(n_blocks):
            stride = STRIDES[stage] if number == 0 else 1
            layers.append(Block(norm, groups, width_in, width, stride, generator))
            width_in = EXPANSION * width
    return nn.Sequential(*layers)
