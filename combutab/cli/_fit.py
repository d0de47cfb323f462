"""``combutab fit``: a model that predicts one column of a table from the others."""

from __future__ import annotations

import ast
import re
import time
import warnings
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from combutab.cli import _options
from combutab.cli._console import (
    UserError,
    echo,
    echo_on_terminal,
    no_early_ends,
    noted_warnings,
    own_warnings,
    refusals,
    spinner,
    warn,
)
from combutab.core.text import counted, known_instead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pandas as pd

    from combutab.evaluation import Metric, PredictionScores
    from combutab.reports import ModelReport

_MODELS = {"mlp": "MLP", "pack": "Pack", "tabm": "TabM"}  # the estimators' names begin so
_PRESETS = ("fast", "default", "best")
# Parameters that other options set
_OPTIONS = {
    "n_members": "--members",
    "max_iter": "--epochs",
    "random_state": "--seed",
    "device": "--device",
    "activation": "--activation",
    "activations": "--activation",
    "max_time": "--max-time",
    "validation_split": "--split",
    "cv": "--split",
}
_OF_PARAMETER = r"^The '(\w+)' parameter of \w+ "
_WORDS = {"true": True, "false": False, "none": None}
PARAMETERS = [  # all others, of estimators, which takes seconds to import
    *("alpha", "bagging", "batch_size", "beta_1", "beta_2", "boosting", "calibration"),
    *("categorical_features", "class_weight", "clip_predictions", "date_features", "dropout"),
    *("early_stopping", "early_stopping_scoring", "embedding_dim", "epsilon"),
    *("frequency_scale", "hidden_layer_sizes", "init", "label_smoothing", "learning_rate"),
    *("learning_rate_factors", "learning_rate_init", "loss", "max_ensemble_size", "max_fun"),
    *("max_grad_norm", "max_onehot", "min_frequency", "momentum", "n_bins", "n_frequencies"),
    *("n_heads", "n_iter_no_change", "nesterovs_momentum", "normalization"),
    *("numeric_embedding", "numeric_embedding_dim", "numeric_encoding", "power_t", "precision"),
    *("proxy_norm", "quantiles", "regularization_schedule", "scale_inputs", "scale_target"),
    *("scoring", "shuffle", "solver", "text_features", "tol", "track_metric"),
    *("validation_fraction", "weight_decay"),
]
_NOT_SET = {"callbacks", "verbose", "warm_start", "n_jobs", "member_params"}


