"""Rows of generators: tanh values, then one-hot spans; whatever acts on all spans of a row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from combutab.nn._stages import Scratch

# ---- All spans of a batch of rows whose columns come first in memory: (width, batch) -------------
# The derivatives are written out.

_SMALL = 64  # a span up to this size is gathered for each row where one a row is chosen


class SpanColumns:
    """``RowSpans`` on (width, batch), in memory given, with derivatives.

    Parameters
    ----------
    spans : RowSpans
    scratch : Scratch
    """

    def __init__(self, spans: RowSpans, scratch: Scratch) -> None:
        self.spans, self._scratch = spans, scratch
        self.n_values, self.width = spans.n_values, spans.width
        self.n_logits = spans.width - spans.n_values
        self._largest = max((spans.sizes[i] for i in spans.categories), default=0)

    @torch.no_grad()
    def activate(
        self, raw: Tensor, log_exponential: Tensor, out: Tensor, *, tau: float = 0.2
    ) -> Tensor:
        """Activate as ``RowSpans.activate``, (width, batch) -> (width, batch), in ``out``.

        ``log_exponential`` holds the logarithms of exponential draws, (n_logits, batch): minus
        Gumbel noise.
        """
        torch.tanh(raw[: self.n_values], out=out[: self.n_values])
        logits = self._scratch("logits", *log_exponential.shape)
        torch.sub(raw[self.n_values :], log_exponential, out=logits).div_(tau)
        for group, part, into in self._by_group(logits, out[self.n_values :]):
            if group.padded is None:
                torch.softmax(group.open_columns(part, 0.0), -2, out=group.open_columns(into, 0.0))
            else:
                into.copy_(
                    group.close_columns(torch.softmax(group.open_columns(part, -torch.inf), -2))
                )
        return out

    @torch.no_grad()
    def activate_backward(self, grad: Tensor, out: Tensor, *, tau: float = 0.2) -> Tensor:
        """The raw outputs' gradient in place of that of ``out``, which ``activate`` gave."""
        values = slice(0, self.n_values)
        torch.ops.aten.tanh_backward.grad_input(grad[values], out[values], grad_input=grad[values])
        logits = grad[self.n_values :]
        for group, part, into in self._by_group(out[self.n_values :], logits):
            p = group.open_columns(part, 0.0)
            into.copy_(group.close_columns(_softmax_backward(group.open_columns(into, 0.0), p)))
        logits.div_(tau)
        return grad

    @torch.no_grad()
    def cross_entropy(
        self, raw: Tensor, span: Tensor, code: Tensor, grad: Tensor, weight: float
    ) -> Tensor:
        """Compute ``RowSpans.cross_entropy``, (width, batch), (batch,), (batch,) -> (batch,).

        ``weight`` times its derivative is added to ``grad``.
        """
        if self._largest > _SMALL:
            with torch.enable_grad():
                rows = raw.t().contiguous().requires_grad_()
                loss = self.spans.cross_entropy(rows, span, code)
                (of_rows,) = torch.autograd.grad(loss.sum(), rows)
            grad.add_(of_rows.t(), alpha=weight)
            return loss.detach()
        place = torch.arange(self._largest, device=raw.device).unsqueeze(1)
        column = (self.spans.starts[span] + place).clamp_max_(self.width - 1)
        chosen = raw.gather(0, column)
        chosen.masked_fill_(place >= self.spans.span_sizes[span], -torch.inf)
        log_p = chosen.log_softmax(0)
        picked = code.unsqueeze(0)
        loss = log_p.gather(0, picked).squeeze(0).neg_()
        p = log_p.exp_()
        p.scatter_add_(0, picked, p.new_full(picked.shape, -1.0))
        grad.scatter_add_(0, column, p.mul_(weight))
        return loss

    @torch.no_grad()
    def cross_entropy_all(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Compute ``RowSpans.cross_entropy_all``, (n_logits, batch), (n_spans, batch) -> (batch,).

        The derivative is left in ``logits``.
        """
        total = logits.new_zeros(logits.shape[1])
        for group, _, into in self._by_group(logits, logits):
            log_p = torch.log_softmax(group.open_columns(into, -torch.inf), -2)
            picked = codes[group.spans].unsqueeze(1)
            total.sub_(log_p.gather(1, picked).sum((0, 1)))
            p = log_p.exp_()
            p.scatter_add_(1, picked, p.new_full((1, 1, 1), -1.0).expand(picked.shape))
            into.copy_(group.close_columns(p))
        return total

    def _by_group(self, x: Tensor, y: Tensor) -> list[tuple[Group, Tensor, Tensor]]:
        groups = self.spans.groups
        widths = [group.width for group in groups]
        return list(zip(groups, x.split(widths), y.split(widths), strict=True)) if groups else []


def _softmax_backward(grad: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(grad, out, -2, out.dtype)


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

    def close(self, x: Tensor) -> Tensor:  # (..., spans, size) -> (..., width)
        x = x.flatten(-2)
        return x if self.real is None else x.index_select(-1, self.real)

    # the same where columns come first in memory: a softmax over neighbouring rows of a matrix is
    # many times faster on a CPU than one over a few neighbouring numbers

    def open_columns(self, x: Tensor, fill: float) -> Tensor:  # (width, n) -> (spans, size, n)
        if self.padded is not None:
            x = torch.cat([x, x.new_full((1, x.shape[1]), fill)]).index_select(0, self.padded)
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
    """The layout of a generator's rows: ``n_values`` tanh outputs, then one-hot spans.

    All methods act on any leading shape and on all spans at once, in one pass a *group*:
    neighbouring spans of one size are a reshaped view. Where sizes are so many that this would
    make more than 8 groups, neighbours up to twice as large as each other share a group and the
    smaller ones are padded: then there are at most ``1 + log2(largest / smallest size)`` groups.

    Parameters
    ----------
    n_values : int
    sizes : sequence of int
        Of the spans, at least 1 each, sorted (in either direction).
    categories : sequence of int, optional
        Which spans may be conditions, increasing; all by default.
    missing : sequence of int, optional
        Which of the other spans have the code of a missing value as their last one.
    never : sequence of (int, int), optional
        Span and code of what ``sample`` never gives, in no span all there is.
    device : torch.device or str
    dtype : torch.dtype
        Of one-hot rows and conditions.

    Attributes
    ----------
    n_spans, width, n_condition : int
        Number of spans, of columns of a row, and of columns of a condition.
    starts : Tensor of int64, (n_spans,)
        Column of a row at which each span begins.

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
        never: Sequence[tuple[int, int]] = (),
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
        self.missing, self.never = tuple(missing), tuple(never)
        self._never = self._indices([starts[span] - n_values + code for span, code in never])
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
        """The spans alone, of rows that have no values."""
        return RowSpans(
            0,
            self.sizes,
            self.categories,
            missing=self.missing,
            never=self.never,
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
        place = torch.arange(largest, device=self.device)
        inside = place < self.span_sizes[spans].unsqueeze(1)
        first = (self.starts[spans] - self.starts[spans.start]).unsqueeze(1)
        padded = torch.where(inside, first + place, width).flatten()
        return Group(spans, width, largest, padded, inside.flatten().nonzero().squeeze(1))

    def _make_buckets(self, starts: Sequence[int]) -> tuple[list[_Bucket], list[int]]:
        """Buckets of spans up to 64, 256, 1024, ... and the bucket of each span."""
        classes = []
        for size in self.sizes:
            bound, which = _SMALL, 0
            while size > bound:
                bound, which = 4 * bound, which + 1
            classes.append(which)
        used = sorted(set(classes))
        if len(used) == 1 and self.n_spans > 1:  # gathered from whole rows: no slice to undo
            return [_Bucket(slice(0, self.width), max(self.sizes), self.n_spans)], [
                0
            ] * self.n_spans
        buckets = []
        for which in used:
            members = [i for i, c in enumerate(classes) if c == which]
            columns = slice(starts[members[0]], starts[members[-1] + 1])
            buckets.append(_Bucket(columns, max(self.sizes[i] for i in members), len(members)))
        return buckets, [used.index(which) for which in classes]

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Raw values and logits of a row, in at least float32."""
        values, logits = _wide(raw).split([self.n_values, self.width - self.n_values], dim=-1)
        return values, logits

    def _by_group(self, logits: Tensor) -> Iterator[tuple[Group, Tensor]]:
        # one split, whose derivative is one concatenation; a slice's is a whole row of zeros
        if self.groups:
            yield from zip(
                self.groups, logits.split([g.width for g in self.groups], -1), strict=True
            )

    def dense(self, values: Tensor, codes: Tensor) -> Tensor:
        """Rows as the networks see them, one-hot.

        Shape
        -----
        values : (..., n_values), codes : (..., n_spans) integer -> (..., width)
        """
        rows = torch.empty(*codes.shape[:-1], self.width, dtype=self.dtype, device=self.device)
        return self.write_rows(rows, values, codes)

    def write_rows(self, into: Tensor, values: Tensor, codes: Tensor) -> Tensor:
        """Write ``dense`` into memory given, and return it."""
        into.zero_()[..., : self.n_values] = values
        return into.scatter_(-1, codes + self.starts, 1.0)

    def condition(self, span: Tensor, code: Tensor) -> Tensor:
        """Condition vectors: one-hot over all categories, of one code of one span a row.

        Shape
        -----
        span : (...) integer, which span of all (one of ``categories``), code : (...) integer ->
        (..., n_condition)
        """
        rows = torch.zeros(*span.shape, self.n_condition, dtype=self.dtype, device=self.device)
        if self.n_condition == 0:
            return rows
        return rows.scatter_(-1, self.condition_column(span, code).unsqueeze(-1), 1.0)

    def condition_column(self, span: Tensor, code: Tensor) -> Tensor:
        """Return the column in which ``condition`` of these arguments has its one, int64."""
        return self._condition_starts[span] + code

    def activate(self, raw: Tensor, *, tau: float = 0.2, uniform: Tensor | None = None) -> Tensor:
        """Rows of raw outputs: tanh on values, Gumbel-softmax on spans.

        Parameters
        ----------
        raw : Tensor, (..., width)
            Half precision is computed in float32.
        tau : float
            Temperature.
        uniform : Tensor, (..., width - n_values), optional
            Uniform on [0, 1], in float32 or float64, which the Gumbel noise is made of; the
            plain softmax at this temperature without it.

        Returns
        -------
        Tensor, (..., width), twice differentiable
        """
        values, logits = self._split(raw)
        if uniform is not None:
            if uniform.shape != logits.shape:
                raise ValueError(
                    f"uniform must have the shape {tuple(logits.shape)} of the spans' logits, "
                    f"got {tuple(uniform.shape)}"
                )
            logits = logits + _gumbel(uniform).to(logits.dtype)
        pieces = [g.close(g.open(x).softmax(-1)) for g, x in self._by_group(logits / tau)]
        return torch.cat([torch.tanh(values), *pieces], dim=-1)

    @torch.no_grad()
    def sample(self, raw: Tensor, uniform: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values, and one code a span drawn from the softmax of its raw outputs.

        Parameters
        ----------
        raw : Tensor, (..., width)
        uniform : Tensor, (..., n_spans), optional
            Uniform on [0, 1): each draw inverts its span's cumulative distribution, which is
            summed in the uniforms' precision. Without it the most probable code is taken.

        Returns
        -------
        tuple of Tensor
            Values in [-1, 1], (..., n_values), and codes, (..., n_spans) int64.
        """
        values, logits = self._split(raw)
        if len(self._never):  # the others keep their odds
            logits = logits.index_fill(-1, self._never, -torch.inf)
        codes = torch.empty(*raw.shape[:-1], self.n_spans, dtype=torch.int64, device=raw.device)
        for group, part in self._by_group(logits):
            if uniform is None:
                codes[..., group.spans] = group.open(part).argmax(-1)
                continue
            drawn = _draw_small if group.size <= _SMALL else _draw_large
            found = drawn(group, part, uniform[..., group.spans])
            # beyond the span if a logit is NaN
            codes[..., group.spans] = found.clamp_max_(self.span_sizes[group.spans] - 1)
        return values.tanh().clamp_(-1, 1), codes

    def logits_of(self, i: int, raw: Tensor) -> Tensor:
        """Raw outputs of one span, (..., width) -> (..., size); -inf of codes never to be made."""
        start = int(self.starts[i])
        logits = raw[..., start : start + self.sizes[i]]
        never = [code for span, code in self.never if span == i]
        if not never:
            return logits
        return logits.index_fill(-1, torch.tensor(never, device=raw.device), -torch.inf)

    @torch.no_grad()
    def restrict(self, raw: Tensor, allowed: Mapping[int, Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Raw outputs of which only some codes are drawn, and how probable these were before.

        Spans are drawn independently: `sample` of the result, (..., width), gives what `sample` of
        ``raw`` gives where all codes are allowed, which has the probability that is returned, (...)
        float64. ``allowed`` has spans and their codes.

        Examples
        --------
        >>> spans = RowSpans(0, [4])
        >>> raw, mass = spans.restrict(torch.zeros(1, 4), {0: [1, 2]})
        >>> raw.softmax(-1), mass
        (tensor([[0.0000, 0.5000, 0.5000, 0.0000]]), tensor([0.5000], dtype=torch.float64))
        """
        log_mass = raw.new_zeros(raw.shape[:-1], dtype=torch.float64)
        raw = raw.clone() if allowed else raw
        for i, codes in allowed.items():
            start = int(self.starts[i])
            logits = raw[..., start : start + self.sizes[i]]
            kept = torch.zeros(self.sizes[i], dtype=torch.bool, device=raw.device)
            kept[list(codes)] = True
            log_mass += logits[..., kept].double().logsumexp(-1) - logits.double().logsumexp(-1)
            logits.masked_fill_(~kept, -torch.inf)
        return raw, log_mass.exp_()

    def cross_entropy(self, raw: Tensor, span: Tensor, code: Tensor) -> Tensor:
        """The cross-entropy of one span a row against a code.

        Only the columns of the chosen spans are read: memory is rows times the size of spans
        like the chosen one. With spans larger than 64 the rows are first sorted by size of span.

        Shape
        -----
        raw : (..., width), span, code : (...) integer -> (...)
        """
        flat = raw.reshape(-1, self.width)
        chosen, codes = span.reshape(-1), code.reshape(-1).long()
        if len(self._buckets) == 1:
            only = self._buckets[0]
            return self._one_span(flat[:, only.columns], chosen, codes, only).view(span.shape)
        loss = _wide(flat).new_zeros(len(flat))
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
            place = torch.arange(bucket.size, device=x.device)
            column = (self.starts[span] - bucket.columns.start).unsqueeze(1) + place
            x = _wide(x.gather(1, column.clamp_max_(x.shape[1] - 1)))
            x = x.masked_fill(place >= self.span_sizes[span].unsqueeze(1), -torch.inf)
        return -_wide(x).log_softmax(1).gather(1, code.unsqueeze(1)).squeeze(1)

    def cross_entropy_all(self, raw: Tensor, codes: Tensor) -> Tensor:
        """The sum of the cross-entropies of all spans.

        Shape
        -----
        raw : (..., width), codes : (..., n_spans) integer -> (...)
        """
        total = _wide(raw).new_zeros(raw.shape[:-1])
        for group, log_p in self.log_probabilities(raw):
            picked = log_p.gather(-1, codes[..., group.spans].unsqueeze(-1).long()).squeeze(-1)
            total = total - picked.sum(-1)
        return total

    def log_probabilities(self, raw: Tensor) -> Iterator[tuple[Group, Tensor]]:
        """Of each group's codes, (..., width) -> (..., spans, size) of each; -inf of padding."""
        _, logits = self._split(raw)
        for group, part in self._by_group(logits):
            yield group, group.open(part).log_softmax(-1)


def _runs(sizes: Sequence[int], factor: float) -> list[slice]:
    """Neighbours of which none is more than ``factor`` times as large as another."""
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
    columns = group.open_columns(logits.reshape(-1, group.width).t().contiguous(), -torch.inf)
    cdf = columns.softmax(-2).cumsum(-2, dtype=uniform.dtype)
    target = _targets(cdf[:, -1:], uniform.reshape(-1, 1, len(cdf)).transpose(0, 2))
    return (cdf <= target).sum(-2).t().reshape(uniform.shape)


def _targets(total: Tensor, uniform: Tensor) -> Tensor:
    """Return the sums to be met: below the total, lest rounding lead past the last code."""
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.minimum(uniform * total, below)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@torch.no_grad()
def _gumbel(uniform: Tensor) -> Tensor:
    """-log(-log u), finite for every u in [0, 1]."""
    finfo = torch.finfo(uniform.dtype)
    return uniform.clamp(finfo.tiny, 1 - finfo.eps / 2).log_().neg_().log_().neg_()
