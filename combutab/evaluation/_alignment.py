"""Several tables with the same columns in the same form, whatever each came as."""

from __future__ import annotations

import decimal
import numbers
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import is_now
from combutab.core.text import as_names
from combutab.preprocessing import (
    ColumnKind,
    Table,
    category_order,
    column_kind,
    distinct_values,
    find_text_form,
    means_missing,
)

# ---- The values of a column as floats, datetimes or categories, whatever dtype holds them --------

_ISO_DATE = r"\s*\d{4}-\d{2}-\d{2}(?:[T ].*)?\s*"


def known_kind(column: pd.Series) -> ColumnKind:
    """Tell the kind of a column; one without a value is empty, since another table may tell.

    Raises ValueError if it holds complex numbers.

    >>> str(known_kind(pd.Series([None, 2.5]))), str(known_kind(pd.Series([None, np.nan])))
    ('number', 'empty')
    """
    if column.isna().all():
        return ColumnKind.EMPTY
    kind = column_kind(column)
    if kind == ColumnKind.COMPLEX:
        raise ValueError(f"column {column.name!r} holds complex numbers; make it two columns")
    return kind


def is_single_precision(column: pd.Series) -> bool:
    """Say whether a column holds floats of 32 bits or fewer."""
    dtype: Any = column.dtype
    return bool(types.is_float_dtype(dtype) and dtype.itemsize <= 4)


def reads_as_dates(column: pd.Series) -> bool:
    """Say whether a column is empty, datetimes, or text that is ISO 8601 dates alone."""
    kind = known_kind(column)
    if kind != "text":
        return kind in ("empty", "datetime")
    texts = pd.Series(column.dropna().unique(), dtype=object)
    for some in (texts[:1], texts):  # the first tells in most columns
        if not some.str.fullmatch(_ISO_DATE).all():
            return False
    return all(_moment(text) is not None for text in texts)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _duration(value: Any) -> float | None:
    try:
        return pd.Timedelta(value) / np.timedelta64(1, "s")
    except (TypeError, ValueError):
        return None


def _moment(value: Any) -> np.datetime64 | None:
    if isinstance(value, numbers.Number) or is_now(value):
        return None
    try:
        stamp = value.to_timestamp() if isinstance(value, pd.Period) else pd.Timestamp(value)
    except (TypeError, ValueError):
        return None
    if stamp.tz is not None:
        stamp = stamp.tz_convert("UTC").tz_localize(None)
    return stamp.to_datetime64().astype("datetime64[us]")


class _Reading(NamedTuple):
    """How the values of a kind are read; None is what cannot be, ``others`` are never read."""

    what: str
    convert: Callable[[Any], Any]
    dtype: str
    others: tuple[str, ...]


_READINGS = {
    "number": _Reading("numbers", _number, "float64", ("datetime", "timedelta")),
    # of a number the unit is not known
    "timedelta": _Reading("durations", _duration, "float64", ("number", "bool", "datetime")),
    "datetime": _Reading("dates", _moment, "datetime64[us]", ("number", "bool", "timedelta")),
}


