"""Samplers: requests for rows (number, conditions, key) in, encoded rows out."""

from __future__ import annotations

import math
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

from combutab.core.device import Precision, limit_threads, network_threads
from combutab.core.rng import (
    Stream,
    fold_in,
    random_uniform,
    uniforms,
)
from combutab.generators._rules import Rules
from combutab.generators.completion import (
    CHUNK,
    Completion,
    DrawnRows,
    UniqueValues,
    report_shortfall,
    row_budget,
)
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


def check_arguments(model: Any, method: str, **arguments: Any) -> None:
    """Refuse invalid arguments of a model's method."""
    name = f"{type(model).__name__}.{method}"
    validate_parameter_constraints({n: _ARGUMENTS[n] for n in arguments}, arguments, name)


# ---- Requests to a network, and its answers ------------------------------------------------------

NetworkT = TypeVar("NetworkT", bound=StackedNetwork)
FREE = -1  # the code of a cell that is to be drawn
Allowed = Mapping[int, Sequence[int]]  # span -> the codes that may be drawn


class PointChoices(NamedTuple):
    """Requested numbers of a column by their code; each row gets one of them."""

    value_index: int
    by_code: Mapping[int, Sequence[float]]


class RowRequest(NamedTuple):
    """A request for ``n_rows`` rows per member of a network, each by the member's key."""

    keys: Sequence[int]
    n_rows: int
    condition: Tensor  # (M, n_rows, n_condition); n_condition is 0 for unconditional networks
    allowed: Allowed
    # for networks that can draw some columns given others
    codes: Tensor | None = None  # (M, n_rows, n_spans): fixed codes; -1 for free cells
    values: Tensor | None = None  # (M, n_rows, n_values): fixed values; NaN for free cells
    points: Mapping[int, PointChoices] = {}  # span -> requested numbers

    def keys_for(self, purpose: Stream) -> list[int]:
        """The members' keys for one purpose."""
        return [fold_in(key, purpose) for key in self.keys]


class Samples(NamedTuple):
    """Rows of each member: (M, n_rows, n_values), (M, n_rows, n_spans) int64, (M, n_rows)."""

    values: Tensor
    codes: Tensor
    probability: Tensor  # of the allowed codes

    def gather(self, n: int) -> Rows:
        """The first n rows, which the members have in turn; inverts `_deal_out`."""
        n_dealt = self.codes.shape[0] * self.codes.shape[1]
        values, codes, probability = (
            rows.cpu().numpy().swapaxes(0, 1).reshape(n_dealt, *rows.shape[2:])[:n]
            for rows in (self.values.float(), self.codes, self.probability)
        )
        return values, codes, probability


# ---- Rejection sampling --------------------------------------------------------------------------

_ENOUGH = 200.0  # rows expected from plain rejection, for the greatest probability to be known


class Candidates(NamedTuple):
    """Encoded rows that may be accepted."""

    values: np.ndarray  # (n, n_values)
    codes: np.ndarray  # (n, n_spans)
    probability: np.ndarray  # (n,), of the allowed codes; 0 for a row that fails a check
    uniform: np.ndarray  # (n,), draws on [0, 1) that decide which rows are accepted
    unique: UniqueValues


