"""Columns of a table as a generator learns them: forms, differences and repetitions.

A column that is less than another is learned together with their difference. A column that often
has the value of another column is learned together with an indicator of these rows, in which the
value is then copied.
"""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.generators._cells import Coder, number_kind
from combutab.generators._relations import (
    Columns,
    Relation,
    RepetitionRelation,
    are_integers,
    subtract_columns,
)
from combutab.generators.constraints import Constraint
from combutab.generators.expressions import as_floats, as_operand
from combutab.preprocessing import ColumnForm, Table, as_pandas, find_identifiers, to_ticks

_REPEATED = 0.05  # of the rows, in which a column has the value of another one
_BEYOND_CHANCE = 25  # times as often as if one column were shuffled
_MIN_ROWS, SEARCHED_ROWS = 100, 10_000  # in which such columns are searched for
_COMPARED = 2 * 10**9  # cells, about, unless 500 rows have more


@dataclass(frozen=True)
class LearnedColumns:
    """Differences and indicators that are learned with the columns of a table.

    Parameters
    ----------
    names : list
        The table's columns.
    differences : mapping
        Position of an inequality -> the name of its column of differences.
    sources : mapping
        The name of a difference -> its lower and its higher column; the name of an indicator -> a
        column, and the column whose value it has where the indicator is 1.
    """

    names: list[Any]
    differences: Mapping[int, Any] = field(default_factory=dict)
    sources: Mapping[Any, tuple[Any, Any]] = field(default_factory=dict)

    @classmethod
    def plan(
        cls,
        constraints: Sequence[Constraint],
        columns: Columns,
        discrete_columns: Any,
        array_dtype: np.dtype | None = None,
        searched: Columns | None = None,
    ) -> LearnedColumns:
        """Choose which differences and indicators are learned with the columns of a table.

        ``array_dtype`` is the dtype of a table that is an array, which they become part of.
        Columns that repeat others are searched for in the rows ``searched``.

        Raises ValueError if the table lacks a column, or constraints compute one in a circle.
        """
        names = list(columns)
        sources: dict[Any, tuple[Any, Any]] = {}
        is_text_array = array_dtype is not None and array_dtype.kind not in "iuf"
        if is_text_array or any(isinstance(name, tuple) for name in names):
            order_relations(constraints, cls(names))
            return cls(names)

        def new_name(name: str) -> Any:
            used = [*names, *sources]
            while name in used:
                name += "_"
            return name if array_dtype is None else len(used)

        is_list = isinstance(discrete_columns, Iterable) and not isinstance(discrete_columns, str)
        excluded = set(discrete_columns) if is_list else set()
        differences: dict[int, Any] = {}
        for i, constraint in enumerate(constraints):
            sides = constraint.sides(names)
            if sides is None or any(side in excluded for side in sides):
                continue
            kinds = {number_kind(columns[side].dtype) for side in sides}
            if None not in kinds and len(kinds) == 1:
                name = differences[i] = new_name(f"{sides[1]} - {sides[0]}")
                sources[name] = sides
        if searched is not None:
            for constraint in constraints:
                excluded.update(() if constraint.compares_rows else constraint.find_columns(names))
            for column, source in find_repetitions(searched, excluded):
                sources[new_name(f"{column} = {source}")] = column, source
        learned = cls(names, differences, sources)
        order_relations(constraints, learned)
        return learned

    @property
    def added(self) -> list[Any]:
        """The names of the differences and indicators."""
        return list(self.sources)

    @property
    def repetitions(self) -> dict[Any, tuple[Any, Any]]:
        """The sources of the indicators."""
        differences = set(self.differences.values())
        return {name: pair for name, pair in self.sources.items() if name not in differences}

    def compute(self, name: Any, columns: Columns) -> pd.Series:
        """Compute a difference or an indicator from the columns of a table."""
        first, second = (columns[source] for source in self.sources[name])
        if are_integers(first, second):
            floats = [as_floats(first), as_floats(second)]
            largest = np.nanmax(np.abs([*floats, floats[0] - floats[1]]), initial=0.0)
            if largest >= 2**63:
                raise ValueError(
                    f"{name!r} cannot be learned: its numbers need more than 64 bits with a sign; "
                    "convert the columns to floats, or leave the constraint out"
                )
        if name in self.differences.values():
            return subtract_columns(second, first)
        equal = (as_operand(first) == as_operand(second)).fillna(False).astype("float64")
        return equal.mask((first.isna() | second.isna()).to_numpy(dtype=bool))

    def extend(self, X: Any) -> Any:
        """Add the differences and indicators to a table."""
        if not self.added:
            return X
        X = as_pandas(X)
        columns = Table(X).columns_by_name()
        if not len(X) or any(name not in columns for name in self.names):
            return X  # the encoder raises the error
        new = {name: self.compute(name, columns) for name in self.added}
        if isinstance(X, pd.DataFrame):
            return pd.concat([X, pd.DataFrame(new).set_axis(X.index)], axis=1)
        array = np.asarray(X)
        return np.column_stack([array, *(column.to_numpy(array.dtype) for column in new.values())])

    def drop(self, table: Any) -> Any:
        """Remove the differences and indicators from a table."""
        if not self.added:
            return table
        if not isinstance(table, pd.DataFrame):
            return table[:, : len(self.names)].copy()
        table = table.iloc[:, : len(self.names)]
        if not isinstance(self.names[0], str):  # with text among them the names were objects
            table = table.set_axis(table.columns.infer_objects(), axis=1)
        return table


