"""``combutab fit``: train a model that predicts one column of a table from the others."""

from __future__ import annotations

import ast
import re
import shlex
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from combutab.cli import _options
from combutab.cli._console import (
    UserError,
    echo,
    echo_on_terminal,
    hint,
    hint_at_time_limit,
    no_early_ends,
    noted_warnings,
    own_warnings,
    refusals,
    spinner,
)
from combutab.core.text import counted, known_instead, list_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pandas as pd

    from combutab.datasets.formats import FileFormat
    from combutab.evaluation import PredictionScores

_MODELS = {"mlp": "MLP", "pack": "Pack", "tabm": "TabM"}  # prefixes of the estimators' names
# Parameters that other options set, and these options; those of --split are set by `_split_rows`
_FIELDS = {"n_members": "members", "max_iter": "epochs", "random_state": "seed"}
_FIELDS |= {name: name for name in ("max_time", "device", "activation")}
_FIELDS["activations"] = "activation"
_OPTIONS = {name: f"--{field.replace('_', '-')}" for name, field in _FIELDS.items()}
_OPTIONS |= dict.fromkeys(("validation_split", "cv"), "--split")
_OF_PARAMETER = r"^The '(\w+)' parameter of \w+ "
_WORDS = {"true": True, "false": False, "none": None}
# Parameters that no option can set
_NOT_SET = {"callbacks", "verbose", "warm_start", "n_jobs", "member_params"}


@dataclass(frozen=True, kw_only=True)
class FitOptions(_options.ReadOptions):
    """The options of ``combutab fit``.

    Options
    -------
    data : DATA
        Table with a header line: READABLE.
    target : COLUMN
        Column of DATA to predict, or several numeric columns separated by commas.
    out : FILE
        Model file to write, such as model.safetensors. `combutab predict` and `combutab explain`
        read it.
    report : FILE
        HTML report to write, such as model.html: scores of the model and of a baseline, permutation
        importances, how each column was encoded, and how to use the model.

    Model
    -----
    preset : NAME
        How much to train: fast trains one network, default two, best an ensemble chosen from 16
        different networks (--model pack).
    model : NAME, default mlp; pack with --preset best
        Kind of model: mlp (neural networks with the same settings), pack (an ensemble chosen from
        neural networks with different settings and boosted trees) or tabm (TabM: neural networks
        that share most of their weights).
    activation : NAME, default mlp: combu; tabm: relu; pack: several
        Activation function of all hidden layers, such as relu, combu or pln-4.
    members : NUMBER, default mlp: 2, or 1 where no rows are set aside; tabm: 1; pack: 16
        Number of networks to train. Their predictions are averaged; a pack chooses its ensemble
        from them.
    epochs : NUMBER, default mlp: 100; pack: 80; tabm: 200
        Maximum number of epochs (passes over the training rows).
    max_time : TIME, default no limit
        Time limit of the training, in seconds or as 90s, 2min or 1h. Training stops at the end of
        the epoch in which it is reached.
    settings : NAME=VALUE
        Parameter of the model, such as learning_rate_init=0.01 or dropout=0.3. Can be repeated.

    Scores
    ------
    metric : NAME, default roc_auc or r2 is listed first; the loss selects the epoch
        Metric that is listed first in the table of scores and that selects the best epoch: METRICS;
        or another scorer of scikit-learn.
    split : SPLIT
        Which validation rows are set aside. random: a random fifth. time:COLUMN: the latest fifth
        by a column of dates or numbers. group:COLUMN: whole groups of rows with the same value of
        the column, which is not used as a feature.
    refit
        After the scores are computed, train the saved model again on all rows, up to the best epoch
        of the first training. Useful with --split time:COLUMN, where the latest rows are otherwise
        never trained on.
    """

    data: _options.Table
    target: str
    out: _options.Out
    report: Path | None = None
    preset: Annotated[str, _options.choice("fast", "default", "best")] = "default"
    model: Annotated[str | None, _options.choice(*_MODELS)] = None
    activation: str | None = None
    members: _options.OptionalCount = None
    epochs: _options.OptionalCount = None
    max_time: _options.Time = None
    settings: Annotated[list[str] | None, typer.Option("--set")] = None
    metric: str | None = None
    split: _options.Split = "random"
    refit: bool = False
    task: _options.Task = "auto"
    discrete: _options.Columns = None
    drop: _options.Columns = None
    drop_missing_target: bool = False
    seed: _options.Seed = 0
    device: str = "auto"


