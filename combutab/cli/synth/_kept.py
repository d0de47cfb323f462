"""Options on what is kept of single rows, and shown of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from combutab.cli._console import UserError
from combutab.cli.tables._names import find_columns

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
