"""``combutab sample``: rows of a generator that was trained before."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from combutab.cli import _options
from combutab.cli._console import echo_on_terminal
from combutab.core.text import counted


def sample(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Saved generator, written by `combutab synth --save`."
        ),
    ],
    out: _options.Out,
    rows: Annotated[int, typer.Option(help="Number of rows to write.", min=1)] = 1000,
    condition: _options.Conditions = None,
    shares: _options.Shares = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
    guard_formulas: _options.Guard = False,
) -> None:
    """Sample synthetic rows from a generator that `combutab synth` has saved.

    The same --rows, --condition, --shares and --seed as in `combutab synth` give the same table.
    """
    started = time.perf_counter()
    _options.check_ending(out)
    _options.check_outputs({"OUT": out}, {"MODEL": model})
    _options.check_model(model, {"--condition": condition, "--shares": shares})

    from combutab.cli import _files, _generators
    from combutab.cli._conditions import parse_conditions, parse_shares

    _files.check_device(device)
    generator, forms = _generators.load_generator(model, device)
    forms.guarded |= guard_formulas
    if _generators.is_streamed(out, condition, shares):
        _generators.stream_rows(generator, forms, rows, seed, out)
    else:
        _generators.check_size(rows, generator.n_features_in_)
        conditions = parse_conditions(condition, generator.encoder_, forms)
        wanted = parse_shares(shares, generator.encoder_, forms, conditions)
        _generators.write_rows(generator, forms, rows, conditions, wanted, seed, out)
    echo_on_terminal(
        f"Wrote {counted(rows, 'row')} to {out} ({time.perf_counter() - started:.1f} s)"
    )
