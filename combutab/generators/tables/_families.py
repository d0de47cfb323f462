"""Families: the children of each parent, one position after another, and their context.

A row of a child table is drawn given its parent, a summary of the family, its position in it, and
the rows before it. The same code computes this context for the rows of a fitted table and for rows
that are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.generators._cells import number_kind
from combutab.preprocessing import NumberColumn, rows_needed, to_ticks

CELL = "cell "  # prefix of the columns of the child table itself
N_RECENT = 3  # different values of a category that a row's context has
_OLDER, _NEW = N_RECENT, N_RECENT + 1  # of values that are not among the recent ones
_MOST_VALUES = 500  # of a category whose values are remembered
MOST_COLUMNS = 24  # of a child table, and of its parent, that a context has
_ORDERED_SHARE = 0.99  # of neighbouring rows that are in order, for a column to be the order
_INCREASING_SHARE = 0.2  # of neighbouring rows that differ in it


def to_floats(column: pd.Series) -> np.ndarray:
    """Numbers, dates or durations as floats, (n,), NaN where missing; dates in their unit."""
    if number_kind(column.dtype) == "number":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    ticks, missing = to_ticks(column)
    return np.where(missing, np.nan, ticks.astype(np.float64))


def read_places(coder: NumberColumn, column: pd.Series) -> np.ndarray:
    """The values of an ordered column in its steps (days, say) above the least, (n,)."""
    x, _ = coder.format.read(column.reset_index(drop=True), str(column.name))
    return x / (coder.format.grid()[1] or 1.0)


def write_places(coder: NumberColumn, steps: np.ndarray) -> pd.Series:
    """Invert `read_places`."""
    x = steps * (coder.format.grid()[1] or 1.0)
    return coder.format.write(x, np.zeros(len(x), dtype=bool))


def as_objects(column: pd.Series) -> pd.Series:
    """The values of a category as Python's objects, None where missing."""
    values = column.astype(object).reset_index(drop=True)
    return values.where(values.notna(), None)


def _mean_by(family: np.ndarray, x: np.ndarray, n_families: int) -> np.ndarray:
    """The mean of the numbers of each family, (n_families,); NaN without any."""
    present = ~np.isnan(x)
    totals = np.bincount(family[present], x[present], n_families)
    counts = np.bincount(family[present], minlength=n_families)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def _as_single(x: np.ndarray) -> np.ndarray:
    """Floats in single precision, so that results of different sums are equal."""
    return x.astype(np.float32).astype(np.float64)


