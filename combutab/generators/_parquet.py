"""Parquet files that a generator is fitted to: a column at a time, then rows part by part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.text import RESERVE, as_names, check_limit, parse_bytes
from combutab.generators._learned_columns import LearnedColumns, row_step
from combutab.generators._relations import Columns
from combutab.generators.constraints import Constraint, refuse_broken
from combutab.preprocessing import (
    ColumnForm,
    ModeEncoder,
    ModeTable,
    ParquetTable,
    Paths,
    RowLayout,
    Table,
)

_ROWS = 1 << 16  # read at a time, at most
_FEWEST = 1 << 12  # and at least
_FITTED = 12  # copies of a sample, while modes are learned from it


class _Parsed:
    """A table in files with dates, times and decimals read from text, numbers and objects."""

    def __init__(
        self,
        table: ParquetTable,
        forms: Mapping[str, ColumnForm],
        check: Callable[[str, int], None],
    ) -> None:
        self._table, self._forms = table, forms
        self.n_rows = table.n_rows
        # parts of a column are read with the unit and the time zone of the whole column
        self._dtypes = {}
        for name, form in forms.items():
            values = pd.Series(table.column(name, check).dropna().unique())
            self._dtypes[name] = form.read(values, f"column {name!r}").dtype

    def column(self, name: str, check: Callable[[str, int], None]) -> pd.Series:
        """See `ParquetTable`."""
        return self._parse(name, self._table.column(name, check))

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[tuple[int, pd.DataFrame]]:
        """See `ParquetTable`."""
        for first, frame in self._table.frames(columns, n_rows):
            yield first, self._parse_frame(frame)

    def header(self, columns: Sequence[str]) -> pd.DataFrame:
        """See `ParquetTable`."""
        return self._parse_frame(self._table.header(columns))

    def _parse_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({name: self._parse(str(name), frame[name]) for name in frame})

    def _parse(self, name: str, column: pd.Series) -> pd.Series:
        if name not in self._forms:
            return column
        codes, values = pd.factorize(column)
        parsed: pd.Series = pd.Series(dtype=self._dtypes[name])
        if len(values):
            parsed = self._forms[name].read(pd.Series(values), f"column {name!r}")
        parsed = parsed.astype(self._dtypes[name]).reindex(codes)
        return parsed.set_axis(column.index).rename(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class _Widened:
    """A table in files with additional columns that are learned."""

    def __init__(self, table: ParquetTable, learned: LearnedColumns) -> None:
        self._table, self._learned = table, learned
        self.n_rows = table.n_rows

    def column(self, name: str, check: Callable[[str, int], None]) -> pd.Series:
        """See `ParquetTable`."""
        if name not in self._learned.added:
            return self._table.column(name, check)
        sources = {
            source: self._table.column(source, check) for source in self._learned.sources[name]
        }
        return self._learned.compute(name, sources)

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[tuple[int, pd.DataFrame]]:
        """See `ParquetTable`."""
        for first, frame in self._table.frames(self._learned.names, n_rows):
            yield first, self._learned.extend(frame)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class ParquetSource:
    """A table in Parquet files, with the methods that a fit needs.

    If the encoded rows do not fit in ``memory_limit`` together with the training, they are stored
    in a temporary file, which the system caches in free memory.
    """

    def __init__(
        self,
        path: Paths,
        columns: str | Sequence[str] | None,
        memory_limit: int | str,
        filesystem: Any,
    ) -> None:
        self._limit = parse_bytes(memory_limit)
        self._table: Any = ParquetTable(path, filesystem)
        self._columns = self._table.columns if columns is None else as_names(columns)
        repeated = sorted({c for c in self._columns if self._columns.count(c) > 1})
        if repeated or not self._columns:
            raise ValueError(f"columns must be names of different columns, got {columns!r}")
        self._table.check_columns(self._columns)
        self._more: list[str] = []  # columns that are not in the files

    def __len__(self) -> int:
        return self._table.n_rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def items(self) -> Iterator[tuple[str, pd.Series]]:
        """The names and the columns, with one whole column at a time in memory."""
        for name in self._columns:
            yield name, self._table.column(name, self._check_column)

    def parse(self, forms: Sequence[ColumnForm]) -> ParquetSource:
        """The table with dates, times and decimals as such."""
        by_name = {self._columns[form.column]: form for form in forms}
        self._table = _Parsed(self._table, by_name, self._check_column)
        return self

    def header(self) -> dict[Any, pd.Series]:
        """The columns without rows, with their dtypes."""
        return Table(self._table.header(self._columns)).columns_by_name()

    def refuse_broken(self, constraints: Sequence[Constraint]) -> None:
        """Raise an error that names the rows that break a constraint."""
        parts = self._table.frames(self._columns, _ROWS)
        columns = (Table(part).columns_by_name() for _, part in parts)
        refuse_broken(constraints, self._columns, columns, "the files")

    def extend(self, learned: LearnedColumns) -> ParquetSource:
        """The table with the columns that are learned in addition to those of the files."""
        if learned.added:
            self._table = _Widened(self._table, learned)
            self._more = learned.added
        return self

    def spread(self, max_rows: int) -> Columns:
        """At most ``max_rows`` evenly spaced rows."""
        step = row_step(len(self), max_rows)
        parts = self._table.frames(self._columns, _ROWS)
        rows = pd.concat([part.iloc[-first % step :: step] for first, part in parts])
        return Table(rows).columns_by_name()

    def fit(self, encoder: ModeEncoder) -> ModeEncoder:
        """Fit an encoder, with one whole column at a time in memory.

        Raises ValueError if a column takes more than the limit.
        """
        samples = 8 * min(encoder.max_rows, len(self)) * (len(self._columns) + _FITTED)
        check = partial(self._check_column, samples=samples)
        return encoder.fit_parquet(self._table, [*self._columns, *self._more], check)

    def _check_column(self, name: str, size: int, samples: int = 0) -> None:
        """Raise ValueError if a column of this size takes more than the limit."""
        needed = RESERVE + self._table.reader_bytes([name]) + samples + size
        what = f"the column {name!r} of {len(self):,} rows"
        check_limit(self._limit, needed, what, "leave the column out")

    def encode(self, encoder: ModeEncoder, training_bytes: int) -> ModeTable:
        """Encode all rows in parts; training takes ``training_bytes`` in addition to them.

        Raises ValueError if the limit is too small for that.
        """
        layout, row_bytes = encoder.layout_, self._table.row_bytes(self._columns)
        reader_bytes = self._table.reader_bytes(self._columns)
        needed = RESERVE + max(training_bytes, reader_bytes + _FEWEST * row_bytes)
        instead = "use fewer columns, members or units, or a smaller batch_size"
        check_limit(self._limit, needed, f"training on {len(self):,} rows", instead)
        n_read = min(_ROWS, max(_FEWEST, (self._limit - RESERVE - reader_bytes) // 4 // row_bytes))
        used = RESERVE + max(training_bytes, reader_bytes + n_read * row_bytes)
        values = self._empty((len(self), layout.n_values), np.dtype(np.float32), layout, used)
        codes = self._empty((len(self), len(layout.spans)), np.dtype(np.int32), layout, used)
        encoder.encode_parquet(self._table, n_read, values, codes)
        self._table.release()
        return ModeTable(values, codes)

    def _empty(
        self, shape: tuple[int, int], dtype: np.dtype, layout: RowLayout, used: int
    ) -> np.ndarray:
        table_bytes = 4 * len(self) * (layout.n_values + len(layout.spans))
        size = dtype.itemsize * shape[0] * shape[1]
        if table_bytes + used <= self._limit or not size:
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile(prefix="combutab-") as file:  # the mapping outlives it
            if hasattr(os, "posix_fallocate"):  # a full disk is an error now, not later
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    raise OSError(
                        error.errno,
                        f"the encoded rows take {table_bytes:,} bytes, more than memory_limit="
                        f"{self._limit:,} leaves, and there is no space for them in "
                        f"{tempfile.gettempdir()} ({error.strerror}); raise memory_limit, or set "
                        "TMPDIR",
                    ) from error
            return np.memmap(file, dtype, "w+", shape=shape)
