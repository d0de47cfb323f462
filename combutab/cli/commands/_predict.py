"""The options and help of ``combutab predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import DECIMAL, ENCODING, SEP, Device, Guard, Out, run

_FITTED = "as the model's table"


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="File that `combutab fit` wrote, or an estimator's save.", show_default=False
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with the columns that the model was fitted with, in any order; others are "
            "passed over. .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    out: Out,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of each class too.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of DATA, separated by commas, to write beside the predictions; '*' for "
            "all.",
            show_default=False,
        ),
    ] = None,
    sep: Annotated[
        str | None,
        typer.Option(help=SEP, show_default="of a .csv as in the model's; else by its ending"),
    ] = None,
    decimal: Annotated[str | None, typer.Option(help=DECIMAL, show_default=_FITTED)] = None,
    encoding: Annotated[
        str | None, typer.Option(help=ENCODING, show_default="UTF-8, or as in the model's")
    ] = None,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write what a model predicts for each row of a table, in the order of the rows.

    The model's file says what the table was like that it was fitted on: dates, --sep, --decimal and
    --encoding. DATA is read in the same way, unless they are given; text of UTF-8 as that.
    """
    run("estimators._predict", "predict", locals())
