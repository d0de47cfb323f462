"""The keys of a database: which columns of a table refer to which parents, checked or proposed."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.files import several, text
from combutab.core.state import declare
from combutab.preprocessing._tables import as_pandas

Tables = Mapping[str, pd.DataFrame]
_GENERIC = {"id", "key", "code", "no", "nr", "number", "index", "name", "uuid"}  # of any table


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key: columns of a child table, whose values are those of a parent's columns.

    >>> print(ForeignKey("orders", ("customer",), "customers", ("id",)))
    orders.customer -> customers.id
    """

    child: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]

    def __str__(self) -> str:
        sides = ((self.child, self.columns), (self.parent, self.parent_columns))
        return " -> ".join(f"{table}.{'+'.join(columns)}" for table, columns in sides)

    def find_parents(self, tables: Tables) -> np.ndarray:
        """The position of each child's parent, (n_children,); -1 without one."""
        parents = key_labels(tables[self.parent], self.parent_columns)
        children = key_labels(tables[self.child], self.columns)
        position = pd.Series(range(len(parents)), index=pd.Index(parents, dtype=object))
        position = position[~position.index.duplicated()]
        return children.map(position).fillna(-1).to_numpy(dtype=np.int64)


_NAMES = several(text(), 1)
declare(
    ForeignKey,
    {"child": text(), "columns": _NAMES, "parent": text(), "parent_columns": _NAMES},
)


def key_labels(table: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """The values of key columns as one Python object per row, None if one is missing.

    Whole numbers are integers in any dtype: with missing values, pandas reads them as floats.
    """
    parts = []
    for name in columns:
        column = table[name]
        if column.dtype.kind == "f" and (column.dropna() % 1 == 0).all():
            column = column.astype("Int64")
        parts.append(column.astype(object).where(column.notna(), None).tolist())
    labels: Iterable[Any] = parts[0]
    if len(parts) > 1:
        labels = [None if None in row else row for row in zip(*parts, strict=True)]
    return pd.Series(list(labels), index=table.index, dtype=object)


# ---- Tables and keys as users give them --------------------------------------------------------


def read_tables(tables: Any) -> dict[str, pd.DataFrame]:
    """Check the tables of a fit; the result has their rows numbered from 0."""
    if not isinstance(tables, Mapping) or not tables:
        raise ValueError(
            "tables must be a mapping of names to DataFrames such as {'customers': customers, "
            f"'orders': orders}}, got {type(tables).__name__}"
        )
    read: dict[str, pd.DataFrame] = {}
    for name, table in tables.items():
        frame = as_pandas(table)
        if not isinstance(name, str):
            raise ValueError(f"the names of tables must be text, got {name!r}")
        if not isinstance(frame, pd.DataFrame):
            raise ValueError(f"table {name!r} must be a DataFrame, got {type(table).__name__}")
        if not all(isinstance(column, str) for column in frame):
            column = next(column for column in frame if not isinstance(column, str))
            raise ValueError(f"table {name!r}: names of columns must be text, got {column!r}")
        if frame.columns.duplicated().any():
            column = frame.columns[frame.columns.duplicated()][0]
            raise ValueError(f"table {name!r} has two columns {column!r}; rename one of them")
        if not len(frame):
            raise ValueError(f"table {name!r} has no rows; leave it out")
        read[name] = frame.reset_index(drop=True)
    return read


def read_keys(tables: Tables, keys: Any) -> list[ForeignKey]:
    """Check the keys of a fit: (child, column, parent), or with the parent's column as the last.

    Raises ValueError, with table and column, if there is no such table or column, if a parent's key
    is missing or not unique, if a child refers to no parent, or if keys form a circle.
    """
    if isinstance(keys, str) and keys == "auto":
        read = propose_keys(tables)
    elif isinstance(keys, str) or not isinstance(keys, Iterable):
        raise ValueError(f"keys must be 'auto' or a list of (child, column, parent), got {keys!r}")
    else:
        read = [_read_key(tables, key) for key in keys]
    for key in read:
        _check_key(tables, key)
    columns = [(key.child, name) for key in read for name in key.columns]
    for (table, name), key in zip(columns, read, strict=False):
        if columns.count((table, name)) > 1 and len(key.columns) == 1:
            raise ValueError(
                f"table {table!r}: column {name!r} is part of two keys; leave one of them out"
            )
    sort_tables(tables, read)
    return read


def _read_key(tables: Tables, key: Any) -> ForeignKey:
    if isinstance(key, ForeignKey):
        key = (key.child, key.columns, key.parent, key.parent_columns)
    if not isinstance(key, Sequence) or isinstance(key, str) or len(key) not in (3, 4):
        raise ValueError(
            f"a key must be (child, column, parent), or with the parent's column as the fourth, "
            f"got {key!r}"
        )
    child, parent = key[0], key[2]
    for name in (child, parent):
        if name not in tables:
            raise ValueError(f"key {key!r}: there is no table {name!r}, but {[*tables]}")
    columns = _as_names(key[1])
    _refuse_unknown(tables, key, child, columns)
    if len(key) == 4:
        parent_columns = _as_names(key[3])
    else:
        parent_columns = _find_parent_columns(tables, child, columns, parent)
    _refuse_unknown(tables, key, parent, parent_columns)
    if len(columns) != len(parent_columns):
        raise ValueError(
            f"key {key!r}: {child!r} has {len(columns)} columns of the key, and {parent!r} "
            f"{len(parent_columns)}"
        )
    return ForeignKey(child, columns, parent, parent_columns)


def _refuse_unknown(tables: Tables, key: Any, table: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in tables[table]:
            raise ValueError(
                f"key {key!r}: table {table!r} has no column {name!r}, but {[*tables[table]][:20]}"
            )


def _as_names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _find_parent_columns(
    tables: Tables, child: str, columns: tuple[str, ...], parent: str
) -> tuple[str, ...]:
    """The columns of a parent that a child's columns refer to, if the user does not name them."""
    table = tables[parent]
    if child != parent and all(name in table for name in columns):
        return columns
    if len(columns) == 1:
        values = key_labels(tables[child], columns).dropna()
        for name in map(str, table):
            if child == parent and name == columns[0]:
                continue
            labels = key_labels(table, (name,))
            if labels.notna().all() and labels.is_unique and values.isin(labels).all():
                return (name,)
    raise ValueError(
        f"key ({child!r}, {'+'.join(columns)!r}, {parent!r}): table {parent!r} has no such column, "
        "and none with unique values that include those of the child; name it: (child, column, "
        "parent, parent's column)"
    )


def _check_key(tables: Tables, key: ForeignKey) -> None:
    if key.child == key.parent:
        raise ValueError(
            f"key {key}: table {key.child!r} refers to itself, which is not supported; leave the "
            "key out and drop the column, or split the table into levels (managers and employees, "
            "say) with a key from one to the next"
        )
    label = f"key {key}: column {'+'.join(key.parent_columns)!r} of table {key.parent!r}"
    parents = key_labels(tables[key.parent], key.parent_columns)
    if parents.isna().any():
        raise ValueError(
            f"{label} is missing in row {int(parents.isna().argmax())}, but a parent's key may not "
            "be; remove the row"
        )
    if not parents.is_unique:
        value = parents[parents.duplicated()].iloc[0]
        raise ValueError(
            f"{label} has {value!r} in more than one row, but a parent's key is unique; remove "
            "duplicates, or name another column"
        )
    children = key_labels(tables[key.child], key.columns)
    present = children.dropna()
    orphans = present[~present.isin(parents)]
    if len(orphans):
        remedy = "remove these rows, or set their keys to missing"
        if orphans.astype(str).isin(parents.astype(str)).all():
            remedy = "they differ by type alone, such as 1 and '1': convert one of the columns"
        raise ValueError(
            f"key {key}: column {'+'.join(key.columns)!r} of table {key.child!r} has "
            f"{orphans.iloc[0]!r} in row {orphans.index[0]}, which table {key.parent!r} lacks "
            f"({len(orphans)} of {len(children)} rows have no parent); {remedy}"
        )
    if not len(present):
        raise ValueError(
            f"key {key}: column {'+'.join(key.columns)!r} of table {key.child!r} has only missing "
            "values; leave the key out"
        )


def sort_tables(tables: Collection[str], keys: Sequence[ForeignKey]) -> list[str]:
    """Sort the tables so that parents come first; raises ValueError if keys form a circle."""
    graph: dict[str, list[str]] = {name: [] for name in tables}
    for key in keys:
        graph[key.child].append(key.parent)
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1])
        raise ValueError(
            f"the keys form a circle: {circle}, so that no table can be made first; leave out one "
            f"of the keys {[str(key) for key in keys if key.child in error.args[1]]}"
        ) from None


