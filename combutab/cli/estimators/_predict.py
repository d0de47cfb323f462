"""``combutab predict``: what an estimator's file says of new rows."""

from __future__ import annotations

import codecs
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab._suggestions import no_column
from combutab.cli._console import UserError, interruptible, one_line_warnings, say_on_terminal
from combutab.cli.estimators._files import load_estimator
from combutab.cli.synth._before import check_device, tell_of_formulas
from combutab.cli.tables._forms import FileFormat, check_ending, ending, write_file
from combutab.cli.tables._names import find_columns
from combutab.cli.tables._outputs import check_file, write_whole
from combutab.cli.tables._reading import Reading
from combutab.preprocessing import TableEncoder

_PART = 2**20  # bytes
_TEXT_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def predict(
    *,
    model: Path,
    data: Path,
    out: Path,
    proba: bool,
    keep: list[str] | None,
    sep: str | None,
    decimal: str | None,
    encoding: str | None,
    device: str,
    guard_formulas: bool,
) -> None:
    """Predict the target of each row of a table by a model that was fitted."""
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_ending(out)
        check_file(out, MODEL=model, DATA=data)
        check_device(device)
        estimator, forms, target = load_estimator(model, device)
        if proba and not hasattr(estimator, "classes_"):
            raise UserError(f"--proba needs a classifier, and {model} is a regressor")
        reading = _reading(sep, decimal, encoding, forms, data)
        table = reading.table(data)
        kept = _as_written(table, find_columns("--keep", keep or [], table.columns), reading, data)
        X = _as_fitted(table, estimator.encoder_, forms, reading, data)
        try:
            predicted = estimator.predict(X)
            shares = estimator.predict_proba(X) if proba else None
        except (ValueError, TypeError) as error:
            raise UserError(f"{data}: {error}") from error
        made = _columns(predicted, shares, estimator, target)
        clash = [name for name in made if name in kept]
        if clash:
            raise UserError(f"--keep names {clash[0]!r}, which the predictions are called too")
        table = pd.concat([kept, made], axis=1)
        words = forms.truth.get(target or "")
        first = str(made.columns[0])
        form = FileFormat(
            truth={first: words} if words and types.is_bool_dtype(made[first].dtype) else {},
            sep=reading.sep or forms.sep,
            decimal=reading.decimal,
            guarded=guard_formulas,
        )
        tell_of_formulas(table, form, out)
        write_whole(out, lambda stage: write_file(table, form, stage, ending(out)))
        seconds = time.perf_counter() - started
        say_on_terminal(f"Wrote {len(table):,} predictions to {out} ({seconds:.1f} s)")


def _columns(
    predicted: np.ndarray, shares: np.ndarray | None, estimator: Any, target: str | None
) -> pd.DataFrame:
    name = "predicted" if target is None else f"predicted_{target}"
    if predicted.ndim == 1:
        columns = {name: predicted}
    else:
        columns = {f"{name}_{j}": column for j, column in enumerate(predicted.T)}
    if shares is not None:
        labels = estimator.classes_.tolist()
        columns |= {f"probability_{v}": p for v, p in zip(labels, shares.T, strict=True)}
    return pd.DataFrame(columns)


# ---- new rows as the model's encoder takes them ------------------------------------------------


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith(_TEXT_FILES)


def _reading(
    sep: str | None, decimal: str | None, encoding: str | None, forms: FileFormat, path: Path
) -> Reading:
    """How to read the new rows: what is not given, as the model's table was read."""
    given = Reading.of(sep, decimal or ".", encoding or "utf-8")
    if decimal is None:  # a comma cannot be asked for between cells, and be within them
        decimal = "." if sep == "," else forms.decimal
    if sep is None and path.name.lower().endswith((".csv", ".csv.gz")):
        sep = forms.sep
    if encoding is None:  # text of another encoding is hardly ever text of UTF-8 as well
        encoding = forms.encoding if _is_text(path) and not _is_utf8(path) else "utf-8"
    reading = Reading.of(sep, decimal, encoding)
    if _is_text(path) and reading != given:
        between = f"--sep {reading.sep!r} " if reading.sep else ""
        say_on_terminal(
            f"{path.name} is read as the model's table was: {between}--decimal {reading.decimal} "
            f"--encoding {reading.encoding}"
        )
    return reading


def _is_utf8(path: Path) -> bool:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with opened(path, "rb") as file:
            while part := file.read(_PART):
                decoder.decode(part)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    except (OSError, EOFError):  # which reading the table tells better
        return True
    return True


def _as_written(
    table: pd.DataFrame, names: list[Any], reading: Reading, path: Path
) -> pd.DataFrame:
    """Some columns as the file has them."""
    if not _is_text(path) or not names:
        return table[names]
    places = table.columns.get_indexer(pd.Index(names)).tolist()
    return reading.cells(path, places)[names]


def _as_fitted(
    table: pd.DataFrame, encoder: TableEncoder, forms: FileFormat, reading: Reading, path: Path
) -> pd.DataFrame:
    """The columns that the model was fitted with, in their order, and read as they were then."""
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
        numbers = types.is_numeric_dtype(column.dtype) and column.notna().any()
        dated = encoder.kinds_[j] == "datetime" and name in forms.dates
        if _is_text(path) and ((of_text and numbers) or dated):
            column = reading.cells(path, [place]).iloc[:, 0]
            if dated:
                column = _dates(column, forms.dates[name], name, path)
        elif of_text and numbers:
            raise UserError(
                f"{path}: column {name!r} holds numbers; the model was fitted with text there"
            )
        columns[name] = column
    return pd.DataFrame(columns)


def _dates(cells: pd.Series, form: str, name: str, path: Path) -> pd.Series:
    try:
        return pd.to_datetime(cells.str.strip(), format=form)
    except ValueError as error:
        raise UserError(
            f"{path}: column {name!r} does not hold dates as the model was fitted with, such as "
            f"{pd.Timestamp('2024-12-31').strftime(form)}: {str(error).splitlines()[0]}"
        ) from error
