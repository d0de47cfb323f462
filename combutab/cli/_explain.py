"""``combutab explain``: permutation importances and explained predictions of a fitted model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo, echo_on_terminal, hint, refusals, spinner
from combutab.cli._predict import ModelData, ModelOptions, read_for_model
from combutab.core.text import counted

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from combutab.reports import ModelReport


def _row_numbers(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        for number in text.split(","):
            if not number.strip().isdecimal() or int(number) < 1:
                raise typer.BadParameter(
                    f"{number.strip()!r} is not a row number; 1 is the first row below the header."
                )
    return texts


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ModelOptions):
    """The options of ``combutab explain``.

    Options
    -------
    data : DATA
        Table with the feature columns that the model was fitted on and the target, preferably of
        rows that it was not trained on. READABLE.
    out : FILE
        HTML report to write, such as explain.html: scores, permutation importances, partial
        dependence plots and explained rows.
    target : COLUMN, default the column that the model predicts
        Column of DATA that holds the target.

    What to explain
    ---------------
    rows : NUMBERS
        Numbers of the rows of DATA whose predictions are to be explained column by column,
        separated by commas. 1 is the first row below the header.
    columns : COLUMNS, default the six most important
        Columns to draw partial dependence plots of, separated by commas.
    metric : NAME, default roc_auc; r2 for regression
        Metric whose decrease measures the importance of a column: METRICS; or another scorer of
        scikit-learn.
    repeats : NUMBER
        Number of bootstrap samples in which each column is shuffled.
    min_frequency : NUMBER
        Smallest number of rows (5) or fraction of the rows (0.01) that must have a category for the
        report to show it.
    """

    out: _options.OptionalOut = None
    target: str | None = None
    rows: Annotated[list[str] | None, typer.Option(callback=_row_numbers)] = None
    columns: _options.Columns = None
    metric: str | None = None
    repeats: Annotated[int, typer.Option(min=2, max=1000)] = 10
    min_frequency: float = 5
    seed: _options.Seed = 0


def explain(options: ExplainOptions) -> None:
    """Explain a fitted model: permutation importances, partial dependence, attributions.

    The permutation importance of a column is the decrease of the score when the values of the
    column are shuffled. Use rows that the model was not trained on. On training rows, columns seem
    important if the model has overfitted to them. Without the target in DATA no importances are
    computed, but --out and --rows still work.
    """
    started = time.perf_counter()
    out = options.out
    min_frequency = _options.read_frequency(options.min_frequency)
    _options.check_outputs({"--out": out}, {"MODEL": options.model, "DATA": options.data})
    data = read_for_model(options)
    if isinstance(data.target, list):
        raise UserError(
            f"{options.model} predicts {len(data.target)} columns, but only models of one column "
            "can be explained; fit a model for each column"
        )

    import numpy as np
    import pandas as pd

    from combutab.cli import _files
    from combutab.evaluation import find_metric
    from combutab.reports import report_model, write_report

    estimator = data.estimator
    task = "classification" if hasattr(estimator, "classes_") else "regression"
    with refusals(prefix="--metric: "):
        metric = options.metric and find_metric(options.metric, task).name
    target = _find_scored_target(options, data)
    X = data.features
    X.index = pd.RangeIndex(1, len(X) + 1)
    rows = [int(number) for text in options.rows or () for number in text.split(",")]
    for row in rows:
        if row > len(X):
            n_rows = counted(len(X), "row")
            raise UserError(f"--rows: there is no row {row}; {options.data} has {n_rows}")
    columns = None
    if options.columns:
        columns = _options.find_columns("--columns", options.columns, X.columns)
    X_scored, y = (X, None) if target is None else _scored_rows(X, target, data)
    n_scored = counted(len(X_scored), "row")
    with refusals(ValueError, TypeError, prefix=f"{options.data}: "), spinner("Explaining"):
        report = report_model(
            estimator,
            X_scored,
            y,
            explain=X.loc[rows] if rows else None,
            target=data.target if target is None else str(target),
            scored=f"The scores and importances are computed on {n_scored} of {options.data.name}.",
            file=options.model.name,
            scoring=metric,
            n_repeats=options.repeats,
            columns=columns if out is not None else (),
            min_frequency=min_frequency,
            random_state=np.random.default_rng(options.seed),
        )
        if out is not None:
            _files.write_whole(out, lambda temporary: write_report(report, temporary))
    _print_report(report)
    if out is not None:
        echo_on_terminal(f"Wrote {out} ({time.perf_counter() - started:.1f} s)")


def _find_scored_target(options: ExplainOptions, data: ModelData) -> Any:
    """Find the target's column; None if the table does not have it and no result needs it."""
    columns = data.table.columns
    if options.target is not None:
        return _options.find_target(options.target, columns)
    if str(data.target) in map(str, columns):
        return _options.find_target(str(data.target), columns)
    if options.out is None and options.rows is None:
        missing_column = "its target" if data.target is None else f"the target {data.target!r}"
        raise UserError(
            f"{options.data} does not have {missing_column}, so no importances can be computed; "
            "name the target's column with --target, or use --out or --rows for results that need "
            "no target"
        )
    return None