@dataclass(frozen=True)
class _Table:
    """The features and targets of a training table, and the format of its file."""

    X: pd.DataFrame
    y: np.ndarray
    targets: list[str]
    task: str
    forms: FileFormat

    def save(self, estimator: Any, path: Path) -> None:
        """Save an estimator with the targets and the format of the table."""
        from combutab.cli import _files

        target = self.targets[0] if len(self.targets) == 1 else self.targets
        with _options.writing(path):
            _files.save_with_format(estimator, path, self.forms, target)


@dataclass(frozen=True)
class _Split:
    """The features without the group column of the split, and the rows that are set aside."""

    X: pd.DataFrame
    groups: np.ndarray | None = None
    set_aside: str = ""  # describes the rows that are set aside, unless they are random
    time_blocks: np.ndarray | None = None  # numbers of neighbouring times among these rows


def fit(options: FitOptions) -> None:
    """Fit a model that predicts one column of a table from the others.

    If the table has at least 200 rows (50 for a pack), some are set aside for validation. The
    command prints the model's scores on them, and those of a baseline that ignores all features.
    The model file holds no rows of the table. If Ctrl-C interrupts the training, no file is
    written.

    Example: combutab fit customers.csv --target churn -o model.safetensors
    """
    model = _model_name(options)
    settings = _read_settings(options.settings or ())
    data = _read_fit_data(options)

    from combutab.cli import _files
    from combutab.estimators import clone_for_all_rows

    device = _files.find_device(options.device)
    estimator = _build_estimator(options, model, settings, data)
    split = _split_rows(estimator, data.X, options.split)
    names = list_names(data.targets)
    echo_on_terminal(
        f"{options.data.name}: {counted(len(split.X), 'row')}, {data.task} of {names} by "
        f"{counted(split.X.shape[1], 'column')} with {model}, on {device}"
    )
    with noted_warnings() as warnings:
        _train_with_progress(estimator, model, split.X, data.y, split.groups)
    random_split: dict[str, Any] = {"cv": "auto"} if model == "pack" else {"validation_split": None}
    for column, training in estimator.encoder_.describe_columns().items():
        if training.startswith(("date", "free text")):
            echo_on_terminal(f"{column!r}: {training}")
    data.save(copy(estimator).set_params(**random_split), options.out)
    if options.split == "random":
        _hint_at_time_order(split.X)
    history = estimator.history_
    n_networks, n_epochs = history["member"].nunique(), int(history["epoch"].max())
    trained = f"{counted(n_networks, 'network')}, {counted(n_epochs, 'epoch')}"
    echo(f"{data.task.capitalize()} of {names} with {model}: {trained}")
    scores = _print_scores(estimator, data, split, options)
    estimator.set_params(**random_split)
    if options.report is not None:
        with refusals(prefix="--report: "), spinner("Writing the report"):
            _write_model_report(options, options.report, estimator, data, split, scores, warnings)
        echo_on_terminal(f"Wrote {options.report}")
    if options.refit and scores is not None:
        final = clone_for_all_rows(estimator)
        training = f"for {counted(final.max_iter, 'epoch')}, the best epoch of the first training"
        if model == "pack":
            training = "with cross-validation to choose among its networks"
        saved_model = f"; {options.out} has the model of these scores"
        _train_with_progress(final, model, split.X, data.y, interrupted=saved_model)
        data.save(final, options.out)
        echo(
            f"The model in {options.out} was trained again on all {len(split.X):,} rows, "
            f"{training}. The scores above are those of the first training, which did not use the "
            "rows set aside."
        )
    options.echo_done(f"Wrote the model to {options.out}")