def find_repetitions(columns: Columns, excluded: Collection[Any] = ()) -> list[tuple[Any, Any]]:
    """Find columns that have the value of another column in many rows, as (column, source).

    These are numbers, dates or durations that are equal in at least 5 % of the rows, and 25 times
    as often as by chance. Values that 5 % of the rows share do not count. No column has two
    sources, or is its own source through others.
    """
    numbers: dict[Any, np.ndarray] = {}
    kinds: dict[Any, Any] = {}
    for name, column in columns.items():
        kind = None if name in excluded else number_kind(column.dtype)
        if kind is None or len(column) < _MIN_ROWS or types.is_complex_dtype(column.dtype):
            continue
        if kind == "number":
            x = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            ticks, missing = to_ticks(column)
            x = np.where(missing, np.nan, ticks.astype(np.float64))
        _, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
        x[(counts / len(x) >= _REPEATED)[codes]] = np.nan
        if np.isfinite(x).mean() >= _REPEATED and find_identifiers(column) is None:
            numbers[name], kinds[name] = x, kind if kind == "number" else column.dtype
    if len(numbers) < 2:
        return []
    names = list(numbers)
    step = row_step(len(numbers[names[0]]), max(500, _COMPARED // len(names) ** 2))
    rows = np.stack([x[::step] for x in numbers.values()])
    pairs = []
    for i, name in enumerate(names):
        shares = (rows[i] == rows[i + 1 :]).mean(axis=1)
        for j in np.flatnonzero(shares >= _REPEATED):
            share, later = float(shares[j]), names[i + 1 + j]
            if kinds[name] != kinds[later]:
                continue
            if share >= _BEYOND_CHANCE * _chance(numbers[name], numbers[later]):
                pairs.append((share, name, later))
    sources: dict[Any, Any] = {}
    for _, name, later in sorted(pairs, key=lambda pair: -pair[0]):
        for column, source in ((later, name), (name, later)):  # the later one is copied to
            if column not in sources and not _leads_to(sources, source, column):
                sources[column] = source
                break
    return list(sources.items())


def row_step(n_rows: int, n_max: int) -> int:
    """The step between evenly spaced rows that selects at most ``n_max`` of them."""
    return max(1, -(-n_rows // n_max))


def _chance(x: np.ndarray, y: np.ndarray) -> float:
    """The share of equal values if one column were shuffled."""
    x_counts, y_counts = pd.Series(x).value_counts(), pd.Series(y).value_counts()
    n_equal = (x_counts * y_counts.reindex(x_counts.index).fillna(0)).sum()
    return float(n_equal / len(x) / len(y))


def _leads_to(sources: Mapping[Any, Any], start: Any, end: Any) -> bool:
    while start in sources and start != end:
        start = sources[start]
    return bool(start == end)


# ---- The order in which columns are computed -----------------------------------------------------


def order_relations(
    constraints: Sequence[Constraint],
    learned: LearnedColumns,
    coders: Mapping[Any, Coder] | None = None,
) -> list[Relation]:
    """Choose the relations by which columns are computed, each after the columns it follows from.

    ``coders`` are the encoders of the columns, once they are known: only numbers repeat others.

    Raises ValueError if constraints compute a column in a circle.
    """
    relations: list[Relation] = []
    columns = [set(constraint.find_columns(learned.names)) for constraint in constraints]
    for i, constraint in enumerate(constraints):
        candidates = constraint.relations(learned.names, learned.differences.get(i))
        if not _add_first(candidates, relations) and constraint.computes_column:
            pairs = zip(constraints, columns, strict=True)
            conflicting = [c for c, names in pairs if c.computes_column and names & columns[i]]
            listed = " and ".join(map(repr, conflicting))
            raise ValueError(
                f"{listed} compute the same columns from one another; leave one of them out"
            )
    for name, (column, source) in learned.repetitions.items():
        if coders is None or all(coders[n].is_continuous for n in (column, source)):
            _add_first([RepetitionRelation(column, (source, name), (source,))], relations)
    ordered = _sort_relations(relations)
    if ordered is None:
        raise ValueError(
            f"{', '.join(map(repr, constraints))} depend on one another in a circle; leave one of "
            "them out"
        )
    return ordered


def _add_first(candidates: Sequence[Relation], relations: list[Relation]) -> bool:
    """Add the first candidate that gives a further column without a circle; False if none does."""
    computed = {relation.target for relation in relations if relation.computes}
    for candidate in candidates:
        if not candidate.computes:
            relations.append(candidate)
            return True
        if candidate.target not in computed and _sort_relations([*relations, candidate]):
            relations.append(candidate)
            return True
    return False


def _sort_relations(relations: Sequence[Relation]) -> list[Relation] | None:
    """Sort relations so that each comes after those of its sources; None if there is a circle."""
    ordered = sorted(relations, key=lambda relation: not relation.computes)
    graph: dict[Any, list[Any]] = {}
    for relation in ordered:
        graph.setdefault(relation.target, []).extend(relation.sources)
    try:
        columns = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError:
        return None
    return sorted(ordered, key=lambda relation: columns.index(relation.target))


# ---- Columns of dates and times that a table has as text -----------------------------------------


class TableForms:
    """The forms that the dates, times and decimals of a table have.

    Parameters
    ----------
    names : sequence
        The table's columns.
    forms : sequence of ColumnForm
        The forms of those columns that have one.
    """

    def __init__(self, names: Sequence[Any], forms: Sequence[ColumnForm] = ()) -> None:
        self.forms = tuple(forms)
        self._by_name = {names[form.column]: form for form in self.forms}

    def read(self, table: Any) -> Any:
        """Convert columns of a user's table to the dtypes that the generator has learned."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return table
        columns = {
            name: form.read(table[name], f"column {name!r}")
            for name, form in self._by_name.items()
            if name in table
        }
        return _replace_columns(table, columns)

    def write(self, table: Any) -> Any:
        """Convert columns to the form that the fitted table has."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return table
        columns = {
            name: form.write(table[name]) for name, form in self._by_name.items() if name in table
        }
        return _replace_columns(table, columns)

    def fill(self, table: Any, filled: Any) -> Any:
        """Convert filled rows, with the known cells as they are in the table."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return filled
        filled = self.write(filled)
        columns = {
            name: table[name].where(table[name].notna().to_numpy(), filled[name])
            for name in self._by_name
        }
        return _replace_columns(filled, columns)

    def read_condition(self, name: Any, value: Any) -> Any:
        """Convert a value, a list or a range of a condition."""
        if name not in self._by_name:
            return value
        if isinstance(value, list | tuple | set):
            return type(value)(self.read_condition(name, part) for part in value)
        return self._by_name[name].read_value(value, f"column {name!r}")

    def read_shares(self, name: Any, shares: Any) -> Any:
        """Convert the values whose shares are requested."""
        if not isinstance(shares, Mapping):
            return shares
        return {self.read_condition(name, value): share for value, share in shares.items()}


def _replace_columns(table: pd.DataFrame, columns: Mapping[Any, pd.Series]) -> pd.DataFrame:
    table = table.copy(deep=False)
    for name, column in columns.items():
        table[name] = column
    return table
