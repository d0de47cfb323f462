"""Curves whose shape is learned, a unit at a time: Snake, rational functions, blends."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from combutab.activations.kernels import HALF, Activation, along, known


@known()
class Snake(Activation):
    """Snake, ``x + sin(a x)^2 / a``: periodic on a slope, its frequency a learned for each unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 1.0
        Frequency to start from; positive. Larger ones suit what is known to be periodic.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``log_a`` is (width,); a stack may put (members, 1, width) in
    its place.

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

    def __init__(self, width: int, init: float = 1.0, *, dim: int = -1) -> None:
        super().__init__()
        if not 0 < init < math.inf:
            raise ValueError(f"init must be positive and finite, got {init=}")
        self.dim = dim
        # NOTE[DIFF]: the paper learns a itself, which may reach 0; we learn its logarithm.
        self.log_a = nn.Parameter(torch.full((width,), math.log(init)))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        a = along(torch.exp(self.log_a), x, self.dim)
        return x + torch.sin(a * x).square() / a

    def extra_repr(self) -> str:
        return f"{self.log_a.shape[-1]}, dim={self.dim}"


@known()
class Rational(Activation):
    """A rational function of degree (3, 2) without poles, all its coefficients learned.

    It is ``c0 + c1 x + (r0 + r1 x) / (1 + (b0 + b1 x)^2)``, which every quotient of a cubic by a
    positive quadratic can be written as; it starts within 0.03 of SiLU between -4 and 4.

    Parameters
    ----------
    width : int
        Number of features.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). The six coefficients are (width,) each; a stack may put
    (members, 1, width) in their place.

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
        super().__init__()
        self.dim = dim
        # NOTE[DIFF]: the first paper's denominator may vanish, the second's |.| has kinks; a
        # square has neither. Divided out, no power of a large x overflows.
        starts = {"c0": 4.125, "c1": 0.5, "r0": -4.125, "r1": 0.0, "b0": 0.0, "b1": 0.234375}
        for name, start in starts.items():
            self.register_parameter(name, nn.Parameter(torch.full((width,), start)))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        wide = x.float() if x.dtype in HALF else x  # the terms cancel near 0
        c0, c1, r0, r1, b0, b1 = (along(p, wide, self.dim) for p in self.parameters())
        root = torch.addcmul(b0, b1, wide)
        line, rest = torch.addcmul(c0, c1, wide), torch.addcmul(r0, r1, wide)
        return (line + rest / (1 + root * root)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.get_parameter('c0').shape[-1]}, dim={self.dim}"


@known()
class Blend(Activation):
    """A blend of x and an activation g, ``(1 - w) x + w g(x)``, w learned for each unit.

    Parameters
    ----------
    width : int
        Number of features.
    activation : str or callable, default "relu"
        g: what ``make_activation`` takes.
    init : float, default 1.0
        w to start from: 0 is the identity, 1 is g.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``w`` is (width,); a stack may put (members, 1, width) in its
    place.

    Raises
    ------
    ValueError
        If ``init`` is not finite, or the name of g is unknown.

    References
    ----------
    Manessi and Rozza (2018), "Learning combinations of activation functions".

    Examples
    --------
    >>> Blend(2, "tanh", init=0.5)(torch.tensor([[-1.0, 2.0]])).detach()
    tensor([[-0.8808,  1.4820]])
    """

    def __init__(
        self,
        width: int,
        activation: str | Callable[[int], nn.Module] = "relu",
        init: float = 1.0,
        *,
        dim: int = -1,
    ) -> None:
        from combutab.activations._registry import make_activation  # has a row for this class

        super().__init__()
        if not math.isfinite(init):
            raise ValueError(f"init must be finite, got {init=}")
        self.dim = dim
        self.activation = make_activation(activation, width, dim=dim)
        self.w = nn.Parameter(torch.full((width,), float(init)))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        w = along(self.w, x, self.dim)
        return (1 - w) * x + w * self.activation(x)

    def extra_repr(self) -> str:
        return f"{self.w.shape[-1]}, dim={self.dim}"
