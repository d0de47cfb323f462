"""The columns that are numbers, categories or identifiers to a ModeEncoder."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing._kinds import ColumnKind, column_kind
from combutab.preprocessing.modes._identifiers import Identifiers, find_identifiers, new_identifiers
from combutab.preprocessing.modes._numbers import Format, fit_format
from combutab.preprocessing.modes._tables import TableSchema, discrete_mask


def choose_identifiers(
    listed: Any, schema: TableSchema, columns: Sequence[pd.Series], fewest: int
) -> dict[int, Identifiers]:
    """Choose the columns of identifiers, and what replaces them, by position.

    Raises ValueError if a column is listed that there is not, or that none can be made for.
    """
    mask = discrete_mask(() if listed is None else listed, schema, "identifiers")
    if mask is not None:
        chosen = np.flatnonzero(mask).tolist()
        return {j: new_identifiers(columns[j], schema.label(j)) for j in chosen}
    found = [find_identifiers(column, min_frequency=fewest) for column in columns]
    return {j: made for j, made in enumerate(found) if made is not None}


def choose_formats(
    discrete_columns: Any,
    schema: TableSchema,
    columns: Sequence[pd.Series],
    fewest: int,
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
        format = None if listed or by_dtype else fit_format(column, schema.label(j), fewest)
        few = column.notna().sum() < fewest
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
