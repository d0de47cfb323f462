"""Columns that are named on the command line, and what is kept of single rows."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from combutab.cli._console import UserError
from combutab.core.text import no_column


def find_columns(option: str, texts: Sequence[str], columns: Iterable[Any]) -> list[Any]:
    """Find the columns that an option names: one, or several separated by commas, each time.

    A name may be a pattern, as of files: ``*`` for all, ``street_*`` for some.

    Raises UserError if a name is none of a column.

    >>> find_columns("--drop", ["a,b", "c,d"], ["a", "b", "c,d"])
    ['a', 'b', 'c,d']
    >>> find_columns("--drop", ["x*"], ["x1", "x2", "y"])
    ['x1', 'x2']
    """
    by_text = {str(column): column for column in columns}
    found = []
    for text in texts:
        for name in [text] if text in by_text else text.split(","):
            name = name if name in by_text else name.strip()
            matching = [name] if name in by_text else fnmatch.filter(by_text, name)
            if not matching:
                raise UserError(f"{option}: {no_column(name, by_text)}")
            found += [by_text[each] for each in matching]
    return list(dict.fromkeys(found))


_NONE = "none"
_FREQUENCY = 5

MinFrequency = Annotated[
    float | None,
    typer.Option(
        help="Rows that must have a value (below 1: share of them) for it to be made, or kept in a "
        "file. 1 keeps all values, and the least and the greatest numbers, as they are.",
        show_default="5",
    ),
]
ShownFrequency = Annotated[
    float,
    typer.Option(
        help="Real rows that must have a value (below 1: share of those of REAL) for the report to "
        "show it.",
        show_default="5",
    ),
]
Identifiers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS",
        help="Columns, separated by commas, that name rows, and get new names; 'none' for no "
        "column.",
        show_default="those that look so",
    ),
]


def read_frequency(min_frequency: float | None) -> float:
    """A number of rows as an integer, or a share of them; 5 where none is given.

    >>> read_frequency(5.0), read_frequency(0.01), read_frequency(None)
    (5, 0.01, 5)
    """
    if min_frequency is None:
        return _FREQUENCY
    least: float = int(min_frequency) if min_frequency.is_integer() else min_frequency
    if 0 < least < 1 or (isinstance(least, int) and least >= 1):
        return least
    raise UserError(
        "--min-frequency is a whole number of rows, or a share of them between 0 and 1, got "
        f"{min_frequency:g}"
    )


def read_kept(
    min_frequency: float | None, identifiers: list[str] | None, columns: Iterable[Any]
) -> dict[str, Any]:
    """The options as parameters of a generator.

    >>> read_kept(5.0, ["none"], ["a"])
    {'min_frequency': 5, 'identifiers': None}
    >>> read_kept(0.01, ["a"], ["a", "b"])
    {'min_frequency': 0.01, 'identifiers': ['a']}
    """
    columns = list(columns)
    found: Any = "auto"
    if identifiers is not None:
        none = identifiers == [_NONE] and _NONE not in columns
        found = None if none else find_columns("--identifiers", identifiers, columns)
    return {"min_frequency": read_frequency(min_frequency), "identifiers": found}
