"""Rows that are written to a Parquet file part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from combutab.generators.sampling._found import Found
from combutab.generators.sampling._wanted import Wanted, write_points
from combutab.nn import RowSpans
from combutab.preprocessing import CategoryColumn, ModeEncoder, NumberColumn, ParquetParts

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

    def write(self, values: np.ndarray, codes: np.ndarray, wanted: Sequence[Wanted] = ()) -> None:
        """Write rows that meet conditions, those of each call as a row group of their own."""
        table = self.encoder.decode(values, codes, made=self._made)
        write_points(table, wanted)
        if self._types is None:
            self._types = self._find_types()
        self.parts.write_frame(self._as_frame(table), self._types)

    def write_all(
        self, values: np.ndarray, codes: np.ndarray, wanted: Sequence[Wanted] = ()
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


class Poured(Found):
    """Rows without conditions, of which all count: they are passed on rather than gathered."""

    def __init__(self, n: int, spans: RowSpans, writer: RowWriter) -> None:
        super().__init__(spans.n_values, spans.n_spans)
        self._left, self._n, self._writer = n, 0, writer
        self._held: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self, values: np.ndarray, codes: np.ndarray, mass: np.ndarray, uniform: np.ndarray
    ) -> None:
        """Take in rows; see `Found`."""
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


def pour_rows(model: Any, n: int, random_state: Any, writer: RowWriter) -> None:
    """Write the n rows that a fitted generator's ``sample`` draws without conditions."""
    sampler = model._sampler()
    poured = Poured(n, sampler.spans, writer)
    values, codes, _ = sampler.draw(n, [], model._sample_key(random_state), 1, poured)
    if not n:
        writer.write_all(values, codes)