def fit(
    data: _options.Table,
    target: Annotated[
        str,
        typer.Option(
            help="Column of DATA to predict, or several numeric columns separated by commas."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Model file to write, such as model.safetensors. `combutab predict` and `combutab "
            "explain` read it.",
        ),
    ],
    preset: Annotated[
        str,
        typer.Option(
            metavar=f"<{'|'.join(_PRESETS)}>",
            callback=lambda name: _options.one_of([*_PRESETS], name),
            help="How much to train: fast trains one network, default two, best an ensemble chosen "
            "from 16 different networks (--model pack).",
        ),
    ] = "default",
    model: Annotated[
        str | None,
        typer.Option(
            metavar=f"<{'|'.join(_MODELS)}>",
            callback=lambda name: name and _options.one_of([*_MODELS], name),
            help="Kind of model: mlp (neural networks with the same settings), pack (an ensemble "
            "chosen from neural networks with different settings and boosted trees) or tabm (TabM: "
            "neural networks that share most of their weights).",
            show_default="mlp; pack with --preset best",
        ),
    ] = None,
    task: _options.Task = "auto",
    metric: Annotated[
        str | None,
        _options.metric_option(
            "Metric that is listed first in the table of scores and that selects the best epoch",
            scorers=True,
            show_default="roc_auc or r2 is listed first; the loss selects the epoch",
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="<random|time:COLUMN|group:COLUMN>",
            callback=_options.check_split,
            help="Which validation rows are set aside. random: a random fifth. time:COLUMN: the "
            "latest fifth by a column of dates or numbers. group:COLUMN: whole groups of rows with "
            "the same value of the column, which is not used as a feature.",
        ),
    ] = "random",
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="After the scores are computed, train the saved model again on all rows, up to "
            "the best epoch of the first training. Useful with --split time:COLUMN, where the "
            "latest rows are otherwise never trained on.",
        ),
    ] = False,
    activation: Annotated[
        str | None,
        typer.Option(
            help="Activation function of all hidden layers, such as relu, combu or pln-4.",
            callback=_options.check_activations,
            show_default="mlp: combu; tabm: relu; pack: several",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Number of networks to train. Their predictions are averaged; a pack chooses its "
            "ensemble from them.",
            min=1,
            show_default="mlp: 2, or 1 where no rows are set aside; tabm: 1; pack: 16",
        ),
    ] = None,
    epochs: Annotated[int | None, _options.epochs_option("mlp: 100; pack: 80; tabm: 200")] = None,
    max_time: _options.MaxTime = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Parameter of the model, such as learning_rate_init=0.01 or dropout=0.3. Can be "
            "repeated.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="HTML report to write, such as model.html: scores of the model and of a baseline, "
            "permutation importances, how each column was encoded, and how to use the model."
        ),
    ] = None,
    discrete: _options.Discrete = None,
    drop: _options.Drop = None,
    drop_missing_target: _options.DropMissing = False,
    sep: _options.Sep = None,
    decimal: _options.Decimal = None,
    thousands: _options.Thousands = None,
    encoding: _options.Encoding = None,
    header_row: _options.HeaderRow = None,
    sheet: _options.Sheet = None,
    missing: _options.Missing = None,
    not_missing: _options.NotMissing = None,
    seed: _options.Seed = 0,
    device: _options.Device = "auto",
) -> None:
    """Fit a model that predicts one column of a table from the others.

    If the table has at least 200 rows (50 for a pack), some are set aside for validation. The
    command prints the model's scores on them, and those of a baseline that ignores all features.
    The model file holds no rows of the table. If Ctrl-C interrupts the training, no file is
    written.
    """
    started = time.perf_counter()
    model = _chosen_model(preset, model)
    name = _MODELS[model]
    given = _read_settings(settings or ())
    _options.check_outputs({"OUT": out, "--report": report}, {"DATA": data})
    _options.check_replaceable("--out", out)
    by = [split.partition(":")[2]] if ":" in split else None
    named: dict[str, Any] = {"drop": drop, "discrete": discrete, f"split {split}": by}
    reading = _options.read_options(
        sep, decimal, thousands, encoding, header_row, sheet, missing, not_missing
    )
    _options.check_table(data, reading, target=target, several=True, **named)

    import numpy as np
    import pandas as pd

    from combutab.cli import _files
    from combutab.datasets import split_target
    from combutab.preprocessing import read_numbers

    table, forms = _files.read_file(data, reading)
    table.columns = pd.Index([str(name) for name in table.columns])
    table = _files.leave_out(table, drop, target, drop_missing_target)
    targets = _options.find_targets(target, table.columns)
    Y = [split_target(table, name)[1] for name in targets]
    X = table.drop(columns=targets)
    if not X.shape[1]:
        raise UserError("--target names all columns; leave at least one as a feature")
    for column in _options.find_columns("--discrete", discrete, X.columns):
        X[column] = X[column].astype("category")
    kinds = [_files.task_of(y, task, data, reading) for y in Y]
    kind = kinds[0]
    if len(Y) > 1 and "classification" in kinds:
        raise UserError(
            f"several targets can only be predicted by regression, but "
            f"{targets[kinds.index('classification')]!r} seems to hold classes; fit a model for "
            "each target, or use --task regression"
        )
    numbers = [(read_numbers(y) if kind == "regression" else y).to_numpy() for y in Y]
    labels = numbers[0] if len(Y) == 1 else np.column_stack(numbers)
    _files.check_device(device)
    _files.hint_at_odd_columns(table, reading, target=targets)

    from combutab import estimators
    from combutab.core.device import resolve_device
    from combutab.core.scores import check_defined
    from combutab.evaluation import find_metric

    with refusals(prefix="--metric: "):
        measure = None if metric is None else find_metric(metric, kind)
        if measure is not None and kind == "regression":
            check_defined(measure.name, labels)
    plain, cls = (
        getattr(estimators, each + ("Regressor" if kind == "regression" else "Classifier"))
        for each in ("MLP", name)
    )
    options: dict[str, Any] = {"n_members": members, "max_iter": epochs, "max_time": max_time}
    options |= {"random_state": seed, "device": device}
    options |= {"activation": activation} if name != "Pack" else {}
    if name == "Pack" and activation is not None:
        options["activations"] = [activation]
    if name == "MLP" and preset == "fast":
        options["n_members"] = members or 1
    options |= _settings(model, cls, plain, given)
    options |= _scoring(cls, measure, labels)
    estimator = cls(**{name: value for name, value in options.items() if value is not None})
    X, groups, aside, blocks = _rows_of_split(estimator, X, split)
    echo_on_terminal(
        f"{data.name}: {counted(len(X), 'row')}, {kind} of {_files.list_names(targets)} by "
        f"{counted(X.shape[1], 'column')} with {model}, on {resolve_device(device)}"
    )
    with noted_warnings() as noted:
        _train_whole(estimator, model, X, labels, groups)
    random_split: dict[str, Any] = {"cv": "auto"} if name == "Pack" else {"validation_split": None}
    saved = copy(estimator).set_params(**random_split)
    for column, words in estimator.encoder_.describe_columns().items():
        if words.startswith(("date", "free text")):
            echo_on_terminal(f"{column!r}: {words}")
    kept = targets[0] if len(Y) == 1 else targets
    _files.write_whole(out, lambda place: _files.save_with_format(saved, place, forms, kept))
    if split == "random" and len(Y) == 1:
        _warn_of_time_order(X, labels, kind)
    echo(f"{kind.capitalize()} of {_files.list_names(targets)} with {model}: {_trained(estimator)}")
    scores = _show_scores(estimator, labels, targets, metric, aside, blocks)
    estimator.set_params(**random_split)
    seconds = time.perf_counter() - started
    if report is not None:
        n_aside = "none" if scores is None else f"{scores.n_rows:,}, {split}"
        facts = {"Table": data.name, "Target": ", ".join(targets), "Rows": f"{len(X):,}"}
        facts |= (
            {"Saved model": "trained again on all rows"} if refit and scores is not None else {}
        )
        facts |= {"Rows set aside": n_aside, "Date": time.strftime("%Y-%m-%d")}
        facts["Time"] = f"{seconds:.1f} s"
        with refusals(ValueError, prefix="--report: "), spinner("Writing the report"):
            from combutab.reports import write_report

            found = _report(
                estimator,
                X,
                labels,
                scores,
                target=", ".join(targets),
                facts=facts,
                warnings=noted,
                file=out.name,
                scoring=metric,
            )
            _files.write_whole(report, lambda place: write_report(found, place))
        echo_on_terminal(f"Wrote {report}")
    if refit and scores is not None:
        again, trained = _of_all_rows(estimator)
        _train_whole(again, model, X, labels, kept=f"; {out} has the model of these scores")
        _files.write_whole(out, lambda place: _files.save_with_format(again, place, forms, kept))
        echo(
            f"The model in {out} was trained again on all {len(X):,} rows, {trained}. The scores "
            "above are those of the first training, which did not use the rows set aside."
        )
        seconds = time.perf_counter() - started
    echo_on_terminal(f"Wrote the model to {out} ({seconds:.1f} s)")


