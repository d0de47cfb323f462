"""``combutab synth`` and ``combutab sample``: synthetic tables, and more rows of the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from combutab._device import resolve_device
from combutab.cli._console import UserError, interruptible, one_line_warnings, say_on_terminal, warn
from combutab.cli.synth._before import (
    check_device,
    check_replaceable,
    check_savable,
    leave_out,
    probe,
    tell_of_few_values,
    tell_of_formulas,
)
from combutab.cli.synth._conditions import read_conditions
from combutab.cli.synth._kept import read_kept
from combutab.cli.synth._made import load_generator, save_generator
from combutab.cli.synth._report import plan_report, set_aside, write_synth_report
from combutab.cli.synth._training import Kept, make_generator, train_generator
from combutab.cli.tables._forms import (
    FileFormat,
    as_parquet,
    check_ending,
    ending,
    read_file,
    write_file,
)
from combutab.cli.tables._names import find_columns
from combutab.cli.tables._outputs import cannot_write, check_file, write_whole
from combutab.cli.tables._reading import Reading, tell_of_odd_columns
from combutab.generators import ShortfallError, check_conditions
from combutab.generators.sampling import RowWriter, pour_rows
from combutab.preprocessing import ModeEncoder, parquet_parts
from combutab.training import ProgressBar

_NUMBERS_A_CELL = 4  # that sampling holds at a time, about


def synth(
    *,
    data: Path,
    out: Path,
    model: str,
    activation: str | None,
    rows: int | None,
    discrete: list[str] | None,
    min_frequency: float | None,
    identifiers: list[str] | None,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    condition: list[str] | None,
    epochs: int | None,
    max_time: float | None,
    batch_size: int | None,
    seed: int,
    device: str,
    guard_formulas: bool,
    save: Path | None,
    checkpoint: Path | None,
    report: Path | None,
    target: str | None,
    holdout: float | None,
) -> None:
    """Train a generator on a table, and write a synthetic one of the same columns.

    Ctrl-C ends the training and writes what it has learned, beside files that are there.
    """
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_ending(out)
        check_file(out, DATA=data)
        if save is not None:
            check_file(save, DATA=data, OUT=out)
            check_replaceable(save)
        if report is not None:
            check_file(report, DATA=data, OUT=out, **({} if save is None else {"--save": save}))
        if checkpoint is not None:
            others = {"--save": save, "--report": report}
            written = {name: path for name, path in others.items() if path is not None}
            check_file(checkpoint, DATA=data, OUT=out, **written)
        check_device(device)
        reading = Reading.of(sep, decimal, encoding)
        table, forms = read_file(data, reading)
        table = leave_out(table, find_columns("--drop", drop or [], table.columns))
        listed = find_columns("--discrete", discrete or [], table.columns)
        tell_of_odd_columns(table, reading, identifiers=False)
        forms.guarded = guard_formulas
        tell_of_formulas(table, forms, out)
        n_rows = len(table) if rows is None else rows
        poured = report is None and _is_poured(out, condition)
        if not poured:
            _check_size(n_rows, table.shape[1])
        protection = read_kept(min_frequency, identifiers, table.columns)
        columns = probe(table, listed, protection)
        conditions = _read_conditions(condition, columns, forms)
        planned = plan_report(report, target, holdout, table, conditions)
        if save is not None:
            check_savable(columns)
        _warn_of_none(table, conditions, columns, data)
        table, test = set_aside(table, planned, seed)

        generator = make_generator(
            model,
            protection,
            ProgressBar,
            epochs=epochs,
            max_time=max_time,
            batch_size=batch_size,
            activation=activation,
            random_state=seed,
            device=device,
        )
        say_on_terminal(
            f"{data.name}: {len(table):,} rows, {table.shape[1]} columns "
            f"({len(columns.category_counts_)} discrete); {type(generator).__name__} with "
            f"{generator.activation}, on {resolve_device(device)}"
        )
        if not listed:
            tell_of_few_values(table)
        kept = Kept(generator, checkpoint)
        with kept.told():
            kept.interrupted = train_generator(
                generator, table, columns.discrete_columns, checkpoint
            )
            if save is not None:
                place = kept.place(save)
                write_whole(place, lambda stage: save_generator(generator, forms, stage))
                kept.add("the generator", place)
                say_on_terminal(f"Wrote the generator to {place}")
            place = kept.place(out)
            if poured:
                _pour_rows(generator, forms, n_rows, seed, place)
            else:
                made = _write_rows(generator, forms, n_rows, conditions, seed, place)
            kept.add(f"{n_rows:,} rows", place)
            say_on_terminal(
                f"Wrote {n_rows:,} rows to {place} ({time.perf_counter() - started:.1f} s)"
            )
            if planned is not None and not kept.interrupted:
                files = {"real": data, "synthetic": out}
                tables = {"real_train": table, "real_test": test, "synthetic": made}
                write_synth_report(
                    planned,
                    generator,
                    tables,
                    files,
                    discrete=listed,
                    seed=seed,
                    min_frequency=protection["min_frequency"],
                )


def sample(
    *,
    model: Path,
    out: Path,
    rows: int,
    condition: list[str] | None,
    seed: int,
    device: str,
    guard_formulas: bool,
) -> None:
    """Write rows of a generator that `combutab synth` has trained.

    The same rows, conditions and seed as there give the same table as there.
    """
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_ending(out)
        check_file(out, MODEL=model)
        check_device(device)
        generator, forms = load_generator(model, device)
        forms.guarded |= guard_formulas
        if _is_poured(out, condition):
            _pour_rows(generator, forms, rows, seed, out)
        else:
            _check_size(rows, generator.n_features_in_)
            conditions = _read_conditions(condition, generator.encoder_, forms)
            _write_rows(generator, forms, rows, conditions, seed, out)
        say_on_terminal(f"Wrote {rows:,} rows to {out} ({time.perf_counter() - started:.1f} s)")


# ---- before the training -----------------------------------------------------------------------


def _check_size(n_rows: int, n_columns: int) -> None:
    """Refuse what no memory of this machine would hold."""
    try:
        np.empty((n_rows, _NUMBERS_A_CELL * n_columns))
    except (MemoryError, ValueError) as error:  # the second: more than an array can count
        raise UserError(
            f"{n_rows:,} rows are more than the memory holds; write them to a .parquet file, "
            "without --condition and --report, or several files, each with another --seed"
        ) from error


def _read_conditions(
    texts: list[str] | None, columns: ModeEncoder, forms: FileFormat
) -> dict[Any, Any]:
    conditions = read_conditions(texts or [], columns, forms)
    try:
        check_conditions(columns, conditions)
    except ValueError as error:
        raise UserError(str(error)) from error
    return conditions


def _warn_of_none(
    table: pd.DataFrame, conditions: Mapping[Any, Any], columns: ModeEncoder, data: Path
) -> None:
    met = np.ones(len(table), dtype=bool)
    for name, wanted in conditions.items():
        column = table[name]
        if isinstance(wanted, list):
            if name not in columns.categories_ and wanted != [None]:
                continue  # numbers, for which those near to them stand
            missing = column.isna() if None in wanted else False
            one = column.isin([value for value in wanted if value is not None]) | missing
        else:
            low, high = wanted
            one = column.notna()
            one &= True if low is None else column.ge(low).fillna(False)
            one &= True if high is None else column.le(high).fillna(False)
        met &= one.to_numpy(dtype=bool)
    if not met.any():
        warn(f"no row of {data} meets all conditions, and made ones may be too rare to be found")


# ---- training and sampling ---------------------------------------------------------------------


def _is_poured(out: Path, condition: list[str] | None) -> bool:
    """Tell whether rows are written part by part, so that memory holds any number of them."""
    return ending(out) == ".parquet" and not condition


def _pour_rows(generator: Any, forms: FileFormat, n_rows: int, seed: int, out: Path) -> None:
    with _shown(n_rows):
        try:
            with parquet_parts(out) as file:
                change = partial(as_parquet, forms=forms)
                writer = RowWriter(generator.encoder_, file, change)
                pour_rows(generator, n_rows, seed, writer)
        except OSError as error:
            raise cannot_write(out, error) from error
        except ValueError as error:
            raise UserError(str(error)) from error


def _shown(n_rows: int) -> AbstractContextManager[Any]:
    console = Console(stderr=True)
    return console.status(f"Making {n_rows:,} rows") if console.is_terminal else nullcontext()


def _write_rows(
    generator: Any,
    forms: FileFormat,
    n_rows: int,
    conditions: Mapping[Any, Any],
    seed: int,
    out: Path,
) -> pd.DataFrame:
    with _shown(n_rows):
        missed = ""
        try:
            table: pd.DataFrame = generator.sample(n_rows, conditions=conditions, random_state=seed)
        except ShortfallError as error:
            table = error.rows
            missed = f"only {len(table):,} of {n_rows:,} rows that meet the conditions were found"
            if not len(table):
                raise UserError(f"{missed}; relax the conditions") from error
        except ValueError as error:
            raise UserError(str(error)) from error
        write_whole(out, lambda stage: write_file(table, forms, stage, ending(out)))
    if missed:
        raise UserError(f"{missed}; they are in {out}. Ask for fewer, or relax the conditions")
    return table
