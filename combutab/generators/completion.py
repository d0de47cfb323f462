"""Completion of rows: rows are drawn until they meet the conditions and constraints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from combutab.core.rng import Stream, fold_in
from combutab.generators._relations import Columns
from combutab.generators._rules import Rules
from combutab.generators.conditions import RANGES, Condition, all_met, write_points

CHUNK = 5000  # rows that are drawn together, about
_BEFORE_SWAPS = 6  # attempts before rows exchange values


class ShortfallError(ValueError):
    """Too few rows that meet the conditions were found.

    Attributes
    ----------
    rows : DataFrame or array
        The rows that were found, in the form that ``sample`` returns.
    """

    def __init__(self, message: str, rows: Any = None) -> None:
        super().__init__(message)
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rows)


def report_shortfall(
    problem: str,
    completion: Completion | None,
    advice: str,
    rows: Any = None,
    on_shortfall: str = "error",
) -> None:
    """Raise an error about rows that were not found, or warn and return those that were."""
    reason = "" if completion is None else completion.explain()
    message = f"{problem}: {reason}" if reason else problem
    if on_shortfall == "return":
        warnings.warn(message, stacklevel=4)
        return
    if rows is not None and len(rows):
        message += "; the rows found are the error's .rows, and on_shortfall='return' returns them"
    raise ShortfallError(f"{message}; {advice}", rows)


def row_budget(n: int, max_tries: int) -> int:
    """The number of candidates that are drawn for n rows, at most; after that, rows are missing."""
    return max_tries * max(n, CHUNK)


@dataclass(frozen=True)
class DrawnRows:
    """Encoded rows: values (n, n_values), codes (n, n_spans), and which were not found, (n,)."""

    values: np.ndarray
    codes: np.ndarray
    missed: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> DrawnRows:
        return DrawnRows(self.values[rows], self.codes[rows], self.missed[rows])


@dataclass(frozen=True)
class UniqueValues:
    """The values of rows that no two rows may share, for each `Unique`.

    Parameters
    ----------
    labels : ndarray of shape (n, n_unique), uint64
        A number for the values of each row.
    is_compared : ndarray of shape (n, n_unique), bool
        Whether the row may not share them; rows with missing cells may.
    """

    labels: np.ndarray
    is_compared: np.ndarray

    @classmethod
    def empty(cls, n: int, n_unique: int) -> UniqueValues:
        """Values of rows that are not compared."""
        return cls(np.zeros((n, n_unique), dtype=np.uint64), np.zeros((n, n_unique), dtype=bool))

    def __getitem__(self, rows: np.ndarray) -> UniqueValues:
        return UniqueValues(self.labels[rows], self.is_compared[rows])

    def append(self, values: UniqueValues) -> UniqueValues:
        """These rows and further ones."""
        labels = np.concatenate([self.labels, values.labels])
        return UniqueValues(labels, np.concatenate([self.is_compared, values.is_compared]))


class Completion:
    """The rows of one request: which candidates meet the constraints, and which values are used.

    Parameters
    ----------
    rules : Rules
    conditions : sequence of Condition
        The conditions that the rows are decoded with; see `Rules.decode`.
    compares_identifiers : bool
        Whether rows have identifiers of a table; new identifiers are always unique.
    allows_equal : bool
        Whether rows may have equal unique values, because not all of them are kept.
    """

    def __init__(
        self,
        rules: Rules,
        conditions: Sequence[Condition] = (),
        compares_identifiers: bool = False,
        allows_equal: bool = False,
    ) -> None:
        self.rules, self._conditions = rules, conditions
        self._unique: list[Any] = [
            constraint
            for constraint, _ in rules.unique
            if compares_identifiers or not rules.has_identifiers(constraint)
        ]
        self.n_checked, self.n_unique = 0, len(self._unique)
        n_requirements = len(rules.constraints) + 1  # the conditions are the last
        self._n_met = np.zeros((n_requirements, n_requirements))  # by both of a pair
        self._used: list[set[int]] = [set() for _ in self._unique if not allows_equal]

    def pilot(self) -> Completion:
        """A completion for rows that may have equal unique values."""
        return Completion(self.rules, self._conditions, allows_equal=True)

    # ---- candidates ----------------------------------------------------------------------------

    def check(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        conditions: Sequence[Condition],
        checked: Sequence[Condition],
    ) -> tuple[np.ndarray, UniqueValues]:
        """Find the encoded rows that meet constraints and conditions, (n,), and unique values.

        ``checked`` are the conditions that the network's rows need not meet.
        """
        rules = self.rules
        table = rules.encoder.decode(values, codes)
        is_met = all_met([c for c in checked if not isinstance(c, RANGES)], codes, table)
        rows = np.flatnonzero(is_met)
        if isinstance(table, pd.DataFrame):
            table = table.iloc[rows].reset_index(drop=True)
        else:
            table = table[rows]
        write_points(table, conditions)
        columns = rules.complete(rules.partial_rows(rules.columns_of(table), self._conditions))
        ranges = [condition for condition in conditions if isinstance(condition, RANGES)]
        frame = pd.DataFrame({condition.column: columns[condition.column] for condition in ranges})
        in_ranges = all_met(ranges, codes[rows], frame)
        is_met[rows], row_values = self.check_columns(
            columns, codes[rows], in_ranges, rules.in_places(columns)
        )
        unique_values = UniqueValues.empty(len(codes), self.n_unique)
        unique_values.labels[rows] = row_values.labels
        unique_values.is_compared[rows] = row_values.is_compared
        return is_met, unique_values

    def check_columns(
        self,
        columns: Columns,
        codes: np.ndarray,
        meets_conditions: np.ndarray,
        in_places: Mapping[int, np.ndarray] = {},
    ) -> tuple[np.ndarray, UniqueValues]:
        """Find the completed rows that meet constraints and conditions, (n,), and unique values.

        ``in_places`` has the rows whose coordinates are not given that meet a constraint.
        """
        is_met = self.rules.met(columns, codes)
        for i, is_inside in in_places.items():
            is_met[i] = is_inside
        for i, constraint in enumerate(self.rules.constraints):
            if constraint.compares_rows:
                is_met[i] = True  # decided when rows are selected
        requirements = np.vstack([is_met, meets_conditions]).astype(float)
        self._n_met += requirements @ requirements.T
        self.n_checked += len(meets_conditions)
        unique_values = self.unique_values(columns, len(meets_conditions))
        return is_met.all(axis=0) & meets_conditions, unique_values

    def explain(self) -> str:
        """Name the constraints that the candidates violated, those in conflict first."""
        names = [*map(repr, self.rules.constraints), "the conditions"]
        n_met = np.diag(self._n_met)
        if not self.n_checked:
            return ""
        never_met = [name for name, n in zip(names, n_met, strict=True) if not n]
        if never_met:
            return f"no row of {self.n_checked:,} that were tried met {' or '.join(never_met)}"
        conflicts = np.argwhere(np.triu(self._n_met == 0, 1))
        if len(conflicts):
            i, j = conflicts[0]
            both = f"both {names[i]} and {names[j]}"
            return f"no row of {self.n_checked:,} that were tried met {both}"
        shares = sorted(zip(n_met / self.n_checked, names, strict=True))
        rare = [f"{name} ({share:.2%})" for share, name in shares if share < 0.5][:3]
        reason = f"{self.n_checked:,} rows were tried"
        if self._unique:
            reason += f"; no two may be equal in {' or '.join(map(repr, self._unique))}"
        return reason + (f"; few met {', '.join(rare)}" if rare else "")

    # ---- unique values -------------------------------------------------------------------------

    def unique_values(self, columns: Columns, n: int) -> UniqueValues:
        """The unique values of n completed rows."""
        values = UniqueValues.empty(n, self.n_unique)
        for u, unique in enumerate(self._unique):
            values.labels[:, u], values.is_compared[:, u] = unique.labels(columns)
        return values

    def find_unused(self, values: UniqueValues) -> np.ndarray:
        """Find the rows, (n,), whose unique values neither an earlier row nor a used one has."""
        is_unused = np.ones(len(values.labels), dtype=bool)
        for u, used in enumerate(self._used):
            rows = np.flatnonzero(is_unused & values.is_compared[:, u])
            labels = pd.Series(values.labels[rows, u])
            is_unused[rows[labels.duplicated() | labels.isin(used)]] = False
        return is_unused

    def use(self, values: UniqueValues) -> None:
        """Note the unique values of rows that are kept, which no later row may have."""
        for u, used in enumerate(self._used):
            used.update(values.labels[values.is_compared[:, u], u].tolist())

    def use_columns(self, columns: Columns) -> None:
        """Note the unique values of a table."""
        self.use(self.unique_values(columns, len(next(iter(columns.values()), ()))))

    def reserve(self, columns: Columns, fixed: Mapping[Any, np.ndarray]) -> np.ndarray:
        """Reserve the unique values of rows that are fixed in all of their columns.

        ``fixed`` has the fixed cells by column, (n,) bool. Returns the rows whose values are
        reserved for them, (n, n_unique) bool; if rows are equal, only the first.
        """
        values = self.unique_values(columns, len(next(iter(columns.values()))))
        reserved = np.zeros(values.labels.shape, dtype=bool)
        for u, unique in enumerate(self._unique):
            names = unique.find_columns(self.rules.names)
            if any(name not in fixed for name in names):
                continue
            is_fixed = np.all([fixed[name] for name in names], axis=0)
            rows = np.flatnonzero(is_fixed & values.is_compared[:, u])
            labels = pd.Series(values.labels[rows, u])
            rows = rows[~(labels.duplicated() | labels.isin(self._used[u])).to_numpy()]
            reserved[rows, u] = True
            self._used[u].update(values.labels[rows, u].tolist())
        return reserved

    # ---- rows with fixed cells -----------------------------------------------------------------

    def complete(
        self,
        drawn: DrawnRows,
        draw: Callable[[np.ndarray, int, int], DrawnRows],
        finish: Callable[[np.ndarray, DrawnRows], tuple[Columns, np.ndarray]],
        key: int,
        max_tries: int,
        reserved: np.ndarray | None = None,
    ) -> DrawnRows:
        """Draw each row again until it meets the constraints.

        After some attempts rows exchange values, to find those that suit all rows together.

        Parameters
        ----------
        drawn : DrawnRows
            The first candidate of each row; rows that are missed are not drawn again.
        draw : callable
            (positions, key, attempt) -> candidates for the rows at these positions.
        finish : callable
            (positions, candidates) -> their completed columns, and their codes for `Rules.met`.
        key, max_tries : int
        reserved : ndarray of bool, (n, n_unique), optional
            The result of `reserve`.

        Returns
        -------
        DrawnRows
            Rows for which no candidate met the constraints are missed.
        """
        n = len(drawn.missed)
        values, codes, pending = drawn.values.copy(), drawn.codes.copy(), ~drawn.missed
        if reserved is None:
            reserved = np.zeros((n, self.n_unique), dtype=bool)
        owners: list[dict[int, int]] = [{} for _ in range(self.n_unique)]  # label -> row
        rows, candidates, attempt, n_tried = np.arange(n), drawn, 0, 0
        while True:
            n_tried += max(1, len(rows))
            rows, candidates = rows[~candidates.missed], candidates[~candidates.missed]
            columns, row_codes = finish(rows, candidates)
            is_met, unique = self.check_columns(columns, row_codes, np.ones(len(rows), dtype=bool))
            unique = UniqueValues(unique.labels, unique.is_compared & ~reserved[rows])
            selected = self._select(rows, is_met, unique, owners, pending, attempt)
            for u, owner in enumerate(owners):
                compared = selected[unique.is_compared[selected, u]]
                labels = unique.labels[compared, u].tolist()
                owner.update(zip(labels, rows[compared].tolist(), strict=True))
            accepted = rows[selected]
            values[accepted], codes[accepted] = (
                candidates.values[selected],
                candidates.codes[selected],
            )
            pending[accepted] = False
            open_rows = np.flatnonzero(pending)
            if not len(open_rows) or n_tried > row_budget(n, max_tries):
                return DrawnRows(values, codes, pending | drawn.missed)
            attempt += 1
            if attempt >= _BEFORE_SWAPS and self.n_unique == 1:
                owned = np.union1d(open_rows, list(owners[0].values())).astype(open_rows.dtype)
                open_rows = owned if len(owned) <= CHUNK else open_rows
            n_copies = max(1, min(2**attempt, CHUNK // len(open_rows)))
            rows = np.repeat(open_rows, n_copies)
            candidates = draw(rows, fold_in(key, Stream.REDRAWN, attempt), attempt)

    def _select(
        self,
        rows: np.ndarray,
        is_met: np.ndarray,
        unique: UniqueValues,
        owners: list[dict[int, int]],
        pending: np.ndarray,
        attempt: int,
    ) -> np.ndarray:
        """Select at most one candidate for each row; rows that lose theirs are ``pending`` again.

        ``rows`` are the rows that the candidates are for. ``owners`` has the drawn row that has
        each label, for each `Unique`. Returns the positions of the selected candidates.
        """
        valid = np.flatnonzero(is_met)
        if attempt < _BEFORE_SWAPS or not self.n_unique:
            return self._select_first(rows, valid, unique)
        if self.n_unique == 1 and unique.is_compared[valid].all():
            return self._match(rows, valid, unique, owners[0], pending)
        selected = self._select_first(rows, valid, unique)
        if self.n_unique == 1:
            return selected
        valid = valid[~np.isin(rows[valid], rows[selected])]
        return np.concatenate([selected, self._swap(rows, valid, unique, owners, pending)])

    def _select_first(
        self, rows: np.ndarray, valid: np.ndarray, unique: UniqueValues
    ) -> np.ndarray:
        """Select the first valid candidate of each row whose unique values are not used."""
        selected: list[np.ndarray] = []
        while len(valid):
            first = valid[~pd.Series(rows[valid]).duplicated().to_numpy()]
            accepted = first[self.find_unused(unique[first])]
            self.use(unique[accepted])
            selected.append(accepted)
            valid = np.setdiff1d(valid, first, assume_unique=True)
            valid = valid[~np.isin(rows[valid], rows[accepted])]
            for u, used in enumerate(self._used):
                is_used = pd.Series(unique.labels[valid, u]).isin(used).to_numpy(dtype=bool)
                valid = valid[~(is_used & unique.is_compared[valid, u])]
        return np.concatenate([*selected, np.empty(0, dtype=np.intp)])

    def _match(
        self,
        rows: np.ndarray,
        valid: np.ndarray,
        unique: UniqueValues,
        owner: dict[int, int],
        pending: np.ndarray,
    ) -> np.ndarray:
        """Distribute the values of one `Unique` over the largest number of rows, drawn ones too."""
        from scipy.sparse.csgraph import maximum_bipartite_matching

        fixed = self._used[0] - owner.keys()
        new = pd.DataFrame({"row": rows[valid], "label": unique.labels[valid, 0]})
        new["candidate"] = valid
        old = pd.DataFrame({"row": list(owner.values()), "label": list(owner)}, dtype=np.uint64)
        edges = pd.concat([old.astype({"row": rows.dtype}).assign(candidate=-1), new])
        edges = edges[~edges["label"].isin(fixed)].drop_duplicates(["row", "label"])
        if edges.empty:
            return np.empty(0, dtype=np.intp)
        row_codes, distinct_rows = pd.factorize(edges["row"])
        label_codes, _ = pd.factorize(edges["label"])
        graph = sparse.csr_array((np.ones(len(edges), dtype=np.int8), (row_codes, label_codes)))
        label_of_row = maximum_bipartite_matching(graph, perm_type="column")
        matched = edges[label_of_row[row_codes] == label_codes]
        pending[distinct_rows] = True
        pending[matched["row"]] = False
        owner.clear()
        owner.update(zip(matched["label"].tolist(), matched["row"].tolist(), strict=True))
        self._used[0] = fixed | owner.keys()
        is_new = matched["candidate"] >= 0
        return matched.loc[is_new, "candidate"].to_numpy(dtype=np.intp)

    def _swap(
        self,
        rows: np.ndarray,
        valid: np.ndarray,
        unique: UniqueValues,
        owners: Sequence[dict[int, int]],
        pending: np.ndarray,
    ) -> np.ndarray:
        """Select a candidate for each row whose unique values are used by drawn rows only.

        The drawn rows that have these values lose them.
        """
        selected: list[int] = []
        for candidate in valid[~pd.Series(rows[valid]).duplicated().to_numpy()].tolist():
            compared = np.flatnonzero(unique.is_compared[candidate]).tolist()
            labels = {u: int(unique.labels[candidate, u]) for u in compared}
            conflicts = {u: label for u, label in labels.items() if label in self._used[u]}
            if any(label not in owners[u] for u, label in conflicts.items()):
                continue
            for row in {owners[u][label] for u, label in conflicts.items()}:
                pending[row] = True
                for owner, used in zip(owners, self._used, strict=True):
                    released = [label for label, owning_row in owner.items() if owning_row == row]
                    used.difference_update(released)
                    for label in released:
                        del owner[label]
            for u, label in labels.items():
                self._used[u].add(label)
                owners[u][label] = int(rows[candidate])
            selected.append(candidate)
        return np.array(selected, dtype=np.intp)
