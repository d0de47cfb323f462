"""The networks of a cascaded flow: one for the codes of a row, one for its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from combutab.core.rng import Stream, fold_in
from combutab.nn._generative import ORIGINAL
from combutab.nn._layers import (
    ActivationSpec,
    StackedLinear,
    StackedTensor,
    make_activations,
    make_norm,
)
from combutab.nn._network import Member, StackedNetwork, weight_generators
from combutab.nn._spans import RowSpans

_ORIGINAL: ActivationSpec = "silu"  # of most published ones
_HARMONICS = 3
_MOST_DIRECT = 2**20  # weights from known codes to outputs, without a hidden layer
N_TIME = 1 + 2 * _HARMONICS  # inputs that a time becomes


class ResidualPart(nn.Module):
    """M residual networks, each a sequence of blocks that add to a residual stream.

    A block is normalisation, linear, activation, dropout mask, linear. The residual stream is as
    wide as the first block, and is normalised at the end. Without blocks there is only one linear
    layer.
    """

    def __init__(
        self,
        purpose: Stream,
        n_inputs: int,
        widths: Sequence[int],
        n_outputs: int,
        members: Sequence[Member],
        normalization: str,
    ) -> None:
        super().__init__()
        self.n_inputs, self.n_blocks = n_inputs, len(widths)
        seeds = [fold_in(member.seed, purpose) for member in members]
        generators = weight_generators(members, seeds)
        specs = [_ORIGINAL if m.activation == ORIGINAL else m.activation for m in members]
        sizes = self.linear_sizes(n_inputs, widths, n_outputs)
        self.linears = nn.ModuleList(StackedLinear(*s, generators) for s in sizes)
        self.norms = nn.ModuleList(
            make_norm(normalization, widths[0], len(members))
            for _ in range(len(widths) + bool(widths))
        )
        self.activations = nn.ModuleList(make_activations(specs, widths, seeds))

    @staticmethod
    def linear_sizes(n_inputs: int, widths: Sequence[int], n_outputs: int) -> list[tuple[int, int]]:
        """Inputs and outputs of each linear layer."""
        if not widths:
            return [(n_inputs, n_outputs)]
        passing = widths[0]
        blocks = [size for width in widths for size in ((passing, width), (width, passing))]
        return [(n_inputs, passing), *blocks, (passing, n_outputs)]

    def linear(self, i: int) -> StackedLinear:
        """Return linear layer number i, counted from 0."""
        layer = self.linears[i]
        assert isinstance(layer, StackedLinear)
        return layer

    def hidden(self, h: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """The last layer's inputs, given the first layer's outputs: both (M, n, width)."""
        for i in range(self.n_blocks):
            inner = self.activations[i](self.linears[2 * i + 1](self.norms[i](h)))
            if masks is not None:
                inner = inner * masks[i]
            h = self.linear(2 * i + 2).add_to(h, inner)
        return self.norms[-1](h) if self.n_blocks else h

    def outputs(self, hidden: Tensor) -> Tensor:
        """The last layer: without blocks there is only the first one, whose outputs these are."""
        return self.linears[-1](hidden) if self.n_blocks else hidden


class CodePart(ResidualPart):
    """Residual blocks from known codes, as `CodeInputs` has them, to raw outputs of all spans.

    An ordered span has two outputs more, times its bins' places and their squares: the log of a
    normal density, which takes fewer rows to learn than a number a bin. Where there are not too
    many codes a linear layer, which starts at 0, leads from known codes to the outputs directly: so
    how columns go together two at a time takes fewer rows to learn.
    """

    def __init__(
        self,
        spans: RowSpans,
        widths: Sequence[int],
        members: Sequence[Member],
        normalization: str,
    ) -> None:
        sizes = self.sizes(spans)
        super().__init__(Stream.CODE_NETWORK, sizes[0], widths, sizes[1], members, normalization)
        self.direct = None
        if self.direct_size(spans):
            self.direct = nn.Parameter(torch.zeros(len(members), *sizes))
        quantiles = ordered_quantiles(spans)
        self._columns = [
            slice(start, start + size)
            for start, size in zip(
                (spans.starts - spans.n_values).tolist(), spans.sizes, strict=True
            )
        ]
        self._n_logits = spans.width - spans.n_values
        self._powers = torch.zeros(
            2 * len(quantiles), self._n_logits, dtype=spans.dtype, device=spans.device
        )
        for k, (start, z) in enumerate(quantiles):
            self._powers[2 * k, start : start + len(z)] = z
            self._powers[2 * k + 1, start : start + len(z)] = z.square()

    @staticmethod
    def sizes(spans: RowSpans) -> tuple[int, int]:
        """Inputs and outputs."""
        n, n_ordered = spans.width - spans.n_values, spans.n_spans - len(spans.categories)
        return n + n_ordered, n + 2 * n_ordered

    @staticmethod
    def direct_size(spans: RowSpans) -> tuple[int, int] | None:
        """Inputs and outputs of the layer from known codes to outputs, None where it has none."""
        sizes = CodePart.sizes(spans)
        return sizes if math.prod(sizes) <= _MOST_DIRECT else None

    def outputs(
        self, hidden: Tensor, direct: Tensor | float = 0.0, columns: Tensor | None = None
    ) -> Tensor:
        """See `ResidualPart`; of all spans, or some columns of them.

        ``direct`` is what known codes add to the outputs.
        """
        if columns is None:
            return self._add_factors(super().outputs(hidden) + direct)
        if self.direct is not None or not self.n_blocks:
            return self._add_factors(super().outputs(hidden) + direct)[..., columns]
        last = self.linear(-1)
        weight, bias = (self._add_factors(x)[..., columns] for x in (last.weight, last.bias))
        return torch.baddbmm(bias, hidden, weight)

    def _add_factors(self, outputs: Tensor) -> Tensor:
        """Add what ordered spans' two factors make: (..., n_outputs) -> (..., n_logits)."""
        raw, factors = outputs.tensor_split([self._n_logits], dim=-1)
        return raw + factors @ self._powers.to(factors.dtype) if len(self._powers) else raw

    def outputs_by_span(self, inputs: CodeInputs) -> list[SpanOutputs]:
        """The last layer and the direct one in parts: `outputs` is then computed span by span."""
        last = self.linear(-1)
        weight: Tensor = last.weight
        bias: Tensor = last.bias
        if not self.n_blocks:  # the hidden units are all outputs
            bias = torch.zeros_like(bias)
            weight = torch.eye(bias.shape[2], dtype=bias.dtype, device=bias.device)
            weight = weight.expand(len(bias), -1, -1)
        weight, bias = self._add_factors(weight), self._add_factors(bias)
        direct = None if self.direct is None else inputs.effects(self._add_factors(self.direct))
        return [
            SpanOutputs(
                weight[..., columns],
                bias[..., columns],
                None if direct is None else direct.columns(columns),
            )
            for columns in self._columns
        ]


