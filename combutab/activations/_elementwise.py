"""Activations that act on every unit alone, and the table that names them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations._functions import HALF, NLReLUFunction
from combutab.activations._known import known


def along(parameter: Tensor, x: Tensor, dim: int) -> Tensor:
    """Shape a per-feature tensor (..., width) to broadcast against ``x`` along ``dim``.

    For the last dimension nothing happens but a cast, so a stacked parameter of shape
    (members, 1, width) meets x of shape (members, batch, width) by plain broadcasting.
    """
    after = x.ndim - 1 - dim % x.ndim
    if after:
        parameter = parameter.reshape(parameter.shape + (1,) * after)
    return parameter.to(x.dtype)


@known()
class NLReLU(nn.Module):
    """Natural-logarithm ReLU, ``ln(1 + beta max(0, x))``.

    Parameters
    ----------
    beta : float, default 1.0
        Slope at zero from above; positive.

    Shape
    -----
    (...) -> (...), any leading shape and floating dtype.

    Raises
    ------
    ValueError
        If ``beta`` is not positive and finite.

    References
    ----------
    Liu et al. (2019), "Natural-logarithm-rectified activation function in convolutional
    neural networks".

    Examples
    --------
    >>> NLReLU()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0.0000, 0.0000, 0.6931])
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        if not 0 < beta < math.inf:
            raise ValueError(f"beta must be positive and finite for NLReLU, got {beta=}")
        self.beta = float(beta)

    def forward(self, x: Tensor) -> Tensor:  # (...) -> (...)
        if torch.compiler.is_compiling():  # the compiler fuses the plain expression itself
            return torch.log1p(self.beta * F.relu(x))
        if self.beta != 1 and x.dtype in HALF:  # beta x may overflow where its logarithm does not
            return NLReLUFunction.apply(x.float(), self.beta).to(x.dtype)
        return NLReLUFunction.apply(x, self.beta)

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


@known()
class Swish(nn.Module):
    """Swish, ``x sigmoid(beta x)``; with ``beta = 1`` it is SiLU.

    Parameters
    ----------
    beta : float, default 1.0
        Fixed, not learned. 0 gives x / 2; large values approach ReLU.

    Shape
    -----
    (...) -> (...), any leading shape and floating dtype.

    References
    ----------
    Ramachandran, Zoph and Le (2018), "Searching for activation functions".

    Examples
    --------
    >>> Swish(beta=2.0)(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1192,  0.0000,  0.8808])
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        if not math.isfinite(beta):
            raise ValueError(f"beta must be finite for Swish, got {beta=}")
        self.beta = float(beta)

    def forward(self, x: Tensor) -> Tensor:  # (...) -> (...)
        return F.silu(x) if self.beta == 1 else x * torch.sigmoid(self.beta * x)

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


@known()
class PReLU(nn.Module):
    """ReLU with a learned slope below zero, one for each feature.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.25
        Slope to start from.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``weight`` is (width,); a stack may put (members, 1, width)
    in its place.

    References
    ----------
    He et al. (2015), "Delving deep into rectifiers".

    Examples
    --------
    >>> PReLU(2)(torch.tensor([[-1.0, 2.0]])).tolist()
    [[-0.25, 2.0]]
    """

    def __init__(self, width: int, init: float = 0.25, *, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.full((width,), float(init)))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        # Not torch.where(x > 0, x, w * x): that sends 0 * inf to the weight's gradient.
        return torch.addcmul(F.relu(x), along(self.weight, x, self.dim), x.clamp_max(0))

    def extra_repr(self) -> str:
        return f"{self.weight.shape[-1]}, dim={self.dim}"


@known()
class PELU(nn.Module):
    """Parametric ELU: ``(a/b) x`` above zero, ``a (exp(x/b) - 1)`` below, a and b learned.

    Both start at 1, where PELU is ELU. They are kept positive by learning their logarithms,
    so weight decay pulls them to ELU.

    Parameters
    ----------
    width : int
        Number of features.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``log_a`` and ``log_b`` are (width,); a stack may put
    (members, 1, width) in their place.

    References
    ----------
    Trottier, Giguère and Chaib-draa (2017), "Parametric exponential linear unit for deep
    convolutional neural networks".

    Examples
    --------
    >>> PELU(2)(torch.tensor([[-1.0, 2.0]]))
    tensor([[-0.6321,  2.0000]], grad_fn=<AddcmulBackward0>)
    """

    def __init__(self, width: int, *, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim
        # NOTE[DIFF]: the paper projects a and b to >= 0.1 after each step; we learn their
        # logarithms because a module cannot reach into the optimiser.
        self.log_a = nn.Parameter(torch.zeros(width))
        self.log_b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        log_a, log_b = along(self.log_a, x, self.dim), along(self.log_b, x, self.dim)
        below = torch.expm1(x.clamp_max(0) * torch.exp(-log_b))
        return torch.addcmul(torch.exp(log_a) * below, torch.exp(log_a - log_b), F.relu(x))

    def extra_repr(self) -> str:
        return f"{self.log_a.shape[-1]}, dim={self.dim}"


def _plain(module: Callable[[], nn.Module]) -> Callable[..., nn.Module]:
    def factory(width: int, *, dim: int = -1) -> nn.Module:
        return module()

    return factory


UNITWISE: dict[str, Callable[..., nn.Module]] = {
    "relu": _plain(nn.ReLU),
    "leaky_relu": _plain(nn.LeakyReLU),
    "prelu": PReLU,
    "elu": _plain(nn.ELU),
    "selu": _plain(nn.SELU),
    "celu": _plain(nn.CELU),
    "pelu": PELU,
    "silu": _plain(Swish),
    "swish": _plain(Swish),
    "gelu": _plain(nn.GELU),
    "mish": _plain(nn.Mish),
    "tanh": _plain(nn.Tanh),
    "sigmoid": _plain(nn.Sigmoid),
    "logistic": _plain(nn.Sigmoid),
    "hardsilu": _plain(nn.Hardswish),
    "softplus": _plain(nn.Softplus),
    "nlrelu": _plain(NLReLU),
    "identity": _plain(nn.Identity),
}
