"""``combutab explain``: permutation importances and explained predictions of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo, hint, refusals, spinner
from combutab.cli._predict import ModelData, ModelOptions, read_for_model
from combutab.core.text import counted


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
    min_frequency: _options.Frequency = 5
    seed: _options.Seed = 0


def explain(options: ExplainOptions) -> None:
    """Explain a fitted model: permutation importances, partial dependence, attributions.

    The permutation importance of a column is the decrease of the score when the values of the
    column are shuffled. Use rows that the model was not trained on. On training rows, columns seem
    important if the model has overfitted to them. Without the target in DATA no importances are
    computed, but --out and --rows still work.

    Example: combutab explain model.safetensors new.csv -o explain.html
    """
    out = options.out
    _options.check_outputs({"--out": out}, {"MODEL": options.model, "DATA": options.data})
    data = read_for_model(options)
    estimator = data.estimator
    names = getattr(estimator.target_, "names", ())
    names = data.target if isinstance(data.target, list) else names
    if len(names) > 1:
        raise UserError(
            f"{options.model} predicts {len(names)} columns, but only models of one column can be "
            "explained; fit a model for each column"
        )

    import numpy as np
    import pandas as pd

    from combutab.datasets.features import read_targets
    from combutab.evaluation import find_metric
    from combutab.reports import report_model, write_report

    task = "classification" if hasattr(estimator, "classes_") else "regression"
    with refusals(prefix="--metric: "):
        metric = options.metric and find_metric(options.metric, task).name
    target = _find_scored_target(options, data)
    X = data.read_features()
    X.index = pd.RangeIndex(1, len(X) + 1)
    rows = [int(number) for text in options.rows or () for number in text.split(",")]
    if rows and max(rows) > len(X):
        n_rows = counted(len(X), "row")
        raise UserError(f"--rows: there is no row {max(rows)}; {options.data} has {n_rows}")
    columns = _options.find_columns("--columns", options.columns, X.columns) or None
    y, X_scored = None, X
    if target is not None:
        has_target = data.table[target].notna().to_numpy()
        classes = getattr(estimator, "classes_", None)
        y, X_scored = read_targets(data.table, target, data.file, classes), X[has_target]
        if n_missing := len(X) - len(X_scored):
            hint(f"{counted(n_missing, 'row')} without a target left out of the scores")
    n_scored = counted(len(X_scored), "row")
    with refusals(ValueError, TypeError, prefix=f"{options.data}: "), spinner("Explaining"):
        report = report_model(
            estimator,
            X_scored,
            y,
            explain=X.loc[rows] if rows else None,
            target=cast(Any, data.target) if target is None else str(target),
            scored=f"The scores and importances are computed on {n_scored} of {options.data.name}.",
            file=options.model.name,
            scoring=metric,
            n_repeats=options.repeats,
            columns=columns if out is not None else (),
            min_frequency=options.min_frequency,
            random_state=np.random.default_rng(options.seed),
        )
        if out is not None:
            with _options.writing(out):
                write_report(report, out)
    sections = [str(part) for part in (report.importance, report.attributions) if part is not None]
    for line in "\n\n".join(sections).splitlines():
        echo(line)
    if out is not None:
        options.echo_done(f"Wrote {out}")


def _find_scored_target(options: ExplainOptions, data: ModelData) -> Any:
    """Find the target's column; None if the table does not have it and no result needs it."""
    name = data.target if options.target is None else options.target
    if options.target is not None or str(name) in map(str, data.table.columns):
        return _options.find_target(str(name), data.table.columns)
    if options.out is None and options.rows is None:
        missing_column = "its target" if name is None else f"the target {name!r}"
        raise UserError(
            f"{options.data} does not have {missing_column}, so no importances can be computed; "
            "name the target's column with --target, or use --out or --rows for results that need "
            "no target"
        )
    return None
