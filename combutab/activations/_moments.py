"""Mean and variance of activations of a Gaussian variable: exact where known, else sampled."""

from __future__ import annotations

import math
from functools import singledispatch
from statistics import NormalDist

import torch
from torch import Tensor, nn

from combutab.activations._combu import CombU
from combutab.activations._elementwise import PReLU
from combutab.activations.kernels import is_itself

Moments = tuple[Tensor, Tensor]  # mean and variance, each of the shape of a per-feature tensor


def _standardized(mean: Tensor, std: Tensor) -> Tensor:
    # Beyond 40 the normal distribution has no mass left in float64; the clamp keeps a layer
    # whose gamma is 0 finite, forward and backward.
    return (mean / std.clamp_min(1e-12)).clamp(-40, 40)


def _density(t: Tensor) -> Tensor:
    return torch.exp(-0.5 * t * t) * (1 / math.sqrt(2 * math.pi))


def _relu_like(mean: Tensor, std: Tensor, above: Tensor | float, below: Tensor | float) -> Moments:
    """Exact moments of ``above x`` for x > 0, ``below x`` for x < 0, x ~ N(mean, std^2)."""
    t = _standardized(mean, std)
    up, density = torch.special.ndtr(t), _density(t)
    rectified = mean * up + std * density  # E[max(0, x)]
    rectified_neg = std * density - mean * torch.special.ndtr(-t)  # E[max(0, -x)]
    # Var[max(0, x)], written so that nothing cancels where the mean is far from zero
    var = std * std * up - rectified * rectified_neg
    tilt = above - below
    return (
        below * mean + tilt * rectified,
        # Var[below x + tilt max(0, x)], with Cov[x, max(0, x)] = std^2 Phi(t) by Stein's lemma
        std * std * below * (below + 2 * tilt * up) + tilt * tilt * var,
    )


def _elu_like(mean: Tensor, std: Tensor, above: float, below: float, rate: float) -> Moments:
    """Exact moments of ``above x`` for x > 0, ``below (exp(rate x) - 1)`` for x < 0."""
    t = _standardized(mean, std)

    def partial_exp(k: float) -> Tensor:  # E[exp(k x); x < 0], at most 1
        # log Phi is below -1e-32 past 12; there its derivative is lost to inf / inf in float32
        tail = torch.special.log_ndtr((-t - k * std).clamp_max(12))
        return torch.exp(k * mean + 0.5 * (k * std) ** 2 + tail)

    mean_up, var_up = _relu_like(mean, std, above, 0.0)
    one, two, below_zero = partial_exp(rate), partial_exp(2 * rate), torch.special.ndtr(-t)
    mean_down = below * (one - below_zero)
    var_down = below * below * (two - 2 * one + below_zero) - mean_down * mean_down
    # One of the two pieces is always zero, so their covariance is minus the product of means.
    return mean_up + mean_down, var_up + var_down - 2 * mean_up * mean_down


@singledispatch
def closed_form(activation: nn.Module, mean: Tensor, std: Tensor) -> Moments | None:
    """Mean and variance of ``activation(x)`` for x ~ N(mean, std^2), or None if unknown."""
    return None


@closed_form.register
def _(activation: nn.Identity, mean: Tensor, std: Tensor) -> Moments:
    return mean, std * std


@closed_form.register
def _(activation: nn.ReLU, mean: Tensor, std: Tensor) -> Moments:
    return _relu_like(mean, std, 1.0, 0.0)


@closed_form.register
def _(activation: nn.LeakyReLU, mean: Tensor, std: Tensor) -> Moments:
    return _relu_like(mean, std, 1.0, activation.negative_slope)


@closed_form.register
def _(activation: PReLU, mean: Tensor, std: Tensor) -> Moments:
    return _relu_like(mean, std, 1.0, activation.weight.to(mean.dtype))


@closed_form.register
def _(activation: nn.ELU, mean: Tensor, std: Tensor) -> Moments:
    return _elu_like(mean, std, 1.0, activation.alpha, 1.0)


@closed_form.register
def _(activation: nn.CELU, mean: Tensor, std: Tensor) -> Moments:
    return _elu_like(mean, std, 1.0, activation.alpha, 1 / activation.alpha)


@closed_form.register
def _(activation: nn.SELU, mean: Tensor, std: Tensor) -> Moments:
    scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
    return _elu_like(mean, std, scale, scale * alpha, 1.0)


def gaussian_points(n: int, like: Tensor) -> Tensor:
    """The standard normal's quantiles at n points uniform in probability, symmetric about 0."""
    if torch.compiler.is_exporting():  # the operator below has no equivalent in ONNX
        values = [NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)]
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    levels = (torch.arange(n, dtype=torch.float64, device=like.device) + 0.5) / n
    return torch.special.ndtri(levels).to(like.dtype)


def sampled(activation: nn.Module, mean: Tensor, std: Tensor, n_samples: int) -> Moments:
    """Moments over n_samples points; they stand on a new first axis, before any member axis."""
    points = gaussian_points(n_samples, mean).view(-1, *(1,) * mean.ndim)
    var, average = torch.var_mean(activation(mean + std * points), dim=0, correction=0)
    return average, var


def moments(
    activation: nn.Module, mean: Tensor, std: Tensor, n_samples: int, exact: bool = True
) -> Moments:
    """Moments of ``activation(x)``, x ~ N(mean, std^2), each (width,) or (members, 1, width)."""
    if not exact or not is_itself(activation):
        return sampled(activation, mean, std, n_samples)
    if isinstance(activation, CombU):
        mean, std = activation.to_parts(mean), activation.to_parts(std)
        pieces = [
            moments(part, mean.narrow(-1, start, length), std.narrow(-1, start, length), n_samples)
            for part, (_, start, length) in zip(activation.parts, activation.spans, strict=True)
        ]
        means, variances = zip(*pieces, strict=True)
        return (
            activation.from_parts(torch.cat(means, -1)),
            activation.from_parts(torch.cat(variances, -1)),
        )
    known = closed_form(activation, mean, std)
    return sampled(activation, mean, std, n_samples) if known is None else known