def quantities(column: pd.Series, kind: str, label: str) -> np.ndarray:
    """Numbers and durations in seconds as float64, times as datetime64[us]; NaN or NaT if missing.

    Raises ValueError if a value is not of the kind, or infinite; it names the column by `label`.
    """
    reading = _READINGS[kind]
    if isinstance(column.dtype, pd.DatetimeTZDtype) and kind == "datetime":
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    dtype: Any = column.dtype
    if known_kind(column) in reading.others:
        raise _unreadable(label, reading.what, column.dropna().iloc[0])
    if kind == "number" and (types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif kind == "timedelta" and isinstance(dtype, np.dtype) and dtype.kind == "m":
        values = column.to_numpy() / np.timedelta64(1, "s")
    elif kind == "datetime" and isinstance(dtype, np.dtype) and dtype.kind == "M":
        values = column.to_numpy().astype(reading.dtype)
    else:  # each distinct value once
        codes, distinct = pd.factorize(column.astype(object), use_na_sentinel=True)
        missing = np.array("NaT" if kind == "datetime" else np.nan, dtype=reading.dtype)
        numbers = np.full(len(distinct) + 1, missing)  # code -1 is the last
        for i, value in enumerate(distinct):
            if means_missing(value):
                continue
            read = reading.convert(value)
            if read is None:
                raise _unreadable(label, reading.what, value)
            numbers[i] = read
        values = numbers[codes]
    if kind == "number" and np.isinf(values).any():
        raise ValueError(f"{label} holds infinity; clip it, or replace it by NaN")
    return values


def _unreadable(label: str, what: str, value: Any) -> ValueError:
    return ValueError(
        f"{label} holds {value!r}, but in the reference it is a column of {what}; clean or "
        "convert the column"
    )


# ---- categories --------------------------------------------------------------------------------


def categories_of(
    columns: Mapping[str, pd.Series], reference: str
) -> tuple[int, dict[str, pd.Categorical]]:
    """Return the columns as categories that they share, and how many of these the reference has.

    Those are the first ones, sorted; the rest follow.

    >>> both = {"real": pd.Series([2, 1]), "synthetic": pd.Series(["1", "x", None])}
    >>> n_known, columns = categories_of(both, "real")
    >>> n_known, columns["synthetic"].categories.tolist(), columns["synthetic"].codes.tolist()
    (2, [1, 2, 'x'], [0, 2, -1])
    """
    factors = {name: _factorize(column) for name, column in columns.items()}
    categories = sorted(dict.fromkeys(factors[reference][1]), key=category_order)
    position = {key: i for i, key in enumerate(categories)}
    # number -> the one category that reads as it; None where several do
    read: dict[float, int | None] = {}
    for key, i in position.items():
        number = _reading(key)
        if number is not None:
            read[number] = None if number in read else i
    added: dict[Any, None] = {}
    matched: dict[str, list[int | None]] = {}
    for name, (_, keys) in factors.items():
        matched[name] = [_match(key, position, read) for key in keys]
        new = zip(keys, matched[name], strict=True)
        added |= dict.fromkeys(key for key, i in new if i is None)
    for key in sorted(added, key=category_order):
        position[key] = len(position)
    dtype = pd.CategoricalDtype(pd.Index(list(position), dtype=object))
    codes_of_table = {}
    for name, (codes, keys) in factors.items():
        pairs = zip(keys, matched[name], strict=True)
        table = np.array([position[key] if i is None else i for key, i in pairs] + [-1])
        codes_of_table[name] = pd.Categorical.from_codes(table[codes], dtype=dtype)
    return len(categories), codes_of_table


def _match(key: Any, position: Mapping[Any, int], read: Mapping[float, int | None]) -> int | None:
    if key in position:
        return position[key]
    number = _reading(key)
    return None if number is None else read.get(number)


def _factorize(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Codes, -1 where missing, and the value of each; values that are equal may come twice."""
    try:
        codes, values = distinct_values(column, f"column {column.name!r}")
    except TypeError:  # values that are not hashable
        texts = column.map(repr, na_action="ignore")
        codes, values = distinct_values(texts, f"column {column.name!r}")
    return codes, [_plain_category(value) for value in values]


def _plain_category(value: Any) -> Any:
    """The plain value that stands for a category."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | decimal.Decimal):
        number = float(value)
        return int(number) if number.is_integer() else number
    return str(value)


def _reading(key: Any) -> float | None:
    """The number that a category is or reads as."""
    if isinstance(key, str):
        text = key.strip().lower()
        if text in ("true", "false"):
            return float(text == "true")
        # Python's float also reads texts that tables do not write for numbers
        if not text or not set(text) <= set("0123456789.+-e") or text[0] == "e":
            return None
    elif isinstance(key, bytes):
        return None
    return _number(key)


Kind = Literal["number", "category", "datetime"]


@dataclass(frozen=True, eq=False)
class AlignedTables:
    """Tables that can be compared column by column.

    Attributes
    ----------
    tables : dict of name to DataFrame
        All have the columns of the reference in its order, a new index, and one dtype per kind.
        "number": float64, missing as NaN. "datetime": datetime64[us] without a time zone, missing
        as NaT. "category": a pandas category with the same categories in all tables.
    kinds : dict of column name to {"number", "category", "datetime"}
    n_known : dict of column name to int
        For each column of kind "category": number of categories that occur in the reference. They
        come first; the others occur only in other tables.
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
    """Align tables with the columns and dtypes of a reference table.

    Parameters
    ----------
    tables : mapping of name to table
        DataFrames of pandas or polars, arrays of shape (n_rows, n_columns), or lists of rows, with
        at least one row. Columns of an array are matched by position. The names, such as
        "real_train", are used in error messages. The tables are not changed.
    reference : str
        Name of the table that determines the columns and their kinds.
    categorical : collection of column names, default=()
        Columns to treat as categories although they hold numbers or dates, such as class labels 0
        and 1.

    Returns
    -------
    AlignedTables

    Raises
    ------
    ValueError
        If columns are missing, added or duplicated, a table is empty, or values are infinite or
        cannot be read as the kind of the column in the reference, such as the text "many" in a
        column of numbers.
    TypeError
        If an argument is not a table.

    Notes
    -----
    The kind of a column follows from its dtype and values in the reference:

    - Integers, floats, decimals and durations (in seconds) are numbers. Text in another table is
      parsed; empty text and "nan" are missing. If a table has single precision, floats of the other
      tables are rounded to it, so that equal values stay equal.
    - Dates and datetimes are datetimes. So is text if all of it, in every table, is in ISO 8601
      format (year, month and day first), or in one other format of dates, such as 22-Jun-2024.
      Times of day as text are numbers, in seconds. Times with a time zone are converted to UTC;
      times without one are UTC. Numbers are not dates.
    - Booleans, text and pandas categories are categories. 1, 1.0 and True are the same category. A
      number or boolean is the same category as a text if exactly one category of the reference
      reads as this number ("1", "01", "1.0", "true"), else it is another category.

    A column that is empty in the reference has its kind from the first table in which it has
    values. None, NaN, NaT and NA are missing. In columns of categories, empty text is a category.

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
        raise ValueError(f"the reference {reference!r} is not one of the tables {list(tables)}")
    frames = {name: _as_named_frame(table, name) for name, table in tables.items()}
    names = frames[reference].columns.tolist()
    _check_columns(frames, {name for name in tables if _is_unnamed(tables[name])}, reference)
    categorical = as_names(categorical)
    if unknown := [column for column in categorical if column not in set(names)]:
        raise ValueError(f"there is no column {unknown}; the columns are {names}")
    aligned_columns: dict[str, dict[Hashable, Any]] = {name: {} for name in tables}
    kinds: dict[Hashable, Kind] = {}
    n_known: dict[Hashable, int] = {}
    for j, column in enumerate(names):
        values = {name: _column(frame, column) for name, frame in frames.items()}
        if column not in categorical:
            values = _dates_of_text(values, reference, column)
        lead = _lead(values, reference)
        kinds[column] = "category" if column in categorical else _aligned_kind(values, lead)
        aligned: dict[str, Any]
        if kinds[column] == "category":
            n_known[column], aligned = categories_of(values, reference)
        else:
            reading = "datetime" if kinds[column] == "datetime" else lead
            aligned = _as_quantities(values, column, reading)
        for name, aligned_column in aligned.items():
            aligned_columns[name][j] = aligned_column
    aligned_frames = {name: pd.DataFrame(columns) for name, columns in aligned_columns.items()}
    for frame in aligned_frames.values():
        frame.columns = pd.Index(names)
    return AlignedTables(aligned_frames, kinds, n_known)


def _dates_of_text(
    values: dict[str, pd.Series], reference: str, column: Hashable
) -> dict[str, pd.Series]:
    """Text of dates or times in one format as such, if all tables have the reference's format."""
    if isinstance(values[reference].dtype, pd.CategoricalDtype):
        return values
    form = find_text_form(values[reference], 0)
    try:
        return values if form is None else {n: form.read(v, str(column)) for n, v in values.items()}
    except (TypeError, ValueError):
        return values


def _lead(values: Mapping[str, pd.Series], reference: str) -> str:
    """Return the column's kind in the reference, or in the first table where it has a value."""
    kinds = (known_kind(column) for column in [values[reference], *values.values()])
    return next((kind for kind in kinds if kind != ColumnKind.EMPTY), ColumnKind.EMPTY)


def _as_quantities(
    values: Mapping[str, pd.Series], column: Hashable, lead: str
) -> dict[str, np.ndarray]:
    kind = lead if lead in _READINGS else "number"
    converted = {
        name: quantities(table_column, kind, f"column {column!r} of {name}")
        for name, table_column in values.items()
    }
    if any(map(is_single_precision, values.values())):
        for name, table_column in values.items():
            if table_column.dtype.kind == "f":
                converted[name] = converted[name].astype(np.float32).astype(np.float64)
    return converted


def _aligned_kind(values: Mapping[str, pd.Series], lead: str) -> Kind:
    if lead in ("number", "timedelta"):
        return "number"
    if lead == "datetime" or (lead == "text" and all(map(reads_as_dates, values.values()))):
        return "datetime"
    if lead == "empty" and all(column.dtype.kind in "iuf" for column in values.values()):
        return "number"
    return "category"


# ---- tables by column --------------------------------------------------------------------------


def _column(frame: pd.DataFrame, name: Hashable) -> pd.Series:
    column = frame[name].reset_index(drop=True)
    dtype = column.dtype
    return column.astype(dtype.subtype) if isinstance(dtype, pd.SparseDtype) else column


def _is_unnamed(table: Any) -> bool:
    return isinstance(table, np.ndarray | list | tuple)


def _as_named_frame(X: Any, name: str) -> pd.DataFrame:
    """A DataFrame with unique names and at least a row and a column; positions for an array."""
    if isinstance(X, np.ma.MaskedArray):
        missing: Any = None
        X = np.where(np.ma.getmaskarray(X), missing, X.data)
    elif isinstance(X, list | tuple):
        X = np.array(X, dtype=object)  # booleans in a row with numbers stay booleans
    table = Table(X, name)
    table.refuse_empty()
    return table.frame() if table.names is not None else table.frame().infer_objects()


def _check_columns(
    frames: Mapping[str, pd.DataFrame], unnamed: Collection[str], reference: str
) -> None:
    """Refuse tables of other columns, and name those of arrays as the reference has them."""
    names = frames[reference].columns
    faults = []
    for name, frame in frames.items():
        if name in unnamed:
            if frame.shape[1] == len(names):
                frame.columns = names
            else:
                faults.append(f"{name} has {frame.shape[1]} columns instead of {len(names)}")
            continue
        missing = [column for column in names if column not in frame.columns]
        extra = [column for column in frame.columns if column not in names]
        parts = [f"lacks {missing}"] * bool(missing) + [f"has besides {extra}"] * bool(extra)
        if parts:
            faults.append(f"{name} {' and '.join(parts)}")
    if faults:
        raise ValueError(
            f"the columns are not those of {reference}: {'; '.join(faults)}; drop, add or rename "
            "columns so that all tables have the same"
        )