class StackedCascade(StackedNetwork):
    """M cascades of two networks, for the codes of a row and for the velocities of its values.

    ``codes`` maps the known codes of a row, as from `code_inputs`, to raw outputs of all spans.
    ``values`` maps all codes, the values on the flow from noise, a mask of the known values, and
    the time, to the velocities of the values. Rows without values have no such network (None).

    Parameters
    ----------
    spans : RowSpans
        Layout of the rows. Spans that are not categories are ordered bins.
    widths : sequence of int
        Widths of the residual blocks of ``codes``. The blocks of ``values`` have half the widths.
    members : sequence of Member
        The M networks of the stack.
    normalization : str, default="layer"
        Normalisation of the inputs of each block and of the last layer of ``codes``. ``values`` has
        none: it has to see small differences of inputs that are large when all codes are known.

    References
    ----------
    Mueller et al. (2026), "Cascaded flow matching for heterogeneous tabular data" (the cascade);
    Shi et al. (2025), "TabDiff" (masked codes).
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
        self.codes = CodePart(spans, widths, members, normalization)
        self.values = None
        if spans.n_values:
            self.values = ResidualPart(
                Stream.VALUE_NETWORK,
                self._n_value_inputs(spans),
                self.value_widths(widths),
                spans.n_values,
                members,
                "none",
            )
        self._flatten(spans.dtype, spans.device)

    def _role(self, entry: StackedTensor) -> str:
        # members share the columns of activations in both networks
        part, _, name = entry.name.partition(".")
        return "activation" if name.startswith("activations.") else part

    @staticmethod
    def value_widths(widths: Sequence[int]) -> list[int]:
        """Return the widths of the blocks of ``values``: half of those of ``codes``."""
        return [-(-width // 2) for width in widths]

    @staticmethod
    def _n_value_inputs(spans: RowSpans) -> int:
        return CodePart.sizes(spans)[0] + 2 * spans.n_values + N_TIME

    @staticmethod
    def linear_shapes(spans: RowSpans, widths: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Return the shapes of the weights of a member's linear layers, by name."""
        n_inputs, n_outputs = CodePart.sizes(spans)
        sizes = {"codes": ResidualPart.linear_sizes(n_inputs, widths, n_outputs)}
        if spans.n_values:
            n_inputs = StackedCascade._n_value_inputs(spans)
            widths = StackedCascade.value_widths(widths)
            sizes["values"] = ResidualPart.linear_sizes(n_inputs, widths, spans.n_values)
        shapes = {
            f"{part}.linears.{i}.weight": size
            for part, layer_sizes in sizes.items()
            for i, size in enumerate(layer_sizes)
        }
        direct = CodePart.direct_size(spans)
        return shapes | ({"codes.direct": direct} if direct else {})


