"""Activations that act on every unit alone, and the table that names them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations.kernels import (
    HALF,
    Activation,
    Gradients,
    Kernel,
    Maybe,
    Memory,
    Pointwise,
    Torch,
    Vectors,
    above_zero,
    into,
    known,
    sum_to,
    where_above,
)


@dataclass(frozen=True)
class LogReLU(Pointwise):
    """NLReLU's kernel; the derivative beta / (1 + beta x) is beta exp(-y)."""

    beta: float = 1.0

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        y = above_zero(x, out)
        if self.beta != 1:
            y = torch.mul(y, self.beta, out=out)
        return torch.log1p(y, out=out)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        work = memory.work("slope", *kept.shape)
        slope = torch.exp(torch.neg(kept, out=work), out=work)
        grad = torch.mul(where_above(grad, kept, out), slope, out=out)
        return grad if self.beta == 1 else torch.mul(grad, self.beta, out=out)


@known()
class NLReLU(Activation):
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
        if self.beta != 1 and x.dtype in HALF:  # beta x may overflow where its logarithm does not
            return self.run(self.kernel(), x.float()).to(x.dtype)
        return self.run(self.kernel(), x)

    def kernel(self) -> Kernel:
        return LogReLU(self.beta)

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


@dataclass(frozen=True)
class ScaledSiLU(Pointwise):
    """x sigmoid(beta x), whose derivative is that of SiLU at beta x."""

    beta: float
    keeps_input: bool = True
    keeps_output: bool = False

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        work = memory.work("slope", *x.shape)
        gate = torch.sigmoid(torch.mul(x, self.beta, out=work), out=work)
        return torch.mul(x, gate, out=out)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        work = memory.work("slope", *kept.shape)
        scaled = torch.mul(kept, self.beta, out=work)
        scaled = torch.clamp(scaled, -1e3, 1e3, out=work)  # of infinity it has none
        return into(torch.ops.aten.silu_backward, out, grad, scaled)


@known()
class Swish(Activation):
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
        return F.silu(x) if self.beta == 1 else self.run(self.kernel(), x)

    def kernel(self) -> Kernel:
        return Torch("silu", True) if self.beta == 1 else ScaledSiLU(self.beta)

    def extra_repr(self) -> str:
        return f"beta={self.beta}"


@dataclass(frozen=True)
class LearnedSlope(Kernel):
    """PReLU's kernel; its vector is the slope below zero."""

    keeps_input: bool = True
    keeps_output: bool = False
    n_vectors: int = 1

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        # Not torch.where(x > 0, x, w * x): that sends 0 * inf to the weight's gradient.
        below = torch.clamp_max(x, 0, out=memory.work("below", *x.shape))
        return torch.addcmul(above_zero(x, out), vectors[0], below, out=out)

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert x is not None
        work = memory.work("below", *x.shape)
        below = torch.mul(torch.clamp_max(x, 0, out=work), grad, out=work)
        by_weight = sum_to(below, vectors[0])
        above = where_above(grad, x, work)
        below = torch.sub(grad, above, out=out)
        return torch.addcmul(above, vectors[0], below, out=out), (by_weight,)


@known()
class PReLU(Activation):
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
        return self.run(self.kernel(), x)

    def kernel(self) -> Kernel:
        return LearnedSlope()

    def vectors(self) -> Vectors:
        return (self.weight,)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[-1]}, dim={self.dim}"


@dataclass(frozen=True)
class LearnedELU(Kernel):
    """PELU's kernel; its vectors are a and 1/b, and both derivatives follow from the result."""

    keeps_input: bool = True
    n_vectors: int = 2

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        a, rate = vectors
        work = memory.work("below", *x.shape)
        below = torch.mul(torch.clamp_max(x, 0, out=work), rate, out=work)
        below = torch.mul(torch.expm1(below, out=work), a, out=work)
        return torch.addcmul(below, a * rate, above_zero(x, out), out=out)

    def backward(
        self, x: Maybe, y: Maybe, grad: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None
    ) -> tuple[Tensor, Gradients]:
        assert x is not None
        assert y is not None
        a, rate = vectors
        work = memory.work("below", *x.shape)
        by_a = sum_to(torch.mul(grad, y, out=work), a) / a
        slope = torch.add(torch.clamp_max(y, 0, out=work), a, out=work)  # over the rate
        grad = torch.mul(grad, slope, out=out)
        by_rate = sum_to(torch.mul(grad, x, out=work), rate)
        return torch.mul(grad, rate, out=out), (by_a, by_rate)


@known()
class PELU(Activation):
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
    >>> PELU(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.6321,  2.0000]])
    """

    def __init__(self, width: int, *, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim
        # NOTE[DIFF]: the paper projects a and b to >= 0.1 after each step; we learn their
        # logarithms because a module cannot reach into the optimiser.
        self.log_a = nn.Parameter(torch.zeros(width))
        self.log_b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        return self.run(self.kernel(), x)

    def kernel(self) -> Kernel:
        return LearnedELU()

    def vectors(self) -> Vectors:
        return torch.exp(self.log_a), torch.exp(-self.log_b)

    def extra_repr(self) -> str:
        return f"{self.log_a.shape[-1]}, dim={self.dim}"