@dataclass(frozen=True)
class FamilyColumns:
    """The columns of a child table that the rows of a family have in common, or remember.

    Parameters
    ----------
    numbers : list of str
        Columns of numbers, dates or durations.
    categories : mapping
        Column of categories -> its values, None for missing.
    order : column, optional
        The column by which the rows of a family are ordered, and drawn as differences.
    """

    numbers: list[str]
    categories: Mapping[str, list[Any]]
    order: str | None = None

    @classmethod
    def of_table(
        cls, table: pd.DataFrame, order: str | None, min_frequency: float
    ) -> FamilyColumns:
        """Choose the first columns of a child table that a context can have.

        A rare category counts as missing in the context, which has it in the rows of all siblings.
        """
        n = rows_needed(min_frequency, len(table))
        numbers: list[str] = []
        categories: dict[str, list[Any]] = {}
        for name, column in table.items():
            is_full = len(numbers) + len(categories) >= MOST_COLUMNS
            if is_full or name == order or not column.notna().any():
                continue
            if number_kind(column.dtype) is not None:
                numbers.append(str(name))
            elif column.nunique() <= _MOST_VALUES:
                values = as_objects(column)
                counts = values.map(values.value_counts(dropna=False))
                categories[str(name)] = list(dict.fromkeys(values[counts >= n]))
        return cls(numbers, categories, order)

    def encode(self, name: str, column: pd.Series) -> np.ndarray:
        """The positions of a category's values, (n,) int64; -1 for other values."""
        positions = {value: i for i, value in enumerate(self.categories[name])}
        codes = [positions.get(value, -1) for value in as_objects(column)]
        return np.array(codes, dtype=np.int64)

    def decode(self, name: str, codes: np.ndarray) -> np.ndarray:
        """The values at these positions, (n,) objects; None for -1."""
        values = np.empty(len(self.categories[name]) + 1, dtype=object)
        values[:-1] = self.categories[name]
        return values[codes]

    def summarize(
        self, table: pd.DataFrame, family: np.ndarray, n_families: int, order: np.ndarray | None
    ) -> pd.DataFrame:
        """Summarize each family: its size, means of numbers, and the variety of categories.

        ``family`` is the family of each row, and ``order`` its place in the order.
        """
        sizes = np.bincount(family, minlength=n_families)
        summary: dict[str, np.ndarray] = {"size": sizes}
        for name in self.numbers:
            summary[f"mean {name}"] = _mean_by(family, to_floats(table[name]), n_families)
        for name in self.categories:
            codes = pd.DataFrame({"family": family, "code": self.encode(name, table[name])})
            counts = codes.value_counts(sort=False).rename("n").reset_index()
            n_values = np.bincount(counts["family"], minlength=n_families)
            counts = counts.sort_values(["family", "n"], ascending=[True, False], kind="stable")
            first = counts.drop_duplicates("family")
            mode, share = np.full(n_families, -1), np.full(n_families, np.nan)
            mode[first["family"]] = first["code"]
            share[first["family"]] = first["n"] / sizes[first["family"]]
            summary[f"values of {name}"] = np.where(sizes > 0, n_values, np.nan)
            summary[f"mode of {name}"] = self.decode(name, mode)
            summary[f"share of the mode of {name}"] = share
        if order is not None:
            of_family = pd.Series(order).groupby(family)
            first, last = (
                getattr(of_family, end)().reindex(range(n_families)).to_numpy(float)
                for end in ("min", "max")
            )
            span = last - first
            n_places = of_family.nunique().reindex(range(n_families)).to_numpy(float)
            middle = _mean_by(family, order, n_families) - first
            summary |= {"first": first, "span": span, "places": n_places}
            summary["middle"] = np.where(span > 0, middle / np.maximum(span, 1e-300), np.nan)
        return pd.DataFrame(summary)


def find_order(table: pd.DataFrame, family: np.ndarray) -> str | None:
    """Find a column by which the rows of each family are sorted; None without one.

    ``family`` is the family of each row, in any order.
    """
    by_family = np.argsort(family, kind="stable")
    is_sibling = np.diff(family[by_family]) == 0
    if not is_sibling.any():
        return None
    for name, column in table.items():
        if number_kind(column.dtype) is None or column.isna().any():
            continue
        differences = np.diff(to_floats(column)[by_family])[is_sibling]
        is_ordered = (differences >= 0).mean() >= _ORDERED_SHARE
        if is_ordered and (differences > 0).mean() >= _INCREASING_SHARE:
            return str(name)
    return None


