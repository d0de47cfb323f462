"""Databases: keys, numbers of children, dependence between tables, and two-sample tests."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.rng import seed_from
from combutab.evaluation._alignment import AlignedTables, Kind
from combutab.evaluation._detection import C2ST, detection
from combutab.evaluation._efficacy import at_least
from combutab.evaluation._fidelity import codes_of, ks_complement, numbers_of, pair_trends
from combutab.preprocessing import ForeignKey, key_labels

_SOURCES = {"synthetic": "synthetic", "real": "real", "held-out real": "test"}  # and their roles
_COLUMNS = ["aspect", "table", "key", "measure", "source", "value"]
_COLUMNS += ["se", "n_rows", "column", "other_column"]
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class AlignedDatabases:
    """Databases that can be compared: real, synthetic and perhaps held-out real.

    Attributes
    ----------
    raw : dict of role to dict of table name to DataFrame
        The tables, with their keys. Roles are "real", "synthetic" and, with held-out rows, "test".
    tables : dict of table name to AlignedTables
        The columns that are part of no key, by role, as `align_tables` returns them.
    keys : list of ForeignKey
    order_by : dict of table name to column name
        The columns by which the children of a parent are ordered. By default the order of the rows.
    lookup : collection of str
        Tables that are the same in all databases. Their rows are not compared.
    """

    raw: Mapping[str, Tables]
    tables: Mapping[str, AlignedTables]
    keys: Sequence[ForeignKey]
    order_by: Mapping[str, str] = field(default_factory=dict)
    lookup: Collection[str] = ()

    def find_parents(self, role: str, key: ForeignKey) -> np.ndarray:
        """The position of each child's parent, (n_children,); -1 without one."""
        return key.find_parents(self.raw[role])

    def count_children(self, role: str, key: ForeignKey) -> np.ndarray:
        """The number of children of each parent, (n_parents,)."""
        family = self.find_parents(role, key)
        return np.bincount(family[family >= 0], minlength=len(self.raw[role][key.parent]))

    def keys_to(self, table: str) -> list[ForeignKey]:
        """The keys of the children of a table."""
        return [key for key in self.keys if key.parent == table]

    def with_children(
        self, role: str, keys: Sequence[ForeignKey], *, siblings: bool = False
    ) -> pd.DataFrame:
        """The rows of a parent table with summaries of their children by some keys.

        For each key these are the number of children, the mean of each column of numbers or dates,
        and the number of different categories. With ``siblings``, there are also the range, the
        number of values and the largest step of the column by which siblings are ordered; for each
        category how often it changes between neighbours and the share of the most frequent; and
        for numbers the mean absolute change.
        """
        parts = [self.tables[keys[0].parent][role]]
        for key in keys:
            family, aligned = self.find_parents(role, key), self.tables[key.child]
            n, order = len(self.raw[role][key.parent]), self.order_by.get(key.child)
            summary = _summarize_children(aligned[role], aligned.kinds, family, n)
            if siblings:
                steps = _compare_siblings(aligned[role], aligned.kinds, family, n, order)
                summary = pd.concat([summary, steps], axis=1)
            parts.append(summary.add_prefix(f"{key.child}.{'+'.join(key.columns)}: "))
        return pd.concat(parts, axis=1)

    def persons(self, role: str, table: str) -> pd.DataFrame:
        """The rows of a table with the summaries of all their descendants."""
        parts = [self.tables[table][role]]
        for key in self.keys_to(table):
            children = self.persons(role, key.child)
            kinds = {name: self.tables[key.child].kinds.get(name, "number") for name in children}
            n = len(self.raw[role][table])
            summary = _summarize_children(children, kinds, self.find_parents(role, key), n)
            parts.append(summary.add_prefix(f"{key.child}.{'+'.join(key.columns)}: "))
        return pd.concat(parts, axis=1)

    def family_labels(self, role: str, table: str) -> np.ndarray:
        """A number for each row of a table, equal if all columns and descendants are, (n_rows,).

        The order of siblings does not count. Only rows with the same number can be equal; others
        have it with a probability of about 2**-64.
        """
        cells = self.tables[table][role].assign(**{"": 0})  # a table may have no columns
        labels = pd.util.hash_pandas_object(cells, index=False).to_numpy()
        for key in self.keys_to(table):
            family = self.find_parents(role, key)
            total = np.zeros(len(labels), dtype=np.uint64)
            child_labels = self.family_labels(role, key.child)
            np.add.at(total, family[family >= 0], child_labels[family >= 0])
            labels = pd.util.hash_array(labels ^ pd.util.hash_array(total))
        return np.asarray(labels)


# ---- Summaries of the children of each parent ----------------------------------------------------


def _codes_and_numbers(
    table: pd.DataFrame, kinds: Mapping[Any, Kind]
) -> tuple[dict[Hashable, np.ndarray], dict[Hashable, np.ndarray]]:
    """The categories of a table as codes, -1 where missing, and its numbers and dates as floats."""
    codes = {name: codes_of(table[name]) for name in table if kinds[name] == "category"}
    numbers = {name: numbers_of(table[name]) for name in table if kinds[name] != "category"}
    return codes, numbers


