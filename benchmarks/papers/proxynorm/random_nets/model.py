"""The random nets of the Proxy Normalization paper, Definition 1, and what is measured in them.

Convolutional with periodic padding, or dense, on scikit-learn's digits. The networks of one draw
share inputs, weights and affine parameters: they differ in their normalisation alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from combutab.activations import ProxyNorm
from combutab.evaluation import channelwise_linearity, power_decomposition

NORMS = ("BN", "IN", "LN", "GN", "LN+PN", "GN+PN", "LN+WS")
GROUP_SIZE = 8  # the paper's: 1024 channels in 128 groups
EPS, PROXY_EPS = 1e-6, 0.03
SPREAD = 0.2  # standard deviation of beta ~ N(0, 0.2^2) and gamma ~ N(1, 0.2^2)
RHO = (1 + SPREAD**2) / (1 + 2 * SPREAD**2)  # Theorem 1: gamma^2 / (gamma^2 + beta^2)
PHIS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "identity": nn.Identity}
TERMS = ("P", "P1", "P2", "P3", "P4")
Measured = dict[tuple[str, int], dict[str, float]]  # by norm and depth


@dataclass(frozen=True)
class Net:
    """A random net of Definition 1; ``kind`` is "conv" (kernels of 3 x 3) or "dense".

    With ``every_depth`` LN, whose bound is checked, is measured everywhere.
    """

    kind: str
    width: int
    depth: int
    norms: tuple[str, ...] = NORMS
    phi: str = "relu"
    n_inputs: int = 64
    every_depth: bool = False

    def __post_init__(self) -> None:
        if self.kind == "dense" and "IN" in self.norms:
            raise ValueError(
                "IN has nothing to normalise over in a dense net, which has no positions; leave "
                "it out of norms"
            )

    @property
    def sites(self) -> list[tuple[str, int]]:
        """Norms and depths that are measured."""
        depths = range(1, self.depth + 1)
        always = {"LN"} if self.every_depth else set()
        return [(norm, d) for norm in self.norms for d in depths if norm in always or _on_grid(d)]

    def measure(self, draw: int) -> Measured:
        """Each norm's powers of y and nonlinearity of phi."""
        found, sites = {}, set(self.sites)
        for depth, norm, step, x, layer in walk(self, draw):
            if (norm, depth) not in sites:
                continue
            # batch_size: BN takes the statistics of all rows, as in the paper
            power = power_decomposition(step, x, dim=1, batch_size=len(x)).iloc[0]
            found[norm, depth] = {term: float(power[term]) for term in TERMS}
            if self.phi != "identity" and _on_grid(depth):
                y = layer.shift(step(x))
                linear = channelwise_linearity(PHIS[self.phi](), y, dim=1, batch_size=len(x))
                found[norm, depth]["nonlinearity"] = float(linear["nonlinearity"].iloc[0])
        return found


def _on_grid(depth: int) -> bool:
    return depth <= 20 or depth % 10 == 0


@dataclass(frozen=True)
class Layer:
    """Weights (width, width_in[, 3, 3]) and affine parameters (width,) of one layer."""

    weight: Tensor
    gamma: Tensor
    beta: Tensor
    stride: int = 1

    def convolve(self, z: Tensor, *, standardise: bool) -> Tensor:
        """Eq. (2), with periodic boundaries: (rows, width_in, ...) -> (rows, width, ...)."""
        weight = standardised(self.weight) if standardise else self.weight
        if z.ndim == 2:
            return F.linear(z, weight)
        return F.conv2d(F.pad(z, (1, 1, 1, 1), mode="circular"), weight, stride=self.stride)

    def shift(self, y: Tensor) -> Tensor:
        """The affine part of Eq. (4): y with a tilde."""
        shape = (-1, *[1] * (y.ndim - 2))
        return torch.addcmul(self.beta.view(shape), y, self.gamma.view(shape))


