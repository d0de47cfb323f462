"""``combutab fit``: an estimator of one column of a table by the others."""

from __future__ import annotations

import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.metrics import r2_score

from combutab._device import resolve_device
from combutab.cli._console import (
    UserError,
    interruptible,
    no_early_ends,
    one_line_warnings,
    own_warnings,
    say,
    say_on_terminal,
)
from combutab.cli.estimators._files import KINDS, save_estimator
from combutab.cli.synth._before import check_device, check_replaceable
from combutab.cli.tables._forms import read_file
from combutab.cli.tables._names import find_columns
from combutab.cli.tables._outputs import check_file, write_whole
from combutab.cli.tables._reading import Reading, tell_of_odd_columns
from combutab.datasets import split_target
from combutab.preprocessing import infer_task
from combutab.training import ProgressBar


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
        X, y = split_target(table.drop(columns=dropped), target)
        for name in find_columns("--discrete", discrete or [], X.columns):
            X[name] = X[name].astype("category")
        tell_of_odd_columns(X, reading)
        kind = _task(task, y)
        estimator = _estimator(model, kind, activation, members, epochs, seed, device)
        say_on_terminal(
            f"{data.name}: {len(X):,} rows, {X.shape[1]} columns to predict {target!r} from; "
            f"{type(estimator).__name__}, on {resolve_device(device)}"
        )
        _train(estimator, X, y.to_numpy())
        write_whole(out, lambda stage: save_estimator(estimator, forms, target, stage))
        say(f"{type(estimator).__name__} of {target!r}: {_score(estimator)}")
        say(_in_words(estimator, X, y.to_numpy()))
        say_on_terminal(f"Wrote the model to {out} ({time.perf_counter() - started:.1f} s)")


def _task(task: str, y: pd.Series) -> str:
    known = ("auto", "classification", "regression")
    if task not in known:
        raise UserError(f"--task {task} is not one of {', '.join(known)}")
    if task == "regression" and not pd.api.types.is_numeric_dtype(y.dtype):
        raise UserError(f"--task regression needs numbers, and {y.name!r} has {y.iloc[0]!r}")
    try:
        return infer_task(y) if task == "auto" else task
    except ValueError as error:
        raise UserError(f"{y.name!r} cannot be predicted: {error}") from error


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


def _train(estimator: Any, X: pd.DataFrame, y: np.ndarray) -> None:
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