class CodeInputs:
    """Encoding of known codes as network inputs: categories one-hot, ordered bins cumulative.

    An ordered code is 1 at its position and all positions below, so that neighbouring bins have
    similar inputs. An additional input per ordered span is the position as a normal quantile. A
    missing value is 1 only at its own position. An unknown code, -1, is 0 at all positions. The
    inputs are not computed; the contribution of a code to the first layer is looked up.
    """

    def __init__(self, spans: RowSpans) -> None:
        self.n_inputs, _ = CodePart.sizes(spans)
        self._starts = spans.starts - spans.n_values
        self._runs = list(self._equal_spans(spans))

    @staticmethod
    def _equal_spans(spans: RowSpans) -> Iterator[tuple[int, Tensor | None]]:
        """Neighbouring spans: the size of categories, or the encodings of ordered ones of one size.

        The encodings, (k, size, size + 1), are the inputs of each code, with its quantile last.
        """
        quantiles = iter(ordered_quantiles(spans))
        categories = set(spans.categories)
        sizes = [(0 if i in categories else size, i) for i, size in enumerate(spans.sizes)]
        for size, run in itertools.groupby(sizes, key=lambda pair: pair[0]):
            indices = [i for _, i in run]
            if not size:
                yield sum(spans.sizes[i] for i in indices), None
                continue
            encodings = torch.eye(size, size + 1, dtype=spans.dtype, device=spans.device)
            encodings = encodings.repeat(len(indices), 1, 1)
            for encoding, i in zip(encodings, indices, strict=True):
                n = _n_bins(spans, i)
                encoding[:n, :n] = torch.ones_like(encoding[:n, :n]).tril()
                encoding[:, size] = next(quantiles)[1]
            yield len(indices) * size, encodings

    def effects(self, weight: Tensor) -> CodeEffects:
        """Compute the contributions of codes to a layer with this weight, (M, n_inputs, width)."""
        sizes = [size for size, _ in self._runs]
        *parts, quantile_weights = weight.split([*sizes, self.n_inputs - sum(sizes)], dim=1)
        first = 0
        for j, (_, encodings) in enumerate(self._runs):
            if encodings is not None:
                k, size, _ = encodings.shape
                weights = quantile_weights[:, first : first + k].unsqueeze(2)
                weights = torch.cat([parts[j].unflatten(1, (k, size)), weights], 2)
                with torch.autocast(weight.device.type, enabled=False):  # sums differ by little
                    below = encodings.to(weight.dtype) @ weights
                parts[j], first = below.flatten(1, 2), first + k
        none = weight.new_zeros(len(weight), 1, weight.shape[2])
        return CodeEffects(torch.cat([*parts, none], 1), self._starts)


