"""Tables from files, and their targets; errors in the input have messages of one line."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Hashable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.dates import find_date_format, read_dates
from combutab.core.text import no_column, one_line
from combutab.core.textfile import (
    EXCEL,
    SEPARATORS,
    TableError,
    check_rows,
    check_separator,
    extension_of,
    read_bytes,
    refuse_repeated_names,
    text_of,
)


def read_table(
    path: str | PathLike[str],
    *,
    encoding: str = "utf-8",
    sep: str | None = None,
    decimal: str = ".",
) -> pd.DataFrame:
    """Read a table with one header line from a text, Parquet or Excel file.

    Parameters
    ----------
    path : str or path
        File with the extension ``.csv`` (comma) or ``.tsv`` (tab), also followed by ``.gz``;
        ``.parquet`` (extra ``parquet``); ``.xlsx`` or ``.xlsm`` (extra ``excel``; the first sheet).
        Empty cells and pandas' usual marks (``NA``, ``nan``) are missing values. Columns of a text
        file whose values are dates in one format (``2024-12-31``, ``22-Jun-2024``) have the dtype
        datetime64, unless day and month may be swapped.
    encoding : str, default="utf-8"
        Encoding of a text file; a UTF-8 byte order mark is ignored.
    sep : str, optional
        Character between the cells of a text file. By default that of the file extension.
    decimal : {".", ","}, default="."
        Decimal mark of a text file: ``","`` for numbers such as ``0,125``.

    Returns
    -------
    DataFrame with at least one row, unique column names and the index 0, 1, 2, ...

    Raises
    ------
    TableError
        If the file is missing, a directory, unreadable, of an unknown kind, empty, without rows,
        binary, not in this encoding, or has another separator, rows of unequal length or repeated
        column names; or if ``sep``, ``decimal`` or ``encoding`` is not valid.
    ImportError
        If pyarrow (for Parquet) or openpyxl (for Excel) is not installed.

    Warns
    -----
    UserWarning
        If an Excel file has more than one sheet.

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
    extension = extension_of(path)
    if extension == ".parquet":
        table = _read_parquet(path)
    elif extension in EXCEL:
        table = _read_excel(path)
    else:
        separator = check_separator(SEPARATORS[extension] if sep is None else sep)
        if decimal not in (".", ","):
            raise TableError(f"decimal must be a point or a comma, got {decimal!r}")
        data = read_bytes(path, unzip=extension.endswith(".gz"))
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
    """Read the cells of a text file as text, without conversion.

    Parameters
    ----------
    path, encoding, sep
        As in `read_table`, for text files only.
    columns : sequence of int, optional
        Positions of the columns to read, from 0. By default all.
    only_empty : bool, default=False
        Whether only empty cells are missing values, for tables in which a mark such as ``NA`` may
        be a category.

    Returns
    -------
    DataFrame of text, NaN where a cell is missing

    Raises
    ------
    TableError
        If the file cannot be read or is not a text file, or ``sep`` or ``encoding`` is not valid.

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
    extension = extension_of(path)
    if extension not in SEPARATORS:
        raise TableError(f"{path} is no text file: its cells have types")
    separator = check_separator(SEPARATORS[extension] if sep is None else sep)
    data = read_bytes(path, unzip=extension.endswith(".gz"))
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
        If there is no such column (the message has the nearest names), no other column, a repeated
        column name, or fewer than two rows; or if the target has missing or infinite values, or is
        constant.

    Examples
    --------
    >>> X, y = split_target(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "b")
    >>> list(X), y.tolist()
    (['a'], [3, 4])
    """
    refuse_repeated_names("the table", [str(name) for name in table.columns])
    if target not in table.columns:
        raise TableError(no_column(target, table.columns))
    if len(table) < 2:
        raise TableError(f"the table has {len(table)} row(s); at least 2 are needed")
    if len(table.columns) < 2:
        raise TableError(
            f"the table has no column but the target {target!r}: nothing to learn from"
        )
    y = table[target]
    without = f"table.dropna(subset=[{target!r}]) leaves these rows out"
    _refuse_rows(target, "missing", y.isna().to_numpy(), without)
    if pd.api.types.is_float_dtype(y.dtype):
        _refuse_rows(target, "infinite", np.isinf(y.to_numpy(dtype=float)), "correct these values")
    if y.nunique() < 2:
        raise TableError(
            f"the target {target!r} is {y.iloc[0]!s} in all {len(y)} rows: "
            "one class or a constant, nothing to learn"
        )
    return table.drop(columns=[target]), y


def _parse_text(
    path: Path, data: bytes, separator: str, encoding: str, decimal: str
) -> pd.DataFrame:
    check_rows(path, text_of(path, data, encoding), separator)
    exact: dict[str, Any] = {"decimal": decimal, "low_memory": False}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        # pandas' own parser would write some numbers otherwise than it has read them
        exact["float_precision"] = "round_trip"
    table = _parse(path, data, separator, encoding, **exact)
    for j, column in enumerate(table.items()):
        if pd.api.types.is_string_dtype(column[1].dtype):
            table.isetitem(j, _with_dates(column[1]).array)
    return table


def _with_dates(column: pd.Series) -> pd.Series:
    """A column of text as dates if all its values are dates in one format."""
    texts = column.dropna().unique()
    if not all(isinstance(text, str) for text in texts):
        return column
    form = find_date_format(texts)
    return column if form is None else read_dates(column, form)


def _parse(path: Path, data: bytes, separator: str, encoding: str, **options: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(
            io.BytesIO(data), sep=separator, index_col=False, encoding=encoding, **options
        )
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise TableError(f"cannot parse {path}: {one_line(error)}") from error


def _refuse_rows(target: Hashable, what: str, bad: np.ndarray, way_out: str) -> None:
    if bad.any():
        raise TableError(
            f"the target {target!r} has {int(bad.sum())} {what} value(s), the first in data row "
            f"{int(bad.argmax()) + 1}; {way_out}"
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
    refuse_repeated_names(str(path), names)
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
            refuse_repeated_names(str(path), list(file.schema_arrow.names))
            table = file.read().to_pandas()
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"cannot read {path}: {one_line(error)}") from error
    # A stored index with a name is a column of the user's; one without is a row count.
    return table.reset_index(drop=all(name is None for name in table.index.names))
