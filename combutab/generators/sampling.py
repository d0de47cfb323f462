"""Rows of a fitted generator, drawn until as many meet the conditions as were asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from torch import Tensor

from combutab.core.device import Precision
from combutab.core.rng import (
    Stream,
    fold_in,
    random_uniform,
    uniforms,
)
from combutab.core.threads import limit_threads, network_threads
from combutab.generators._rules import Rules
from combutab.generators.completion import Search
from combutab.generators.conditions import (
    NEAREST,
    RANGES,
    Codes,
    Condition,
    Outside,
    PointConditions,
    Range,
    all_met,
    offset_of,
    span_of,
)
from combutab.nn import RowSpans, StackedNetwork
from combutab.preprocessing import (
    CategoryColumn,
    ModeEncoder,
    NumberColumn,
    ParquetParts,
)

# ---- Arguments of sampling and imputing ----------------------------------------------------------

_ARGUMENTS: dict[str, list[Any]] = {
    "n": [Interval(Integral, 0, None, closed="left"), None],
    "on_shortfall": [StrOptions({"error", "return"})],
    "max_tries": [Interval(Integral, 1, None, closed="left")],
    "n_draws": [Interval(Integral, 1, None, closed="left")],
}


def check_arguments(model: Any, method: str, **given: Any) -> None:
    """Refuse arguments of a model's method that it cannot go by."""
    name = f"{type(model).__name__}.{method}"
    validate_parameter_constraints({each: _ARGUMENTS[each] for each in given}, given, name)


# ---- Rows that are not found ---------------------------------------------------------------------


class ShortfallError(ValueError):
    """Too few rows that meet the conditions were found.

    Attributes
    ----------
    rows : DataFrame or array
        The rows that were found, in the form that ``sample`` returns.
    """

    def __init__(self, message: str, rows: Any = None) -> None:
        super().__init__(message)
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rows)


def fall_short(what: str, rows: Any, on_shortfall: str, instead: str) -> None:
    """Raise an error about rows that were not found, or warn and return those that were."""
    if on_shortfall == "return":
        warnings.warn(what, stacklevel=4)
        return
    kept = "; the rows found are the error's .rows, and on_shortfall='return' returns them"
    raise ShortfallError(what + (kept if len(rows) else "") + instead, rows)


# ---- What a network is asked for, and what it gives ---------------------------------------------

NetworkT = TypeVar("NetworkT", bound=StackedNetwork)  # that makes rows
FREE = -1  # a code that is not asked for
Allowed = Mapping[int, Sequence[int]]  # span -> the codes that may be drawn


class PointChoices(NamedTuple):
    """Values of a column of which each row is to have one, by the code that they have."""

    value_index: int
    by_code: Mapping[int, Sequence[float]]


class RowRequest(NamedTuple):
    """Rows asked of a network: ``n_rows`` rows a member, each by the member's key."""

    keys: Sequence[int]
    n_rows: int
    condition: Tensor  # (M, n_rows, n_condition); of no width where the network takes none
    allowed: Allowed
    # of networks that draw some columns beside others that are given
    codes: Tensor | None = None  # (M, n_rows, n_spans): those that are given; -1 where none is
    values: Tensor | None = None  # (M, n_rows, n_values), as codes; NaN where none is
    points: Mapping[int, PointChoices] = {}  # span -> the values wanted there

    def keys_for(self, purpose: Stream) -> list[int]:
        """The members' keys of what is drawn for one purpose."""
        return [fold_in(key, purpose) for key in self.keys]


class Samples(NamedTuple):
    """Rows of each member: (M, n_rows, n_values), (M, n_rows, n_spans) int64, (M, n_rows)."""

    values: Tensor
    codes: Tensor
    probability: Tensor  # how probable the allowed codes were


# ---- Rows that meet conditions, taken from more rows that a network makes ------------------------

_ENOUGH = 200.0  # rows expected of plain rejection, for the greatest probability to be known