def _read_fit_data(options: FitOptions) -> _Table:
    """Check the files, and read the features and the targets."""
    data, reading = options.data, options.reading
    outputs = {"OUT": options.out, "--report": options.report}
    _options.check_outputs(outputs, {"DATA": data}, model=options.out)

    import numpy as np
    import pandas as pd

    from combutab.cli import _files
    from combutab.datasets import split_target
    from combutab.preprocessing import read_numbers

    table, forms = _files.read_file(data, reading)
    table.columns = pd.Index([str(name) for name in table.columns])
    table = _files.leave_out(table, options.drop, options.target, options.drop_missing_target)
    targets = _options.find_targets(options.target, table.columns)
    X = table.drop(columns=targets)
    if not X.shape[1]:
        raise UserError("--target names all columns; leave at least one as a feature")
    for column in _options.find_columns("--discrete", options.discrete, X.columns):
        X[column] = X[column].astype("category")
    Y = [split_target(table, name)[1] for name in targets]
    tasks = [_files.task_of(y, options.task, data, reading) for y in Y]
    if len(Y) > 1 and "classification" in tasks:
        raise UserError(
            f"several targets can only be predicted by regression, but "
            f"{targets[tasks.index('classification')]!r} seems to hold classes; fit a model for "
            "each target, or use --task regression"
        )
    arrays = [(read_numbers(y) if tasks[0] == "regression" else y).to_numpy() for y in Y]
    _files.hint_at_odd_columns(table, reading, target=targets)
    y = arrays[0] if len(Y) == 1 else np.column_stack(arrays)
    return _Table(X, y, targets, tasks[0], forms)


# ---- Options: the model, its parameters, and the metric ------------------------------------------


def _model_name(options: FitOptions) -> str:
    """Choose the value of ``--model``; raises UserError if --preset contradicts it."""
    preset, model = options.preset, options.model
    if model in {"best": ("mlp", "tabm"), "fast": ("pack",)}.get(preset, ()):
        raise UserError(
            f"--preset {preset} and --model {model} cannot be combined: --preset best uses "
            "--model pack, and a pack is not fast; leave one of them out"
        )
    return model or ("pack" if preset == "best" else "mlp")


def _read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read the parameters and values of ``--set``.

    Raises UserError if another option sets a parameter.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UserError(
                f"--set {text} is not in the form NAME=VALUE, such as --set dropout=0.3"
            )
        if name in _OPTIONS:
            raise UserError(f"--set {name} is not possible; use {_OPTIONS[name]} instead")
        if name == "learning_rate" and value[:1].isdecimal():
            raise UserError(f"--set {text}: a schedule has a name; use learning_rate_init={value}")
        settings[name] = _WORDS.get(value.lower(), value)
        with suppress(ValueError, SyntaxError):  # a word stays text
            settings[name] = ast.literal_eval(value)
    return settings


def _build_estimator(
    options: FitOptions, model: str, settings: Mapping[str, Any], data: _Table
) -> Any:
    """Build the unfitted estimator that the options describe.

    Raises UserError if it has no such parameter, or if the metric does not fit the task.
    """
    from combutab import estimators

    suffix = "Regressor" if data.task == "regression" else "Classifier"
    cls = getattr(estimators, _MODELS[model] + suffix)
    names, member_names = cls().get_params(deep=False).keys(), set()
    values = {name: getattr(options, field) for name, field in _FIELDS.items() if name in names}
    if model == "mlp" and options.preset == "fast":
        values["n_members"] = options.members or 1
    if model == "pack":
        values["activations"] = options.activation and [options.activation]
        member_names = getattr(estimators, f"MLP{suffix}")().get_params(deep=False).keys()
    parameters = {name: value for name, value in values.items() if value is not None}
    known_names = (names | member_names) - _NOT_SET
    for name in settings:
        if name not in known_names:
            suggestion = known_instead(name, sorted(known_names - _OPTIONS.keys()))
            raise UserError(
                f"--set {name}: there is no such parameter of the model {model}; {suggestion}"
            )
    member_params = {name: value for name, value in settings.items() if name not in names}
    parameters |= {name: value for name, value in settings.items() if name in names}
    parameters |= {"member_params": member_params} if member_params else {}
    if options.metric is not None:
        parameters |= _scoring_parameter(cls, options.metric, data)
    return cls(**parameters)


