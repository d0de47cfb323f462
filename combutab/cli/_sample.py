"""``combutab sample``: sample rows from a saved generator."""

from __future__ import annotations

from dataclasses import dataclass

from combutab.cli import _options
from combutab.core.text import counted


@dataclass(frozen=True, kw_only=True)
class SampleOptions(_options.RowOptions):
    """The options of ``combutab sample``.

    Options
    -------
    model : MODEL
        Saved generator, written by `combutab synth --save`.

    Rows
    ----
    rows : NUMBER
        Number of rows to write.
    """

    model: _options.Table
    out: _options.Out
    rows: _options.Count = 1000


def sample(options: SampleOptions) -> None:
    """Sample synthetic rows from a generator that `combutab synth` has saved.

    The same --rows, --condition, --shares and --seed as in `combutab synth` give the same table.

    Example: combutab sample generator.safetensors -o more.csv --rows 5000
    """
    out = options.out
    _options.check_outputs({"OUT": out}, {"MODEL": options.model}, table=out)

    from combutab.cli import _files, _generators

    _files.find_device(options.device)
    generator, forms, _ = _generators.load_generator(options.model, options.device)
    forms.guarded |= options.guard_formulas
    _generators.write_sample(generator, forms, options, options.rows, out)
    options.echo_done(f"Wrote {counted(options.rows, 'row')} to {out}")