def _summarize_children(
    children: pd.DataFrame, kinds: Mapping[Any, Kind], family: np.ndarray, n_parents: int
) -> pd.DataFrame:
    """Numbers of children, means of their numbers, and numbers of different categories."""
    has_parent = family >= 0
    codes, numbers = _codes_and_numbers(children[has_parent], kinds)
    family = family[has_parent]
    counts = np.bincount(family, minlength=n_parents)
    summary = {"number of rows": counts.astype(float)}
    for name, x in numbers.items():
        means = pd.Series(x).groupby(family).mean().reindex(range(n_parents))
        summary[f"mean of {name}"] = means.to_numpy(np.float32).astype(float)  # in any order equal
    for name, values in codes.items():
        n_values = pd.Series(values).where(values >= 0).groupby(family).nunique()
        summary[f"values of {name}"] = n_values.reindex(range(n_parents), fill_value=0).to_numpy(
            float
        )
    return pd.DataFrame(summary)


def _compare_siblings(
    children: pd.DataFrame,
    kinds: Mapping[Any, Kind],
    family: np.ndarray,
    n_parents: int,
    order: str | None,
) -> pd.DataFrame:
    """The order, steps, changes and repetitions of the children of each parent."""
    rows = np.flatnonzero(family >= 0)
    moments = np.zeros(len(family)) if order is None else numbers_of(children[order]).astype(float)
    rows = rows[np.lexsort((moments[rows], family[rows]))]
    codes, numbers = _codes_and_numbers(children.iloc[rows], kinds)
    family = family[rows]
    features: dict[str, pd.Series] = {}
    if order is not None:
        groups = pd.Series(numbers.pop(order)).groupby(family)
        features |= {"first": groups.min(), "last": groups.max(), "places": groups.nunique()}
        features["span"] = features["last"] - features["first"]
        features["largest step"] = groups.diff().groupby(family).max()
    is_first = np.diff(family, prepend=-1) != 0
    for name, values in codes.items():
        changes = pd.Series((np.diff(values, prepend=-2) != 0) | is_first)
        features[f"changes of {name}"] = changes.groupby(family).sum()
        counts = pd.Series(family).groupby([family, values]).size().groupby(level=0)
        features[f"most frequent {name}"] = counts.max() / counts.sum()
    for name, x in numbers.items():
        steps = np.where(is_first, np.nan, np.abs(np.diff(x, prepend=np.nan)))
        features[f"change of {name}"] = pd.Series(steps).groupby(family).mean()
    return pd.DataFrame(features).reindex(range(n_parents)).astype(float)


# ---- Comparisons ---------------------------------------------------------------------------------