class AcceptedRows:
    """Rows that meet conditions: those made so far that are to be kept, in their order.

    Whatever a network makes a row of (noise, and what it is asked for) gives codes that meet the
    conditions with a probability that is known. Plain rejection keeps the row with that
    probability. Any other factor of it gives the same distribution, as long as no row is kept with
    a probability above 1; so once plain rejection would have found enough rows for the greatest
    probability to be known, the factor is its inverse. Of rows that are rare because no noise makes
    them probable, many times as many are found, each of noise of its own.

    See Caffo, Booth and Davis (2002), "Empirical supremum rejection sampling".
    """

    def __init__(self, n_values: int, n_spans: int, search: Search | None = None) -> None:
        self._values = np.empty((0, n_values), dtype=np.float32)
        self._codes = np.empty((0, n_spans), dtype=np.int64)
        self._ratios = np.empty(0)
        self._search = search
        n_unique = 0 if search is None else search.n_unique
        self._labels = np.empty((0, n_unique), dtype=np.uint64)
        self._differ = np.empty((0, n_unique), dtype=bool)
        self._expected = self._greatest = 0.0

    def add(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        probability: np.ndarray,
        uniform: np.ndarray,
        labels: np.ndarray | None = None,
        differ: np.ndarray | None = None,
    ) -> None:
        """Take in n rows, whose codes were drawn among those that meet the conditions.

        ``probability`` is how probable such codes were, 0 for a row that does not meet other
        conditions, and ``uniform`` has draws on [0, 1); both are (n,). ``labels`` and ``differ``
        are as `Search.judge` has them.
        """
        self._expected += float(probability.sum())
        self._greatest = max(self._greatest, float(probability.max(initial=0.0)))
        ratios = np.concatenate([self._ratios, probability / (1 - uniform)])
        kept = ratios >= self._greatest if self._greatest else np.zeros(len(ratios), dtype=bool)
        self._ratios = ratios[kept]
        self._values = np.concatenate([self._values, values])[kept]
        self._codes = np.concatenate([self._codes, codes])[kept]
        if labels is not None and differ is not None:
            self._labels = np.concatenate([self._labels, labels])[kept]
            self._differ = np.concatenate([self._differ, differ])[kept]

    def __len__(self) -> int:
        return int(self._counted().sum())

    def first(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of n rows, or of as many as there are."""
        counted = np.flatnonzero(self._counted())[:n]
        if self._search is not None:
            self._search.take(self._labels[counted], self._differ[counted])
        return self._values[counted], self._codes[counted]

    def _counted(self) -> np.ndarray:
        bar = self._greatest if self._expected >= _ENOUGH else 1.0
        counted: np.ndarray = self._ratios >= bar
        if self._search is not None and self._search.n_unique:
            rows = np.flatnonzero(counted)
            counted[rows] = self._search.unseen(self._labels[rows], self._differ[rows])
        return counted


# ---- The sampler: a request (rows, conditions, key) in, rows out --------------------------------

_CHUNK = 5000  # rows generated at a time, at most
_MAX_TRIES = 100  # rows made for each that is streamed
_CHUNK_NUMBERS = 2**25  # in the encoded rows that are generated at a time, at most

Encoded = tuple[np.ndarray, np.ndarray]  # values (n, n_values) and codes (n, n_spans) of rows
# the same, and how probable the allowed codes were, (n,)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def join(parts: Sequence[Encoded]) -> Encoded:
    """Rows that were made in parts."""
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    return values, codes


class Sampler(Generic[NetworkT]):
    """A network that makes rows, in evaluation mode, with the layout of the rows.

    Its members take turns: row i is of member i % M. It is None where all columns are constant.
    ``draw`` is (network, spans, request) -> the network's rows; a ``conditional`` network takes a
    category for each row. ``rules`` are the constraints that rows meet.
    """

    rules: Rules | None = None
    # conditions that the network's rows need not meet
    _checked: ClassVar[tuple[type, ...]] = (Codes, Range, Outside, PointConditions)

    def __init__(
        self,
        encoder: ModeEncoder,
        network: NetworkT | None,
        spans: RowSpans,
        draw: Callable[[NetworkT, RowSpans, RowRequest], Samples],
        precision: str = "float32",
        conditional: bool = False,
    ) -> None:
        self.encoder, self.network, self.spans = encoder, network, spans
        self.n_members = 1 if network is None else len(network.members)
        self.conditional = conditional
        self._draw, self._precision = draw, Precision(precision)
        width = spans.width + spans.n_condition
        self.chunk = max(1, min(_CHUNK, _CHUNK_NUMBERS // max(1, width)))

    def search(
        self,
        conditions: Sequence[Condition] = (),
        shares: Sequence[Condition] = (),
        kept: bool = False,
    ) -> Search | None:
        """Begin to look for rows that meet constraints together; None if all rows do.

        ``conditions`` are those that the rows are decoded with; those of ``shares`` come later.
        Whether identifiers of a table are ``kept``, see `Search`.
        """
        if not self.rules:
            return None
        asked = [*conditions, *shares]
        moved = self.rules.repetitions and any(isinstance(each, RANGES) for each in asked)
        return Search(self.rules, conditions, kept) if self.rules.constraints or moved else None

    def draw(
        self,
        n: int,
        conditions: Sequence[Condition],
        key: int,
        max_tries: int,
        search: Search | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Values and codes of rows that all meet the same conditions, and how many were made.

        They are n, or fewer where about max_tries times as many rows hold no more. They meet the
        constraints, those of several calls with one ``search`` together.
        """
        search = self.search(conditions) if search is None else search
        conditions = conditions if search is None else search.rules.restrict(conditions)
        found = AcceptedRows(self.spans.n_values, self.spans.n_spans, search)
        propose = self._proposal(conditions)
        checked = [each for each in conditions if isinstance(each, self._checked)]
        # codes need not be decoded
        decoded = any(not isinstance(each, Codes) for each in checked)
        made = 0
        while propose is not None and len(found) < n:
            if made > max_tries * (max(n, _CHUNK) if len(found) else _CHUNK):
                break
            size = min(self.chunk, self._n_proposed(n - len(found), made, conditions))
            chunk_key = fold_in(key, Stream.CHUNK, made)
            values, codes, probability = propose(size, chunk_key)
            values = self.round_values(values, codes, chunk_key, conditions)
            judged: Sequence[np.ndarray]
            if search is not None:
                met, *judged = search.judge(values, codes, conditions, checked)
            else:
                table = self.encoder.decode(values, codes) if decoded else None
                met, judged = all_met(checked, codes, table), ()
            probability[~met] = 0.0
            uniform = random_uniform([fold_in(chunk_key, Stream.ACCEPTED)], size)[0].numpy()
            found.add(values, codes, probability, uniform, *judged)
            made += size
        return *found.first(n), made

    def stream(self, n: int, key: int) -> Iterator[Encoded]:
        """Values and codes of the n rows that `draw` gives without conditions, part by part.

        The first part is empty, so that there always is one.

        Raises ShortfallError if rows that meet the constraints are too rare.
        """
        yield self.draw(0, (), key, 1)[:2]
        propose, made, found, search = self._proposal(()), 0, 0, self.search()
        while propose is not None and found < n:
            if made > _MAX_TRIES * max(n, _CHUNK):
                assert search is not None
                raise ShortfallError(
                    f"only {found} of {made} rows met the constraints, {n} were asked for: "
                    f"{search.explain()}"
                )
            size = min(self.chunk, self._n_proposed(n - found, made, ()))
            chunk_key = fold_in(key, Stream.CHUNK, made)
            values, codes, _ = propose(size, chunk_key)
            values = self.round_values(values, codes, chunk_key)
            made += size
            if search is not None:
                met, labels, differ = search.judge(values, codes, (), ())
                rows = np.flatnonzero(met)
                rows = rows[search.unseen(labels[rows], differ[rows])][: n - found]
                search.take(labels[rows], differ[rows])
                values, codes = values[rows], codes[rows]
            yield values[: n - found], codes[: n - found]
            found += min(len(codes), n - found)

    def _proposal(self, conditions: Sequence[Condition]) -> Callable[[int, int], Rows] | None:
        """Make a function of a number and a key that gives rows; None if none can be as asked."""
        allowed = {each.span: each.codes for each in conditions if isinstance(each, Codes)}
        return lambda n, key: self.generate_allowed(
            n, *self._requested(n, conditions, key), key, allowed
        )

    def _n_proposed(self, n_missing: int, made: int, conditions: Sequence[Condition]) -> int:
        """How many rows to make next."""
        near = any(isinstance(each, PointConditions) for each in conditions)
        return self.chunk if made else n_missing * (NEAREST if near else 1)

    def draw_each(
        self, patterns: Sequence[Sequence[Condition]], which: np.ndarray, key: int, max_tries: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw rows that each meet conditions of their own: those of ``patterns[which[i]]``, row i.

        A pattern has one code a column. Returns values, codes, and which rows were never met, (n,)
        bool; these are left 0.
        """
        values = np.zeros((len(which), self.spans.n_values), dtype=np.float32)
        codes = np.zeros((len(which), self.spans.n_spans), dtype=np.int64)
        missed = np.ones(len(which), dtype=bool)
        requested = np.full((len(patterns), self.spans.n_spans), FREE)
        spent, limit = 0, max_tries * max(NEAREST * len(which), _CHUNK)
        for p, conditions in enumerate(patterns):
            if any(isinstance(each, PointConditions) for each in conditions):
                rows = np.flatnonzero(which == p)
                which = np.where(which == p, FREE, which)
                if spent <= limit:
                    own_key = fold_in(key, Stream.PATTERN, p)
                    drawn = self.draw(len(rows), conditions, own_key, max_tries)
                    rows, spent = rows[: len(drawn[0])], spent + drawn[2]
                    values[rows], codes[rows], missed[rows] = drawn[0], drawn[1], False
                continue
            for each in conditions:
                if isinstance(each, Codes):
                    requested[p, each.span] = each.codes[0]
        still, made = np.flatnonzero(which != FREE), 0
        limit = max_tries * max(len(still), _CHUNK)
        while len(still) and made <= limit:
            # the first time each row once; then rows that are hard to meet many times over
            copies = max(1, self.chunk // len(still)) if made else 1
            rows = np.repeat(still, copies)
            found = []
            for start in range(0, len(rows), self.chunk):
                part = which[rows[start : start + self.chunk]]
                chunk_key = fold_in(key, Stream.CHUNK, made)
                new = self.generate(len(part), *self._rarest(requested[part]), chunk_key)
                made += len(part)
                met = ((requested[part] == FREE) | (new[1] == requested[part])).all(axis=1)
                found.append((part[met], new[0][met], new[1][met]))
            met_pattern, new_values, new_codes = map(np.concatenate, zip(*found, strict=True))
            here, there = _pair_up(met_pattern, which[still])
            values[still[there]], codes[still[there]] = new_values[here], new_codes[here]
            missed[still[there]] = False
            still = np.delete(still, there)
        return values, codes, missed

    def generate(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Make the values and codes of n rows.

        A conditional network is asked to make ``code[i]`` of ``span[i]`` in row i; where the span
        is FREE, any category by the true frequencies.
        """
        values, codes, _ = self.generate_allowed(n, span, code, key, {})
        return self.round_values(values, codes, key), codes

    def round_values(
        self, values: np.ndarray, codes: np.ndarray, key: int, conditions: Sequence[Condition] = ()
    ) -> np.ndarray:
        """Values that were drawn, as finely written as the fitted numbers are.

        Those within a range that is wanted stay in it, and those near to points as they are.
        """
        found, spans = values.copy(), self.encoder.layout_.spans
        by_column = {self.encoder.schema_.position(each.column): each for each in conditions}
        for i, span in enumerate(spans):
            coder, own = self.encoder.columns_[span.column], by_column.get(span.column)
            if not isinstance(coder, NumberColumn) or coder.rounding_steps is None:
                continue
            if isinstance(own, PointConditions):
                continue
            within = [-np.inf, np.inf]
            for end, value in enumerate((own.low, own.high) if isinstance(own, Range) else ()):
                if value is not None:
                    within[end] = float(offset_of(coder, value)[0])
            j = span.value_index
            uniforms = random_uniform([fold_in(key, Stream.ROUNDING, i)], len(values))[0].numpy()
            found[:, j] = coder.round_to_steps(values[:, j], codes[:, i], uniforms, within)
        return found

    def generate_allowed(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int, allowed: Allowed
    ) -> Rows:
        """Generate rows of allowed codes only."""
        keys, share = self._deal_keys(n, key)
        request = RowRequest(keys, share, self._condition(keys, share, span, code), allowed)
        return _gather_rows(self._run(request), n)

    def generate_stack(self, keys: Sequence[int], n: int) -> tuple[Tensor, Tensor]:
        """Values (M, n, n_values) and codes (M, n, n_spans) of n rows a member, by a key each."""
        free = np.full(len(keys) * n, FREE)
        return self._run(RowRequest(keys, n, self._condition(keys, n, free, free), {}))[:2]

    def _deal_keys(self, n: int, key: int) -> tuple[list[int], int]:
        """The members' keys, and how many rows each makes, so that there are at least n."""
        keys = [fold_in(key, Stream.CHUNK_MEMBER, i) for i in range(self.n_members)]
        return keys, -(-n // len(keys))

    @torch.inference_mode()
    def _run(self, request: RowRequest) -> Samples:
        if self.network is None:
            empty = torch.empty(len(request.keys), request.n_rows, 0)
            return Samples(empty, empty.long(), torch.ones(empty.shape[:2]))
        flat = getattr(self.network, "flat", None)  # of neural networks
        flops = math.inf if flat is None else 2.0 * request.n_rows * flat.values.numel()
        context = self._precision.context(self.spans.device)
        with context(), limit_threads(network_threads(flops)):
            return self._draw(self.network, self.spans, request)

    def _requested(
        self, n: int, conditions: Sequence[Condition], key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """A category a row of the rarest column with a condition, by the true frequencies."""
        span, code = np.full(n, FREE), np.full(n, FREE)
        counts = self.encoder.category_counts_
        discrete = [
            (each.span, np.array(each.codes))
            for each in conditions
            if isinstance(each, Codes) and each.span in counts
        ]
        if discrete:
            share = [counts[i][codes].sum() for i, codes in discrete]
            rarest, allowed = discrete[int(np.argmin(share))]
            draws = random_uniform([fold_in(key, Stream.REQUESTED)], n)[0].numpy()
            span[:], code[:] = rarest, allowed[invert(counts[rarest][allowed], draws)]
        return span, code

    def _rarest(self, requested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find, of the codes (n, n_spans) asked of each row, the one that fewest rows have."""
        counts = self.encoder.category_counts_
        share = np.full(requested.shape, np.inf)
        for i in self.spans.categories:
            some = requested[:, i] != FREE
            share[some, i] = counts[i][requested[some, i]]
        rarest = share.argmin(axis=1) if requested.shape[1] else np.zeros(len(requested), dtype=int)
        code = requested[np.arange(len(requested)), rarest]
        return np.where(code == FREE, FREE, rarest), code

    def _condition(
        self, keys: Sequence[int], share: int, span: np.ndarray, code: np.ndarray
    ) -> Tensor:
        """Condition vectors (M, share, n_condition)."""
        spans, shape = self.spans, (len(keys), share)
        if not self.conditional or not spans.categories:
            return torch.zeros(*shape, 0, dtype=spans.dtype, device=spans.device)
        span, code = (_deal_out(x, *shape, FREE).copy() for x in (span, code))
        free = span == FREE
        draws = random_uniform([fold_in(key, Stream.CONDITIONS) for key in keys], 2 * share)
        which, place = draws.view(*shape, 2).numpy()[free].T
        span[free] = np.array(spans.categories)[(which * len(spans.categories)).astype(int)]
        for i in spans.categories:
            here = span[free] == i
            drawn = invert(self.encoder.category_counts_[i], place[here])
            code[free & (span == i)] = drawn
        device = spans.device
        return spans.condition(torch.from_numpy(span).to(device), torch.from_numpy(code).to(device))


def _deal_out(rows: np.ndarray, n_members: int, share: int, fill: float) -> np.ndarray:
    """Rows (n, ...) to members in turn, row i to member i % M: (M, share, ...)."""
    padded = np.full((share * n_members, *rows.shape[1:]), fill, dtype=rows.dtype)
    padded[: len(rows)] = rows
    return padded.reshape(share, n_members, *rows.shape[1:]).swapaxes(0, 1)


def _gather(dealt: Tensor, n: int) -> np.ndarray:
    """Invert `_deal_out`, of n rows."""
    rows: np.ndarray = dealt.cpu().numpy().swapaxes(0, 1)
    return rows.reshape(dealt.shape[0] * dealt.shape[1], *dealt.shape[2:])[:n]


def _gather_rows(drawn: Samples, n: int) -> Rows:
    return (
        _gather(drawn.values.float(), n),
        _gather(drawn.codes, n),
        _gather(drawn.probability, n),
    )


def invert(counts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Positions drawn with probabilities as the counts, by uniforms on [0, 1)."""
    sums = np.cumsum(counts, dtype=float)
    return np.minimum(np.searchsorted(sums, draws * sums[-1], "right"), len(sums) - 1)


def _pair_up(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of equal labels in two arrays, first with first, each used once at most."""
    frames = [
        pd.DataFrame({"label": labels, "at": np.arange(len(labels))}) for labels in (one, other)
    ]
    for frame in frames:
        frame["rank"] = frame.groupby("label").cumcount()
    pairs = frames[0].merge(frames[1], on=["label", "rank"])
    return pairs["at_x"].to_numpy(), pairs["at_y"].to_numpy()


class DirectSampler(Sampler[NetworkT]):
    """A sampler whose network draws columns beside others, and meets all but the ends of ranges."""

    _checked = (Range, Outside)

    def _proposal(self, conditions: Sequence[Condition]) -> Callable[[int, int], Rows] | None:
        given = np.full(self.spans.n_spans, FREE)
        allowed: dict[int, Sequence[int]] = {}
        points: dict[int, PointChoices] = {}
        for each in conditions:
            if isinstance(each, Codes):
                i, own = each.span, list(each.codes)
            else:
                i, index, coder = _numbers_of(self.encoder, each.column)
                if isinstance(each, PointConditions):
                    encoded = coder.encode(each.values, str(each.column), np.random.default_rng(0))
                    by_code: dict[int, list[float]] = {}
                    for value, code in zip(*(x.tolist() for x in encoded), strict=True):
                        by_code.setdefault(code, []).append(value)
                    points[i] = PointChoices(index, by_code)
                    own = [*by_code, *([coder.size - 1] if each.missing else [])]
                else:
                    own = _reached(coder, each)
            if len(own) == 1:
                given[i] = own[0]
            else:
                allowed[i] = own
        if not all(allowed.values()):  # no bin reaches into a range
            return None
        return lambda n, key: self.fill(np.tile(given, (n, 1)), None, key, allowed, points)

    def _n_proposed(self, n_missing: int, made: int, conditions: Sequence[Condition]) -> int:
        return max(2 * n_missing, 100) if made else n_missing

    def draw_each(
        self, patterns: Sequence[Sequence[Condition]], which: np.ndarray, key: int, max_tries: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Sampler`: no row is missed."""
        of_codes = np.full((len(patterns), self.spans.n_spans), FREE)
        of_values = np.full((len(patterns), self.spans.n_values), np.nan, dtype=np.float32)
        numbers: dict[Any, dict[int, pd.Series]] = {}
        for p, conditions in enumerate(patterns):
            for each in conditions:
                if isinstance(each, PointConditions):
                    numbers.setdefault(each.column, {})[p] = each.values
                elif isinstance(each, Codes):
                    of_codes[p, each.span] = each.codes[0]
        for column, own in numbers.items():  # all at once: they may be as many as the rows
            i, index, coder = _numbers_of(self.encoder, column)
            given = pd.concat(list(own.values()), ignore_index=True)
            encoded = coder.encode(given, str(column), np.random.default_rng(0))
            of_values[list(own), index], of_codes[list(own), i] = encoded
        values, codes = self.complete(of_codes[which], of_values[which], key)
        return values, codes, np.zeros(len(which), dtype=bool)

    def complete(
        self,
        codes: np.ndarray,
        values: np.ndarray,
        key: int,
        allowed: Allowed | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw what is not given of rows: codes (n, n_spans), FREE; values (n, n_values), NaN."""
        parts = []
        for start in range(0, len(codes), self.chunk):
            given = values[start : start + self.chunk]
            own_codes = codes[start : start + self.chunk]
            own_key = fold_in(key, Stream.CHUNK, start)
            drawn, found, _ = self.fill(own_codes, given, own_key, allowed or {}, {})
            written = self.round_values(drawn, found, own_key)
            parts.append((np.where(np.isnan(given), written, drawn), found))
        if not parts:
            return values.astype(np.float32), codes
        return join(parts)

    def fill(
        self,
        codes: np.ndarray,
        values: np.ndarray | None,
        key: int,
        allowed: Allowed,
        points: Mapping[int, PointChoices],
    ) -> Rows:
        """Rows of these codes and values, all else drawn, and how probable allowed codes were."""
        keys, share = self._deal_keys(len(codes), key)

        def deal(rows: np.ndarray, fill: float) -> Tensor:
            dealt = np.ascontiguousarray(_deal_out(rows, len(keys), share, fill))
            return torch.from_numpy(dealt).to(self.spans.device)

        request = RowRequest(
            keys,
            share,
            torch.empty(len(keys), share, 0),
            allowed,
            deal(codes, FREE),
            None if values is None else deal(values, np.nan),
            points,
        )
        return _gather_rows(self._run(request), len(codes))


def _numbers_of(encoder: ModeEncoder, column: Any) -> tuple[int, int, NumberColumn]:
    """The span of a column of numbers, the index of its values, and what encodes it."""
    j = encoder.schema_.position(column)
    i, coder = span_of(encoder, j), encoder.columns_[j]
    index = encoder.layout_.spans[i].value_index
    assert isinstance(coder, NumberColumn)
    assert index is not None
    return i, index, coder


def _reached(coder: NumberColumn, condition: Range | Outside) -> list[int]:
    """The bins that hold numbers of a range, or some that are outside of ranges."""
    codes = np.arange(coder.size - coder.missing)
    ends = [coder.decode(np.full(len(codes), end), codes) for end in (-1.0, 1.0)]
    if isinstance(condition, Range):
        lowest, highest = ends
        inside = np.ones(len(codes), dtype=bool)
        if condition.low is not None:
            inside &= highest.ge(condition.low).to_numpy(dtype=bool)
        if condition.high is not None:
            below = lowest.lt if condition.open else lowest.le
            inside &= below(condition.high).to_numpy(dtype=bool)
        return codes[inside].tolist()
    tables = [pd.DataFrame({condition.column: each}) for each in ends]
    within = [
        np.logical_and(*(each.met(codes, table) for table in tables)) for each in condition.ranges
    ]
    others = codes[~np.any(within, axis=0)] if within else codes
    return [*others.tolist(), *([coder.size - 1] if condition.missing else [])]


def choose_points(request: RowRequest, codes: Tensor, values: Tensor, spans: RowSpans) -> Tensor:
    """Give each row one of the values that are wanted in its bin, all of them equally likely."""
    u = uniforms(
        request.keys_for(Stream.LATENT), request.n_rows, len(request.points), device=codes.device
    )
    for k, (span, (index, by_code)) in enumerate(request.points.items()):
        for code, within in by_code.items():
            here = codes[..., span] == code
            among = torch.tensor(within, dtype=values.dtype, device=values.device)
            chosen = among[(u[..., k] * len(within)).long().clamp_(max=len(within) - 1)]
            values[..., index] = torch.where(here, chosen, values[..., index])
    return values


# ---- Rows that are written to a Parquet file part by part ----------------------------------------

PART = 1 << 16  # rows that are decoded at a time
Change = Callable[[pd.DataFrame], pd.DataFrame]


class RowWriter:
    """Encoded rows, decoded and written; ``change`` is what is done to them before."""

    def __init__(self, rules: Rules, parts: ParquetParts, change: Change | None = None) -> None:
        self.rules, self.parts, self.change = rules, parts, change
        self._made: dict[int, int] = {}
        self._types: dict[str, Any] | None = None

    def write(
        self, values: np.ndarray, codes: np.ndarray, conditions: Sequence[Condition] = ()
    ) -> None:
        """Write rows that meet conditions, those of each call as a row group of their own."""
        table = self.rules.decode(values, codes, conditions, self._made)
        if self._types is None:
            self._types = self._find_types()
        self.parts.write_frame(self._as_frame(table), self._types)

    def write_all(
        self, values: np.ndarray, codes: np.ndarray, conditions: Sequence[Condition] = ()
    ) -> None:
        """Write rows a part at a time; where there are none, the columns alone."""
        for start in range(0, max(1, len(codes)), PART):
            self.write(values[start : start + PART], codes[start : start + PART], conditions)

    def write_stream(self, parts: Iterable[Encoded]) -> None:
        """Write rows as they are made, several small parts as one; one part at least."""
        held: list[Encoded] = []
        for part in parts:
            held.append(part)
            if sum(len(codes) for _, codes in held) >= PART:
                self.write(*join(held))
                held.clear()
        if held:
            self.write(*join(held))

    def _as_frame(self, table: Any) -> pd.DataFrame:
        frame = self.rules.forms.write(pd.DataFrame(table))
        return frame if self.change is None else self.change(frame)

    def _find_types(self) -> dict[str, Any]:
        """Values of each column that show its type: the rows of a part may all be missing."""
        types = {}
        for name in self.rules.names:
            coder = self.rules.coders[name]
            if isinstance(coder, CategoryColumn):
                values = coder.values
            elif isinstance(coder, NumberColumn):
                values = coder.bounds
            else:
                values = coder.decode(np.zeros(1, dtype=np.intp))
            types[str(name)] = self._as_frame(pd.DataFrame({name: values})).iloc[:, 0]
        return types
