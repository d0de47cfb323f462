"""The options and help of ``combutab evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import (
    SEEDS,
    Decimal,
    Drop,
    Encoding,
    Sep,
    run,
)
from combutab.cli.synth._kept import ShownFrequency


def evaluate(
    real: Annotated[
        Path,
        typer.Argument(
            help="The real rows that the generator learned from: .csv, .tsv (both also with .gz), "
            ".parquet or .xlsx.",
            show_default=False,
        ),
    ],
    synthetic: Annotated[
        Path, typer.Argument(help="The synthetic rows, in the same columns.", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Column that learners are to predict, to see how useful the rows are.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="Real rows that the generator has not seen: learners are tested on them, and "
            "privacy is judged beside them. Without, learners are tested on a fifth of REAL, and "
            "of privacy copies alone are known.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File for the report, such as report.html.", show_default=False
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    discrete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns, separated by commas, whose numbers are categories.",
            show_default=False,
        ),
    ] = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    learners: Annotated[
        str,
        typer.Option(
            help="standard, paper, or names separated by commas: linear, decision_tree, "
            "random_forest, hist_gradient_boosting, mlp, xgboost, catboost."
        ),
    ] = "standard",
    model: Annotated[
        Path | None,
        typer.Option(
            help="File of the generator (`combutab synth --save`), for the report to say how the "
            "rows were made.",
            show_default=False,
        ),
    ] = None,
    min_frequency: ShownFrequency = 5,
    seed: Annotated[
        int, typer.Option(help="Of the learners and of what is drawn.", min=0, max=SEEDS)
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(help="Tables to work on at the same time.", min=1, show_default="1"),
    ] = None,
) -> None:
    """Say how useful and how alike synthetic rows are, and whether they give real rows away."""
    run("_evaluate", "evaluate", locals())
