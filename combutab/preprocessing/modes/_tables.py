"""Tables that come back as they were, and what each column is to a ModeEncoder."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from combutab.core.text import no_column
from combutab.preprocessing._columns import ColumnKind, column_kind, raise_complex
from combutab.preprocessing._tables import as_table, object_column
from combutab.preprocessing.modes._columns import (
    Identifiers,
    find_identifiers,
    new_identifiers,
)
from combutab.preprocessing.modes._numbers import Format, fit_format

# ---- Tables that come back as they were: read by columns, and put together again -----------------

_IDENTIFIER = 40  # characters of those that are made, at most


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The columns' names, and the dtype of an array.

    Attributes
    ----------
    names : Index
        The names of the columns; positions for an array.
    array_dtype : dtype or None
        Of the array, None for a frame.
    """

    names: pd.Index
    array_dtype: np.dtype | None

    @cached_property
    def keys(self) -> list[Any]:
        """The names as Python's objects."""
        return self.names.tolist()

    def label(self, j: int) -> str:
        """Name column j as errors do."""
        return f"column {self.keys[j]!r}"

    def position(self, name: Any) -> int:
        """The position of the column of this name.

        Raises ValueError if there is none; the error has the nearest names.
        """
        position = {each: j for j, each in enumerate(self.keys)}
        try:
            return position[name]
        except (KeyError, TypeError):
            raise ValueError(no_column(name, self.keys)) from None

    def wide_enough(self, made: Collection[Any]) -> TableSchema:
        """The same for identifiers that are made, for which an array's text may be too short."""
        dtype = self.array_dtype
        if dtype is None or dtype.kind != "U" or not made:
            return self
        return TableSchema(
            self.names, max(dtype, np.dtype(f"U{_IDENTIFIER}"), key=lambda each: each.itemsize)
        )

    def match(self, X: Any) -> list[pd.Series]:
        """The columns of a later table, in the order of the fitted one's.

        Raises ValueError if its columns are not those of the fitted table.
        """
        other, columns = read_schema(X)
        if (self.array_dtype is None) != (other.array_dtype is None):
            fitted = "a DataFrame" if self.array_dtype is None else "an array"
            raise ValueError(f"the encoder was fitted on {fitted}, got a {type(X).__name__}")
        position = {name: j for j, name in enumerate(other.keys)}
        absent = [name for name in self.keys if name not in position]
        known = set(self.keys)
        added = [name for name in other.keys if name not in known]
        if absent or added:
            raise ValueError(
                "the columns are not those of the fitted table: "
                + "; ".join(
                    f"{what} {these}"
                    for what, these in (("missing are", absent), ("unknown are", added))
                    if these
                )
            )
        return [columns[position[name]] for name in self.keys]

    def assemble(self, columns: Sequence[pd.Series], n_rows: int) -> Any:
        """Columns put together as a DataFrame, or as an array if that was fitted."""
        if self.array_dtype is None:
            index = pd.RangeIndex(n_rows)
            frame = pd.DataFrame(dict(enumerate(columns)), index=index)
            frame.columns = self.names
            return frame
        array = np.empty((n_rows, len(columns)), dtype=self.array_dtype)
        for j, column in enumerate(columns):
            array[:, j] = column.to_numpy()
        return array


def read_schema(X: Any) -> tuple[TableSchema, list[pd.Series]]:
    """Read a table's schema and its columns, each as pandas holds it; X may be a list of rows.

    Raises ValueError or TypeError if it is no table, is empty, or has duplicate names.
    """
    X = as_table(X)
    if isinstance(X, pd.DataFrame):
        return TableSchema(X.columns, None), [column for _, column in X.items()]
    if scipy.sparse.issparse(X):
        raise TypeError("X is a sparse matrix; pass X.toarray(), or a DataFrame")
    if isinstance(X, pd.Series):
        raise ValueError("X is a single column; pass a DataFrame, for example X.to_frame()")
    if not hasattr(X, "__array__"):
        raise TypeError(
            f"X must be a DataFrame of pandas or polars, an array or a list of rows, got a "
            f"{type(X).__name__}; convert it to one of those"
        )
    array = np.asarray(X)
    if array.ndim == 2 and 0 in array.shape:
        as_table(pd.DataFrame(array))  # raises, in scikit-learn's words
    if array.ndim != 2:
        raise ValueError(
            f"X must have the shape (n_rows, n_columns), got an array of shape {array.shape}; "
            "reshape it"
        )
    if array.dtype.kind == "c":
        raise_complex("X")
    schema = TableSchema(pd.RangeIndex(array.shape[1]), array.dtype)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return schema, [object_column(native[:, j]) for j in range(array.shape[1])]


