"""Options that several commands have, and how the work of a command is imported."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from combutab._seconds import parse_seconds
from combutab.cli._console import interruptible

SEP = 'What is between the cells of a text file, such as ";", "|" or "tab".'
DECIMAL = '"," if a text file has numbers such as 0,125; "." if 0.125.'
ENCODING = "Of a text file, such as latin-1 or cp1252."
MODEL = "tabflow"  # that synthetic rows come from, unless another one is named
SEEDS = 2**32 - 1


def generator_names() -> list[str]:
    """List the values of ``--model``: all generators that are registered, or will be on import."""
    if (package := sys.modules.get("combutab.generators")) is not None:
        return sorted(name.lower() for name in package.find_generators())
    homes = import_module("combutab")._HOMES
    names = [name for name, home in homes.items() if home == "generators"]
    return sorted(name.lower() for name in names if not name.endswith("Imputer"))


def known_generator(name: str | None) -> str | None:
    if name is None:
        return None
    if name.lower() not in generator_names():
        names = ", ".join(map(repr, generator_names()))
        raise typer.BadParameter(f"{name!r} is not one of {names}.")
    return name.lower()


def _known_time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdigit() else text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no number of seconds, nor a time such as 90s, 2min or 1h."
        ) from None


Model = Annotated[
    str,
    typer.Option(
        metavar=f"<{'|'.join(generator_names())}>",
        callback=known_generator,
        help="Kind of generator.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the rows, at most.", min=1, show_default="the generator's own"),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=_known_time,
        help="Seconds, or 90s, 2min, 1h, after which the training ends with the epoch.",
        show_default="no limit",
    ),
]
Discrete = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS",
        help="Columns, separated by commas, whose numbers are categories; '*' for all. "
        "Those of text and truth values are in any case.",
        show_default=False,
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        help="File for the generator, from which `combutab sample` makes more rows. "
        "It is written as soon as it is trained.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        help="File to write: .csv, .tsv (both also with .gz) or .parquet.",
        show_default=False,
    ),
]
Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--condition",
        metavar="CONDITION",
        help='What all rows must meet: "city=Rome", "city=Rome|Oslo", "age=30", "age=30..50", '
        '"age=30..". May be given several times, for different columns.',
        show_default=False,
    ),
]
Guard = Annotated[
    bool,
    typer.Option(
        "--guard-formulas",
        help="In a .csv or .tsv, put a ' before text that a spreadsheet would run as a formula.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS", help="Columns, separated by commas, to leave out.", show_default=False
    ),
]
Sep = Annotated[str | None, typer.Option(help=SEP, show_default="by its ending")]
Decimal = Annotated[str, typer.Option(help=DECIMAL)]
Encoding = Annotated[str, typer.Option(help=ENCODING)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def run(module: str, name: str, options: dict[str, Any]) -> None:
    """Import a command's module, which takes seconds, and run it."""
    with interruptible():
        getattr(import_module(f"combutab.cli.{module}"), name)(**options)