# ---- Options: the model, its parameters, and the metric ------------------------------------------


def _chosen_model(preset: str, model: str | None) -> str:
    """The model by its name in ``--model``; raises UserError where the options disagree."""
    if (preset, model) in {("best", "mlp"), ("best", "tabm"), ("fast", "pack")}:
        raise UserError(
            f"--preset {preset} and --model {model} cannot be combined: --preset best uses "
            "--model pack, and a pack is not fast; leave one of them out"
        )
    return model or ("pack" if preset == "best" else "mlp")


def _read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """The parameters that ``--set`` gives, and their values.

    Raises UserError if no estimator has such a parameter, or another option sets it.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UserError(
                f"--set {text} is not in the form NAME=VALUE, such as --set dropout=0.3"
            )
        if name in _OPTIONS:
            raise UserError(f"--set {name} is not possible; use {_OPTIONS[name]} instead")
        if name not in PARAMETERS:
            hint = known_instead(name, PARAMETERS)
            raise UserError(f"--set {name}: there is no such parameter; {hint}")
        found[name] = _WORDS.get(value.lower(), value)
        with suppress(ValueError, SyntaxError):  # of a word
            found[name] = ast.literal_eval(value)
    return found


def _settings(model: str, cls: Any, plain: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator; a pack's members are of the class ``plain``.

    Raises UserError if it has no such parameter.
    """
    found: dict[str, Any] = {}
    own = cls().get_params(deep=False)
    members = plain().get_params(deep=False) if "member_params" in own else {}
    for name, value in given.items():
        if name in own:
            found[name] = value
        elif name in members:
            found.setdefault("member_params", {})[name] = value
        else:
            known = [each for each in PARAMETERS if each in own | members]
            raise UserError(
                f"--set {name}: the model {model} has no such parameter; "
                f"{known_instead(name, known)}"
            )
    return found


