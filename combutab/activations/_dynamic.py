"""DyT and Derf: bounded curves with learned scales, which may stand for a normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from combutab.activations.kernels import (
    Activation,
    Affine,
    Kernel,
    Memory,
    Pointwise,
    Torch,
    Vectors,
    known,
)


@dataclass(frozen=True)
class Erf(Pointwise):
    keeps_input: bool = True
    keeps_output: bool = False

    def forward(
        self, x: Tensor, vectors: Vectors, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        return torch.erf(x, out=out)

    def times_slope(
        self, kept: Tensor, grad: Tensor, memory: Memory, out: Tensor | None = None
    ) -> Tensor:
        work = memory.work("slope", *kept.shape)
        slope = torch.exp(torch.neg(torch.square(kept, out=work), out=work), out=work)
        slope = torch.mul(slope, 2 / math.sqrt(math.pi), out=work)
        return torch.mul(grad, slope, out=out)


class _Dynamic(Activation):
    _phi: ClassVar[Kernel]

    def __init__(self, width: int, init: float = 0.5, *, dim: int = -1) -> None:
        super().__init__()
        if not 0 < init < math.inf:
            raise ValueError(f"init must be positive and finite, got {init=}")
        self.width, self.dim = width, dim
        # NOTE[DIFF]: the papers have one alpha (and s) a layer; we have one a unit, as all
        # parameters of activations here, so that the networks of a stack hold (members, width).
        self.alpha = nn.Parameter(torch.full((width,), float(init)))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x, self.width)
        return self.run(self.kernel(), x)

    def kernel(self) -> Kernel:
        return Affine(self._phi)

    def vectors(self) -> Vectors:
        return self.alpha, torch.zeros_like(self.alpha), self.weight, self.bias

    def extra_repr(self) -> str:
        return f"{self.width}, dim={self.dim}"


@known()
class DyT(_Dynamic):
    """Dynamic tanh, ``weight tanh(alpha x) + bias``, all three learned, a value for each unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.5
        ``alpha`` to start from; ``weight`` starts at 1, ``bias`` at 0.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``alpha``, ``weight`` and ``bias`` are (width,); a stack may put
    (members, 1, width) in their place.

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


@known()
class Derf(_Dynamic):
    """Dynamic erf, ``weight erf(alpha x + shift) + bias``, all learned, a value for each unit.

    Parameters
    ----------
    width : int
        Number of features.
    init : float, default 0.5
        ``alpha`` to start from; ``weight`` starts at 1, ``shift`` and ``bias`` at 0.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width). ``alpha``, ``shift``, ``weight`` and ``bias`` are (width,); a
    stack may put (members, 1, width) in their place.

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
