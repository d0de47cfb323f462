"""Columns of dates and times that a table has as text: read for the generator, and written back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from combutab.preprocessing import ColumnForm


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
