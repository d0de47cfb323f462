"""``combutab synth``: a synthetic table, the generator that made it, and a report on it."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, hint, refusals
from combutab.cli._private import (
    check_private_options,
    read_bounds,
    read_categories,
    synthesize,
)
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

_HOLDOUT, _MAX_HOLDOUT = 0.2, 0.9  # of a report, as shares of the rows


def synth(
    data: _options.Table,
    out: _options.Out,
    model: _options.Generator = None,
    activation: Annotated[
        str | None,
        typer.Option(
            help="Activation function of all hidden layers, such as relu, combu or pln-4; or "
            "original, that of published generators of this kind.",
            callback=lambda name: name if name == "original" else _options.check_activations(name),
            show_default="tabflow: silu; ctgan, tvae: combu",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows to write.", min=1, show_default="as many as DATA has"),
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
    condition: _options.Conditions = None,
    constraints: _options.Constraints = None,
    suggest_constraints: Annotated[
        Path | None,
        typer.Option(
            help="JSON or YAML file to write, with suggested constraints that all rows of DATA "
            "meet. Check them before you use the file with --constraints."
        ),
    ] = None,
    shares: _options.Shares = None,
    epochs: Annotated[
        int | None, _options.epochs_option(f"{_options.GENERATOR_EPOCHS}; with --epsilon: 30")
    ] = None,
    max_time: _options.MaxTime = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Batch size: number of rows per training step.",
            min=1,
            show_default="tabflow: 32 to 512 by the number of rows; ctgan, tvae: 500",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Train a differentially private generator with this privacy budget: 1 is strict, "
            "10 is loose. Needs OpenDP. Bounds and categories of columns are estimated "
            "with noise, unless --bounds and --categories give them.",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="With --epsilon: probability with which the privacy guarantee may fail.",
            show_default="1e-6",
        ),
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=LOW..HIGH",
            help="With --epsilon: lower and upper bound of a column, known without looking at the "
            'table, such as "age=0..120" or "since=2000-01-01..2030-12-31". Can be repeated.',
        ),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=ONE|OTHER",
            help="With --epsilon: categories of a column, known without looking at the table, such "
            'as "city=Rome|Oslo", or a JSON file with a list for each column. Can be repeated.',
        ),
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(
            help="With --epsilon: column that identifies the person whom a row belongs to. All "
            "rows of a person are protected together.",
        ),
    ] = None,
    rows_per_person: Annotated[
        int | None,
        typer.Option(
            help="With --person: maximum number of rows used per person.",
            min=1,
            show_default="1",
        ),
    ] = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
    guard_formulas: _options.Guard = False,
    save: _options.Save = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint file of the training, written every 30 seconds and on Ctrl-C. If the "
            "file exists, training continues from it."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML report to write, such as report.html, on the quality and privacy of the "
            "synthetic rows, as by `combutab evaluate`."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="With --report: column that models are trained to predict, to measure the utility "
            "of the synthetic rows."
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="With --report: share of the rows to hold out. The generator is not trained on "
            "them, and the report compares the synthetic rows with them. 0 holds out none.",
            show_default=str(_HOLDOUT),
        ),
    ] = None,
) -> None:
    """Train a generator on a table, and write a synthetic table with the same columns.

    With --epsilon the synthetic rows are differentially private.

    If Ctrl-C interrupts the training, the rows are made by the generator as trained so far. A file
    that exists already is then kept: "-interrupted" is added to the name of the new one.
    """
    started = time.perf_counter()
    _options.check_ending(out)
    outputs = {"OUT": out, "--save": save, "--report": report, "--checkpoint": checkpoint}
    outputs["--suggest-constraints"] = suggest_constraints
    _options.check_outputs(outputs, {"DATA": data, "--constraints": constraints})
    _options.check_replaceable("--save", save)
    private: dict[str, Any] = {"--delta": delta, "--bounds": bounds, "--categories": categories}
    private |= {"--person": person, "--rows-per-person": rows_per_person}
    looking: dict[str, Any] = {"--report": report, "--suggest-constraints": suggest_constraints}
    unused: dict[str, Any] = {
        "--model": model,
        "--activation": activation,
        "--min-frequency": min_frequency,
    }
    unused |= {"--max-time": max_time, "--batch-size": batch_size, "--checkpoint": checkpoint}
    unused["--device"] = None if device in ("auto", "cpu") else device
    check_private_options(epsilon, private, looking | {"--holdout": holdout}, unused)
    model = "tabflow" if model is None else model
    _check_report_options(report, target, holdout, [*(condition or ()), *(shares or ())])
    named = None if identifiers == ["none"] else identifiers
    asked = {"--condition": condition, "--shares": shares}
    columns_of: dict[str, Any] = {"drop": drop, "discrete": discrete, "identifiers": named}
    reading = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    _options.check_table(data, reading, target=target, asked=asked, **columns_of)

    from combutab.cli import _files

    table, forms, listed = _files.read_to_learn(data, reading, drop, discrete)
    if epsilon is not None:
        from combutab.cli._generators import read_rules

        forms.guarded = guard_formulas
        params: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "max_rows_per_person": rows_per_person,
            "epochs": epochs,
            "bounds": read_bounds(bounds, table),
            "categories": read_categories(categories, table),
            "identifiers": _options.find_columns("--identifiers", named, table.columns),
            "constraints": read_rules(constraints),
        }
        synthesize(
            table,
            forms,
            out,
            params={name: value for name, value in params.items() if value is not None},
            person=person,
            discrete=listed,
            rows=rows,
            condition=condition,
            shares=shares,
            seed=seed,
            save=save,
        )
        return
    column = None if target is None else _options.find_target(target, table.columns)
    if target is not None and column not in listed and table[column].count():
        classify = f"--discrete {shlex.quote(target)}"
        _files.task_of(table[column], "auto", data, reading, classify)

    from combutab.cli import _generators
    from combutab.cli._conditions import parse_conditions, parse_shares, warn_if_unmet
    from combutab.cli._evaluate import evaluate_tables, file_names, write_and_print
    from combutab.core.device import resolve_device

    rules = _generators.read_rules(constraints)
    _files.check_device(device)
    _files.hint_before_learning(table, reading, forms, out, guard_formulas)
    n_rows = len(table) if rows is None else rows
    streamed = report is None and _generators.is_streamed(out, condition, shares)
    if not streamed:
        _generators.check_size(n_rows, table.shape[1])
    protection = _generators.read_protection(min_frequency, identifiers, table.columns)
    columns = _generators.probe(table, listed, protection, to_save=save is not None)
    conditions = parse_conditions(condition, columns, forms)
    wanted = parse_shares(shares, columns, forms, conditions)
    warn_if_unmet(table, conditions, columns, data)
    test = None
    if report is not None:
        table, test = _hold_out(table, _HOLDOUT if holdout is None else holdout, column, seed)

    options = {"epochs": epochs, "max_time": max_time, "batch_size": batch_size}
    options |= {"activation": activation, "random_state": seed, "device": device}
    _generators.suggest_rules(table, suggest_constraints)
    generator = _generators.make_generator(str(model), protection, constraints=rules, **options)
    echo_on_terminal(
        f"{data.name}: {counted(len(table), 'row')}, {counted(table.shape[1], 'column')} "
        f"({len(columns.category_counts_)} discrete); {type(generator).__name__} with "
        f"{generator.activation}, on {resolve_device(device)}"
    )
    if not listed:
        _generators.hint_at_few_values(table)
    run = _generators.TrainingRun(generator, checkpoint)
    with run.reported():
        run.fit(table, columns.discrete_columns)
        run.save(save, forms)
        place = run.place(out)
        if streamed:
            _generators.stream_rows(generator, forms, n_rows, seed, place)
        else:
            made = _generators.write_rows(generator, forms, n_rows, conditions, wanted, seed, place)
        run.add(counted(n_rows, "row"), place)
        seconds = time.perf_counter() - started
        echo_on_terminal(f"Wrote {counted(n_rows, 'row')} to {place} ({seconds:.1f} s)")
        if report is None or run.interrupted:
            return
        names = file_names({"real": data, "synthetic": out})
        arguments = {
            "real_train": table,
            "real_test": test,
            "synthetic": made,
            "target": column,
            "categorical": listed,
            "made": {"Seed of the rows": str(seed)},
            "generator": generator,
            "names": names | {"test": f"{names['real']}, held out"},
            "min_frequency": protection["min_frequency"],
            "random_state": seed,
        }
        with refusals(UserError, prefix=f"{out} is written, but not the report: "):
            found = evaluate_tables(**arguments)
        write_and_print(found, report)


# ---- The report: rows set aside before the training, to compare with after it --------------------


def _check_report_options(
    report: Path | None, target: str | None, holdout: float | None, ordered: list[str]
) -> None:
    if report is None:
        for option, value in (("--target", target), ("--holdout", holdout)):
            if value is not None:
                raise UserError(f"{option} {value} needs a report: --report report.html")
    elif ordered:
        raise UserError(
            "--report cannot be used with --condition or --shares, because it compares the "
            "synthetic rows with all of DATA; leave --condition and --shares, or --report, out"
        )
    if holdout is not None and not 0 <= holdout <= _MAX_HOLDOUT:
        raise UserError(f"--holdout must lie between 0 and {_MAX_HOLDOUT}, got {holdout:g}")


def _hold_out(
    table: pd.DataFrame, share: float, target: Any, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The rows to learn from, and those to compare with; both in the table's order.

    Raises UserError if one of them has too few rows, or no target that can be predicted.
    """
    import numpy as np

    n = round(share * len(table))
    held = np.zeros(len(table), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(table))[:n]] = True
    train, test = table[~held], table[held] if share else None
    if min(len(train), 2 if test is None else len(test)) < 2:
        raise UserError(
            f"--holdout {share:g} holds out {n:,} of {len(table):,} rows; at least 2 held-out rows "
            "and 2 training rows are needed; choose another share, or 0"
        )
    if target is not None and train.shape[1] < 2:
        raise UserError(f"--target: there is no column beside {str(target)!r} to predict it from")
    for part in (train, test):
        if target is not None and part is not None and part[target].isna().all():
            raise UserError(f"--target: {str(target)!r} is missing in all rows")
    if test is not None:
        hint(
            f"{n:,} of {len(table):,} rows are held out for the report; the generator is trained "
            f"on the other {len(train):,} (--holdout)"
        )
    return train, test
