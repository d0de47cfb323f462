"""The options that several commands have, each declared once, and the checks of their values.

Nothing here imports a heavy library, so that help and wrong usage are answered at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from combutab.core.text import parse_seconds

READABLE = ".csv, .tsv (both also with .gz), .parquet or .xlsx"
TABLE = f"Table with a header line: {READABLE}"
GENERATORS = ["ctgan", "tabflow", "tvae"]  # of combutab.generators, which takes seconds to import
_SEP = 'What is between the cells of a text file, such as ";", "|" or "tab".'
_DECIMAL = '"," if a text file has numbers such as 0,125; "." if 0.125.'
_ENCODING = "Encoding of a text file, such as latin-1 or cp1252."
_FITTED = "as the model's table"


def generator_names() -> list[str]:
    """List the values of ``--model``: all generators that are registered, or will be on import."""
    package = sys.modules.get("combutab.generators")
    names = GENERATORS if package is None else package.find_generators()
    return sorted(name.lower() for name in names)


def one_of(names: list[str], name: str) -> str:
    """Return the one of the names that an option names in any case."""
    if name.lower() not in names:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, names))}.")
    return name.lower()


def _generator_name(name: str | None) -> str | None:
    return None if name is None else one_of(generator_names(), name)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no number of seconds, nor a time such as 90s, 2min or 1h."
        ) from None


def _as_separator(text: str | None) -> str | None:
    """Take the option as the separator itself; a tab is hard to write on a command line."""
    return "\t" if text in ("tab", "\\t") else text


def columns_option(help: str, **settings: Any) -> Any:
    """An option that names columns, separated by commas, each time that it is given."""
    return typer.Option(metavar="COLUMNS", help=help, **settings)


Table = Annotated[Path, typer.Argument(help=f"{TABLE}.")]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", help="File to write: .csv, .tsv (both also with .gz) or .parquet."),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard-formulas",
        help="In a .csv or .tsv, put a ' before text that a spreadsheet would run as a formula.",
    ),
]
Sep = Annotated[
    str | None, typer.Option(help=_SEP, callback=_as_separator, show_default="by its ending")
]
Decimal = Annotated[str, typer.Option(help=_DECIMAL)]
Encoding = Annotated[str, typer.Option(help=_ENCODING)]
FittedSep = Annotated[
    str | None,
    typer.Option(
        help=_SEP,
        callback=_as_separator,
        show_default="of a .csv as in the model's; else by its ending",
    ),
]
FittedDecimal = Annotated[str | None, typer.Option(help=_DECIMAL, show_default=_FITTED)]
FittedEncoding = Annotated[
    str | None, typer.Option(help=_ENCODING, show_default="UTF-8, or as in the model's")
]
Drop = Annotated[list[str] | None, columns_option("Columns, separated by commas, to leave out.")]
Discrete = Annotated[
    list[str] | None,
    columns_option(
        "Columns, separated by commas, whose numbers are categories; '*' for all. Text and "
        "booleans are categories in any case."
    ),
]
Task = Annotated[str, typer.Option(help="auto, classification or regression.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Seed = Annotated[
    int,
    typer.Option(help="Random seed: the same one gives the same results.", min=0, max=2**32 - 1),
]
Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the rows, at most.", min=1, show_default="the model's own"),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=_seconds,
        help="Seconds, or 90s, 2min, 1h, after which the training ends with the epoch.",
        show_default="no limit",
    ),
]
Generator = Annotated[
    str | None,
    typer.Option(
        metavar=f"<{'|'.join(generator_names())}>",
        callback=_generator_name,
        help="Kind of generator.",
        show_default="tabflow",
    ),
]
MinFrequency = Annotated[
    float | None,
    typer.Option(
        help="Rows that must have a value (below 1: share of them) for it to be made, or kept in a "
        "file. 1 keeps all values, and the least and the greatest numbers, as they are.",
        show_default="5",
    ),
]
Identifiers = Annotated[
    list[str] | None,
    columns_option(
        "Columns, separated by commas, that name rows, and get new names; 'none' for no column.",
        show_default="those that look so",
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        metavar="CONDITION",
        help='What all rows must meet: "city=Rome", "city=Rome|Oslo", "age=30", "age=30..50", '
        '"age=30..". May be given several times, for different columns.',
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        help="File for the generator, from which `combutab sample` makes more rows. "
        "It is written as soon as it is trained."
    ),
]
