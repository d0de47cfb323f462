"""Completion of rows: rows are drawn until they meet the conditions and constraints."""

from __future__ import annotations

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
from combutab.generators.constraints import read_columns

_AT_ONCE = 5000  # rows that are drawn again together, about
_BEFORE_SWAPS = 6  # times that rows are drawn again before they exchange values


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
        self._unique: list[Any] = [
            constraint
            for constraint, _ in rules.unique
            if kept or not rules.has_identifiers(constraint)
        ]
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
        columns = rules.complete(rules.partial_rows(rules.columns_of(table), self._conditions))
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
            if constraint.compares_rows:
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
