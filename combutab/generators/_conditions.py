"""What sampled rows are asked to be: values of discrete columns, ranges of continuous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing import ModeEncoder


@dataclass(frozen=True)
class Wanted:
    """One column's condition: codes of its span, or a range of its values."""

    column: Any
    span: int | None = None  # of a discrete column
    codes: tuple[int, ...] = ()
    low: Any = None
    high: Any = None

    def met(self, codes: np.ndarray, table: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Which rows meet it, given their codes and the decoded table."""
        if self.span is not None:
            return np.isin(codes[:, self.span], self.codes)
        column = (
            table[self.column]
            if isinstance(table, pd.DataFrame)
            else pd.Series(table[:, self.column])
        )
        inside = column.notna().to_numpy(dtype=bool, copy=True)
        if self.low is not None:
            inside &= column.ge(self.low).fillna(False).to_numpy(dtype=bool)
        if self.high is not None:
            inside &= column.le(self.high).fillna(False).to_numpy(dtype=bool)
        return inside


def read_conditions(encoder: ModeEncoder, conditions: Mapping[Any, Any]) -> list[Wanted]:
    """Check conditions and express them in the encoder's terms.

    Parameters
    ----------
    encoder : ModeEncoder, fitted
    conditions : mapping
        Column -> value, or list of values any of which will do, of a discrete column; or
        ``(low, high)`` of a continuous one, both included, None for an open end.

    Raises
    ------
    ValueError
        If there is no such column or value, or a range is empty or not one.
    """
    return [_read(encoder, column, value) for column, value in conditions.items()]


def read_each(encoder: ModeEncoder, conditions: pd.DataFrame) -> np.ndarray:
    """The codes that each row of conditions asks for, (n, n_spans), -1 where it asks for none.

    Raises
    ------
    ValueError
        If there is no such column or value.
    """
    asked = np.full((len(conditions), len(encoder.layout_.spans)), -1)
    for position, column in enumerate(conditions.columns):
        codes, values = pd.factorize(conditions.iloc[:, position])  # -1 for a missing value
        found = [encoder.condition_code(column, value) for value in values]
        if found:
            asked[codes >= 0, found[0][0]] = np.array([code for _, code in found])[
                codes[codes >= 0]
            ]
    return asked


def _read(encoder: ModeEncoder, column: Any, value: Any) -> Wanted:
    if isinstance(value, tuple):
        return _read_range(encoder, column, value)
    values = list(value) if isinstance(value, list | set | frozenset) else [value]
    if not values:
        raise ValueError(f"the condition on {column!r} has no values; leave it out")
    found = [encoder.condition_code(column, each) for each in values]
    return Wanted(column, found[0][0], tuple(dict.fromkeys(code for _, code in found)))


def _read_range(encoder: ModeEncoder, column: Any, ends: tuple[Any, ...]) -> Wanted:
    if len(ends) != 2 or ends == (None, None):
        raise ValueError(
            f"the condition on {column!r} must be a value, a list of values or a range "
            f"(low, high), got {ends!r}"
        )
    j = encoder.schema_.position(column)
    if any(span.column == j and span.kind == "category" for span in encoder.layout_.spans):
        raise ValueError(
            f"column {column!r} is discrete, and {ends!r} is a range; give the values as a list"
        )
    low, high = ends
    if low is not None and high is not None and not low <= high:
        raise ValueError(f"the range {ends!r} of {column!r} is empty")
    return Wanted(column, low=low, high=high)