class CodeEffects:
    """Contributions of codes to a first layer, looked up instead of computed by a matrix product.

    ``table``, (M, n_codes + 1, width), has the contribution of each code, and a last row of zeros.

    Examples
    --------
    >>> inputs = CodeInputs(RowSpans(0, [2, 3], categories=[0]))
    >>> effects = inputs.effects(torch.ones(1, inputs.n_inputs, 1))
    >>> effects.table.flatten()
    tensor([1.0000, 1.0000, 0.0326, 2.0000, 3.9674, 0.0000])
    >>> effects.sum(torch.tensor([[[1, 2], [-1, 2], [1, -1]]])).flatten()
    tensor([4.9674, 3.9674, 1.0000])
    """

    def __init__(self, table: Tensor, starts: Tensor) -> None:
        self.table, self._starts = table, starts

    def sum(self, codes: Tensor, which: Tensor | None = None) -> Tensor:
        """Sum the contributions of codes, (M, n, k) -> (M, n, width); -1 is an unknown code.

        The codes belong to all spans, or to the spans ``which``, (M, n, k).
        """
        starts = self._starts if which is None else self._starts[which]
        none = self.table.shape[1] - 1
        index = torch.where(codes < 0, none, codes + starts)
        if not index.shape[2]:
            return self.table[:, -1:].expand(-1, codes.shape[1], -1)
        of_member = zip(index, self.table, strict=True)
        sums = [F.embedding_bag(i, table, mode="sum") for i, table in of_member]
        return torch.stack(sums) if len(sums) > 1 else sums[0].unsqueeze(0)

    def columns(self, columns: slice) -> CodeEffects:
        """The contributions to some of the outputs."""
        return CodeEffects(self.table[..., columns].contiguous(), self._starts)

    def member(self, m: int) -> CodeEffects:
        """The contributions of the codes of one member."""
        return CodeEffects(self.table[m : m + 1], self._starts)


class SpanOutputs(NamedTuple):
    """The layers that lead to the raw outputs of one span: from hidden units and known codes."""

    weight: Tensor  # (M, width, size)
    bias: Tensor  # (M, 1, size)
    direct: CodeEffects | None

    def of_member(self, m: int, hidden: Tensor, codes: Tensor) -> Tensor:
        """Raw outputs of one member, (n, size), of hidden units (n, width), codes (n, n_spans)."""
        raw = torch.addmm(self.bias[m], hidden, self.weight[m])
        if self.direct is None:
            return raw
        return raw + self.direct.member(m).sum(codes.unsqueeze(0)).squeeze(0)


def ordered_quantiles(spans: RowSpans) -> list[tuple[int, Tensor]]:
    """The first column of each ordered span, and its codes' normal quantiles, (size,).

    The quantile of a missing value, which has no rank, is 0.
    """
    starts = (spans.starts - spans.n_values).tolist()
    quantiles = []
    for i in sorted(set(range(spans.n_spans)) - set(spans.categories)):
        n, z = _n_bins(spans, i), torch.zeros(spans.sizes[i], dtype=torch.float64)
        share = (torch.arange(n, dtype=torch.float64) + 0.5) / n
        z[:n] = math.sqrt(2) * torch.erfinv(2 * share - 1)
        quantiles.append((starts[i], z.to(spans.device, spans.dtype)))
    return quantiles


