"""``combutab explain``: which columns a fitted model goes by, and how."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo, echo_on_terminal, hint, refusals, spinner
from combutab.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

    from combutab.datasets.tables import TableFile
    from combutab.reports import ModelReport


def _row_numbers(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        for each in text.split(","):
            if not each.strip().isdecimal() or int(each) < 1:
                raise typer.BadParameter(
                    f"{each.strip()!r} is not a row number; 1 is the first row below the header."
                )
    return texts


def explain(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model file, written by `combutab fit` or by the Python library."
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Table with the feature columns that the model was fitted on and the target, "
            f"preferably of rows that it was not trained on. {_options.READABLE}.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="HTML report to write, such as explain.html: scores, permutation importances, "
            "partial dependence plots and explained rows.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Column of DATA that holds the target.",
            show_default="the column that the model predicts",
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS",
            callback=_row_numbers,
            help="Numbers of the rows of DATA whose predictions are to be explained column by "
            "column, separated by commas. 1 is the first row below the header.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        _options.columns_option(
            "Columns to draw partial dependence plots of, separated by commas.",
            show_default="the six most important",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        _options.metric_option(
            "Metric whose decrease measures the importance of a column",
            scorers=True,
            show_default="roc_auc; r2 for regression",
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            help="Number of bootstrap samples in which each column is shuffled.", min=2, max=1000
        ),
    ] = 10,
    min_frequency: Annotated[
        float,
        typer.Option(
            help="Smallest number of rows (5) or fraction of the rows (0.01) that must have a "
            "category for the report to show it."
        ),
    ] = 5,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
) -> None:
    """Explain a fitted model: permutation importances, partial dependence, attributions.

    The permutation importance of a column is the decrease of the score when the values of the
    column are shuffled. Use rows that the model was not trained on. On training rows, columns seem
    important if the model has overfitted to them. Without the target in DATA no importances are
    computed, but --out and --rows still work.
    """
    started = time.perf_counter()
    least = _options.read_frequency(min_frequency)
    _options.check_outputs({"--out": out}, {"MODEL": model, "DATA": data})
    _options.check_model(model)
    options = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    options = _options.with_known_header(options, data, model)
    _options.check_table(data, options, target=target, columns=columns)

    import numpy as np
    import pandas as pd

    from combutab.cli import _files
    from combutab.cli._predict import fitted_columns
    from combutab.datasets.tables import TableFile

    table, own = _files.read_file(data, options, _files.read_format(model))

    import combutab.estimators as estimators
    from combutab.evaluation import find_metric
    from combutab.reports import report_model, write_report

    _files.check_device(device)
    names = [name for name in estimators.__all__ if name.endswith(("Classifier", "Regressor"))]
    estimator, forms, known = _files.load_with_format(
        model, device, names, "cannot predict", "combutab fit"
    )
    if isinstance(known, list):
        raise UserError(
            f"{model} predicts {len(known)} columns, but only models of one column can be "
            "explained; fit a model for each column"
        )
    task = "classification" if hasattr(estimator, "classes_") else "regression"
    with refusals(prefix="--metric: "):
        metric = metric and find_metric(metric, task).name
    own = own if _options.is_text_file(data) else forms
    file = TableFile(data, own.reading_of(data))
    name = None if target is None else _options.find_target(target, table.columns)
    if name is None and str(known) in map(str, table.columns):
        name = _options.find_target(str(known), table.columns)
    if name is None and out is None and rows is None:
        lacking = "its target" if known is None else f"the target {known!r}"
        raise UserError(
            f"{data} does not have {lacking}, so no importances can be computed; name the target's "
            "column with --target, or use --out or --rows for results that need no target"
        )
    X = fitted_columns(table, estimator.encoder_, forms, file)
    X.index = pd.RangeIndex(1, len(X) + 1)
    places = [int(each) for text in rows or () for each in text.split(",")]
    for place in places:
        if place > len(X):
            raise UserError(f"--rows: there is no row {place}; {data} has {counted(len(X), 'row')}")
    chosen = _options.find_columns("--columns", columns, X.columns) if columns else None
    y, scored = None, X
    if name is not None:
        if len(getattr(estimator.target_, "names", ())) > 1:
            raise UserError(
                "only models of one target can be explained; fit a model for each target"
            )
        y, kept = _known_targets(table, name, estimator, file)
        scored = X[kept]
        if not kept.all():
            n = int((~kept).sum())
            hint(f"{counted(n, 'row')} without a target left out of the scores")
    n_scored = counted(len(scored), "row")
    with refusals(ValueError, TypeError, prefix=f"{data}: "), spinner("Explaining"):
        found = report_model(
            estimator,
            scored,
            y,
            explain=X.loc[places] if places else None,
            target=known if name is None else str(name),
            scored=f"The scores and importances are computed on {n_scored} of {data.name}.",
            file=model.name,
            scoring=metric,
            n_repeats=repeats,
            columns=chosen if out is not None else (),
            min_frequency=least,
            random_state=np.random.default_rng(seed),
        )
        if out is not None:
            _files.write_whole(out, lambda place: write_report(found, place))
    _print_report(found)
    if out is not None:
        echo_on_terminal(f"Wrote {out} ({time.perf_counter() - started:.1f} s)")


def _known_targets(
    table: pd.DataFrame, name: Any, estimator: Any, file: TableFile
) -> tuple[Any, Any]:
    """The targets as the model knows them, and which rows have one."""
    import pandas as pd

    from combutab.preprocessing import read_numbers

    column, path = table[name], file.path
    kept = column.notna().to_numpy()
    if not kept.any():
        raise UserError(f"{path}: the target {str(column.name)!r} is empty in all rows")
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        with refusals(prefix=f"{path}: the target {str(column.name)!r}: "):
            return read_numbers(column[kept]).to_numpy(), kept
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels) and column.dtype != object:
        if file.is_text:  # numbers in this file, text in the model's
            column = file.cells([list(table.columns).index(name)]).iloc[:, 0]
        column = column.astype(str)
    values = column[kept].to_numpy(dtype=object)
    for value in pd.unique(values):
        if value not in labels:
            raise UserError(
                f"{path}: the target {str(column.name)!r} has the value {value!r}, which is not a "
                f"class of the model; its classes are {', '.join(map(repr, labels[:8]))}"
                f"{', ...' if len(labels) > 8 else ''}"
            )
    return values if classes.dtype == object else values.astype(classes.dtype), kept


def _print_report(found: ModelReport) -> None:
    """Importances, and attributions of rows, as tables."""
    import pandas as pd

    if found.importance is not None:
        table, importance = found.importance.table, found.importance
        echo(
            f"Permutation importance: {importance.effect} when a column is shuffled "
            f"({importance.scoring} {_four_digits(importance.score)}, "
            f"{counted(importance.n_rows, 'row')})"
        )
        echo("")
        both = zip(table["low"], table["high"], strict=True)
        ends = [f"{_four_digits(low)} to {_four_digits(high)}" for low, high in both]
        shown = {"column": table["column"].astype(str)}
        shown["importance"] = table["importance"].map(_four_digits)
        _print_table(pd.DataFrame({**shown, "95 % interval": ends}))
    if found.attributions is None:
        return
    every = found.attributions.table
    for i, label in enumerate(found.attributions.values.index):
        base, answer = found.attributions.base_values[i], found.attributions.predictions[i]
        if i or found.importance is not None:
            echo("")
        echo(
            f"Row {label}: {found.attributions.outputs[i]} {_four_digits(answer)} (mean of "
            f"other rows: {_four_digits(base)}); contribution of each column to the difference"
        )
        echo("")
        own = every[every["row"] == label]
        cells = {
            "column": own["column"].astype(str),
            "value": own["value"].map(_short_value).str.removesuffix(" 00:00:00"),
        }
        _print_table(pd.DataFrame({**cells, "attribution": own["attribution"].map(_four_digits)}))


def _short_value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _print_table(table: pd.DataFrame) -> None:
    widths = [max(map(len, [str(name), *table[name]])) for name in table]
    left = [0] + [1] * (table.shape[1] - 1)
    for row in [list(map(str, table.columns)), *table.to_numpy().tolist()]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, left, strict=True)
        ]
        echo("  ".join(cells).rstrip())
