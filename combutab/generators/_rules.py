"""The constraints of a fitted generator: computed where possible, and checked in all rows.

Columns that follow from others are computed after they are drawn. Rows that break a constraint are
drawn again, so no value is clipped to meet one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.files import Field, check_fields, kind, optional, pair, several, whole
from combutab.core.state import pack, unpack
from combutab.core.text import no_column
from combutab.generators._cells import Coder, count_values, number_kind
from combutab.generators._learned_columns import LearnedColumns, TableForms, order_relations
from combutab.generators._places import Places
from combutab.generators._relations import Columns, PartialRows
from combutab.generators.conditions import (
    RANGES,
    Codes,
    Condition,
    PointConditions,
    Range,
    column_of,
    span_of,
    write_column,
    write_points,
)
from combutab.generators.constraints import Constraint, Coordinates
from combutab.generators.expressions import as_floats
from combutab.preprocessing import (
    ColumnForm,
    ModeEncoder,
)

_MAX_RARE_SHARE = 0.1  # of the rows, beyond which there is a warning


@dataclass(frozen=True)
class Combinations:
    """The combinations of codes that the columns of a constraint may have together.

    Parameters
    ----------
    constraint : Constraint
    names : list
        Its columns that are not constant.
    spans : list of int
        Their spans in the encoded rows.
    codes : ndarray of shape (n_combinations, n_columns)
    counts : ndarray of shape (n_combinations,)
        The number of rows of the fitted table that have each combination.
    """

    constraint: Constraint
    names: list[Any]
    spans: list[int]
    codes: np.ndarray
    counts: np.ndarray

    def holds(self, codes: np.ndarray) -> np.ndarray:
        """Find the encoded rows that have a combination, (n,) bool; a code of -1 is unknown."""
        row_codes = codes[:, self.spans]
        if not len(row_codes):
            return np.empty(0, dtype=bool)
        allowed = pd.MultiIndex.from_arrays(list(self.codes.T))
        is_allowed = pd.MultiIndex.from_arrays(list(row_codes.T)).isin(allowed)
        return np.asarray(is_allowed | (row_codes < 0).any(axis=1))

    def restrict(self, by_span: dict[int, Codes]) -> None:
        """Add the codes that are possible with those allowed in other spans.

        Raises ValueError if no combination is possible.
        """
        restricted = [span for span in self.spans if span in by_span]
        if not restricted:
            return
        possible = np.ones(len(self.codes), dtype=bool)
        for k, span in enumerate(self.spans):
            if span in by_span:
                possible &= np.isin(self.codes[:, k], by_span[span].codes)
        if not possible.any():
            listed = ", ".join(repr(by_span[span].column) for span in restricted)
            raise ValueError(
                f"the conditions on {listed} require a combination that {self.constraint!r} does "
                "not allow; it allows those of at least min_frequency rows of the fitted table"
            )
        for k, (span, name) in enumerate(zip(self.spans, self.names, strict=True)):
            codes = np.unique(self.codes[possible, k]).tolist()
            by_span[span] = Codes(name, span, tuple(codes))

    def replace(self, codes: np.ndarray, is_fixed: np.ndarray, rng: np.random.Generator) -> None:
        """Replace other combinations in encoded rows, in place, by random ones with these counts.

        Codes that are ``is_fixed``, (n, n_spans) bool, stay.
        """
        for row in np.flatnonzero(~self.holds(codes)):
            is_known = is_fixed[row, self.spans]
            row_codes = codes[row, self.spans]
            fits = (self.codes[:, is_known] == row_codes[is_known]).all(axis=1)
            if fits.any():
                weights = self.counts * fits
                choice = rng.choice(len(self.codes), p=weights / weights.sum())
                codes[row, self.spans] = self.codes[choice]

    def check(self, coders: Mapping[Any, Coder]) -> None:
        """Raise ValueError if they cannot be those of the columns, as in a damaged file."""
        sizes = [coders[name].size for name in self.names]
        if self.codes.ndim != 2 or self.codes.shape[1] != len(sizes) or (self.codes >= sizes).any():
            raise ValueError(
                f"the combinations of {self.constraint!r} are not those of its columns"
            )
        if (self.counts < 1).any():
            raise ValueError(f"the combinations of {self.constraint!r} have no rows")


class Rules:
    """The constraints of a fitted generator, in the order in which columns are computed.

    Parameters
    ----------
    constraints : sequence of Constraint
    encoder : ModeEncoder
        The fitted encoder of the table with the learned columns.
    learned : LearnedColumns, optional
        The columns that are learned in addition to those of the table.
    forms : sequence of ColumnForm
        The forms of the table's dates and times.

    Raises
    ------
    ValueError
        If a constraint does not apply to the kind of a column, or columns are computed in a circle.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        encoder: ModeEncoder,
        learned: LearnedColumns | None = None,
        forms: Sequence[ColumnForm] = (),
    ) -> None:
        self.constraints, self.encoder = tuple(constraints), encoder
        self.learned = LearnedColumns(encoder.schema_.keys) if learned is None else learned
        self.names = self.learned.names
        self.forms = TableForms(self.names, forms)
        self.coders: dict[Any, Coder] = dict(
            zip(encoder.schema_.keys, encoder.columns_, strict=True)
        )
        self.columns = [constraint.find_columns(self.names) for constraint in self.constraints]
        self.relations = order_relations(self.constraints, self.learned, self.coders)
        self.combinations: dict[int, Combinations] = {}
        self.places: dict[int, Places] = {}
        self._decimals = []
        for constraint, names in zip(self.constraints, self.columns, strict=True):
            constraint.check_coders({name: self.coders[name] for name in names})
            self._decimals.append(_decimals_of(self.coders[names[0]]))

    def __bool__(self) -> bool:
        return bool(self.constraints or self.repetitions)

    @property
    def repetitions(self) -> dict[Any, tuple[Any, Any]]:
        """By indicator, a column and the one whose value it has where the indicator is 1."""
        return self.learned.repetitions

    def learn_combinations(self, codes: np.ndarray, min_count: int) -> list[str]:
        """Learn the combinations of codes in encoded rows; returns warnings about rare ones.

        Raises ValueError if no combination occurs in ``min_count`` rows.
        """
        messages = []
        for i, constraint in enumerate(self.constraints):
            names, spans = self._varying(i)
            if not constraint.combines_codes or len(names) < 2:
                continue  # with constants, each value has one combination
            combinations, counts = np.unique(codes[:, spans], axis=0, return_counts=True)
            frequent = counts >= min_count
            for k, name in enumerate(names):
                frequent &= combinations[:, k] != self.coders[name].suppressed
            if not frequent.any():
                raise ValueError(
                    f"{constraint!r}: no combination occurs in min_frequency ({min_count}) rows; "
                    "lower min_frequency, or leave the constraint out"
                )
            kept_codes = combinations[frequent].astype(np.int64)
            self.combinations[i] = Combinations(
                constraint, names, spans, kept_codes, counts[frequent]
            )
            rare_share = 1 - counts[frequent].sum() / counts.sum()
            if rare_share > _MAX_RARE_SHARE:
                messages.append(
                    f"{rare_share:.0%} of the rows have combinations of {constraint!r} that fewer "
                    "rows than min_frequency have: they are not made; join rare values into "
                    "groups, or lower min_frequency"
                )
        return messages

    def learn_places(self, columns: Columns, min_count: int) -> None:
        """Learn the places of `Coordinates` in the columns of the fitted table."""
        for i, constraint in enumerate(self.constraints):
            names = self.columns[i]
            if isinstance(constraint, Coordinates) and len(self._varying(i)[0]) == len(names):
                points = np.column_stack([as_floats(columns[name]) for name in names])
                boxes = Places.learn(points[np.isfinite(points).all(axis=1)], min_count)
                if boxes is not None:
                    self.places[i] = boxes

    def in_places(self, columns: Columns) -> dict[int, np.ndarray]:
        """Find the rows that meet each `Coordinates`, (n,) bool, by position."""
        return {
            i: boxes.contain(np.column_stack([as_floats(columns[n]) for n in self.columns[i]]))
            for i, boxes in self.places.items()
        }

    def _varying(self, i: int) -> tuple[list[Any], list[int]]:
        """The columns of a constraint that are not constant, and their spans."""
        names = [name for name in self.columns[i] if self.coders[name].size > 1]
        position = self.encoder.schema_.position
        return names, [span_of(self.encoder, position(name)) for name in names]

    # ---- files ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Describe the learned parts of the constraints, for a file."""
        return {
            "differences": {str(i): name for i, name in self.learned.differences.items()},
            "repetitions": [
                [self.names.index(name) for name in pair] for pair in self.repetitions.values()
            ],
            "combinations": {
                str(i): np.column_stack([learned.codes, learned.counts]).tolist()
                for i, learned in self.combinations.items()
            },
            "places": {str(i): boxes.maps.tolist() for i, boxes in self.places.items()},
            "forms": pack(list(self.forms.forms)),
        }

    @classmethod
    def restore(
        cls, constraints: Sequence[Constraint], encoder: ModeEncoder, state: dict[str, Any]
    ) -> Rules:
        """Make the rules that `to_dict` described; raises ValueError if they are not valid."""
        fields = {"differences": kind(dict), "combinations": kind(dict)}
        fields["repetitions"] = optional(several(pair(whole(), whole())))
        fields["places"] = optional(kind(dict))
        fields["forms"] = optional(Field("forms of columns", lambda value: True))
        check_fields(state, fields, "the rules")
        forms = unpack(state.get("forms", []))
        if not all(isinstance(form, ColumnForm) for form in forms):
            raise ValueError("the rules have forms of columns that are not valid")
        learned = _restore_learned(constraints, encoder.schema_.keys, state)
        rules = cls(constraints, encoder, learned, forms)
        for text, rows in state["combinations"].items():
            i = _position(text, [constraint.combines_codes for constraint in constraints])
            check_fields({text: rows}, {text: several(several(whole()), 1)}, "the rules")
            if len({len(row) for row in rows}) != 1 or len(rows[0]) < 3:
                raise ValueError(f"the combinations of {constraints[i]!r} are not a table")
            table = np.array(rows, dtype=np.int64)
            rules.combinations[i] = Combinations(
                constraints[i], *rules._varying(i), table[:, :-1], table[:, -1]
            )
            rules.combinations[i].check(rules.coders)
        for text, maps in state.get("places", {}).items():
            i = _position(text, [isinstance(constraint, Coordinates) for constraint in constraints])
            rules.places[i] = Places.read(maps)
        for i, constraint in enumerate(constraints):
            is_learned = constraint.combines_codes and len(rules._varying(i)[0]) > 1
            if is_learned and i not in rules.combinations:
                raise ValueError(f"the combinations of {constraint!r} are missing")
        return rules

    # ---- rows ----------------------------------------------------------------------------------

    def decode(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        conditions: Sequence[Condition] = (),
        n_before: int = 0,
    ) -> Any:
        """Decode rows that meet conditions, with the computed columns and without learned ones."""
        table = self.encoder.decode(values, codes, n_before=n_before)
        write_points(table, conditions)
        if self:
            columns = self.columns_of(table)
            table = self.put(table, self.complete(self.partial_rows(columns, conditions)))
        return table

    def partial_rows(self, columns: Columns, conditions: Sequence[Condition]) -> PartialRows:
        """Rows whose cells in columns with conditions are fixed, or bounded by a range."""
        every_row = np.ones(len(next(iter(columns.values()))), dtype=bool)
        fixed = {c.column: every_row for c in conditions if not isinstance(c, RANGES)}
        bounded = {c.column: every_row for c in conditions if isinstance(c, RANGES)}
        return PartialRows(columns, self.coders, fixed, bounded)

    def complete(self, rows: PartialRows) -> dict[Any, pd.Series]:
        """Compute the cells that follow from others; returns the columns."""
        relations = [relation for relation in self.relations if relation.computes]
        if rows.has_fixed:
            for constraint in self.constraints:
                constraint.propagate(rows)
            for relation in relations:
                rows.write_implied(relation)
        if rows.has_fixed or rows.has_bounded:
            for relation in reversed(relations):
                rows.solve(relation)
        for relation in self.relations:
            relation.complete(rows)
        return rows.columns

    def complete_each(
        self, table: Any, conditions: pd.DataFrame, rows: np.ndarray
    ) -> dict[Any, pd.Series]:
        """Compute the columns of a decoded table, with the cells of rows of conditions fixed."""
        fixed = {name: column.notna().to_numpy()[rows] for name, column in conditions.items()}
        return self.complete(PartialRows(self.columns_of(table), self.coders, fixed))

    def consistent(
        self, values: np.ndarray, codes: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute columns of encoded rows, and select those that meet the constraints, if any."""
        table = self.encoder.decode(values, codes)
        columns = self.complete(PartialRows(self.columns_of(table), self.coders, {}))
        for name in self.computed_columns():
            write_column(table, name, columns[name])
        encoded = self.encoder.encode(table, random_state=seed % 2**32)
        is_valid = self.met(columns, codes).all(axis=0)
        rows = is_valid if is_valid.any() else np.ones(len(codes), dtype=bool)
        return encoded.values[rows], encoded.codes[rows].astype(np.int64)

    def computed_columns(self) -> set[Any]:
        """The columns that `complete` may change."""
        names = {relation.target for relation in self.relations}
        names.update(name for relation in self.relations for name in relation.solvable)
        for constraint, columns in zip(self.constraints, self.columns, strict=True):
            names.update(columns if constraint.sets_one else ())
        return names

    def columns_of(self, table: Any) -> dict[Any, pd.Series]:
        """The columns of a decoded table."""
        return {name: column_of(table, name) for name in self.coders}

    def put(self, table: Any, columns: Columns) -> Any:
        """Put computed columns into a decoded table, and remove learned ones."""
        for name in self.computed_columns():
            write_column(table, name, columns[name])
        return self.learned.drop(table)

    def met(self, columns: Columns, codes: np.ndarray | None) -> np.ndarray:
        """Find the rows that meet each constraint, (n_constraints, n) bool.

        ``codes``, (n, n_spans), are those of the rows; -1 for a value that the encoder does not
        know. The first of equal rows is unique.
        """
        is_met = []
        for i, constraint in enumerate(self.constraints):
            if i in self.combinations and codes is not None:
                is_met.append(self.combinations[i].holds(codes))
            else:
                is_met.append(constraint.holds(columns, self._decimals[i]))
        n = len(next(iter(columns.values())))
        return np.stack(is_met) if is_met else np.ones((0, n), dtype=bool)

    def combine(self, codes: np.ndarray, is_fixed: np.ndarray, seed: int) -> np.ndarray:
        """Codes with fixed combinations instead of others; known ones, (n, n_spans) bool, stay."""
        codes, rng = codes.copy(), np.random.default_rng(seed)
        for combinations in self.combinations.values():
            combinations.replace(codes, is_fixed, rng)
        return codes

    # ---- requests ------------------------------------------------------------------------------

    def restrict(self, conditions: Sequence[Condition]) -> list[Condition]:
        """Conditions, and those that they imply for the columns of fixed combinations.

        Raises ValueError if they leave no combination, or contradict a constraint.
        """
        # single values and ranges that no row of a constraint has together
        values: dict[Any, pd.Series] = {}
        ranges: dict[Any, tuple[Any, Any]] = {}
        for condition in conditions:
            value = condition.single_value(self.coders[condition.column])
            if value is not None:
                values[condition.column] = value
            if isinstance(condition, PointConditions) and value is not None:
                ranges[condition.column] = value.iloc[0], value.iloc[0]
            if isinstance(condition, Range):
                ranges[condition.column] = condition.low, condition.high
        for constraint, names in zip(self.constraints, self.columns, strict=True):
            if constraint.contradicts(self.names, values, ranges):
                listed = ", ".join(map(repr, names))
                raise ValueError(
                    f"the conditions on {listed} contradict {constraint!r}; change one"
                )
        return self._restrict_codes(conditions)

    def allows(self, conditions: Sequence[Condition]) -> bool:
        """Whether `restrict` accepts these conditions."""
        try:
            self.restrict(conditions)
        except ValueError:
            return False
        return True

    def restrict_each(self, patterns: Sequence[Sequence[Condition]]) -> list[list[Condition]]:
        """Conditions of rows with one value per column, and the values that follow from them.

        Raises ValueError if a combination is not allowed.
        """
        if not self.combinations:
            return [list(pattern) for pattern in patterns]
        restricted: list[list[Condition]] = []
        for pattern in patterns:
            columns = {condition.column for condition in pattern}
            implied = [
                condition
                for condition in self._restrict_codes(pattern)
                if isinstance(condition, Codes)
                and len(condition.codes) == 1
                and condition.column not in columns
            ]
            restricted.append([*pattern, *implied])
        return restricted

    def _restrict_codes(self, conditions: Sequence[Condition]) -> list[Condition]:
        by_span = {c.span: c for c in conditions if isinstance(c, Codes)}
        for combinations in self.combinations.values():
            combinations.restrict(by_span)
        return [*by_span.values(), *(c for c in conditions if not isinstance(c, Codes))]

    def refuse_unknown(self, names: Sequence[Any]) -> None:
        """Refuse names that are not columns of the table, including those of learned columns."""
        for name in names:
            if name not in self.names:
                raise ValueError(no_column(name, self.names))

    def has_identifiers(self, constraint: Constraint) -> bool:
        """Whether a column of a constraint holds identifiers."""
        names = constraint.find_columns(self.names)
        return any(self.coders[name].is_identifier for name in names)

    @property
    def unique(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The constraints that compare rows, with their columns."""
        pairs = zip(self.constraints, self.columns, strict=True)
        return [(constraint, names) for constraint, names in pairs if constraint.compares_rows]

    def refuse_more(self, n: int, conditions: Sequence[Condition]) -> None:
        """Refuse more rows than there are different values of columns that are unique together."""
        by_column = {condition.column: condition for condition in conditions}
        for constraint, names in self.unique:
            n_max = math.prod(self._count_values(name, by_column.get(name)) for name in names)
            if n > n_max:
                raise ValueError(
                    f"{n:,} rows were requested, but {constraint!r} allows only {n_max:,.0f} "
                    "combinations; request fewer, or leave the constraint out"
                )

    def refuse_more_each(self, conditions: pd.DataFrame) -> None:
        """Refuse rows of conditions if more of them agree than columns that are unique allow."""
        for constraint, names in self.unique:
            shared = [name for name in names if name in conditions.columns]
            if not shared or self.has_identifiers(constraint):
                continue
            for cells, n in conditions.groupby(shared, dropna=False, observed=True).size().items():
                values = cells if isinstance(cells, tuple) and len(shared) > 1 else (cells,)
                fixed_values = {
                    name: value
                    for name, value in zip(shared, values, strict=True)
                    if pd.notna(value)
                }
                n_max = math.prod(
                    self._count_values(n, None) for n in names if n not in fixed_values
                )
                if n > n_max:
                    listed = ", ".join(
                        f"{name!r} = {value!r}" for name, value in fixed_values.items()
                    )
                    raise ValueError(
                        f"{n:,} rows of conditions have {listed}, but {constraint!r} allows only "
                        f"{n_max:,.0f} of them; leave the others out, or the constraint"
                    )

    def _count_values(self, name: Any, condition: Condition | None) -> float:
        return count_values(self.coders[name], condition, name in self.computed_columns())


def _decimals_of(coder: Coder) -> int | None:
    """The number of decimals of a column of numbers; None for other columns."""
    if coder.is_continuous and number_kind(coder.bounds.dtype) == "number":
        return coder.format.decimals
    return None


def _position(text: str, is_valid: Sequence[bool]) -> int:
    """The position of a constraint in a file."""
    i = int(text) if text.isdecimal() and len(text) < 9 else len(is_valid)
    if i >= len(is_valid) or not is_valid[i]:
        raise ValueError(f"the rules have what was learned for {text[:20]!r}, which does not exist")
    return i


def _restore_learned(
    constraints: Sequence[Constraint], keys: list[Any], state: dict[str, Any]
) -> LearnedColumns:
    """The learned columns of a file: the last columns of the encoder."""
    pairs, differences = state.get("repetitions", []), state["differences"]
    first_indicator = len(keys) - len(pairs)
    n = first_indicator - len(differences)
    if keys[n:first_indicator] != list(differences.values()):
        raise ValueError("the differences are not before the encoder's last columns")
    if n < 1 or any(j >= n for pair in pairs for j in pair):
        raise ValueError("columns that repeat others are not the encoder's")
    sides = {i: pair for i, c in enumerate(constraints) if (pair := c.sides(keys[:n])) is not None}
    has_sides = [i in sides for i in range(len(constraints))]
    positions = {_position(text, has_sides): text for text in differences}
    sources = {differences[text]: sides[i] for i, text in positions.items()}
    for name, (j, k) in zip(keys[first_indicator:], pairs, strict=True):
        sources[name] = keys[j], keys[k]
    return LearnedColumns(
        keys[:n], {i: differences[text] for i, text in positions.items()}, sources
    )
