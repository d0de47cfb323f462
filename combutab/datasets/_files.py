"""Tables from files, and their targets; every flaw of the input is one line for the user."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.text import no_column, one_line

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_EXCEL = (".xlsx", ".xlsm")
_EXTENSIONS = (*_SEPARATORS, ".parquet", *_EXCEL)
_SEPARATOR_NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
_SIGNATURES = {  # the first bytes of files that are often met under a wrong name
    b"PAR1": "a Parquet file: rename it to .parquet",
    b"PK\x03\x04": "a zip archive or a spreadsheet: rename it to .xlsx, or export it as CSV",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet (.xls): save it as .xlsx, or export it as CSV",
    b"\x1f\x8b": "compressed with gzip: rename it to .csv.gz",
}
_MARKS = {  # byte order marks; the first four bytes of UTF-32 begin as those of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_C1 = re.compile("[\x80-\x9f]")  # no letters in latin-1, and letters in cp1252


class TableError(ValueError):
    """A table or its target cannot be used; the message is one line for a user to read."""


def read_table(
    path: str | PathLike[str],
    *,
    encoding: str = "utf-8",
    sep: str | None = None,
    decimal: str = ".",
) -> pd.DataFrame:
    """Read a table with one header line.

    Parameters
    ----------
    path : str or path
        A ``.csv`` (comma), ``.tsv`` (tab), either with ``.gz``, ``.parquet`` (extra ``parquet``)
        or ``.xlsx`` file (extra ``excel``; its first sheet). Empty cells and pandas' usual marks
        (``NA``, ``nan``) are missing.
    encoding : str, default="utf-8"
        Encoding of a text file; a UTF-8 byte order mark is dropped.
    sep : str, optional
        The character between the cells of a text file, if not the one of its file extension.
    decimal : str, default="."
        ``","`` where a text file has numbers such as ``0,125``.

    Returns
    -------
    DataFrame with at least one row, unique column names and the index 0, 1, 2, ...

    Raises
    ------
    TableError
        The file is missing, a directory, unreadable, of an unknown kind, empty, without rows,
        binary, not in this encoding, has another separator, rows of unequal length or
        repeated column names; or ``sep``, ``decimal`` or ``encoding`` is none.
    ImportError
        Without the library that reads Parquet, or Excel.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.csv"
    ...     _ = path.write_text("a,b\\n1,x\\n2,y\\n")
    ...     read_table(path)
       a  b
    0  1  x
    1  2  y
    """
    path = Path(path)
    extension = _extension(path)
    if extension == ".parquet":
        table = _read_parquet(path)
    elif extension in _EXCEL:
        table = _read_excel(path)
    else:
        separator = _separator(sep, _SEPARATORS[extension])
        if decimal not in (".", ","):
            raise TableError(f"decimal must be a point or a comma, got {decimal!r}")
        data = _read_bytes(path, unzip=extension.endswith(".gz"))
        table = _parse_text(path, data, separator, encoding, decimal)
    if table.empty:
        raise TableError(f"{path} has a header and no rows")
    return table


def read_cells(
    path: str | PathLike[str],
    columns: Sequence[int] | None = None,
    *,
    encoding: str = "utf-8",
    sep: str | None = None,
    only_empty: bool = False,
) -> pd.DataFrame:
    """Read cells of a text file that `read_table` takes, as they are written.

    Parameters
    ----------
    path, encoding, sep
        As `read_table` takes them.
    columns : sequence of int, optional
        Positions, by default all.
    only_empty : bool, default=False
        Whether empty cells alone are missing, where a mark such as ``NA`` may be a category.

    Returns
    -------
    DataFrame of text, NaN where a cell is missing

    Raises
    ------
    TableError
        The file cannot be read, or it is no text file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "small.csv"
    ...     _ = path.write_text("zip,city\\n00501,NA\\n")
    ...     read_cells(path, only_empty=True)
         zip city
    0  00501   NA
    """
    path = Path(path)
    extension = _extension(path)
    if extension not in _SEPARATORS:
        raise TableError(f"{path} is no text file: its cells have types")
    separator = _separator(sep, _SEPARATORS[extension])
    data = _read_bytes(path, unzip=extension.endswith(".gz"))
    missing: dict[str, Any] = {"keep_default_na": False, "na_values": [""]} if only_empty else {}
    return _parse(path, data, separator, encoding, dtype=str, usecols=columns, **missing)


def split_target(table: pd.DataFrame, target: Hashable) -> tuple[pd.DataFrame, pd.Series]:
    """Split a table into features and a target that a model can be trained on.

    Parameters
    ----------
    table : DataFrame of shape (n_samples, n_features + 1)
    target : column name

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features)
    y : Series of length n_samples, complete and not constant

    Raises
    ------
    TableError
        There is no such column (the nearest names are given), no other column, fewer than two
        rows, or the target has missing, infinite or no different values.

    Examples
    --------
    >>> X, y = split_target(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "b")
    >>> list(X), y.tolist()
    (['a'], [3, 4])
    """
    _refuse_repeated_names("the table", [str(name) for name in table.columns])
    if target not in table.columns:
        raise TableError(no_column(target, table.columns))
    if len(table) < 2:
        raise TableError(f"the table has {len(table)} row(s); at least 2 are needed")
    if len(table.columns) < 2:
        raise TableError(
            f"the table has no column but the target {target!r}: nothing to learn from"
        )
    y = table[target]
    _refuse_rows(target, "missing", y.isna().to_numpy())
    if pd.api.types.is_float_dtype(y.dtype):
        _refuse_rows(target, "infinite", np.isinf(y.to_numpy(dtype=float)))
    if y.nunique() < 2:
        raise TableError(
            f"the target {target!r} is {y.iloc[0]!s} in all {len(y)} rows: "
            "one class or a constant, nothing to learn"
        )
    return table.drop(columns=[target]), y


def _extension(path: Path) -> str:
    name = path.name.lower()
    if not path.exists():
        raise TableError(f"there is no file {path}")
    if path.is_dir():
        raise TableError(f"{path} is a directory; give the file in it")
    for extension in _EXTENSIONS:
        if name.endswith(extension):
            return extension
    raise TableError(f"cannot tell what {path} is; known endings are {', '.join(_EXTENSIONS)}")


def _separator(sep: str | None, usual: str) -> str:
    separator = usual if sep is None else sep
    if len(separator) != 1 or separator.isalnum() or separator in "\"'\r\n\0.+-_":
        raise TableError(f"sep must be one sign, such as ; or tab, got {sep!r}")
    return separator


def _read_bytes(path: Path, unzip: bool) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}") from error
    if not unzip:
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} is not a whole gzip file: {error}") from error


def _parse_text(
    path: Path, data: bytes, separator: str, encoding: str, decimal: str
) -> pd.DataFrame:
    for signature, what in _SIGNATURES.items():
        if data.startswith(signature):
            raise TableError(f"{path} is {what}")
    text = _decode(path, data, encoding)
    if not text.strip():
        raise TableError(f"{path} is empty")
    _check_rows(path, text, separator)
    # pandas' own precision is a digit less: a number would be written otherwise than it was read
    exact = {"decimal": decimal, "low_memory": False, "float_precision": "round_trip"}
    return _parse(path, data, separator, encoding, **exact)


def _decode(path: Path, data: bytes, encoding: str) -> str:
    """Decode the bytes; the error of text in another encoding names it if the bytes tell it."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError as error:
        raise TableError(f"there is no encoding {encoding!r}") from error
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    text = why = ""
    try:
        text = data.decode("utf-8-sig" if codec == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        why = f"is not {encoding}: {where}"
    except UnicodeError as error:  # of utf-16 without its mark
        why = f"is not {encoding}: {error}"
    if marked is not None and not codec.startswith(("utf-16", "utf-32")):
        why = f"is {marked.upper()} text"
    elif "\0" in text:
        why = "has NUL bytes"
    elif codec == "iso8859-1" and _C1.search(text):
        why = f"is not {encoding}"
    if not why:
        return text
    likely = marked
    if marked is None or codec.startswith(marked):
        likely = _likely_encoding(data, codec)
    if likely is None and b"\0" in data:
        raise TableError(f"{path} has NUL bytes: a binary file, not a text table")
    if likely is None:
        way_out = "name its encoding (--encoding, such as shift_jis, gbk or cp1251)"
    else:
        way_out = f"perhaps encoding={likely!r} reads it (--encoding {likely})"
    raise TableError(f"{path} {why}; {way_out}, or save it as UTF-8")


def _likely_encoding(data: bytes, codec: str) -> str | None:
    """The encoding that bytes seem to be of, other than the one that was tried."""
    if b"\0" in data:  # every second byte of Latin text in UTF-16
        head = data[:1000]
        even, odd = head[::2].count(0), head[1::2].count(0)
        if len(data) % 2 or max(even, odd) < 0.4 * len(head) / 2 or min(even, odd) > 0:
            return None
        name = "utf-16-le" if odd else "utf-16-be"
        return None if name == codec else name
    for name in ("utf-8", "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"):
        if codecs.lookup(name).name != codec:
            with suppress(UnicodeDecodeError):
                data.decode(name)
                return name
    return None


def _parse(path: Path, data: bytes, separator: str, encoding: str, **options: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(
            io.BytesIO(data), sep=separator, index_col=False, encoding=encoding, **options
        )
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise TableError(f"cannot parse {path}: {one_line(error)}") from error


def _check_rows(path: Path, text: str, separator: str) -> None:
    """Refuse what pandas lets pass: short rows are filled, long ones shift the columns."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = next(row for row in rows if row)
        if len(header) == 1:
            _refuse_separator(path, header[0], separator)
        _refuse_repeated_names(str(path), header)
        if _is_regular(text, separator):
            return
        for row in rows:
            if row and len(row) != len(header):
                raise TableError(
                    f"{path}: line {rows.line_num} has {len(row)} fields, "
                    f"the header has {len(header)}"
                )
    except csv.Error as error:
        raise TableError(f"cannot parse {path}: line {rows.line_num}: {error}") from error


def _is_regular(text: str, separator: str) -> bool:
    """Tell from counts alone, several times faster than by parsing, that all rows are as long."""
    if '"' in text or "\r" in text.replace("\r\n", ""):
        return False
    return len({line.count(separator) for line in text.split("\n") if line.rstrip("\r")}) == 1


def _refuse_separator(path: Path, header: str, separator: str) -> None:
    counts = {other: header.count(other) for other in _SEPARATOR_NAMES if other != separator}
    likely = max(counts, key=counts.__getitem__)
    if counts[likely]:
        shown = "tab" if likely == "\t" else likely
        raise TableError(
            f"{path} has one column when split at "
            f"{_SEPARATOR_NAMES.get(separator, repr(separator))}; the separator seems to be "
            f"{_SEPARATOR_NAMES[likely]}: sep={shown!r} reads it (--sep '{shown}')"
        )


def _refuse_repeated_names(where: str, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1 and name]
    if repeated:
        header = "; is the header missing?" if all(map(_reads_as_number, repeated)) else ""
        named = ", ".join(map(repr, repeated))
        raise TableError(f"{where} has more than one column named {named}{header}")


def _reads_as_number(name: str) -> bool:
    return name.replace(".", "", 1).lstrip("+-").isdecimal()


def _refuse_rows(target: Hashable, what: str, bad: np.ndarray) -> None:
    if bad.any():
        raise TableError(
            f"the target {target!r} has {int(bad.sum())} {what} value(s), the first in data row "
            f"{int(bad.argmax()) + 1}; drop these rows or fill them in"
        )


def _read_excel(path: Path) -> pd.DataFrame:
    """Read the first sheet of a workbook, with a warning where there are others."""
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"reading {path} needs openpyxl: pip install 'combutab[excel]'"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl's, of styles and charts
            with pd.ExcelFile(path, engine="openpyxl") as book:
                first, *others = map(str, book.sheet_names)
                head: Any = book.parse(first, header=None, nrows=1, dtype=object)
                table: Any = book.parse(first)
    except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
        raise TableError(f"cannot read {path}: {one_line(error)}") from error
    # the header as it is in the file: pandas numbers names that are there twice
    names = ["" if pd.isna(name) else str(name) for name in head.to_numpy().ravel()]
    _refuse_repeated_names(str(path), names)
    if others:
        more = ", ".join(map(repr, others[:3])) + (", ..." if len(others) > 3 else "")
        warnings.warn(
            f"{path} has {len(others) + 1} sheets, and the first, {first!r}, is read; to read "
            f"another ({more}), save it as a file of its own",
            UserWarning,
            stacklevel=3,
        )
    return table.rename(columns=str)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "reading Parquet needs pyarrow: pip install 'combutab[parquet]'"
        ) from error
    try:
        with pq.ParquetFile(path) as file:
            _refuse_repeated_names(str(path), list(file.schema_arrow.names))
            table = file.read().to_pandas()
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"cannot read {path}: {one_line(error)}") from error
    # A stored index with a name is a column of the user's; one without is a row count.
    return table.reset_index(drop=all(name is None for name in table.index.names))
