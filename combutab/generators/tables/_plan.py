"""How the rows of each table of a database are made, besides the fitted generators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from combutab.core.files import kind, nullable, number, several, text, whole
from combutab.core.state import declare
from combutab.generators._cells import number_kind
from combutab.generators._learned_columns import TableForms
from combutab.generators.tables._keys import NewKeys
from combutab.preprocessing import ColumnForm, ForeignKey, find_forms

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class TablePlan:
    """How the rows of one table are made.

    Parameters
    ----------
    columns : list of str
        All columns of the table.
    cells : list of str
        Those that are learned, which are part of no key.
    forms : list of ColumnForm
        Forms of dates as text, and the like.
    dtypes : dict
        Dtypes of the columns of foreign keys.
    new_keys : dict
        Columns that other tables refer to -> how new values are made.
    context : ForeignKey or None
        The key to the parent that rows are drawn given; None for a root.
    matched : list of ForeignKey
        Further keys, whose parents are chosen for rows that are drawn.
    n_rows : int
    order : str or None
        The column by which siblings are ordered.
    numbers, categories, parent_columns : tuple of str
        Columns of the table and of its parent that are in the context of a row.
    orphans : float
        Number of rows without a parent per row of the parent table.
    rows : dict or None
        The columns of a lookup table, which is not drawn.
    """

    columns: list[str]
    cells: list[str]
    forms: list[ColumnForm]
    dtypes: dict[str, Any]
    new_keys: dict[str, NewKeys]
    context: ForeignKey | None
    matched: list[ForeignKey]
    n_rows: int
    order: str | None = None
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    parent_columns: tuple[str, ...] = ()
    orphans: float = 0.0
    rows: dict[str, pd.Series] | None = None

    @classmethod
    def of_table(
        cls, name: str, tables: Tables, keys: Sequence[ForeignKey], lookup: Collection[str]
    ) -> TablePlan:
        """Plan how a table is made; the generators of children complete the plan."""
        table, is_lookup = tables[name], name in lookup
        foreign = {column for key in keys if key.child == name for column in key.columns}
        referred = [column for key in keys if key.parent == name for column in key.parent_columns]
        new_keys = {
            column: NewKeys.of_column(table[column], name)
            for column in dict.fromkeys(referred)
            if column not in foreign and not is_lookup
        }
        foreign_keys = [key for key in keys if key.child == name]
        context = next((key for key in foreign_keys if key.parent not in lookup), None)
        excluded = foreign | set(referred)
        return cls(
            columns=[*map(str, table)],
            cells=[column for column in map(str, table) if column not in excluded],
            forms=list(find_forms(table, excluded)),
            dtypes={
                column: _without_categories(table[column].dtype)
                for column in map(str, table)
                if column in foreign
            },
            new_keys=new_keys,
            context=context,
            matched=[key for key in foreign_keys if key is not context],
            n_rows=len(table),
            rows={str(column): table[column] for column in table} if is_lookup else None,
        )

    @property
    def is_root(self) -> bool:
        """Whether rows are drawn without a parent."""
        return self.context is None and self.rows is None

    def read(self, table: pd.DataFrame) -> pd.DataFrame:
        """The learned columns of a table, with dates as dates."""
        return pd.DataFrame(TableForms(self.columns, self.forms).read(table)[self.cells])

    def write(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table in the form of the fitted one."""
        return pd.DataFrame(TableForms(self.columns, self.forms).write(table[self.columns]))

    def read_requests(self, requests: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
        """Conditions or shares (``kind``) of columns that are learned, with dates as dates."""
        requests = dict(requests or {})
        for column in requests:
            if column not in self.cells:
                raise ValueError(
                    f"{kind} are possible on {self.cells}, which are no keys, got {column!r}"
                )
        forms = TableForms(self.columns, self.forms)
        read = forms.read_shares if kind == "shares" else forms.read_condition
        return {name: read(name, value) for name, value in requests.items()}


def _without_categories(dtype: Any) -> Any:
    """A dtype that has none of the values of a column."""
    is_category = isinstance(dtype, pd.CategoricalDtype)
    return pd.CategoricalDtype(dtype.categories[:0]) if is_category else dtype


_TEXTS = several(text())
_NAMES = kind(tuple)
declare(
    TablePlan,
    {
        "columns": _TEXTS,
        "cells": _TEXTS,
        "forms": several(kind(ColumnForm)),
        "dtypes": kind(dict),
        "new_keys": kind(dict),
        "context": nullable(kind(ForeignKey)),
        "matched": several(kind(ForeignKey)),
        "n_rows": whole(1),
        "order": nullable(text()),
        "numbers": _NAMES,
        "categories": _NAMES,
        "parent_columns": _NAMES,
        "orphans": number(),
        "rows": nullable(kind(dict)),
    },
)


def check_order(tables: Tables, keys: Sequence[ForeignKey], order_by: Any) -> dict[str, str]:
    """Check the columns by which the rows of child tables are ordered."""
    order_by = dict(order_by or {})
    children = {key.child for key in keys}
    for name, column in order_by.items():
        if name not in children:
            raise ValueError(
                f"order_by: {name!r} is no table with a foreign key, but {sorted(children)} are"
            )
        if column not in tables[name]:
            raise ValueError(f"order_by: table {name!r} has no column {column!r}")
        if any(column in key.columns for key in keys if key.child == name):
            raise ValueError(f"order_by: column {column!r} of table {name!r} is part of a key")
        values = tables[name][[column]]
        values = TableForms([column], find_forms(values)).read(values)[column]
        if number_kind(values.dtype) is None:
            raise ValueError(
                f"order_by: column {column!r} of table {name!r} has the dtype {values.dtype}, but "
                "an order has numbers or dates; convert it (pandas.to_datetime)"
            )
        if values.isna().any():
            raise ValueError(
                f"order_by: column {column!r} of table {name!r} is missing in row "
                f"{int(values.isna().argmax())}; remove the row, or leave order_by out"
            )
    return order_by


def check_lookup(tables: Tables, keys: Sequence[ForeignKey], lookup: Any) -> None:
    """Check the tables that are not drawn."""
    if isinstance(lookup, str):
        raise ValueError(f"lookup must be a list of tables, got {lookup!r}; use [{lookup!r}]")
    for name in lookup:
        if name not in tables:
            raise ValueError(f"lookup: there is no table {name!r}, but {[*tables]}")
        key = next((key for key in keys if key.child == name), None)
        if key is not None:
            raise ValueError(
                f"lookup: table {name!r} has the foreign key {key}, so that its rows cannot stay "
                "as they are; leave the key out, and drop the column"
            )
    if set(lookup) == set(tables):
        raise ValueError("lookup: all tables are lookup tables, none is left to sample")
