"""Parquet files that a generator is fitted to: a column at a time, then rows part by part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from combutab._bytes import parse_bytes
from combutab.preprocessing import ModeEncoder, ModeTable, ParquetTable, Paths

_ROWS = 1 << 16  # read at a time


class ParquetSource:
    """A table in files, in the place of one in memory.

    Encoded rows that take more than ``memory_limit`` are kept in a temporary file, of which the
    system holds in memory what there is room for.
    """

    def __init__(
        self,
        path: Paths,
        columns: Sequence[str] | None,
        memory_limit: int | str,
        filesystem: Any,
    ) -> None:
        self._limit = parse_bytes(memory_limit)
        self._table = ParquetTable(path, filesystem)
        self._columns = self._table.columns if columns is None else list(columns)
        repeated = sorted({c for c in self._columns if self._columns.count(c) > 1})
        if repeated or not self._columns:
            raise ValueError(f"columns must be names of different columns, got {columns!r}")
        self._table.check_columns(self._columns)

    def __len__(self) -> int:
        return self._table.n_rows

    def fit(self, encoder: ModeEncoder) -> ModeEncoder:
        """Fit an encoder, with one whole column at a time in memory."""
        return encoder.fit_parquet(self._table, self._columns)

    def encode(self, encoder: ModeEncoder) -> ModeTable:
        """Encode all rows, a part at a time."""
        layout = encoder.layout_
        values = self._empty((len(self), layout.n_values), np.dtype(np.float32), layout)
        codes = self._empty((len(self), len(layout.spans)), np.dtype(np.int32), layout)
        encoder.encode_parquet(self._table, _ROWS, values, codes)
        return ModeTable(values, codes)

    def _empty(self, shape: tuple[int, int], dtype: np.dtype, layout: Any) -> np.ndarray:
        whole = 4 * len(self) * (layout.n_values + len(layout.spans))
        size = dtype.itemsize * shape[0] * shape[1]
        if whole <= self._limit or not size:
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile(prefix="combutab-") as file:  # the mapping outlives it
            if hasattr(os, "posix_fallocate"):  # a full disk is told of now, by an error
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    raise OSError(
                        error.errno,
                        f"the encoded rows take {whole:,} bytes, more than {self._limit:,} of "
                        f"memory_limit, and {tempfile.gettempdir()} has no room for them "
                        f"({error.strerror}); raise memory_limit, or set TMPDIR",
                    ) from error
            return np.memmap(file, dtype, "w+", shape=shape)