class AcceptedRows:
    """Candidates that are accepted with their probability, in the order in which they were drawn.

    A network gives codes that meet the conditions with a known probability. Plain rejection accepts
    the row with that probability. Any multiple of it gives the same distribution, as long as no row
    is accepted with a probability above 1. Once plain rejection would have found enough rows for
    the greatest probability to be known, the factor is its inverse. If rows are rare because no
    noise makes them probable, many times more of them are found, each from different noise.

    See Caffo, Booth and Davis (2002), "Empirical supremum rejection sampling".
    """

    def __init__(self, n_values: int, n_spans: int, completion: Completion | None = None) -> None:
        self._values = np.empty((0, n_values), dtype=np.float32)
        self._codes = np.empty((0, n_spans), dtype=np.int64)
        self._ratios = np.empty(0)
        self._completion = completion
        self._unique = UniqueValues.empty(0, 0 if completion is None else completion.n_unique)
        self._expected = self._greatest = 0.0

    def add(self, candidates: Candidates) -> None:
        """Add candidates; those that can no longer be accepted are dropped."""
        probability = candidates.probability
        self._expected += float(probability.sum())
        self._greatest = max(self._greatest, float(probability.max(initial=0.0)))
        ratios = np.concatenate([self._ratios, probability / (1 - candidates.uniform)])
        possible = np.flatnonzero((ratios >= self._greatest) & (self._greatest > 0))
        self._ratios = ratios[possible]
        self._values = np.concatenate([self._values, candidates.values])[possible]
        self._codes = np.concatenate([self._codes, candidates.codes])[possible]
        self._unique = self._unique.append(candidates.unique)[possible]

    def __len__(self) -> int:
        return len(self._find())

    def first(self, n: int) -> Encoded:
        """Values and codes of the first n accepted rows, or of all if there are fewer."""
        rows = self._find()[:n]
        if self._completion is not None:
            self._completion.use(self._unique[rows])
        return self._values[rows], self._codes[rows]

    def _find(self) -> np.ndarray:
        bar = self._greatest if self._expected >= _ENOUGH else 1.0
        rows = np.flatnonzero(self._ratios >= bar)
        if self._completion is not None and self._completion.n_unique:
            rows = rows[self._completion.find_unused(self._unique[rows])]
        return rows


# ---- Samplers ------------------------------------------------------------------------------------

_MAX_TRIES = 100  # candidates for each row that is streamed
_CHUNK_NUMBERS = 2**25  # in the encoded rows that are generated together, at most

Encoded = tuple[np.ndarray, np.ndarray]  # values (n, n_values) and codes (n, n_spans) of rows
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # the same, and the codes' probability, (n,)


def join(parts: Sequence[Encoded]) -> Encoded:
    """Concatenate the parts of encoded rows."""
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    return values, codes