def compare_databases(
    databases: AlignedDatabases,
    *,
    max_rows: int = 6000,
    n_splits: int = 3,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Compare a synthetic database with real ones: keys, numbers of children, and dependence.

    The synthetic tables are compared with the held-out real ones, and the real training tables in
    the same way, which shows the best that is possible. Without held-out tables, the synthetic ones
    are compared with the training tables.

    Parameters
    ----------
    databases : AlignedDatabases
    max_rows : int, default=6000
        Maximum number of rows of each table in a two-sample test, sampled at random.
    n_splits : int, default=3
        Number of cross-validation folds of a two-sample test.
    random_state : int, RandomState or None, default=0
        Random seed for sampling rows, folds and classifiers.
    n_jobs : int, optional
        Number of tables that are tested at the same time.

    Returns
    -------
    DataFrame, one row per value
        ``aspect``, ``table``, ``key`` ("" for a table alone), ``measure``, ``source``
        ("synthetic", "real" for the training tables, "held-out real"), ``value``, ``se`` (standard
        error of a ROC AUC due to the number of rows) and ``n_rows`` (of the smaller table), and for
        pairs of columns ``column`` and ``other_column``. The measures are:

        - aspect "keys": "unique" (share of the parent's keys that are unique), "orphans" (share of
          the children's keys that are no parent's) and "missing" (share of missing keys);
        - aspect "cardinality": "mean" number of children, "childless" (share of parents without
          children) and "ks", 1 minus the Kolmogorov-Smirnov statistic of the numbers of children,
          for parents that are not those of a lookup table;
        - aspect "trends": "correlation" or "contingency" of each column of the parent with each of
          the child, as in `fidelity`;
        - aspect "detection": ROC AUC of a two-sample test of the "rows" of a table, of a table
          "with children" (the rows with summaries of their children) and "with siblings" (also
          with the order, steps, changes and repetitions of the children). 0.5 is best.

        In the aspects "trends" and "detection", and for "ks", the source "held-out real" compares
        the training tables with the held-out ones.
    """
    seed, max_rows = seed_from(random_state), at_least(max_rows, 2 * n_splits, "max_rows")
    rows: list[tuple[Any, ...]] = []
    for key in databases.keys:
        part = (key.parent, str(key))
        rows += [(aspect, *part, *values) for aspect, *values in _compare_keys(databases, key)]
        rows += [("trends", *part, *values) for values in _compare_trends(databases, key, seed)]
    tests: list[tuple[str, str, str, dict[str, pd.DataFrame]]] = []
    for name, aligned in databases.tables.items():
        if name in databases.lookup:
            continue
        tests.append((name, "", "rows", dict(aligned.tables)))
        for key, siblings in product(databases.keys_to(name), (False, True)):
            families = {
                role: databases.with_children(role, [key], siblings=siblings)
                for role in databases.raw
            }
            measure = "with siblings" if siblings else "with children"
            tests.append((name, str(key), measure, families))
    for name, label, measure, tables in tests:
        areas = _two_sample_test(tables, max_rows, n_splits, seed, n_jobs)
        rows += [("detection", name, label, measure, *area) for area in areas]
    records = [dict(zip(_COLUMNS, row, strict=False)) for row in rows]
    return pd.DataFrame(records, columns=_COLUMNS)


def _references(databases: AlignedDatabases) -> tuple[str, dict[str, str]]:
    """The role that others are compared with, and their sources and roles."""
    if "test" not in databases.raw:
        return "real", {"synthetic": "synthetic"}
    return "test", {"synthetic": "synthetic", "held-out real": "real"}


def _compare_keys(databases: AlignedDatabases, key: ForeignKey) -> Iterator[tuple[Any, ...]]:
    counts = {role: databases.count_children(role, key) for role in databases.raw}
    for source, role in _SOURCES.items():
        if role not in databases.raw:
            continue
        tables = databases.raw[role]
        parents = key_labels(tables[key.parent], key.parent_columns)
        children = key_labels(tables[key.child], key.columns)
        is_unique = parents.notna() & ~parents.duplicated(keep=False)
        is_orphan = children.notna() & (databases.find_parents(role, key) < 0)
        yield "keys", "unique", source, float(is_unique.mean())
        yield "keys", "orphans", source, float(is_orphan.mean())
        yield "keys", "missing", source, float(children.isna().mean())
        if key.parent in databases.lookup:  # numbers of children depend on the size of the database
            continue
        yield "cardinality", "mean", source, float(counts[role].mean())
        yield "cardinality", "childless", source, float((counts[role] == 0).mean())
    reference, compared = _references(databases)
    for source, role in compared.items() if key.parent not in databases.lookup else ():
        yield "cardinality", "ks", source, ks_complement(counts[reference], counts[role])


_JOINED = 20_000  # children, at most, whose columns are compared with those of their parents


def _compare_trends(
    databases: AlignedDatabases, key: ForeignKey, seed: int
) -> Iterator[tuple[Any, ...]]:
    """Compare the association of each column of a parent with each column of its children."""
    reference, compared = _references(databases)
    parents, children = databases.tables[key.parent], databases.tables[key.child]
    joined = {}
    for role in (reference, *compared.values()):
        family = databases.find_parents(role, key)
        rows = np.flatnonzero(family >= 0)
        rows = np.random.default_rng(seed).permutation(rows)[:_JOINED]
        parts = (parents[role].iloc[family[rows]], children[role].iloc[rows])
        joined[role] = pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
        joined[role].columns = pd.RangeIndex(joined[role].shape[1])
    names: dict[Any, Hashable] = dict(enumerate([*parents.kinds, *children.kinds]))
    kinds: dict[Hashable, Kind] = dict(
        enumerate([*parents.kinds.values(), *children.kinds.values()])
    )
    pairs = [*product(range(len(parents.kinds)), range(len(parents.kinds), len(names)))]
    for source, role in compared.items():
        n = min(len(joined[reference]), len(joined[role]))
        if not pairs or not n:
            continue
        tables = AlignedTables({"real": joined[reference], source: joined[role]}, kinds, {})
        for score in pair_trends(tables, source, n_bins=10, pairs=pairs):
            pair = (names[score.column], names[score.other_column])
            yield score.measure, source, score.value, np.nan, n, *pair


def _two_sample_test(
    tables: Mapping[str, pd.DataFrame], max_rows: int, n_splits: int, seed: int, n_jobs: int | None
) -> list[tuple[str, float, float, int]]:
    """The source, ROC AUC, standard error and number of rows of each; none with too few rows."""
    reference = "test" if "test" in tables else "real"
    compared = {"synthetic": tables["synthetic"]}
    if reference == "test":
        compared["held-out real"] = tables["real"]
    n = min(max_rows, len(tables[reference]), *map(len, compared.values()))
    if n < 2 * n_splits or not tables[reference].shape[1]:
        return []
    rng = np.random.default_rng(seed)
    sampled = {
        name: table.iloc[np.sort(rng.permutation(len(table))[:n])]
        for name, table in {"": tables[reference], **compared}.items()
    }
    result = detection(
        real=sampled.pop(""),
        synthetic=sampled,
        learners=C2ST,
        n_splits=n_splits,
        random_state=seed,
        n_jobs=n_jobs,
    )
    areas = result[["source", "mean", "se"]].dropna().itertuples(index=False)
    return [(source, area, error, n) for source, area, error in areas]
