"""Relations: rules by which cells of a column follow from other columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.generators._cells import Coder, extend_bounds, hold_values
from combutab.generators.expressions import as_operand, count_decimals

Columns = Mapping[Any, pd.Series]  # of equal length, their index a count


@dataclass(frozen=True)
class Relation(ABC):
    """A rule by which cells of a target column follow from source columns."""

    target: Any
    sources: tuple[Any, ...]
    solvable: tuple[Any, ...]  # the sources that can be computed from the target and the others
    uses_learned_column: ClassVar[bool] = False  # whether a source is learned for this relation
    computes: ClassVar[bool] = True  # whether it gives the target values

    def rows(self, columns: Columns) -> np.ndarray:
        """Find the rows that the relation applies to, (n,) bool."""
        return np.ones(len(columns[self.target]), dtype=bool)

    @abstractmethod
    def compute(self, columns: Columns) -> Any:
        """Compute the target, (n,)."""

    @abstractmethod
    def solve(self, source: Any, columns: Columns) -> Any:
        """Compute a source from the target and the other sources, (n,); None if that fails."""

    def complete(self, rows: PartialRows) -> None:
        """Compute the cells of the target that are not fixed."""
        open_rows = ~rows.fixed[self.target] & self.rows(rows.columns)
        rows.write(self.target, open_rows, self.compute(rows.columns))


@dataclass(frozen=True)
class DifferenceRelation(Relation):
    """A column is another column plus (or minus) a column of differences."""

    sign: int
    uses_learned_column = True

    def compute(self, columns: Columns) -> Any:
        """See `Relation`."""
        return _combine(columns[self.sources[0]], columns[self.sources[1]], self.sign)

    def solve(self, source: Any, columns: Columns) -> Any:
        """See `Relation`."""
        return _combine(columns[self.target], columns[self.sources[1]], -self.sign)


@dataclass(frozen=True)
class RepetitionRelation(Relation):
    """A column has the value of another column in the rows where an indicator is 1."""

    uses_learned_column = True

    def rows(self, columns: Columns) -> np.ndarray:
        """See `Relation`."""
        return columns[self.sources[1]].eq(1).fillna(False).to_numpy(dtype=bool)

    def compute(self, columns: Columns) -> Any:
        """See `Relation`."""
        return columns[self.sources[0]]

    def solve(self, source: Any, columns: Columns) -> Any:
        """See `Relation`."""
        return columns[self.target]


def subtract_columns(high: pd.Series, low: pd.Series) -> pd.Series:
    """Subtract a column of numbers, dates or durations from another.

    >>> subtract_columns(pd.Series([0.3]), pd.Series([0.1])).tolist()
    [0.2]
    """
    return _combine(high, low, -1)


def _combine(first: pd.Series, second: pd.Series, sign: int) -> pd.Series:
    """Add ``sign`` times the second column to the first, with no more decimals than they have."""
    first, second = first.reset_index(drop=True), second.reset_index(drop=True)
    if are_integers(first, second):
        return _as_int64(first) + sign * _as_int64(second)
    if not types.is_numeric_dtype(first.dtype):
        n_rows = len(first)
        if isinstance(first.dtype, pd.ArrowDtype):  # which computes missing cells, and may overflow
            is_present = first.notna() & second.notna()
            first, second = first[is_present], second[is_present]
        return (first - second if sign < 0 else first + second).reindex(range(n_rows))
    x, y = as_operand(first), as_operand(second)
    decimals = [
        count_decimals(x.to_numpy(), first.dtype),
        count_decimals(y.to_numpy(), second.dtype),
    ]
    total = x + sign * y
    counts = [count for count in decimals if count is not None]
    return total.round(max(counts)) if len(counts) == len(decimals) else total


def are_integers(*columns: pd.Series) -> bool:
    return all(types.is_integer_dtype(column.dtype) for column in columns)


def _as_int64(column: pd.Series) -> pd.Series:
    return column.astype("Int64" if column.isna().any() else "int64")


class PartialRows:
    """Rows with fixed cells; their other cells are drawn, or computed from the fixed ones.

    Parameters
    ----------
    columns : mapping
    coders : mapping
        The encoders of the columns.
    fixed : mapping
        By column, the cells that keep their values, (n,) bool.
    bounded : mapping
        By column, the cells that keep their values if another column can follow from them.
    picks : ndarray of int, (n,), optional
        Random numbers that decide which one of several columns is set.
    may_exceed : ndarray of bool, (n,), optional
        The rows in which computed values may lie beyond the bounds of their column.
    """

    def __init__(
        self,
        columns: Columns,
        coders: Mapping[Any, Coder],
        fixed: Mapping[Any, np.ndarray],
        bounded: Mapping[Any, np.ndarray] | None = None,
        picks: np.ndarray | None = None,
        may_exceed: np.ndarray | bool = False,
    ) -> None:
        self.columns, self.coders = dict(columns), coders
        no_row = np.zeros(len(next(iter(columns.values()))), dtype=bool)
        self.has_fixed, self.has_bounded = bool(fixed), bool(bounded)
        self.fixed = {name: fixed.get(name, no_row).copy() for name in columns}
        self.bounded = {name: (bounded or {}).get(name, no_row) for name in columns}
        self.picks, self.may_exceed = picks, may_exceed

    def write(
        self, name: Any, rows: np.ndarray, values: Any, *, implied: bool = False
    ) -> np.ndarray:
        """Write computed values into the rows of a column that can have them; returns these rows.

        Values that are ``implied`` by fixed cells may lie beyond the bounds of the column.
        """
        column = self.columns[name]
        rows = rows & column.notna().to_numpy(dtype=bool)
        if not rows.any() or values is None:
            return np.zeros(len(rows), dtype=bool)
        if not isinstance(values, pd.Series):
            values = pd.Series([values] * len(rows), dtype=object).infer_objects()
        coder = self.coders[name]
        if implied:
            coder = extend_bounds(coder, values[rows])
        cells, possible = hold_values(coder, values)
        rows &= possible
        self.columns[name] = column.mask(rows, cells.set_axis(column.index))
        return rows

    def clear(self, name: Any, rows: np.ndarray) -> bool:
        """Make cells missing; returns False if the column has no missing values."""
        if not getattr(self.coders[name], "missing", False):
            return False
        if rows.any():
            self.columns[name] = self.columns[name].mask(rows)
        return True

    def write_implied(self, relation: Relation) -> None:
        """Compute the target of a relation in the rows where all its sources are fixed."""
        is_known = np.all([self.fixed[name] for name in relation.sources], axis=0)
        rows = is_known & ~self.fixed[relation.target] & relation.rows(self.columns)
        values = relation.compute(self.columns)
        self.fixed[relation.target] |= self.write(relation.target, rows, values, implied=True)

    def solve(self, relation: Relation) -> None:
        """Compute a source of a relation in the rows where its target is fixed."""
        target = relation.target
        rows = self.fixed[target].copy()
        if relation.uses_learned_column:
            rows |= self.bounded[target]
        is_present = self.columns[target].notna().to_numpy(dtype=bool)
        rows &= is_present & relation.rows(self.columns)
        for name in reversed(relation.solvable):
            open_rows = rows & ~self.fixed[name] & ~self.bounded[name]
            values = relation.solve(name, self.columns) if open_rows.any() else None
            if values is None:
                continue
            other_sources = [self.fixed[source] for source in relation.sources if source != name]
            is_known = np.all(other_sources, axis=0) | self.may_exceed
            written = self.write(name, open_rows & is_known, values, implied=True)
            written |= self.write(name, open_rows & ~is_known, values)
            self.fixed[name] |= written
            self.fixed[target] |= written
            rows &= ~written
