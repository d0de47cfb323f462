"""The format in which a table's file is read, and hints on its odd columns."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

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


def tell_of_odd_columns(table: pd.DataFrame, reading: Reading, *, identifiers: bool = True) -> None:
    """Say of columns that may not be what they seem what they are taken for, a line a kind.

    ``identifiers`` says whether to tell of those too.
    """
    by_kind: dict[tuple[str, str], list[OddColumn]] = {}
    for odd in odd_columns(table):
        if identifiers or odd.kind != "identifier":
            by_kind.setdefault((odd.kind, odd.taken), []).append(odd)
    for (kind, taken), found in by_kind.items():
        names = [str(odd.column) for odd in found]
        remedy = _remedy(kind, names, reading)
        example = found[0].example
        if example and len(names) > 1:
            example = f"{names[0]!r}: {example}"
        shown = f"{found[0].why} ({example})" if example else found[0].why
        note(f"{_named(names)} taken for {taken}, {shown}; {remedy}")


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def _remedy(kind: str, names: list[str], reading: Reading) -> str:
    if kind == "decimal comma":
        read = reading.decimal == "."
        return "--decimal , reads them" if read else "write them without signs between thousands"
    if kind in ("header", "missing code"):
        return _REMEDIES[kind]
    return f"{_REMEDIES[kind]}, or {_drop(names)}" if kind in _REMEDIES else _drop(names)


def _drop(names: list[str]) -> str:
    if len(names) > _SHOWN or any("," in name for name in names[1:]):
        return "--drop leaves them out"
    these = "it" if len(names) == 1 else "them"
    return f"--drop {shlex.quote(','.join(names))} leaves {these} out"