def _scoring_parameter(cls: Any, name: str, data: _Table) -> dict[str, Any]:
    """Set the parameter that makes a metric choose the epochs, or the networks of a pack.

    Log loss, R2, RMSE and MSE need no parameter, because the loss makes the same choice.
    """
    from combutab.core.scores import check_defined
    from combutab.evaluation import find_metric

    with refusals(prefix="--metric: "):
        metric = find_metric(name, data.task)
        if data.task == "regression":
            check_defined(metric.name, data.y)
    if metric.name in ("log_loss", "r2", "rmse", "mse"):
        return {}
    n_classes = 2 if data.task == "regression" else len(set(data.y.tolist()))
    parameter = "scoring" if hasattr(cls, "scoring") else "early_stopping_scoring"
    return {parameter: metric.scorer_name(n_classes)}


# ---- Rows that are set aside: the latest ones, or whole groups -----------------------------------


def _split_rows(estimator: Any, X: pd.DataFrame, split: str) -> _Split:
    """Set the parameters of an estimator so that it sets aside the rows of ``--split``.

    Raises UserError if there is no such column, or if it does not order or group the rows.
    """
    from combutab.cli import _files

    if split == "random":
        return _Split(X)
    from combutab.core.splits import latest_rows

    method, column = _files.column_of_split(X, split)
    is_pack = hasattr(estimator, "cv")
    if method == "group":
        if not is_pack:
            estimator.set_params(early_stopping=True)
        groups = X[column].astype(str).to_numpy()
        return _Split(X.drop(columns=column), groups, f"whole groups of {column!r}")
    latest, blocks = latest_rows(X[column], estimator.validation_fraction)
    if is_pack:
        estimator.set_params(cv=latest)
    else:
        n_members = 3 if estimator.n_members == "auto" else estimator.n_members
        estimator.set_params(validation_split=latest, n_members=n_members)
    times = X[column][latest]
    description = f"the latest by {column!r}, from {times.min()} to {times.max()}"
    return _Split(X, set_aside=description, time_blocks=blocks)


def _hint_at_time_order(X: pd.DataFrame) -> None:
    """Print how to set the latest rows aside, if the rows are sorted by a column of dates."""
    for name, column in X.select_dtypes(["datetime", "datetimetz"]).items():
        dates = column.dropna()
        is_sorted = dates.is_monotonic_increasing or dates.is_monotonic_decreasing
        if is_sorted and dates.nunique() > len(X) // 20:
            hint(
                f"the rows are sorted by {str(name)!r}, but random rows are set aside, so the "
                f"scores may be too optimistic for later rows; use --split time:{name} to set the "
                "latest rows aside"
            )
            return


# ---- Training, and scores on the rows that were set aside ----------------------------------------


def _train_with_progress(
    estimator: Any,
    model: str,
    X: pd.DataFrame,
    y: np.ndarray,
    groups: np.ndarray | None = None,
    interrupted: str = "; nothing is kept",
) -> None:
    """Fit an estimator and show its progress; ``interrupted`` is the message after Ctrl-C."""
    from combutab.training import NetworksBar, ProgressBar

    progress: AbstractContextManager[Any] = nullcontext()
    started = time.perf_counter()
    if hasattr(estimator, "callbacks"):
        estimator.set_params(callbacks=[ProgressBar(model, transient=True)])
    elif hasattr(estimator, "set_callbacks"):
        estimator.set_callbacks(NetworksBar(model, estimator.n_members, estimator.max_time))
    else:  # scikit-learn before 1.9
        progress = spinner(f"Training {estimator.n_members} networks")
    try:
        with refusals(ValueError, TypeError), own_warnings(), no_early_ends(), progress:
            estimator.fit(X, y, groups=groups)
    except UserError as error:  # may be scikit-learn's message about a parameter
        raise UserError(re.sub(_OF_PARAMETER, r"--set \1 ", str(error))) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(interrupted) from None
    hint_at_time_limit(estimator, started, "the scores")


