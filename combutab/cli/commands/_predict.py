"""The options and help of ``combutab predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import Decimal, Device, Encoding, Guard, Out, Sep, run


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
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write what a model predicts for each row of a table, in the order of the rows."""
    run("estimators._predict", "predict", locals())
