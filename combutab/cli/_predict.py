"""``combutab predict``: write the predictions of a fitted model for the rows of a table."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, refusals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from combutab.cli._files import Targets
    from combutab.datasets.formats import FileFormat
    from combutab.datasets.tables import TableFile
    from combutab.preprocessing import TableEncoder


@dataclass(frozen=True, kw_only=True)
class ModelOptions(_options.ReadOptions):
    """The options of commands that apply a fitted model to a table.

    Options
    -------
    model : MODEL
        Model file, written by `combutab fit` or by the Python library.
    data : DATA
        Table with the feature columns that the model was fitted on, in any order; other columns are
        ignored. READABLE.
    """

    model: _options.Table
    data: _options.Table
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """The options of ``combutab predict``.

    Options
    -------
    proba
        Also write the predicted probability of each class.
    coverage : SHARE
        Also write an interval for each row (a classifier: a set of labels) that contains the target
        with this probability, such as 0.9.
    keep : COLUMNS
        Columns of DATA to write beside the predictions, separated by commas; '*' for all.
    """

    out: _options.Out
    proba: bool = False
    coverage: float | None = None
    keep: _options.Columns = None
    guard_formulas: bool = False


@dataclass(frozen=True)
class ModelData:
    """A loaded model, the format of its table, and a table of new rows."""

    estimator: Any
    forms: FileFormat
    target: Targets
    table: pd.DataFrame
    table_forms: FileFormat
    file: TableFile

    @property
    def features(self) -> pd.DataFrame:
        """The features of the new rows, with the columns and dtypes of the model's table."""
        return _fitted_columns(self.table, self.estimator.encoder_, self.forms, self.file)


def predict(options: PredictOptions) -> None:
    """Predict the target of each row of a table with a fitted model.

    Predictions are written in the order of the rows. Dates and amounts are read in the format of
    the table that the model was fitted on. So are separators, decimal marks and the encoding, if
    they cannot be detected in DATA.
    """
    started = time.perf_counter()
    out = options.out
    _options.check_ending(out)
    if options.coverage is not None and not 0 < options.coverage < 1:
        raise UserError(f"--coverage must be between 0 and 1, got {options.coverage}")
    _options.check_outputs({"OUT": out}, {"MODEL": options.model, "DATA": options.data})
    data = read_for_model(options)

    import pandas as pd

    from combutab.cli import _files

    estimator = data.estimator
    if options.proba and not hasattr(estimator, "classes_"):
        raise UserError(
            f"--proba needs a classifier, but {options.model} is a regressor; leave --proba out"
        )
    names = _options.find_columns("--keep", options.keep, data.table.columns)
    columns = _cells_of(data.table, names, data.file)
    X = data.features
    with refusals(ValueError, TypeError, prefix=f"{options.data}: "):
        y_pred = estimator.predict(X)
        probabilities = estimator.predict_proba(X) if options.proba else None
        regions = None if options.coverage is None else _regions(estimator, X, options.coverage)
    predictions = _prediction_table(y_pred, probabilities, regions, estimator, data.target)
    for name in predictions:
        if name in columns:
            raise UserError(
                f"--keep names {name!r}, which is also the name of a column of predictions; leave "
                "it out of --keep"
            )
    table = pd.concat([columns, predictions], axis=1)
    forms = _format_of_predictions(data, predictions)
    forms.guarded = options.guard_formulas
    _files.hint_at_formulas(table, forms, out)
    _files.write_table(table, forms, out)
    seconds = time.perf_counter() - started
    echo_on_terminal(f"Wrote {len(table):,} predictions to {out} ({seconds:.1f} s)")


def read_for_model(options: ModelOptions) -> ModelData:
    """Load a model, and read a table in the format of the model's table."""
    path, model = options.data, options.model

    from combutab.cli import _files

    table, table_forms = _files.read_file(path, options.reading, _files.read_format(model))

    from combutab import estimators
    from combutab.datasets.tables import TableFile

    _files.check_device(options.device)
    names = [name for name in estimators.__all__ if name.endswith(("Classifier", "Regressor"))]
    estimator, forms, known_target = _files.load_with_format(
        model, options.device, names, "cannot predict", "combutab fit"
    )
    if not _options.is_text_file(path):
        table_forms = forms
    file = TableFile(path, table_forms.reading_of(path))
    return ModelData(estimator, forms, known_target, table, table_forms, file)


def _regions(estimator: Any, X: pd.DataFrame, coverage: float) -> np.ndarray:
    """Intervals, (n, ..., 2), or sets of labels, (n, n_classes)."""
    predict = getattr(estimator, "predict_set", None) or estimator.predict_interval
    try:
        regions: np.ndarray = predict(X, coverage)
    except ValueError as error:
        raise UserError(
            f"--coverage {coverage}: `combutab fit` set too few rows aside (0.9 needs 9 rows, 0.99 "
            "needs 99), or the model has several labels per row. Fit to a table of 200 rows or "
            "more, or with --model pack"
        ) from error
    return regions


