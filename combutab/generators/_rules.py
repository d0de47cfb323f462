"""Constraints of a fitted generator: met by construction where they can be, checked everywhere.

Columns that follow from others are computed after they are drawn, and a column that is less than
another is learned together with their difference. All else is left to redraws: a row that breaks a
constraint is not kept, so no value is ever clipped to meet one.

A column of numbers that has the value of another column in many rows, but not in all, is learned
together with an indicator of these rows, in which the value is then copied.
"""

from __future__ import annotations

import graphlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from scipy import sparse

from combutab.core.files import Field, check_fields, kind, optional, pair, several, whole
from combutab.core.rng import Stream, fold_in
from combutab.core.state import pack, unpack
from combutab.core.text import no_column
from combutab.generators.conditions import (
    Codes,
    Condition,
    Outside,
    PointConditions,
    Range,
    all_met,
    column_of,
    offset_of,
    python_scalar,
    span_of,
    write_column,
    write_points,
)
from combutab.generators.constraints import (
    Columns,
    Computed,
    Constraint,
    FixedCombinations,
    Inequality,
    Null,
    OneOf,
    Unique,
    count_decimals,
    is_set_in,
    read_columns,
)
from combutab.generators.expressions import (
    as_floats,
    as_operand,
    exact_operand,
    is_exact,
    is_number,
    subtract,
)
from combutab.preprocessing import (
    CategoryColumn,
    ColumnForm,
    IdentifierColumn,
    ModeEncoder,
    NumberColumn,
    as_pandas,
    find_identifiers,
    to_ticks,
)

RANGES = (Range, Outside)  # conditions on numbers as they come out
_FIRST = 5  # rows that an error names
_AT_ONCE = 5000  # rows that are drawn anew together, about
_BEFORE_SWAPS = 6  # times that rows are drawn anew before they exchange values
_MAX_RARE_SHARE = 0.1  # of the rows, beyond which there is a warning
_GRID_SLACK = 1e-6  # steps of a grid, by which its ends are rounded
_REPEATED = 0.05  # of the rows, in which a column has the value of another one
_BEYOND_CHANCE = 25  # times as often as if it were shuffled
_FEWEST_ROWS, SEARCHED_ROWS = 100, 10_000  # in which such columns are looked for
_COMPARED = 2 * 10**9  # cells, about, unless 500 rows have more

# ---- Columns that follow from others -------------------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """How a column follows from others, and one of these from it and the rest."""

    target: Any
    sources: tuple[Any, ...]
    compute: Callable[[Columns], Any]
    solve: Callable[[Any, Columns], Any]  # of a source; None where that is not found
    solvable: tuple[Any, ...]  # the sources that may be solved for
    of_difference: bool = False  # or of an indicator: a drawn column says what it is
    indicator: Any = None  # the column that is 1 in the rows that it is about; None for all rows

    def rows(self, columns: Columns) -> np.ndarray:
        """Find the rows that it is about, (n,) bool."""
        if self.indicator is None:
            return np.ones(len(columns[self.target]), dtype=bool)
        return columns[self.indicator].eq(1).fillna(False).to_numpy(dtype=bool)


def difference(high: pd.Series, low: pd.Series) -> pd.Series:
    """How much a column of numbers, dates or durations is above another.

    >>> difference(pd.Series([0.3]), pd.Series([0.1])).tolist()
    [0.2]
    """
    return _combine(high, low, -1)


def _combine(one: pd.Series, other: pd.Series, sign: int) -> pd.Series:
    one, other = (column.reset_index(drop=True) for column in (one, other))
    if all(types.is_integer_dtype(column.dtype) for column in (one, other)):
        wide = [
            column.astype("Int64" if column.isna().any() else "int64") for column in (one, other)
        ]
        return wide[0] + sign * wide[1]
    if not types.is_numeric_dtype(one.dtype):
        return one - other if sign < 0 else one + other
    x, y = as_operand(one), as_operand(other)
    decimals = [count_decimals(each.to_numpy(), c.dtype) for each, c in ((x, one), (y, other))]
    found = x + sign * y
    known = [each for each in decimals if each is not None]
    return found.round(max(known)) if len(known) == len(decimals) else found


def _refuse_overflow(one: pd.Series, other: pd.Series, name: Any) -> None:
    """Refuse integers whose difference has no 64 bits."""
    if all(types.is_integer_dtype(column.dtype) for column in (one, other)):
        floats = [as_floats(column) for column in (one, other)]
        most = np.nanmax(np.abs([*floats, floats[0] - floats[1]]), initial=0.0)
        if most >= 2**63:
            raise ValueError(
                f"{name!r} cannot be learned: its numbers need more than 64 bits with a sign; "
                "convert the columns to floats, or leave the constraint out"
            )


def _of_inequality(low: Any, high: Any, gap: Any) -> tuple[Relation, Relation]:
    """The two ways to meet an inequality by a difference that is drawn."""
    above = Relation(
        high,
        (low, gap),
        lambda columns: _combine(columns[low], columns[gap], 1),
        lambda name, columns: _combine(columns[high], columns[gap], -1),
        (low,),
        of_difference=True,
    )
    below = Relation(
        low,
        (high, gap),
        lambda columns: _combine(columns[high], columns[gap], -1),
        lambda name, columns: _combine(columns[low], columns[gap], 1),
        (high,),
        of_difference=True,
    )
    return above, below


def _of_computed(constraint: Computed, names: Sequence[Any]) -> list[Relation]:
    target, *sources = constraint.find_columns(names)
    first = Relation(target, tuple(sources), constraint.compute, constraint.solve, tuple(sources))

    def solved_for(source: Any) -> Relation:
        others = tuple(each for each in (target, *sources) if each != source)
        return Relation(
            source,
            others,
            lambda columns: constraint.solve(source, columns),
            lambda name, columns: None if name != target else constraint.compute(columns),
            (target,),
        )

    return [first, *map(solved_for, reversed(sources))]


def _of_repetition(column: Any, source: Any, indicator: Any) -> Relation:
    """How a column has the value of another one where an indicator is 1."""
    return Relation(
        column,
        (source, indicator),
        lambda columns: columns[source],
        lambda name, columns: columns[column],
        (source,),
        of_difference=True,
        indicator=indicator,
    )


