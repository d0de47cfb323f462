"""The networks of a cascaded flow: one for the codes of a row, one for its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from combutab._random import Purpose
from combutab.nn._layers import StackedLinear
from combutab.nn._stack import Member, StackedNetwork
from combutab.nn.networks._generative import BlockNetwork
from combutab.nn.networks._spans import RowSpans

_HARMONICS = 3
N_TIME = 1 + 2 * _HARMONICS  # inputs that a time becomes


class _Part(BlockNetwork):
    _original = "silu"  # of most published ones

    @property
    def n_inputs(self) -> int:
        return cast(StackedLinear, self.linears[0]).weight.shape[1]

    def forward(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        return self._through(x, masks)


class _CodeNetwork(_Part):
    _purpose = Purpose.CODE_NETWORK


class _ValueNetwork(_Part):
    _purpose = Purpose.VALUE_NETWORK


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
        Of the hidden layers of both.
    members, normalization, proxy_norm
        As of ``StackedGenerator``.

    References
    ----------
    Mueller et al. (2026), "Cascaded flow matching for heterogeneous tabular data", whose cascade
    it is; Shi et al. (2025), "TabDiff", which masks codes.
    """

    values: _ValueNetwork | None

    def __init__(
        self,
        spans: RowSpans,
        widths: Sequence[int],
        members: Sequence[Member],
        *,
        normalization: str = "layer",
        proxy_norm: bool = False,
    ) -> None:
        super().__init__(members)
        self.n_logits = spans.width - spans.n_values
        rest = (members, normalization, proxy_norm, spans.dtype)
        self.codes = _CodeNetwork(self.n_logits, widths, self.n_logits, *rest)
        self.values = None
        if spans.n_values:
            n_inputs = self.n_logits + 2 * spans.n_values + N_TIME
            self.values = _ValueNetwork(n_inputs, widths, spans.n_values, *rest)
        self.to(spans.device)
        self._flatten(spans.dtype, spans.device)
        for part in (self.codes, self.values):
            if part is not None:
                part.flat = self.flat

    @staticmethod
    def linear_shapes(spans: RowSpans, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shapes of a member's weights of linear layers, by name."""
        n = spans.width - spans.n_values
        shapes = {"codes": BlockNetwork.linear_shapes(n, widths, n)}
        if spans.n_values:
            n_inputs = n + 2 * spans.n_values + N_TIME
            shapes["values"] = BlockNetwork.linear_shapes(n_inputs, widths, spans.n_values)
        return {f"{part}.{name}": s for part, own in shapes.items() for name, s in own.items()}


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