def _scoring(cls: Any, metric: Metric | None, labels: np.ndarray) -> dict[str, Any]:
    """The parameter that has epochs, or a pack's networks, chosen by a metric.

    The loss does as well for log loss, R2, RMSE and MSE.
    """
    if metric is None or metric.name in ("log_loss", "r2", "rmse", "mse"):
        return {}
    n_classes = (
        len(set(labels.tolist())) if "Classifier" in cls.__name__ and labels.ndim == 1 else 2
    )
    which = "scoring" if hasattr(cls, "scoring") else "early_stopping_scoring"
    return {which: metric.scorer_name(n_classes)}


# ---- Rows that are set aside: the latest ones, or whole groups -----------------------------------


def _rows_of_split(
    estimator: Any, X: pd.DataFrame, split: str
) -> tuple[pd.DataFrame, Any, str, np.ndarray | None]:
    """Have an estimator set aside the rows that ``--split`` asks for.

    Returns the table without the column of groups, the groups if there are any, which rows are set
    aside in words, if they are not random ones, and the blocks of time of these rows.

    Raises UserError if there is no such column, or it does not order or group the rows.
    """
    from combutab.cli import _files

    if split == "random":
        return X, None, "", None
    how, column = _files.column_of_split(X, split)
    pack = hasattr(estimator, "cv")
    if how == "time":
        latest = _latest(X[column], estimator.validation_fraction, split)
        if pack:
            estimator.set_params(cv=latest)
        else:
            two = 2 if estimator.n_members == "auto" else estimator.n_members
            estimator.set_params(validation_split=latest, n_members=two)
        first, last = X[column][latest].min(), X[column][latest].max()
        words = f"the latest by {column!r}, from {first} to {last}"
        return X, None, words, _blocks(X[column], latest)
    if not pack:
        estimator.set_params(early_stopping=True)
    groups = X[column].astype(str).to_numpy()
    return X.drop(columns=column), groups, f"whole groups of {column!r}", None


def _blocks(times: pd.Series, latest: np.ndarray) -> np.ndarray:
    """Number blocks of rows that are neighbours in time, for the latest rows; 0 for all others."""
    import numpy as np

    from combutab.core.splits import neighbour_blocks

    rows = np.flatnonzero(latest)
    order = rows[np.argsort(times.to_numpy()[rows], kind="stable")]
    blocks = np.zeros(len(latest), dtype=np.int64)
    blocks[order] = neighbour_blocks(len(rows))
    return blocks


def _latest(column: pd.Series, fraction: float, split: str) -> np.ndarray:
    """A mask of the latest rows; rows of the same time are on one side."""
    import numpy as np

    ranks = column.rank(method="min").to_numpy()
    first = np.sort(ranks)[len(ranks) - max(1, round(fraction * len(ranks)))]
    latest: np.ndarray = ranks >= first if first > 1 else ranks > first
    if not latest.any():
        raise UserError(
            f"--split {split}: all rows have the same value of {column.name!r}; choose another "
            "column"
        )
    return latest


