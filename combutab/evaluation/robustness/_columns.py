"""A table's columns, as corruptions see them: kinds, scales, categories, values put back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.preprocessing import ColumnKind, column_kind

Kind = Literal["number", "category", "time"]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of the reference, from which a corruption takes its scale."""

    kind: Kind
    reference: pd.Series

    @cached_property
    def numbers(self) -> np.ndarray:
        """The finite values of a number column."""
        values = numbers_of(self.reference)
        return values[np.isfinite(values)]

    @cached_property
    def sd(self) -> float:
        """Standard deviation of a number column, 0 if it has no two values."""
        return float(self.numbers.std()) if len(self.numbers) else 0.0

    @cached_property
    def categories(self) -> np.ndarray:
        """The values of a category column, each once."""
        return np.asarray(self.reference.dropna().unique(), dtype=object)

    @cached_property
    def typical(self) -> Any:
        """The (lower) median, or the most frequent category; None if all are missing."""
        present = self.reference.dropna()
        if not len(present):
            return None
        if self.kind == "category":
            return present.value_counts().idxmax()
        return present.sort_values().iloc[(len(present) - 1) // 2]


def read_columns(reference: pd.DataFrame, categorical: Iterable[Hashable]) -> dict[Any, Column]:
    """The columns of a reference by name; ``categorical`` names those that are no numbers.

    Raises ValueError if names repeat, one in ``categorical`` is not there, or there are no rows.
    """
    names = list(reference.columns)
    if len(set(names)) < len(names):
        repeated = sorted({str(name) for name in names if names.count(name) > 1})
        raise ValueError(f"columns of the table share a name: {', '.join(repeated)}; rename them")
    if not len(reference):
        raise ValueError("the reference table has no rows to take the scales from")
    asked = {categorical} if isinstance(categorical, str) else set(categorical)
    if unknown := asked - set(names):
        raise ValueError(f"categorical names no column of the table: {sorted(map(str, unknown))}")
    columns = {}
    for name in names:
        values = reference[name].infer_objects()  # objects that are all numbers, or all dates
        columns[name] = Column("category" if name in asked else _kind(values), values)
    return columns


def _kind(column: pd.Series) -> Kind:
    kind = column_kind(column, by_dtype=True)  # the values are put back in the dtype that was
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        return "time"
    return "number" if kind == ColumnKind.NUMBER else "category"


def numbers_of(column: pd.Series) -> np.ndarray:
    """Values as float64, NaN where missing."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def with_numbers(column: pd.Series, values: np.ndarray) -> pd.Series:
    """The column with these numbers; one of whole numbers becomes one of floats.

    >>> with_numbers(pd.Series([1, 2], dtype="Int64"), np.array([1.5, np.nan])).dtype
    Float64Dtype()
    """
    dtype: Any = column.dtype
    if getattr(dtype, "kind", "O") != "f" or isinstance(dtype, pd.SparseDtype):
        if isinstance(dtype, pd.ArrowDtype):
            dtype = "double[pyarrow]"
        else:
            plain = isinstance(dtype, np.dtype | pd.SparseDtype | pd.CategoricalDtype)
            dtype = "float64" if plain else "Float64"
    return pd.Series(values, index=column.index, name=column.name).astype(dtype)


def with_values(column: pd.Series, where: np.ndarray, values: Any) -> pd.Series:
    """The column with other values at some places, of the same dtype."""
    changed = column.to_numpy(dtype=object, copy=True)
    changed[where] = values
    return pd.Series(changed, index=column.index, name=column.name, dtype=column.dtype)


def without(column: pd.Series, where: np.ndarray) -> pd.Series:
    """The column with missing values at some places; truths and whole numbers become floats."""
    if not where.any():
        return column
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        column = column.astype(np.float64)
    if column.dtype == object:
        return with_values(column, where, None)
    return column.mask(where)


def replaced(table: pd.DataFrame, changed: Mapping[Any, pd.Series]) -> pd.DataFrame:
    """The table with some columns changed; the others are shared, not copied."""
    result = table.copy(deep=False)
    for name, column in changed.items():
        result[name] = column
    return result
