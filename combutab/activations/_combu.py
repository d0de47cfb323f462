"""CombU and its complex form: parts of a layer's units get different activations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.activations._unitwise import UNITWISE
from combutab.activations.kernels import (
    Activation,
    Kernel,
    Scattered,
    Slices,
    Vectors,
    is_observed,
    kernel_of,
    known,
    wide,
)

# ---- CombU: different units of one layer get different activations -------------------------------

Span = tuple[str, int, int]  # (name, start, length) along the feature axis
DEFAULT_RATIOS = {"relu": 0.5, "elu": 0.25, "nlrelu": 0.25}


def _counts(ratios: Mapping[str, float], width: int) -> list[int]:
    """Return the number of units of each part: rounded, the remainder to the first."""
    counts = [round(ratio * width) for ratio in ratios.values()]
    counts[0] += width - sum(counts)
    for i in range(1, len(counts)):  # the first may have been rounded below nothing
        surplus = min(counts[i], max(0, -counts[0]))
        counts[i] -= surplus
        counts[0] += surplus
    return counts


@known
class CombU(Activation):
    """CombU: each unit has one of several activations, by a fixed partition in given ratios.

    Parameters
    ----------
    width : int
        Number of features.
    ratios : mapping of str to float, optional
        Names of unit-wise activations and their shares of the units, which sum to 1. The default
        is ``{"relu": 0.5, "elu": 0.25, "nlrelu": 0.25}``. Shares are rounded to whole units;
        remaining units go to the first activation.
    assignment : {"contiguous", "random"}, default "contiguous"
        "contiguous" assigns neighbouring units in the order of ``ratios``. "random" draws a
        partition, which is stored in the buffer ``partition`` and saved with the weights. With
        i.i.d. initial weights both give the same distribution of networks. Use "random" together
        with modules that group units by position, such as group normalisation.
    dim : int, default -1
        The feature axis.
    generator : torch.Generator, optional
        Generator for the random partition; by default torch's global generator.

    Shape
    -----
    (..., width) -> (..., width).

    Raises
    ------
    ValueError
        If a name is not a unit-wise activation, a share is negative, the shares do not sum
        to 1, or the input has another width.

    References
    ----------
    "CombU: a combined unit activation for fitting mathematical expressions with neural
    networks", Eq. (1).

    Examples
    --------
    >>> CombU(4)(torch.tensor([[1.0, -1.0, -1.0, 1.0]]))
    tensor([[ 1.0000,  0.0000, -0.6321,  0.6931]])
    >>> CombU(4, ratios={"relu": 0.5, "tanh": 0.5})(torch.tensor([[2.0, -2.0, 2.0, -2.0]]))
    tensor([[ 2.0000,  0.0000,  0.9640, -0.9640]])
    """

    partition: Tensor | None

    def __init__(
        self,
        width: int,
        ratios: Mapping[str, float] | None = None,
        assignment: Literal["contiguous", "random"] = "contiguous",
        *,
        dim: int = -1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        ratios = dict(DEFAULT_RATIOS if ratios is None else ratios)
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width=}")
        if assignment not in ("contiguous", "random"):
            raise ValueError(f"assignment must be 'contiguous' or 'random', got {assignment=}")
        self.width, self.ratios, self.assignment, self.dim = width, ratios, assignment, dim
        self.spans: tuple[Span, ...] = part_spans(width, ratios, UNITWISE)
        # CombU Eq. (1)
        self.parts = nn.ModuleList(UNITWISE[name](length) for name, _, length in self.spans)
        partition = None
        if assignment == "random":
            lengths = torch.tensor([length for _, _, length in self.spans])
            order = torch.randperm(width, generator=generator)
            partition = torch.repeat_interleave(lengths)[order]
        self.register_buffer("partition", partition)

    def forward(self, x: Tensor) -> Tensor:  # (..., width) -> (..., width)
        self.check_width(x)
        kernel = None if is_observed(self.parts) else self.kernel()
        if kernel is not None:
            return self.run(kernel, x)
        x = self.to_parts(x.movedim(self.dim, -1))
        pieces = [
            part(x.narrow(-1, start, length))
            for part, (_, start, length) in zip(self.parts, self.spans, strict=True)
        ]
        return self.from_parts(torch.cat(pieces, -1)).movedim(-1, self.dim)

    def kernel(self) -> Kernel | None:
        part_kernels = [kernel_of(part) for part in self.parts]
        kernels = [kernel for kernel in part_kernels if kernel is not None]
        if len(kernels) < len(part_kernels):
            return None
        if self.partition is not None:
            return Scattered(tuple(kernels))
        return Slices(tuple(kernels), tuple((start, length) for _, start, length in self.spans))

    def vectors(self) -> Vectors:
        part_vectors = [
            (vector, start)
            for part, (_, start, _) in zip(self.parts, self.spans, strict=True)
            if isinstance(part, Activation)
            for vector in part.vectors()
        ]
        if self.partition is None:
            return [vector for vector, _ in part_vectors]
        # each vector at the positions of its part
        padded = [F.pad(v, (start, self.width - start - v.shape[-1])) for v, start in part_vectors]
        return [self.partition, *map(self.from_parts, padded)]

    def to_parts(self, x: Tensor) -> Tensor:
        """Reorder features so that units of one activation are neighbours, as in ``spans``."""
        return x if self.partition is None else _take(x, _order(self.partition))

    def from_parts(self, x: Tensor) -> Tensor:
        """Undo ``to_parts``."""
        return x if self.partition is None else _take(x, _order(_order(self.partition)))

    def extra_repr(self) -> str:
        counts = ", ".join(f"{name}: {length}" for name, _, length in self.spans)
        return f"{self.width}, {{{counts}}}, assignment={self.assignment!r}, dim={self.dim}"


def _order(partition: Tensor) -> Tensor:
    # equal ones keep their order; a stable sort has no equivalent in ONNX
    width = partition.shape[-1]
    return torch.argsort(partition * width + torch.arange(width, device=partition.device), dim=-1)


def _take(x: Tensor, index: Tensor) -> Tensor:
    if index.ndim == 1:
        return x.index_select(-1, index)
    return x.gather(-1, index.expand_as(x))  # a stack: one index per member


def part_spans(width: int, ratios: Mapping[str, float], parts: Collection[str]) -> tuple[Span, ...]:
    """The units of each part that has any. Raises ValueError if the ratios are not valid."""
    for name, ratio in ratios.items():
        if name not in parts:
            raise ValueError(
                f"ratios must name unit-wise activations, got {name!r}; known: {', '.join(parts)}"
            )
        if not ratio >= 0:
            raise ValueError(f"ratios must not be negative, got {name}={ratio!r}")
    if not ratios or abs(sum(ratios.values()) - 1) > 1e-6:
        raise ValueError(f"ratios must sum to 1, got {ratios}; divide each by their sum")
    spans, start = [], 0
    for name, length in zip(ratios, _counts(ratios, width), strict=True):
        if length:
            spans.append((name, start, length))
            start += length
    return tuple(spans)


# ---- ComplexCombU: CombU over complex numbers, whose exponentials are sines and cosines too ------


@known
class ComplexCombU(Activation):
    """CombU for complex numbers, with real part in unit j and imaginary part in unit j + width/2.

    Each pair has one of the following functions, which equal those of CombU for real numbers. With
    p = max(0, Re z) and m = min(0, Re z):

    - "relu": ``p + i max(0, Im z)``;
    - "elu": ``p + exp(m + i Im z) - 1``;
    - "nlrelu": ``ln(1 + p + i Im z)``.

    For ``z = i b`` the second is ``cos(b) - 1 + i sin(b)``, and the imaginary part of the third is
    ``arctan(b)``. The construction of Theorem 0.3 can therefore also represent trigonometric
    formulas (`combutab.constructions`). Inputs and outputs are real tensors.

    Parameters
    ----------
    width : int
        Number of features; it must be even.
    ratios : mapping of str to float, optional
        Shares of the pairs with "relu", "elu" and "nlrelu", which sum to 1. The default is that of
        CombU. Shares are rounded to whole pairs; remaining pairs go to the first.
    dim : int, default -1
        The feature axis.

    Shape
    -----
    (..., width) -> (..., width).

    Raises
    ------
    ValueError
        If the width is odd, a name is unknown, a share is negative, the shares do not sum to 1, or
        the input has another width.

    References
    ----------
    "CombU: a combined unit activation for fitting mathematical expressions with neural
    networks", Eq. (1), and its conclusion, which proposes complex numbers for trigonometric
    expressions as future work. The function "relu" is that of Trabelsi et al. (2018), "Deep complex
    networks".

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
        self.check_width(x)
        real, imaginary = wide(x).movedim(self.dim, -1).chunk(2, -1)  # terms cancel near 0
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
