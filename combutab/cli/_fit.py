"""``combutab fit``: a model that predicts one column of a table from the others."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import (
    echo,
    echo_on_terminal,
    no_early_ends,
    own_warnings,
    refusals,
    spinner,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_MODELS = {"mlp": "MLP", "pack": "Pack", "tabm": "TabM"}  # the estimators' names begin so


def fit(
    data: _options.Table,
    target: Annotated[str, typer.Option(help="Column of DATA to predict.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File for the model, such as model.safetensors, for `combutab predict`.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar=f"<{'|'.join(_MODELS)}>",
            callback=lambda name: _options.one_of([*_MODELS], name),
            help="A perceptron, a pack of many kinds of them, or TabM.",
        ),
    ] = "mlp",
    task: _options.Task = "auto",
    activation: Annotated[
        str | None,
        typer.Option(
            help="Activation of all hidden layers; also pln-N and pls-N.",
            callback=_options.check_activations,
            show_default="the model's own",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Networks whose predictions are averaged, or that a pack chooses from.",
            min=1,
            show_default="2 where rows are set aside, else 1; 1 of TabM; 16 of a pack",
        ),
    ] = None,
    epochs: _options.Epochs = None,
    discrete: _options.Discrete = None,
    drop: _options.Drop = None,
    drop_missing_target: _options.DropMissing = False,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
) -> None:
    """Fit a model that predicts one column of a table from the others.

    Where rows are set aside (of 200 or more; a pack's, of 50), the last line says how good the
    model is on them, beside a guess. The file holds no rows. Ctrl-C ends the training, and nothing
    is written.
    """
    started = time.perf_counter()
    _options.check_outputs({"OUT": out}, {"DATA": data})
    _options.check_replaceable("--out", out)
    _options.check_table(data, sep, encoding, target=target, drop=drop, discrete=discrete)

    import pandas as pd

    from combutab.cli import _files
    from combutab.datasets import split_target
    from combutab.preprocessing import read_numbers

    reading = _files.Reading(sep, decimal, encoding, thousands)
    table, forms = _files.read_file(data, reading)
    table.columns = pd.Index([str(name) for name in table.columns])
    table = _files.leave_out(table, drop, target, drop_missing_target)
    X, y = split_target(table, target)
    for name in _options.find_columns("--discrete", discrete, X.columns):
        X[name] = X[name].astype("category")
    kind = _files.task_of(y, task, data, reading)
    labels = (read_numbers(y) if kind == "regression" else y).to_numpy()
    _files.check_device(device)
    _files.hint_at_odd_columns(table, reading, target=target)

    from combutab import estimators
    from combutab.core.device import resolve_device
    from combutab.training import ProgressBar

    task_name = "Regressor" if kind == "regression" else "Classifier"
    cls: Any = getattr(estimators, _MODELS[model] + task_name)
    options: dict[str, Any] = {"n_members": members, "max_iter": epochs}
    options |= {"random_state": seed, "device": device}
    if model == "pack":
        options["activations"] = None if activation is None else [activation]
    else:
        options["activation"] = activation
        options["callbacks"] = [ProgressBar(cls.__name__, transient=True)]
    estimator = cls(**{name: value for name, value in options.items() if value is not None})
    echo_on_terminal(
        f"{data.name}: {len(X):,} rows, {X.shape[1]} columns to predict {target!r} from; "
        f"{cls.__name__}, on {resolve_device(device)}"
    )
    _train_whole(estimator, X, labels)
    _files.write_whole(out, lambda place: _files.save_with_format(estimator, place, forms, target))
    echo(f"{cls.__name__} of {target!r}: {_held_out_score(estimator)}")
    echo(_beside_a_guess(estimator, X, labels))
    echo_on_terminal(f"Wrote the model to {out} ({time.perf_counter() - started:.1f} s)")


def _train_whole(estimator: Any, X: pd.DataFrame, y: np.ndarray) -> None:
    try:
        with refusals(ValueError, TypeError), own_warnings(), no_early_ends():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.filterwarnings("error", "Training interrupted", UserWarning)
            bar = hasattr(estimator, "callbacks")  # a pack has none
            with nullcontext() if bar else spinner(f"Training {estimator.n_members} networks"):
                estimator.fit(X, y)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; nothing is kept") from None


def _held_out_score(estimator: Any) -> str:
    """How good the estimator is on rows that were set aside."""
    if hasattr(estimator, "validation_loss_"):
        name, value, n = "loss", estimator.validation_loss_, estimator.n_iter_
    else:
        own = "accuracy" if hasattr(estimator, "classes_") else "R2"
        name = estimator.early_stopping_scoring or own
        value, history = estimator.best_validation_score_, estimator.history_
        if value is not None:  # the mean over the networks
            value = history.groupby("member")["validation_score"].max().mean()
            value = -value if name == "loss" else value
        n = int(history["epoch"].max())
    after = f"{n} epoch{'s' * (n != 1)}"
    if value is None:
        return f"{after}, no rows set aside"
    return f"{name} {value:.4g} on rows that were set aside, {after}"


def _beside_a_guess(estimator: Any, X: pd.DataFrame, y: np.ndarray) -> str:
    """How good the estimator is on the rows that were set aside, beside a guess without columns."""
    import numpy as np
    import pandas as pd
    from sklearn.metrics import r2_score

    found = _held_out_predictions(estimator, X, y)
    if found is None:
        return (
            "How good it is on new rows was not measured: of so few, all are trained on. "
            "`combutab compare` measures, by cross-validation."
        )
    val, predicted, apart = found
    train, n = np.delete(np.arange(len(y)), val), len(val)
    train = train if len(train) else val  # of folds all rows are set aside once
    pack = hasattr(estimator, "members_")
    which = "networks that have not seen it" if pack else "a network that has not seen it"
    by = f", each predicted by {which}," if apart else ""
    where = f"On the {n:,} rows set aside{by}"
    if hasattr(estimator, "classes_"):
        guess = pd.Series(y[train]).mode().tolist()[0]
        right, by_guess = (np.mean(answer == y[val]) for answer in (predicted, guess))
        better = right > by_guess
        said = (
            f"{where} it is right on {100 * right:.1f} %; always answering "
            f"{guess!r}, the most frequent, on {100 * by_guess:.1f} %."
        )
    else:
        numbers = y.astype(float)
        guess, truth = float(np.median(numbers[train])), numbers[val]
        off, by_guess = (np.abs(answer - truth).mean() for answer in (predicted, guess))
        better = off < by_guess
        said = (
            f"{where} it is off by {off:.4g} on average (R2 "
            f"{r2_score(truth, predicted):.3f}); always answering the median, {guess:.4g}, by "
            f"{by_guess:.4g}."
        )
    said += "" if better else " It does not beat that guess."
    if apart:
        what, one = ("networks", "they") if pack else ("epochs", "a network")
        return (
            f"{said} The best {what} were chosen by these rows, so that {one} may do a little "
            "worse on new ones; these get the mean of all, which is usually better."
        )
    chosen = "networks were" if pack else "epoch was"
    return f"{said} The best {chosen} chosen by these rows, so that new ones may do a little worse."


def _held_out_predictions(
    estimator: Any, X: pd.DataFrame, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Rows that were set aside, predictions for them by networks that have not trained on them.

    The last says whether each network has set aside rows of its own.
    """
    import numpy as np

    out_of_fold = getattr(estimator, estimator.target_.held_out_name, None)
    if out_of_fold is not None:
        rows = np.flatnonzero(~np.isnan(out_of_fold.reshape(len(y), -1)).any(1))
        found = out_of_fold[rows]
        return rows, estimator.classes_[found.argmax(1)] if found.ndim > 1 else found, True
    parts = estimator.held_out_rows(y)
    return None if parts is None else (parts[1], estimator.predict(X.iloc[parts[1]]), False)
