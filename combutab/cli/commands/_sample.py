"""The options and help of ``combutab sample``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from combutab.cli.commands._options import (
    SEEDS,
    Conditions,
    Device,
    Guard,
    Out,
    run,
)


def sample(
    model: Annotated[
        Path, typer.Argument(help="File that `combutab synth --save` wrote.", show_default=False)
    ],
    out: Out,
    rows: Annotated[int, typer.Option(help="Rows to write.", min=1)] = 1000,
    condition: Conditions = None,
    seed: Annotated[int, typer.Option(help="Of the rows.", min=0, max=SEEDS)] = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    run("synth._synth", "sample", locals())
