"""Parquet files as one table, read in batches and written part by part."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.files import whole_file
from combutab.core.progress import uninterrupted
from combutab.core.text import one_line
from combutab.preprocessing._columns import ColumnKind, column_kind

# ---- Parquet files of a table: a file, a folder, a pattern or a list, on any file system ---------

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, folder, pattern or URI, or several of them."""

_MAGIC = "*?["
_ENDING = ".parquet"


def arrow() -> Any:
    """Import pyarrow with what Parquet takes of it; an ImportError says how to install it."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.dataset
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from error
    return pa


@dataclass(frozen=True, eq=False)
class StoredFile:
    """A file or folder on a file system of pyarrow."""

    filesystem: Any
    path: str
    """As the file system has it."""
    prefix: str = ""
    """Of a URI; without its query, which may hold a password."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that the names of its folders hold, ``year=2024``."""

    @property
    def name(self) -> str:
        """As errors have it."""
        return f"{self.prefix}{self.path}"

    @property
    def is_far(self) -> bool:
        """Tell whether each reading takes its time."""
        return not isinstance(self.filesystem, arrow().fs.LocalFileSystem)


def find_files(path: Paths, filesystem: Any = None) -> tuple[list[StoredFile], Any]:
    """Find the files of a table, and the Arrow schema of the columns that folders' names hold.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder, no Parquet file in the folder, or none of the pattern.
    ValueError
        If the list is empty, there is no such file system, or names of folders are of no data set.
    """
    if isinstance(path, str | os.PathLike):
        return _find_at(find_place(path, filesystem), "file or folder")
    all_files: list[StoredFile] = []
    keys = arrow().schema([])
    for source in path:
        files, schema = _find_at(find_place(source, filesystem), "file")
        if all_files and schema != keys:
            raise ValueError(
                f"the folders of {all_files[0].name} and of {files[0].name} are named after other "
                "columns; name the folder above both"
            )
        all_files, keys = all_files + files, schema
    if not all_files:
        raise ValueError("path is an empty list; name at least one Parquet file")
    return all_files, keys


@contextmanager
def named_errors(doing: str, kind: type[Exception] = ValueError) -> Iterator[None]:
    """Turn what Arrow says of a file into one line that begins with what could not be done."""
    try:
        yield
    except (arrow().ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError) and kind is OSError:
            raise
        raise kind(f"cannot {doing}: {one_line(error)}") from error


def find_place(path: str | os.PathLike[str], filesystem: Any = None) -> StoredFile:
    """The place of a path or URI on its file system, whether or not there is a file."""
    fs, text = arrow().fs, os.fspath(path)
    if isinstance(filesystem, fs.FileSystem):
        return StoredFile(filesystem, text.rstrip("/") or text)
    if hasattr(filesystem, "protocol"):  # of fsspec
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
        return StoredFile(filesystem, text.rstrip("/") or text)
    if filesystem is not None:
        raise ValueError(
            f"filesystem must be one of pyarrow.fs or fsspec, got {filesystem!r}; leave it out for "
            "local paths and URIs"
        )
    if "://" not in text:
        return StoredFile(fs.LocalFileSystem(), Path(text).absolute().as_posix())
    scheme = text.partition("://")[0]
    try:
        filesystem_of_uri, inner_path = fs.FileSystem.from_uri(text)
    except (arrow().ArrowException, OSError) as error:
        raise ValueError(
            f"there is no way to a {scheme}:// path here: {one_line(error)}; pass a pyarrow or "
            "fsspec file system as filesystem, with a path on it"
        ) from error
    return StoredFile(
        filesystem_of_uri, inner_path.rstrip("/"), "" if scheme == "file" else f"{scheme}://"
    )


def _find_at(source: StoredFile, noun: str) -> tuple[list[StoredFile], Any]:
    pa, base = arrow(), source.path
    with named_errors(
        f"look at {source.name}", OSError
    ):  # without rights, or a network that is down
        info = source.filesystem.get_file_info(base)
        if info.type == pa.fs.FileType.File:
            return [source], pa.schema([])
        if info.type == pa.fs.FileType.Directory:
            paths = _parquet_below(source.filesystem, base)
            noun = f"*{_ENDING} file in the folder"
        elif any(sign in base for sign in _MAGIC):
            base, paths = _files_of_pattern(source.filesystem, base)
            noun = "file of the pattern"
        else:
            paths = []
        if not paths:
            raise FileNotFoundError(f"there is no {noun} {source.name}")
    return _partitioned(source, base, paths)


