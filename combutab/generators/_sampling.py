"""Rows of a fitted generator: drawn in chunks until as many meet the conditions as were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from combutab._device import Precision
from combutab._random import fold_in, random_uniform
from combutab.generators._conditions import Wanted
from combutab.generators._records import SampledShape
from combutab.nn import RowSpans, StackedNetwork
from combutab.preprocessing import ModeEncoder

_CHUNK = 5000  # rows generated at a time, at most
_CHUNK_NUMBERS = 2**25  # in the encoded rows that are generated at a time, at most
_MAX_TRIES = 100  # times as many rows as are asked for, at most, for conditions to be met
FREE = -1  # a code that is not asked for

Make = Callable[[SampledShape, Any, RowSpans, Sequence[int], int, Tensor], tuple[Tensor, Tensor]]


class Sampler:
    """A network that makes rows, in evaluation mode, with the layout of the rows.

    Parameters
    ----------
    encoder : ModeEncoder, fitted
    shape : SampledShape
    network : StackedNetwork, or None where all columns are constant
        Its members take turns: row i is of member i % M.
    spans : RowSpans
    make : callable
        (shape, network, spans, keys, rows, condition) -> values and codes of rows a member.
    """

    def __init__(
        self,
        encoder: ModeEncoder,
        shape: SampledShape,
        network: StackedNetwork | None,
        spans: RowSpans,
        make: Make,
    ) -> None:
        self.encoder, self.shape, self.network, self.spans = encoder, shape, network, spans
        self._make = make
        self._precision = Precision(shape.precision)
        width = spans.width + spans.n_condition
        self.chunk = max(1, min(_CHUNK, _CHUNK_NUMBERS // max(1, width)))

    def draw(self, n: int, wanted: Sequence[Wanted], key: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of n rows that all meet the same conditions."""
        values = [np.empty((0, self.spans.n_values), dtype=np.float32)]
        codes = [np.empty((0, self.spans.n_spans), dtype=np.int64)]
        made = met_all = 0
        while met_all < n:
            if made > _MAX_TRIES * (max(n, _CHUNK) if met_all else _CHUNK):
                raise ValueError(
                    f"only {met_all} of {made} rows met the conditions "
                    f"{[w.column for w in wanted]}, {n} were asked for; ask for fewer, or relax "
                    "the conditions"
                )
            chunk = min(self.chunk, n) if not made else self.chunk
            chunk_key = fold_in(key, made)
            asked = self._asked(chunk, wanted, chunk_key)
            new_values, new_codes = self.generate(chunk, *asked, chunk_key)
            made += chunk
            if wanted:
                table = self.encoder.decode(new_values, new_codes)
                met = np.logical_and.reduce([w.met(new_codes, table) for w in wanted])
                new_values, new_codes = new_values[met], new_codes[met]
            values.append(new_values)
            codes.append(new_codes)
            met_all += len(new_codes)
        return np.concatenate(values)[:n], np.concatenate(codes)[:n]

    def draw_each(self, asked: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values and codes of rows that each meet conditions of their own.

        Parameters
        ----------
        asked : ndarray of int, (n, n_spans)
            The code that each row is to have in each span, or FREE.
        key : int

        Returns
        -------
        tuple of ndarray
            Values, codes, and which rows were never met, (n,) bool; these are left 0.
        """
        _, pattern = np.unique(asked, axis=0, return_inverse=True)
        pattern = pattern.reshape(-1)
        values = np.zeros((len(asked), self.spans.n_values), dtype=np.float32)
        codes = np.zeros((len(asked), self.spans.n_spans), dtype=np.int64)
        still = np.arange(len(asked))
        made = 0
        while len(still) and made <= _MAX_TRIES * max(len(asked), _CHUNK):
            # the first time each row once; then rows that are hard to meet many times over
            copies = max(1, self.chunk // len(still)) if made else 1
            rows = np.repeat(still, copies)
            found = []
            for start in range(0, len(rows), self.chunk):
                part = rows[start : start + self.chunk]
                chunk_key = fold_in(key, made)
                new = self.generate(len(part), *self._rarest(asked[part]), chunk_key)
                made += len(part)
                met = ((asked[part] == FREE) | (new[1] == asked[part])).all(axis=1)
                found.append((pattern[part[met]], new[0][met], new[1][met]))
            met_pattern, new_values, new_codes = map(np.concatenate, zip(*found, strict=True))
            here, there = _pair_up(met_pattern, pattern[still])
            values[still[there]], codes[still[there]] = new_values[here], new_codes[here]
            still = np.delete(still, there)
        missed = np.zeros(len(asked), dtype=bool)
        missed[still] = True
        return values, codes, missed

    def generate(
        self, n: int, span: np.ndarray, code: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of n rows.

        Parameters
        ----------
        n : int
        span, code : ndarray of int, (n,)
            What a conditional network is asked to make of each row; where span is FREE, any
            category by the true frequencies.
        key : int
        """
        n_members = self.shape.n_members
        share = -(-n // n_members)
        keys = [fold_in(key, i) for i in range(n_members)]
        values, codes = self._run(keys, share, span, code)
        # row by row from each member in turn
        rows = n_members * share
        return (
            values.float().cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
            codes.cpu().numpy().swapaxes(0, 1).reshape(rows, -1)[:n],
        )

    def generate_stack(self, keys: Sequence[int], n: int) -> tuple[Tensor, Tensor]:
        """Values (M, n, n_values) and codes (M, n, n_spans) of n rows a member, by a key each."""
        free = np.full(len(keys) * n, FREE)
        return self._run(keys, n, free, free)

    @torch.inference_mode()
    def _run(
        self, keys: Sequence[int], share: int, span: np.ndarray, code: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        condition = self._condition(keys, share, span, code)
        with self._precision.context(self.spans.device)():
            return self._make(self.shape, self.network, self.spans, keys, share, condition)

    # ---- what is asked of the network ----------------------------------------------------------

    def _asked(self, n: int, wanted: Sequence[Wanted], key: int) -> tuple[np.ndarray, np.ndarray]:
        """A category a row of the rarest wanted column, by the true frequencies of those wanted."""
        span, code = np.full(n, FREE), np.full(n, FREE)
        counts = self.encoder.category_counts_
        discrete = [(w.span, np.array(w.codes)) for w in wanted if w.span in counts]
        if discrete:
            share = [counts[i][codes].sum() for i, codes in discrete]
            rarest, allowed = discrete[int(np.argmin(share))]
            draws = random_uniform([fold_in(key, 1)], n)[0].numpy()
            span[:], code[:] = rarest, allowed[_invert(counts[rarest][allowed], draws)]
        return span, code

    def _rarest(self, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the codes (n, n_spans) asked of each row, the one that fewest rows have."""
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
        draws = random_uniform([fold_in(key, 0) for key in keys], 2 * share)
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
