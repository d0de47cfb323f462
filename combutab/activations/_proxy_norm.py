"""ProxyNorm: an activation step normalised by the moments of a Gaussian stand-in."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from combutab.activations._combu import CombU
from combutab.activations._registry import make_activation
from combutab.activations._unitwise import PReLU
from combutab.activations.kernels import (
    Activation,
    Affine,
    Kernel,
    Vectors,
    is_itself,
    is_known,
    is_observed,
    kernel_of,
    known,
    wide,
)

# ---- ProxyNorm: an activation step normalised by the moments of a Gaussian stand-in --------------


@known
class ProxyNorm(Activation):
    """Proxy-normalised activation, ``(phi(gamma y + beta) - mean) / sqrt(variance + eps)``.

    Mean and variance are those of ``phi(gamma Y + beta)`` for a Gaussian proxy
    ``Y ~ N(proxy_beta, (1 + proxy_gamma)^2)``. They depend on the parameters and not on the batch.
    The input y is the output of a LayerNorm or GroupNorm without affine parameters.

    Parameters
    ----------
    activation : str, callable or nn.Module
        The unit-wise activation phi, as in ``make_activation``, or a module that acts on the last
        axis.
    width : int
        Number of features.
    eps : float, default 0.03
        Added to the proxy's variance.
    proxy_params : bool, default True
        Whether to learn ``proxy_beta`` and ``proxy_gamma``. Both start at 0; use weight decay to
        keep them small. If False, the proxy is standard normal.
    scale : bool, default True
        Whether to divide by the standard deviation. If False, only the mean is subtracted, as
        before a final mean pooling.
    n_samples : int, default 256
        Number of points, uniform in probability, for moments without a closed form.
    closed_form : bool, default True
        Whether to use closed forms of the moments. If False, all moments are computed from points.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``gamma``, ``beta``, ``proxy_beta`` and ``proxy_gamma`` are
    (width,); in a stack they are (members, 1, width), and moments are computed per member.

    Raises
    ------
    ValueError
        If phi depends on more than one unit (PLN, PLS, LayerAct, or a module for which a test with
        random inputs shows it) or is random. The proxy is the distribution of a single unit, not
        the joint distribution of several.

    References
    ----------
    "Proxy-normalizing activations to match batch normalization while removing batch
    dependence", Eq. (7) and appendix C.

    Examples
    --------
    >>> act = ProxyNorm("relu", 3, eps=0.0)
    >>> act(torch.tensor([[-1.0, 0.0, 2.0]])).detach()
    tensor([[-0.6833, -0.6833,  2.7424]])
    """

    def __init__(
        self,
        activation: str | Callable[[int], nn.Module] | nn.Module,
        width: int,
        *,
        eps: float = 0.03,
        proxy_params: bool = True,
        scale: bool = True,
        n_samples: int = 256,
        closed_form: bool = True,
        dim: int = -1,
    ) -> None:
        super().__init__()
        if eps < 0:
            raise ValueError(f"eps must not be negative, got {eps=}")
        if n_samples < 2:
            raise ValueError(f"n_samples must be at least 2 to have a variance, got {n_samples=}")
        if not isinstance(activation, nn.Module):
            activation = make_activation(activation, width)
        if getattr(activation, "dim", -1) != -1:
            raise ValueError(
                "the activation inside ProxyNorm must act on the last axis, got one built with "
                f"dim={activation.dim}; build it with dim=-1 and give dim to ProxyNorm"
            )
        _check_unitwise(activation, width)
        self.activation = activation
        self.width, self.eps, self.scale, self.dim = width, eps, scale, dim
        self.n_samples, self.closed_form = n_samples, closed_form
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))
        self.proxy_beta = nn.Parameter(torch.zeros(width)) if proxy_params else None
        self.proxy_gamma = nn.Parameter(torch.zeros(width)) if proxy_params else None

    def moments(self) -> tuple[Tensor, Tensor]:
        """Compute mean and variance of ``phi(gamma Y + beta)``, (width,) or (members, 1, width)."""
        gamma, beta = wide(self.gamma), wide(self.beta)
        mean, std = beta, gamma.abs()
        if self.proxy_beta is not None and self.proxy_gamma is not None:
            mean = torch.addcmul(beta, gamma, wide(self.proxy_beta))
            std = (gamma * (1 + wide(self.proxy_gamma))).abs()
        mean, var = moments(self.activation, mean, std, self.n_samples, self.closed_form)
        return mean, var.clamp_min(0)  # rounding may leave a variance of 0 just below it

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x)
        kernel = None if is_observed(self.activation) else self.kernel()
        if kernel is not None:
            return self.run(kernel, x)
        y = x.movedim(self.dim, -1)
        gamma, beta, scale, shift = (v.to(x.dtype) for v in self._own_vectors())
        # ProxyNorm Eq. (7)
        z = torch.addcmul(shift, self.activation(torch.addcmul(beta, y, gamma)), scale)
        return z.movedim(-1, self.dim)

    def kernel(self) -> Kernel | None:
        phi = kernel_of(self.activation)
        return None if phi is None else Affine(phi)

    def vectors(self) -> Vectors:
        phi = self.activation
        return *self._own_vectors(), *(phi.vectors() if isinstance(phi, Activation) else ())

    def _own_vectors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, var = self.moments()
        scale = torch.rsqrt(var + self.eps) if self.scale else torch.ones_like(mean)
        return self.gamma, self.beta, scale, -mean * scale

    def extra_repr(self) -> str:
        return (
            f"{self.width}, eps={self.eps}, proxy_params={self.proxy_beta is not None}, "
            f"scale={self.scale}, n_samples={self.n_samples}, closed_form={self.closed_form}, "
            f"dim={self.dim}"
        )


def _check_unitwise(activation: nn.Module, width: int) -> None:
    """Refuse activations that are not unit-wise.

    For unknown modules, half of some random inputs is changed: the outputs of the other half must
    stay equal.
    """
    for module in activation.modules():
        if isinstance(module, ProxyNorm) or not getattr(module, "unitwise", True):
            raise ValueError(
                "ProxyNorm needs a unit-wise activation, whose moments follow from the "
                f"distribution of one unit; {type(module).__name__} looks at many units at "
                "once (or is normalised already), so no Gaussian proxy of a single unit "
                "gives its moments; use an elementwise activation or CombU"
            )
    if is_known(activation):
        return
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([0.1, 1.0, 1.0, 1.0, 10.0, 10.0]).unsqueeze(1)
    x, other_x = torch.randn(2, 6, width, generator=generator) * sizes
    same = torch.rand(6, width, generator=generator) < 0.5
    tensors = [*activation.parameters(), *activation.buffers()]
    before = [tensor.detach().clone() for tensor in tensors]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        first, second = activation(x.clone()), activation(torch.where(same, x, other_x))
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)
    if first.shape != x.shape or not torch.allclose(first[same], second[same], equal_nan=True):
        raise ValueError(
            "ProxyNorm needs a unit-wise activation, each of whose outputs follows from one input; "
            f"in a trial those of {activation} changed with other inputs or by chance"
        )


# ---- Mean and variance of activations of a Gaussian variable: exact where known, else sampled ----

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
    moment, second_moment, below_zero = (
        partial_exp(rate),
        partial_exp(2 * rate),
        torch.special.ndtr(-t),
    )
    mean_down = below * (moment - below_zero)
    var_down = below * below * (second_moment - 2 * moment + below_zero) - mean_down * mean_down
    # One of the two pieces is always zero, so their covariance is minus the product of means.
    return mean_up + mean_down, var_up + var_down - 2 * mean_up * mean_down


_SELU = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717  # scale, alpha
# A known module, mean and standard deviation of its input -> mean and variance of its output
_EXACT: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Moments]] = {
    nn.Identity: lambda _, mean, std: (mean, std * std),
    nn.ReLU: lambda _, mean, std: _relu_like(mean, std, 1.0, 0.0),
    nn.LeakyReLU: lambda m, mean, std: _relu_like(mean, std, 1.0, m.negative_slope),
    PReLU: lambda m, mean, std: _relu_like(mean, std, 1.0, m.weight.to(mean.dtype)),
    nn.ELU: lambda m, mean, std: _elu_like(mean, std, 1.0, m.alpha, 1.0),
    nn.CELU: lambda m, mean, std: _elu_like(mean, std, 1.0, m.alpha, 1 / m.alpha),
    nn.SELU: lambda _, mean, std: _elu_like(mean, std, _SELU[0], math.prod(_SELU), 1.0),
}


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
    if type(activation) in _EXACT:
        return _EXACT[type(activation)](activation, mean, std)
    return sampled(activation, mean, std, n_samples)
