"""``combutab impute``: a table whose missing cells are filled by a generator."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from combutab.cli._columns import find_columns, read_kept
from combutab.cli._console import UserError, interruptible, one_line_warnings, say_on_terminal, warn
from combutab.cli._generators import Kept, beside, make_generator, train_generator
from combutab.cli._model_files import (
    check_device,
    check_replaceable,
    check_savable,
    leave_out,
    load_generator,
    probe,
    save_generator,
    tell_of_few_values,
    tell_of_formulas,
)
from combutab.cli._tables import (
    FileFormat,
    Reading,
    check_ending,
    check_file,
    ending,
    read_file,
    tell_of_odd_columns,
    write_file,
    write_whole,
)
from combutab.core.device import resolve_device
from combutab.training import ProgressBar

_SHOWN = 5  # columns that a line names


def impute(
    *,
    data: Path,
    out: Path,
    n_draws: int,
    model: str | None,
    model_file: Path | None,
    discrete: list[str] | None,
    min_frequency: float | None,
    identifiers: list[str] | None,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    epochs: int | None,
    max_time: float | None,
    seed: int,
    device: str,
    guard_formulas: bool,
    save: Path | None,
) -> None:
    """Fill the missing cells of a table by a generator that learns the table, or has learned.

    Ctrl-C ends the training, and fills by what it has learned, beside files that are there.
    """
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        if model_file is not None:
            training = {
                "--model": model,
                "--discrete": discrete,
                "--min-frequency": min_frequency,
                "--identifiers": identifiers,
                "--epochs": epochs,
                "--max-time": max_time,
                "--save": save,
            }
            _refuse_given(training, model_file)
        check_ending(out)
        places = [out] if n_draws == 1 else [beside(out, str(i + 1)) for i in range(n_draws)]
        others = {"DATA": data, "--model-file": model_file, "--save": save}
        for place in places:
            check_file(place, **{name: path for name, path in others.items() if path is not None})
        if save is not None:
            check_file(save, DATA=data)
            check_replaceable(save)
        check_device(device)
        reading = Reading.of(sep, decimal, encoding)
        table, forms = read_file(data, reading)
        table = leave_out(table, find_columns("--drop", drop or [], table.columns))
        listed = find_columns("--discrete", discrete or [], table.columns)
        tell_of_odd_columns(table, reading, identifiers=False)
        forms.guarded = guard_formulas
        tell_of_formulas(table, forms, out)
        n_missing = int(table.isna().to_numpy().sum())
        if not n_missing:
            raise UserError(f"{data} has no missing cell to fill")
        if model_file is not None:
            generator, _ = load_generator(model_file, device)
            for i, filled in enumerate(_fill(generator, table, n_draws, seed)):
                _write(filled, forms, places[i])
            _tell(n_missing, places, started)
            return

        assert model is not None  # the command has a default
        protection = read_kept(min_frequency, identifiers, table.columns)
        columns = probe(table, listed, protection)
        if save is not None:
            check_savable(columns)
        generator = make_generator(
            model,
            protection,
            ProgressBar,
            epochs=epochs,
            max_time=max_time,
            random_state=seed,
            device=device,
        )
        say_on_terminal(
            f"{data.name}: {n_missing:,} of {table.size:,} cells are missing; "
            f"{type(generator).__name__} on {resolve_device(device)}"
        )
        if not listed:
            tell_of_few_values(table)
        kept = Kept(generator)
        with kept.told():
            kept.interrupted = train_generator(generator, table, columns.discrete_columns, None)
            if save is not None:
                place = kept.place(save)
                write_whole(place, lambda stage: save_generator(generator, forms, stage))
                kept.add("the generator", place)
                say_on_terminal(f"Wrote the generator to {place}")
            places = [kept.place(place) for place in places]
            for i, filled in enumerate(_fill(generator, table, n_draws, seed)):
                _write(filled, forms, places[i])
                kept.add("the filled table", places[i])
            _tell(n_missing, places, started)


def _refuse_given(training: Mapping[str, Any], trained: Path) -> None:
    """Refuse options of a training where there is none."""
    for option, value in training.items():
        if value is not None:
            raise UserError(f"{option} is for a training, but {trained} has been trained")


def _fill(generator: Any, table: pd.DataFrame, n_draws: int, seed: int) -> list[pd.DataFrame]:
    console = Console(stderr=True)
    with console.status("Filling cells") if console.is_terminal else nullcontext():
        try:
            filled = generator.impute(table, n_draws=n_draws, random_state=seed)
        except ValueError as error:
            raise UserError(str(error)) from error
    tables: list[pd.DataFrame] = [filled] if n_draws == 1 else filled
    missing = tables[0].isna().sum()
    if missing.any():
        names = [repr(str(name)) for name in missing.index[missing > 0]]
        more = ", ..." if len(names) > _SHOWN else ""
        warn(
            f"{missing.sum():,} cells of {', '.join(names[:_SHOWN])}{more} are still missing: the "
            "generator knows no value for them"
        )
    return tables


def _write(table: pd.DataFrame, forms: FileFormat, place: Path) -> None:
    write_whole(place, lambda stage: write_file(table, forms, stage, ending(place)))


def _tell(n_missing: int, places: Sequence[Path], started: float) -> None:
    which = places[0] if len(places) == 1 else f"{places[0]} to {places[-1]}"
    seconds = time.perf_counter() - started
    say_on_terminal(f"Filled {n_missing:,} cells: {which} ({seconds:.1f} s)")