def _parquet_below(filesystem: Any, folder: str) -> list[str]:
    """The table's files below a folder, by name."""
    infos = filesystem.get_file_info(arrow().fs.FileSelector(folder, recursive=True))
    files = (info.path for info in infos if info.is_file and info.path.endswith(_ENDING))
    return sorted(path for path in files if not _is_hidden(_parts(path, folder)))


def _files_of_pattern(filesystem: Any, pattern: str) -> tuple[str, list[str]]:
    """The folder that a pattern is below, and the files that it names or that its folders have."""
    from fsspec.implementations.arrow import ArrowFSWrapper  # a dependency of torch

    parts = pattern.split("/")
    n = next(i for i, part in enumerate(parts) if any(sign in part for sign in _MAGIC))
    base = "/".join(parts[:n]) or "/" * pattern.startswith("/")
    with_hidden = _is_hidden(parts[n:])
    matches: set[str] = set()
    for path, info in ArrowFSWrapper(filesystem).glob(pattern, detail=True).items():
        if with_hidden or not _is_hidden(_parts(path, base)):
            is_folder = info["type"] == "directory"
            matches.update(_parquet_below(filesystem, path) if is_folder else [path])
    return base, sorted(matches)


def _parts(path: str, base: str) -> list[str]:
    return path.removeprefix(base).strip("/").split("/")


def _is_hidden(names: Sequence[str]) -> bool:
    """Tell whether one of the names is as those of unfinished files and of other programs' own."""
    return any(name.startswith((".", "_")) for name in names)


def _partitioned(source: StoredFile, base: str, paths: list[str]) -> tuple[list[StoredFile], Any]:
    """Files below a folder, with the columns that the names of their folders hold."""
    pa, filesystem = arrow(), source.filesystem
    if not any("=" in part for path in paths for part in _parts(path, base)[:-1]):
        return [replace(source, path=item) for item in paths], pa.schema([])
    with named_errors(f"read {source.prefix}{paths[0]} as Parquet"):
        in_file = pa.parquet.read_schema(paths[0], filesystem=filesystem).names
    with named_errors(f"read {source.prefix}{base} as one data set"):
        factory = pa.dataset.FileSystemDatasetFactory(
            filesystem,
            paths,
            pa.dataset.ParquetFileFormat(),
            pa.dataset.FileSystemFactoryOptions(
                partition_base_dir=base,
                partitioning=pa.dataset.HivePartitioning.discover(),
            ),
        )
        # a text column of the files may be of large strings, those of folders never are
        data = factory.finish(
            pa.unify_schemas(factory.inspect_schemas(), promote_options="permissive")
        )
    files = []
    for fragment in data.get_fragments():
        keys = pa.dataset.get_partition_keys(fragment.partition_expression)
        partition_keys = {name: value for name, value in keys.items() if name not in in_file}
        files.append(replace(source, path=fragment.path, keys=partition_keys))
    names = list(files[0].keys)
    for file in files:
        if sorted(file.keys) != sorted(names):
            raise ValueError(
                f"the folders of {files[0].name} and of {file.name} are named after other columns, "
                f"{names} and {list(file.keys)}; all must be named after the same"
            )
    return files, pa.schema([item for item in data.schema if item.name in names])


# ---- Parquet files as one table that is read in batches, any row group first ---------------------

