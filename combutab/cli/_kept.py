"""Options of `combutab synth` on what is kept of single rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from combutab.cli._console import UserError
from combutab.cli._names import find_columns

_NONE = "none"

MinFrequency = Annotated[
    float,
    typer.Option(
        help="Rows that must have a value (below 1: share of them) for it to be made, or kept in a "
        "file. 1 keeps all values, and the least and the greatest numbers, as they are.",
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


def read_kept(
    min_frequency: float, identifiers: list[str] | None, columns: Iterable[Any]
) -> dict[str, Any]:
    """The options as parameters of a generator.

    Raises
    ------
    UserError

    >>> read_kept(5.0, ["none"], ["a"])
    {'min_frequency': 5, 'identifiers': None}
    >>> read_kept(0.01, ["a"], ["a", "b"])
    {'min_frequency': 0.01, 'identifiers': ['a']}
    """
    columns = list(columns)
    least: float = int(min_frequency) if min_frequency.is_integer() else min_frequency
    if not (0 < least < 1 or (isinstance(least, int) and least)) or least < 0:
        raise UserError(
            "--min-frequency is a whole number of rows, or a share of them between 0 and 1, got "
            f"{min_frequency:g}"
        )
    found: Any = "auto"
    if identifiers is not None:
        none = identifiers == [_NONE] and _NONE not in columns
        found = None if none else find_columns("--identifiers", identifiers, columns)
    return {"min_frequency": least, "identifiers": found}
