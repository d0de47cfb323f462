"""Rows of a network that draws some columns beside others that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from combutab._random import Purpose, derive, random_uniform
from combutab.generators._records import NetworkT, Points, RowsAsked
from combutab.generators.sampling._found import Found
from combutab.generators.sampling._sampling import FREE, Sampler
from combutab.generators.sampling._wanted import Codes, Range, Wanted
from combutab.generators.sampling._wanted import Points as WantedPoints
from combutab.preprocessing import ModeEncoder, NumberColumn


@dataclass
class _Asked:
    """Conditions as codes: one that is given, or those that are allowed; and values."""

    given: dict[int, int] = field(default_factory=dict)
    allowed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    points: dict[int, Points] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)

    def add(self, span: int, codes: Sequence[int]) -> None:
        if len(codes) == 1:
            self.given[span] = codes[0]
        else:
            self.allowed[span] = tuple(codes)


def _ask(encoder: ModeEncoder, wanted: Sequence[Wanted]) -> _Asked:
    """Conditions as codes of an encoder's quantile bins."""
    asked = _Asked()
    for each in wanted:
        if isinstance(each, Codes):
            asked.add(each.span, each.codes)
            continue
        i, index, coder = _numbers_of(encoder, each.column)
        if isinstance(each, WantedPoints):
            values, codes = coder.encode(each.values, str(each.column), np.random.default_rng(0))
            by_code: dict[int, list[float]] = {}
            for code, value in zip(codes.tolist(), values.tolist(), strict=True):
                by_code.setdefault(code, []).append(value)
            asked.points[i] = Points(index, by_code)
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
        wanted: Sequence[Wanted],
        key: int,
        max_tries: int,
        found: Found | None = None,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """See `Sampler`."""
        asked = _ask(self.encoder, wanted)
        found = Found(self.spans.n_values, self.spans.n_spans) if found is None else found
        made = 0
        if any(not codes for codes in asked.allowed.values()):  # no bin reaches into a range
            return *found.first(n), made
        while len(found) < n and not self._given_up(made, n, found, max_tries):
            wanted_rows = max(2 * (n - len(found)), 100) if made else n
            chunk = min(self.chunk, wanted_rows)
            chunk_key = derive(key, Purpose.CHUNK, made)
            codes = np.full((chunk, self.spans.n_spans), FREE)
            codes[:, list(asked.given)] = list(asked.given.values())
            values, codes, mass = self.fill(codes, None, chunk_key, asked.allowed, asked.points)
            values = self.on_grids(values, codes, chunk_key, wanted)
            if asked.ranges:
                table = self.encoder.decode(values, codes)
                for each in asked.ranges:
                    mass[~each.met(table)] = 0.0
            uniform = random_uniform([derive(chunk_key, Purpose.ACCEPTED)], chunk)[0].numpy()
            found.add(values, codes, mass, uniform)
            made += chunk
        return *found.first(n), made

    def draw_each(
        self, patterns: Sequence[Sequence[Wanted]], which: np.ndarray, key: int, max_tries: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `Sampler`: no row is missed."""
        of_codes = np.full((len(patterns), self.spans.n_spans), FREE)
        of_values = np.full((len(patterns), self.spans.n_values), np.nan, dtype=np.float32)
        numbers: dict[Any, dict[int, pd.Series]] = {}
        for p, wanted in enumerate(patterns):
            for each in wanted:
                if isinstance(each, WantedPoints):
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
                derive(key, Purpose.CHUNK, start),
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
        points: Mapping[int, Points],
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

        asked = RowsAsked(
            [derive(key, Purpose.CHUNK_MEMBER, i) for i in range(n_members)],
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

        return gather(drawn.values.float()), gather(drawn.codes), gather(drawn.mass)
