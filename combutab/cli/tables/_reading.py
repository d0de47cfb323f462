"""The format in which a table's file is read, and hints on its odd columns."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types

from combutab.cli._console import note
from combutab.datasets import TableError, read_cells, read_table
from combutab.preprocessing import OddColumn, odd_columns

ZERO_FIRST = r"^\s*[+-]?0\d"  # of a number, which loses the zero
_SHOWN = 5  # columns that a line names
_REMEDIES = {
    "header": "add a line with the names of the columns",
    "missing code": "leave these cells empty if it does",
    "missing mark": "leave these cells empty if it does",
    "thousands": "write them without",
    "sign": "write them without",
    "few texts": "mend these cells",
    "text numbers": "write them as numbers",
    "dates": "write all of them as 2024-12-31",
    "unclear dates": "write them as 2024-12-31",
    "mixed dates": "write all of them as 2024-12-31",
    "truth values": "write two words only",
}


@dataclass(frozen=True)
class Reading:
    """The format of a text file that holds a table."""

    sep: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    @classmethod
    def of(cls, sep: str | None, decimal: str, encoding: str) -> Reading:
        """Take the options of the command line, where a tab is hard to write."""
        tabs: dict[str | None, str] = {"tab": "\t", "\\t": "\t"}
        return cls(tabs.get(sep, sep), decimal, encoding)

    def table(self, path: Path) -> pd.DataFrame:
        """Read the table of a file as pandas does, or raise a TableError."""
        try:
            return read_table(path, sep=self.sep, decimal=self.decimal, encoding=self.encoding)
        except ImportError as error:  # the message says how to install what is missing
            raise TableError(str(error)) from error

    def cells(self, path: Path, columns: list[int]) -> pd.DataFrame:
        """Read some columns of a text file as they are written."""
        return read_cells(path, columns, sep=self.sep, encoding=self.encoding)


def tell_of_odd_columns(
    table: pd.DataFrame,
    reading: Reading,
    *,
    dates: bool = False,
    identifiers: bool = True,
    zeros: Mapping[Any, str] | None = None,
) -> None:
    """Say of columns that may not be what they seem what they are taken for, a line a kind.

    ``dates`` says whether dates would be read as such if they were written in one form, and
    ``identifiers`` whether to tell of those too; ``zeros`` has columns of numbers whose leading
    zeros are lost, with an example of each.
    """
    by_kind: dict[tuple[str, str], list[OddColumn]] = {}
    for odd in odd_columns(table):
        if identifiers or odd.kind != "identifier":
            by_kind.setdefault((odd.kind, odd.taken), []).append(odd)
    for (kind, taken), found in by_kind.items():
        names = [str(odd.column) for odd in found]
        remedy = _remedy(kind, names, reading, dates)
        example = found[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        shown = f"{found[0].why} ({example})" if example else found[0].why
        note(f"{_named(names)} taken for {taken}, {shown}; {remedy}")
    if zeros:
        names = [str(name) for name in zeros]
        why = f"without the zeros that they begin with ({next(iter(zeros.values()))!r})"
        note(f"{_named(names)} taken for numbers, {why}; {_drop(names)}")


def lost_zeros(table: pd.DataFrame, path: Path, reading: Reading) -> dict[Any, str]:
    """Columns of numbers that a text file writes with leading zeros, with an example of each."""
    whole = [j for j in range(table.shape[1]) if types.is_integer_dtype(table.iloc[:, j].dtype)]
    if not whole or not path.name.lower().endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        return {}
    found = {}
    for name, cells in reading.cells(path, whole).items():
        zeros = cells[cells.str.contains(ZERO_FIRST, regex=True, na=False)]
        if len(zeros):
            found[name] = str(zeros.iloc[0])
    return found


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def _remedy(kind: str, names: list[str], reading: Reading, dates: bool) -> str:
    if kind == "decimal comma":
        read = reading.decimal == "."
        return "--decimal , reads them" if read else "write them without signs between thousands"
    if kind.endswith("dates") and not dates:
        return f"give them as dates in a Parquet file, or {_drop(names)}"
    if kind in ("header", "missing code"):
        return _REMEDIES[kind]
    return f"{_REMEDIES[kind]}, or {_drop(names)}" if kind in _REMEDIES else _drop(names)


def _drop(names: list[str]) -> str:
    if len(names) > _SHOWN or any("," in name for name in names[1:]):
        return "--drop leaves them out"
    these = "it" if len(names) == 1 else "them"
    return f"--drop {shlex.quote(','.join(names))} leaves {these} out"