_BUFFER = 1 << 16  # bytes of a column that are read at a time
_FAR_BUFFER = 1 << 20  # from where each reading takes its time
_MAX_EXACT_INT = 2**53  # float64 holds every integer up to here
# Memory of a column's reader: a page of (usually) 1 MB, compressed and not, and a dictionary.
_PAGES = 7 << 19
_COLUMN_ROWS = 1 << 16  # of a whole column, read at a time
# Measured memory of a column while it is learned: bytes per row of numbers or text, of dates, of
# objects; bytes per distinct text, and copies of its characters.
_VALUE_BYTES, _DATE_BYTES, _OBJECT_BYTES, _TEXT_BYTES, _TEXT_COPIES = 48, 80, 240, 200, 5


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file, which can be read separately."""

    file: StoredFile
    index: int  # in its file
    first_row: int  # of the whole table
    n_rows: int


class ParquetTable:
    """A table in one or several Parquet files, with only the metadata in memory.

    Parameters
    ----------
    path : path, or sequence of paths
        A file; a folder (all ``*.parquet`` files in it and its subfolders, sorted by name, except
        files and folders whose name starts with ``.`` or ``_``); a pattern of files or folders
        (``*``, ``?``, ``[...]``, ``**`` for any folders); or several of these, in this order. A
        path can be a URI of a file system that pyarrow supports (``s3://``, ``gs://``, ``hdfs://``,
        ``file://``). Folders named ``column=value`` add this column to the table.
    filesystem : FileSystem of pyarrow or fsspec, optional
        File system of the paths.

    Raises
    ------
    FileNotFoundError
        If there is no such file, or no Parquet file in the folder or with the pattern.
    ValueError
        If a file cannot be read as Parquet, has other columns than the first, or there are no
        rows.
    ImportError
        If pyarrow is not installed.
    """

    def __init__(self, path: Paths, filesystem: Any = None) -> None:
        pa = arrow()
        self.files, self._keys = find_files(path, filesystem)
        self.groups: list[RowGroup] = []
        self.n_rows = 0
        self._metadata: dict[StoredFile, tuple[Any, int]] = {}  # with the bytes of the file
        for file in self.files:
            with (
                named_errors(f"read {file.name} as Parquet"),
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
        other_types = {field.name: field.type for field in schema}
        if first.keys() != other_types.keys():
            lacking, added = (
                sorted(first.keys() - other_types.keys()),
                sorted(other_types.keys() - first),
            )
            raise ValueError(
                f"{file.name} has other columns than {self.files[0].name}: it lacks {lacking} and "
                f"adds {added}; all files must have the same columns"
            )
        for name, type_ in other_types.items():
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
        """Return the Arrow type of a column."""
        return self._field(column).type

    def kind(self, column: str) -> ColumnKind:
        """Return the kind of a column; text is a category."""
        return column_kind(self.header([column])[column])

    def check_names(self, columns: Sequence[str]) -> None:
        """Raise ValueError if a column does not exist."""
        for name in columns:
            if name not in self.columns:
                raise ValueError(
                    f"there is no column {name!r} in {self.files[0].name}; its columns are "
                    f"{self.columns}"
                )

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise ValueError if a column does not exist, or its type is not supported."""
        types = arrow().types
        self.check_names(columns)
        for name in columns:
            type_ = self.type_of(name)
            if types.is_nested(type_) or isinstance(type_, arrow().BaseExtensionType):
                raise ValueError(
                    f"column {name!r} is of type {type_}, which is not a number, text, date or "
                    "boolean; leave it out, or write it as columns of these types"
                )

    def _parts(self, column: str) -> Iterator[Any]:
        """The metadata of a column, which the files hold, in each row group."""
        for metadata, _ in self._metadata.values():
            paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
            position = paths.index(column)
            for index in range(metadata.num_row_groups):
                yield metadata.row_group(index).column(position)

    def n_missing(self, column: str) -> int:
        """Count the missing values of a column by the statistics in the files."""
        if column in self._keys.names:
            return sum(group.n_rows for group in self.groups if group.file.keys[column] is None)
        statistics = (part.statistics for part in self._parts(column))
        return sum(
            column_statistics.null_count
            for column_statistics in statistics
            if column_statistics and column_statistics.has_null_count
        )

    def reader_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory in bytes for reading one row group."""
        buffer = max(_buffer(file) for file in self.files)
        sizes = (
            sum(min(7 * part.total_uncompressed_size // 4, _PAGES) + buffer for part in group)
            for group in zip(*map(self._parts, self._inside(columns)), strict=True)
        )
        return max(sizes, default=buffer)

    def row_bytes(self, columns: Sequence[str]) -> int:
        """Estimate the memory in bytes per row for converting rows to a DataFrame."""
        size = 0.0
        for column in columns:
            try:
                size += 3 * self.type_of(column).bit_width / 8
            except ValueError:  # text: its size in the files, and codes
                inside = self._inside([column])
                n_bytes = sum(p.total_uncompressed_size for c in inside for p in self._parts(c))
                size += 3 * (n_bytes / self.n_rows) + 100
        return int(size) + 1

    def header(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return a DataFrame without rows that has the dtypes of the columns."""
        return _frame(self.schema(columns).empty_table())

    def schema(self, columns: Sequence[str]) -> Any:
        """Return the Arrow schema of these columns."""
        return arrow().schema([self._field(column) for column in columns])

    def refuse_place(self, out: str | os.PathLike[str]) -> None:
        """Raise ValueError if ``out`` is one of the files of the table."""
        target = find_place(out)
        if any(f.filesystem == target.filesystem and f.path == target.path for f in self.files):
            raise ValueError(
                f"out={target.name!r} is one of the files that are read; choose another file"
            )

    def release(self) -> None:
        """Release memory that Arrow keeps for later allocations."""
        arrow().default_memory_pool().release_unused()

    def batches(
        self, columns: Sequence[str], n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Read row groups in the given order (by default all), at most n_rows rows at a time.

        Yields
        ------
        (int, DataFrame)
            The position of the first row in the table, and the rows. Text is categorical.
        """
        for first, part in self.arrow_batches(columns, n_rows, groups):
            yield first, self.to_frame(part)

    def to_frame(self, part: Any) -> pd.DataFrame:
        """Convert rows of `arrow_batches` to those of `batches`."""
        return _frame(part)

    def to_arrow(self, values: np.ndarray) -> Any:
        """Convert values to an Arrow column; raises ValueError for types that Arrow lacks."""
        pa = arrow()
        try:
            return pa.array(values)
        except pa.ArrowException as error:
            raise ValueError(f"values such as {values[0]!r} are not a column: {error}") from error

    def frames(self, columns: Sequence[str], n_rows: int) -> Iterator[tuple[int, pd.DataFrame]]:
        """Read all rows, at most n_rows at a time, with the dtypes of `pandas.read_parquet`.

        A part without missing values can have integers although other parts have floats.

        Yields
        ------
        (int, DataFrame)
            The position of the first row in the table, and the rows.
        """
        for first, part in self.arrow_batches(columns, n_rows):
            yield first, self._as_pandas(part)

    def column(self, name: str, check: Callable[[str, int], None]) -> pd.Series:
        """Read one column of all rows, as `pandas.read_parquet` does.

        ``check`` is called with the name and the estimated memory in bytes for reading the column
        and learning from it: before the column is read, and again as distinct texts are found. It
        can raise an error.
        """
        pa = arrow()
        empty = self._as_pandas(self.schema([name]).empty_table())[name]
        coded = empty.dtype == object and _is_one_of(self.type_of(name), *_TEXTS)
        value_bytes = _row_bytes(pa.types, self.type_of(name))
        parts, size = [], value_bytes * self.n_rows
        check(name, size)
        for _, part in self.arrow_batches([name], _COLUMN_ROWS):
            if coded:  # a text that many rows share is held once
                codes = pa.compute.dictionary_encode(part.column(0).combine_chunks())
                part = pa.table({name: codes})
                size += codes.dictionary.nbytes
                check(name, size)
            parts.append(part)
        table = pa.concat_tables(parts)
        del parts
        if not coded:
            column = self._as_pandas(table)[name]
        else:
            codes = table.column(0).unify_dictionaries().combine_chunks()
            values = codes.dictionary
            size = (
                value_bytes * self.n_rows + _TEXT_BYTES * len(values) + _TEXT_COPIES * values.nbytes
            )
            check(name, size)
            objects = np.full(len(values) + 1, None, dtype=object)
            objects[:-1] = values.to_numpy(zero_copy_only=False)
            positions = codes.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
            column = pd.Series(objects[positions], name=name)
            del codes
        del table
        self.release()
        return column

    def _as_pandas(self, table: Any) -> pd.DataFrame:
        # the metadata contain the dtypes; their index is ignored
        typed = table.replace_schema_metadata(self._schema.metadata)
        return typed.to_pandas(use_threads=False, split_blocks=True).reset_index(drop=True)

    def arrow_batches(
        self, columns: Sequence[str], n_rows: int, groups: Sequence[RowGroup] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Read row groups as `batches`, as pairs (position, pyarrow.Table)."""
        for group in self.groups if groups is None else groups:
            first = group.first_row
            for batch in self._read(group, self._inside(columns), n_rows):
                yield first, self._with_keys(batch, group.file, columns)
                first += len(batch)

    def _read(self, group: RowGroup, columns: list[str], n_rows: int) -> Iterator[Any]:
        pa, file = arrow(), group.file
        metadata, size = self._metadata[file]
        with named_errors(f"read {file.name}"):
            handle = file.filesystem.open_input_file(file.path)
        with handle:
            if handle.size() != size:
                raise ValueError(
                    f"cannot read {file.name}: it has {handle.size()} bytes now, and had {size} "
                    "when it was opened first; leave the files alone while they are read"
                )
            with named_errors(f"read {file.name}"):
                # With a buffer, and not read ahead, a column of any length takes little memory; the
                # fragments of a pyarrow.dataset decode a row group at once, whatever its size.
                opened = pa.parquet.ParquetFile(
                    handle, metadata=metadata, buffer_size=_buffer(file), pre_buffer=False
                )
                batches = opened.iter_batches(
                    n_rows, row_groups=[group.index], columns=columns, use_threads=False
                )
            while True:
                with named_errors(f"read {file.name}"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def _with_keys(self, batch: Any, file: StoredFile, columns: Sequence[str]) -> Any:
        """Make a table of a batch, with the columns that the names of the file's folders hold."""
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
    """An Arrow table as pandas holds it; types that are not `_FIXED` become categories."""
    pa = arrow()
    pc, types = pa.compute, pa.types
    columns = []
    for column in table.columns:
        if types.is_decimal(column.type):
            column = _decimals_as_numbers(column)
        elif types.is_time(column.type):  # durations since midnight, as the encoder reads them
            column = column.cast(pa.time64("ns")).cast(pa.int64()).cast(pa.duration("ns"))
        elif not _is_one_of(column.type, *_FIXED):
            column = pc.dictionary_encode(column)
        columns.append(column)
    plain = pa.Table.from_arrays(columns, names=table.column_names)
    frame = plain.to_pandas(date_as_object=False, use_threads=False, split_blocks=True)
    for name, column in zip(table.column_names, columns, strict=True):
        if types.is_integer(column.type) and column.null_count and column.type.bit_width == 64:
            ends = pc.min_max(column).as_py().values()
            if any(end is not None and abs(end) > _MAX_EXACT_INT for end in ends):  # not as floats
                nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
                frame[name] = column.to_pandas(types_mapper=nullable.get)
    return frame


def _decimals_as_numbers(decimals: Any) -> Any:
    """A column of decimals as integers if they are, and 64 bits hold them, else as floats."""
    pa = arrow()
    if decimals.type.scale <= 0:
        try:
            return pa.compute.cast(decimals, pa.int64())
        except pa.ArrowInvalid:
            pass
    # Arrow's own cast makes 0.7000000000000001 of 0.7
    return pa.compute.cast(pa.compute.cast(decimals, pa.string()), pa.float64())


def _is_one_of(type_: Any, *kinds: str) -> bool:
    """Tell whether an Arrow type is of one of these kinds, as ``pyarrow.types`` names them."""
    return any(getattr(arrow().types, f"is_{kind}")(type_) for kind in kinds)


_TEXTS = ("string", "large_string", "binary", "large_binary")
# which become numbers, dates or categories without an object each
_FIXED = ("dictionary", "boolean", "integer", "floating", "timestamp", "duration", "date", "null")


def _row_bytes(types: Any, type_: Any) -> int:
    """Estimate the bytes per row of a column while it is learned."""
    if _is_one_of(type_, "decimal", "time"):
        return _OBJECT_BYTES
    is_zoned = types.is_timestamp(type_) and type_.tz is not None
    return _DATE_BYTES if is_zoned or types.is_date(type_) else _VALUE_BYTES


# ---- Parquet files that are written part by part, and are there in whole or not at all -----------


class ParquetParts:
    """Writer of a Parquet file in parts; the columns are those of the first part."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._sink: Any = None
        self._writer: Any = None
        self._schema: Any = None

    def write(self, part: Any) -> None:
        """Append the rows of a pyarrow.Table as separate row groups."""
        if self._writer is None:
            self._sink = self._filesystem.open_output_stream(self._path)
            self._writer = arrow().parquet.ParquetWriter(self._sink, part.schema)
        self._writer.write_table(part)

    def write_frame(self, part: pd.DataFrame, values: Mapping[str, pd.Series]) -> None:
        """Append the rows of a DataFrame with a RangeIndex.

        The types of the columns are those of ``values``, by column name as text, because the rows
        of one part may not show them.

        Raises ValueError if a column has values of several types.
        """
        pa = arrow()
        name = None
        try:
            if self._schema is None:
                schema = pa.Schema.from_pandas(part[:0])
                for i, name in enumerate(schema.names):
                    schema = schema.set(i, pa.field(name, _type(values[name])))
                self._schema, name = schema, None
            # names that are no text are in the schema's metadata alone
            renamed = part.set_axis(self._schema.names, axis=1)
            table = pa.Table.from_pandas(renamed, self._schema, preserve_index=False)
            table = table.replace_schema_metadata(self._schema.metadata)
        except pa.ArrowException as error:
            where = "" if name is None else f"column {name!r}: "
            raise ValueError(
                f"{where}values of several types have no place in a Parquet file ({error}); "
                "make them text before fit"
            ) from error
        self.write(table)

    def close(self) -> None:
        """Finish writing and close the file."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            if self._sink is not None:
                self._sink.close()


def _type(values: pd.Series) -> Any:
    """The Arrow type of a column; that of categories has room for those of any part."""
    pa = arrow()
    arrow_type = pa.Array.from_pandas(values).type
    if pa.types.is_dictionary(arrow_type):
        return pa.dictionary(pa.int32(), arrow_type.value_type, arrow_type.ordered)
    return arrow_type


@contextmanager
def parquet_parts(out: str | os.PathLike[str]) -> Iterator[ParquetParts]:
    """Return a context for writing a Parquet file in parts, which appears when it is complete.

    The file is written under a temporary name and then moved. After an error or Ctrl-C there is no
    new file, and an existing file is not changed. ``out`` can be a URI. On a file system that moves
    files by copying them (``s3://``) the file can have at most the size of one copy (5 GB).

    Raises
    ------
    OSError
        If the file cannot be written, such as in a missing or read-only folder, or on a full disk.
    ValueError
        If the file system of a URI is unknown.
    """
    target = find_place(out)
    if not target.is_far:
        local_path = target.path if "://" in os.fspath(out) else out
        with (
            whole_file(local_path) as temporary_path,
            _closing(ParquetParts(target.filesystem, str(temporary_path))) as writer,
        ):
            yield writer
        return
    folder, _, file_name = target.path.rpartition("/")
    temporary_name = f"{folder}/.combutab-{secrets.token_hex(4)}-{file_name}"
    try:
        with _closing(ParquetParts(target.filesystem, temporary_name)) as writer:
            yield writer
        target.filesystem.move(temporary_name, target.path)
    except BaseException as error:
        with uninterrupted(), suppress(arrow().ArrowException, OSError):
            target.filesystem.delete_file(temporary_name)
        if isinstance(error, OSError) and target.name not in str(error):
            raise OSError(error.errno, f"{target.name} cannot be written: {error}") from error
        raise


@contextmanager
def _closing(parts: ParquetParts) -> Iterator[ParquetParts]:
    try:
        yield parts
        parts.close()
    except BaseException:  # a writer that goes out of use unclosed would complain
        with uninterrupted(), suppress(arrow().ArrowException, OSError):
            parts.close()
        raise
