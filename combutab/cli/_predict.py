"""``combutab predict``: write the predictions of a fitted model for the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from combutab.cli import _options
from combutab.cli._console import UserError, refusals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from combutab.cli._files import Targets
    from combutab.datasets.features import FeatureColumns
    from combutab.datasets.formats import FileFormat
    from combutab.datasets.tables import TableFile


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

    out: _options.Out = _options.STANDARD_OUTPUT
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
    features: FeatureColumns

    def read_features(self) -> pd.DataFrame:
        """Select the model's columns in their order, and read them as when the model was fitted."""
        return self.features.select(self.table, self.file)


def predict(options: PredictOptions) -> None:
    """Predict the target of each row of a table with a fitted model.

    Predictions are written in the order of the rows. Dates and amounts are read in the format of
    the table that the model was fitted on. So are separators, decimal marks and the encoding, if
    they cannot be detected in DATA.

    Example: combutab predict model.safetensors new.csv -o predictions.csv --proba
    """
    out = options.out
    if options.coverage is not None and not 0 < options.coverage < 1:
        raise UserError(f"--coverage must be between 0 and 1, got {options.coverage}")
    inputs = {"MODEL": options.model, "DATA": options.data}
    _options.check_outputs({"OUT": out}, inputs, table=out)
    data = read_for_model(options)

    import pandas as pd

    from combutab.cli import _files

    estimator = data.estimator
    if options.proba and not hasattr(estimator, "classes_"):
        raise UserError(
            f"--proba needs a classifier, but {options.model} is a regressor; leave --proba out"
        )
    names = _options.find_columns("--keep", options.keep, data.table.columns)
    columns = data.table[names]
    if data.file.is_text and names and _options.ending(out) != ".parquet":
        positions = data.table.columns.get_indexer(pd.Index(names)).tolist()
        columns = data.file.cells(positions, only_empty=True)[names]
    X = data.read_features()
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
    options.echo_done(f"Wrote {len(table):,} predictions to {out}")


def read_for_model(options: ModelOptions) -> ModelData:
    """Load a model, and read a table in the format of the model's table."""
    path, model = options.data, options.model

    from combutab.cli import _files

    table, table_forms = _files.read_file(path, options.reading, _files.read_format(model))

    from combutab import estimators
    from combutab.datasets.features import FeatureColumns
    from combutab.datasets.tables import TableFile

    _files.find_device(options.device)
    names = [name for name in estimators.__all__ if name.endswith(("Classifier", "Regressor"))]
    estimator, forms, header = _files.load_with_format(
        model, options.device, names, "cannot predict", "combutab fit"
    )
    file = TableFile(path, table_forms.reading_of(path))
    if not _options.is_text_file(path):
        table_forms = forms
    target, features = header.get(_files.TARGET), FeatureColumns.from_header(header)
    return ModelData(estimator, forms, target, table, table_forms, file, features)


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
    columns = {name: y_pred}
    if y_pred.ndim > 1:
        names = target if isinstance(target, list) else range(y_pred.shape[1])
        columns = {f"{name}_{key}": column for key, column in zip(names, y_pred.T, strict=True)}
    if regions is not None and not hasattr(estimator, "classes_"):
        ends = regions.reshape(len(regions), -1, 2).transpose(1, 2, 0)
        for predicted, (low, high) in zip(list(columns), ends, strict=True):
            columns |= {f"{predicted}_low": low, f"{predicted}_high": high}
        regions = None
    for prefix, by_class in (("probability", probabilities), ("in_set", regions)):
        if by_class is not None:
            labels = estimator.classes_.tolist()
            columns |= {
                f"{prefix}_{k}": column for k, column in zip(labels, by_class.T, strict=True)
            }
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
