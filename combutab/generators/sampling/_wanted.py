"""Conditions on sampled rows as codes and ranges, and the rows that meet them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing import NumberColumn, put_cells

NEAREST = 100  # one row in so many may stand for a number that is asked for


@dataclass(frozen=True)
class Codes:
    """Values of a discrete column, or a missing one of any: codes of its span."""

    column: Any
    span: int
    codes: tuple[int, ...]

    def met(self, codes: np.ndarray) -> np.ndarray:  # (n, n_spans) -> (n,)
        """Find the rows that meet it, given their codes."""
        return np.isin(codes[:, self.span], self.codes)


@dataclass(frozen=True)
class Range:
    """A range of a continuous column's values, both ends included; None for an open end."""

    column: Any
    low: Any
    high: Any

    def met(self, table: pd.DataFrame | np.ndarray) -> np.ndarray:  # (n,)
        """Find the rows that meet it, given the decoded table."""
        column = column_of(table, self.column)
        inside = column.notna().to_numpy(dtype=bool, copy=True)
        if self.low is not None:
            inside &= column.ge(self.low).fillna(False).to_numpy(dtype=bool)
        if self.high is not None:
            inside &= column.le(self.high).fillna(False).to_numpy(dtype=bool)
        return inside


@dataclass(frozen=True, eq=False)
class Points:
    """Numbers of a continuous column, any of which will do, and a missing value perhaps.

    That a number is made exactly may never happen: the rows whose numbers are nearest stand for
    those that have it, and it is written into them.
    """

    column: Any
    coder: NumberColumn
    values: pd.Series  # of the column's dtype
    missing: bool = False  # whether a missing value will do

    def distances(self, table: pd.DataFrame | np.ndarray) -> np.ndarray:  # (n,)
        """Return each row's distance from the wanted numbers; infinite for one that will not do."""
        away, missing = self._away(column_of(table, self.column))
        return np.where(missing, 0.0 if self.missing else np.inf, away.min(axis=1))

    def write(self, table: Any) -> None:
        """Put the nearest number that is wanted into each row, but for missing ones."""
        column = column_of(table, self.column)
        away, missing = self._away(column)
        wanted = self.values.take(away.argmin(axis=1)).set_axis(column.index)
        write_column(table, self.column, wanted.where(~missing, column))

    def _away(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray]:  # (n, n_values), (n,)
        x, missing = self.coder.format.read(column, str(self.column))
        points, _ = self.coder.format.read(self.values, str(self.column))
        return np.abs(np.where(missing, 0.0, x)[:, None] - points), missing


Wanted = Codes | Range | Points


def write_points(table: Any, wanted: Sequence[Wanted]) -> None:
    """Put the numbers that are asked for into rows that meet the same conditions."""
    for each in wanted:
        if isinstance(each, Points):
            each.write(table)


def write_each(table: Any, patterns: Sequence[Sequence[Wanted]], which: np.ndarray) -> None:
    """Put into rows of different conditions the numbers that each is asked for.

    The pattern of row i is ``patterns[which[i]]``, with points of one value each.
    """
    asked: dict[Any, tuple[list[int], list[pd.Series]]] = {}
    for p, pattern in enumerate(patterns):
        for each in pattern:
            if isinstance(each, Points):
                places, values = asked.setdefault(each.column, ([], []))
                places.append(p)
                values.append(each.values)
    for name, (places, values) in asked.items():
        place = np.full(len(patterns), -1)
        place[places] = range(len(places))
        here = place[which]
        column = column_of(table, name)
        wanted = pd.concat(values, ignore_index=True).take(np.maximum(here, 0))
        wanted = wanted.set_axis(column.index)
        write_column(table, name, wanted.where(here >= 0, column))


def write_others(table: Any, others: Mapping[Any, pd.Series], rows: np.ndarray) -> Any:
    """The table with cells that rows are never made with, and a warning that these are kept.

    ``others`` are as `read_each` gives them, and ``rows`` the positions of the table's rows there.
    """
    name, cells = next(iter(others.items()))
    first = cells.iloc[0]
    n = len({row for each in others.values() for row in each.index})
    warnings.warn(
        f"seed_data has values that rows are never made with, such as "
        f"{first.item() if isinstance(first, np.generic) else first!r} in {name!r} (rows with "
        f"such values: {n}); they are kept, and other columns are drawn as beside the nearest "
        "number, or as if a category were not given",
        stacklevel=4,
    )
    for name, cells in others.items():
        there = np.isin(rows, cells.index)
        if isinstance(table, pd.DataFrame):
            table[name] = put_cells(table[name], there, cells[cells.index.isin(rows)])
        else:
            column = put_cells(pd.Series(table[:, name]), there, cells[cells.index.isin(rows)])
            table = table.astype(np.result_type(table, column.to_numpy()))
            table[:, name] = column
    return table


def column_of(table: pd.DataFrame | np.ndarray, name: Any) -> pd.Series:
    """A column of a decoded table."""
    return table[name] if isinstance(table, pd.DataFrame) else pd.Series(table[:, name])


def write_column(table: Any, name: Any, column: pd.Series) -> None:
    """Put a column of the same dtype into a decoded table."""
    if isinstance(table, pd.DataFrame):
        table[name] = column
    else:
        table[:, name] = column.to_numpy()


def all_met(
    wanted: Sequence[Wanted], codes: np.ndarray, table: pd.DataFrame | np.ndarray | None
) -> np.ndarray:
    """Find the rows that meet all conditions, (n,): of points, those with the nearest numbers.

    The decoded table is needed where there are ranges or points.
    """
    met = np.ones(len(codes), dtype=bool)
    for each in wanted:
        if isinstance(each, Codes):
            met &= each.met(codes)
        elif isinstance(each, Range):
            assert table is not None
            met &= each.met(table)
    points = [each for each in wanted if isinstance(each, Points)]
    if points:
        assert table is not None
        met &= _nearest(np.stack([each.distances(table) for each in points]))
    return met


def _nearest(distances: np.ndarray) -> np.ndarray:  # (n_points, n) -> (n,)
    """The rows that are nearest in all columns: one in NEAREST, or all that are there exactly."""
    from scipy.stats import rankdata  # takes half a second to import

    ranks = rankdata(distances, method="min", axis=1).max(axis=0)
    possible = np.isfinite(distances).all(axis=0)
    ranks = np.where(possible, ranks, np.inf)
    n_exact = int((distances == 0).all(axis=0).sum())
    n_kept = min(int(possible.sum()), max(n_exact, -(-len(ranks) // NEAREST)))
    nearest = np.zeros(len(ranks), dtype=bool)
    nearest[np.argsort(ranks, kind="stable")[:n_kept]] = True
    return nearest