def _prediction_table(
    y_pred: np.ndarray,
    probabilities: np.ndarray | None,
    regions: np.ndarray | None,
    estimator: Any,
    target: Targets,
) -> pd.DataFrame:
    import pandas as pd

    name = f"predicted_{target}" if isinstance(target, str) else "predicted"
    if y_pred.ndim == 1:
        columns = {name: y_pred}
    else:
        names = target if isinstance(target, list) else range(y_pred.shape[1])
        columns = {
            f"{name}_{target_name}": column
            for target_name, column in zip(names, y_pred.T, strict=True)
        }
    if probabilities is not None:
        labels = estimator.classes_.tolist()
        columns |= {
            f"probability_{label}": column_probabilities
            for label, column_probabilities in zip(labels, probabilities.T, strict=True)
        }
    if regions is not None and hasattr(estimator, "classes_"):
        labels = estimator.classes_.tolist()
        columns |= {f"in_set_{label}": sets for label, sets in zip(labels, regions.T, strict=True)}
    elif regions is not None:
        ends = regions.reshape(len(regions), -1, 2).transpose(1, 2, 0)
        for predicted, (low, high) in zip(list(columns), ends, strict=True):
            columns |= {f"{predicted}_low": low, f"{predicted}_high": high}
    return pd.DataFrame(columns)


def _format_of_predictions(data: ModelData, predictions: pd.DataFrame) -> FileFormat:
    """Return the format of the table of new rows, with the model's words for true and false."""
    from combutab.datasets.formats import FileFormat

    name = predictions.columns[0]
    words = data.forms.truth.get(data.target) if isinstance(data.target, str) else None
    forms = data.table_forms
    sep = data.forms.sep if forms.decimal == data.forms.decimal else None
    return FileFormat(
        truth={str(name): words} if words and predictions[name].dtype.kind == "b" else {},
        sep=forms.sep or sep,
        decimal=forms.decimal,
    )


# ---- Converting new rows for the model's encoder -----------------------------------------------


def _cells_of(table: pd.DataFrame, names: list[Any], file: TableFile) -> pd.DataFrame:
    """Return columns of a text file as text, and those of other files with their types."""
    import pandas as pd

    if not file.is_text or not names:
        return table[names]
    positions = table.columns.get_indexer(pd.Index(names)).tolist()
    return file.cells(positions, only_empty=True)[names]


def _fitted_columns(
    table: pd.DataFrame, encoder: TableEncoder, forms: FileFormat, file: TableFile
) -> pd.DataFrame:
    """Select the model's columns in their order, and read them as when the model was fitted."""
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
    positions = {str(name): i for i, name in enumerate(table.columns)}
    for name in map(str, names):
        if name not in positions:
            raise UserError(
                f"{path}: {no_column(name, positions)}; the model was fitted on this column"
            )
    maps = {category_map.column: category_map for category_map in encoder.category_maps_}
    columns = {}
    for i, name in enumerate(names):
        position = positions[str(name)]
        column = table.iloc[:, position]
        kind = encoder.kinds_[i]
        was_text = i in maps and any(isinstance(key, str) for key in maps[i].keys)
        was_text = was_text or kind == "text"
        is_text = column_kind(column) == ColumnKind.TEXT or column.isna().all()
        if file.is_text and kind == "datetime" and name in forms.dates:
            cells = file.cells([position]).iloc[:, 0]
            column = _dates_as_fitted(cells, column, forms.dates[name], path)
        elif file.is_text and was_text and not is_text:
            column = file.cells([position]).iloc[:, 0]
        elif was_text and pd.api.types.is_numeric_dtype(column.dtype) and not is_text:
            raise UserError(
                f"{path}: column {name!r} holds numbers, but held text when the model was fitted; "
                "write it as text"
            )
        elif kind == "number" and column_kind(column) == ColumnKind.TEXT:
            texts = column.dropna().astype(str)
            invalid_texts = texts[pd.to_numeric(texts, errors="coerce").isna()]
            if len(invalid_texts):
                raise UserError(
                    f"{path}: column {name!r} holds text such as {invalid_texts.iloc[0]!r:.40}, "
                    "but held numbers when the model was fitted; correct these cells"
                )
        columns[name] = column
    return pd.DataFrame(columns)


def _dates_as_fitted(cells: pd.Series, column: pd.Series, form: str, path: Path) -> pd.Series:
    """Read dates in the format of the model's table, or keep those read in another format."""
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
