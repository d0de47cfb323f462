"""Tables from files, and their targets; errors in the input have messages of one line."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.dates import find_date_format, read_dates
from combutab.core.text import no_column
from combutab.core.textfile import (
    SEPARATORS,
    Reading,
    TableError,
    extension_of,
    refuse_repeated_names,
)
from combutab.datasets.features import read_features
from combutab.datasets.tables import TableFile


def read_table(
    path: str | PathLike[str],
    *,
    encoding: str = "utf-8",
    sep: str | None = None,
    decimal: str = ".",
    header_row: int | None = None,
    sheet: str | int | None = None,
    missing: Sequence[str] = (),
    not_missing: Sequence[str] = (),
    like: str | PathLike[str] | None = None,
) -> pd.DataFrame:
    """Read a table with one header line from a text, Parquet or Excel file.

    Rows without any value, and columns without a name and a value, are left out.

    Parameters
    ----------
    path : str or path
        File with the extension ``.csv`` (comma) or ``.tsv`` (tab), also followed by ``.gz``;
        ``.parquet`` (extra ``parquet``); ``.xlsx`` or ``.xlsm`` (extra ``excel``).
        Empty cells and pandas' usual marks (``NA``, ``nan``, ``None``) are missing values. A mark
        is a value if all other values of its column are codes of the same form, such as ``NA``
        among the country codes ``DE`` and ``ZA``. Columns of a text file whose values are dates
        in one format (``2024-12-31``, ``22-Jun-2024``) have the dtype datetime64, unless day and
        month may be swapped.
    encoding : str, default="utf-8"
        Encoding of a text file; a UTF-8 byte order mark is ignored.
    sep : str, optional
        Character between the cells of a text file. By default that of the file extension.
    decimal : {".", ","}, default="."
        Decimal mark of a text file: ``","`` for numbers such as ``0,125``.
    header_row : int, optional
        Line of the header in a text or Excel file, from 1. By default the first line with a value.
    sheet : str or int, optional
        Name or number (from 1) of the sheet of an Excel file. By default the first sheet.
    missing : sequence of str, optional
        Texts that stand for missing values besides the usual ones, such as ``["Not Available"]``.
    not_missing : sequence of str, optional
        Usual marks of missing values that are values in columns of text, such as ``["None"]``.
    like : str or path, optional
        Model file of a classifier or regressor (``save`` or `combutab fit`). The columns that it
        was fitted on are returned, in their order, as `combutab predict` reads them: dates, numbers
        and text as in the table of `combutab fit`. The separator, the decimal mark and the encoding
        are then detected, so ``sep``, ``decimal`` and ``encoding`` must have their defaults.

    Returns
    -------
    DataFrame with at least one row, unique column names and the index 0, 1, 2, ...

    Raises
    ------
    TableError
        If the file is missing, a directory, unreadable, of an unknown kind, empty, without rows,
        binary, not in this encoding, or has another separator, rows of unequal length or repeated
        column names; or if a parameter is not valid; or if columns of the model are missing or
        hold values of another kind.
    ImportError
        If pyarrow (for Parquet) or openpyxl (for Excel) is not installed.

    Warns
    -----
    UserWarning
        If rows or columns were left out, another line seems to be the header, an Excel file has
        more than one sheet, or a mark such as ``NA`` may be a value or a missing value.

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
    if decimal not in (".", ","):
        raise TableError(f"decimal must be a point or a comma, got {decimal!r}")
    for name, texts in (("missing", missing), ("not_missing", not_missing)):
        if isinstance(texts, str):
            raise TableError(f"{name} must be a sequence of texts, such as [{texts!r}]")
    reading = Reading(
        header_row=header_row,
        sheet=None if sheet is None else str(sheet),
        missing=tuple(missing),
        not_missing=tuple(not_missing),
    )
    if like is not None:
        if (encoding, sep, decimal) != ("utf-8", None, "."):
            raise TableError("leave encoding, sep and decimal out: like reads them from the model")
        table, notes = read_features(path, reading, Path(like))
    else:
        sep = SEPARATORS.get(extension_of(path)) if sep is None else sep
        file = TableFile(path, replace(reading, sep=sep, decimal=decimal, encoding=encoding))
        table, notes = file.table(), file.notes
        for j in range(table.shape[1]) if file.is_text else ():
            table.isetitem(j, _with_dates(table.iloc[:, j]).array)
    for note in notes:
        warnings.warn(f"{path}: {note}", UserWarning, stacklevel=2)
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
    separator = SEPARATORS.get(extension_of(path)) if sep is None else sep
    file = TableFile(path, Reading(separator, encoding=encoding))
    return file.cells(columns, only_empty=only_empty)


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


def _with_dates(column: pd.Series) -> pd.Series:
    """A column of text as dates if all its values are dates in one format."""
    texts: Any = column.dropna().unique() if pd.api.types.is_string_dtype(column.dtype) else ()
    if not all(isinstance(text, str) for text in texts):
        return column
    form = find_date_format(texts)
    return column if form is None else read_dates(column, form)


def _refuse_rows(target: Hashable, what: str, bad: np.ndarray, way_out: str) -> None:
    if bad.any():
        raise TableError(
            f"the target {target!r} has {int(bad.sum())} {what} value(s), the first in data row "
            f"{int(bad.argmax()) + 1}; {way_out}"
        )
