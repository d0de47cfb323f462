"""Losses of cascaded flows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from combutab.generators._noise import normals, uniforms
from combutab.generators._records import TableRows
from combutab.nn import (
    BlurredCrossEntropy,
    CodeInputs,
    RowSpans,
    StackedCascade,
    fill_gradients,
    time_inputs,
)

_INSIDE = 1 - 1e-4  # values at a bin's edges are brought so far in: their normals are finite


class FlowDraw(NamedTuple):
    """What a step draws for each row of each member: shapes (M, n, ...)."""

    hidden: Tensor  # (..., n_spans) bool: codes to be found from the others
    known: Tensor  # (..., n_values) bool: values that are no noise
    time: Tensor  # (..., 1)
    noise: Tensor  # (..., n_values)


def draw(keys: Sequence[Sequence[int]], n: int, spans: RowSpans) -> FlowDraw:
    """Draw for n rows, by keys of what is hidden, what is known, the times and the noise.

    How many codes are hidden, or values known, is uniform on what it may be; of half of the rows no
    value is known. Where no code would be hidden, all are.
    """
    hidden, known, time, noise = keys
    device, n_values = spans.device, spans.n_values
    u = uniforms(hidden, n, spans.n_spans + 1, device=device)
    masked = u[..., 1:] < u[..., :1]
    masked |= ~masked.any(-1, keepdim=True)
    u = uniforms(known, n, n_values + 1, device=device)
    return FlowDraw(
        masked,
        u[..., 1:] < 2 * u[..., :1] - 1,
        torch.sigmoid(normals(time, n, 1, device=device)).to(spans.dtype),
        normals(noise, n, n_values, device=device).to(spans.dtype),
    )


def to_normal(values: Tensor) -> Tensor:
    """Places within bins, in [-1, 1], as quantiles of the standard normal."""
    return torch.erfinv(values * _INSIDE).mul_(math.sqrt(2))


def from_normal(x: Tensor) -> Tensor:
    """Invert `to_normal`."""
    return torch.erf(x / math.sqrt(2)).div_(_INSIDE).clamp_(-1, 1)


class FlowSteps:
    """The losses of a stack's members, and their gradients.

    Codes: the mean cross-entropy of the hidden ones, given the others, blurred in part. Values: the
    mean squared error of the velocity from noise to them, given the codes and those that are known.
    """

    def __init__(
        self,
        network: StackedCascade,
        spans: RowSpans,
        context: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.network, self.spans, self.context = network, spans, context
        self.codes_alone = spans.without_values()
        self.inputs = CodeInputs(self.codes_alone)

    @cached_property
    def cross_entropy(self) -> BlurredCrossEntropy:
        """Of codes; sampling needs none."""
        return BlurredCrossEntropy(self.codes_alone)

    def gradients(
        self, rows: TableRows, drawn: FlowDraw, masks: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Set the network's gradients; returns the members' losses of codes and values, (M,).

        ``masks`` are of dropout, a block each: those of the network of codes first.
        """
        codes, values = self.losses(self.network, rows, drawn, masks)
        fill_gradients((codes + values).sum(), self.network)
        return codes.detach(), values.detach()

    def losses(
        self,
        network: StackedCascade,
        rows: TableRows,
        drawn: FlowDraw,
        masks: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The losses of codes and of values of a network of the stack, (M,) each."""
        shape = rows.codes.shape[:2]
        code_masks, value_masks = _parts(masks)
        codes, dtype = rows.codes, self.spans.dtype
        like = torch.empty(*shape, self.inputs.n_inputs, dtype=dtype, device=codes.device)
        x = self.inputs.write(like, codes.masked_fill(drawn.hidden, -1))
        with self.context():
            raw = network.codes(x, code_masks)
        weight = _weights(drawn.hidden, dtype)
        losses = self.cross_entropy(raw.to(dtype), codes, weight).mean(1)
        if network.values is None:
            return losses, torch.zeros_like(losses)
        like = like.new_empty(*shape, network.values.n_inputs)
        x, velocity, counted = self._on_the_way(like, rows, drawn)
        with self.context():
            found = network.values(x, value_masks)
        error = (found.to(dtype) - velocity) * counted
        return losses, error.square().mean((1, 2))

    def _on_the_way(
        self, into: Tensor, rows: TableRows, drawn: FlowDraw
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of the values' network at these times, velocities, and which count as errors."""
        ends = to_normal(rows.values)
        velocity = ends - drawn.noise
        at = torch.where(drawn.known, ends, drawn.noise + drawn.time * velocity)
        x = self.write_values(into, rows.codes, at, drawn.known, drawn.time)
        # 0 is the value of what has none within its bin: an atom, or a missing number
        counted = (~drawn.known & (rows.values != 0)).to(velocity.dtype)
        return x, velocity, counted

    def write_values(
        self, into: Tensor, codes: Tensor, at: Tensor, known: Tensor, time: Tensor
    ) -> Tensor:
        """Write the inputs of the values' network: codes, values as they are, which are known."""
        width, n_values = self.inputs.n_inputs, at.shape[-1]
        self.inputs.write(into[..., :width], codes)
        into[..., width : width + n_values] = at
        into[..., width + n_values : width + 2 * n_values] = known
        into[..., width + 2 * n_values :] = time_inputs(time)
        return into


def _parts(
    masks: Sequence[Tensor] | None,
) -> tuple[Sequence[Tensor] | None, Sequence[Tensor] | None]:
    """The masks of the network of codes, and of that of values."""
    if not masks:
        return None, None
    half = len(masks) // 2
    return masks[:half], masks[half:]


def _weights(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Each hidden code's share of its row's, (..., n_spans)."""
    weight = hidden.to(dtype)
    return weight.div_(weight.sum(-1, keepdim=True))
