"""The options and help of ``combutab compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import (
    Decimal,
    Drop,
    Encoding,
    Sep,
    run,
)

# BASELINES and DEFAULT_ACTIVATIONS of model_selection, which to import would take seconds
_BASELINES = "guess,linear,boosting"
_ACTIVATIONS = "relu,elu,selu,swish,nlrelu,gelu,combu,pln-4,la-silu,la-hardsilu"


def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx. "
            "Without it, two small data sets are compared on: wdbc and the formula AR.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of DATA to predict.", show_default=False)
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    activations: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; also pln-N and pls-N.",
            show_default=_ACTIVATIONS.replace(",", ", "),
        ),
    ] = _ACTIVATIONS,
    seeds: Annotated[int, typer.Option(help="Networks a fold and activation.")] = 5,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of every network.",
            show_default="80; for large tables to 20; the recipe's own with --recipe default",
        ),
    ] = None,
    hidden: Annotated[str, typer.Option(help="Widths such as 128,128, or auto.")] = "auto",
    recipe: Annotated[
        str,
        typer.Option(
            help="paper, which is the CombU paper's network, or default, the estimators' own."
        ),
    ] = "paper",
    metric: Annotated[
        str | None,
        typer.Option(
            help="accuracy, f1, log_loss or roc_auc; r2, mae or mse.",
            show_default="accuracy or r2",
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(help="corrected-t or wilcoxon, with Holm's correction.")
    ] = "corrected-t",
    baselines: Annotated[
        str, typer.Option(help="What networks are measured against, of these; or none.")
    ] = _BASELINES,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the folds and of all networks.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Stacks that train at the same time, each in a thread.",
            min=1,
            show_default="one a core; 1 on a GPU",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786, whose workers train.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the files. Where a run was interrupted, the same command goes on "
            "from the scores in it."
        ),
    ] = Path("combutab-compare"),
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Train anew, and overwrite the results that the folder holds."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML page to write for a person to read, such as report.html. "
            "Without DATA there is one for each data set, whose name is added.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the best activation for a table, and whether the difference is real."""
    run("_compare", "compare", locals())
