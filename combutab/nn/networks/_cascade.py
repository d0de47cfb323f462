"""The networks of a cascaded flow: one for the codes of a row, one for its values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from combutab._random import Purpose, derive
from combutab.nn._activation import ActivationSpec, StackedActivation
from combutab.nn._layers import StackedLinear, StackedNorm
from combutab.nn._stack import Member, StackedNetwork
from combutab.nn.networks._generative import ORIGINAL
from combutab.nn.networks._spans import RowSpans

_ORIGINAL: ActivationSpec = "silu"  # of most published ones
_HARMONICS = 3
N_TIME = 1 + 2 * _HARMONICS  # inputs that a time becomes


class ResidualPart(nn.Module):
    """Residual blocks, M of each: what passes by a block, and what it adds to that.

    A block is normalisation, linear, activation, dropout mask, linear; what passes by is as wide as
    the first block, and is normalised at the end. Without a block there is one linear layer.
    """

    def __init__(
        self,
        purpose: Purpose,
        n_inputs: int,
        widths: Sequence[int],
        n_outputs: int,
        members: Sequence[Member],
        normalization: str,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.n_inputs, self.n_blocks = n_inputs, len(widths)
        seeds = [derive(member.seed, purpose) for member in members]
        keys = [derive(seed, Purpose.WEIGHTS) for seed in seeds]
        generators = [torch.Generator().manual_seed(key >> 1) for key in keys]
        specs = [_ORIGINAL if m.activation == ORIGINAL else m.activation for m in members]
        sizes = self.linear_sizes(n_inputs, widths, n_outputs)
        self.linears = nn.ModuleList(StackedLinear(*s, generators, dtype=dtype) for s in sizes)
        self.norms = nn.ModuleList(
            nn.Identity()
            if normalization == "none"
            else StackedNorm(normalization, widths[0], len(members), dtype=dtype)
            for _ in range(len(widths) + bool(widths))
        )
        self.activations = nn.ModuleList(
            StackedActivation(
                specs,
                width,
                [derive(seed, Purpose.ACTIVATION, i) >> 1 for seed in seeds],
                dtype=dtype,
            )
            for i, width in enumerate(widths)
        )

    @staticmethod
    def linear_sizes(n_inputs: int, widths: Sequence[int], n_outputs: int) -> list[tuple[int, int]]:
        """Inputs and outputs of each linear layer."""
        if not widths:
            return [(n_inputs, n_outputs)]
        passing = widths[0]
        blocks = [size for width in widths for size in ((passing, width), (width, passing))]
        return [(n_inputs, passing), *blocks, (passing, n_outputs)]

    def forward(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        h: Tensor = self.linears[0](x)
        for i in range(self.n_blocks):
            inner = self.activations[i](self.linears[2 * i + 1](self.norms[i](h)))
            if masks is not None:
                inner = inner * masks[i]
            h = h + self.linears[2 * i + 2](inner)
        return self.linears[-1](self.norms[-1](h)) if self.n_blocks else h


class StackedCascade(StackedNetwork):
    """M pairs of networks: codes of a row from its other codes, values' velocities from all codes.

    ``codes`` takes the codes of a row that are known, as `code_inputs` gives them, to raw outputs
    of all spans. ``values`` takes all codes, the values on their way from noise, which of them are
    known, and the time, to the values' velocities; it is None for rows without values.

    Parameters
    ----------
    spans : RowSpans
        Spans that are no categories are ordered bins.
    widths : sequence of int
        Of the residual blocks of both.
    members, normalization
        As of ``StackedGenerator``.

    References
    ----------
    Mueller et al. (2026), "Cascaded flow matching for heterogeneous tabular data", whose cascade
    it is; Shi et al. (2025), "TabDiff", which masks codes.
    """

    values: ResidualPart | None

    def __init__(
        self,
        spans: RowSpans,
        widths: Sequence[int],
        members: Sequence[Member],
        *,
        normalization: str = "layer",
    ) -> None:
        super().__init__(members)
        self.n_logits = spans.width - spans.n_values

        def part(purpose: Purpose, n_inputs: int, n_outputs: int) -> ResidualPart:
            sizes = (n_inputs, widths, n_outputs)
            return ResidualPart(purpose, *sizes, members, normalization, spans.dtype)

        self.codes = part(Purpose.CODE_NETWORK, self.n_logits, self.n_logits)
        self.values = None
        if spans.n_values:
            n_inputs = self.n_logits + 2 * spans.n_values + N_TIME
            self.values = part(Purpose.VALUE_NETWORK, n_inputs, spans.n_values)
        self.to(spans.device)
        self._flatten(spans.dtype, spans.device)

    @staticmethod
    def linear_shapes(spans: RowSpans, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights of linear layers, by name."""
        n = spans.width - spans.n_values
        sizes = {"codes": ResidualPart.linear_sizes(n, widths, n)}
        if spans.n_values:
            n_inputs = n + 2 * spans.n_values + N_TIME
            sizes["values"] = ResidualPart.linear_sizes(n_inputs, widths, spans.n_values)
        return {
            f"{part}.linears.{i}.weight": size
            for part, own in sizes.items()
            for i, size in enumerate(own)
        }


class CodeInputs:
    """Known codes as inputs of a network: categories one-hot, ordered bins cumulative.

    An ordered code is 1 at its place and at all below, so that near bins look alike; a code that is
    not known, -1, is 0 throughout.

    Examples
    --------
    >>> inputs = CodeInputs(RowSpans(1, [2, 3], categories=[0]))
    >>> inputs.write(torch.empty(2, 5), torch.tensor([[1, 1], [-1, 2]]))
    tensor([[0., 1., 1., 1., 0.],
            [0., 0., 1., 1., 1.]])
    """

    def __init__(self, spans: RowSpans) -> None:
        self.starts = spans.starts - spans.n_values
        ordered = set(range(spans.n_spans)) - set(spans.categories)
        starts = self.starts.tolist()
        self._ordered = [(i, starts[i], starts[i] + spans.sizes[i]) for i in sorted(ordered)]
        self._places = torch.arange(max(spans.sizes, default=0), device=spans.device)

    def write(self, into: Tensor, codes: Tensor) -> Tensor:
        """Write the inputs of codes, (..., n_spans) int64, into (..., width), and return it."""
        known = codes >= 0
        into.zero_().scatter_(-1, codes.clamp_min(0) + self.starts, known.to(into.dtype))
        for i, start, stop in self._ordered:
            into[..., start:stop] = codes[..., i : i + 1] >= self._places[: stop - start]
        return into


def time_inputs(t: Tensor) -> Tensor:
    """Inputs of times, (..., 1) -> (..., N_TIME): the time and waves of it."""
    angles = [math.pi * k * t for k in range(1, _HARMONICS + 1)]
    return torch.cat([t, *map(torch.cos, angles), *map(torch.sin, angles)], dim=-1)