def find_repetitions(columns: Columns, apart: Collection[Any] = ()) -> list[tuple[Any, Any]]:
    """Find columns that have the value of another column in many rows, each with that column.

    These are numbers, dates or durations that are equal in at least 5 % of the rows, and 25 times
    as often as by chance. Values that 5 % of the rows share do not count. No column repeats two
    others, or itself by way of others. The columns ``apart`` are left out.
    """
    known: dict[Any, np.ndarray] = {}
    held: dict[Any, Any] = {}
    for name, column in columns.items():
        of = None if name in apart else _kind(column.dtype)
        if of is None or len(column) < _FEWEST_ROWS or types.is_complex_dtype(column.dtype):
            continue
        if of == "number":
            x = np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            ticks, absent = to_ticks(column)
            x = np.where(absent, np.nan, ticks.astype(np.float64))
        _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
        x[(counts / len(x) >= _REPEATED)[place]] = np.nan
        if np.isfinite(x).mean() >= _REPEATED and find_identifiers(column) is None:
            known[name], held[name] = x, of if of == "number" else column.dtype
    if len(known) < 2:
        return []
    names = list(known)
    step = row_step(len(known[names[0]]), max(500, _COMPARED // len(names) ** 2))
    rows = np.stack([x[::step] for x in known.values()])
    found = []
    for i, name in enumerate(names):
        shares = (rows[i] == rows[i + 1 :]).mean(axis=1)
        for j in np.flatnonzero(shares >= _REPEATED):
            share, other = float(shares[j]), names[i + 1 + j]
            if held[name] != held[other]:
                continue
            if share >= _BEYOND_CHANCE * _chance(known[name], known[other]):
                found.append((share, name, other))
    chosen: dict[Any, Any] = {}
    for _, name, other in sorted(found, key=lambda each: -each[0]):
        for column, source in ((other, name), (name, other)):  # the later one is copied to
            if column not in chosen and not _leads_to(chosen, source, column):
                chosen[column] = source
                break
    return list(chosen.items())


def row_step(n_rows: int, most: int) -> int:
    """How far apart evenly spaced rows are, of which there are so many at most."""
    return max(1, -(-n_rows // most))


def _chance(one: np.ndarray, other: np.ndarray) -> float:
    """The share of equal values if one column were shuffled."""
    a, b = (pd.Series(x).value_counts() for x in (one, other))
    return float((a * b.reindex(a.index).fillna(0)).sum() / len(one) / len(other))


def _leads_to(chosen: Mapping[Any, Any], start: Any, end: Any) -> bool:
    while start in chosen and start != end:
        start = chosen[start]
    return bool(start == end)


# ---- The constraints of a fitted generator -------------------------------------------------------


class Rules:
    """Constraints on the rows of a table.

    Parameters
    ----------
    constraints : sequence of Constraint
    names : sequence
        The table's columns.
    differences : mapping
        Position of an `Inequality` -> the name of the column of differences that is learned with
        the table.
    combinations : mapping
        Position of a `FixedCombinations` -> the codes that its columns may have together, and how
        many rows of the fitted table have them: (n, n_columns + 1).
    repetitions : mapping
        The name of an indicator that is learned with the table -> a column, and the one whose value
        it has where the indicator is 1.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        names: Sequence[Any],
        differences: Mapping[int, Any] | None = None,
        combinations: Mapping[int, np.ndarray] | None = None,
        repetitions: Mapping[Any, tuple[Any, Any]] | None = None,
    ) -> None:
        self.constraints, self.names = tuple(constraints), list(names)
        self.differences = dict(differences or {})
        self.repetitions = dict(repetitions or {})
        self.combinations = {i: kept[:, :-1] for i, kept in (combinations or {}).items()}
        self.counts = {i: kept[:, -1] for i, kept in (combinations or {}).items()}
        self.columns = [each.find_columns(self.names) for each in self.constraints]
        self.unique = [each for each in self.constraints if isinstance(each, Unique)]
        self._coders: dict[Any, CategoryColumn | NumberColumn | IdentifierColumn] = {}
        self.forms: tuple[ColumnForm, ...] = ()
        self._relate()

    def __bool__(self) -> bool:
        return bool(self.constraints or self.repetitions)

    @property
    def added(self) -> list[Any]:
        """The columns that are learned beside those of the table."""
        return [*self.differences.values(), *self.repetitions]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_relations"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._relate()

    @classmethod
    def plan(
        cls,
        constraints: Sequence[Constraint],
        columns: Columns,
        discrete_columns: Any,
        array_dtype: np.dtype | None = None,
        repeating: Columns | None = None,
    ) -> Rules:
        """Choose which differences and indicators are learned with the columns of a table.

        ``array_dtype`` is that of a table that is an array, which they become part of.
        ``repeating`` are rows in which columns that repeat others are looked for.

        Raises ValueError if the table lacks a column, or constraints compute one in a circle.
        """
        names = list(columns)
        if (array_dtype is not None and array_dtype.kind not in "iuf") or any(
            isinstance(name, tuple) for name in names
        ):
            return cls(constraints, names)
        is_list = isinstance(discrete_columns, Iterable) and not isinstance(discrete_columns, str)
        listed = list(discrete_columns) if is_list else []
        differences: dict[int, Any] = {}
        for i, each in enumerate(constraints):
            sides = each.sides(names) if isinstance(each, Inequality) else None
            if sides is None or any(side in listed for side in sides):
                continue
            kinds = {_kind(columns[side].dtype) for side in sides}
            if None not in kinds and len(kinds) == 1:
                taken = [*names, *differences.values()]
                name = f"{sides[1]} - {sides[0]}"
                while name in taken:
                    name += "_"
                differences[i] = name if array_dtype is None else len(taken)
        repetitions: dict[Any, tuple[Any, Any]] = {}
        if repeating is not None:
            decided = [each for each in constraints if not isinstance(each, Unique)]
            apart = {name for each in decided for name in each.find_columns(names)}
            for column, source in find_repetitions(repeating, apart | set(listed)):
                taken = [*names, *differences.values(), *repetitions]
                name = f"{column} = {source}"
                while name in taken:
                    name += "_"
                indicator = name if array_dtype is None else len(taken)
                repetitions[indicator] = column, source
        return cls(constraints, names, differences, repetitions=repetitions)

    def _relate(self) -> None:
        """Choose the columns that are computed, and their order."""
        self._relations: dict[Any, Relation] = {}
        self._nulls: dict[Any, list[Null]] = {}
        self._order: list[Any] = []
        for i, each in enumerate(self.constraints):
            found: Sequence[Relation] = ()
            if isinstance(each, Computed):
                found = _of_computed(each, self.names)
            elif isinstance(each, Null):
                self._nulls.setdefault(self.columns[i][0], []).append(each)
            elif i in self.differences and isinstance(each, Inequality):
                name = self.differences[i]
                found = _of_inequality(*self.sides_of(name), name)
            for relation in found:
                if relation.target not in self._relations and self._sort(relation):
                    self._relations[relation.target] = relation
                    break
            else:
                if isinstance(each, Computed):
                    others = [
                        other
                        for other, names in zip(self.constraints, self.columns, strict=True)
                        if isinstance(other, Computed) and set(names) & set(self.columns[i])
                    ]
                    raise ValueError(
                        f"{' and '.join(map(repr, others))} compute the same columns from one "
                        "another; leave one of them out"
                    )
        for name, (column, source) in self.repetitions.items():
            relation = _of_repetition(column, source, name)
            coders = [self._coders[each] for each in (column, source) if self._coders]
            if not all(isinstance(coder, NumberColumn) for coder in coders):
                continue  # the encoder holds it for identifiers or categories
            if column not in self._relations and self._sort(relation):
                self._relations[column] = relation
        if not self._sort(None):
            raise ValueError(
                f"{', '.join(map(repr, self.constraints))} depend on one another in a circle; "
                "leave one of them out"
            )

    def _sort(self, added: Relation | None) -> bool:
        """Sort columns so that each comes after those that it follows from; False if none can."""
        relations = [*self._relations.values(), *([] if added is None else [added])]
        graph: dict[Any, set[Any]] = {each.target: set(each.sources) for each in relations}
        for column, nulls in self._nulls.items():
            for each in nulls:
                graph.setdefault(column, set()).update(each.find_columns(self.names)[1:])
        try:
            self._order = list(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError:
            return False
        return True

    # ---- the table that is learned, and its encoder --------------------------------------------

    def widen(self, X: Any) -> Any:
        """The table with the differences and indicators that are learned as further columns."""
        if not self.added:
            return X
        X = as_pandas(X)
        columns = read_columns(X)
        if not len(X) or any(name not in columns for name in self.names):
            return X  # the encoder says what is wrong
        more = self.add_columns(columns)
        if isinstance(X, pd.DataFrame):
            return pd.concat([X, pd.DataFrame(more).set_axis(X.index)], axis=1)
        array = np.asarray(X)
        return np.column_stack([array, *(each.to_numpy(array.dtype) for each in more.values())])

    def narrow(self, table: Any) -> Any:
        """Invert `widen`."""
        if not self.added:
            return table
        if not isinstance(table, pd.DataFrame):
            return table[:, : len(self.names)].copy()
        table = table.iloc[:, : len(self.names)]
        if not isinstance(self.names[0], str):  # beside text they were objects
            table = table.set_axis(table.columns.infer_objects(), axis=1)
        return table

    def sides_of(self, name: Any) -> tuple[Any, Any]:
        """The two columns of a difference, the lower one first, or of an indicator."""
        if name in self.repetitions:
            return self.repetitions[name]
        (constraint,) = (self.constraints[i] for i, own in self.differences.items() if own == name)
        assert isinstance(constraint, Inequality)
        sides = constraint.sides(self.names)
        assert sides is not None
        return sides

    def add_columns(self, columns: Columns, *names: Any) -> dict[Any, pd.Series]:
        """The differences and indicators of a table's columns, by their names: by default all."""
        found = {}
        for name in names or self.added:
            one, other = (columns[side] for side in self.sides_of(name))
            _refuse_overflow(one, other, name)
            if name in self.repetitions:  # unknown where a cell is missing
                equal = (as_operand(one) == as_operand(other)).fillna(False).astype("float64")
                found[name] = equal.mask((one.isna() | other.isna()).to_numpy(dtype=bool))
            else:
                found[name] = difference(other, one)
        return found

    def bind(self, encoder: ModeEncoder) -> None:
        """Take the encoder of the table with the differences.

        Raises ValueError if a constraint is about columns that it cannot be about: identifiers, or
        numbers where values are to be kept together.
        """
        if not self:  # the names of a table that has none are the encoder's
            self.names = encoder.schema_.keys
        self.encoder = encoder
        self._coders = dict(zip(encoder.schema_.keys, encoder.columns_, strict=True))
        self._relate()
        self._decimals: list[int | None] = []
        for each, names in zip(self.constraints, self.columns, strict=True):
            for name in names:
                if isinstance(self._coders[name], IdentifierColumn) and not isinstance(
                    each, Unique
                ):
                    raise ValueError(
                        f"{each!r} is about {name!r}, which holds identifiers that get new values; "
                        "leave the constraint out, or list the identifier columns explicitly"
                    )
                if isinstance(each, FixedCombinations) and isinstance(
                    self._coders[name], NumberColumn
                ):
                    raise ValueError(
                        f"{each!r} needs discrete columns, but {name!r} is continuous; "
                        "list it in discrete_columns, or leave the constraint out"
                    )
            coder = self._coders[names[0]]
            decimals = None
            if isinstance(coder, NumberColumn) and _kind(coder.bounds.dtype) == "number":
                decimals = getattr(coder.format, "decimals", 0)
            self._decimals.append(decimals)

    def learn_combinations(self, codes: np.ndarray, min_count: int) -> list[str]:
        """Keep the combinations of codes that are to be made; tells what is not kept, and why.

        Raises ValueError if none is.
        """
        told = []
        for i, each in enumerate(self.constraints):
            if not isinstance(each, FixedCombinations) or len(self._discrete(i)) < 2:
                continue  # beside constants there is one combination of each value
            own = codes[:, self._spans_of(i)]
            found, counts = np.unique(own, axis=0, return_counts=True)
            kept = counts >= min_count
            for k, name in enumerate(self._discrete(i)):
                kept &= found[:, k] != self._coders[name].suppressed
            if not kept.any():
                raise ValueError(
                    f"{each!r}: no combination occurs in min_frequency ({min_count}) rows; "
                    "lower min_frequency, or leave the constraint out"
                )
            self.combinations[i], self.counts[i] = found[kept].astype(np.int64), counts[kept]
            share = 1 - counts[kept].sum() / counts.sum()
            if share > _MAX_RARE_SHARE:
                told.append(
                    f"{share:.0%} of the rows have combinations of {each!r} that fewer rows than "
                    "min_frequency have: they are not made; join rare values into groups, or "
                    "lower min_frequency"
                )
        return told

    def to_dict(self) -> dict[str, Any]:
        """What was learned of the constraints, as a file has it."""
        return {
            "differences": {str(i): name for i, name in self.differences.items()},
            "repetitions": [
                [self.names.index(name) for name in pair] for pair in self.repetitions.values()
            ],
            "combinations": {
                str(i): np.column_stack([kept, self.counts[i]]).tolist()
                for i, kept in self.combinations.items()
            },
            "forms": pack(list(self.forms)),
        }

    @classmethod
    def restore(
        cls, constraints: Sequence[Constraint], encoder: ModeEncoder, learned: dict[str, Any]
    ) -> Rules:
        """The rules that `to_dict` described; a ValueError says what of it cannot be."""
        fields = {"differences": kind(dict), "combinations": kind(dict)}
        fields["repetitions"] = optional(several(pair(whole(), whole())))
        fields["forms"] = optional(Field("forms of columns", lambda value: True))
        check_fields(learned, fields, "the rules")
        forms = unpack(learned.pop("forms", []))
        if not all(isinstance(form, ColumnForm) for form in forms):
            raise ValueError("the rules have forms of columns that are none")
        repeating = learned.pop("repetitions", [])
        differences: dict[int, Any] = {}
        combinations: dict[int, np.ndarray] = {}
        for name, parts in learned.items():
            for i, value in parts.items():
                wanted = Inequality if name == "differences" else FixedCombinations
                at = int(i) if i.isdecimal() and len(i) < 9 else len(constraints)
                if at >= len(constraints) or not isinstance(constraints[at], wanted):
                    raise ValueError(f"the rules have {name} of {i[:20]!r}, which is no such one")
                if name == "differences":
                    differences[at] = value
                else:
                    check_fields({i: value}, {i: several(several(whole()), 1)}, "the rules")
                    if len({len(row) for row in value}) != 1 or len(value[0]) < 3:
                        raise ValueError(f"the combinations of {constraints[at]!r} are no table")
                    combinations[at] = np.array(value, dtype=np.int64)
        keys = encoder.schema_.keys
        last = len(keys) - len(repeating)
        n = last - len(differences)
        if keys[n:last] != list(differences.values()):
            raise ValueError("the differences are not before the encoder's last columns")
        if n < 1 or any(j >= n for both in repeating for j in both):
            raise ValueError("columns that repeat others are not the encoder's")
        repetitions = {
            name: (keys[j], keys[k]) for name, (j, k) in zip(keys[last:], repeating, strict=True)
        }
        rules = cls(constraints, keys[:n], differences, combinations, repetitions)
        rules.forms = tuple(forms)
        rules.bind(encoder)
        for i, each in enumerate(constraints):
            if not isinstance(each, FixedCombinations) or len(rules._discrete(i)) < 2:
                continue
            kept = rules.combinations.get(i, np.empty(0))
            sizes = [rules._coders[name].size for name in rules._discrete(i)]
            if kept.ndim != 2 or kept.shape[1] != len(sizes) or (kept >= sizes).any():
                raise ValueError(f"the combinations of {each!r} are not those of its columns")
            if (rules.counts[i] < 1).any():
                raise ValueError(f"the combinations of {each!r} have no rows")
        return rules

    def _discrete(self, i: int) -> list[Any]:
        """The columns of a constraint that are not constant."""
        return [name for name in self.columns[i] if self._coders[name].size > 1]

    def _spans_of(self, i: int) -> list[int]:
        encoder = self.encoder
        return [span_of(encoder, encoder.schema_.position(name)) for name in self._discrete(i)]

    # ---- rows that are made --------------------------------------------------------------------

    def read_forms(self, table: Any) -> Any:
        """A table of users with its dates and times as such, as the generator has learned them."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return table
        columns = {}
        for form in self.forms:
            name = self.names[form.column]
            if name in table:
                columns[name] = form.read(table[name], f"column {name!r}")
        table = table.copy(deep=False)
        for name, column in columns.items():
            table[name] = column
        return table

    def write_forms(self, table: Any) -> Any:
        """Rows with dates and times in the form that the fitted table has."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return table
        table = table.copy(deep=False)
        for form in self.forms:
            name = self.names[form.column]
            if name in table:
                table[name] = form.write(table[name])
        return table

    def fill_forms(self, table: Any, filled: Any) -> Any:
        """Filled rows with the known cells as they are in the table."""
        if not self.forms or not isinstance(table, pd.DataFrame):
            return filled
        filled = self.write_forms(filled)
        for form in self.forms:
            name = self.names[form.column]
            known = table[name].notna().to_numpy()
            filled[name] = table[name].where(known, filled[name])
        return filled

    def read_condition(self, name: Any, value: Any) -> Any:
        """A value, a list or a range of a condition, with dates and times as such."""
        forms = {self.names[form.column]: form for form in self.forms}
        if name not in forms:
            return value
        if isinstance(value, list | tuple | set):
            return type(value)(self.read_condition(name, part) for part in value)
        return forms[name].read_value(value, f"column {name!r}")

    def read_shares(self, name: Any, parts: Any) -> Any:
        """The shares of a column's values, with dates and times as such."""
        if not isinstance(parts, Mapping):
            return parts
        return {self.read_condition(name, value): share for value, share in parts.items()}

    def decode(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        conditions: Sequence[Condition] = (),
        made: dict[int, int] | None = None,
    ) -> Any:
        """The table of encoded rows that meet conditions, as it is given to users."""
        table = self.encoder.decode(values, codes, made=made)
        write_points(table, conditions)
        if self:
            columns = self.columns_of(table)
            self.complete(columns, *_fixed_by(conditions, len(codes)))
            table = self.put(table, columns)
        return table

    def coder(self, name: Any) -> CategoryColumn | NumberColumn | IdentifierColumn:
        """What encodes a column."""
        return self._coders[name]

    def consistent(
        self, values: np.ndarray, codes: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encoded rows after what follows from others is computed: those that meet all, if any."""
        table = self.encoder.decode(values, codes)
        columns = self.columns_of(table)
        self.complete(columns, {}, {})
        for name in self._computed():
            write_column(table, name, columns[name])
        encoded = self.encoder.encode(table, random_state=seed % 2**32)
        rows = np.flatnonzero(self.met(columns, codes).all(axis=0))
        kept = rows if len(rows) else slice(None)
        return encoded.values[kept], encoded.codes[kept].astype(np.int64)

    def _computed(self) -> set[Any]:
        """The columns that `complete` may change."""
        changed = {*self._relations, *self._nulls}
        changed.update(name for each in self._relations.values() for name in each.solvable)
        for constraint, names in zip(self.constraints, self.columns, strict=True):
            if isinstance(constraint, OneOf):
                changed.update(names)
        return changed

    def columns_of(self, table: Any) -> dict[Any, pd.Series]:
        """The columns of a decoded table."""
        return {name: column_of(table, name) for name in self._coders}

    def agree(self, name: Any, one: Any, other: Any) -> np.ndarray:
        """Where a column of one decoded table is as in another, (n,) bool."""
        a, b = column_of(one, name), column_of(other, name)
        return np.asarray((a == b).fillna(False).to_numpy(dtype=bool) | (a.isna() & b.isna()))

    def put(self, table: Any, columns: Columns) -> Any:
        """The decoded table with columns in the place of its own, without differences."""
        for name in self._computed():
            write_column(table, name, columns[name])
        return self.narrow(table)

    def complete(
        self,
        columns: dict[Any, pd.Series],
        given: Mapping[Any, np.ndarray],
        kept: Mapping[Any, np.ndarray],
        picks: np.ndarray | None = None,
        beyond: np.ndarray | bool = False,
    ) -> None:
        """Compute the cells that follow from others, in place.

        ``given`` has cells, (n,) bool by column, that stay as they are; ``kept`` those that stay
        where another column of an inequality can follow instead. ``picks``, (n,) of integers,
        choose among columns of which one is to be set, where given cells leave it open. ``beyond``,
        (n,) bool, tells where what given cells ask for may lie beyond a column's bounds.
        """
        n = len(next(iter(columns.values())))
        free = np.ones(n, dtype=bool)
        fixed = {name: given.get(name, ~free).copy() for name in columns}
        forward = [self._relations[name] for name in self._order if name in self._relations]
        if given:  # what follows from given cells alone
            for constraint, names in zip(self.constraints, self.columns, strict=True):
                if isinstance(constraint, OneOf):
                    self._set_one(columns, names, fixed, picks)
            for each in forward:
                known = np.all([fixed[name] for name in each.sources], axis=0)
                rows = known & ~fixed[each.target] & each.rows(columns)
                value = each.compute(columns)
                fixed[each.target] |= self._write(columns, each.target, rows, value, implied=True)
        if given or kept:
            for each in reversed(forward):
                rows = fixed[each.target].copy()
                if each.of_difference:
                    rows |= kept.get(each.target, ~free)
                rows &= columns[each.target].notna().to_numpy(dtype=bool) & each.rows(columns)
                for name in reversed(each.solvable):
                    open_ = rows & ~fixed[name] & ~kept.get(name, ~free)
                    solved = each.solve(name, columns) if open_.any() else None
                    if solved is None:
                        continue
                    known = np.all([fixed[n] for n in each.sources if n != name], axis=0)
                    known |= beyond
                    done = self._write(columns, name, open_ & known, solved, implied=True)
                    done |= self._write(columns, name, open_ & ~known, solved)
                    fixed[name] |= done
                    fixed[each.target] |= done
                    rows &= ~done
        for name in self._order:
            relation = self._relations.get(name)
            if relation is not None:
                rows = ~fixed[name] & relation.rows(columns)
                self._write(columns, name, rows, relation.compute(columns))
            for null in self._nulls.get(name, ()):
                rows = null.applies(columns) & ~fixed[name]
                if rows.any() and getattr(self._coders[name], "missing", False):
                    columns[name] = columns[name].mask(rows)

    def _set_one(
        self,
        columns: dict[Any, pd.Series],
        names: Sequence[Any],
        fixed: Mapping[Any, np.ndarray],
        picks: np.ndarray | None,
    ) -> None:
        """Set one of several columns, where the given ones or ``picks`` say which."""
        given = np.stack([fixed[name] for name in names])
        is_set = np.stack([is_set_in(columns[name]) for name in names])
        n_given = (given & is_set).sum(axis=0)
        free = ~given
        only = free.sum(axis=0) == 1
        if picks is not None:
            only |= is_set.sum(axis=0) != 1
        among = np.where((free & is_set).any(axis=0), free & is_set, free)
        place = (0 if picks is None else picks) % np.maximum(among.sum(axis=0), 1)
        chosen = among & (np.cumsum(among, axis=0) - 1 == place)
        for k, name in enumerate(names):
            clear = free[k] & is_set[k] & ((n_given == 1) | ((n_given == 0) & only & ~chosen[k]))
            if getattr(self._coders[name], "missing", False):
                columns[name] = columns[name].mask(clear)
            else:
                self._write(columns, name, clear, 0)
            rows = free[k] & ~is_set[k] & (n_given == 0) & only & chosen[k]
            if _is_binary(self._coders[name]):
                self._write(columns, name, rows, 1)

    def complete_each(
        self, table: Any, conditions: pd.DataFrame, rows: np.ndarray
    ) -> dict[Any, pd.Series]:
        """The columns of a decoded table whose rows have the cells of rows of conditions."""
        columns = self.columns_of(table)
        given = {name: column.notna().to_numpy()[rows] for name, column in conditions.items()}
        self.complete(columns, given, {})
        return columns

    def _write(
        self,
        columns: dict[Any, pd.Series],
        name: Any,
        rows: np.ndarray,
        value: Any,
        *,
        implied: bool = False,
    ) -> np.ndarray:
        """Put computed values into rows of a column where it can hold them; returns which, (n,).

        Those that are implied by given cells may lie beyond the column's bounds.
        """
        column = columns[name]
        rows = rows & column.notna().to_numpy(dtype=bool)
        if not rows.any() or value is None:
            return np.zeros(len(rows), dtype=bool)
        if not isinstance(value, pd.Series):
            value = pd.Series([value] * len(rows), dtype=object).infer_objects()
        coder = self._coders[name]
        if implied and isinstance(coder, NumberColumn):
            coder = _reaching(coder, value[rows])
        held, possible = _hold(coder, value)
        rows &= possible
        columns[name] = column.mask(rows, held.set_axis(column.index))
        return rows

    def met(self, columns: Columns, codes: np.ndarray | None) -> np.ndarray:
        """Find the rows that meet each constraint, (n_constraints, n) bool.

        ``codes``, (n, n_spans), are those of the rows; -1 for a value that the encoder does not
        know, which may stand beside any. Of equal rows only the first is unique.
        """
        found = []
        for i, each in enumerate(self.constraints):
            if i in self.combinations and codes is not None:
                found.append(self._is_combination(i, codes))
            else:
                found.append(each.holds(columns, self._decimals[i]))
        n = len(next(iter(columns.values())))
        return np.stack(found) if found else np.ones((0, n), dtype=bool)

    def combine(self, codes: np.ndarray, known: np.ndarray, seed: int) -> np.ndarray:
        """Codes with fixed combinations in the place of others, as frequent as in the table.

        Those that are known, (n, n_spans) bool, stay.
        """
        codes, rng = codes.copy(), np.random.default_rng(seed)
        for i, kept in self.combinations.items():
            spans = self._spans_of(i)
            for row in np.flatnonzero(~self._is_combination(i, codes)):
                fixed = known[row, spans]
                fits = (kept[:, fixed] == codes[row, spans][fixed]).all(axis=1)
                if fits.any():
                    weights = self.counts[i] * fits
                    chosen = rng.choice(len(kept), p=weights / weights.sum())
                    codes[row, spans] = kept[chosen]
        return codes

    def _is_combination(self, i: int, codes: np.ndarray) -> np.ndarray:
        own, kept = codes[:, self._spans_of(i)], self.combinations[i]
        known = pd.MultiIndex.from_arrays(list(kept.T))
        met = pd.MultiIndex.from_arrays(list(own.T)).isin(known) if len(own) else np.empty(0, bool)
        return np.asarray(met | (own < 0).any(axis=1))

    # ---- what is asked for ---------------------------------------------------------------------

    def restrict(self, conditions: Sequence[Condition]) -> list[Condition]:
        """Conditions, and what follows from them for the columns of fixed combinations.

        Raises ValueError if they leave no combination, or cannot be met beside a constraint.
        """
        self._refuse_conflicts(conditions)
        return self._narrow(conditions)

    def allows(self, conditions: Sequence[Condition]) -> bool:
        """Whether `restrict` takes these conditions."""
        try:
            self.restrict(conditions)
        except ValueError:
            return False
        return True

    def restrict_each(self, patterns: Sequence[Sequence[Condition]]) -> list[list[Condition]]:
        """The same of rows of one value a column: with what follows for certain.

        Raises ValueError if a fixed combination that is asked for is none.
        """
        if not self.combinations:
            return [list(pattern) for pattern in patterns]
        found: list[list[Condition]] = []
        for pattern in patterns:
            own = {each.column for each in pattern}
            more = [
                each
                for each in self._narrow(pattern)
                if isinstance(each, Codes) and len(each.codes) == 1 and each.column not in own
            ]
            found.append([*pattern, *more])
        return found

    def _narrow(self, conditions: Sequence[Condition]) -> list[Condition]:
        by_span = {each.span: each for each in conditions if isinstance(each, Codes)}
        others = [each for each in conditions if not isinstance(each, Codes)]
        for i, kept in self.combinations.items():
            spans = self._spans_of(i)
            asked = [by_span[span] for span in spans if span in by_span]
            if not asked:
                continue
            left = np.ones(len(kept), dtype=bool)
            for k, span in enumerate(spans):
                if span in by_span:
                    left &= np.isin(kept[:, k], by_span[span].codes)
            if not left.any():
                raise ValueError(
                    f"the conditions on {', '.join(repr(each.column) for each in asked)} require a "
                    f"combination that {self.constraints[i]!r} does not allow; it allows those of "
                    "at least min_frequency rows of the fitted table"
                )
            for k, (span, name) in enumerate(zip(spans, self._discrete(i), strict=True)):
                by_span[span] = Codes(name, span, tuple(np.unique(kept[left, k]).tolist()))
        return [*by_span.values(), *others]

    def _refuse_conflicts(self, conditions: Sequence[Condition]) -> None:
        """Refuse single values and ranges that no row of a constraint has together."""
        one: dict[Any, pd.Series] = {}
        ranges: dict[Any, tuple[Any, Any]] = {}
        for asked in conditions:
            if isinstance(asked, Codes) and len(asked.codes) == 1:
                coder = self._coders[asked.column]
                if isinstance(coder, CategoryColumn):
                    one[asked.column] = coder.decode(np.array(asked.codes))
            elif isinstance(asked, PointConditions) and len(asked.values) == 1:
                if not asked.missing:
                    one[asked.column] = asked.values
                    ranges[asked.column] = asked.values.iloc[0], asked.values.iloc[0]
            elif isinstance(asked, Range):
                ranges[asked.column] = asked.low, asked.high
        for each, names in zip(self.constraints, self.columns, strict=True):
            broken = False
            if all(name in one for name in names):
                broken = not each.holds({name: one[name] for name in names})[0]
            elif isinstance(each, Inequality) and (sides := each.sides(self.names)):
                low, high = ranges.get(sides[0], (None,))[0], ranges.get(sides[1], (None,))[-1]
                if low is not None and high is not None:
                    broken = low >= high if each.strict else low > high
            if broken:
                listed = ", ".join(map(repr, names))
                raise ValueError(f"the conditions on {listed} contradict {each!r}; change one")

    def refuse_unknown(self, asked: Iterable[Any]) -> None:
        """Refuse what is no column of the table, as one that is only learned beside it."""
        for name in asked:
            if name not in self.names:
                raise ValueError(no_column(name, self.names))

    def has_identifiers(self, constraint: Constraint) -> bool:
        """Whether a column of a constraint holds identifiers."""
        names = constraint.find_columns(self.names)
        return any(isinstance(self._coders[name], IdentifierColumn) for name in names)

    def refuse_more(self, n: int, conditions: Sequence[Condition]) -> None:
        """Refuse more rows than there are different ones of columns that are unique together."""
        asked = {each.column: each for each in conditions}
        for each in self.unique:
            names = each.find_columns(self.names)
            most = math.prod(self._n_values(name, asked.get(name)) for name in names)
            if n > most:
                raise ValueError(
                    f"{n:,} rows were requested, but {each!r} allows only {most:,.0f} "
                    "combinations; request fewer, or leave the constraint out"
                )

    def refuse_more_each(self, conditions: pd.DataFrame) -> None:
        """Refuse rows of conditions of which more agree than columns that are unique allow."""
        for each in self.unique:
            names = each.find_columns(self.names)
            given = [name for name in names if name in conditions.columns]
            if not given or any(isinstance(self._coders[name], IdentifierColumn) for name in names):
                continue
            for cells, n in conditions.groupby(given, dropna=False, observed=True).size().items():
                values = cells if isinstance(cells, tuple) and len(given) > 1 else (cells,)
                known = {name for name, value in zip(given, values, strict=True) if pd.notna(value)}
                free = [self._n_values(name, None) for name in names if name not in known]
                if n > math.prod(free):
                    listed = ", ".join(
                        f"{name!r} = {value!r}"
                        for name, value in zip(given, values, strict=True)
                        if name in known
                    )
                    raise ValueError(
                        f"{n:,} rows of conditions have {listed}, but {each!r} allows only "
                        f"{math.prod(free):,.0f} of them; leave the others out, or the constraint"
                    )

    def _n_values(self, name: Any, asked: Condition | None) -> float:
        """How many values a column may have at most; infinite if it may be missing.

        Rows with missing values are not compared with others.
        """
        coder = self._coders[name]
        if isinstance(coder, IdentifierColumn):
            return math.inf
        if isinstance(asked, Codes):
            missing = coder.size - 1 if coder.missing else -1
            return math.inf if missing in asked.codes else len(asked.codes)
        if isinstance(asked, PointConditions):
            return math.inf if asked.missing else len(asked.values)
        if isinstance(coder, CategoryColumn):
            return math.inf if coder.missing else len(coder.keys)
        if name in self._computed() or (
            coder.missing and not coder.rare and not isinstance(asked, Range)
        ):
            return math.inf
        step = _grid_step(coder)
        low, high = (offset_of(coder, end)[0] for end in map(python_scalar, coder.bounds))
        if isinstance(asked, Range):
            low = low if asked.low is None else max(low, offset_of(coder, asked.low)[0])
            high = high if asked.high is None else min(high, offset_of(coder, asked.high)[0])
        if step == 0:
            return math.inf
        return max(0, math.floor((high - low) / step + _GRID_SLACK) + 1)

    def refuse_broken(
        self, table: Columns | Iterable[Columns], what: str, *, given: bool = False
    ) -> None:
        """Raise an error that names the rows of a table, or of its parts, that break a constraint.

        With ``given`` cells that are missing may be anything.
        """
        broken: list[list[np.ndarray]] = [[] for _ in self.constraints]
        labels: list[list[np.ndarray]] = [[] for _ in self.constraints]
        n = 0
        for columns in [table] if isinstance(table, Mapping) else table:
            size = len(next(iter(columns.values())))
            for i, each in enumerate(self.constraints):
                names = self.columns[i]
                if given:
                    if any(name not in columns for name in names):
                        continue
                    there = np.all([columns[name].notna() for name in names], axis=0)
                else:
                    there = np.ones(size, dtype=bool)
                rows = np.flatnonzero(there)
                own = {name: columns[name].iloc[rows].reset_index(drop=True) for name in names}
                if isinstance(each, Unique):
                    own_labels, differ = each.labels(own)
                    broken[i].append(rows[differ] + n)
                    labels[i].append(own_labels[differ])
                else:
                    broken[i].append(rows[~each.holds(own)] + n)
            n += size
        for each, found, values in zip(self.constraints, broken, labels, strict=True):
            rows = np.concatenate([*found, np.empty(0, dtype=int)])
            if isinstance(each, Unique):
                rows = rows[pd.Series(np.concatenate([*values, np.empty(0)])).duplicated()]
            if len(rows):
                listed = ", ".join(map(str, rows[:_FIRST])) + ", ..." * (len(rows) > _FIRST)
                raise ValueError(
                    f"{len(rows):,} of {n:,} rows of {what} break {each!r}: rows {listed} (the "
                    "first is 0); correct or drop them, or leave the constraint out"
                )


def _kind(dtype: Any) -> str | None:
    """What of a column a difference is: of numbers, dates or durations; None of others."""
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.SparseDtype):
        return None
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    return "duration" if types.is_timedelta64_dtype(dtype) else None


def _grid_step(coder: NumberColumn) -> float:
    """The distance of neighbouring numbers, as the format counts them; 0 if none is known."""
    format = coder.format
    if hasattr(format, "step"):  # days of a time zone may be an hour shorter
        has_zone = getattr(format.dtype, "tz", None) is not None
        return float(format.step * 23 / 24 if has_zone else format.step)
    return 0.0 if format.decimals is None else math.ldexp(10.0**-format.decimals, -format.exponent)


def _is_binary(coder: CategoryColumn | NumberColumn | IdentifierColumn) -> bool:
    """Whether a column that is set is 1, or True."""
    if isinstance(coder, NumberColumn):
        return _kind(coder.bounds.dtype) == "number" and bool(coder.bounds.iloc[1] == 1)
    return isinstance(coder, CategoryColumn) and set(coder.keys) <= {0, 1}


def _reaching(coder: NumberColumn, value: pd.Series) -> NumberColumn:
    """A column whose bounds reach as far as some values."""
    format, kind = coder.format, _kind(coder.bounds.dtype)
    if kind != "number" and isinstance(coder.bounds.dtype, pd.ArrowDtype):
        return coder
    try:
        if kind != "number":
            value = value.dropna().astype(coder.bounds.dtype).astype("int64")
        numbers = exact_operand(value)
    except (TypeError, ValueError):  # of another kind
        return coder
    x = numbers[np.isfinite(as_floats(numbers))] if is_number(numbers) else numbers[:0]
    if not len(x):
        return coder
    low, high = (
        (x.min(), x.max())
        if hasattr(format, "decimals")
        else (
            math.floor(x.min()),
            math.ceil(x.max()),
        )
    )
    low, high = min(format.low, low), max(format.high, high)
    return replace(coder, format=replace(format, low=low, high=high))


def _hold(
    coder: CategoryColumn | NumberColumn | IdentifierColumn, value: pd.Series
) -> tuple[pd.Series, np.ndarray]:
    """Values as a column holds them, and where it can, (n,): within its bounds, say."""
    if isinstance(coder, CategoryColumn):
        codes = np.array([coder.codes.get(each, -1) for each in value.astype(object)], dtype=int)
        return coder.decode(np.maximum(codes, 0)), codes >= 0
    assert isinstance(coder, NumberColumn)
    format, (low, high) = coder.format, coder.bounds
    nothing = np.zeros(len(value), dtype=bool)
    if _kind(coder.bounds.dtype) != "number":
        try:
            value = value.astype(coder.bounds.dtype)
            possible = (value.ge(low) & value.le(high)).fillna(False).to_numpy(dtype=bool)
        except (TypeError, ValueError):  # of another kind
            return coder.bounds.iloc[[0] * len(value)], nothing
        x, _ = format.read(value.where(possible, low), "")
        return format.write(x, nothing), possible
    if types.is_bool_dtype(value.dtype):
        value = pd.Series(as_floats(value))
    if not is_number(value := exact_operand(value)):
        return coder.bounds.iloc[[0] * len(value)], nothing
    if hasattr(format, "step"):  # counted from the least one, in integers where they are large
        x = np.rint(as_floats(subtract(value, pd.Series(format.low, value.index, dtype=object))))
        possible = np.isfinite(x) & (x >= 0) & (x <= format.high - format.low)
        held = format.write(np.where(possible, x, 0.0), nothing)
        rows = np.flatnonzero(possible & (x >= 2**53) & is_exact(value))
        if len(rows):
            exact = held.astype(object)
            exact.iloc[rows] = [int(number) for number in value.iloc[rows]]
            held = exact.astype(held.dtype)
        return held, possible
    x = as_floats(value)
    if format.decimals is not None:
        x = np.round(x, format.decimals)
    possible = np.isfinite(x) & (x >= format.low) & (x <= format.high)
    return format.hold(np.where(possible, x, format.low), nothing), possible


def _fixed_by(
    conditions: Iterable[Condition], n: int
) -> tuple[dict[Any, np.ndarray], dict[Any, np.ndarray]]:
    """The columns that conditions give, and those that they bound; see `Rules.complete`."""
    given: dict[Any, np.ndarray] = {}
    kept: dict[Any, np.ndarray] = {}
    for each in conditions:
        (kept if isinstance(each, RANGES) else given)[each.column] = np.ones(n, dtype=bool)
    return given, kept


# ---- Rows that are looked for --------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnRows:
    """Encoded rows: values (n, n_values), codes (n, n_spans), and which were not found, (n,)."""

    values: np.ndarray
    codes: np.ndarray
    missed: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> DrawnRows:
        return DrawnRows(self.values[rows], self.codes[rows], self.missed[rows])


class Search:
    """One call's rows: which meet all constraints, what those that do not broke, what is unique.

    ``conditions`` are those that `Rules.decode` will be told. Rows with new identifiers are unique:
    only where those of a table are ``kept`` are they looked at.
    """

    def __init__(
        self, rules: Rules, conditions: Sequence[Condition] = (), kept: bool = False
    ) -> None:
        self.rules, self._conditions = rules, conditions
        self._unique = [each for each in rules.unique if kept or not rules.has_identifiers(each)]
        self.n_judged, self.n_unique = 0, len(self._unique)
        k = len(rules.constraints) + 1  # the conditions are the last
        self._together = np.zeros((k, k))
        self._taken: list[set[int]] = [set() for _ in self._unique]

    def judge(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        conditions: Sequence[Condition],
        checked: Sequence[Condition],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the rows, (n,), that meet constraints and conditions, and what is unique in them.

        ``checked`` are the conditions that they need not meet. The second is a number for each
        row's values of each `Unique`, (n, n_unique); the third says where these are to differ.
        """
        rules = self.rules
        table = rules.encoder.decode(values, codes)
        met = all_met([each for each in checked if not isinstance(each, RANGES)], codes, table)
        rows = np.flatnonzero(met)
        table = table.iloc[rows] if isinstance(table, pd.DataFrame) else table[rows]
        if isinstance(table, pd.DataFrame):
            table = table.reset_index(drop=True)
        write_points(table, conditions)
        columns = rules.columns_of(table)
        rules.complete(columns, *_fixed_by(self._conditions, len(rows)))
        inside = np.ones(len(rows), dtype=bool)
        frame = pd.DataFrame(
            {each.column: columns[each.column] for each in conditions if isinstance(each, RANGES)}
        )
        for each in conditions:
            if isinstance(each, RANGES):
                inside &= each.met(codes, frame)
        found = self.count(columns, codes[rows], inside)
        made = [np.zeros((len(met), *each.shape[1:]), dtype=each.dtype) for each in found]
        for every, part in zip(made, found, strict=True):
            every[rows] = part
        return made[0], made[1], made[2]

    def count(
        self, columns: Columns, codes: np.ndarray, met: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of completed columns, of which some meet the conditions."""
        rules = self.rules
        each = rules.met(columns, codes)
        for i, constraint in enumerate(rules.constraints):
            if isinstance(constraint, Unique):
                each[i] = True  # until it is known which rows are kept
        every = np.vstack([each, met]).astype(float)
        self._together += every @ every.T
        self.n_judged += len(met)
        return each.all(axis=0) & met, *self._labels(columns, len(met))

    def labels(self, values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `judge` finds unique in rows: two arrays of shape (n, n_unique)."""
        table = self.rules.decode(values, codes, self._conditions) if self.n_unique else None
        return self._labels({} if table is None else read_columns(table), len(codes))

    def _labels(self, columns: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.zeros((n, self.n_unique), dtype=np.uint64)
        differ = np.zeros(labels.shape, dtype=bool)
        for u, unique in enumerate(self._unique):
            labels[:, u], differ[:, u] = unique.labels(columns)
        return labels, differ

    def pilot(self) -> Search:
        """A search by the same rules for rows that may be equal, as not all of them are kept."""
        found = Search(self.rules, self._conditions)
        found._taken = []
        return found

    def unseen(self, labels: np.ndarray, differ: np.ndarray) -> np.ndarray:
        """Find the rows, (n,), whose unique values are in no row before, nor taken."""
        fresh = np.ones(len(labels), dtype=bool)
        for u, taken in enumerate(self._taken):
            rows = np.flatnonzero(fresh & differ[:, u])
            own = pd.Series(labels[rows, u])
            fresh[rows[own.duplicated() | own.isin(taken)]] = False
        return fresh

    def take(self, labels: np.ndarray, differ: np.ndarray) -> None:
        """Note that rows are kept, which no later one may equal."""
        for u, taken in enumerate(self._taken):
            taken.update(labels[differ[:, u], u].tolist())

    def take_columns(self, columns: Columns) -> None:
        """The same of the columns of a table."""
        for taken, unique in zip(self._taken, self._unique, strict=True):
            labels, differ = unique.labels(columns)
            taken.update(labels[differ].tolist())

    def reserve(self, columns: Columns, given: Mapping[Any, np.ndarray]) -> np.ndarray:
        """Take the unique values of rows where all of them are given, before rows are drawn.

        ``given`` tells by column which cells are given, (n,) bool. Returns the rows whose values
        are now reserved for them, (n, n_unique) bool; of equal rows only the first.
        """
        n = len(next(iter(columns.values())))
        reserved = np.zeros((n, self.n_unique), dtype=bool)
        for u, unique in enumerate(self._unique):
            names = unique.find_columns(self.rules.names)
            if any(name not in given for name in names):
                continue
            labels, differ = unique.labels(columns)
            rows = np.flatnonzero(np.all([given[name] for name in names], axis=0) & differ)
            values = pd.Series(labels[rows])
            rows = rows[~(values.duplicated() | values.isin(self._taken[u])).to_numpy()]
            reserved[rows, u] = True
            self._taken[u].update(labels[rows].tolist())
        return reserved

    def explain(self) -> str:
        """Say which constraints the rows broke, those in conflict first."""
        names = [*map(repr, self.rules.constraints), "the conditions"]
        alone = np.diag(self._together)
        if not self.n_judged:
            return ""
        never = [name for name, n in zip(names, alone, strict=True) if not n]
        if never:
            return f"no row of {self.n_judged:,} that were tried met {' or '.join(never)}"
        pairs = np.argwhere(np.triu(self._together == 0, 1))
        if len(pairs):
            i, j = pairs[0]
            return f"no row of {self.n_judged:,} that were tried met both {names[i]} and {names[j]}"
        shares = sorted(zip(alone / self.n_judged, names, strict=True))
        rare = [f"{name} ({share:.2%})" for share, name in shares if share < 0.5][:3]
        told = f"{self.n_judged:,} rows were tried"
        if self._unique:
            told += f"; no two may be equal in {' or '.join(map(repr, self._unique))}"
        return told + (f"; few met {', '.join(rare)}" if rare else "")

    def redraw(
        self,
        made: DrawnRows,
        draw: Callable[[np.ndarray, int, int], DrawnRows],
        complete: Callable[[np.ndarray, DrawnRows], tuple[Columns, np.ndarray]],
        key: int,
        max_tries: int,
        reserved: np.ndarray | None = None,
    ) -> DrawnRows:
        """Draw rows anew, each by itself, until they meet the constraints.

        After some attempts values are exchanged between rows, so that those are found that only
        suit all rows together.

        Parameters
        ----------
        made : DrawnRows
            As they were drawn at first.
        draw : callable
            (positions, key, attempt) -> rows in the place of those there.
        complete : callable
            (positions, rows) -> their columns, and their codes as `Rules.met` has them.
        key, max_tries : int
        reserved : ndarray of bool, (n, n_unique), optional
            The rows whose unique values are given, as `reserve` found them.

        Returns
        -------
        DrawnRows : those that were never met are missed
        """
        n, lost = len(made.missed), made.missed  # by a search that was as long
        values, codes, left = made.values.copy(), made.codes.copy(), ~lost
        rows, n_made, attempt = np.arange(n), 0, 0
        if reserved is None:
            reserved = np.zeros((n, self.n_unique), dtype=bool)
        owners: list[dict[int, int]] = [{} for _ in range(self.n_unique)]  # label -> row
        while True:
            n_made += max(1, len(rows))
            rows, made = rows[~made.missed], made[~made.missed]
            columns, row_codes = complete(rows, made)
            met, labels, differ = self.count(columns, row_codes, np.ones(len(rows), dtype=bool))
            differ &= ~reserved[rows]
            candidates = np.flatnonzero(met)
            if attempt >= _BEFORE_SWAPS and self.n_unique == 1 and differ[candidates].all():
                place = self._match(rows, candidates, labels, owners[0], left)
            else:
                place = self._choose(rows, candidates, labels, differ)
            if attempt >= _BEFORE_SWAPS and self.n_unique > 1:
                candidates = candidates[~np.isin(rows[candidates], rows[place])]
                swapped = self._swap(rows, candidates, labels, differ, owners, left)
                place = np.concatenate([place, swapped])
            for u, owner in enumerate(owners):
                labelled = place[differ[place, u]]
                owner.update(
                    zip(labels[labelled, u].tolist(), rows[labelled].tolist(), strict=True)
                )
            here = rows[place]
            values[here], codes[here], left[here] = made.values[place], made.codes[place], False
            still = np.flatnonzero(left)
            if not len(still) or n_made > max_tries * max(n, _AT_ONCE):
                return DrawnRows(values, codes, left | lost)
            attempt += 1
            if attempt >= _BEFORE_SWAPS and self.n_unique == 1:
                both = np.union1d(still, list(owners[0].values())).astype(still.dtype)
                still = both if len(both) <= _AT_ONCE else still
            rows = np.repeat(still, max(1, min(2**attempt, _AT_ONCE // len(still))))
            made = draw(rows, fold_in(key, Stream.REDRAWN, attempt), attempt)

    def _choose(
        self, rows: np.ndarray, candidates: np.ndarray, labels: np.ndarray, differ: np.ndarray
    ) -> np.ndarray:
        """Take the first candidate of each row whose unique values are free; returns these.

        ``candidates`` are positions in the other arrays, and ``rows`` those that they are for.
        """
        chosen: list[np.ndarray] = []
        while len(candidates):
            first = candidates[~pd.Series(rows[candidates]).duplicated().to_numpy()]
            fresh = first[self.unseen(labels[first], differ[first])]
            self.take(labels[fresh], differ[fresh])
            chosen.append(fresh)
            candidates = np.setdiff1d(candidates, first, assume_unique=True)
            candidates = candidates[~np.isin(rows[candidates], rows[fresh])]
            for u, taken in enumerate(self._taken):
                is_free = ~pd.Series(labels[candidates, u]).isin(taken).to_numpy(dtype=bool)
                candidates = candidates[is_free | ~differ[candidates, u]]
        return np.concatenate([*chosen, np.empty(0, dtype=np.intp)])

    def _match(
        self,
        rows: np.ndarray,
        candidates: np.ndarray,
        labels: np.ndarray,
        owner: dict[int, int],
        left: np.ndarray,
    ) -> np.ndarray:
        """Distribute the values of one `Unique` over as many rows as possible, drawn ones too.

        ``owner`` has the row of each label that a drawn row has. Rows that get another value, or
        none, are ``left``. Returns the candidates that are taken.
        """
        from scipy.sparse.csgraph import maximum_bipartite_matching

        fixed = self._taken[0] - owner.keys()
        drawn = pd.DataFrame({"row": rows[candidates], "label": labels[candidates, 0]})
        drawn["place"] = candidates
        now = pd.DataFrame({"row": list(owner.values()), "label": list(owner)}, dtype=np.uint64)
        edges = pd.concat([now.astype({"row": rows.dtype}).assign(place=-1), drawn])
        edges = edges[~edges["label"].isin(fixed)].drop_duplicates(["row", "label"])
        if edges.empty:
            return np.empty(0, dtype=np.intp)
        row_codes, row_of = pd.factorize(edges["row"])
        label_codes, _ = pd.factorize(edges["label"])
        graph = sparse.csr_array((np.ones(len(edges), dtype=np.int8), (row_codes, label_codes)))
        label_of_row = maximum_bipartite_matching(graph, perm_type="column")
        matched = edges[label_of_row[row_codes] == label_codes]
        left[row_of] = True
        left[matched["row"]] = False
        owner.clear()
        owner.update(zip(matched["label"].tolist(), matched["row"].tolist(), strict=True))
        self._taken[0] = fixed | owner.keys()
        return matched.loc[matched["place"] >= 0, "place"].to_numpy(dtype=np.intp)

    def _swap(
        self,
        rows: np.ndarray,
        candidates: np.ndarray,
        labels: np.ndarray,
        differ: np.ndarray,
        owners: Sequence[dict[int, int]],
        left: np.ndarray,
    ) -> np.ndarray:
        """Take a candidate for each row whose values only drawn rows have; these are ``left`` then.

        ``owners`` has the drawn row of each label, for each `Unique`. Returns the candidates.
        """
        chosen: list[int] = []
        for place in candidates[~pd.Series(rows[candidates]).duplicated().to_numpy()].tolist():
            own_labels = {u: int(labels[place, u]) for u in np.flatnonzero(differ[place]).tolist()}
            conflicts = {u: label for u, label in own_labels.items() if label in self._taken[u]}
            if any(label not in owners[u] for u, label in conflicts.items()):
                continue
            for row in {owners[u][label] for u, label in conflicts.items()}:
                left[row] = True
                for owner, taken in zip(owners, self._taken, strict=True):
                    released = [label for label, holder in owner.items() if holder == row]
                    taken.difference_update(released)
                    for label in released:
                        del owner[label]
            for u, label in own_labels.items():
                self._taken[u].add(label)
                owners[u][label] = int(rows[place])
            chosen.append(place)
        return np.array(chosen, dtype=np.intp)
