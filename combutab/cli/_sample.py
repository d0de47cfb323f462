"""``combutab sample``: sample rows from a saved generator."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from combutab.cli import _options
from combutab.cli._console import echo_on_terminal
from combutab.core.text import counted


@dataclass(frozen=True, kw_only=True)
class SampleOptions(_options.RowOptions):
    """The options of ``combutab sample``."""

    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Saved generator, written by `combutab synth --save`."
        ),
    ]
    out: _options.Out
    rows: Annotated[int, typer.Option(help="Number of rows to write.", min=1)] = 1000


def sample(options: SampleOptions) -> None:
    """Sample synthetic rows from a generator that `combutab synth` has saved.

    The same --rows, --condition, --shares and --seed as in `combutab synth` give the same table.
    """
    started = time.perf_counter()
    out = options.out
    _options.check_ending(out)
    _options.check_outputs({"OUT": out}, {"MODEL": options.model})
    requests = {"--condition": options.condition, "--shares": options.shares}
    _options.check_model(options.model, requests)

    from combutab.cli import _files, _generators

    _files.check_device(options.device)
    generator, forms = _generators.load_generator(options.model, options.device)
    forms.guarded |= options.guard_formulas
    _generators.write_sample(generator, forms, options, options.rows, out)
    seconds = time.perf_counter() - started
    echo_on_terminal(f"Wrote {counted(options.rows, 'row')} to {out} ({seconds:.1f} s)")
