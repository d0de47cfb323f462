"""The options and help of ``combutab fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import SEEDS, Decimal, Device, Drop, Encoding, Sep, run

_MODELS = ("mlp", "pack", "tabm")


def _known_model(name: str) -> str:
    if name.lower() not in _MODELS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, _MODELS))}.")
    return name.lower()


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a header line: .csv, .tsv (both also with .gz), .parquet or .xlsx.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="Column of DATA to predict.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File for the model, such as model.safetensors, for `combutab predict`.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar=f"<{'|'.join(_MODELS)}>",
            callback=_known_model,
            help="A perceptron, a pack of many kinds of them, or TabM.",
        ),
    ] = "mlp",
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    activation: Annotated[
        str | None,
        typer.Option(
            help="Of all hidden layers; also pln-N and pls-N.", show_default="the model's own"
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Networks whose predictions are averaged, or that a pack chooses from.",
            min=1,
            show_default="1; 16 of a pack",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the rows, at most.", min=1, show_default="the model's own"),
    ] = None,
    discrete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns, separated by commas, whose numbers are categories. Those of text are "
            "in any case.",
            show_default=False,
        ),
    ] = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    seed: Annotated[int, typer.Option(help="Of the training.", min=0, max=SEEDS)] = 0,
    device: Device = "auto",
) -> None:
    """Fit a model that predicts one column of a table from the others.

    Where rows are set aside (of 200 or more; a pack's, of 50), the last line says how good the
    model is on them, beside a guess. The file holds no rows. Ctrl-C ends the training, and nothing
    is written.
    """
    run("estimators._fit", "fit", locals())
