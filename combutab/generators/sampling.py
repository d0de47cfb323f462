"""Rows of a fitted generator, drawn until as many meet the conditions as were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from combutab.core.device import Precision
from combutab.core.rng import Stream, fold_in, random_permutations, random_uniform
from combutab.generators._records import NetworkT, PointChoices, RowRequest, RowsDrawn, SampledShape
from combutab.generators.conditions import (
    NEAREST,
    Codes,
    Condition,
    PointConditions,
    Range,
    all_met,
    offset_of,
    write_points,
)
from combutab.nn import RowSpans
from combutab.preprocessing import (
    CategoryColumn,
    IdentifierColumn,
    ModeEncoder,
    NumberColumn,
    ParquetParts,
    missing_codes,
)

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

    def __init__(self, n_values: int, n_spans: int) -> None:
        self._values = np.empty((0, n_values), dtype=np.float32)
        self._codes = np.empty((0, n_spans), dtype=np.int64)
        self._ratios = np.empty(0)
        self._expected = self._greatest = 0.0

    def add(
        self, values: np.ndarray, codes: np.ndarray, probability: np.ndarray, uniform: np.ndarray
    ) -> None:
        """Take in n rows, whose codes were drawn among those that meet the conditions.

        ``probability`` is how probable such codes were, 0 for a row that does not meet other
        conditions, and ``uniform`` has draws on [0, 1); both are (n,).
        """
        self._expected += float(probability.sum())
        self._greatest = max(self._greatest, float(probability.max(initial=0.0)))
        ratios = np.concatenate([self._ratios, probability / (1 - uniform)])
        kept = ratios >= self._greatest if self._greatest else np.zeros(len(ratios), dtype=bool)
        self._ratios = ratios[kept]
        self._values = np.concatenate([self._values, values])[kept]
        self._codes = np.concatenate([self._codes, codes])[kept]

    def __len__(self) -> int:
        return int(self._counted().sum())

    def first(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of n rows, or of as many as there are."""
        counted = np.flatnonzero(self._counted())[:n]
        return self._values[counted], self._codes[counted]

    def _counted(self) -> np.ndarray:
        bar = self._greatest if self._expected >= _ENOUGH else 1.0
        counted: np.ndarray = self._ratios >= bar
        return counted


# ---- Rows of a fitted generator: drawn in chunks until as many meet the conditions as were asked

_CHUNK = 5000  # rows generated at a time, at most
_CHUNK_NUMBERS = 2**25  # in the encoded rows that are generated at a time, at most
FREE = -1  # a code that is not asked for

Allowed = dict[int, tuple[int, ...]]  # span -> the codes that may be drawn


