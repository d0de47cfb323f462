"""The values of a column as floats, datetimes or categories, whatever dtype holds them."""

from __future__ import annotations

import decimal
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing import ColumnKind, column_kind

_MISSING_TEXTS = {"", "nan", "na", "n/a", "null", "none", "<na>", "nat"}
_ISO_DATE = r"\s*\d{4}-\d{2}-\d{2}(?:[T ].*)?\s*"


def held_kind(column: pd.Series) -> ColumnKind:
    """Tell the kind of a column; one without a value is empty, since another table may tell.

    Raises ValueError if it holds complex numbers.

    >>> str(held_kind(pd.Series([None, 2.5]))), str(held_kind(pd.Series([None, np.nan])))
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
    found = held_kind(column)
    if found != "text":
        return found in ("empty", "datetime")
    texts = pd.Series(column.dropna().unique(), dtype=object)
    if not texts.iloc[:1].str.fullmatch(_ISO_DATE).all():  # the first tells in most columns
        return False
    if not texts.str.fullmatch(_ISO_DATE).all():
        return False
    return all(_time(text) is not None for text in texts)


# ---- numbers and times -------------------------------------------------------------------------


def floats(column: pd.Series, label: str) -> np.ndarray:
    """Numbers as float64, NaN where missing.

    Raises ValueError if a value is no number or infinite; it names the column by `label`.
    """
    found = held_kind(column)
    if found in ("datetime", "timedelta"):
        raise _unreadable(label, "numbers", column.dropna().iloc[0])
    if types.is_numeric_dtype(column.dtype) or types.is_bool_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = _by_value(column, _number, np.nan, "numbers", label).astype(np.float64)
    if np.isinf(values).any():
        raise ValueError(f"{label} holds infinity; clip it, or replace it by NaN")
    return values


def seconds(column: pd.Series, label: str) -> np.ndarray:
    """Durations as float64 seconds, NaN where missing; the errors are those of `floats`."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "m":
        return column.to_numpy() / np.timedelta64(1, "s")
    if held_kind(column) in ("number", "bool", "datetime"):  # of a number the unit is not known
        raise _unreadable(label, "durations", column.dropna().iloc[0])
    return _by_value(column, _duration, np.nan, "durations", label).astype(np.float64)


def times(column: pd.Series, label: str) -> np.ndarray:
    """Dates and times as datetime64[us], NaT where missing; the errors are those of `floats`."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "M":
        return column.to_numpy().astype("datetime64[us]")
    if held_kind(column) in ("number", "bool", "timedelta"):
        raise _unreadable(label, "dates", column.dropna().iloc[0])
    values = _by_value(column, _time, np.datetime64("NaT"), "dates", label)
    return values.astype("datetime64[us]")


def _by_value(
    column: pd.Series,
    convert: Callable[[Any], Any],
    missing: Any,
    what: str,
    label: str,
) -> np.ndarray:
    """A column with each of its distinct values converted once."""
    codes, values = pd.factorize(column.astype(object), use_na_sentinel=True)
    made = np.full(len(values) + 1, missing, dtype=object)  # code -1 is the last
    for i, value in enumerate(values):
        if str(value).strip().lower() in _MISSING_TEXTS:
            continue
        read = convert(value)
        if read is None:
            raise _unreadable(label, what, value)
        made[i] = read
    return made[codes]


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


def _time(value: Any) -> np.datetime64 | None:
    if isinstance(value, numbers.Number):
        return None
    try:
        stamp = value.to_timestamp() if isinstance(value, pd.Period) else pd.Timestamp(value)
    except (TypeError, ValueError):
        return None
    if stamp.tz is not None:
        stamp = stamp.tz_convert("UTC").tz_localize(None)
    return stamp.to_datetime64().astype("datetime64[us]")


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
    known = sorted(dict.fromkeys(factors[reference][1]), key=_order)
    position = {key: i for i, key in enumerate(known)}
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
    for key in sorted(added, key=_order):
        position[key] = len(position)
    dtype = pd.CategoricalDtype(pd.Index(list(position), dtype=object))
    made = {}
    for name, (codes, keys) in factors.items():
        pairs = zip(keys, matched[name], strict=True)
        table = np.array([position[key] if i is None else i for key, i in pairs] + [-1])
        made[name] = pd.Categorical.from_codes(table[codes], dtype=dtype)
    return len(known), made


def _match(key: Any, position: Mapping[Any, int], read: Mapping[float, int | None]) -> int | None:
    if key in position:
        return position[key]
    number = _reading(key)
    return None if number is None else read.get(number)


def _factorize(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Codes, -1 where missing, and the value of each; values that are equal may come twice."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, used = np.unique(column.cat.codes.to_numpy(np.int64), return_inverse=True)
        keys = [_key(column.cat.categories[code]) for code in codes if code >= 0]
        return used - int(codes[0] < 0), keys
    values = column.astype(object)
    try:
        codes, found = pd.factorize(values, use_na_sentinel=True)
    except TypeError:  # unhashable values
        codes, found = pd.factorize(values.map(repr, na_action="ignore"), use_na_sentinel=True)
    return codes, [_key(value) for value in found]


def _key(value: Any) -> Any:
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
        # Python's float takes more than what a table writes for a number
        if not text or not set(text) <= set("0123456789.+-e") or text[0] == "e":
            return None
    elif isinstance(key, bytes):
        return None
    return _number(key)


def _order(key: Any) -> tuple[int, Any]:
    """Numbers, then text, then bytes; each by value."""
    return (2 if isinstance(key, bytes) else 1 if isinstance(key, str) else 0, key)