def draw_weight(
    shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Normal, cut at two standard deviations, over the square root of the fan-in."""
    weight = torch.empty(shape, dtype=dtype)
    nn.init.trunc_normal_(weight, generator=generator)
    return weight / math.sqrt(math.prod(shape[1:]))


def standardised(weight: Tensor) -> Tensor:
    """Weight standardisation: each unit's weights with mean 0 and mean square 1 / fan-in."""
    flat = weight.flatten(1)
    std, mean = torch.std_mean(flat, dim=1, correction=0, keepdim=True)
    return ((flat - mean) / (std * math.sqrt(flat.shape[1]))).view_as(weight)


def make_norm(
    name: str, width: int, n_axes: int, *, groups: int | None = None, eps: float = EPS
) -> nn.Module:
    """The normalisation step of Eq. (3), for values of ``n_axes`` axes with channels second."""
    if name == "BN":
        kind = nn.BatchNorm1d if n_axes == 2 else nn.BatchNorm2d
        return kind(width, eps=eps, affine=False, track_running_stats=False)
    if name == "IN":
        return nn.InstanceNorm2d(width, eps=eps)
    if name.startswith("GN"):
        groups = max(1, width // GROUP_SIZE) if groups is None else groups
        return nn.GroupNorm(groups, width, eps=eps, affine=False)
    if name.startswith("LN"):
        return nn.GroupNorm(1, width, eps=eps, affine=False)
    raise ValueError(f"no normalisation is called {name!r}; there are {', '.join(NORMS)}")


def activate(norm: str, phi: nn.Module, layer: Layer, y: Tensor) -> Tensor:
    """The activation step, Eq. (4), or Eq. (7) where PN is in the norm's name."""
    if not norm.endswith("+PN"):
        return phi(layer.shift(y))
    step = ProxyNorm(phi, len(layer.gamma), eps=PROXY_EPS, proxy_params=False, dim=1).to(y.dtype)
    step.gamma.copy_(layer.gamma)
    step.beta.copy_(layer.beta)
    return step(y)


def draw_inputs(net: Net, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Digits, (rows, 1, 8, 8) or (rows, 64), each channel centred and all of one scale."""
    images = torch.from_numpy(load_digits().images).to(dtype)
    chosen = images[torch.randperm(len(images), generator=generator)[: net.n_inputs]]
    if net.kind == "dense":
        rows = chosen.flatten(1)
        rows = rows - rows.mean(0)
    else:
        rows = (chosen - chosen.mean()).unsqueeze(1)
    return rows / rows.square().mean().sqrt()


@torch.no_grad()
def walk(
    net: Net, draw: int, *, dtype: torch.dtype = torch.float32, eps: float = EPS
) -> Iterator[tuple[int, str, nn.Module, Tensor, Layer]]:
    """Pass the digits through the networks of a draw, one for each norm, layer by layer.

    Yields depth, norm, the normalisation module, what it is given, and the layer. Layers are drawn
    when they are reached, so that no network is ever held whole.
    """
    generator = torch.Generator().manual_seed(draw)
    inputs = draw_inputs(net, generator, dtype)
    phi, kernel = PHIS[net.phi](), (3, 3) if net.kind == "conv" else ()
    values = dict.fromkeys(net.norms, inputs)
    for depth in range(1, net.depth + 1):
        width_in = inputs.shape[1] if depth == 1 else net.width
        gamma, beta = torch.randn(2, net.width, generator=generator, dtype=dtype) * SPREAD
        layer = Layer(
            draw_weight((net.width, width_in, *kernel), generator, dtype),
            1 + gamma,
            beta,
            stride=2 if net.kind == "conv" and depth == 1 else 1,  # halves the image, as theirs
        )
        for norm in net.norms:
            step = make_norm(norm, net.width, inputs.ndim, eps=eps)
            x = layer.convolve(values[norm], standardise=norm.endswith("+WS"))
            yield depth, norm, step, x, layer
            values[norm] = activate(norm, phi, layer, step(x))