def _of_all_rows(estimator: Any) -> tuple[Any, str]:
    """An unfitted estimator that trains on all rows as a fitted one did, and how, in words.

    Networks train for the epochs that the best ones took, the median over them. A pack chooses
    among its networks by rows that they have not seen: its folds take turns, and all rows train.
    """
    import numpy as np

    parameters = estimator.get_params(deep=False)
    if hasattr(estimator, "cv"):
        return type(estimator)(
            **parameters | {"cv": "auto"}
        ), "with cross-validation to choose among its networks"
    history = estimator.history_
    best = history.loc[history.groupby("member")["validation_score"].idxmax(), "epoch"]
    n_epochs = int(np.median(best))
    parameters |= {"max_iter": n_epochs, "n_members": len(best), "n_iter_no_change": np.inf}
    parameters |= {"early_stopping": False, "validation_split": None}
    parameters |= {"bagging": None} if "bagging" in parameters else {}
    return type(estimator)(
        **parameters
    ), f"for {counted(n_epochs, 'epoch')}, the best epoch of the first training"


_ENOUGH, _MOST = 500, 4000  # rows for a look at the order, at least and at most
_MUCH = 0.1  # difference of R2 or ROC AUC that is worth a warning


def _warn_of_time_order(X: pd.DataFrame, y: np.ndarray, kind: str) -> None:
    """Warn where rows are in the order of dates, and random rows say too much of later ones.

    Small gradient-boosted trees are trained on the earliest four fifths of the rows, and on a
    random four fifths: what they score on the others shows the difference within a second.
    """
    import numpy as np
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    from combutab.core.threads import limit_openmp, tree_threads
    from combutab.evaluation import evaluate_predictions

    rows = np.arange(len(X)) if len(X) <= _MOST else np.linspace(0, len(X) - 1, _MOST).astype(int)
    if len(rows) < _ENOUGH:
        return
    dates = [
        name
        for name, column in X.items()
        if pd.api.types.is_datetime64_any_dtype(column.dtype)
        and column.nunique() > len(X) // 20
        and (column.dropna().is_monotonic_increasing or column.dropna().is_monotonic_decreasing)
    ]
    if not dates:
        return
    named, table = str(dates[0]), X.iloc[rows]
    order = np.argsort(table[named].to_numpy(), kind="stable")
    numbers = np.column_stack([_as_floats(column) for _, column in table.items()])
    labels = pd.factorize(y[rows])[0] if kind != "regression" else y[rows].astype(float)
    trees: Any = HistGradientBoostingRegressor
    if kind != "regression":
        trees = HistGradientBoostingClassifier
    n_train, found = len(rows) * 4 // 5, []
    for places in (order, np.random.default_rng(0).permutation(len(rows))):
        train, test = places[:n_train], places[n_train:]
        test = test[np.isin(labels[test], labels[train])] if kind != "regression" else test
        if not len(test):  # all classes of the latest rows are new
            return
        model = trees(max_iter=50, early_stopping=False, random_state=0)
        with limit_openmp(tree_threads(numbers[train].size)):
            model.fit(numbers[train], labels[train])
        scoring = ["r2" if kind == "regression" else "roc_auc"]
        scores = evaluate_predictions(
            model, numbers[test], labels[test], scoring=scoring, n_resamples=50
        )
        found.append(scores.table.iloc[0])
    later, random = found
    if random["score"] - later["score"] > _MUCH and random["low"] > later["high"]:
        warn(
            f"the rows are sorted by {named!r}. Boosted trees that are trained on the earlier rows "
            f"have {later['title']} {later['score']:.2f} on the latest rows, but "
            f"{random['score']:.2f} on random rows. The scores below may be too optimistic for "
            f"future rows; use --split time:{named} to set the latest rows aside"
        )


def _as_floats(column: pd.Series) -> np.ndarray:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column.astype("int64").to_numpy(dtype=float)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=float, na_value=float("nan"))
    return pd.factorize(column)[0].astype(float)


# ---- Training, and scores on the rows that were set aside ----------------------------------------


