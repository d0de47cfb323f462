"""Parquet files as one table that is read in batches, any row group first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from combutab.preprocessing._kinds import ColumnKind, column_kind

_BUFFER = 1 << 16  # bytes of a column that are read at a time
# What a column's reader holds: a page of (usually) 1 MB, compressed and not, and a dictionary.
_PAGES = 7 << 19


@dataclass(frozen=True)
class RowGroup:
    """A part of a file that can be read by itself."""

    path: Path
    index: int  # in its file
    first_row: int  # of the whole table
    n_rows: int


def _arrow() -> tuple[Any, Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "reading Parquet needs pyarrow: pip install 'combutab[parquet]'"
        ) from error
    return pa, pc, pq


class ParquetTable:
    """One table in one or several Parquet files, of which only metadata are held.

    Parameters
    ----------
    path : path, or sequence of paths
        A file, a folder (all of its ``*.parquet``, by name), or several files, in this order.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or no Parquet file in the folder.
    ValueError
        If a file cannot be read as Parquet, has other columns than the first, or there are no
        rows.
    ImportError
        Without pyarrow.
    """

    def __init__(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        pa, _, pq = _arrow()
        self.paths = _files(path)
        self.groups: list[RowGroup] = []
        self.n_rows = 0
        self._metadata: dict[Path, Any] = {}
        for file in self.paths:
            try:
                metadata = pq.read_metadata(file)
                schema = metadata.schema.to_arrow_schema()
            except (pa.ArrowException, OSError) as error:
                reason = " ".join(str(error).split())
                raise ValueError(f"cannot read {file} as Parquet: {reason}") from error
            self._metadata[file] = metadata
            if file == self.paths[0]:
                self._schema = schema
            self._check_schema(file, schema)
            for index in range(metadata.num_row_groups):
                n_rows = metadata.row_group(index).num_rows
                if n_rows:
                    self.groups.append(RowGroup(file, index, self.n_rows, n_rows))
                self.n_rows += n_rows
        if not self.n_rows:
            raise ValueError(f"{self._all_names()} has no rows")
        stored = (self._schema.pandas_metadata or {}).get("index_columns", [])
        # What pandas stored of an index is no column of the table.
        self.columns = [name for name in self._schema.names if name not in stored]

    def _all_names(self) -> str:
        more = len(self.paths) - 1
        return f"{self.paths[0]}" + (f" (and {more} more files)" if more else "")

    def _check_schema(self, file: Path, schema: Any) -> None:
        if len(set(schema.names)) < len(schema.names):
            twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
            raise ValueError(f"{file} has more than one column named {twice}")
        first = {field.name: field.type for field in self._schema}
        other = {field.name: field.type for field in schema}
        if first.keys() != other.keys():
            lacking, added = sorted(first.keys() - other.keys()), sorted(other.keys() - first)
            raise ValueError(
                f"{file} has other columns than {self.paths[0]}: it lacks {lacking} and adds "
                f"{added}; all files must have the same columns"
            )
        for name, type_ in other.items():
            if type_ != first[name]:
                raise ValueError(
                    f"column {name!r} is {type_} in {file}, but {first[name]} in {self.paths[0]}; "
                    "write it with one type in all files"
                )

    def type_of(self, column: str) -> Any:
        """The column's Arrow type."""
        return self._schema.field(column).type

    def kind(self, column: str) -> ColumnKind:
        """Tell what kind of thing a column holds; text is a category."""
        return column_kind(self.header([column])[column])

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse columns that are not there, or whose type no column of a table can have."""
        types = _arrow()[0].types
        for name in columns:
            if name not in self.columns:
                raise ValueError(
                    f"there is no column {name!r} in {self.paths[0]}; its columns are "
                    f"{self.columns}"
                )
            type_ = self.type_of(name)
            if types.is_nested(type_) or isinstance(type_, _arrow()[0].BaseExtensionType):
                raise ValueError(
                    f"column {name!r} is of type {type_}, which is no number, text, date or truth "
                    "value; leave it out, or write it as columns of those"
                )

    def _parts(self, column: str) -> Iterator[Any]:
        """The metadata of a column in each row group."""
        for metadata in self._metadata.values():
            paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
            place = paths.index(column)
            for index in range(metadata.num_row_groups):
                yield metadata.row_group(index).column(place)

    def n_missing(self, column: str) -> int:
        """Count the missing values of a column that the files' own statistics know of."""
        statistics = (part.statistics for part in self._parts(column))
        return sum(each.null_count for each in statistics if each and each.has_null_count)

    def reader_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory that it takes to have one row group open, whatever is read of it."""
        return max(
            sum(min(7 * part.total_uncompressed_size // 4, _PAGES) + _BUFFER for part in group)
            for group in zip(*map(self._parts, columns), strict=True)
        )

    def row_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory that a row takes while it becomes a DataFrame's."""
        size = 0.0
        for column in columns:
            try:
                size += 3 * self.type_of(column).bit_width / 8
            except ValueError:  # text: what the files hold, and codes
                whole = sum(part.total_uncompressed_size for part in self._parts(column))
                size += 3 * (whole / self.n_rows) + 100
        return int(size) + 1

    def header(self, columns: Sequence[str]) -> pd.DataFrame:
        """A DataFrame without rows, whose dtypes say what the columns hold."""
        return _frame(self._schema.empty_table().select(list(columns)))

    def release(self) -> None:
        """Give back memory that Arrow keeps for its next allocations."""
        _arrow()[0].default_memory_pool().release_unused()

    def batches(
        self, columns: Sequence[str], n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Row groups in the given order (by default the table's), at most n_rows rows at a time.

        Yields
        ------
        (int, DataFrame)
            The position in the table of the first row, and the rows. Text is a categorical.
        """
        pa, _, pq = _arrow()
        for group in self.groups if groups is None else groups:
            first = group.first_row
            # With a buffer, and not read ahead, a column of any length takes little memory; the
            # fragments of a pyarrow.dataset decode a row group at once, whatever its size.
            metadata = self._metadata[group.path]
            with pq.ParquetFile(
                group.path, metadata=metadata, buffer_size=_BUFFER, pre_buffer=False
            ) as file:
                batches = file.iter_batches(
                    n_rows, row_groups=[group.index], columns=list(columns), use_threads=False
                )
                try:
                    for batch in batches:
                        part = pa.Table.from_batches([batch]).select(list(columns))
                        yield first, _frame(part)
                        first += len(batch)
                except (pa.ArrowException, OSError) as error:
                    reason = " ".join(str(error).split())
                    raise ValueError(f"cannot read {group.path}: {reason}") from error


def _files(path: Any) -> list[Path]:
    if isinstance(path, str | os.PathLike):
        whole = Path(path)
        if not whole.exists():
            raise FileNotFoundError(f"there is no file or folder {whole}")
        if not whole.is_dir():
            return [whole]
        files = sorted(whole.glob("*.parquet"))
        if not files:
            raise FileNotFoundError(f"there is no *.parquet file in the folder {whole}")
        return files
    files = [Path(each) for each in path]
    if not files:
        raise ValueError("path is an empty list; name at least one Parquet file")
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
    return files


def _frame(table: Any) -> pd.DataFrame:
    """An Arrow table as pandas holds it, its text as categories of these rows."""
    pa, pc, _ = _arrow()
    types = pa.types
    columns = []
    for column in table.columns:
        if types.is_decimal(column.type):
            column = pc.cast(column, pa.float64())
        elif not _is_fixed(types, column.type):
            column = pc.dictionary_encode(column)
        columns.append(column)
    plain = pa.Table.from_arrays(columns, names=table.column_names)
    return plain.to_pandas(date_as_object=False, use_threads=False, split_blocks=True)


def _is_fixed(types: Any, type_: Any) -> bool:
    """Tell whether values become numbers, dates or categories without an object each."""
    return (
        types.is_dictionary(type_)
        or types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_timestamp(type_)
        or types.is_duration(type_)
        or types.is_date(type_)
        or types.is_null(type_)
    )
