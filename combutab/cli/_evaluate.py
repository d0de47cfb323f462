"""``combutab evaluate``: how good a synthetic table is, and what it gives away."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import (
    UserError,
    echo,
    echo_on_terminal,
    no_early_ends,
    printable,
    refusals,
    spinner,
    warn,
)

if TYPE_CHECKING:
    import pandas as pd

    from combutab.cli._files import FileFormat
    from combutab.reports import SyntheticEvaluation

# of evaluation, which takes seconds to import
LEARNERS = ["linear", "decision_tree", "random_forest", "hist_gradient_boosting", "mlp", "xgboost"]
LEARNERS += ["catboost"]
_ROLES = {"real": "REAL", "synthetic": "SYNTHETIC", "test": "--test"}


def evaluate(
    real: Annotated[
        Path,
        typer.Argument(
            metavar="REAL",
            help=f"Table of the real rows that the generator was trained on: {_options.READABLE}.",
        ),
    ],
    synthetic: Annotated[
        Path,
        typer.Argument(
            metavar="SYNTHETIC", help="Table of the synthetic rows, with the same columns."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Column that models are trained to predict, to measure the utility of the "
            "synthetic rows."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="Table of real rows that the generator was not trained on (hold-out). Models are "
            "tested on them, and privacy is measured against them. Without this table, models are "
            "tested on parts of REAL, and privacy is measured only by the "
            "number of copied rows and near copies."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="HTML report to write, such as report.html."),
    ] = None,
    task: _options.Task = "auto",
    discrete: _options.Discrete = None,
    identifiers: Annotated[
        list[str] | None,
        _options.columns_option(
            "Columns that identify rows, such as a customer number, separated by commas. They are "
            "left out of all scores, as are those that are detected.",
            show_default="detected",
        ),
    ] = None,
    drop: _options.Drop = None,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    learners: Annotated[
        str,
        typer.Option(
            help="Models that are trained to predict the target: standard, or names separated by "
            f"commas: {', '.join(LEARNERS)}.",
            callback=lambda text: text if text == "standard" else _options.each_of(LEARNERS, text),
        ),
    ] = "standard",
    metric: Annotated[
        str | None,
        _options.metric_option("Metric of the utility", show_default="roc_auc; r2 for regression"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Saved generator (`combutab synth --save`). The report lists its settings. "
            "Columns for which it makes new identifiers are left out of all scores."
        ),
    ] = None,
    min_frequency: Annotated[
        float,
        typer.Option(
            help="Smallest number of rows of REAL (5) or fraction of them (0.01) that must have a "
            "value for the report to show it."
        ),
    ] = 5,
    seed: _options.Seed = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of tables that are evaluated at the same time.", min=1, show_default="1"
        ),
    ] = None,
) -> None:
    """Evaluate synthetic rows: utility, fidelity and privacy.

    Utility: how well models that are trained on the synthetic rows predict real rows. Fidelity: how
    similar columns and pairs of columns are to those of the real table. Privacy: whether synthetic
    rows are copies of real rows, or closer to them than unseen real rows are.
    """
    paths = {"real": real, "synthetic": synthetic} | ({} if test is None else {"test": test})
    inputs = {_ROLES[role]: path for role, path in paths.items()}
    _options.check_outputs({"--out": out}, {**inputs, "--model": model})
    if task != "auto" and target is None:
        raise UserError(f"--task {task} needs a column to predict: --target COLUMN")
    if metric is not None and target is None:
        raise UserError(f"--metric {metric} needs a column to predict: --target COLUMN")
    reading = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    _options.check_table(real, reading, target=target, discrete=discrete, identifiers=identifiers)
    for path in list(paths.values())[1:]:
        _options.check_table(path, reading)
    if model is not None:
        _options.check_model(model)
    _check_same(paths)

    from combutab.cli import _files, _generators

    made = {} if model is None else _generators.read_description(model)
    generator = None if model is None else _generators.load_generator(model, "cpu")[0]
    read = {"real": _files.read_file(real, reading)}
    for role, path in list(paths.items())[1:]:
        read[role] = _files.read_file(path, reading, read["real"][1])
    tables = _alike(read)
    every = dict.fromkeys(column for table in tables.values() for column in table)
    dropped = _options.find_columns("--drop", drop, every)
    tables = {each: table.drop(columns=dropped, errors="ignore") for each, table in tables.items()}
    columns = tables["real"].columns
    if not len(columns):
        raise UserError("--drop leaves out all columns of REAL; keep at least one")
    column = None if target is None else _options.find_target(target, columns)
    categorical = _options.find_columns("--discrete", discrete, columns)
    ids = _options.find_columns("--identifiers", identifiers, columns)
    if column in ids and column is not None:
        raise UserError(f"--identifiers lists the target {str(column)!r}; name other columns")
    if len(ids) == len(columns):
        raise UserError("--identifiers lists all columns of REAL; at least one other is needed")
    kind = "classification" if column in categorical else task
    if column not in (None, *categorical) and tables["real"][column].count():
        kind = _files.task_of(tables["real"][column], task, real, reading, "--task classification")
    _options.read_metric(metric, kind)
    _files.hint_at_odd_columns(tables["real"], reading, identifiers=False)
    names = [name.strip() for name in learners.split(",")]
    found = evaluate_tables(
        real_train=tables["real"],
        synthetic=tables["synthetic"],
        real_test=tables.get("test"),
        target=column,
        task=task,
        categorical=categorical,
        scoring=metric,
        learners=names[0] if len(names) == 1 else names,
        identifiers=ids,
        generator=generator,
        made=made,
        names=file_names(paths),
        min_frequency=_options.read_frequency(min_frequency),
        random_state=seed,
        n_jobs=jobs,
    )
    write_and_print(found, out)


# ---- input -------------------------------------------------------------------------------------


def file_names(paths: Mapping[str, Path]) -> dict[str, str]:
    """Name files for a reader: by their names, or by their whole paths if two share a name."""
    texts = {role: path.name for role, path in paths.items()}
    if len(set(texts.values())) < len(texts):
        texts = {role: str(path) for role, path in paths.items()}
    # a name that is no text in any encoding cannot be written
    return {role: text.encode(errors="replace").decode() for role, text in texts.items()}


def _check_same(paths: Mapping[str, Path]) -> None:
    """Refuse held-out rows that are not, and warn of a table that is compared with itself."""
    places = {role: path.resolve() for role, path in paths.items()}
    if places.get("test") == places["real"]:
        raise UserError(
            f"--test {paths['test']} is the same file as REAL; give real rows that the generator "
            "was not trained on, or leave --test out"
        )
    for role in ("real", "test"):
        if places.get(role) == places["synthetic"]:
            warn(
                f"SYNTHETIC is the same file as {_ROLES[role]}, {paths['synthetic']}: a table is "
                "compared with itself"
            )


def _alike(read: Mapping[str, tuple[pd.DataFrame, FileFormat]]) -> dict[str, pd.DataFrame]:
    """Tables whose columns are named as the real one's, and whose dates are read as one form.

    The columns of a text file are text, those of a Parquet file may be numbers; dates that have one
    form in another file could be of several in this one.
    """
    from combutab.core.dates import read_dates

    by_text = {str(column): column for column in read["real"][0]}
    tables = {}
    for role, (table, forms) in read.items():
        table = table.set_axis([by_text.get(str(name), name) for name in table], axis=1)
        others = [other for key, (_, other) in read.items() if key != role]
        for name in table:
            known = [other.dates[str(name)] for other in others if str(name) in other.dates]
            if known and str(name) not in forms.dates:
                # what does not have this form is compared as what it is
                with suppress(ValueError):
                    table[name] = read_dates(table[name].astype("string"), known[0])
        tables[role] = table
    return tables


# ---- evaluation --------------------------------------------------------------------------------


def evaluate_tables(**arguments: Any) -> SyntheticEvaluation:
    """Call `evaluate_synthetic`, with what is done shown on a terminal.

    Raises UserError with what the user can do something about.
    """
    from rich.text import Text

    from combutab.reports import evaluate_synthetic

    with spinner("Reading ...") as status, refusals(ValueError, ImportError), no_early_ends():

        def show(label: str) -> None:
            if status is not None:
                status.update(Text(printable(f"{label[0].upper()}{label[1:]} ...")))

        return evaluate_synthetic(**arguments, progress=show)


def write_and_print(found: SyntheticEvaluation, path: Path | None) -> None:
    """Write the report, and print the findings with their numbers and notes below them.

    Raises UserError where the system refuses.
    """
    from combutab.reports import write_report

    if path is not None:
        started = time.perf_counter()
        try:
            write_report(found, path)
        except OSError as error:
            raise _options.cannot_write(path, error) from error
        echo_on_terminal(f"Wrote {path} ({time.perf_counter() - started:.1f} s)")
    for finding in found.findings:
        level = "not known" if finding.level == "unknown" else finding.level
        figure = f", {finding.figure}" if finding.figure else ""
        echo(f"{finding.subject}: {level}{figure}. {finding.short}")
        for line in (finding.sentence, *finding.notes):
            echo(line, indent=2)
