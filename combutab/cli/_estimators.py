"""``combutab fit`` and ``combutab predict``: estimators of tables in files."""

from __future__ import annotations

import codecs
import gzip
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rich.console import Console
from sklearn.metrics import r2_score

from combutab._model_files import load, read_model, write_model
from combutab.cli._columns import find_columns
from combutab.cli._console import (
    UserError,
    interruptible,
    no_early_ends,
    one_line_warnings,
    own_warnings,
    say,
    say_on_terminal,
)
from combutab.cli._model_files import (
    check_device,
    check_replaceable,
    model_header,
    tell_of_formulas,
)
from combutab.cli._tables import (
    FileFormat,
    Reading,
    check_ending,
    check_file,
    ending,
    read_file,
    task_of,
    tell_of_odd_columns,
    write_file,
    write_whole,
)
from combutab.core.device import resolve_device
from combutab.core.text import no_column
from combutab.datasets import split_target
from combutab.estimators import (
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)
from combutab.preprocessing import TableEncoder, read_numbers
from combutab.training import ProgressBar

# ---- Files of estimators, which know the target and the forms of its table too -------------------

KINDS: dict[str, dict[str, Any]] = {
    "mlp": {"classification": MLPClassifier, "regression": MLPRegressor},
    "pack": {"classification": PackClassifier, "regression": PackRegressor},
    "tabm": {"classification": TabMClassifier, "regression": TabMRegressor},
}
_FORMS, _TARGET = "forms", "target"  # of the header of a model's file


def save_estimator(estimator: Any, forms: FileFormat, target: str, path: Path) -> None:
    """Write an estimator's file that knows the forms and the target too."""
    estimator.save(path)
    header, arrays = read_model(path)
    write_model(path, {**header, _FORMS: forms.to_json(), _TARGET: target}, arrays)


def load_estimator(path: Path, device: str) -> tuple[Any, FileFormat, str | None]:
    """Read an estimator's file, and the forms and the target if it knows them.

    Raises UserError if it holds none.
    """
    names = {each.__name__ for kinds in KINDS.values() for each in kinds.values()}
    with model_header(path, names, "predicts nothing", "combutab fit") as header:
        estimator = load(path, device=device)
        forms = FileFormat.from_json(header[_FORMS]) if _FORMS in header else FileFormat()
        target = header.get(_TARGET)
        if not (target is None or isinstance(target, str)):
            raise TypeError(f"the target is {target!r:.50}")
    return estimator, forms, target


# ---- ``combutab fit``: an estimator of one column of a table by the others -----------------------


def fit(
    *,
    data: Path,
    target: str,
    out: Path,
    model: str,
    task: str,
    activation: str | None,
    members: int | None,
    epochs: int | None,
    discrete: list[str] | None,
    drop: list[str] | None,
    sep: str | None,
    decimal: str,
    encoding: str,
    seed: int,
    device: str,
) -> None:
    """Fit an estimator of one column of a table by the others, and write it to a file."""
    with interruptible(), one_line_warnings():
        started = time.perf_counter()
        check_file(out, DATA=data)
        check_replaceable(out, "--out")
        check_device(device)
        reading = Reading.of(sep, decimal, encoding)
        table, forms = read_file(data, reading)
        table.columns = pd.Index([str(name) for name in table.columns])
        dropped = find_columns("--drop", drop or [], table.columns)
        if target in dropped:
            raise UserError(f"--drop leaves out {target!r}, the column to predict")
        table = table.drop(columns=dropped)
        X, y = split_target(table, target)
        for name in find_columns("--discrete", discrete or [], X.columns):
            X[name] = X[name].astype("category")
        kind = task_of(y, task, data, reading)
        y = read_numbers(y) if kind == "regression" else y
        tell_of_odd_columns(table, reading, target=target)
        estimator = _estimator(model, kind, activation, members, epochs, seed, device)
        say_on_terminal(
            f"{data.name}: {len(X):,} rows, {X.shape[1]} columns to predict {target!r} from; "
            f"{type(estimator).__name__}, on {resolve_device(device)}"
        )
        _fit_estimator(estimator, X, y.to_numpy())
        write_whole(out, lambda stage: save_estimator(estimator, forms, target, stage))
        say(f"{type(estimator).__name__} of {target!r}: {_score(estimator)}")
        say(_in_words(estimator, X, y.to_numpy()))
        say_on_terminal(f"Wrote the model to {out} ({time.perf_counter() - started:.1f} s)")


