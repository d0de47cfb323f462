"""The options and help of ``combutab impute``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import (
    MODEL,
    SEEDS,
    Decimal,
    Device,
    Discrete,
    Drop,
    Encoding,
    Epochs,
    Guard,
    MaxTime,
    Out,
    Save,
    Sep,
    generator_names,
    known_generator,
    run,
)
from combutab.cli.synth._kept import Identifiers, MinFrequency


def impute(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx; "
            "its empty cells are filled.",
            show_default=False,
        ),
    ],
    out: Out,
    n_draws: Annotated[
        int,
        typer.Option(
            help="Tables to write, each filled anew: with 2 and -o out.csv, out-1.csv and "
            "out-2.csv. What differs between them is not known.",
            min=1,
        ),
    ] = 1,
    model: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(generator_names())}>",
            callback=known_generator,
            help="Kind of generator that learns DATA.",
            show_default=MODEL,
        ),
    ] = None,
    model_file: Annotated[
        Path | None,
        typer.Option(
            help="File of a generator that has learned a table of the same columns (`combutab "
            "synth --save`), to fill by, instead of one that learns DATA.",
            show_default=False,
        ),
    ] = None,
    discrete: Discrete = None,
    min_frequency: MinFrequency = None,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    epochs: Epochs = None,
    max_time: MaxTime = None,
    seed: Annotated[
        int, typer.Option(help="Of the training and of what is filled in.", min=0, max=SEEDS)
    ] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
) -> None:
    """Fill the missing cells of a table by a generator that learns the table, or has learned.

    Ctrl-C ends the training, and fills by what it has learned, beside files that are there.
    """
    if model_file is None:
        model = model or MODEL
    run("synth._impute", "impute", locals())