class _NetworksBar:
    """A bar of a pack's networks that are trained, told by scikit-learn's callbacks."""

    def __init__(self, name: str, estimator: Any) -> None:
        self.name, self.n_networks = name, estimator.n_members
        self.seconds = float("inf") if estimator.max_time is None else estimator.max_time

    def setup(self, estimator: Any, context: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

        from combutab.core.progress import left_column, make_bar

        text = TextColumn("{task.description}", markup=False)
        columns = text, BarColumn(), MofNCompleteColumn(), TextColumn("networks"), left_column()
        self.bar = make_bar(*columns, transient=True)
        end = time.monotonic() + self.seconds
        self.task = self.bar.add_task(self.name, total=self.n_networks, end=end)
        self.bar.start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing is shown of a network that begins."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        if context.task_name == "member":
            self.bar.advance(self.task)

    def teardown(self, estimator: Any, context: Any) -> None:
        self.bar.stop()
        del self.bar, self.task


def _train_whole(
    estimator: Any,
    model: str,
    X: pd.DataFrame,
    y: np.ndarray,
    groups: Any = None,
    kept: str = "; nothing is kept",
) -> None:
    from combutab.training import ProgressBar

    shown: AbstractContextManager[Any] = nullcontext()
    if hasattr(estimator, "callbacks"):
        bar = ProgressBar(model, transient=True)
        estimator.set_params(callbacks=[bar])
    elif hasattr(estimator, "set_callbacks"):
        estimator.set_callbacks(_NetworksBar(model, estimator))
    else:  # scikit-learn before 1.9
        shown = spinner(f"Training {estimator.n_members} networks")
    try:
        with refusals(ValueError, TypeError), own_warnings(), no_early_ends():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.filterwarnings("error", "Training interrupted", UserWarning)
            with shown:
                estimator.fit(X, y, groups=groups)
    except UserError as error:  # scikit-learn's words of a parameter, among them
        raise UserError(re.sub(_OF_PARAMETER, r"--set \1 ", str(error))) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept) from None


def _trained(estimator: Any) -> str:
    n_networks = estimator.history_["member"].nunique()
    n_epochs = int(estimator.history_["epoch"].max())
    return f"{counted(n_networks, 'network')}, {counted(n_epochs, 'epoch')}"


def _show_scores(
    estimator: Any,
    y: np.ndarray,
    targets: list[str],
    metric: str | None,
    aside: str,
    blocks: np.ndarray | None,
) -> PredictionScores | None:
    """Print the scores on the rows that were set aside."""
    from combutab.evaluation import evaluate_held_out

    if not hasattr(estimator, estimator.target_.held_out_name):
        echo(
            "No scores: the table has too few rows to set some aside. `combutab compare` scores by "
            "cross-validation."
        )
        return None
    with refusals(prefix="--metric: "):
        found = evaluate_held_out(estimator, y, scoring=metric, groups=blocks)
    if aside:
        echo(f"The rows set aside are {aside}.")
    for line in str(found).splitlines():
        echo(line)
    echo("")
    if len(targets) > 1:
        echo(
            f"Scores are means over the targets. R2 of each: {_each_score(estimator, y, targets)}."
        )
    if not found.beats_baseline:
        echo(f"The model's {found.table['title'].iloc[0]} is not better than the baseline's.")
    echo(
        "No row was scored by a network that was trained on it, or by an epoch or an ensemble that "
        "was chosen with it. The scores are estimates of those on new rows."
    )
    return found


def _each_score(estimator: Any, y: np.ndarray, targets: list[str]) -> str:
    import numpy as np
    from sklearn.metrics import r2_score

    answers = getattr(estimator, estimator.target_.held_out_name)
    rows = ~np.isnan(answers).any(1)
    scores = r2_score(y[rows], answers[rows], multioutput="raw_values")
    return ", ".join(f"{name!r} {r2:.4g}" for name, r2 in zip(targets, scores, strict=True))


def _report(
    estimator: Any, X: pd.DataFrame, y: np.ndarray, scores: PredictionScores | None, **told: Any
) -> ModelReport:
    """The model card: of the rows that were set aside, or where there are none, of all."""
    from combutab.preprocessing import expecting_later_rows
    from combutab.reports import report_model

    if scores is None or scores.rows is None:
        scored = (
            "No rows were set aside, so there are no scores. The importances are computed on the "
            "training rows. They show which columns the model uses, not which help on new rows."
        )
        return report_model(estimator, X, y, with_scores=False, scored=scored, **told)
    scored = (
        "The scores are computed on the rows that were set aside. Each row was predicted only by "
        "networks that were not trained on it, and by epochs that were chosen without it. The "
        "importances are those of the saved model on the same rows, which can include training "
        "rows of some of its networks."
    )
    rows = scores.rows
    with expecting_later_rows():
        return report_model(estimator, X.iloc[rows], y[rows], scores=scores, scored=scored, **told)
