"""Networks at initialisation, on scikit-learn's digits, and the powers of their layers.

Random nets are those of the Proxy Normalization paper's Definition 1, residual ones are Figure 6's
ResNet-50 (v2) but for a stem of one 3 x 3 convolution and a single stage that halves the image. The
networks of one draw share inputs, weights and affine parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from combutab.activations import ProxyNorm
from combutab.activations.kernels import observer
from combutab.evaluation import power_decomposition

NORMS = ("BN", "LN", "GN", "LN+PN", "GN+PN", "LN+WS")
WITH_IN = ("BN", "IN", *NORMS[1:])  # not for dense nets, which have no positions
GROUP_SIZE = 8  # the paper's: 1024 channels in 128 groups
RESIDUAL_GROUP_SIZE = 2  # in the narrowest layers, as the paper's 64 channels in 32 groups
EPS, PROXY_EPS = 1e-6, 0.03
SPREAD = 0.2  # standard deviation of beta ~ N(0, 0.2^2) and gamma ~ N(1, 0.2^2)
RHO = (1 + SPREAD**2) / (1 + 2 * SPREAD**2)  # Theorem 1: gamma^2 / (gamma^2 + beta^2)
TERMS = ["P", "P1", "P2", "P3", "P4"]
PHIS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "identity": nn.Identity}
BLOCKS = {16: (3, 4, 6, 3), 4: (1, 1, 1, 1)}  # of each stage, by the depth
EXPANSION = 4
Make = Callable[..., Any]


@dataclass(frozen=True)
class Net:
    """Networks of one size, one a norm; ``kind`` is "conv", "dense" or "residual".

    The depth of a residual network counts blocks, its width is that of the first stage's 3 x 3
    convolutions. With ``every_depth`` LN, whose bound is checked, is measured everywhere.
    """

    kind: str
    width: int
    depth: int
    norms: tuple[str, ...] = NORMS
    phi: str = "relu"
    n_inputs: int = 64
    every_depth: bool = False

    @property
    def sites(self) -> list[tuple[str, int]]:
        """Norms and the depths at which they are measured."""
        depths = range(1, self.depth + 1)
        few = [depth for depth in depths if depth <= 20 or depth % 10 == 0]
        every = ("LN",) * self.every_depth
        return [(norm, d) for norm in self.norms for d in (depths if norm in every else few)]

    def build(
        self, norm: str, draw: int, *, dtype: torch.dtype = torch.float32, eps: float = EPS
    ) -> tuple[nn.Sequential, Tensor]:
        """Draw a network, whose modules are named by their depth from 1, and its inputs."""
        generator = torch.Generator().manual_seed(draw)
        X = draw_inputs(self, generator, dtype)
        return nn.Sequential(*draw_layers(self, norm, generator, dtype, eps)), X

    def measure(self, draw: int) -> pd.DataFrame:
        """Measure terms (of a block pooled) and the nonlinearity of phi, as in ``sites``."""
        found = {}
        for norm in self.norms:
            network, X = self.build(norm, draw)
            n = len(X)  # BN takes the statistics of all rows, as in the paper
            power = power_decomposition(network, X, dim=1, per_channel=True, batch_size=n)
            depth = power["layer"].str.partition(".")[0].astype(int)
            found[norm] = power.groupby(depth).mean(numeric_only=True)[TERMS]  # over channels
            if self.kind != "residual" and self.phi == "relu":
                dim = -1 if norm.endswith("+PN") else 1  # where ProxyNorm puts the channels
                found[norm]["nonlinearity"] = nonlinearity(network, X, dim)
        return pd.concat(found).loc[self.sites]


def nonlinearity(network: nn.Sequential, X: Tensor, dim: int) -> pd.Series:
    """Measure how far each ReLU is from linear in its channels: P(z - z~) / P(z), by its depth.

    ``z~ = lambda_c y`` is the best linear fit in channel c, Eqs. (20) and (21); NaN where z is 0.
    """
    found: dict[int, float] = {}

    def look(relu: nn.Module, given: tuple[Tensor], gives: Tensor) -> None:
        y, z = (each.double().movedim(dim, 0).flatten(1) for each in (given[0], gives))
        yy, yz, zz = ((a * b).mean(1) for a, b in ((y, y), (y, z), (z, z)))
        explained = (yz.square() / yy).nan_to_num(0.0)  # lambda = E[y z] / E[y^2], and 0 where y is
        found[depths[relu]] = ((zz - explained).clamp_min(0).sum() / zz.sum()).item()

    named = network.named_modules()
    depths = {each: int(name.split(".")[0]) for name, each in named if isinstance(each, nn.ReLU)}
    for relu in depths:
        relu.register_forward_hook(observer(look))
    with torch.no_grad():
        network.eval()(X)
    return pd.Series(found)


def draw_inputs(net: Net, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Draw digits, (rows, 1, 8, 8) or (rows, 64, 1, 1), each channel centred, all of one scale."""
    images = torch.from_numpy(load_digits().images).to(dtype)
    chosen = images[torch.randperm(len(images), generator=generator)[: net.n_inputs]]
    rows = chosen.view((-1, 64, 1, 1) if net.kind == "dense" else (-1, 1, 8, 8))
    rows = rows - rows.mean((0, 2, 3), keepdim=True)
    return rows / rows.square().mean().sqrt()


