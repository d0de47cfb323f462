"""Unit-wise activations, with and without parameters, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations.kernels import (
    HALF,
    Activation,
    Affine,
    Gradients,
    Kernel,
    Maybe,
    Memory,
    PerUnit,
    Pointwise,
    Torch,
    Vectors,
    above_zero,
    along,
    into,
    known,
    sum_to,
    where_above,
    wide,
)

# ---- Unit-wise activations, and the table of their names -----------------------------------------


@dataclass(frozen=True)
class LogReLU(Pointwise):
    """NLReLU's kernel; the derivative beta / (1 + beta x) is beta exp(-y)."""

    beta: float = 1.0

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        y = above_zero(x, out)
        if self.beta != 1:
            y = torch.mul(y, self.beta, out=out)
        return torch.log1p(y, out=out)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        work = memory.work("slope", *x_or_y.shape)
        slope = torch.exp(torch.neg(x_or_y, out=work), out=work)
        grad = torch.mul(where_above(grad, x_or_y, out), slope, out=out)
        return grad if self.beta == 1 else torch.mul(grad, self.beta, out=out)


@known
class NLReLU(Activation):
    """Natural-logarithm ReLU, ``ln(1 + beta max(0, x))``.

    Parameters
    ----------
    beta : float, default 1.0
        Right-hand slope at zero; positive.

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

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        work = memory.work("slope", *x.shape)
        gate = torch.sigmoid(torch.mul(x, self.beta, out=work), out=work)
        return torch.mul(x, gate, out=out)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        work = memory.work("slope", *x_or_y.shape)
        scaled = torch.mul(x_or_y, self.beta, out=work)
        scaled = torch.clamp(scaled, -1e3, 1e3, out=work)  # of infinity it has none
        return into(torch.ops.aten.silu_backward, out, grad, scaled)


@known
class Swish(Activation):
    """Swish, ``x sigmoid(beta x)``; with ``beta = 1`` it is SiLU.

    Parameters
    ----------
    beta : float, default 1.0
        Slope of the sigmoid, which is not learned. 0 gives x / 2; large values approach ReLU.

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

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
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


@known
class PReLU(PerUnit):
    """Parametric ReLU (PReLU), with a learned slope below zero per feature.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.25
        Initial slope.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``weight`` is (width,); in a stack it is (members, 1, width).

    References
    ----------
    He et al. (2015), "Delving deep into rectifiers".

    Examples
    --------
    >>> PReLU(2)(torch.tensor([[-1.0, 2.0]])).tolist()
    [[-0.25, 2.0]]
    """

    weight: Tensor

    def __init__(self, width: int, init: float = 0.25, *, dim: int = -1) -> None:
        super().__init__(width, dim, weight=init)

    def kernel(self) -> Kernel:
        return LearnedSlope()

    def vectors(self) -> Vectors:
        return (self.weight,)


@dataclass(frozen=True)
class LearnedELU(Kernel):
    """PELU's kernel; its vectors are a and 1/b, and both derivatives follow from the result."""

    keeps_input: bool = True
    n_vectors: int = 2

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
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


@known
class PELU(PerUnit):
    """Parametric ELU: ``(a/b) x`` above zero, ``a (exp(x/b) - 1)`` below, with learned a and b.

    Both start at 1, where PELU equals ELU. Their logarithms are learned, so that they are positive,
    and weight decay moves them towards ELU.

    Parameters
    ----------
    width : int
        Number of features.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``log_a`` and ``log_b`` are (width,); in a stack they are
    (members, 1, width).

    References
    ----------
    Trottier, Giguère and Chaib-draa (2017), "Parametric exponential linear unit for deep
    convolutional neural networks".

    Examples
    --------
    >>> PELU(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.6321,  2.0000]])
    """

    log_a: Tensor
    log_b: Tensor

    def __init__(self, width: int, *, dim: int = -1) -> None:
        # NOTE[DIFF]: the paper projects a and b to >= 0.1 after each step; we learn their
        # logarithms because a module cannot reach into the optimiser.
        super().__init__(width, dim, log_a=0.0, log_b=0.0)

    def kernel(self) -> Kernel:
        return LearnedELU()

    def vectors(self) -> Vectors:
        return torch.exp(self.log_a), torch.exp(-self.log_b)


# ---- DyT and Derf: bounded curves with learned scales, which may stand for a normalisation -------


@dataclass(frozen=True)
class Erf(Pointwise):
    keeps_input: bool = True
    keeps_output: bool = False

    def forward(self, x: Tensor, vectors: Vectors, memory: Memory, out: Maybe = None) -> Tensor:
        return torch.erf(x, out=out)

    def times_slope(
        self, x_or_y: Tensor, grad: Tensor, memory: Memory, out: Maybe = None
    ) -> Tensor:
        work = memory.work("slope", *x_or_y.shape)
        slope = torch.exp(torch.neg(torch.square(x_or_y, out=work), out=work), out=work)
        slope = torch.mul(slope, 2 / math.sqrt(math.pi), out=work)
        return torch.mul(grad, slope, out=out)


