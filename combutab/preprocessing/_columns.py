"""The kind of a column to a TableEncoder, and its values as floats."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._kinds import ColumnKind, column_kind

_MISSING_TEXTS = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "nat"})
_BOOL_TEXTS = {"true": 1.0, "false": 0.0}


def encoded_kind(column: pd.Series, categorical: bool | None, label: str) -> ColumnKind:
    """Decide which kind a column is encoded as: text, as all that is no number, as a category.

    ``categorical`` is the user's word on this column, None to decide by its dtype and values;
    errors name the column by ``label``, e.g. ``"column 'age'"``.

    >>> import pandas as pd
    >>> str(encoded_kind(pd.Series(["1", "2"]), None, "column 0"))
    'category'
    >>> str(encoded_kind(pd.Series(["1", "2"]), False, "column 0"))
    'number'
    """
    if categorical:
        return ColumnKind.CATEGORY
    kind = column_kind(column, of_categories=categorical is False)
    if kind == ColumnKind.COMPLEX:
        raise_complex(label)
    if kind in (ColumnKind.TEXT, ColumnKind.EMPTY, ColumnKind.CATEGORY):
        # A column that the user says is not a category is parsed as numbers, or refused there.
        return ColumnKind.CATEGORY if categorical is None else ColumnKind.NUMBER
    return kind


def raise_complex(label: str) -> NoReturn:
    """Raise scikit-learn's error for complex data."""
    raise ValueError(
        f"Complex data not supported: {label} holds complex numbers; give their real and imaginary "
        "parts as columns of their own"
    )


def to_float(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    """Read a column's values as real numbers, NaN where missing; not copied if they are such.

    Datetimes are seconds since 1970-01-01 UTC (a naive one is read as UTC), timedeltas are
    seconds. Text is parsed. The result, (n,), is of a bool, integer or floating dtype.

    Raises ValueError if a value cannot be read as the kind; it names the column and the value.

    >>> import pandas as pd
    >>> to_float(pd.Series(["1.5", None]), "number", "column 0")
    array([1.5, nan])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = np.append(to_float(pd.Series(dtype.categories), kind, label), np.nan)
        return values[column.cat.codes.to_numpy()]  # code -1, missing, is the appended NaN
    if isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
        dtype = column.dtype
    if kind == "datetime":
        return _datetime_seconds(column, label)
    if kind == "timedelta":
        return _timedelta_seconds(column, label)
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype):
        if dtype.kind == "c":
            raise_complex(label)
        if isinstance(dtype, np.dtype):
            return narrow(column.to_numpy())
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _parse_numbers(column, kind, label)


def narrow(values: np.ndarray) -> np.ndarray:
    """Bring the floats that neither pandas nor scipy handle (half, long double) to ones they do."""
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        with np.errstate(over="ignore"):
            return values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    return values


def _parse_numbers(column: pd.Series, kind: ColumnKind, label: str) -> np.ndarray:
    values = column.to_numpy(dtype=object)
    held = column_kind(column)
    if held in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise ValueError(
            f"{label} holds numbers, got dates or times such as {_first(values)!r}; convert them "
            "to numbers, or fit on a table where the column has this dtype"
        )
    if held == ColumnKind.COMPLEX:
        raise_complex(label)
    result = np.full(len(values), np.nan)
    present = ~pd.isna(values)
    candidates = values[present]
    try:
        parsed = pd.to_numeric(pd.Series(candidates, dtype=object), errors="coerce")
        floats = parsed.to_numpy(dtype=np.float64, na_value=np.nan).copy()
    except ArithmeticError as error:  # an int beyond float64
        raise ValueError(f"{label} holds a number that is no float64: {error}") from error
    for i in np.flatnonzero(np.isnan(floats)):
        value = candidates[i]
        text = str(value).strip().lower()
        if kind == "bool" and text in _BOOL_TEXTS:
            floats[i] = _BOOL_TEXTS[text]
        elif text not in _MISSING_TEXTS:
            raise ValueError(
                f"{label} is numeric, but {value!r} could not be converted to float; clean the "
                "column, or make it categorical (list it in categorical_features, or use "
                "categorical_features='from_dtype' on a table where it holds text)"
            )
    result[present] = floats
    return result


def _datetime_seconds(column: pd.Series, label: str) -> np.ndarray:
    column = column.infer_objects()
    dtype: Any = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    elif dtype.kind != "M" or isinstance(dtype, pd.ArrowDtype):
        column = _parse_times(column, label, "datetimes")
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    since_epoch: Any = column.to_numpy() - np.datetime64(0, "s")
    return since_epoch / np.timedelta64(1, "s")


def _timedelta_seconds(column: pd.Series, label: str) -> np.ndarray:
    if column.dtype.kind != "m" or isinstance(column.dtype, pd.ArrowDtype):
        column = _parse_times(column, label, "timedeltas")
    seconds: Any = column.to_numpy() / np.timedelta64(1, "s")
    return seconds


def _parse_times(column: pd.Series, label: str, what: str) -> pd.Series:
    values = column.to_numpy(dtype=object)
    if column.dtype.kind in "biuf":
        raise ValueError(
            f"{label} holds {what}, got numbers such as {_first(values)!r}; convert them with "
            f"pandas.to_{what[:-1]}, which needs their unit"
        )
    objects = pd.Series(values, dtype=object)
    parsed: pd.Series
    if what == "datetimes":
        parsed = pd.to_datetime(objects, utc=True, errors="coerce", format="ISO8601")
    else:
        parsed = pd.to_timedelta(objects, errors="coerce")
    unread = np.flatnonzero(parsed.isna().to_numpy() & ~pd.isna(values)).tolist()
    bad = [i for i in unread if str(values[i]).strip().lower() not in _MISSING_TEXTS]
    if bad:
        raise ValueError(
            f"{label} holds {what}, but {values[bad[0]]!r} could not be read as one; convert the "
            f"column with pandas.to_{what[:-1]}"
        )
    return parsed


def _first(values: np.ndarray) -> Any:
    present = values[~pd.isna(values)]
    return present[0] if len(present) else None