# ---- Keys that are found -----------------------------------------------------------------------


def propose_keys(tables: Tables) -> list[ForeignKey]:
    """Propose keys by the names of columns, unique values of parents, and inclusion.

    A child's column is named as the parent's, or as table and column (``customer_id`` for the
    column ``id`` of ``customers``), and all of its values are in the parent's column, where they
    are unique. Two tables that both have their own ``id`` are not connected by it.

    Raises ValueError without any.
    """
    names = list(tables)
    labels = {
        (name, column): key_labels(table, (column,))
        for name, table in tables.items()
        for column in map(str, table)
        if table[column].dtype.kind not in "bcf" or table[column].dropna().mod(1).eq(0).all()
    }
    unique = [
        column
        for column, values in labels.items()
        if len(values) > 1 and values.notna().all() and values.is_unique
    ]
    proposed: dict[tuple[str, str], ForeignKey] = {}
    for (child, column), (parent, parent_column) in product(labels, unique):
        values, parents = labels[child, column].dropna(), labels[parent, parent_column]
        is_used = child == parent or (child, column) in proposed
        if is_used or not _names_match(parent, parent_column, column):
            continue
        if (child, column) in unique and column == parent_column:
            is_first = names.index(child) < names.index(parent)
            if set(_words(column)) <= _GENERIC or (is_first and len(values) == len(parents)):
                continue
        if len(values) and values.isin(parents).all():
            proposed[child, column] = ForeignKey(child, (column,), parent, (parent_column,))
    if len(tables) > 1 and not proposed:
        raise ValueError(
            "keys='auto' found no keys: no column of a table is named as one with unique values of "
            "another table that include its own; give keys=[(child, column, parent)]"
        )
    return list(proposed.values())


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())


def _names_match(parent: str, parent_column: str, column: str) -> bool:
    """Whether a column may refer to a parent's column, by its name.

    >>> _names_match("customers", "id", "customer_id"), _names_match("customers", "id", "age")
    (True, False)
    """
    words, parent_words, table = _words(column), _words(parent_column), "".join(_words(parent))
    if words == parent_words:
        return True
    singular = {table, re.sub("s$", "", table), re.sub("es$", "", table)}
    singular.add(re.sub("ies$", "y", table))
    prefix = "".join(words).removesuffix("".join(parent_words))
    return bool(words) and (prefix in singular or "".join(words) in singular)
