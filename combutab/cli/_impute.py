"""``combutab impute``: a table whose missing cells are filled by a generator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, refusals, spinner, warn
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd


def impute(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help=f"{_options.TABLE}. Its empty cells are filled."),
    ],
    out: _options.Out,
    n_draws: Annotated[
        int,
        typer.Option(
            help="Number of imputed tables to write (multiple imputation). With 2 and -o out.csv "
            "they are out-1.csv and out-2.csv. How much an imputed cell differs between the tables "
            "shows how uncertain it is.",
            min=1,
        ),
    ] = 1,
    model: _options.Generator = None,
    model_file: Annotated[
        Path | None,
        typer.Option(
            help="Saved generator of a table with the same columns (`combutab synth --save`). It "
            "fills the cells, and no generator is trained on DATA."
        ),
    ] = None,
    discrete: _options.Discrete = None,
    min_frequency: _options.MinFrequency = None,
    identifiers: _options.Identifiers = None,
    drop: _options.Drop = None,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    constraints: _options.Constraints = None,
    epochs: Annotated[int | None, _options.epochs_option(_options.GENERATOR_EPOCHS)] = None,
    max_time: _options.MaxTime = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
    guard_formulas: _options.Guard = False,
    save: _options.Save = None,
) -> None:
    """Impute the missing cells of a table with a generator that is trained on it.

    Each missing cell is drawn at random, given the other cells of its row. If Ctrl-C interrupts the
    training, the cells are filled by the generator as trained so far. A file that exists already is
    then kept: "-interrupted" is added to the name of the new one.
    """
    training: dict[str, Any] = {
        "--model": model,
        "--discrete": discrete,
        "--min-frequency": min_frequency,
    }
    training |= {"--identifiers": identifiers, "--epochs": epochs, "--max-time": max_time}
    training |= {"--constraints": constraints, "--save": save}
    for option, value in training.items():
        if model_file is not None and value is not None:
            raise UserError(
                f"{option} applies to training, but {model_file} is trained already; leave "
                f"{option} or --model-file out"
            )

    started = time.perf_counter()
    _options.check_ending(out)
    places = [out] if n_draws == 1 else [_options.beside(out, str(i + 1)) for i in range(n_draws)]
    inputs = {"DATA": data, "--model-file": model_file, "--constraints": constraints}
    _options.check_outputs({"--save": save}, inputs)
    for place in places:
        _options.check_outputs({"OUT": place}, inputs | {"--save": save})
    _options.check_replaceable("--save", save)
    if model_file is not None:
        _options.check_model(model_file)
    named = None if identifiers == ["none"] else identifiers
    reading = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    reading = _options.with_known_header(reading, data, model_file)
    _options.check_table(data, reading, drop=drop, discrete=discrete, identifiers=named)

    from combutab.cli import _files

    like = None if model_file is None else _files.read_format(model_file)
    table, forms, listed = _files.read_to_learn(data, reading, drop, discrete, like)
    _files.hint_before_learning(table, reading, forms, out, guard_formulas)
    n_missing = int(table.isna().to_numpy().sum())
    if not n_missing:
        raise UserError(f"{data} has no missing cells to fill")

    from combutab.cli import _generators
    from combutab.core.device import resolve_device

    rules = _generators.read_rules(constraints)
    _files.check_device(device)
    if model_file is not None:
        generator, _ = _generators.load_generator(model_file, device)
    else:
        protection = _generators.read_protection(min_frequency, identifiers, table.columns)
        columns = _generators.probe(table, listed, protection, to_save=save is not None)
        options = {"epochs": epochs, "max_time": max_time, "random_state": seed, "device": device}
        generator = _generators.make_generator(
            model or "tabflow", protection, constraints=rules, **options
        )
        echo_on_terminal(
            f"{data.name}: {n_missing:,} of {table.size:,} cells are missing; "
            f"{type(generator).__name__} on {resolve_device(device)}"
        )
        if not listed:
            _generators.hint_at_few_values(table)
    run = _generators.TrainingRun(generator)
    with run.reported():
        if model_file is None:
            run.fit(table, columns.discrete_columns)
            run.save(save, forms)
        places = [run.place(place) for place in places]
        for filled, place in zip(_fill(generator, table, n_draws, seed), places, strict=True):
            _files.write_table(filled, forms, place)
            run.add("the filled table", place)
        which = places[0] if n_draws == 1 else f"{places[0]} to {places[-1]}"
        seconds = time.perf_counter() - started
        echo_on_terminal(f"Filled {counted(n_missing, 'cell')}: {which} ({seconds:.1f} s)")


def _fill(generator: Any, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
    from combutab.cli import _files

    with spinner("Filling cells"), refusals():
        filled = generator.impute(table, n_draws=n_draws, random_state=seed)
    tables: list[pd.DataFrame] = [filled] if n_draws == 1 else filled
    missing = tables[0].isna().sum()
    if missing.any():
        names = [str(name) for name in missing.index[missing > 0]]
        warn(
            f"{missing.sum():,} cells of {_files.list_names(names)} are still missing, "
            "because the generator has no values for them"
        )
    return tables
