"""The kind of a column, told by its dtype, and by its values where the dtype is open."""

from __future__ import annotations

import datetime
import decimal
import numbers
from enum import StrEnum
from typing import Any

import pandas as pd
from pandas.api import types


class ColumnKind(StrEnum):
    """The kind of thing that a column holds."""

    NUMBER = "number"
    BOOL = "bool"
    DATETIME = "datetime"
    TIMEDELTA = "timedelta"
    TEXT = "text"
    CATEGORY = "category"
    """A pandas category, or values of several kinds."""
    COMPLEX = "complex"
    EMPTY = "empty"
    """A column without a value, of a dtype that does not tell."""


# What pandas.api.types.infer_dtype answers for Python's objects; the rest are categories.
_OBJECT_KINDS = {
    "integer": ColumnKind.NUMBER,
    "floating": ColumnKind.NUMBER,
    "mixed-integer-float": ColumnKind.NUMBER,
    "decimal": ColumnKind.NUMBER,
    "complex": ColumnKind.COMPLEX,
    "boolean": ColumnKind.BOOL,
    "datetime": ColumnKind.DATETIME,
    "datetime64": ColumnKind.DATETIME,
    "date": ColumnKind.DATETIME,
    "period": ColumnKind.DATETIME,
    "timedelta": ColumnKind.TIMEDELTA,
    "timedelta64": ColumnKind.TIMEDELTA,
    "string": ColumnKind.TEXT,
    "empty": ColumnKind.EMPTY,
}


def column_kind(
    column: pd.Series, *, by_dtype: bool = False, of_categories: bool = False
) -> ColumnKind:
    """Tell what kind of thing a column holds.

    Parameters
    ----------
    column : Series of shape (n,)
    by_dtype : bool, default=False
        Whether to look at the dtype alone, as needed where values of the same dtype are put back:
        Python's objects are then categories.
    of_categories : bool, default=False
        Whether a pandas category is what its categories are, where it is known to be no category.

    Examples
    --------
    >>> str(column_kind(pd.Series([1, "a"]))), str(column_kind(pd.Series([1, 2.5], dtype=object)))
    ('category', 'number')
    >>> str(column_kind(pd.Series([1, 2.5], dtype=object), by_dtype=True))
    'category'
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.CategoricalDtype):
        return (
            column_kind(pd.Series(dtype.categories), by_dtype=by_dtype)
            if of_categories
            else ColumnKind.CATEGORY
        )
    if types.is_bool_dtype(dtype):
        return ColumnKind.BOOL
    if types.is_numeric_dtype(dtype):
        return ColumnKind.COMPLEX if dtype.kind == "c" else ColumnKind.NUMBER
    if isinstance(dtype, pd.PeriodDtype) or dtype.kind == "M":
        return ColumnKind.DATETIME
    if dtype.kind == "m":
        return ColumnKind.TIMEDELTA
    return ColumnKind.CATEGORY if by_dtype else _kind_of_objects(column)


def _kind_of_objects(column: pd.Series) -> ColumnKind:
    values = column.to_numpy(dtype=object)
    inferred = types.infer_dtype(values, skipna=True)
    if inferred.startswith("mixed") and inferred not in _OBJECT_KINDS:
        present = values[~pd.isna(values)]
        if all(isinstance(value, numbers.Real | decimal.Decimal) for value in present):
            return ColumnKind.NUMBER
        if all(isinstance(value, datetime.date) for value in present):
            return ColumnKind.DATETIME
        if any(isinstance(value, complex) for value in present):
            return ColumnKind.COMPLEX
    return _OBJECT_KINDS.get(inferred, ColumnKind.CATEGORY)
