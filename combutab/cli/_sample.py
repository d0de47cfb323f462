"""``combutab sample``: rows of a generator that was trained before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from combutab.cli._console import echo_on_terminal
from combutab.cli._options import Conditions, Device, Guard, Out, Seed


def sample(
    model: Annotated[Path, typer.Argument(help="File that `combutab synth --save` wrote.")],
    out: Out,
    rows: Annotated[int, typer.Option(help="Rows to write.", min=1)] = 1000,
    condition: Conditions = None,
    seed: Seed = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    from combutab.cli._conditions import parse_conditions
    from combutab.cli._generators import (
        check_size,
        is_streamed,
        load_generator,
        stream_rows,
        write_rows,
    )
    from combutab.cli._models import check_device
    from combutab.cli._tables import check_ending, check_outputs

    started = time.perf_counter()
    check_ending(out)
    check_outputs({"OUT": out}, {"MODEL": model})
    check_device(device)
    generator, forms = load_generator(model, device)
    forms.guarded |= guard_formulas
    if is_streamed(out, condition):
        stream_rows(generator, forms, rows, seed, out)
    else:
        check_size(rows, generator.n_features_in_)
        conditions = parse_conditions(condition, generator.encoder_, forms)
        write_rows(generator, forms, rows, conditions, seed, out)
    echo_on_terminal(f"Wrote {rows:,} rows to {out} ({time.perf_counter() - started:.1f} s)")