def _estimator(
    model: str,
    task: str,
    activation: str | None,
    members: int | None,
    epochs: int | None,
    seed: int,
    device: str,
) -> Any:
    cls = KINDS[model][task]
    options: dict[str, Any] = {"n_members": members, "max_iter": epochs}
    if model == "pack":
        options["activations"] = None if activation is None else [activation]
    else:
        options["activation"] = activation
        options["callbacks"] = [ProgressBar(cls.__name__, transient=True)]
    given = {name: value for name, value in options.items() if value is not None}
    return cls(**given, random_state=seed, device=device)


def _fit_estimator(estimator: Any, X: pd.DataFrame, y: np.ndarray) -> None:
    try:
        with _shown(estimator), own_warnings(), no_early_ends():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.filterwarnings("error", "Training interrupted", UserWarning)
            estimator.fit(X, y)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; nothing is kept") from None
    except (ValueError, TypeError) as error:
        raise UserError(str(error)) from error


def _shown(estimator: Any) -> AbstractContextManager[Any]:
    """What moves on a terminal while a pack trains, which has no bar."""
    console = Console(stderr=True)
    if not console.is_terminal or hasattr(estimator, "callbacks"):
        return nullcontext()
    return console.status(f"Training {estimator.n_members} networks")


def _score(estimator: Any) -> str:
    """How good the estimator is on rows that were set aside."""
    if hasattr(estimator, "validation_loss_"):
        name, value = "loss", estimator.validation_loss_
    else:
        own = "accuracy" if hasattr(estimator, "classes_") else "R2"
        name = estimator.early_stopping_scoring or own
        value = estimator.best_validation_score_
        if value is not None and name == "loss":
            value = -value
    n = estimator.n_iter_
    after = f"{n} epoch{'s' * (n != 1)}"
    if value is None:
        return f"{after}, no rows set aside"
    return f"{name} {value:.4g} on rows that were set aside, {after}"


def _in_words(estimator: Any, X: pd.DataFrame, y: np.ndarray) -> str:
    """How good the estimator is on the rows that were set aside, beside a guess without columns."""
    parts = estimator._set_aside(y)
    if parts is None:
        return (
            "How good it is on new rows was not measured: of so few, all are trained on. "
            "`combutab compare` measures, by cross-validation."
        )
    train, val = parts
    predicted, n = estimator.predict(X.iloc[val]), len(val)
    if hasattr(estimator, "classes_"):
        guess = pd.Series(y[train]).mode().tolist()[0]
        right, by_guess = (np.mean(answer == y[val]) for answer in (predicted, guess))
        better = right > by_guess
        said = (
            f"On the {n:,} rows set aside it is right on {100 * right:.1f} %; always answering "
            f"{guess!r}, the most frequent, on {100 * by_guess:.1f} %."
        )
    else:
        numbers = y.astype(float)
        guess, truth = float(np.median(numbers[train])), numbers[val]
        off, by_guess = (np.abs(answer - truth).mean() for answer in (predicted, guess))
        better = off < by_guess
        said = (
            f"On the {n:,} rows set aside it is off by {off:.4g} on average (R2 "
            f"{r2_score(truth, predicted):.3f}); always answering the median, {guess:.4g}, by "
            f"{by_guess:.4g}."
        )
    chosen = "networks" if hasattr(estimator, "members_") else "epoch"
    return (
        f"{said}{'' if better else ' It does not beat that guess.'} The best {chosen} "
        f"{'were' if chosen[-1] == 's' else 'was'} chosen by these rows, so that new ones may do a "
        "little worse."
    )


# ---- ``combutab predict``: what an estimator's file says of new rows -----------------------------

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
