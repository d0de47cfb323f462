"""The layout of a row of a generator's network: values, then one-hot spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from combutab.preprocessing.modes._columns import Column, NumberColumn


@dataclass(frozen=True)
class RowSpan:
    """The meaning of a one-hot span of a row.

    Attributes
    ----------
    column : int
        The position of its column in the table.
    kind : {"category", "mode"}
        Which value a discrete column has, or in which mode a continuous one lies.
    value_index : int or None
        Which of the row's values lies within that mode; None for categories.
    missing : bool
        Whether the last mode is that of missing values.
    """

    column: int
    kind: Literal["category", "mode"]
    value_index: int | None = None
    missing: bool = False


@dataclass(frozen=True)
class RowLayout:
    """A row of a generator's network: values in [-1, 1], then one-hot spans.

    Attributes
    ----------
    n_values : int
    sizes : tuple of int
        Of each span, in ascending order, so that spans of one size are neighbours.
    spans : tuple of RowSpan
    never : tuple of (int, int)
        Span and code of what is learned, but made in no row: all rare values of a column together.
    """

    n_values: int
    sizes: tuple[int, ...]
    spans: tuple[RowSpan, ...]
    never: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class ModeTable:
    """An encoded table; its rows are what a `RowLayout` says.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_values), float32
        Each in [-1, 1].
    codes : ndarray of shape (n_rows, n_spans), int32
        Where each span is 1.
    """

    values: np.ndarray
    codes: np.ndarray


def lay_out(columns: Sequence[Column]) -> RowLayout:
    """Give every column that is not constant its span, and every continuous one a value."""
    spans: list[tuple[int, RowSpan]] = []
    n_values = 0
    for j, column in enumerate(columns):
        if isinstance(column, NumberColumn):
            spans.append((column.size, RowSpan(j, "mode", n_values, column.missing)))
            n_values += 1
        elif column.size > 1:
            spans.append((column.size, RowSpan(j, "category")))
    spans.sort(key=lambda each: each[0])
    rare = ((i, columns[span.column].never) for i, (_, span) in enumerate(spans))
    return RowLayout(
        n_values,
        tuple(size for size, _ in spans),
        tuple(span for _, span in spans),
        tuple((i, code) for i, code in rare if code is not None),
    )