def _print_scores(
    estimator: Any, data: _Table, split: _Split, options: FitOptions
) -> PredictionScores | None:
    """Print the scores on the rows that were set aside."""
    from sklearn.metrics import r2_score

    from combutab.evaluation import evaluate_held_out
    from combutab.inspection import leaking_columns

    if not hasattr(estimator, estimator.target_.held_out_name):
        echo(
            "No scores: the table has too few rows to set some aside. `combutab compare` scores by "
            "cross-validation."
        )
        return None
    with refusals(prefix="--metric: "):
        blocks = split.time_blocks
        scores = evaluate_held_out(estimator, data.y, scoring=options.metric, groups=blocks)
    if split.set_aside:
        echo(f"The rows set aside are {split.set_aside}.")
    for line in str(scores).splitlines():
        echo(line)
    echo("")
    leaks: list[str] = []
    if len(data.targets) > 1:
        r2 = r2_score(scores.y_true, scores.y_pred, multioutput="raw_values")
        r2_words = (f"{name!r} {score:.4g}" for name, score in zip(data.targets, r2, strict=True))
        echo(f"Scores are means over the targets. R2 of each: {', '.join(r2_words)}.")
    else:
        X, y = split.X.iloc[cast(Any, scores.rows)], scores.y_true
        leaks += map(str, leaking_columns(X, y, task=scores.task, y_pred=scores.y_pred).index)
    echo(
        "Each row was scored by networks that did not see it, in training or selection. Expect "
        "such scores on new rows."
    )
    if leaks:
        subject = "column" if len(leaks) == 1 else "each of the columns"
        echo(
            f"Advice: {subject} {list_names(leaks)} alone predicts the target nearly perfectly. If "
            f"it is known only after the target, train without it: --drop {','.join(leaks)}."
        )
    elif scores.beats_baseline:
        table, target = shlex.quote(str(options.data)), shlex.quote(options.target)
        echo(
            f"Advice: `combutab compare {table} --target {target} --models mlp,boosting,linear` "
            "tests whether a simpler model is as good."
        )
    else:
        title = scores.table["title"].iloc[0]
        echo(f"The model's {title} is not better than the baseline's.")
        echo("Advice: check the target and the columns, or collect more rows, before you use it.")
    return scores


def _write_model_report(
    options: FitOptions,
    path: Path,
    estimator: Any,
    data: _Table,
    split: _Split,
    scores: PredictionScores | None,
    warnings: list[str],
) -> None:
    """Write the report on the rows that were set aside, or on all rows if none were."""
    from combutab.preprocessing import expecting_later_rows
    from combutab.reports import report_model, write_report

    X, y = split.X, data.y
    facts = {"Table": options.data.name, "Target": ", ".join(data.targets), "Rows": f"{len(X):,}"}
    if scores is None:
        facts["Rows set aside"] = "none"
        scored_rows = (
            "No rows were set aside, so there are no scores. The importances are computed on the "
            "training rows. They show which columns the model uses, not which help on new rows."
        )
    else:
        facts |= {"Saved model": "trained again on all rows"} if options.refit else {}
        facts["Rows set aside"] = f"{scores.n_rows:,}, {options.split}"
        scored_rows = (
            "The scores are computed on the rows that were set aside. Each row was predicted only "
            "by networks that were not trained on it, and by epochs that were chosen without it. "
            "The importances are those of the saved model on the same rows, which can include "
            "training rows of some of its networks."
        )
        X, y = X.iloc[cast(Any, scores.rows)], y[scores.rows]
    with expecting_later_rows(), _options.writing(path):
        report = report_model(
            estimator,
            X,
            y,
            scores=scores,
            with_scores=scores is not None,
            scored=scored_rows,
            target=facts["Target"],
            facts={**facts, "Date": time.strftime("%Y-%m-%d"), "Time": options.seconds},
            warnings=warnings,
            file=options.out.name,
            scoring=options.metric,
        )
        write_report(report, path)
