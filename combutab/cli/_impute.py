"""``combutab impute``: a table whose missing cells are filled by a generator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli._console import UserError, echo_on_terminal, refusals, spinner, warn
from combutab.cli._options import (
    READABLE,
    Decimal,
    Device,
    Discrete,
    Drop,
    Encoding,
    Epochs,
    Generator,
    Guard,
    Identifiers,
    MaxTime,
    MinFrequency,
    Out,
    Save,
    Seed,
    Sep,
)

if TYPE_CHECKING:
    import pandas as pd


def impute(
    data: Annotated[
        Path,
        typer.Argument(help=f"Table with a header line: {READABLE}; its empty cells are filled."),
    ],
    out: Out,
    n_draws: Annotated[
        int,
        typer.Option(
            help="Tables to write, each filled anew: with 2 and -o out.csv, out-1.csv and "
            "out-2.csv. What differs between them is not known.",
            min=1,
        ),
    ] = 1,
    model: Generator = None,
    model_file: Annotated[
        Path | None,
        typer.Option(
            help="File of a generator that has learned a table of the same columns (`combutab "
            "synth --save`), to fill by, instead of one that learns DATA."
        ),
    ] = None,
    discrete: Discrete = None,
    min_frequency: MinFrequency = None,
    identifiers: Identifiers = None,
    drop: Drop = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    epochs: Epochs = None,
    max_time: MaxTime = None,
    seed: Seed = 0,
    device: Device = "auto",
    guard_formulas: Guard = False,
    save: Save = None,
) -> None:
    """Fill the missing cells of a table by a generator that learns the table, or has learned.

    Ctrl-C ends the training, and fills by what it has learned, beside files that are there.
    """
    training = {
        "--model": model,
        "--discrete": discrete,
        "--min-frequency": min_frequency,
        "--identifiers": identifiers,
        "--epochs": epochs,
        "--max-time": max_time,
        "--save": save,
    }
    for option, value in training.items():
        if model_file is not None and value is not None:
            raise UserError(f"{option} is for a training, but {model_file} has been trained")

    from combutab.cli._generators import (
        TrainingRun,
        beside,
        hint_at_few_values,
        load_generator,
        make_generator,
        probe,
        read_protection,
    )
    from combutab.cli._models import check_device, check_replaceable
    from combutab.cli._tables import (
        Reading,
        check_ending,
        check_outputs,
        find_columns,
        hint_at_formulas,
        hint_at_odd_columns,
        leave_out,
        read_file,
        write_table,
    )
    from combutab.core.device import resolve_device

    started = time.perf_counter()
    check_ending(out)
    places = [out] if n_draws == 1 else [beside(out, str(i + 1)) for i in range(n_draws)]
    inputs = {"DATA": data, "--model-file": model_file}
    check_outputs({"--save": save}, inputs)
    for place in places:
        check_outputs({"OUT": place}, inputs | {"--save": save})
    check_replaceable("--save", save)
    check_device(device)
    reading = Reading(sep, decimal, encoding)
    table, forms = read_file(data, reading)
    table = leave_out(table, drop)
    listed = find_columns("--discrete", discrete, table.columns)
    hint_at_odd_columns(table, reading, identifiers=False)
    forms.guarded = guard_formulas
    hint_at_formulas(table, forms, out)
    n_missing = int(table.isna().to_numpy().sum())
    if not n_missing:
        raise UserError(f"{data} has no missing cell to fill")
    if model_file is not None:
        generator, _ = load_generator(model_file, device)
    else:
        protection = read_protection(min_frequency, identifiers, table.columns)
        columns = probe(table, listed, protection)
        if save is not None:
            with refusals(TypeError):  # of values that no generator's file can hold
                columns.to_state()
        options = {"epochs": epochs, "max_time": max_time, "random_state": seed, "device": device}
        generator = make_generator(model or "tabflow", protection, **options)
        echo_on_terminal(
            f"{data.name}: {n_missing:,} of {table.size:,} cells are missing; "
            f"{type(generator).__name__} on {resolve_device(device)}"
        )
        if not listed:
            hint_at_few_values(table)
    run = TrainingRun(generator)
    with run.reported():
        if model_file is None:
            run.fit(table, columns.discrete_columns)
            run.save(save, forms)
        places = [run.place(place) for place in places]
        for filled, place in zip(_fill(generator, table, n_draws, seed), places, strict=True):
            write_table(filled, forms, place)
            run.add("the filled table", place)
        which = places[0] if n_draws == 1 else f"{places[0]} to {places[-1]}"
        seconds = time.perf_counter() - started
        echo_on_terminal(f"Filled {n_missing:,} cells: {which} ({seconds:.1f} s)")


def _fill(generator: Any, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
    from combutab.cli._tables import list_names

    with spinner("Filling cells"), refusals():
        filled = generator.impute(table, n_draws=n_draws, random_state=seed)
    tables: list[pd.DataFrame] = [filled] if n_draws == 1 else filled
    missing = tables[0].isna().sum()
    if missing.any():
        names = [str(name) for name in missing.index[missing > 0]]
        warn(
            f"{missing.sum():,} cells of {list_names(names)} are still missing: the generator "
            "knows no value for them"
        )
    return tables