def discrete_mask(
    discrete_columns: Any, schema: TableSchema, parameter: str = "discrete_columns"
) -> np.ndarray | None:
    """The parameter `discrete_columns` as a mask, (n_columns,) of bool; None for "auto".

    >>> discrete_mask(["b"], TableSchema(pd.Index(["a", "b"]), None))
    array([False,  True])
    """
    if isinstance(discrete_columns, str) and discrete_columns == "auto":
        return None
    if isinstance(discrete_columns, str) or not isinstance(discrete_columns, Iterable):
        raise ValueError(
            f"{parameter} must be 'auto' or a list of columns, such as "
            f"[{discrete_columns!r}]; got {discrete_columns!r}"
        )
    n_columns = len(schema.names)
    chosen = list(discrete_columns)
    if schema.array_dtype is None:
        position = {name: j for j, name in enumerate(schema.keys)}
        unknown = [name for name in chosen if name not in position]
        if unknown:
            raise ValueError(f"{parameter}: {no_column(unknown[0], schema.keys)}")
        chosen = [position[name] for name in chosen]
    for j in chosen:
        if not isinstance(j, int | np.integer) or isinstance(j, bool):
            raise ValueError(
                f"{parameter} of an array are positions, got {j!r}; pass integers, or a DataFrame"
            )
        if not -n_columns <= j < n_columns:
            raise ValueError(
                f"{parameter} has the position {j}, but X has {n_columns} columns; "
                f"positions lie in 0 to {n_columns - 1}"
            )
    mask = np.zeros(n_columns, dtype=bool)
    mask[np.asarray(chosen, dtype=np.intp)] = True
    return mask


# ---- The columns that are numbers, categories or identifiers to a ModeEncoder --------------------


def choose_identifiers(
    listed: Any, schema: TableSchema, columns: Sequence[pd.Series], min_count: int
) -> dict[int, Identifiers]:
    """Choose the columns of identifiers, and what replaces them, by position.

    Raises ValueError if a column is listed that there is not, or that none can be made for.
    """
    mask = discrete_mask(() if listed is None else listed, schema, "identifiers")
    if mask is not None:
        chosen = np.flatnonzero(mask).tolist()
        return {j: new_identifiers(columns[j], schema.label(j)) for j in chosen}
    found = [find_identifiers(column, min_frequency=min_count) for column in columns]
    return {j: made for j, made in enumerate(found) if made is not None}


def choose_formats(
    discrete_columns: Any,
    schema: TableSchema,
    columns: Sequence[pd.Series],
    min_count: int,
    identifiers: Container[int],
) -> list[Format | None]:
    """Choose the number format of each continuous column, None for those that become categories.

    Raises ValueError if a column is not of numbers, and not listed either.
    """
    mask = discrete_mask(discrete_columns, schema)
    is_frame = schema.array_dtype is None
    formats: list[Format | None] = []
    unlisted = []
    for j, column in enumerate(columns):
        by_dtype = mask is None and is_frame and column.dtype == object
        listed = j in identifiers or (mask is not None and bool(mask[j]))
        format = None if listed or by_dtype else fit_format(column, schema.label(j), min_count)
        few = column.notna().sum() < min_count
        if format is not None and (few or _is_constant(format, column)):
            format = None
        elif format is None and mask is not None and not listed and not _is_free(column):
            unlisted.append(schema.keys[j])
        formats.append(format)
    if unlisted:
        raise ValueError(
            f"the columns {unlisted} do not hold numbers or dates and are not in "
            "discrete_columns; add them there, or use discrete_columns='auto'"
        )
    return formats


def _is_constant(format: Format, column: pd.Series) -> bool:
    return format.low == format.high and not column.isna().any()


def _is_free(column: pd.Series) -> bool:
    """Tell whether a column is discrete without being listed: of truth values, or without any."""
    is_bool = column_kind(column, of_categories=True) == ColumnKind.BOOL
    return is_bool or bool(column.isna().all())
