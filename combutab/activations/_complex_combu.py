"""ComplexCombU: CombU over complex numbers, whose exponentials are sines and cosines too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from combutab.activations._combu import DEFAULT_RATIOS, Span, part_spans
from combutab.activations.kernels import HALF, Activation, known


@known()
class ComplexCombU(Activation):
    """CombU of complex numbers: units j and j + width/2 are real and imaginary part of one.

    A part of the pairs gets each of these functions, which of real numbers are CombU's. With
    p = max(0, Re z) and m = min(0, Re z):

    - "relu": ``p + i max(0, Im z)``;
    - "elu": ``p + exp(m + i Im z) - 1``;
    - "nlrelu": ``ln(1 + p + i Im z)``.

    At ``z = i b`` the second is ``cos(b) - 1 + i sin(b)``, and the third's imaginary part is
    ``arctan(b)``: what theorem 0.3 builds of real units is built of these for trigonometric laws
    too (`combutab.constructions`). Real numbers go in and come out.

    Parameters
    ----------
    width : int
        Number of features, even: two a pair.
    ratios : mapping of str to float, optional
        Shares of the pairs, which sum to 1, of "relu", "elu" and "nlrelu"; the default is CombU's.
        Shares are rounded to whole pairs and what rounding leaves goes to the first.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width).

    Raises
    ------
    ValueError
        If the width is odd, a name is another, a share is negative, the shares do not sum to 1,
        or the input has another width.

    References
    ----------
    "CombU: a combined unit activation for fitting mathematical expressions with neural
    networks", Eq. (1), and its conclusion, which leaves trigonometric expressions over complex
    numbers to later work. The first part is Trabelsi et al. (2018), "Deep complex networks".

    Examples
    --------
    >>> wave = ComplexCombU(2, {"elu": 1.0})
    >>> wave(torch.tensor([[0.0, torch.pi / 2], [-1.0, 0.0]]))
    tensor([[-1.0000,  1.0000],
            [-0.6321,  0.0000]])
    >>> ComplexCombU(5)
    Traceback (most recent call last):
        ...
    ValueError: complex-combu needs an even width, two units a complex number, got width=5; use 6
    """

    unitwise = False

    def __init__(
        self, width: int, ratios: Mapping[str, float] | None = None, *, dim: int = -1
    ) -> None:
        super().__init__()
        if width < 1 or width % 2:
            raise ValueError(
                "complex-combu needs an even width, two units a complex number, got "
                f"{width=}; use {max(width, 1) + 1}"
            )
        ratios = dict(DEFAULT_RATIOS if ratios is None else ratios)
        self.width, self.ratios, self.dim = width, ratios, dim
        self.spans: tuple[Span, ...] = part_spans(width // 2, ratios, _PARTS)  # of pairs

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x, self.width)
        wide = x.float() if x.dtype in HALF else x  # the terms cancel near 0
        real, imaginary = wide.movedim(self.dim, -1).chunk(2, -1)
        pieces = [
            _PARTS[name](real.narrow(-1, start, length), imaginary.narrow(-1, start, length))
            for name, start, length in self.spans
        ]
        halves = [torch.cat(half, -1) for half in zip(*pieces, strict=True)]
        return torch.cat(halves, -1).to(x.dtype).movedim(-1, self.dim)

    def extra_repr(self) -> str:
        counts = ", ".join(f"{name}: {length}" for name, _, length in self.spans)
        return f"{self.width}, {{{counts}}} pairs, dim={self.dim}"


def _relu(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.relu(a), torch.relu(b)


def _elu(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    above = torch.relu(a)
    below = torch.expm1(a - above)
    # e^m cos b - 1 without the digits that it would lose near 0
    turned = below * torch.cos(b) - 2 * torch.sin(b / 2).square()
    return above + turned, (1 + below) * torch.sin(b)


def _nlrelu(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    above = torch.relu(a)
    slope = b / (1 + above)
    return torch.log1p(above) + torch.log1p(slope.square()) / 2, torch.atan(slope)


_PARTS = {"relu": _relu, "elu": _elu, "nlrelu": _nlrelu}
