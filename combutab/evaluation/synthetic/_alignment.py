"""Several tables with the same columns in the same form, whatever each came as."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.evaluation.synthetic._alignment_values import (
    categories_of,
    floats,
    held_kind,
    is_single_precision,
    reads_as_dates,
    seconds,
    times,
)
from combutab.preprocessing import as_pandas

Kind = Literal["number", "category", "datetime"]


@dataclass(frozen=True, eq=False)
class AlignedTables:
    """Tables that can be compared column by column.

    Attributes
    ----------
    tables : dict of name to DataFrame
        All with the reference's columns in its order, a fresh index, and a dtype by kind: number
        is float64, missing NaN; datetime is datetime64[us] without a time zone, missing NaT;
        category is a pandas category, whose categories all tables share.
    kinds : dict of column name to {"number", "category", "datetime"}
    n_known : dict of column name to int
        Of each column of kind category: so many of its categories, the first ones, are in the
        reference; the others are in other tables alone.
    """

    tables: dict[str, pd.DataFrame]
    kinds: dict[Hashable, Kind]
    n_known: dict[Hashable, int]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]

    def columns(self, *kinds: Kind) -> list[Hashable]:
        """Names of the columns of these kinds, in order."""
        return [name for name, kind in self.kinds.items() if kind in kinds]


def align_tables(
    tables: Mapping[str, Any], *, reference: str, categorical: Collection[Hashable] = ()
) -> AlignedTables:
    """Bring tables to the columns and the meaning of one of them.

    Parameters
    ----------
    tables : mapping of name to table
        Each a DataFrame of pandas or polars, an array of shape (n_rows, n_columns), or a list of
        rows; at least one row. An array's columns are the reference's, by position. The names
        are for the errors, such as "real_train". None of the tables is changed.
    reference : str
        The table that decides what a column means.
    categorical : collection of column names, default=()
        Columns that are categories even if they hold numbers or dates, as a class label 0 or 1.

    Returns
    -------
    AlignedTables

    Raises
    ------
    ValueError
        Columns are missing, added or there twice; a table is empty; values cannot be read as what
        they are in the reference, such as the text "many" in a column of numbers, or are infinite.
    TypeError
        Something is no table.

    Notes
    -----
    What a column is follows from the reference's dtype and values:

    - integers, floats, decimals and durations (in seconds) are numbers. Text in another table is
      parsed, and an empty text or "nan" is missing. Where a table has single precision, floats of
      the others are rounded to it: they then compare equal if they were.
    - dates and datetimes are datetimes, and so is text if in every table all of it is dates as
      ISO 8601 has them, year, month and day first. A time zone is converted to UTC, and no zone
      is UTC. Numbers are no dates.
    - booleans, text and pandas categories are categories. 1, 1.0 and True are the same; a number
      or boolean and a text are the same where exactly one category of the reference reads as this
      number ("1", "01", "1.0", "true"), and are two categories otherwise.

    A column without any value is what it is in the first table where it has some. None, NaN, NaT
    and NA are missing; text is as it is, also if it is empty.

    Examples
    --------
    >>> real = pd.DataFrame({"age": [31, None, 50], "member": [True, False, True]})
    >>> synthetic = pd.DataFrame({"member": ["False", "True"], "age": ["44", "29"]})
    >>> aligned = align_tables({"real": real, "synthetic": synthetic}, reference="real")
    >>> aligned["synthetic"]
        age member
    0  44.0  False
    1  29.0   True
    >>> aligned.kinds
    {'age': 'number', 'member': 'category'}
    """
    if reference not in tables:
        raise ValueError(f"the reference {reference!r} is none of the tables {list(tables)}")
    read = {name: _read(table, name) for name, table in tables.items()}
    names = read[reference].names
    names = list(range(read[reference].width)) if names is None else names
    _check_columns(read, names, reference)
    _check_known(categorical, names)
    made: dict[str, dict[Hashable, Any]] = {name: {} for name in tables}
    kinds: dict[Hashable, Kind] = {}
    n_known: dict[Hashable, int] = {}
    for j, column in enumerate(names):
        values = {name: table.column(column, j) for name, table in read.items()}
        lead = _lead(values, reference)
        kind = "category" if column in categorical else _kind(values, lead)
        kinds[column] = kind
        aligned: dict[str, Any]
        if kind == "category":
            n_known[column], aligned = categories_of(values, reference)
        else:
            aligned = _as_numbers(values, column, "datetime" if kind == "datetime" else lead)
        for name, each in aligned.items():
            made[name][j] = each
    frames = {}
    for name, columns in made.items():
        frames[name] = pd.DataFrame(columns)
        frames[name].columns = pd.Index(names)
    return AlignedTables(frames, kinds, n_known)


def _lead(values: Mapping[str, pd.Series], reference: str) -> str:
    """Return the column's kind in the reference, or in the first table where it has a value."""
    first = held_kind(values[reference])
    others = (held_kind(column) for column in values.values())
    return first if first != "empty" else next((each for each in others if each != "empty"), first)


