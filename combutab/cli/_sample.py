"""``combutab sample``: sample rows from a saved generator."""

from __future__ import annotations

from dataclasses import dataclass

from combutab.cli import _options
from combutab.cli._console import refusals, spinner
from combutab.cli._databases import (
    check_folder_of_tables,
    is_database_model,
    load_database_model,
    refuse_options,
    write_database,
)
from combutab.core.text import counted


@dataclass(frozen=True, kw_only=True)
class SampleOptions(_options.RowOptions):
    """The options of ``combutab sample``.

    Options
    -------
    model : MODEL
        Saved generator, written by `combutab synth --save`.
    out : FILE
        Table file to write: .csv, .tsv (both also with .gz) or .parquet; - prints the rows. For a
        generator of several tables, the folder to write.

    Rows
    ----
    rows : NUMBER
        Number of rows to write. With several tables, that of the table without a parent.
    """

    model: _options.Table
    out: _options.Out
    rows: _options.Count = 1000


def sample(options: SampleOptions) -> None:
    """Sample synthetic rows from a generator that `combutab synth` has saved.

    The same --rows, --condition, --shares and --seed as in `combutab synth` give the same table.

    Example: combutab sample generator.safetensors -o more.csv --rows 5000
    """
    if options.model.is_file() and is_database_model(options.model):
        _sample_database(options)
        return
    out = options.out
    _options.check_outputs({"OUT": out}, {"MODEL": options.model}, table=out)

    from combutab.cli import _files, _generators

    _files.find_device(options.device)
    generator, forms, _ = _generators.load_generator(options.model, options.device)
    forms.guarded |= options.guard_formulas
    _generators.write_sample(generator, forms, options, options.rows, out)
    options.echo_done(f"Wrote {counted(options.rows, 'row')} to {out}")


def _sample_database(options: SampleOptions) -> None:
    """Sample a database from a saved generator of several tables."""
    refuse_options(options, "condition", "shares", several=False)
    model, forms, files = load_database_model(options.model, options.device)
    check_folder_of_tables(files, {"MODEL": options.model}, options)
    with spinner("Making rows"), refusals():
        tables = model.sample(options.rows, random_state=options.seed)
    write_database(tables, forms, files, options)