class Sampler(Generic[NetworkT]):
    """A network that makes rows, in evaluation mode, with the layout of the rows.

    Its members take turns: row i is of member i % M. It is None where all columns are constant.
    ``draw`` is (network, spans, asked) -> the network's rows.
    """

    def __init__(
        self,
        encoder: ModeEncoder,
        shape: SampledShape[NetworkT],
        network: NetworkT | None,
        spans: RowSpans,
        draw: Callable[[NetworkT, RowSpans, RowRequest], RowsDrawn],
    ) -> None:
        self.encoder, self.shape, self.network, self.spans = encoder, shape, network, spans
        self._draw = draw
        self._precision = Precision(shape.precision)
        width = spans.width + spans.n_condition
        self.chunk = max(1, min(_CHUNK, _CHUNK_NUMBERS // max(1, width)))

    def draw(
        self,
        n: int,
        wanted: Sequence[Condition],
        key: int,
        max_tries: int,
        found: AcceptedRows | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Values and codes of rows that all meet the same conditions, and how many were made.

        They are n, or fewer where about max_tries times as many rows hold no more. ``found`` is
        what they are gathered in.
        """
        allowed = {each.span: each.codes for each in wanted if isinstance(each, Codes)}
        # those of most columns need not be decoded
        decoded = len(allowed) < len(wanted)
        near = any(isinstance(each, PointConditions) for each in wanted)
        found = AcceptedRows(self.spans.n_values, self.spans.n_spans) if found is None else found
        made = 0
        while len(found) < n and not self._given_up(made, n, found, max_tries):
            chunk = self.chunk if made else min(self.chunk, n * (NEAREST if near else 1))
            chunk_key = fold_in(key, Stream.CHUNK, made)
            asked = self._asked(chunk, wanted, chunk_key)
            values, codes, probability = self._generate(chunk, *asked, chunk_key, allowed)
            values = self.on_grids(values, codes, chunk_key, wanted)
            table = self.encoder.decode(values, codes) if decoded else None
            probability[~all_met(wanted, codes, table)] = 0.0
            accepted = fold_in(chunk_key, Stream.ACCEPTED)
            uniform = random_uniform([accepted], chunk)[0].numpy()
            found.add(values, codes, probability, uniform)
            made += chunk
        return *found.first(n), made

    def _given_up(self, made: int, n: int, found: AcceptedRows, max_tries: int) -> bool:
        return made > max_tries * (max(n, _CHUNK) if len(found) else _CHUNK)

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
        asked = np.full((len(patterns), self.spans.n_spans), FREE)
        spent, limit = 0, max_tries * max(NEAREST * len(which), _CHUNK)
        for p, wanted in enumerate(patterns):
            if any(isinstance(each, PointConditions) for each in wanted):
                rows = np.flatnonzero(which == p)
                which = np.where(which == p, FREE, which)
                if spent <= limit:
                    own_key = fold_in(key, Stream.PATTERN, p)
                    drawn = self.draw(len(rows), wanted, own_key, max_tries)
                    rows, spent = rows[: len(drawn[0])], spent + drawn[2]
                    values[rows], codes[rows], missed[rows] = drawn[0], drawn[1], False
                continue
            for each in wanted:
                if isinstance(each, Codes):
                    asked[p, each.span] = each.codes[0]
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
                new = self.generate(len(part), *self._rarest(asked[part]), chunk_key)
                made += len(part)
                met = ((asked[part] == FREE) | (new[1] == asked[part])).all(axis=1)
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
        values, codes, _ = self._generate(n, span, code, key, {})
        return self.on_grids(values, codes, key), codes

    def on_grids(
        self, values: np.ndarray, codes: np.ndarray, key: int, wanted: Sequence[Condition] = ()
    ) -> np.ndarray:
        """Values that were drawn, as finely written as the fitted numbers are.

        Those within a range that is wanted stay in it, and those near to points as they are.
        """
        found, spans = values.copy(), self.encoder.layout_.spans
        asked = {self.encoder.schema_.position(each.column): each for each in wanted}
        for i, span in enumerate(spans):
            coder, own = self.encoder.columns_[span.column], asked.get(span.column)
            if not isinstance(coder, NumberColumn) or coder.rounding_steps is None:
                continue
            if isinstance(own, PointConditions):
                continue
            within = [-np.inf, np.inf]
            for end, value in enumerate((own.low, own.high) if isinstance(own, Range) else ()):
                if value is not None:
                    within[end] = float(offset_of(coder, value)[0])
            j = span.value_index
            uniforms = random_uniform([fold_in(key, Stream.GRIDS, i)], len(values))[0].numpy()
            found[:, j] = coder.round_to_steps(values[:, j], codes[:, i], uniforms, within)
        return found

    def _generate(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int, allowed: Allowed
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Generate rows of allowed codes alone, and how probable these were, (n,)."""
        n_members = self.shape.n_members
        share = -(-n // n_members)
        keys = [fold_in(key, Stream.CHUNK_MEMBER, i) for i in range(n_members)]
        values, codes, probability = self._run(keys, share, span, code, allowed)
        # row by row from each member in turn
        rows = n_members * share
        return (
            values.float().cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            codes.cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            probability.cpu().numpy().swapaxes(0, 1).reshape(rows)[:n],
        )

    def generate_stack(self, keys: Sequence[int], n: int) -> tuple[Tensor, Tensor]:
        """Values (M, n, n_values) and codes (M, n, n_spans) of n rows a member, by a key each."""
        free = np.full(len(keys) * n, FREE)
        return self._run(keys, n, free, free, {})[:2]

    @torch.inference_mode()
    def _run(
        self,
        keys: Sequence[int],
        share: int,
        span: np.ndarray,
        code: np.ndarray,
        allowed: Allowed,
    ) -> RowsDrawn:
        if self.network is None:
            empty = torch.empty(len(keys), share, 0)
            return RowsDrawn(empty, empty.long(), torch.ones(len(keys), share))
        asked = RowRequest(keys, share, self._condition(keys, share, span, code), allowed)
        with self._precision.context(self.spans.device)():
            return self._draw(self.network, self.spans, asked)

    # ---- what is asked of the network ----------------------------------------------------------

    def _asked(
        self, n: int, wanted: Sequence[Condition], key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """A category a row of the rarest wanted column, by the true frequencies of those wanted."""
        span, code = np.full(n, FREE), np.full(n, FREE)
        counts = self.encoder.category_counts_
        discrete = [
            (w.span, np.array(w.codes)) for w in wanted if isinstance(w, Codes) and w.span in counts
        ]
        if discrete:
            share = [counts[i][codes].sum() for i, codes in discrete]
            rarest, allowed = discrete[int(np.argmin(share))]
            draws = random_uniform([fold_in(key, Stream.ASKED)], n)[0].numpy()
            span[:], code[:] = rarest, allowed[_invert(counts[rarest][allowed], draws)]
        return span, code

    def _rarest(self, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find, of the codes (n, n_spans) asked of each row, the one that fewest rows have."""
        counts = self.encoder.category_counts_
        share = np.full(asked.shape, np.inf)
        for i in self.spans.categories:
            some = asked[:, i] != FREE
            share[some, i] = counts[i][asked[some, i]]
        rarest = share.argmin(axis=1) if asked.shape[1] else np.zeros(len(asked), dtype=int)
        code = asked[np.arange(len(asked)), rarest]
        return np.where(code == FREE, FREE, rarest), code

    def _condition(
        self, keys: Sequence[int], share: int, span: np.ndarray, code: np.ndarray
    ) -> Tensor:
        """Condition vectors (M, share, n_condition); rows are dealt out to members in turn."""
        spans, shape = self.spans, (len(keys), share)
        if not self.shape.conditional or not spans.categories:
            return torch.zeros(*shape, 0, dtype=spans.dtype, device=spans.device)

        def deal(asked: np.ndarray) -> np.ndarray:
            padded = np.full(len(keys) * share, FREE)
            padded[: len(asked)] = asked
            return padded.reshape(share, len(keys)).T.copy()

        span, code = deal(span), deal(code)
        free = span == FREE
        draws = random_uniform([fold_in(key, Stream.CONDITIONS) for key in keys], 2 * share)
        which, place = draws.view(*shape, 2).numpy()[free].T
        span[free] = np.array(spans.categories)[(which * len(spans.categories)).astype(int)]
        for i in spans.categories:
            here = span[free] == i
            drawn = _invert(self.encoder.category_counts_[i], place[here])
            code[free & (span == i)] = drawn
        device = spans.device
        return spans.condition(torch.from_numpy(span).to(device), torch.from_numpy(code).to(device))


def _invert(counts: np.ndarray, draws: np.ndarray) -> np.ndarray:
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


# ---- Rows of a network that draws some columns beside others that are given ----------------------


@dataclass
class _Asked:
    """Conditions as codes: one that is given, or those that are allowed; and values."""

    given: dict[int, int] = field(default_factory=dict)
    allowed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    points: dict[int, PointChoices] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)

    def add(self, span: int, codes: Sequence[int]) -> None:
        if len(codes) == 1:
            self.given[span] = codes[0]
        else:
            self.allowed[span] = tuple(codes)


def _ask(encoder: ModeEncoder, wanted: Sequence[Condition]) -> _Asked:
    """Conditions as codes of an encoder's quantile bins."""
    asked = _Asked()
    for each in wanted:
        if isinstance(each, Codes):
            asked.add(each.span, each.codes)
            continue
        i, index, coder = _numbers_of(encoder, each.column)
        if isinstance(each, PointConditions):
            values, codes = coder.encode(each.values, str(each.column), np.random.default_rng(0))
            by_code: dict[int, list[float]] = {}
            for code, value in zip(codes.tolist(), values.tolist(), strict=True):
                by_code.setdefault(code, []).append(value)
            asked.points[i] = PointChoices(index, by_code)
            asked.add(i, [*by_code, *([coder.size - 1] if each.missing else [])])
        else:
            asked.add(i, _reached(coder, each))
            asked.ranges.append(each)
    return asked


def _numbers_of(encoder: ModeEncoder, column: Any) -> tuple[int, int, NumberColumn]:
    """The span of a column of numbers, the index of its values, and what encodes it."""
    j = encoder.schema_.position(column)
    i, span = next((i, s) for i, s in enumerate(encoder.layout_.spans) if s.column == j)
    coder = encoder.columns_[j]
    assert isinstance(coder, NumberColumn)
    assert span.value_index is not None
    return i, span.value_index, coder


def _reached(coder: NumberColumn, wanted: Range) -> list[int]:
    """The bins that hold numbers of a range."""
    codes = np.arange(coder.size - coder.missing)
    lowest, highest = (coder.decode(np.full(len(codes), end), codes) for end in (-1.0, 1.0))
    inside = np.ones(len(codes), dtype=bool)
    if wanted.low is not None:
        inside &= highest.ge(wanted.low).to_numpy(dtype=bool)
    if wanted.high is not None:
        inside &= lowest.le(wanted.high).to_numpy(dtype=bool)
    return codes[inside].tolist()


class DirectSampler(Sampler[NetworkT]):
    """A sampler whose network meets conditions by itself, but for the ends of ranges."""

    def draw(
        self,
        n: int,
        wanted: Sequence[Condition],
        key: int,
        max_tries: int,
        found: AcceptedRows | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """See `Sampler`."""
        asked = _ask(self.encoder, wanted)
        found = AcceptedRows(self.spans.n_values, self.spans.n_spans) if found is None else found
        made = 0
        if any(not codes for codes in asked.allowed.values()):  # no bin reaches into a range
            return *found.first(n), made
        while len(found) < n and not self._given_up(made, n, found, max_tries):
            wanted_rows = max(2 * (n - len(found)), 100) if made else n
            chunk = min(self.chunk, wanted_rows)
            chunk_key = fold_in(key, Stream.CHUNK, made)
            codes = np.full((chunk, self.spans.n_spans), FREE)
            codes[:, list(asked.given)] = list(asked.given.values())
            values, codes, probability = self.fill(
                codes, None, chunk_key, asked.allowed, asked.points
            )
            values = self.on_grids(values, codes, chunk_key, wanted)
            if asked.ranges:
                table = self.encoder.decode(values, codes)
                for each in asked.ranges:
                    probability[~each.met(table)] = 0.0
            uniform = random_uniform([fold_in(chunk_key, Stream.ACCEPTED)], chunk)[0].numpy()
            found.add(values, codes, probability, uniform)
            made += chunk
        return *found.first(n), made

    def draw_each(
        self, patterns: Sequence[Sequence[Condition]], which: np.ndarray, key: int, max_tries: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Sampler`: no row is missed."""
        of_codes = np.full((len(patterns), self.spans.n_spans), FREE)
        of_values = np.full((len(patterns), self.spans.n_values), np.nan, dtype=np.float32)
        numbers: dict[Any, dict[int, pd.Series]] = {}
        for p, wanted in enumerate(patterns):
            for each in wanted:
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
        allowed: Mapping[int, tuple[int, ...]] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw what is not given of rows: codes (n, n_spans), FREE; values (n, n_values), NaN."""
        parts = []
        for start in range(0, len(codes), self.chunk):
            given = values[start : start + self.chunk]
            own_codes, own_key = (
                codes[start : start + self.chunk],
                fold_in(key, Stream.CHUNK, start),
            )
            drawn, found, _ = self.fill(own_codes, given, own_key, allowed or {}, {})
            written = self.on_grids(drawn, found, own_key)
            parts.append((np.where(np.isnan(given), written, drawn), found))
        if not parts:
            return values.astype(np.float32), codes
        return np.concatenate([v for v, _ in parts]), np.concatenate([c for _, c in parts])

    @torch.inference_mode()
    def fill(
        self,
        codes: np.ndarray,
        values: np.ndarray | None,
        key: int,
        allowed: Mapping[int, tuple[int, ...]],
        points: Mapping[int, PointChoices],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of these codes and values, all else drawn, and how probable allowed codes were."""
        n, n_members = len(codes), self.shape.n_members
        if self.network is None:
            return np.empty((n, 0), np.float32), codes, np.ones(n)
        share = -(-n // n_members)

        def deal(rows: np.ndarray, fill: float) -> Tensor:  # row i to member i % M
            padded = np.full((share * n_members, rows.shape[1]), fill, dtype=rows.dtype)
            padded[:n] = rows
            dealt = torch.from_numpy(padded).view(share, n_members, -1).transpose(0, 1)
            return dealt.contiguous().to(self.spans.device)

        asked = RowRequest(
            [fold_in(key, Stream.CHUNK_MEMBER, i) for i in range(n_members)],
            share,
            torch.empty(n_members, share, 0),
            allowed,
            deal(codes, FREE),
            None if values is None else deal(values, np.nan),
            points,
        )
        with self._precision.context(self.spans.device)():
            drawn = self._draw(self.network, self.spans, asked)

        def gather(dealt: Tensor) -> np.ndarray:
            rows = dealt.cpu().transpose(0, 1).reshape(share * n_members, *dealt.shape[2:])
            return rows.numpy()[:n]

        return gather(drawn.values.float()), gather(drawn.codes), gather(drawn.probability)


# ---- Rows of which each value of a discrete column has as many -----------------------------------


def draw_balanced(
    sampler: Sampler[Any],
    n: int,
    column: Any,
    wanted: Sequence[Condition],
    key: int,
    max_tries: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Values and codes of n rows that meet conditions, and how many were made.

    Each value of the column has as many of the rows, but for a remainder of the first values'; the
    rows are in random order. There are fewer of values that max_tries were not enough for.

    Raises ValueError if the column is not discrete, or has a condition too.
    """
    span, n_codes = _span_and_size(sampler.encoder, column)
    if any(each.column == column for each in wanted):
        raise ValueError(
            f"{column!r} is in balance and in conditions; leave it out of one of them (a list of "
            "values as the condition gives them by their true shares)"
        )
    parts, made = [], 0
    for code in range(min(n_codes, max(1, n))):
        n_rows = n // n_codes + (code < n % n_codes)
        asked = [Codes(column, span, (code,)), *wanted]
        drawn = sampler.draw(n_rows, asked, fold_in(key, Stream.PATTERN, code), max_tries)
        parts.append(drawn[:2])
        made += drawn[2]
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    order = random_permutations([fold_in(key, Stream.BALANCED)], [len(codes)])[0].numpy()
    return values[order], codes[order], made


def _span_and_size(encoder: ModeEncoder, column: Any) -> tuple[int, int]:
    """The span of a discrete column, and how many codes rows of it can have."""
    j = encoder.schema_.position(column)
    coder, label = encoder.columns_[j], encoder.schema_.label(j)
    if isinstance(coder, IdentifierColumn):
        raise ValueError(f"{label} holds identifiers, which are new in each row; balance another")
    if not isinstance(coder, CategoryColumn):
        raise ValueError(
            f"{label} is continuous, so that it has no values to balance; list it in "
            "discrete_columns of fit, or balance another"
        )
    if coder.size == 1:
        raise ValueError(f"{label} is constant; balance another")
    span = next(i for i, each in enumerate(encoder.layout_.spans) if each.column == j)
    return span, len(coder.values)  # the code of rare values comes after these


# ---- Missing cells from synthetic rows that are near to a row's known cells: a hot deck ----------

_FEWEST, _MOST = 5000, 10_000  # donors
_NEIGHBORS = 5
_DISTANCES = 2**22  # held at a time
_FAR = 4.0  # standard deviations: no number is further away; unequal categories are at one
_JITTER = 1e-4  # decides between donors that are equally near


@dataclass(frozen=True, eq=False)
class Donors:
    """Synthetic rows: values (n, n_values), codes (n, n_spans), and which spans are missing."""

    values: np.ndarray
    codes: np.ndarray
    missing: np.ndarray


def draw_nearest(
    sampler: Sampler[Any], values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """Complete encoded rows by the cells of synthetic rows.

    Of each row the donor is one of the five synthetic rows that are nearest by its known cells:
    by the number of unequal categories and the numbers' distances in standard deviations. Rows
    that have a value in all cells that are wanted come first.

    Parameters
    ----------
    sampler : Sampler
    values, codes : ndarray of shapes (n, n_values) and (n, n_spans)
    known : ndarray of shape (n, n_spans), bool
    key : int

    Returns
    -------
    values, codes : the same for known spans; a missing value in others only where the column has
        no values
    """
    donors = _make_donors(sampler, min(max(_FEWEST, 2 * len(codes)), _MOST), key)
    chosen = _choose(sampler.encoder, donors, values, codes, known, key)
    drawn = np.where(known, codes, donors.codes[chosen])
    drawn_values = values.copy()
    missing = missing_codes(sampler.encoder)
    for i, span in enumerate(sampler.encoder.layout_.spans):
        wanted = ~known[:, i]
        if span.value_index is not None:
            here = donors.values[chosen[wanted], span.value_index]
            drawn_values[wanted, span.value_index] = here
        lacking = np.flatnonzero(wanted & (drawn[:, i] == missing[i]))
        if not len(lacking):
            continue
        shares = _code_frequencies(sampler.encoder, i, int(missing[i]))
        if shares.any():
            uniform = random_uniform([fold_in(key, Stream.CODES, i)], len(lacking))[0].numpy()
            sums = np.cumsum(shares)
            drawn[lacking, i] = np.searchsorted(sums, uniform * sums[-1], "right")
            if span.value_index is not None:
                drawn_values[lacking, span.value_index] = 0.0  # the middle of a mode
    return drawn_values, drawn


def _make_donors(sampler: Sampler[Any], n: int, key: int) -> Donors:
    """Generate rows, without missing values where the network can be told so."""
    missing = missing_codes(sampler.encoder)
    allowed = {}
    for i, code in enumerate(missing.tolist()):
        shares = _code_frequencies(sampler.encoder, i, code)
        if code >= 0 and shares.any():
            allowed[i] = tuple(np.flatnonzero(shares).tolist())
    parts = []
    for made in range(0, n, sampler.chunk):
        size = min(sampler.chunk, n - made)
        free = np.full(size, FREE)
        chunk_key = fold_in(key, Stream.CHUNK, made)
        parts.append(sampler._generate(size, free, free, chunk_key, allowed)[:2])
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    return Donors(values, codes, codes == missing)


def _code_frequencies(encoder: ModeEncoder, i: int, missing: int) -> np.ndarray:
    """How frequent the codes of a span are, but for those of missing and of rare values."""
    coder = encoder.columns_[encoder.layout_.spans[i].column]
    shares = np.ones(coder.size)
    if isinstance(coder, NumberColumn):
        shares[: len(coder.mixture.weights)] = coder.mixture.weights
    else:
        shares[:] = encoder.category_counts_[i]
    shares[[code for code in (missing, coder.suppressed) if code is not None and code >= 0]] = 0.0
    return shares


def _choose(
    encoder: ModeEncoder,
    donors: Donors,
    values: np.ndarray,
    codes: np.ndarray,
    known: np.ndarray,
    key: int,
) -> np.ndarray:
    """Draw a donor for each row among the nearest, (n,)."""
    n, n_donors = len(codes), len(donors.codes)
    spans = range(known.shape[1])
    numbers = {i: x for i in spans if (x := _standardised(encoder, i, donors, values, codes))}
    shift, pick = random_uniform([fold_in(key, Stream.DONORS, 0)], 2 * n)[0].numpy().reshape(2, n)
    tie = random_uniform([fold_in(key, Stream.DONORS, 1)], n_donors)[0].numpy()
    tie = np.tile((tie * _JITTER).astype(np.float32), 2)
    shift = (shift * n_donors).astype(int)
    lacks = np.float32((_FAR + 1) * len(spans)) * donors.missing.T.astype(np.float32)
    chosen = np.empty(n, dtype=np.intp)
    step = max(1, _DISTANCES // n_donors)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        # each row has an order of its own of those that are equally near
        away = np.stack([tie[s : s + n_donors] for s in shift[rows]])
        away += (~known[rows]).astype(np.float32) @ lacks
        for i in spans:
            if not known[rows, i].any():
                continue
            if i in numbers:
                asked, had = numbers[i]
                distance = np.minimum(np.abs(asked[rows, None] - had), np.float32(_FAR))
                distance[:, donors.missing[:, i]] = 1.0
            else:
                distance = (codes[rows, i, None] != donors.codes[:, i]).astype(np.float32)
            distance *= known[rows, i, None]
            away += distance
        k = min(_NEIGHBORS, n_donors)
        nearest = np.argpartition(away, k - 1, axis=1)[:, :k]
        chosen[rows] = nearest[np.arange(len(away)), (pick[rows] * k).astype(int)]
    return chosen


def _standardised(
    encoder: ModeEncoder, i: int, donors: Donors, values: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of rows and donors in the donors' standard deviations; None for categories."""
    span = encoder.layout_.spans[i]
    coder = encoder.columns_[span.column]
    if not isinstance(coder, NumberColumn):
        return None
    asked, had = (
        coder.format.read(coder.decode(v[:, span.value_index], c[:, i]), "")[0]
        for v, c in ((values, codes), (donors.values, donors.codes))
    )
    some = had[~donors.missing[:, i]]
    centre, sd = (some.mean(), some.std()) if len(some) else (0.0, 0.0)
    asked, had = ((np.asarray(x) - centre) / (sd or 1.0) for x in (asked, had))
    return asked.astype(np.float32), had.astype(np.float32)


# ---- Rows that are written to a Parquet file part by part ----------------------------------------

PART = 1 << 16  # rows that are decoded at a time
Change = Callable[[pd.DataFrame], pd.DataFrame]


class RowWriter:
    """Encoded rows, decoded and written; ``change`` is what is done to them before."""

    def __init__(
        self, encoder: ModeEncoder, parts: ParquetParts, change: Change | None = None
    ) -> None:
        self.encoder, self.parts, self.change = encoder, parts, change
        self._made: dict[int, int] = {}
        self._types: dict[str, Any] | None = None

    def write(
        self, values: np.ndarray, codes: np.ndarray, wanted: Sequence[Condition] = ()
    ) -> None:
        """Write rows that meet conditions, those of each call as a row group of their own."""
        table = self.encoder.decode(values, codes, made=self._made)
        write_points(table, wanted)
        if self._types is None:
            self._types = self._find_types()
        self.parts.write_frame(self._as_frame(table), self._types)

    def write_all(
        self, values: np.ndarray, codes: np.ndarray, wanted: Sequence[Condition] = ()
    ) -> None:
        """Write rows a part at a time; where there are none, the columns alone."""
        for start in range(0, max(1, len(codes)), PART):
            self.write(values[start : start + PART], codes[start : start + PART], wanted)

    def _as_frame(self, table: Any) -> pd.DataFrame:
        frame = pd.DataFrame(table)
        return frame if self.change is None else self.change(frame)

    def _find_types(self) -> dict[str, Any]:
        """Values of each column that show its type: the rows of a part may all be missing."""
        types = {}
        for j, coder in enumerate(self.encoder.columns_):
            if isinstance(coder, CategoryColumn):
                values = coder.values
            elif isinstance(coder, NumberColumn):
                values = coder.bounds
            else:
                values = coder.decode(np.zeros(1, dtype=np.intp))
            name = self.encoder.schema_.keys[j]
            types[str(name)] = self._as_frame(pd.DataFrame({name: values})).iloc[:, 0]
        return types


class RowsToWrite(AcceptedRows):
    """Rows without conditions, of which all count: they are passed on rather than gathered."""

    def __init__(self, n: int, spans: RowSpans, writer: RowWriter) -> None:
        super().__init__(spans.n_values, spans.n_spans)
        self._left, self._n, self._writer = n, 0, writer
        self._held: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self, values: np.ndarray, codes: np.ndarray, probability: np.ndarray, uniform: np.ndarray
    ) -> None:
        """Take in rows; see `AcceptedRows`."""
        self._held.append((values[: self._left], codes[: self._left]))
        taken = len(self._held[-1][1])
        self._left, self._n = self._left - taken, self._n + taken
        if not self._left or sum(len(each) for _, each in self._held) >= PART:
            self._flush()

    def _flush(self) -> None:
        values, codes = map(np.concatenate, zip(*self._held, strict=True))
        self._held.clear()
        self._writer.write(values, codes)

    def __len__(self) -> int:
        return self._n