def draw_weight(shape: Sequence[int], generator: Any = None, dtype: Any = None) -> Tensor:
    """Normal, cut at two standard deviations, over the square root of the fan-in."""
    weight = torch.empty(*shape, dtype=dtype)
    nn.init.trunc_normal_(weight, generator=generator)
    return weight / math.sqrt(math.prod(shape[1:]))


class Conv(nn.Conv2d):
    """A convolution without bias; with WS in the norm's name its weights are standardised by unit.

    Of size 1 it is a dense layer in each position. Other options are those of the drawing.
    """

    def __init__(
        self, norm: str, n_in: int, n_out: int, size: int, stride: int = 1,
        *, padding_mode: str = "zeros", **draw: Any,
    ) -> None:  # fmt: skip
        shape = (n_in, n_out, size, stride, size // 2)
        super().__init__(*shape, bias=False, padding_mode=padding_mode)
        self.weight = nn.Parameter(draw_weight((n_out, n_in, size, size), **draw))
        self.standardise = "+WS" in norm

    def reset_parameters(self) -> None:
        """Draw nothing."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        if self.standardise:
            std, mean = torch.std_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
            weight = (weight - mean) / (std * math.sqrt(weight[0].numel()))
        return self._conv_forward(x, weight, None)


class Affine(nn.Module):
    """The affine part of Eq. (4), which gives y with a tilde: (rows, width, h, w) -> the same."""

    def __init__(self, gamma: Tensor, beta: Tensor) -> None:
        super().__init__()
        self.gamma, self.beta = gamma.view(-1, 1, 1), beta.view(-1, 1, 1)

    def forward(self, y: Tensor) -> Tensor:
        return torch.addcmul(self.beta, y, self.gamma)


def make_steps(
    norm: str, groups: int, eps: float, gamma: Tensor, beta: Tensor, phi: str = "relu"
) -> list[nn.Module]:
    """Make the normalisation, Eq. (3), and the activation: Eq. (4), or with PN Eq. (7)."""
    width, y = len(gamma), nn.Module()
    if norm == "BN":
        y = nn.BatchNorm2d(width, eps, affine=False, track_running_stats=False)
    elif norm == "IN":
        y = nn.InstanceNorm2d(width, eps)
    else:
        y = nn.GroupNorm(groups if norm.startswith("GN") else 1, width, eps, affine=False)
    if not norm.endswith("+PN"):
        return [y, Affine(gamma, beta), PHIS[phi]()]
    z = ProxyNorm(PHIS[phi](), width, eps=PROXY_EPS, proxy_params=False, dim=1)
    z.gamma, z.beta = nn.Parameter(gamma), nn.Parameter(beta)
    return [y, z]


def draw_layers(
    net: Net, norm: str, generator: torch.Generator, dtype: torch.dtype, eps: float
) -> Iterator[nn.Module]:
    """Draw what stands before the first layer, and the layers or blocks."""
    conv = partial(Conv, norm, generator=generator, dtype=dtype)
    if net.kind == "residual":
        yield conv(1, net.width, 3)
        width_in = net.width
        steps = partial(make_steps, norm, max(1, net.width // RESIDUAL_GROUP_SIZE), eps)
        for stage, n_blocks in enumerate(BLOCKS[net.depth]):
            for number in range(n_blocks):
                width, stride = net.width * 2**stage, 2 if (stage, number) == (1, 0) else 1
                yield Block(conv, steps, width_in, width, stride)
                width_in = EXPANSION * width
        return
    yield nn.Identity()
    width_in, size, mode = (64, 1, "zeros") if net.kind == "dense" else (1, 3, "circular")
    for depth in range(net.depth):
        gamma, beta = torch.randn(2, net.width, generator=generator, dtype=dtype) * SPREAD
        stride = 2 if depth == 0 and size == 3 else 1  # halves the image, as theirs
        steps = make_steps(norm, max(1, net.width // GROUP_SIZE), eps, 1 + gamma, beta, net.phi)
        yield nn.Sequential(conv(width_in, net.width, size, stride, padding_mode=mode), *steps)
        width_in = net.width


class Block(nn.Module):
    """A bottleneck block of version 2, whose skip connection starts after the first activation.

    (rows, width_in, h, w) -> (rows, EXPANSION * width, h / stride, w / stride)
    """

    def __init__(self, conv: Make, steps: Make, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        widths, last = (width_in, width, width), EXPANSION * width
        first, second, third = (steps(torch.ones(w), torch.zeros(w)) for w in widths)
        self.first = nn.Sequential(*first)
        layers = [conv(width_in, width, 1), *second, conv(width, width, 3, stride), *third]
        self.branch = nn.Sequential(*layers, conv(width, last, 1))
        changes = stride > 1 or width_in != last
        self.skip = conv(width_in, last, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        out: Tensor = self.branch(z) + (x if self.skip is None else self.skip(z))
        return out