class Sampler(Generic[NetworkT]):
    """A network in evaluation mode that draws rows, with the layout of the rows.

    Row i is drawn by member i % M. The network is None if all columns are
    constant. ``draw`` is (network, spans, request) -> the network's rows; a ``conditional`` network
    needs a category for each row. ``rules`` are the constraints that rows meet.
    """

    rules: Rules | None = None
    # conditions that have to be checked in the network's rows
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
        self.chunk = max(1, min(CHUNK, _CHUNK_NUMBERS // max(1, width)))

    def completion(
        self,
        conditions: Sequence[Condition] = (),
        shares: Sequence[Condition] = (),
        compares_identifiers: bool = False,
    ) -> Completion | None:
        """Begin to complete rows that meet constraints together; None if all rows do.

        The rows are decoded with ``conditions``; ``shares`` are further conditions of some rows.
        """
        if not self.rules:
            return None
        has_ranges = any(isinstance(condition, RANGES) for condition in [*conditions, *shares])
        if not self.rules.constraints and not (has_ranges and self.rules.repetitions):
            return None
        return Completion(self.rules, conditions, compares_identifiers)

    def draw(
        self,
        n: int,
        conditions: Sequence[Condition],
        key: int,
        max_tries: int,
        completion: Completion | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Values and codes of n rows that meet the same conditions, and the number of candidates.

        There are fewer rows if the candidates of `row_budget` do not contain n. The rows of
        several calls with one ``completion`` meet the constraints together.
        """
        completion = self.completion(conditions) if completion is None else completion
        if completion is not None:
            conditions = completion.rules.restrict(conditions)
        accepted = AcceptedRows(self.spans.n_values, self.spans.n_spans, completion)
        propose, n_tried = self._proposal(conditions), 0
        while propose is not None and (n_missing := n - len(accepted)) > 0:
            if n_tried > row_budget(n if len(accepted) else 0, max_tries):
                break
            size = min(self.chunk, self._n_proposed(n_missing, n_tried, conditions))
            chunk_key = fold_in(key, Stream.CHUNK, n_tried)
            accepted.add(self._check(propose(size, chunk_key), conditions, chunk_key, completion))
            n_tried += size
        return *accepted.first(n), n_tried

    def stream(self, n: int, key: int) -> Iterator[Encoded]:
        """Values and codes of the n rows that `draw` gives without conditions, part by part.

        The first part is empty, so that there is at least one.

        Raises ShortfallError if rows that meet the constraints are too rare.
        """
        yield self.draw(0, (), key, 1)[:2]
        propose, n_tried, n_found, completion = self._proposal(()), 0, 0, self.completion()
        while propose is not None and n_found < n:
            if n_tried > row_budget(n, _MAX_TRIES):
                problem = (
                    f"only {n_found} of {n_tried} rows met the constraints, {n} were asked for"
                )
                report_shortfall(problem, completion, "ask for fewer, or leave a constraint out")
            size = min(self.chunk, self._n_proposed(n - n_found, n_tried, ()))
            chunk_key = fold_in(key, Stream.CHUNK, n_tried)
            accepted = AcceptedRows(self.spans.n_values, self.spans.n_spans, completion)
            accepted.add(self._check(propose(size, chunk_key), (), chunk_key, completion))
            values, codes = accepted.first(n - n_found)
            yield values, codes
            n_tried, n_found = n_tried + size, n_found + len(codes)

    def _check(
        self,
        rows: Rows,
        conditions: Sequence[Condition],
        key: int,
        completion: Completion | None,
    ) -> Candidates:
        """Round the numbers of drawn rows, and check the conditions and constraints."""
        values, codes, probability = rows
        values = self.round_values(values, codes, key, conditions)
        checked = [condition for condition in conditions if isinstance(condition, self._checked)]
        if completion is not None:
            is_met, unique = completion.check(values, codes, conditions, checked)
        else:
            is_decoded = any(not isinstance(condition, Codes) for condition in checked)
            table = self.encoder.decode(values, codes) if is_decoded else None
            is_met, unique = all_met(checked, codes, table), UniqueValues.empty(len(codes), 0)
        probability[~is_met] = 0.0
        uniform = random_uniform([fold_in(key, Stream.ACCEPTED)], len(codes))[0].numpy()
        return Candidates(values, codes, probability, uniform, unique)

    def _proposal(self, conditions: Sequence[Condition]) -> Callable[[int, int], Rows] | None:
        """Make a function (n, key) -> rows; None if no row can meet the conditions."""
        allowed = {c.span: c.codes for c in conditions if isinstance(c, Codes)}
        return lambda n, key: self.generate_allowed(
            n, *self._requested(n, conditions, key), key, allowed
        )

    def _n_proposed(self, n_missing: int, n_tried: int, conditions: Sequence[Condition]) -> int:
        """The number of rows to draw next."""
        has_points = any(isinstance(condition, PointConditions) for condition in conditions)
        return self.chunk if n_tried else n_missing * (NEAREST if has_points else 1)

    def draw_each(
        self, patterns: Sequence[Sequence[Condition]], which: np.ndarray, key: int, max_tries: int
    ) -> DrawnRows:
        """Draw a row for each i that meets the conditions ``patterns[which[i]]``.

        A pattern has one code per column. Rows that are missed are 0.
        """
        values = np.zeros((len(which), self.spans.n_values), dtype=np.float32)
        codes = np.zeros((len(which), self.spans.n_spans), dtype=np.int64)
        missed = np.ones(len(which), dtype=bool)
        requested = np.full((len(patterns), self.spans.n_spans), FREE)
        n_tried, budget = 0, row_budget(NEAREST * len(which), max_tries)
        for p, conditions in enumerate(patterns):
            for condition in conditions:
                if isinstance(condition, Codes):
                    requested[p, condition.span] = condition.codes[0]
            if not any(isinstance(condition, PointConditions) for condition in conditions):
                continue
            rows = np.flatnonzero(which == p)
            which = np.where(which == p, FREE, which)
            if n_tried <= budget:
                pattern_key = fold_in(key, Stream.PATTERN, p)
                *drawn, n_candidates = self.draw(len(rows), conditions, pattern_key, max_tries)
                rows, n_tried = rows[: len(drawn[0])], n_tried + n_candidates
                values[rows], codes[rows], missed[rows] = drawn[0], drawn[1], False
        pending, n_tried = np.flatnonzero(which != FREE), 0
        budget = row_budget(len(pending), max_tries)
        while len(pending) and n_tried <= budget:
            # first one candidate for each row, then many for the rows that are hard to meet
            n_copies = max(1, self.chunk // len(pending)) if n_tried else 1
            rows = np.repeat(pending, n_copies)
            parts = []
            for start in range(0, len(rows), self.chunk):
                pattern = which[rows[start : start + self.chunk]]
                chunk_key = fold_in(key, Stream.CHUNK, n_tried)
                new = self.generate(len(pattern), *self._rarest(requested[pattern]), chunk_key)
                n_tried += len(pattern)
                met = ((requested[pattern] == FREE) | (new[1] == requested[pattern])).all(axis=1)
                parts.append((pattern[met], new[0][met], new[1][met]))
            met_pattern, new_values, new_codes = map(np.concatenate, zip(*parts, strict=True))
            new_rows, pairs = _pair_up(met_pattern, which[pending])
            accepted = pending[pairs]
            values[accepted], codes[accepted] = new_values[new_rows], new_codes[new_rows]
            missed[accepted] = False
            pending = np.delete(pending, pairs)
        return DrawnRows(values, codes, missed)

    def generate(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the values and codes of n rows.

        A conditional network is asked for ``code[i]`` of ``span[i]`` in row i; where the span is
        FREE, for any category with its frequency.
        """
        values, codes, _ = self.generate_allowed(n, span, code, key, {})
        return self.round_values(values, codes, key), codes

    def round_values(
        self, values: np.ndarray, codes: np.ndarray, key: int, conditions: Sequence[Condition] = ()
    ) -> np.ndarray:
        """Round drawn values to the decimals of the fitted numbers.

        Values within a requested range stay in it, and those near requested numbers are unchanged.
        """
        rounded, spans = values.copy(), self.encoder.layout_.spans
        by_column = {self.encoder.schema_.position(c.column): c for c in conditions}
        for i, span in enumerate(spans):
            coder, condition = self.encoder.columns_[span.column], by_column.get(span.column)
            if not coder.is_continuous or coder.rounding_steps is None:
                continue
            if isinstance(condition, PointConditions):
                continue
            ends = [-np.inf, np.inf]
            if isinstance(condition, Range):
                for end, value in enumerate((condition.low, condition.high)):
                    if value is not None:
                        ends[end] = float(offset_of(coder, value)[0])
            j = span.value_index
            uniforms = random_uniform([fold_in(key, Stream.ROUNDING, i)], len(values))[0].numpy()
            rounded[:, j] = coder.round_to_steps(values[:, j], codes[:, i], uniforms, ends)
        return rounded

    def generate_allowed(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int, allowed: Allowed
    ) -> Rows:
        """Generate rows with allowed codes only."""
        keys, n_rows = self._deal_keys(n, key)
        request = RowRequest(keys, n_rows, self._condition(keys, n_rows, span, code), allowed)
        return self._run(request).gather(n)

    def generate_stack(self, keys: Sequence[int], n: int) -> tuple[Tensor, Tensor]:
        """Values (M, n, n_values) and codes (M, n, n_spans) of n rows per member, one key each."""
        free = np.full(len(keys) * n, FREE)
        return self._run(RowRequest(keys, n, self._condition(keys, n, free, free), {}))[:2]

    def _deal_keys(self, n: int, key: int) -> tuple[list[int], int]:
        """The members' keys, and the number of rows that each draws for at least n in total."""
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
        """Draw a category per row, by its frequency, for the rarest column with a condition."""
        span, code = np.full(n, FREE), np.full(n, FREE)
        counts = self.encoder.category_counts_
        allowed = {
            condition.span: np.array(condition.codes)
            for condition in conditions
            if isinstance(condition, Codes) and condition.span in counts
        }
        if allowed:
            rarest = min(allowed, key=lambda i: counts[i][allowed[i]].sum())
            draws = random_uniform([fold_in(key, Stream.REQUESTED)], n)[0].numpy()
            codes = allowed[rarest]
            span[:], code[:] = rarest, codes[invert(counts[rarest][codes], draws)]
        return span, code

    def _rarest(self, requested: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the span and the code of the rarest of the codes requested for each row."""
        counts = self.encoder.category_counts_
        n_fitted = np.full(requested.shape, np.inf)
        for i in self.spans.categories:
            rows = requested[:, i] != FREE
            n_fitted[rows, i] = counts[i][requested[rows, i]]
        n_rows, n_spans = requested.shape
        span = n_fitted.argmin(axis=1) if n_spans else np.zeros(n_rows, dtype=int)
        code = requested[np.arange(n_rows), span]
        return np.where(code == FREE, FREE, span), code

    def _condition(
        self, keys: Sequence[int], n_rows: int, span: np.ndarray, code: np.ndarray
    ) -> Tensor:
        """Condition vectors (M, n_rows, n_condition)."""
        spans, shape = self.spans, (len(keys), n_rows)
        if not self.conditional or not spans.categories:
            return torch.zeros(*shape, 0, dtype=spans.dtype, device=spans.device)
        span, code = (_deal_out(x, *shape, FREE).copy() for x in (span, code))
        free = span == FREE
        draws = random_uniform([fold_in(key, Stream.CONDITIONS) for key in keys], 2 * n_rows)
        span_draws, code_draws = draws.view(*shape, 2).numpy()[free].T
        span[free] = np.array(spans.categories)[(span_draws * len(spans.categories)).astype(int)]
        for i in spans.categories:
            drawn = invert(self.encoder.category_counts_[i], code_draws[span[free] == i])
            code[free & (span == i)] = drawn
        device = spans.device
        return spans.condition(torch.from_numpy(span).to(device), torch.from_numpy(code).to(device))


def _deal_out(rows: np.ndarray, n_members: int, n_rows: int, fill: float) -> np.ndarray:
    """Rows (n, ...) to members in turn, row i to member i % M: (M, n_rows, ...)."""
    padded = np.full((n_rows * n_members, *rows.shape[1:]), fill, dtype=rows.dtype)
    padded[: len(rows)] = rows
    return padded.reshape(n_rows, n_members, *rows.shape[1:]).swapaxes(0, 1)


def invert(counts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Positions drawn with probabilities as the counts, by uniforms on [0, 1)."""
    sums = np.cumsum(counts, dtype=float)
    return np.minimum(np.searchsorted(sums, draws * sums[-1], "right"), len(sums) - 1)


def _pair_up(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair equal labels of two arrays, in their order; returns their positions in both arrays."""
    frames = [
        pd.DataFrame({"label": labels, "row": np.arange(len(labels))}) for labels in (first, second)
    ]
    for frame in frames:
        frame["rank"] = frame.groupby("label").cumcount()
    pairs = frames[0].merge(frames[1], on=["label", "rank"])
    return pairs["row_x"].to_numpy(), pairs["row_y"].to_numpy()


class DirectSampler(Sampler[NetworkT]):
    """A sampler whose network draws columns given others; only the ends of ranges are checked."""

    _checked = (Range, Outside)

    def _proposal(self, conditions: Sequence[Condition]) -> Callable[[int, int], Rows] | None:
        fixed, allowed, points = self.encode_conditions(conditions)
        if not all(allowed.values()):  # no bin overlaps a range
            return None
        return lambda n, key: self.fill(np.tile(fixed, (n, 1)), None, key, allowed, points)

    def encode_conditions(
        self, conditions: Sequence[Condition]
    ) -> tuple[np.ndarray, dict[int, Sequence[int]], dict[int, PointChoices]]:
        """The codes of conditions: one per span or FREE, (n_spans,); several; and numbers."""
        fixed = np.full(self.spans.n_spans, FREE)
        allowed: dict[int, Sequence[int]] = {}
        points: dict[int, PointChoices] = {}
        for condition in conditions:
            if isinstance(condition, Codes):
                i, codes = condition.span, list(condition.codes)
            elif isinstance(condition, PointConditions):
                i, points[i], codes = self._encode_points(condition)
            else:
                i, _, coder = _numbers_of(self.encoder, condition.column)
                codes = _codes_within(coder, condition)
            if len(codes) == 1:
                fixed[i] = codes[0]
            else:
                allowed[i] = codes
        return fixed, allowed, points

    def _encode_points(self, condition: PointConditions) -> tuple[int, PointChoices, list[int]]:
        """The span of requested numbers, their values by code, and the codes that rows may have."""
        i, index, coder = _numbers_of(self.encoder, condition.column)
        rng = np.random.default_rng(0)
        values, codes = coder.encode(condition.values, str(condition.column), rng)
        by_code: dict[int, list[float]] = {}
        for value, code in zip(values.tolist(), codes.tolist(), strict=True):
            by_code.setdefault(code, []).append(value)
        missing = [coder.missing_code] if condition.missing else []
        return i, PointChoices(index, by_code), [*by_code, *missing]

    def _n_proposed(self, n_missing: int, n_tried: int, conditions: Sequence[Condition]) -> int:
        return max(2 * n_missing, 100) if n_tried else n_missing

    def draw_each(
        self, patterns: Sequence[Sequence[Condition]], which: np.ndarray, key: int, max_tries: int
    ) -> DrawnRows:
        """See `Sampler`; no row is missed."""
        pattern_codes = np.full((len(patterns), self.spans.n_spans), FREE)
        pattern_values = np.full((len(patterns), self.spans.n_values), np.nan, dtype=np.float32)
        numbers: dict[Any, dict[int, pd.Series]] = {}
        for p, conditions in enumerate(patterns):
            for condition in conditions:
                if isinstance(condition, PointConditions):
                    numbers.setdefault(condition.column, {})[p] = condition.values
                elif isinstance(condition, Codes):
                    pattern_codes[p, condition.span] = condition.codes[0]
        for column, by_pattern in numbers.items():  # encoded together, as there may be many
            i, index, coder = _numbers_of(self.encoder, column)
            requested = pd.concat(list(by_pattern.values()), ignore_index=True)
            encoded = coder.encode(requested, str(column), np.random.default_rng(0))
            pattern_values[list(by_pattern), index], pattern_codes[list(by_pattern), i] = encoded
        values, codes = self.complete(pattern_codes[which], pattern_values[which], key)
        return DrawnRows(values, codes, np.zeros(len(which), dtype=bool))

    def complete(
        self,
        codes: np.ndarray,
        values: np.ndarray,
        key: int,
        allowed: Allowed | None = None,
        points: Mapping[int, PointChoices] | None = None,
    ) -> Encoded:
        """Draw the free cells of rows: codes (n, n_spans), FREE; values (n, n_values), NaN."""
        parts = []
        for start in range(0, len(codes), self.chunk):
            rows = slice(start, start + self.chunk)
            chunk_key = fold_in(key, Stream.CHUNK, start)
            drawn, new_codes, _ = self.fill(
                codes[rows], values[rows], chunk_key, allowed or {}, points or {}
            )
            rounded = self.round_values(drawn, new_codes, chunk_key)
            parts.append((np.where(np.isnan(values[rows]), rounded, drawn), new_codes))
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
        """Draw the free cells of rows, and compute the probability of the allowed codes."""
        keys, n_rows = self._deal_keys(len(codes), key)

        def deal(rows: np.ndarray, fill: float) -> Tensor:
            dealt = np.ascontiguousarray(_deal_out(rows, len(keys), n_rows, fill))
            return torch.from_numpy(dealt).to(self.spans.device)

        request = RowRequest(
            keys,
            n_rows,
            torch.empty(len(keys), n_rows, 0),
            allowed,
            deal(codes, FREE),
            None if values is None else deal(values, np.nan),
            points,
        )
        return self._run(request).gather(len(codes))


def _numbers_of(encoder: ModeEncoder, column: Any) -> tuple[int, int, NumberColumn]:
    """The span of a column of numbers, the index of its values, and its encoder."""
    j = encoder.schema_.position(column)
    i, coder = span_of(encoder, j), encoder.columns_[j]
    index = encoder.layout_.spans[i].value_index
    assert coder.is_continuous
    assert index is not None
    return i, index, coder


def _codes_within(coder: NumberColumn, condition: Range | Outside) -> list[int]:
    """The bins with numbers that meet a condition."""
    codes = np.arange(coder.size - coder.missing)
    lowest, highest = (coder.decode(codes, np.full(len(codes), end)) for end in (-1.0, 1.0))
    if isinstance(condition, Range):
        overlaps = np.ones(len(codes), dtype=bool)
        if condition.low is not None:
            overlaps &= highest.ge(condition.low).to_numpy(dtype=bool)
        if condition.high is not None:
            below = lowest.lt if condition.open else lowest.le
            overlaps &= below(condition.high).to_numpy(dtype=bool)
        return codes[overlaps].tolist()
    is_inside = np.zeros(len(codes), dtype=bool)
    for excluded in condition.ranges:
        ends = [excluded.met(codes, pd.DataFrame({condition.column: x})) for x in (lowest, highest)]
        is_inside |= ends[0] & ends[1]
    missing = [coder.missing_code] if condition.missing else []
    return [*codes[~is_inside].tolist(), *missing]


def choose_points(request: RowRequest, codes: Tensor, values: Tensor, spans: RowSpans) -> Tensor:
    """Give each row one of the requested numbers in its bin, with equal probabilities."""
    u = uniforms(
        request.keys_for(Stream.LATENT), request.n_rows, len(request.points), device=codes.device
    )
    for k, (span, (index, by_code)) in enumerate(request.points.items()):
        for code, numbers in by_code.items():
            choices = torch.tensor(numbers, dtype=values.dtype, device=values.device)
            positions = (u[..., k] * len(numbers)).long().clamp_(max=len(numbers) - 1)
            has_code = codes[..., span] == code
            values[..., index] = torch.where(has_code, choices[positions], values[..., index])
    return values


# ---- Rows that are written to a Parquet file part by part ----------------------------------------

PART = 1 << 16  # rows that are decoded together
Change = Callable[[pd.DataFrame], pd.DataFrame]


class RowWriter:
    """Writes encoded rows to a file; ``change`` is applied to the decoded rows."""

    def __init__(self, rules: Rules, parts: ParquetParts, change: Change | None = None) -> None:
        self.rules, self.parts, self.change = rules, parts, change
        self._n_rows = 0
        self._types: dict[str, Any] | None = None

    def write(
        self, values: np.ndarray, codes: np.ndarray, conditions: Sequence[Condition] = ()
    ) -> None:
        """Write rows that meet conditions, as one row group."""
        table = self.rules.decode(values, codes, conditions, self._n_rows)
        self._n_rows += len(codes)
        if self._types is None:
            self._types = self._find_types()
        self.parts.write_frame(self._as_frame(table), self._types)

    def write_all(
        self, values: np.ndarray, codes: np.ndarray, conditions: Sequence[Condition] = ()
    ) -> None:
        """Write rows part by part; without rows, only the columns."""
        for start in range(0, max(1, len(codes)), PART):
            self.write(values[start : start + PART], codes[start : start + PART], conditions)

    def write_stream(self, parts: Iterable[Encoded]) -> None:
        """Write rows as they are drawn; small parts are joined."""
        pending: list[Encoded] = []
        for part in parts:
            pending.append(part)
            if sum(len(codes) for _, codes in pending) >= PART:
                self.write(*join(pending))
                pending.clear()
        if pending:
            self.write(*join(pending))

    def _as_frame(self, table: Any) -> pd.DataFrame:
        frame = self.rules.forms.write(pd.DataFrame(table))
        return frame if self.change is None else self.change(frame)

    def _find_types(self) -> dict[str, Any]:
        """Values that show the type of each column, because all rows of a part may be missing."""
        types = {}
        for name in self.rules.names:
            values = self.rules.coders[name].examples
            types[str(name)] = self._as_frame(pd.DataFrame({name: values})).iloc[:, 0]
        return types
