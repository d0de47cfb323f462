"""Rows of generators: tanh values, then one-hot spans; whatever acts on all spans of a row."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_SMALL = 64  # spans up to this size are gathered together if each row has one chosen span
_BOUNDS = [_SMALL * 4**k for k in range(24)]  # of spans that are gathered together
_MANY_GROUPS = 8  # more groups than this, and near sizes are padded to share one


@dataclass(frozen=True)
class Group:
    """Neighbouring spans that are one (..., spans, size) view of their columns.

    Spans of equal sizes are a plain view. Those of near sizes are padded to the largest:
    ``padded`` says which column stands at each place (one past the last for padding), ``real``
    at which places the columns are.
    """

    spans: slice
    width: int  # columns of all its spans
    size: int  # of the largest
    padded: Tensor | None = None
    real: Tensor | None = None

    def open(self, x: Tensor) -> Tensor:  # (..., width) logits -> (..., spans, size)
        if self.padded is not None:
            x = F.pad(x, (0, 1), value=-torch.inf).index_select(-1, self.padded)
        return x.unflatten(-1, (-1, self.size))

    # the same where columns come first in memory: a softmax over neighbouring rows of a matrix is
    # many times faster on a CPU than one over a few neighbouring numbers

    def open_columns(self, x: Tensor) -> Tensor:  # (width, n) logits -> (spans, size, n)
        if self.padded is not None:
            x = F.pad(x, (0, 0, 0, 1), value=-torch.inf).index_select(0, self.padded)
        return x.view(-1, self.size, x.shape[1])

    def close_columns(self, x: Tensor) -> Tensor:  # (spans, size, n) -> (width, n)
        x = x.flatten(0, 1)
        return x if self.real is None else x.index_select(0, self.real)


@dataclass(frozen=True)
class _Bucket:
    """Spans of similar sizes, for picking one span a row: columns of the row, largest size."""

    columns: slice
    size: int
    n_spans: int


class RowSpans:
    """The layout of the rows of a generator: ``n_values`` tanh outputs, then one-hot spans.

    All methods accept any leading shape, and process all spans in one pass per *group*.
    Neighbouring spans of equal size are a group, which is a reshaped view. If this would make more
    than 8 groups, neighbouring spans with sizes within a factor of two share a padded group. There
    are then at most ``1 + log2(largest / smallest size)`` groups.

    Parameters
    ----------
    n_values : int
        Number of tanh outputs.
    sizes : sequence of int
        Sizes of the spans, at least 1, in ascending or descending order.
    categories : sequence of int, optional
        Spans that can be conditions, in ascending order. By default all.
    missing : sequence of int, optional
        Other spans whose last code is the missing value. By default none.
    suppressed : sequence of (int, int), optional
        Pairs (span, code) that ``sample`` never returns; at least one code of each span remains. By
        default none.
    device : torch.device or str, default="cpu"
        Device of the tensors.
    dtype : torch.dtype, default=torch.float32
        Dtype of one-hot rows and conditions.

    Attributes
    ----------
    n_spans, width, n_condition : int
        Number of spans, of columns of a row, and of columns of a condition.
    starts : Tensor of int64, (n_spans,)
        First column of each span.

    Raises
    ------
    ValueError
        If a size is not positive, or ``categories`` are not increasing positions of spans.

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", sections 4.2 to 4.4.

    Examples
    --------
    >>> spans = RowSpans(1, [2, 3], categories=[1])
    >>> spans.dense(torch.tensor([[0.5]]), torch.tensor([[1, 0]]))
    tensor([[0.5000, 0.0000, 1.0000, 1.0000, 0.0000, 0.0000]])
    >>> spans.condition(torch.tensor([1]), torch.tensor([2]))
    tensor([[0., 0., 1.]])
    """

    def __init__(
        self,
        n_values: int,
        sizes: Sequence[int],
        categories: Sequence[int] | None = None,
        *,
        missing: Sequence[int] = (),
        suppressed: Sequence[tuple[int, int]] = (),
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.n_values, self.sizes = n_values, tuple(int(size) for size in sizes)
        if n_values < 0 or min(self.sizes, default=1) < 1:
            raise ValueError(
                f"a row has no negative number of values and no empty span, got {n_values=}, "
                f"sizes={self.sizes}"
            )
        self.n_spans = len(self.sizes)
        self.categories = tuple(range(self.n_spans) if categories is None else categories)
        if list(self.categories) != sorted(set(self.categories) & set(range(self.n_spans))):
            raise ValueError(
                f"categories must be increasing positions of the {self.n_spans} spans, "
                f"got {categories}"
            )
        self.device, self.dtype = torch.device(device), dtype
        starts = list(itertools.accumulate(self.sizes, initial=n_values))
        self.width = starts[-1]
        self.starts = self._indices(starts[:-1])
        self.span_sizes = self._indices(self.sizes)
        self.missing, self.suppressed = tuple(missing), tuple(suppressed)
        self._suppressed = self._indices(
            [starts[span] - n_values + code for span, code in suppressed]
        )
        # a span that is no category has a start that no code brings back into a condition
        first, self.n_condition = [-(1 << 62)] * self.n_spans, 0
        for i in self.categories:
            first[i] = self.n_condition
            self.n_condition += self.sizes[i]
        self._condition_starts = self._indices(first)
        self.groups = self._make_groups()
        self._buckets, bucket_of = self._make_buckets(starts)
        self._bucket_of = self._indices(bucket_of)

    def _indices(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int64, device=self.device)

    def without_values(self) -> RowSpans:
        """Return the layout without the values."""
        return RowSpans(
            0,
            self.sizes,
            self.categories,
            missing=self.missing,
            suppressed=self.suppressed,
            device=self.device,
            dtype=self.dtype,
        )

    def select(self, indices: Sequence[int]) -> RowSpans:
        """Return the layout of some of the spans, in ascending order, without the values."""
        positions = {span: position for position, span in enumerate(indices)}
        return RowSpans(
            0,
            [self.sizes[i] for i in indices],
            [positions[i] for i in self.categories if i in positions],
            missing=[positions[i] for i in self.missing if i in positions],
            suppressed=[(positions[i], code) for i, code in self.suppressed if i in positions],
            device=self.device,
            dtype=self.dtype,
        )

    def _make_groups(self) -> list[Group]:
        runs: list[slice] = []
        for factor in (1.0, 1.25, 1.5, 2.0):  # the least padding that leaves few groups
            runs = _runs(self.sizes, factor)
            if len(runs) <= _MANY_GROUPS:
                break
        return [self._make_group(spans) for spans in runs]

    def _make_group(self, spans: slice) -> Group:
        sizes = self.sizes[spans]
        width, largest = sum(sizes), max(sizes)
        if largest == min(sizes):
            return Group(spans, width, largest)
        index = torch.arange(largest, device=self.device)
        inside = index < self.span_sizes[spans].unsqueeze(1)
        first = (self.starts[spans] - self.starts[spans.start]).unsqueeze(1)
        padded = torch.where(inside, first + index, width).flatten()
        return Group(spans, width, largest, padded, inside.flatten().nonzero().squeeze(1))

    def _make_buckets(self, starts: Sequence[int]) -> tuple[list[_Bucket], list[int]]:
        """Buckets of spans up to 64, 256, 1024, ... and the bucket of each span."""
        classes = [bisect_left(_BOUNDS, size) for size in self.sizes]
        used = sorted(set(classes))
        if len(used) == 1 and self.n_spans > 1:  # gathered from whole rows: no slice to undo
            bucket = _Bucket(slice(0, self.width), max(self.sizes), self.n_spans)
            return [bucket], [0] * self.n_spans
        buckets = []
        for which in used:
            members = [i for i, c in enumerate(classes) if c == which]
            columns = slice(starts[members[0]], starts[members[-1] + 1])
            buckets.append(_Bucket(columns, max(self.sizes[i] for i in members), len(members)))
        return buckets, [used.index(which) for which in classes]

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Raw values and logits of a row, in at least float32."""
        values, logits = _at_least_float32(raw).split(
            [self.n_values, self.width - self.n_values], dim=-1
        )
        return values, logits

    def _split_columns(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """The same with columns first, (n_values, rows) and (width - n_values, rows)."""
        values, logits = _at_least_float32(_columns_first(raw)).split(
            [self.n_values, self.width - self.n_values]
        )
        return values, logits

    def _by_group(self, logits: Tensor, dim: int = -1) -> Iterator[tuple[Group, Tensor]]:
        # one split, whose derivative is one concatenation; a slice's is a whole row of zeros
        if self.groups:
            yield from zip(
                self.groups, logits.split([g.width for g in self.groups], dim), strict=True
            )

    def dense(self, values: Tensor, codes: Tensor) -> Tensor:
        """Convert values and codes to one-hot rows.

        Shape
        -----
        values : (..., n_values), codes : (..., n_spans) integer -> (..., width)
        """
        rows = torch.zeros(*codes.shape[:-1], self.width, dtype=self.dtype, device=self.device)
        rows[..., : self.n_values] = values
        return rows.scatter_(-1, codes + self.starts, 1.0)

    def condition(self, span: Tensor, code: Tensor) -> Tensor:
        """Return condition vectors, one-hot over all categories, with one code of one span per row.

        Shape
        -----
        span : (...) integer, index of one of the spans in ``categories``, code : (...) integer ->
        (..., n_condition)
        """
        rows = torch.zeros(*span.shape, self.n_condition, dtype=self.dtype, device=self.device)
        if self.n_condition == 0:
            return rows
        column = self._condition_starts[span] + code
        return rows.scatter_(-1, column.unsqueeze(-1), 1.0)

    def activate(self, raw: Tensor, *, tau: float = 0.2, uniform: Tensor | None = None) -> Tensor:
        """Apply the output activations: tanh to values, Gumbel-softmax to spans.

        Parameters
        ----------
        raw : Tensor, (..., width)
            Raw outputs. Half precision is computed in float32.
        tau : float, default=0.2
            Temperature.
        uniform : Tensor, (..., width - n_values), optional
            Uniform random numbers in [0, 1], float32 or float64, for the Gumbel noise. By default
            there is no noise (softmax at this temperature).

        Returns
        -------
        Tensor, (..., width), twice differentiable
        """
        values, logits = self._split_columns(raw)
        if uniform is not None:
            shape = (*raw.shape[:-1], self.width - self.n_values)
            if uniform.shape != shape:
                raise ValueError(
                    f"uniform must have the shape {shape} of the spans' logits, "
                    f"got {tuple(uniform.shape)}"
                )
            logits = logits + _gumbel(_columns_first(uniform)).to(logits.dtype)
        groups = self._by_group(logits / tau, dim=0)
        pieces = [g.close_columns(g.open_columns(x).softmax(1)) for g, x in groups]
        return torch.cat([torch.tanh(values), *pieces]).t().reshape(raw.shape)

    @torch.no_grad()
    def sample(self, raw: Tensor, uniform: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Sample one code per span from the softmax of its raw outputs, and return the values.

        Parameters
        ----------
        raw : Tensor, (..., width)
            Raw outputs.
        uniform : Tensor, (..., n_spans), optional
            Uniform random numbers in [0, 1), for inverting the cumulative distribution of each
            span, which is summed in their precision. By default the most probable code is
            returned.

        Returns
        -------
        tuple of Tensor
            Values in [-1, 1], (..., n_values), and codes, (..., n_spans) int64.
        """
        values, logits = self._split(raw)
        if len(self._suppressed):  # the others keep their odds
            logits = logits.index_fill(-1, self._suppressed, -torch.inf)
        codes = torch.empty(*raw.shape[:-1], self.n_spans, dtype=torch.int64, device=raw.device)
        for group, part in self._by_group(logits):
            if uniform is None:
                codes[..., group.spans] = group.open(part).argmax(-1)
                continue
            drawn = _draw_small if group.size <= _SMALL else _draw_large
            sampled = drawn(group, part, uniform[..., group.spans])
            # beyond the span if a logit is NaN
            codes[..., group.spans] = sampled.clamp_max_(self.span_sizes[group.spans] - 1)
        return values.tanh().clamp_(-1, 1), codes

    def logits_of(self, i: int, raw: Tensor) -> Tensor:
        """Return the logits of one span, (..., width) -> (..., size); -inf for suppressed codes."""
        start = int(self.starts[i])
        return self.suppress(i, raw[..., start : start + self.sizes[i]])

    def suppress(self, i: int, logits: Tensor) -> Tensor:
        """Set the logits of one span, (..., size), to -inf for suppressed codes."""
        suppressed = [code for span, code in self.suppressed if span == i]
        if not suppressed:
            return logits
        return logits.index_fill(-1, torch.tensor(suppressed, device=logits.device), -torch.inf)

    @torch.no_grad()
    def restrict(self, raw: Tensor, allowed: Mapping[int, Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Restrict raw outputs to allowed codes, and return their probability.

        ``allowed`` maps spans to their allowed codes. Spans are independent: `sample` of the
        result, (..., width), has the distribution of `sample` of ``raw`` given that all codes are
        allowed. The second result, (...) float64, is the probability of this event.

        Examples
        --------
        >>> spans = RowSpans(0, [4])
        >>> raw, probability = spans.restrict(torch.zeros(1, 4), {0: [1, 2]})
        >>> raw.softmax(-1), probability
        (tensor([[0.0000, 0.5000, 0.5000, 0.0000]]), tensor([0.5000], dtype=torch.float64))
        """
        log_probability = raw.new_zeros(raw.shape[:-1], dtype=torch.float64)
        raw = raw.clone() if allowed else raw
        for i, codes in allowed.items():
            start = int(self.starts[i])
            logits = raw[..., start : start + self.sizes[i]]
            is_allowed = torch.zeros(self.sizes[i], dtype=torch.bool, device=raw.device)
            is_allowed[list(codes)] = True
            log_probability += logits[..., is_allowed].double().logsumexp(
                -1
            ) - logits.double().logsumexp(-1)
            logits.masked_fill_(~is_allowed, -torch.inf)
        return raw, log_probability.exp_()

    def cross_entropy(self, raw: Tensor, span: Tensor, code: Tensor) -> Tensor:
        """Compute the cross-entropy of one span and code per row.

        Only the columns of the chosen spans are read, so that memory is proportional to the rows
        times the size of their spans. If there are spans larger than 64, rows are sorted by the
        size of their span first.

        Shape
        -----
        raw : (..., width), span, code : (...) integer -> (...)
        """
        flat = raw.reshape(-1, self.width)
        chosen, codes = span.reshape(-1), code.reshape(-1).long()
        if len(self._buckets) == 1:
            only = self._buckets[0]
            return self._one_span(flat[:, only.columns], chosen, codes, only).view(span.shape)
        loss = _at_least_float32(flat).new_zeros(len(flat))
        which = self._bucket_of[chosen]
        for i, bucket in enumerate(self._buckets):
            rows = (which == i).nonzero().squeeze(1)
            if len(rows):
                part = flat[:, bucket.columns].index_select(0, rows)
                part_loss = self._one_span(part, chosen[rows], codes[rows], bucket)
                loss = loss.index_copy(0, rows, part_loss)
        return loss.view(span.shape)

    def _one_span(self, x: Tensor, span: Tensor, code: Tensor, bucket: _Bucket) -> Tensor:
        """(n, columns of the bucket), (n,), (n,) -> (n,)."""
        if bucket.n_spans > 1:
            index = torch.arange(bucket.size, device=x.device)
            column = (self.starts[span] - bucket.columns.start).unsqueeze(1) + index
            x = _at_least_float32(x.gather(1, column.clamp_max_(x.shape[1] - 1)))
            x = x.masked_fill(index >= self.span_sizes[span].unsqueeze(1), -torch.inf)
        return -_at_least_float32(x).log_softmax(1).gather(1, code.unsqueeze(1)).squeeze(1)

    def cross_entropy_all(self, raw: Tensor, codes: Tensor) -> Tensor:
        """Compute the sum of the cross-entropies of all spans.

        Shape
        -----
        raw : (..., width), codes : (..., n_spans) integer -> (...)
        """
        _, logits = self._split_columns(raw)
        total, codes = logits.new_zeros(logits.shape[1]), _columns_first(codes.long())
        for group, part in self._by_group(logits, dim=0):
            losses = F.cross_entropy(group.open_columns(part), codes[group.spans], reduction="none")
            total = total + losses.sum(0)
        return total.view(raw.shape[:-1])

    def log_probabilities(self, raw: Tensor) -> Iterator[tuple[Group, Tensor]]:
        """Log-probabilities of each group, (..., width) -> (..., spans, size); padding has -inf."""
        _, logits = self._split(raw)
        for group, part in self._by_group(logits):
            yield group, group.open(part).log_softmax(-1)


def _runs(sizes: Sequence[int], factor: float) -> list[slice]:
    """Runs of neighbours whose sizes differ by at most ``factor``."""
    bounds, low, high = [0], sizes[0] if sizes else 0, 0
    for i, size in enumerate(sizes):
        low, high = min(low, size), max(high, size)
        if high > factor * low:
            bounds.append(i)
            low = high = size
    return [slice(a, b) for a, b in itertools.pairwise([*bounds, len(sizes)]) if a < b]


def _draw_large(group: Group, logits: Tensor, uniform: Tensor) -> Tensor:
    """A code of each span, (..., width), (..., spans) -> (..., spans)."""
    cdf = group.open(logits).softmax(-1).cumsum(-1, dtype=uniform.dtype)
    target = _targets(cdf[..., -1:], uniform.unsqueeze(-1))
    return torch.searchsorted(cdf, target, right=True).squeeze(-1)


def _draw_small(group: Group, logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw as ``_draw_large``, columns first."""
    columns = group.open_columns(_columns_first(logits))
    cdf = columns.softmax(-2).cumsum(-2, dtype=uniform.dtype)
    target = _targets(cdf[:, -1:], uniform.reshape(-1, 1, len(cdf)).transpose(0, 2))
    return (cdf <= target).sum(-2).t().reshape(uniform.shape)


def _targets(total: Tensor, uniform: Tensor) -> Tensor:
    """Return the target sums, below the total: rounding must not lead past the last code."""
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.minimum(uniform * total, below)


def _columns_first(rows: Tensor) -> Tensor:
    """Rows with their columns first in memory, (..., width) -> (width, rows)."""
    return rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1]).t().contiguous()


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@torch.no_grad()
def _gumbel(uniform: Tensor) -> Tensor:
    """-log(-log u), finite for every u in [0, 1]."""
    finfo = torch.finfo(uniform.dtype)
    return uniform.clamp(finfo.tiny, 1 - finfo.eps / 2).log_().neg_().log_().neg_()
