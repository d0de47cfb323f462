"""Parquet files that are written part by part, and are there in whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pandas as pd

from combutab._interrupts import uninterrupted
from combutab._whole_files import whole_file
from combutab.preprocessing._parquet_files import arrow, find_place


class ParquetParts:
    """A Parquet file in the making; its columns are those of the first part."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self._sink: Any = None
        self._writer: Any = None
        self._schema: Any = None

    def write(self, part: Any) -> None:
        """Append the rows of a pyarrow.Table, as row groups of their own."""
        if self._writer is None:
            self._sink = self._filesystem.open_output_stream(self._path)
            self._writer = arrow().parquet.ParquetWriter(self._sink, part.schema)
        self._writer.write_table(part)

    def write_frame(self, part: pd.DataFrame, values: Mapping[str, pd.Series]) -> None:
        """Append the rows of a DataFrame, whose index is a count.

        The types of the columns, by their names as text, are those of ``values``, which the rows
        need not show.

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

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()

    def _drop(self) -> None:
        """Let go of the file; a writer that goes out of use unclosed would complain."""
        for each in (self._writer, self._sink):
            with suppress(arrow().ArrowException, OSError):
                if each is not None:
                    each.close()


def _type(values: pd.Series) -> Any:
    """The Arrow type of a column; that of categories has room for those of any part."""
    pa = arrow()
    found = pa.Array.from_pandas(values).type
    if pa.types.is_dictionary(found):
        return pa.dictionary(pa.int32(), found.value_type, found.ordered)
    return found


@contextmanager
def parquet_parts(out: str | os.PathLike[str]) -> Iterator[ParquetParts]:
    """Give what parts of a table are written to; the file is at its place once all are.

    It is written beside its place, and moved there. After an error within, or Ctrl-C, nothing is
    left behind, and a file that was there is as it was. The place may be a URI too; one of a file
    system that moves by copying (``s3://``) takes no file of more than it copies at once (5 GB).

    Raises
    ------
    OSError
        With the path, if it cannot be written: a folder that is not there or is read-only, a full
        disk.
    ValueError
        If there is no file system of a URI.
    """
    pa = arrow()
    filesystem, path, name = find_place(out)
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        asked = path if "://" in os.fspath(out) else out
        with whole_file(asked) as place, _closing(ParquetParts(filesystem, str(place))) as own:
            yield own
        return
    folder, _, last = path.rpartition("/")
    aside = f"{folder}/.combutab-{secrets.token_hex(4)}-{last}"
    try:
        with _closing(ParquetParts(filesystem, aside)) as own:
            yield own
        filesystem.move(aside, path)
    except BaseException as error:
        with uninterrupted(), suppress(pa.ArrowException, OSError):
            filesystem.delete_file(aside)
        if isinstance(error, OSError) and name not in str(error):
            raise OSError(error.errno, f"{name} cannot be written: {error}") from error
        raise


@contextmanager
def _closing(parts: ParquetParts) -> Iterator[ParquetParts]:
    try:
        yield parts
        parts._close()
    except BaseException:
        with uninterrupted():
            parts._drop()
        raise
