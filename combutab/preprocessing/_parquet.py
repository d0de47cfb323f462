"""Parquet files as one table that is read in batches, any row group first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing._kinds import ColumnKind, column_kind
from combutab.preprocessing._parquet_files import (
    Paths,
    StoredFile,
    arrow,
    find_files,
    find_place,
    reading,
)

_BUFFER = 1 << 16  # bytes of a column that are read at a time
_FAR_BUFFER = 1 << 20  # from where each reading takes its time
# What a column's reader holds: a page of (usually) 1 MB, compressed and not, and a dictionary.
_PAGES = 7 << 19


@dataclass(frozen=True)
class RowGroup:
    """A part of a file that can be read by itself."""

    file: StoredFile
    index: int  # in its file
    first_row: int  # of the whole table
    n_rows: int


class ParquetTable:
    """One table in one or several Parquet files, of which only metadata are held.

    Parameters
    ----------
    path : path, or sequence of paths
        A file, a folder (all ``*.parquet`` in it and in its folders, by name; none whose own or
        whose folder's name begins with ``.`` or ``_``), a pattern of files or folders (``*``,
        ``?``, ``[...]``, ``**`` for any folders), or several of these, in this order. A URI of a
        file system that pyarrow knows (``s3://``, ``gs://``, ``hdfs://``, ``file://``) is a path
        too. Folders that are named ``column=value`` are columns of the table.
    filesystem : FileSystem of pyarrow or fsspec, optional
        What the paths are on.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or no Parquet file in the folder or of the pattern.
    ValueError
        If a file cannot be read as Parquet, has other columns than the first, or there are no
        rows.
    ImportError
        Without pyarrow.
    """

    def __init__(self, path: Paths, filesystem: Any = None) -> None:
        pa = arrow()
        self.files, self._keys = find_files(path, filesystem)
        self.groups: list[RowGroup] = []
        self.n_rows = 0
        self._metadata: dict[StoredFile, tuple[Any, int]] = {}  # with the bytes of the file
        for file in self.files:
            with (
                reading(file.name, " as Parquet"),
                file.filesystem.open_input_file(file.path) as handle,
            ):
                metadata, size = pa.parquet.ParquetFile(handle).metadata, handle.size()
                schema = metadata.schema.to_arrow_schema()
            self._metadata[file] = metadata, size
            if file is self.files[0]:
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
        inside = [name for name in self._schema.names if name not in stored]
        self.columns = [*inside, *self._keys.names]

    def _all_names(self) -> str:
        more = len(self.files) - 1
        return f"{self.files[0].name}" + (f" (and {more} more files)" if more else "")

    def _check_schema(self, file: StoredFile, schema: Any) -> None:
        if len(set(schema.names)) < len(schema.names):
            twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
            raise ValueError(f"{file.name} has more than one column named {twice}")
        first = {field.name: field.type for field in self._schema}
        other = {field.name: field.type for field in schema}
        if first.keys() != other.keys():
            lacking, added = sorted(first.keys() - other.keys()), sorted(other.keys() - first)
            raise ValueError(
                f"{file.name} has other columns than {self.files[0].name}: it lacks {lacking} and "
                f"adds {added}; all files must have the same columns"
            )
        for name, type_ in other.items():
            if type_ != first[name]:
                raise ValueError(
                    f"column {name!r} is {type_} in {file.name}, but {first[name]} in "
                    f"{self.files[0].name}; write it with one type in all files"
                )

    def _field(self, column: str) -> Any:
        return (self._keys if column in self._keys.names else self._schema).field(column)

    def _inside(self, columns: Sequence[str]) -> list[str]:
        """Those of the columns that the files themselves hold."""
        return [name for name in columns if name not in self._keys.names]

    def type_of(self, column: str) -> Any:
        """The column's Arrow type."""
        return self._field(column).type

    def kind(self, column: str) -> ColumnKind:
        """Tell what kind of thing a column holds; text is a category."""
        return column_kind(self.header([column])[column])

    def check_names(self, columns: Sequence[str]) -> None:
        """Refuse columns that are not there."""
        for name in columns:
            if name not in self.columns:
                raise ValueError(
                    f"there is no column {name!r} in {self.files[0].name}; its columns are "
                    f"{self.columns}"
                )

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse columns that are not there, or whose type no column of a table can have."""
        types = arrow().types
        self.check_names(columns)
        for name in columns:
            type_ = self.type_of(name)
            if types.is_nested(type_) or isinstance(type_, arrow().BaseExtensionType):
                raise ValueError(
                    f"column {name!r} is of type {type_}, which is no number, text, date or truth "
                    "value; leave it out, or write it as columns of those"
                )

    def _parts(self, column: str) -> Iterator[Any]:
        """The metadata of a column, which the files hold, in each row group."""
        for metadata, _ in self._metadata.values():
            paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
            place = paths.index(column)
            for index in range(metadata.num_row_groups):
                yield metadata.row_group(index).column(place)

    def n_missing(self, column: str) -> int:
        """Count the missing values of a column that the files' own statistics know of."""
        if column in self._keys.names:
            return sum(group.n_rows for group in self.groups if group.file.keys[column] is None)
        statistics = (part.statistics for part in self._parts(column))
        return sum(each.null_count for each in statistics if each and each.has_null_count)

    def reader_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory that it takes to have one row group open, whatever is read of it."""
        buffer = max(_buffer(file) for file in self.files)
        sizes = (
            sum(min(7 * part.total_uncompressed_size // 4, _PAGES) + buffer for part in group)
            for group in zip(*map(self._parts, self._inside(columns)), strict=True)
        )
        return max(sizes, default=buffer)

    def row_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory that a row takes while it becomes a DataFrame's."""
        size = 0.0
        for column in columns:
            try:
                size += 3 * self.type_of(column).bit_width / 8
            except ValueError:  # text: what the files hold, and codes
                inside = self._inside([column])
                whole = sum(p.total_uncompressed_size for c in inside for p in self._parts(c))
                size += 3 * (whole / self.n_rows) + 100
        return int(size) + 1

    def header(self, columns: Sequence[str]) -> pd.DataFrame:
        """A DataFrame without rows, whose dtypes say what the columns hold."""
        return _frame(self.schema(columns).empty_table())

    def schema(self, columns: Sequence[str]) -> Any:
        """The Arrow schema of these columns."""
        return arrow().schema([self._field(column) for column in columns])

    def refuse_place(self, out: str | os.PathLike[str]) -> None:
        """Refuse to write over a file that the table is read from."""
        filesystem, path, name = find_place(out)
        for file in self.files:
            if file.filesystem == filesystem and file.path == path:
                raise ValueError(f"out={name!r} is a file that is read; name another one")

    def release(self) -> None:
        """Give back memory that Arrow keeps for its next allocations."""
        arrow().default_memory_pool().release_unused()

    def batches(
        self, columns: Sequence[str], n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Row groups in the given order (by default the table's), at most n_rows rows at a time.

        Yields
        ------
        (int, DataFrame)
            The position in the table of the first row, and the rows. Text is a categorical.
        """
        for first, part in self.arrow_batches(columns, n_rows, groups):
            yield first, self.to_frame(part)

    def to_frame(self, part: Any) -> pd.DataFrame:
        """Rows of `arrow_batches` as `batches` gives them."""
        return _frame(part)

    def to_arrow(self, values: np.ndarray) -> Any:
        """A column for a file; a ValueError says of which values there is none."""
        pa = arrow()
        try:
            return pa.array(values)
        except pa.ArrowException as error:
            raise ValueError(f"values such as {values[0]!r} make no column: {error}") from error

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[tuple[int, pd.DataFrame]]:
        """All rows in order, at most n_rows at a time, with the types of `pandas.read_parquet`.

        Where a part lacks missing values, its numbers may be whole ones though others are not.

        Yields
        ------
        (int, DataFrame)
            The position in the table of the first row, and the rows.
        """
        for first, part in self.arrow_batches(columns, n_rows):
            yield first, self._as_pandas(part)

    def column(self, name: str) -> pd.Series:
        """One column of all rows, as `pandas.read_parquet` gives it."""
        n_rows = max(group.n_rows for group in self.groups)
        parts = [part for _, part in self.arrow_batches([name], n_rows)]
        return self._as_pandas(arrow().concat_tables(parts))[name]

    def _as_pandas(self, table: Any) -> pd.DataFrame:
        # the metadata tell of the dtypes; what they say of an index is nothing to these columns
        told = table.replace_schema_metadata(self._schema.metadata)
        return told.to_pandas(use_threads=False, split_blocks=True).reset_index(drop=True)

    def arrow_batches(
        self, columns: Sequence[str], n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """The same as `batches`, as Arrow has it: (position, pyarrow.Table)."""
        for group in self.groups if groups is None else groups:
            first = group.first_row
            for batch in self._read(group, self._inside(columns), n_rows):
                yield first, self._with_keys(batch, group.file, columns)
                first += len(batch)

    def _read(self, group: RowGroup, columns: list[str], n_rows: int) -> Iterator[Any]:
        pa, file = arrow(), group.file
        metadata, size = self._metadata[file]
        with reading(file.name):
            handle = file.filesystem.open_input_file(file.path)
        with handle:
            if handle.size() != size:
                raise ValueError(
                    f"cannot read {file.name}: it has {handle.size()} bytes now, and had {size} "
                    "when it was opened first; leave the files alone while they are read"
                )
            with reading(file.name):
                # With a buffer, and not read ahead, a column of any length takes little memory; the
                # fragments of a pyarrow.dataset decode a row group at once, whatever its size.
                opened = pa.parquet.ParquetFile(
                    handle, metadata=metadata, buffer_size=_buffer(file), pre_buffer=False
                )
                batches = opened.iter_batches(
                    n_rows, row_groups=[group.index], columns=columns, use_threads=False
                )
            while True:
                with reading(file.name):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def _with_keys(self, batch: Any, file: StoredFile, columns: Sequence[str]) -> Any:
        """A batch as a table of these columns, with what the file's folders hold of them."""
        pa = arrow()
        arrays = [
            pa.repeat(pa.scalar(file.keys[name], self.type_of(name)), len(batch))
            if name in self._keys.names
            else batch.column(name)
            for name in columns
        ]
        return pa.Table.from_arrays(arrays, names=list(columns))


def _buffer(file: StoredFile) -> int:
    return _FAR_BUFFER if file.is_far else _BUFFER


def _frame(table: Any) -> pd.DataFrame:
    """An Arrow table as pandas holds it, its text as categories of these rows."""
    pa = arrow()
    pc, types = pa.compute, pa.types
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