def _scored_rows(X: pd.DataFrame, target: Any, data: ModelData) -> tuple[pd.DataFrame, Any]:
    """Select the rows that have a target, and read their targets."""
    if len(getattr(data.estimator.target_, "names", ())) > 1:
        raise UserError("only models of one target can be explained; fit a model for each target")
    has_target = data.table[target].notna().to_numpy()
    y = _read_targets(data, target, has_target)
    if not has_target.all():
        n_missing = int((~has_target).sum())
        hint(f"{counted(n_missing, 'row')} without a target left out of the scores")
    return X[has_target], y


def _read_targets(data: ModelData, target: Any, has_target: np.ndarray) -> Any:
    """Read the targets of the rows that have one, as classes or numbers of the model."""
    import pandas as pd

    from combutab.preprocessing import read_numbers

    column, path = data.table[target], data.file.path
    if not has_target.any():
        raise UserError(f"{path}: the target {str(target)!r} is empty in all rows")
    classes = getattr(data.estimator, "classes_", None)
    if classes is None:
        with refusals(prefix=f"{path}: the target {str(target)!r}: "):
            return read_numbers(column[has_target]).to_numpy()
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels) and column.dtype != object:
        if data.file.is_text:  # numbers in this file, but text in the model's table
            column = data.file.cells([list(data.table.columns).index(target)]).iloc[:, 0]
        column = column.astype(str)
    values = column[has_target].to_numpy(dtype=object)
    for value in pd.unique(values):
        if value not in labels:
            raise UserError(
                f"{path}: the target {str(target)!r} has the value {value!r}, which is not a "
                f"class of the model; its classes are {', '.join(map(repr, labels[:8]))}"
                f"{', ...' if len(labels) > 8 else ''}"
            )
    return values if classes.dtype == object else values.astype(classes.dtype)


def _print_report(report: ModelReport) -> None:
    """Print importances and attributions as tables."""
    import pandas as pd

    if report.importance is not None:
        table, importance = report.importance.table, report.importance
        echo(
            f"Permutation importance: {importance.effect} when a column is shuffled "
            f"({importance.scoring} {_four_digits(importance.score)}, "
            f"{counted(importance.n_rows, 'row')})"
        )
        echo("")
        bounds = zip(table["low"], table["high"], strict=True)
        cells = {"column": table["column"].astype(str)}
        cells["importance"] = table["importance"].map(_four_digits)
        intervals = [f"{_four_digits(low)} to {_four_digits(high)}" for low, high in bounds]
        _print_table(pd.DataFrame({**cells, "95 % interval": intervals}))
    if report.attributions is None:
        return
    attributions = report.attributions
    for i, label in enumerate(attributions.values.index):
        if i or report.importance is not None:
            echo("")
        prediction = _four_digits(attributions.predictions[i])
        mean = _four_digits(attributions.base_values[i])
        echo(
            f"Row {label}: {attributions.outputs[i]} {prediction} (mean of other rows: {mean}); "
            "contribution of each column to the difference"
        )
        echo("")
        table = attributions.table[attributions.table["row"] == label]
        cells = {
            "column": table["column"].astype(str),
            "value": table["value"].map(_short_value).str.removesuffix(" 00:00:00"),
        }
        _print_table(pd.DataFrame({**cells, "attribution": table["attribution"].map(_four_digits)}))


def _short_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _print_table(table: pd.DataFrame) -> None:
    """Print a table with a left-aligned first column and right-aligned other columns."""
    widths = [max(map(len, [str(name), *table[name]])) for name in table]
    for row in [list(map(str, table.columns)), *table.to_numpy().tolist()]:
        right_cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        echo("  ".join([row[0].ljust(widths[0]), *right_cells]).rstrip())