def _as_numbers(
    values: Mapping[str, pd.Series], column: Hashable, lead: str
) -> dict[str, np.ndarray]:
    convert = {"datetime": times, "timedelta": seconds}.get(lead, floats)
    made = {name: convert(each, f"column {column!r} of {name}") for name, each in values.items()}
    if any(map(is_single_precision, values.values())):
        for name, each in values.items():
            if each.dtype.kind == "f":
                made[name] = made[name].astype(np.float32).astype(np.float64)
    return made


def _kind(values: Mapping[str, pd.Series], lead: str) -> Kind:
    if lead in ("number", "timedelta"):
        return "number"
    if lead == "datetime" or (lead == "text" and all(map(reads_as_dates, values.values()))):
        return "datetime"
    if lead == "empty" and all(column.dtype.kind in "iuf" for column in values.values()):
        return "number"
    return "category"


# ---- tables by column --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Table:
    frame: pd.DataFrame
    names: list[Any] | None  # None for an array

    @property
    def width(self) -> int:
        return self.frame.shape[1]

    def column(self, name: Hashable, j: int) -> pd.Series:
        """Return the column of this name, or the one at position j of an array."""
        position = j if self.names is None else self.names.index(name)
        column = self.frame.iloc[:, position].reset_index(drop=True)
        dtype = column.dtype
        return column.astype(dtype.subtype) if isinstance(dtype, pd.SparseDtype) else column


def _read(table: Any, name: str) -> _Table:
    table = as_pandas(table, name)
    if isinstance(table, pd.DataFrame):
        if not table.columns.is_unique:
            twice = list(dict.fromkeys(table.columns[table.columns.duplicated()].tolist()))
            raise ValueError(f"{name} has duplicate column names: {twice}; rename or drop them")
        read = _Table(table, table.columns.tolist())
    else:
        read = _Table(_from_array(table, name), None)
    if 0 in read.frame.shape:
        n_rows, n_columns = read.frame.shape
        raise ValueError(
            f"{name} has {n_rows} rows and {n_columns} columns; at least one of each is needed"
        )
    return read


def _from_array(table: Any, name: str) -> pd.DataFrame:
    if not isinstance(table, np.ndarray | list | tuple):
        raise TypeError(
            f"{name} must be a DataFrame of pandas or polars, an array or a list of rows, got a "
            f"{type(table).__name__}; convert it to one of those"
        )
    # numpy would turn the numbers of a row that holds text into text
    array: Any = table if isinstance(table, np.ndarray) else np.array(table, dtype=object)
    if array.ndim != 2 or array.dtype.names:
        raise ValueError(f"{name} must have the shape (n_rows, n_columns), got {array.shape}")
    if isinstance(array, np.ma.MaskedArray):
        missing: Any = None
        array = np.where(np.ma.getmaskarray(array), missing, array.data)
    frame = pd.DataFrame(array)
    return frame.infer_objects() if array.dtype == object else frame


# ---- columns -----------------------------------------------------------------------------------


def _check_columns(tables: Mapping[str, _Table], names: Sequence[Hashable], reference: str) -> None:
    faults = []
    known = set(names)
    for name, table in tables.items():
        if table.names is None:
            if table.width != len(names):
                faults.append(f"{name} has {table.width} columns instead of {len(names)}")
            continue
        present = set(table.names)
        missing = [column for column in names if column not in present]
        extra = [column for column in table.names if column not in known]
        parts = [f"lacks {missing}"] * bool(missing) + [f"has besides {extra}"] * bool(extra)
        if parts:
            faults.append(f"{name} {' and '.join(parts)}")
    if faults:
        raise ValueError(
            f"the columns are not those of {reference}: {'; '.join(faults)}; drop, add or rename "
            "columns so that all tables have the same"
        )


def _check_known(categorical: Collection[Hashable], names: Sequence[Hashable]) -> None:
    unknown = [column for column in categorical if column not in set(names)]
    if unknown:
        raise ValueError(f"there is no column {unknown}; the columns are {list(names)}")
