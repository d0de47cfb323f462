"""The options and help of ``combutab synth``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import (
    MODEL,
    SEEDS,
    Conditions,
    Decimal,
    Device,
    Discrete,
    Drop,
    Encoding,
    Epochs,
    Guard,
    MaxTime,
    Model,
    Out,
    Save,
    Sep,
    run,
)
from combutab.cli.synth._kept import Identifiers, MinFrequency


def synth(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    out: Out,
    model: Model = MODEL,
    activation: Annotated[
        str | None,
        typer.Option(
            help="Of all hidden layers; also pln-N, pls-N, and original.",
            show_default="the generator's own",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Rows to write.", min=1, show_default="as many as DATA has")
    ] = None,
    discrete: Discrete = None,
    min_frequency: MinFrequency = None,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    condition: Conditions = None,
    epochs: Epochs = None,
    max_time: MaxTime = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Rows in a batch.", min=1, show_default="the generator's own"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the training and of the rows.", min=0, max=SEEDS)
    ] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File that the training is written to every half minute, and by Ctrl-C. If it is "
            "there, training goes on from it.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="File for a report, such as report.html, of how good the rows are, as `combutab "
            "evaluate` writes it.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="With --report: column that learners are to predict.", show_default=False
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="With --report: share of the rows that the generator does not learn from, to "
            "compare with; 0 for none.",
            show_default="0.2",
        ),
    ] = None,
) -> None:
    """Train a generator on a table, and write a synthetic one of the same columns.

    Ctrl-C ends the training and writes what it has learned, beside files that are there.
    """
    run("synth._synth", "synth", locals())