def _n_bins(spans: RowSpans, i: int) -> int:
    """Number of codes of an ordered span, without the code of a missing value."""
    return spans.sizes[i] - (i in spans.missing)


class BlurredCrossEntropy:
    """Cross-entropy of codes that treats neighbouring bins as similar.

    The loss of an ordered span is a weighted sum of the cross-entropy, and of the cross-entropy
    between the blurred probabilities and the blurred code. Both have their minimum at the true
    probabilities, but overfitting a single bin hardly decreases the second. The blur is a normal
    density, with a standard deviation that is a share of the number of bins of the span. A missing
    value is not blurred.

    Examples
    --------
    >>> entropy = BlurredCrossEntropy(RowSpans(0, [64], categories=[]))
    >>> raw = torch.zeros(3, 64)
    >>> raw[0, 10] = raw[1, 12] = raw[2, 40] = 8.0  # right, near, far off
    >>> entropy(raw, torch.full((3, 1), 10), torch.ones(3, 1)).int()
    tensor([1, 4, 8], dtype=torch.int32)
    """

    share = 0.7
    deviation = 1 / 32  # of a span's codes

    def __init__(self, spans: RowSpans) -> None:
        self.spans = spans
        self._kernels: list[tuple[Tensor | None, Tensor] | None] = []  # None: all of the group's
        ordered = set(range(spans.n_spans)) - set(spans.categories)
        for group in spans.groups:
            indices = [i for i in range(group.spans.start, group.spans.stop) if i in ordered]
            if not indices:
                self._kernels.append(None)
                continue
            kernels = torch.zeros(len(indices), group.size, group.size, dtype=torch.float64)
            for kernel, i in zip(kernels, indices, strict=True):
                n = _n_bins(spans, i)
                z = torch.arange(n, dtype=torch.float64) / (n * self.deviation)
                near = (-0.5 * (z - z.unsqueeze(1)).square()).softmax(1)
                # some processors are slow where a product with less is subnormal
                kernel[:n, :n] = near.masked_fill(near < 1e-20, 0)
                if i in spans.missing:
                    kernel[n, n] = 1
            index = None
            if len(indices) < group.spans.stop - group.spans.start:
                index = torch.tensor(indices, device=spans.device) - group.spans.start
            self._kernels.append((index, kernels.to(spans.device, spans.dtype)))

    def __call__(self, raw: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
        """The sum over all spans, each times its weight.

        Shape
        -----
        raw : (..., width), codes : (..., n_spans) int64, weight : (..., n_spans) -> (...)
        """
        total = raw.new_zeros(raw.shape[:-1])
        parts = zip(self.spans.log_probabilities(raw), self._kernels, strict=True)
        for (group, log_p), kernels in parts:
            span_codes, span_weights = codes[..., group.spans], weight[..., group.spans]
            entropy = -log_p.gather(-1, span_codes.unsqueeze(-1)).squeeze(-1)
            if kernels is not None:
                index, kernel = kernels
                hard = entropy
                if index is not None:
                    log_p, span_codes = log_p.index_select(-2, index), span_codes[..., index]
                    hard = entropy.index_select(-1, index)
                q = torch.einsum("...gs,gst->...gt", log_p.exp(), kernel)
                target = kernel[torch.arange(len(kernel), device=span_codes.device), span_codes]
                near = -(target * (q + torch.finfo(q.dtype).tiny).log()).sum(-1)
                difference = self.share * (near - hard)
                entropy = (
                    entropy + difference
                    if index is None
                    else entropy.index_add(-1, index, difference)
                )
            total = total + (entropy * span_weights).sum(-1)
        return total


def time_inputs(t: Tensor) -> Tensor:
    """Encode times, (..., 1) -> (..., N_TIME), as the time and sine waves of it."""
    angles = [math.pi * k * t for k in range(1, _HARMONICS + 1)]
    return torch.cat([t, *map(torch.cos, angles), *map(torch.sin, angles)], dim=-1)
