"""``combutab predict``: what a fitted model says of the rows of a table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, refusals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from combutab.cli._files import FileFormat, Targets
    from combutab.datasets.tables import TableFile
    from combutab.preprocessing import TableEncoder


def predict(
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
            help="Table with the feature columns that the model was fitted on, in any order; other "
            f"columns are ignored. {_options.READABLE}.",
        ),
    ],
    out: _options.Out,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write the predicted probability of each class.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        _options.columns_option(
            "Columns of DATA to write beside the predictions, separated by commas; '*' for all."
        ),
    ] = None,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    device: _options.Device = "auto",
    guard_formulas: _options.Guard = False,
) -> None:
    """Predict the target of each row of a table with a fitted model.

    Predictions are written in the order of the rows. Dates and amounts are read in the format of
    the table that the model was fitted on. So are separators, decimal marks and the encoding, if
    they cannot be detected in DATA.
    """
    started = time.perf_counter()
    _options.check_ending(out)
    _options.check_outputs({"OUT": out}, {"MODEL": model, "DATA": data})
    _options.check_model(model)
    options = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    options = _options.with_known_header(options, data, model)
    _options.check_table(data, options, keep=keep)

    import pandas as pd

    from combutab.cli import _files
    from combutab.datasets.tables import TableFile

    table, own = _files.read_file(data, options, _files.read_format(model))

    import combutab.estimators as estimators

    _files.check_device(device)
    names = [name for name in estimators.__all__ if name.endswith(("Classifier", "Regressor"))]
    estimator, forms, target = _files.load_with_format(
        model, device, names, "cannot predict", "combutab fit"
    )
    if proba and not hasattr(estimator, "classes_"):
        raise UserError(
            f"--proba needs a classifier, but {model} is a regressor; leave --proba out"
        )
    own = own if _options.is_text_file(data) else forms
    file = TableFile(data, own.reading_of(data))
    kept = _cells_of(table, _options.find_columns("--keep", keep, table.columns), file)
    X = fitted_columns(table, estimator.encoder_, forms, file)
    with refusals(ValueError, TypeError, prefix=f"{data}: "):
        predicted = estimator.predict(X)
        probabilities = estimator.predict_proba(X) if proba else None
    made = _predicted_table(predicted, probabilities, estimator, target)
    clash = [name for name in made if name in kept]
    if clash:
        raise UserError(
            f"--keep names {clash[0]!r}, which is also the name of a column of predictions; leave "
            "it out of --keep"
        )
    table = pd.concat([kept, made], axis=1)
    words = forms.truth.get(target) if isinstance(target, str) else None
    first = str(made.columns[0])
    form = _files.FileFormat(
        truth={first: words} if words and made[first].dtype.kind == "b" else {},
        sep=own.sep or (forms.sep if own.decimal == forms.decimal else None),
        decimal=own.decimal,
        guarded=guard_formulas,
    )
    _files.hint_at_formulas(table, form, out)
    _files.write_table(table, form, out)
    seconds = time.perf_counter() - started
    echo_on_terminal(f"Wrote {len(table):,} predictions to {out} ({seconds:.1f} s)")


def _predicted_table(
    predicted: np.ndarray, probabilities: np.ndarray | None, estimator: Any, target: Targets
) -> pd.DataFrame:
    import pandas as pd

    name = f"predicted_{target}" if isinstance(target, str) else "predicted"
    if predicted.ndim == 1:
        columns = {name: predicted}
    else:
        names = target if isinstance(target, list) else range(predicted.shape[1])
        columns = {
            f"{name}_{each}": column for each, column in zip(names, predicted.T, strict=True)
        }
    if probabilities is not None:
        labels = estimator.classes_.tolist()
        columns |= {f"probability_{v}": p for v, p in zip(labels, probabilities.T, strict=True)}
    return pd.DataFrame(columns)


# ---- New rows as the model's encoder takes them ------------------------------------------------


def _cells_of(table: pd.DataFrame, names: list[Any], file: TableFile) -> pd.DataFrame:
    """Some columns as the file has them."""
    import pandas as pd

    if not file.is_text or not names:
        return table[names]
    places = table.columns.get_indexer(pd.Index(names)).tolist()
    return file.cells(places, only_empty=True)[names]


def fitted_columns(
    table: pd.DataFrame, encoder: TableEncoder, forms: FileFormat, file: TableFile
) -> pd.DataFrame:
    """The columns that the model was fitted with, in their order, and read as they were then."""
    import pandas as pd

    from combutab.core.text import no_column
    from combutab.preprocessing import ColumnKind, column_kind

    path = file.path
    names = getattr(encoder, "feature_names_in_", None)
    if names is None:
        if table.shape[1] != encoder.n_features_in_:
            raise UserError(
                f"{path} has {table.shape[1]} columns, but the model was fitted on "
                f"{encoder.n_features_in_} columns without names; give as many"
            )
        table = table.set_axis(range(table.shape[1]), axis=1)
        names = list(table.columns)
    places = {str(name): j for j, name in enumerate(table.columns)}
    for name in map(str, names):
        if name not in places:
            raise UserError(
                f"{path}: {no_column(name, places)}; the model was fitted on this column"
            )
    maps = {each.column: each for each in encoder.category_maps_}
    columns = {}
    for j, name in enumerate(names):
        place = places[str(name)]
        column = table.iloc[:, place]
        of_text = j in maps and any(isinstance(key, str) for key in maps[j].keys)
        of_text = of_text or encoder.kinds_[j] == "text"
        read = column_kind(column) != ColumnKind.TEXT and column.notna().any()  # as something else
        dated = encoder.kinds_[j] == "datetime" and name in forms.dates
        if file.is_text and ((of_text and read) or dated):
            cells = file.cells([place]).iloc[:, 0]
            column = _dates_as_fitted(cells, column, forms.dates[name], path) if dated else cells
        elif of_text and pd.api.types.is_numeric_dtype(column.dtype) and read:
            raise UserError(
                f"{path}: column {name!r} holds numbers, but held text when the model was fitted; "
                "write it as text"
            )
        elif encoder.kinds_[j] == "number" and column_kind(column) == ColumnKind.TEXT:
            texts = column.dropna().astype(str)
            odd = texts[pd.to_numeric(texts, errors="coerce").isna()]
            if len(odd):
                raise UserError(
                    f"{path}: column {name!r} holds text such as {odd.iloc[0]!r:.40}, but held "
                    "numbers when the model was fitted; correct these cells"
                )
        columns[name] = column
    return pd.DataFrame(columns)


def _dates_as_fitted(cells: pd.Series, column: pd.Series, form: str, path: Path) -> pd.Series:
    """Dates in the form of the model's table, or in another one that the column was read in."""
    import pandas as pd

    from combutab.core.dates import read_dates, write_dates

    try:
        return read_dates(cells, form)
    except ValueError as error:
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            return column
        example = write_dates(pd.Series([pd.Timestamp("2024-12-31")]), form)[0]
        raise UserError(
            f"{path}: column {cells.name!r} holds values that are not dates in the format that the "
            f"model was fitted on, such as {example}"
        ) from error
