"""``combutab predict``: what a fitted model says of the rows of a table."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import UserError, echo_on_terminal, refusals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from combutab.cli._files import FileFormat, Reading
    from combutab.preprocessing import TableEncoder

_PART = 2**20  # letters


def predict(
    model: Annotated[
        Path, typer.Argument(help="File that `combutab fit` wrote, or an estimator's save.")
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with the columns that the model was fitted with, in any order; others are "
            f"passed over. {_options.READABLE}."
        ),
    ],
    out: _options.Out,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of each class too.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        _options.columns_option(
            "Columns of DATA, separated by commas, to write beside the predictions; '*' for all."
        ),
    ] = None,
    sep: _options.FittedSep = None,
    decimal: _options.FittedDecimal = None,
    encoding: _options.FittedEncoding = None,
    device: _options.Device = "auto",
    guard_formulas: _options.Guard = False,
) -> None:
    """Write what a model predicts for each row of a table, in the order of the rows.

    The model's file says what the table was like that it was fitted on: dates, --sep, --decimal and
    --encoding. DATA is read in the same way, unless they are given; text of UTF-8 as that.
    """
    import pandas as pd

    import combutab.estimators as estimators
    from combutab.cli import _files

    started = time.perf_counter()
    _files.check_ending(out)
    _files.check_outputs({"OUT": out}, {"MODEL": model, "DATA": data})
    _files.check_device(device)
    names = [name for name in estimators.__all__ if name.endswith(("Classifier", "Regressor"))]
    estimator, forms, target = _files.load_with_format(
        model, device, names, "predicts nothing", "combutab fit"
    )
    if proba and not hasattr(estimator, "classes_"):
        raise UserError(f"--proba needs a classifier, and {model} is a regressor")
    reading = _reading_as_fitted(sep, decimal, encoding, forms, data)
    table = reading.table(data)
    kept = _cells_of(table, _files.find_columns("--keep", keep, table.columns), reading, data)
    X = _fitted_columns(table, estimator.encoder_, forms, reading, data)
    with refusals(ValueError, TypeError, prefix=f"{data}: "):
        predicted = estimator.predict(X)
        probabilities = estimator.predict_proba(X) if proba else None
    made = _predicted_table(predicted, probabilities, estimator, target)
    clash = [name for name in made if name in kept]
    if clash:
        raise UserError(f"--keep names {clash[0]!r}, which the predictions are called too")
    table = pd.concat([kept, made], axis=1)
    words = forms.truth.get(target or "")
    first = str(made.columns[0])
    form = _files.FileFormat(
        truth={first: words} if words and made[first].dtype.kind == "b" else {},
        sep=reading.sep or forms.sep,
        decimal=reading.decimal,
        guarded=guard_formulas,
    )
    _files.hint_at_formulas(table, form, out)
    _files.write_table(table, form, out)
    seconds = time.perf_counter() - started
    echo_on_terminal(f"Wrote {len(table):,} predictions to {out} ({seconds:.1f} s)")


def _predicted_table(
    predicted: np.ndarray, probabilities: np.ndarray | None, estimator: Any, target: str | None
) -> pd.DataFrame:
    import pandas as pd

    name = "predicted" if target is None else f"predicted_{target}"
    if predicted.ndim == 1:
        columns = {name: predicted}
    else:
        columns = {f"{name}_{j}": column for j, column in enumerate(predicted.T)}
    if probabilities is not None:
        labels = estimator.classes_.tolist()
        columns |= {f"probability_{v}": p for v, p in zip(labels, probabilities.T, strict=True)}
    return pd.DataFrame(columns)


# ---- New rows as the model's encoder takes them ------------------------------------------------


def _reading_as_fitted(
    sep: str | None, decimal: str | None, encoding: str | None, forms: FileFormat, path: Path
) -> Reading:
    """How to read the new rows: what is not given, as the model's table was read."""
    from combutab.cli import _files

    given = _files.Reading(sep, decimal or ".", encoding or "utf-8")
    if decimal is None:  # a comma cannot be asked for between cells, and be within them
        decimal = "." if sep == "," else forms.decimal
    if sep is None and path.name.lower().endswith((".csv", ".csv.gz")):
        sep = forms.sep
    if encoding is None:  # text of another encoding is hardly ever text of UTF-8 as well
        encoding = forms.encoding if _files.is_text_file(path) and not _is_utf8(path) else "utf-8"
    reading = _files.Reading(sep, decimal, encoding)
    if _files.is_text_file(path) and reading != given:
        between = f"--sep {reading.sep!r} " if reading.sep else ""
        echo_on_terminal(
            f"{path.name} is read as the model's table was: {between}--decimal {reading.decimal} "
            f"--encoding {reading.encoding}"
        )
    return reading


def _is_utf8(path: Path) -> bool:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            while file.read(_PART):
                pass
    except UnicodeDecodeError:
        return False
    except (OSError, EOFError):  # which reading the table tells better
        return True
    return True


def _cells_of(table: pd.DataFrame, names: list[Any], reading: Reading, path: Path) -> pd.DataFrame:
    """Some columns as the file has them."""
    import pandas as pd

    from combutab.cli import _files

    if not _files.is_text_file(path) or not names:
        return table[names]
    places = table.columns.get_indexer(pd.Index(names)).tolist()
    return reading.cells(path, places)[names]


def _fitted_columns(
    table: pd.DataFrame, encoder: TableEncoder, forms: FileFormat, reading: Reading, path: Path
) -> pd.DataFrame:
    """The columns that the model was fitted with, in their order, and read as they were then."""
    import pandas as pd

    from combutab.cli import _files
    from combutab.core.text import no_column

    names = getattr(encoder, "feature_names_in_", None)
    if names is None:
        if table.shape[1] != encoder.n_features_in_:
            raise UserError(
                f"{path} has {table.shape[1]} columns; the model was fitted with "
                f"{encoder.n_features_in_}, which had no names"
            )
        table = table.set_axis(range(table.shape[1]), axis=1)
        names = list(table.columns)
    places = {str(name): j for j, name in enumerate(table.columns)}
    for name in map(str, names):
        if name not in places:
            raise UserError(f"{path}: {no_column(name, places)}; the model was fitted with it")
    maps = {each.column: each for each in encoder.category_maps_}
    columns = {}
    for j, name in enumerate(names):
        place = places[str(name)]
        column = table.iloc[:, place]
        of_text = j in maps and any(isinstance(key, str) for key in maps[j].keys)
        numbers = pd.api.types.is_numeric_dtype(column.dtype) and column.notna().any()
        dated = encoder.kinds_[j] == "datetime" and name in forms.dates
        if _files.is_text_file(path) and ((of_text and numbers) or dated):
            column = reading.cells(path, [place]).iloc[:, 0]
            if dated:
                column = _dates_as_fitted(column, forms.dates[name], name, path)
        elif of_text and numbers:
            raise UserError(
                f"{path}: column {name!r} holds numbers; the model was fitted with text there"
            )
        columns[name] = column
    return pd.DataFrame(columns)


def _dates_as_fitted(cells: pd.Series, form: str, name: str, path: Path) -> pd.Series:
    import pandas as pd

    try:
        return pd.to_datetime(cells.str.strip(), format=form)
    except ValueError as error:
        raise UserError(
            f"{path}: column {name!r} does not hold dates as the model was fitted with, such as "
            f"{pd.Timestamp('2024-12-31').strftime(form)}: {str(error).splitlines()[0]}"
        ) from error