class _Dynamic(PerUnit):
    _phi: ClassVar[Kernel]
    alpha: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, width: int, init: float = 0.5, *, dim: int = -1) -> None:
        if not 0 < init < math.inf:
            raise ValueError(f"init must be positive and finite, got {init=}")
        # NOTE[DIFF]: the papers have one alpha (and s) a layer; we have one a unit, as all
        # parameters of activations here, so that the networks of a stack hold (members, width).
        super().__init__(width, dim, alpha=init, weight=1.0, bias=0.0)

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x)
        return super().forward(x)

    def kernel(self) -> Kernel:
        return Affine(self._phi)

    def vectors(self) -> Vectors:
        return self.alpha, torch.zeros_like(self.alpha), self.weight, self.bias


@known
class DyT(_Dynamic):
    """Dynamic tanh (DyT), ``weight tanh(alpha x) + bias``, three learned values per unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.5
        Initial value of ``alpha``. ``weight`` starts at 1, ``bias`` at 0.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``alpha``, ``weight`` and ``bias`` are (width,); in a stack
    they are (members, 1, width).

    Raises
    ------
    ValueError
        If ``init`` is not positive and finite, or the input has another width.

    References
    ----------
    Zhu, Chen, He, LeCun and Liu (2025), "Transformers without normalization".

    Examples
    --------
    >>> DyT(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.4621,  0.7616]])
    """

    _phi = Torch("tanh")


@known
class Derf(_Dynamic):
    """Dynamic erf (Derf), ``weight erf(alpha x + shift) + bias``, four learned values per unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.5
        Initial value of ``alpha``. ``weight`` starts at 1, ``shift`` and ``bias`` at 0.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``alpha``, ``shift``, ``weight`` and ``bias`` are (width,); in
    a stack they are (members, 1, width).

    Raises
    ------
    ValueError
        If ``init`` is not positive and finite, or the input has another width.

    References
    ----------
    Chen, Lu, Zhu, Sun and Liu (2025), "Stronger normalization-free transformers", Eq. (10).

    Examples
    --------
    >>> Derf(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.5205,  0.8427]])
    """

    _phi = Erf()

    def __init__(self, width: int, init: float = 0.5, *, dim: int = -1) -> None:
        super().__init__(width, init, dim=dim)
        self.shift = nn.Parameter(torch.zeros(width))

    def vectors(self) -> Vectors:
        return self.alpha, self.shift, self.weight, self.bias


# ---- Curves whose shape is learned, a unit at a time: Snake, rational functions, blends ----------


@known
class Snake(PerUnit):
    """Snake, ``x + sin(a x)^2 / a``, for periodic functions, with a learned frequency a per unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 1.0
        Initial frequency; positive. Use larger values if the function is known to be periodic.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``log_a`` is (width,); in a stack it is (members, 1, width).

    Raises
    ------
    ValueError
        If ``init`` is not positive and finite.

    References
    ----------
    Ziyin, Hartwig and Ueda (2020), "Neural networks fail to learn periodic functions and how to
    fix it".

    Examples
    --------
    >>> Snake(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.2919,  2.8268]])
    """

    log_a: Tensor

    def __init__(self, width: int, init: float = 1.0, *, dim: int = -1) -> None:
        if not 0 < init < math.inf:
            raise ValueError(f"init must be positive and finite, got {init=}")
        # NOTE[DIFF]: the paper learns a itself, which may reach 0; we learn its logarithm.
        super().__init__(width, dim, log_a=math.log(init))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        x_wide = wide(x)  # rounding a x would change its sine
        a = along(torch.exp(wide(self.log_a)), x_wide, self.dim)
        return (x_wide + torch.sin(a * x_wide).square() / a).to(x.dtype)


@known
class Rational(PerUnit):
    """Rational function of degree (3, 2) without poles, with six learned coefficients per unit.

    It is ``c0 + c1 x + (r0 + r1 x) / (1 + (b0 + b1 x)^2)``. Every quotient of a cubic and a
    positive quadratic polynomial can be written in this form. Initially it is within 0.03 of SiLU
    between -4 and 4.

    Parameters
    ----------
    width : int
        Number of features.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). The six coefficients are (width,) each; in a stack they are
    (members, 1, width).

    References
    ----------
    Boullé, Nakatsukasa and Townsend (2020), "Rational neural networks"; Molina, Schramowski and
    Kersting (2020), "Padé activation units".

    Examples
    --------
    >>> Rational(2)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.2852,  1.7431]])
    """

    def __init__(self, width: int, *, dim: int = -1) -> None:
        # NOTE[DIFF]: the first paper's denominator may vanish, the second's |.| has kinks; a
        # square has neither. Divided out, no power of a large x overflows.
        starts = {"c0": 4.125, "c1": 0.5, "r0": -4.125, "r1": 0.0, "b0": 0.0, "b1": 0.234375}
        super().__init__(width, dim, **starts)

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        x_wide = wide(x)  # the terms cancel near 0
        c0, c1, r0, r1, b0, b1 = (along(p, x_wide, self.dim) for p in self.parameters())
        root = torch.addcmul(b0, b1, x_wide)
        line, higher_terms = torch.addcmul(c0, c1, x_wide), torch.addcmul(r0, r1, x_wide)
        return (line + higher_terms / (1 + root * root)).to(x.dtype)


# ---- The unit-wise activations by name -----------------------------------------------------------


def _plain(module: Callable[[], nn.Module]) -> Callable[..., nn.Module]:
    return lambda width, *, dim=-1: module()


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
    "dyt": DyT,
    "derf": Derf,
    "snake": Snake,
    "rational": Rational,
}