class Families:
    """Families whose rows are added one position after another.

    Parameters
    ----------
    columns : FamilyColumns
    summary : DataFrame
        One row per family, as from `FamilyColumns.summarize`.
    parents : DataFrame
        The columns of the parents that a context has, one row per family.
    """

    def __init__(
        self, columns: FamilyColumns, summary: pd.DataFrame, parents: pd.DataFrame
    ) -> None:
        n = len(summary)
        self.columns, self._parents = columns, parents.reset_index(drop=True)
        self.sizes = summary["size"].to_numpy(dtype=np.int64, na_value=0)
        self.position = 0

        def read(name: str) -> np.ndarray:
            return summary[name].to_numpy(dtype=np.float64, na_value=np.nan, copy=True)

        self._means = {name: read(f"mean {name}") for name in columns.numbers}
        self._totals = {name: np.zeros(n) for name in columns.numbers}  # of the rows so far
        self._n_present = {name: np.zeros(n, dtype=np.int64) for name in columns.numbers}
        self._previous = {name: np.full(n, np.nan) for name in columns.numbers}
        self._n_new = {name: read(f"values of {name}") for name in columns.categories}
        self._modes, self._n_modes = {}, {}
        for name in columns.categories:
            all_rare = pd.Series(np.full(n, None))  # the column is then not learned
            self._modes[name] = columns.encode(name, summary.get(f"mode of {name}", all_rare))
            share = np.nan_to_num(read(f"share of the mode of {name}"))
            self._n_modes[name] = share * self.sizes
        self._is_seen = {
            name: np.zeros((n, len(values)), dtype=bool)
            for name, values in columns.categories.items()
        }
        self._recent = {name: np.full((n, N_RECENT), -1) for name in columns.categories}
        if columns.order is not None:
            first = read("first")  # of few drawn families it may be missing
            typical = float(np.nanmedian(first)) if np.isfinite(first).any() else 0.0
            self._at = np.nan_to_num(first, nan=typical)
            self._span = np.maximum(np.nan_to_num(read("span")), 0.0)
            self._n_places = read("places")
            self._middle = np.nan_to_num(read("middle")) * self._span * self.sizes

    def open(self) -> np.ndarray:
        """The families that have a row at the present position."""
        return np.flatnonzero(self.sizes > self.position)

    def context(self, rows: np.ndarray) -> pd.DataFrame:
        """The context of the next row of these families: its parent, earlier rows, a summary."""
        n_left = self.sizes[rows] - self.position
        parts: dict[str, Any] = {"size": self.sizes[rows], "rows left": n_left}
        parts["position"] = np.full(len(rows), self.position)
        for name, column in self._parents.items():
            parts[f"parent {name}"] = column.iloc[rows].reset_index(drop=True)
        for name in self.columns.numbers:
            parts[f"previous {name}"] = self._previous[name][rows]
            parts[f"mean {name}"] = self._means[name][rows]
            n_present = self._n_present[name][rows]
            mean = self._totals[name][rows] / np.maximum(n_present, 1)
            parts[f"mean so far {name}"] = np.where(n_present > 0, mean, np.nan)
        for name in self.columns.categories:
            parts[f"new values left {name}"] = np.clip(self._n_new[name][rows], 0, n_left)
            n_modes = np.clip(np.round(self._n_modes[name][rows]), 0, n_left)
            parts[f"modes left {name}"] = n_modes
            parts[f"mode {name}"] = self.columns.decode(name, self._modes[name][rows])
            for k in range(N_RECENT):
                recent = self.columns.decode(name, self._recent[name][rows, k])
                parts[f"recent {k} {name}"] = recent
        if self.columns.order is not None:
            span = self._span[rows]
            parts["previous place"], parts["span left"] = self._at[rows], span
            parts["places left"] = np.clip(self._n_places[rows], 0, n_left)
            middle = self._middle[rows] / n_left / np.where(span > 0, span, np.inf)
            parts["middle left"] = np.clip(middle, 0.0, 1.0)
        for name, part in parts.items():
            if isinstance(part, np.ndarray) and part.dtype == np.float64:
                parts[name] = _as_single(part)
        return pd.DataFrame(parts)

    def recency(self, name: str, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Where each value is among the recent ones of its family; or older, or new, (n,)."""
        seen = (codes >= 0) & self._is_seen[name][rows, np.maximum(codes, 0)]
        recency = np.where(seen, _OLDER, _NEW)
        for k in reversed(range(N_RECENT)):
            recency[(self._recent[name][rows, k] == codes) & (codes >= 0)] = k
        return recency

    def repeated(self, name: str, rows: np.ndarray, recency: np.ndarray) -> np.ndarray:
        """The value of each family that has this recency, (n,); -1 if it is not recent."""
        recent = self._recent[name][rows, np.minimum(recency, N_RECENT - 1)]
        return np.where(recency < N_RECENT, recent, -1)

    def steps(self, rows: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Steps of the order that lead to its end with the last row: (n,) of drawn ones."""
        span, n_left = self._span[rows], self.sizes[rows] - self.position
        steps = np.clip(np.nan_to_num(drawn), 0.0, span)
        steps = np.where((n_left == 1) & (self.position > 0), span, steps)
        return np.zeros(len(rows)) if self.position == 0 else steps

    def place(self, rows: np.ndarray) -> np.ndarray:
        """The place of the last row of these families in the order, (n,)."""
        return self._at[rows]

    def add(
        self,
        rows: np.ndarray,
        numbers: Mapping[str, np.ndarray],
        codes: Mapping[str, np.ndarray],
        steps: np.ndarray | None,
    ) -> None:
        """Add the next row of each of these families, and go to the next position.

        ``numbers`` and ``codes`` are the cells of the rows by column, ``steps`` the differences of
        their places in the order.
        """
        for name, x in numbers.items():
            self._previous[name][rows] = x
            self._totals[name][rows] += np.nan_to_num(x)
            self._n_present[name][rows] += ~np.isnan(x)
        for name, code in codes.items():
            recency = self.recency(name, rows, code)
            self._n_new[name][rows] -= recency == _NEW
            self._n_modes[name][rows] -= code == self._modes[name][rows]
            has_code = code >= 0
            self._is_seen[name][rows[has_code], code[has_code]] = True
            recent, oldest = self._recent[name][rows], np.minimum(recency, N_RECENT - 1)
            for k in reversed(range(1, N_RECENT)):
                recent[:, k] = np.where(oldest >= k, recent[:, k - 1], recent[:, k])
            recent[:, 0] = code
            self._recent[name][rows] = recent
        if steps is not None:
            self._middle[rows] -= steps * (self.sizes[rows] - self.position)
            self._span[rows] -= steps
            self._n_places[rows] -= (steps > 0) | (self.position == 0)
            self._at[rows] += steps
        self.position += 1


_REPEATED = ("size", "mean ", "previous place", "span left")  # in several rows of a family


def training_rows(
    families: Families, table: pd.DataFrame, order: np.ndarray | None
) -> tuple[pd.DataFrame, list[str], dict[str, pd.Series]]:
    """The rows of a child table with their context, and the names of the columns of the context.

    The table's rows are sorted by family, and within a family by ``order``, (n,). For columns of
    the context that repeat a number of a family, a column is returned that has each once.
    """
    columns, sizes = families.columns, families.sizes
    numbers = {name: to_floats(table[name]) for name in columns.numbers}
    codes = {name: columns.encode(name, table[name]) for name in columns.categories}
    starts = np.cumsum(sizes) - sizes
    parts, positions, owners = [], [], []
    while len(rows := families.open()):
        at = starts[rows] + families.position
        context = families.context(rows)
        row_codes = {name: code[at] for name, code in codes.items()}
        steps = None if order is None else order[at] - families.place(rows)
        targets: dict[str, Any] = {} if steps is None else {"step": steps}
        for name, code in row_codes.items():
            targets[f"recency {name}"] = families.recency(name, rows, code).astype(str)
        parts.append(context.assign(**targets))
        positions.append(at)
        owners.append(rows)
        families.add(rows, {name: x[at] for name, x in numbers.items()}, row_codes, steps)
    frame = pd.concat(parts, ignore_index=True)
    cells = table.iloc[np.concatenate(positions)].reset_index(drop=True)
    sources = {}
    for name in map(str, context):
        if name.startswith(_REPEATED):
            numbers_of_families = pd.DataFrame({"family": np.concatenate(owners), "x": frame[name]})
            sources[name] = numbers_of_families.drop_duplicates()["x"]
    frame = pd.concat([frame, cells.add_prefix(CELL)], axis=1)
    return frame, [*map(str, context)], sources
