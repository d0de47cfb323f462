"""Rows of a fitted generator: drawn in chunks until as many meet the conditions as were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import Purpose, derive, random_uniform
from combutab.generators._records import NetworkT, RowsAsked, RowsDrawn, SampledShape
from combutab.generators.sampling._conditions import offset_of
from combutab.generators.sampling._found import Found
from combutab.generators.sampling._wanted import NEAREST, Codes, Points, Range, Wanted, all_met
from combutab.nn import RowSpans
from combutab.preprocessing import ModeEncoder, NumberColumn

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
        draw: Callable[[NetworkT, RowSpans, RowsAsked], RowsDrawn],
    ) -> None:
        self.encoder, self.shape, self.network, self.spans = encoder, shape, network, spans
        self._draw = draw
        self._precision = Precision(shape.precision)
        width = spans.width + spans.n_condition
        self.chunk = max(1, min(_CHUNK, _CHUNK_NUMBERS // max(1, width)))

    def draw(
        self,
        n: int,
        wanted: Sequence[Wanted],
        key: int,
        max_tries: int,
        found: Found | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Values and codes of rows that all meet the same conditions, and how many were made.

        They are n, or fewer where about max_tries times as many rows hold no more. ``found`` is
        what they are gathered in.
        """
        allowed = {each.span: each.codes for each in wanted if isinstance(each, Codes)}
        # those of most columns need not be decoded
        decoded = len(allowed) < len(wanted)
        near = any(isinstance(each, Points) for each in wanted)
        found = Found(self.spans.n_values, self.spans.n_spans) if found is None else found
        made = 0
        while len(found) < n and not self._given_up(made, n, found, max_tries):
            chunk = self.chunk if made else min(self.chunk, n * (NEAREST if near else 1))
            chunk_key = derive(key, Purpose.CHUNK, made)
            asked = self._asked(chunk, wanted, chunk_key)
            values, codes, mass = self._generate(chunk, *asked, chunk_key, allowed)
            values = self.on_grids(values, codes, chunk_key, wanted)
            table = self.encoder.decode(values, codes) if decoded else None
            mass[~all_met(wanted, codes, table)] = 0.0
            accepted = derive(chunk_key, Purpose.ACCEPTED)
            uniform = random_uniform([accepted], chunk)[0].numpy()
            found.add(values, codes, mass, uniform)
            made += chunk
        return *found.first(n), made

    def _given_up(self, made: int, n: int, found: Found, max_tries: int) -> bool:
        return made > max_tries * (max(n, _CHUNK) if len(found) else _CHUNK)

    def draw_each(
        self, patterns: Sequence[Sequence[Wanted]], which: np.ndarray, key: int, max_tries: int
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
            if any(isinstance(each, Points) for each in wanted):
                rows = np.flatnonzero(which == p)
                which = np.where(which == p, FREE, which)
                if spent <= limit:
                    own_key = derive(key, Purpose.PATTERN, p)
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
                chunk_key = derive(key, Purpose.CHUNK, made)
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
        self, values: np.ndarray, codes: np.ndarray, key: int, wanted: Sequence[Wanted] = ()
    ) -> np.ndarray:
        """Values that were drawn, as finely written as the fitted numbers are.

        Those within a range that is wanted stay in it, and those near to points as they are.
        """
        found, spans = values.copy(), self.encoder.layout_.spans
        asked = {self.encoder.schema_.position(each.column): each for each in wanted}
        for i, span in enumerate(spans):
            coder, own = self.encoder.columns_[span.column], asked.get(span.column)
            if not isinstance(coder, NumberColumn) or coder.grids is None:
                continue
            if isinstance(own, Points):
                continue
            within = [-np.inf, np.inf]
            for end, value in enumerate((own.low, own.high) if isinstance(own, Range) else ()):
                if value is not None:
                    within[end] = float(offset_of(coder, value)[0])
            j = span.value_index
            uniforms = random_uniform([derive(key, Purpose.GRIDS, i)], len(values))[0].numpy()
            found[:, j] = coder.put_on_grids(values[:, j], codes[:, i], uniforms, within)
        return found

    def _generate(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int, allowed: Allowed
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Generate rows of allowed codes alone, and how probable these were, (n,)."""
        n_members = self.shape.n_members
        share = -(-n // n_members)
        keys = [derive(key, Purpose.CHUNK_MEMBER, i) for i in range(n_members)]
        values, codes, mass = self._run(keys, share, span, code, allowed)
        # row by row from each member in turn
        rows = n_members * share
        return (
            values.float().cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            codes.cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            mass.cpu().numpy().swapaxes(0, 1).reshape(rows)[:n],
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
        asked = RowsAsked(keys, share, self._condition(keys, share, span, code), allowed)
        with self._precision.context(self.spans.device)():
            return self._draw(self.network, self.spans, asked)

    # ---- what is asked of the network ----------------------------------------------------------

    def _asked(self, n: int, wanted: Sequence[Wanted], key: int) -> tuple[np.ndarray, np.ndarray]:
        """A category a row of the rarest wanted column, by the true frequencies of those wanted."""
        span, code = np.full(n, FREE), np.full(n, FREE)
        counts = self.encoder.category_counts_
        discrete = [
            (w.span, np.array(w.codes)) for w in wanted if isinstance(w, Codes) and w.span in counts
        ]
        if discrete:
            share = [counts[i][codes].sum() for i, codes in discrete]
            rarest, allowed = discrete[int(np.argmin(share))]
            draws = random_uniform([derive(key, Purpose.ASKED)], n)[0].numpy()
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
        draws = random_uniform([derive(key, Purpose.CONDITIONS) for key in keys], 2 * share)
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
