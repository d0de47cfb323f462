"""Scores of predictions on rows that were not trained on, and of a baseline."""

from __future__ import annotations

import html
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted, column_or_1d

from combutab.core.metrics import METRICS, NOT_SHOWN, Metric
from combutab.core.rng import RandomState, as_generator
from combutab.core.scorers import find_metric, positive_class
from combutab.core.scores import (
    as_positive,
    class_labels,
    class_positions,
    class_scores,
    confusion_counts,
    guess_targets,
    needs_method,
    one_hot,
    predict_labels,
)
from combutab.core.splits import group_codes, repeated_rows_message
from combutab.core.text import counted
from combutab.evaluation._intervals import Bootstrap, draw_samples, reason_for_no_interval

# ---- Scores of predictions -----------------------------------------------------------------------

_FEW = 10  # classes, for a confusion matrix
_QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
_TOO_MANY = 20_000  # rows from which on intervals are narrow, and slow to compute
_NEAR_ZERO = 1e-3  # of the mean's size: a target nearer to zero has no useful MAPE
_THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of a probability
_NO_VARIANCE = 5e-4  # an R2 nearer to zero is written as 0


@dataclass(frozen=True, eq=False)
class PredictionScores:
    """Scores of predictions and of a baseline, the confusion matrix, and quantiles of the errors.

    Parameters
    ----------
    task : {"classification", "regression"}
    metric : str
        Name of the main metric, the first one of ``table``.
    table : DataFrame
        One row per metric, indexed by its name: ``title``, ``score``, ``low`` and ``high`` (95 %
        interval by bootstrap over the rows or groups; NaN if there is none), ``baseline`` and
        ``greater_is_better``.
    baseline : str
        Description of what the baseline predicts.
    n_rows : int
        Number of rows that were scored.
    confusion : DataFrame or None
        Number of rows per true class (index) and predicted class (columns), for at most 10
        classes.
    errors : DataFrame or None
        Quantiles (index) of the absolute errors of a regressor (``model``) and of the
        ``baseline``.
    y_true, y_pred : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Targets and predictions.
    y_proba : ndarray of shape (n_rows, n_classes) or None
        Probabilities of ``classes``, if the estimator has ``predict_proba``.
    classes : ndarray or None
        Class labels.
    rows : ndarray of shape (n_rows,) or None
        Positions of the scored rows in the table passed to ``fit``, if they were set aside from
        it.
    no_interval : str
        Why there are no intervals, such as too few rows; empty if there are some, or if none were
        requested.
    positive : class label or None
        Of two classes, the one of F1, average precision and ``thresholds``; None for other targets.
    """

    task: str
    metric: str
    table: pd.DataFrame
    baseline: str
    n_rows: int
    confusion: pd.DataFrame | None
    errors: pd.DataFrame | None
    y_true: np.ndarray
    y_pred: np.ndarray
    y_proba: np.ndarray | None = None
    classes: np.ndarray | None = None
    rows: np.ndarray | None = None
    no_interval: str = ""
    positive: Any = None

    @property
    def beats_baseline(self) -> bool:
        """Whether the model is better than the baseline by the main metric."""
        row = self.table.loc[self.metric]
        better = row["score"] - row["baseline"]
        return bool((better if row["greater_is_better"] else -better) > 0)

    @property
    def thresholds(self) -> pd.DataFrame | None:
        """Precision and recall by the threshold of the positive class's probability.

        One row per threshold (index): ``predicted``, the share of rows that are predicted to be
        positive, ``precision`` (NaN without such rows) and ``recall``. ``columns.name`` is the
        positive class. None unless the target has two classes and the estimator has probabilities.
        """
        if self.y_proba is None or self.classes is None or self.positive is None:
            return None
        positive = self.classes.tolist().index(self.positive)
        is_positive = self.y_true == self.classes[positive]
        is_predicted = self.y_proba[:, [positive]] >= np.array(_THRESHOLDS)
        n_correct = (is_predicted & is_positive[:, None]).sum(0)
        n_predicted = is_predicted.sum(0)
        table = pd.DataFrame(
            {
                "predicted": is_predicted.mean(0),
                "precision": n_correct / np.where(n_predicted, n_predicted, np.nan),
                "recall": n_correct / max(1, is_positive.sum()),
            },
            index=pd.Index(_THRESHOLDS, name="threshold"),
        )
        return table.rename_axis(columns=self.classes[positive])

    def formatted(self) -> pd.DataFrame:
        """Format the table as text: the score, its interval if there is one, and the baseline."""
        rows = {}
        table = self.table.copy()
        numbers = ["score", "low", "high", "baseline"]
        r2 = table.loc[table.index == "r2", numbers]
        table.loc[table.index == "r2", numbers] = r2.mask(r2.abs() < _NO_VARIANCE, 0.0)
        for _, row in table.iterrows():
            cells = {"score": _written(row["score"]), "baseline": _written(row["baseline"])}
            if np.isfinite(self.table["low"]).any():
                has_interval = np.isfinite(row["low"])
                interval = (
                    f"{_written(row['low'])} to {_written(row['high'])}" if has_interval else ""
                )
                cells = {"score": cells["score"], "95 % interval": interval, **cells}
            rows[row["title"]] = cells
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def _head(self) -> str:
        set_aside = "" if self.rows is None else " set aside"
        rows = counted(self.n_rows, "row")
        head = f"Scores on {rows}{set_aside}. The baseline predicts {self.baseline}."
        if self.no_interval:
            head = f"{head} There are {self.no_interval}."
        if self.positive is None:
            return head
        return f"{head} F1 and average precision are those of {self.positive!r}."

    def __str__(self) -> str:
        parts = [self._head, ""]
        parts.append(self.formatted().to_string())
        if self.confusion is not None:
            parts += ["", "Confusion matrix (rows: true class, columns: predicted class)"]
            parts.append(self.confusion.to_string())
        if self.errors is not None:
            parts += ["", "Quantiles of the absolute error over the rows"]
            parts.append(_written_errors(self.errors).to_string())
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        frames = [self.formatted(), self.confusion]
        frames.append(None if self.errors is None else _written_errors(self.errors))
        head = f"<p>{html.escape(self._head)}</p>"
        return head + "".join(frame.to_html() for frame in frames if frame is not None)


def _written(value: float) -> str:
    """Four digits; numbers of that many before the point in whole.

    >>> _written(0.81237), _written(1234567.8), _written(0.0000123)
    ('0.8124', '1,234,568', '1.23e-05')
    """
    if not np.isfinite(value):
        return "" if np.isnan(value) else str(value)
    if value == 0 or 1e-3 <= abs(value) < 1:
        return f"{value:.4f}"
    if 1 <= abs(value) < 1e9:
        return f"{value:,.{max(0, 3 - int(np.log10(abs(value))))}f}"
    return f"{value:.3g}"


def _written_errors(errors: pd.DataFrame) -> pd.DataFrame:
    formatted = errors.map(_written)
    return formatted.set_axis([f"{100 * share:g} %" for share in errors.index])


def evaluate_predictions(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    scoring: str | Sequence[str] | None = None,
    y_train: Any = None,
    n_resamples: int = 200,
    random_state: RandomState = 0,
    groups: Any = None,
) -> PredictionScores:
    """Score a fitted estimator on test rows, and compare with a baseline that ignores the features.

    The baseline predicts the class frequencies (and therefore the most frequent class), or the mean
    of the targets (for the absolute error the median).

    Parameters
    ----------
    estimator : classifier or regressor
        Any fitted estimator of this library or of scikit-learn, including pipelines. Accuracy,
        balanced accuracy, F1 and the confusion matrix are those of ``predict``. ROC AUC and average
        precision are computed from ``predict_proba`` or ``decision_function``, log loss from
        ``predict_proba``, and these metrics are left out if the estimator has no such method.
    X, y : table of shape (n_samples, n_features), targets
        Rows that the estimator was not trained on.
    scoring : str or sequence of str, optional
        Metrics, the main metric first (names as in `find_metric`). A single name is the main
        metric, followed by the default metrics. Defaults for classification: ROC AUC, log loss,
        accuracy, balanced accuracy, average precision (two classes) and F1. For regression: R2,
        MAE, RMSE and MAPE (if no target is near zero).
    y_train : array-like, optional
        Training targets, from which the baseline is computed. By default ``y``.
    n_resamples : int, default=200
        Number of bootstrap samples of the rows for the 95 % intervals; 0 for no intervals. There
        are no intervals for fewer than 30 rows or 10 rows of a class, for which they would be too
        narrow, and none for 20,000 rows or more. R2, RMSE and MSE have none where a few rows with
        large errors determine them.
    random_state : int, RandomState, Generator or None, default=0
        Random seed for the bootstrap samples.
    groups : array-like of shape (n_samples,), optional
        Group of each row, such as a customer, or a block of time. Rows of a group are not
        independent, so whole groups are drawn for the intervals, which need at least 10 groups.

    Returns
    -------
    PredictionScores

    Raises
    ------
    ValueError
        If a metric is unknown, a metric in ``scoring`` needs a method that the estimator lacks, or
        the rows cannot be scored.

    Notes
    -----
    With two classes, average precision and F1 are those of 1 or True, or else of the rarer class
    of ``y_train``. With more
    classes, they are means over the classes.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from combutab.evaluation import evaluate_predictions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression(max_iter=5000).fit(X[:400, :4], y[:400])
    >>> scores = evaluate_predictions(model, X[400:, :4], y[400:], n_resamples=0)
    >>> [round(float(scores.table[c]["roc_auc"]), 3) for c in ("score", "baseline")]
    [0.989, 0.5]
    >>> scores.confusion.to_numpy().tolist()
    [[39, 0], [16, 114]]
    """
    check_is_fitted(estimator)
    labels = predict_labels(estimator, X)
    if not is_classifier(estimator):
        predictions = _Predictions(labels, labels)
    else:
        classes = class_labels(estimator)
        positions = class_positions(labels, classes, "a prediction")
        scores, method = class_scores(estimator, X) or (one_hot(positions, len(classes)), "predict")
        predictions = _Predictions(positions, scores, method, classes)
    resampling = partial(_resampling, n_resamples, random_state, group_codes(groups, len(labels)))
    return _scores(predictions, y, y_train, scoring, resampling)


def evaluate_held_out(
    estimator: Any,
    y: Any,
    *,
    scoring: str | Sequence[str] | None = None,
    n_resamples: int = 200,
    random_state: RandomState = 0,
    groups: Any = None,
) -> PredictionScores:
    """Score an estimator on the validation rows that its ``fit`` set aside.

    Each row is predicted only by networks and trees that were not trained on it, and by epochs,
    weights and a temperature that were chosen without it. The scores are therefore estimates of
    those on new rows.

    Parameters
    ----------
    estimator : estimator of this library
        The fitted estimator, not loaded from a file, because files do not contain these
        predictions.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        All targets that were passed to ``fit``.
    scoring, n_resamples, random_state
        As in `evaluate_predictions`, with the same defaults.
    groups : array-like of shape (n_samples,), optional
        Groups of all rows that were passed to ``fit``, as in `evaluate_predictions`. By default
        those that ``fit`` was given, or blocks of neighbouring rows if the rows set aside come
        after all others, as in time series.

    Returns
    -------
    PredictionScores
        The baseline is computed from the targets of the other rows, if there are any. If
        ``validation_split`` (or ``cv`` of a pack) sets particular rows aside, such as the latest
        ones, it is computed from the targets of these rows: the epochs were chosen on rows of the
        same time, so they may follow a level that the training rows do not have.

    Raises
    ------
    ValueError
        If no rows were set aside.

    Notes
    -----
    In cross-validation, the rows that are scored have also trained networks that predict other
    rows, so the scores of different folds are correlated. For the intervals, the variance is
    therefore multiplied by ``1 + (n_folds - 1) * n_test / n_train``, which is 2 for
    cross-validation. This is the correlation between folds if the columns have no information about
    the target; otherwise it is smaller, and the intervals are wider than necessary. See Nadeau and
    Bengio (2003), "Inference for the generalization error".

    Examples
    --------
    >>> from combutab import MLPRegressor
    >>> from combutab.datasets import make_formula
    >>> from combutab.evaluation import evaluate_held_out
    >>> X, y = make_formula("ar", n_samples=300, random_state=0)
    >>> reg = MLPRegressor(max_iter=5, n_iter_no_change=5, random_state=0).fit(X, y)
    >>> evaluate_held_out(reg, y).n_rows
    180
    """
    check_is_fitted(estimator)
    answers = getattr(estimator, estimator.target_.held_out_name, None)
    if answers is None:
        raise ValueError(
            f"this {type(estimator).__name__} has no predictions for rows set aside: it trained on "
            "all rows, had X_val, went on from an earlier fit, or was read from a file; score it "
            "on test rows with evaluate_predictions"
        )
    y = np.asarray(y)
    if len(y) != len(answers):
        raise ValueError(f"y has {len(y)} rows, and the estimator was fitted to {len(answers)}")
    held_out = ~np.isnan(answers.reshape(len(y), -1)).any(1)
    split = getattr(estimator, "validation_split", getattr(estimator, "cv", None))
    is_random = split is None or isinstance(split, int | str)
    is_used = estimator.oof_folds_ > -2  # -2 is weight 0
    is_trained_on = is_used & ~held_out
    y_baseline = y[is_trained_on] if is_random and is_trained_on.any() else y[held_out]
    answers = answers[held_out]
    if is_classifier(estimator):
        positions = answers > 0.5 if estimator.target_.multilabel else answers.argmax(1)
        predictions = _Predictions(positions, answers, "predict_proba", estimator.classes_)
    else:
        predictions = _Predictions(answers, answers)
    codes = group_codes(groups, len(y))
    if codes is None:
        codes = getattr(estimator, "oof_groups_", None)
    folds = estimator.oof_folds_[held_out]
    if estimator.oof_n_repeated_:
        message = repeated_rows_message(estimator.oof_n_repeated_, len(folds))
        warnings.warn(message, stacklevel=2)
    n_folds = len(np.unique(folds))
    n_test = len(folds) / n_folds
    inflation = 1.0 if n_folds == 1 else 1 + (n_folds - 1) * n_test / (is_used.sum() - n_test)
    codes = None if codes is None else codes[held_out]
    resampling = partial(_resampling, n_resamples, random_state, codes, inflation=inflation)
    rows = np.flatnonzero(held_out)
    return _scores(predictions, y[held_out], y_baseline, scoring, resampling, rows)


def _resampling(
    n_resamples: int,
    random_state: RandomState,
    groups: np.ndarray | None,
    positions: np.ndarray | None,
    n_rows: int,
    inflation: float = 1.0,
) -> tuple[Bootstrap, str]:
    """Bootstrap samples of the scored rows, or the reason why there are none."""
    n_groups = None if groups is None else len(np.unique(groups))
    if not n_resamples or n_rows >= _TOO_MANY:
        return Bootstrap([], n_rows), ""
    reason = reason_for_no_interval(positions, n_rows, n_groups)
    if reason:
        return Bootstrap([], n_rows), reason
    rng = as_generator(random_state)
    return draw_samples(n_rows, n_resamples, rng, groups, inflation=inflation), ""


@dataclass(frozen=True, eq=False)
class _Predictions:
    """Predicted numbers, or positions of predicted classes and scores of all classes.

    ``method`` is the method of a classifier that the scores come from.
    """

    values: np.ndarray
    scores: np.ndarray
    method: str = "predict"
    classes: np.ndarray | None = None


def _scores(
    predictions: _Predictions,
    y: Any,
    y_train: Any,
    scoring: str | Sequence[str] | None,
    resampling: Callable[[np.ndarray | None, int], tuple[Bootstrap, str]],
    rows: np.ndarray | None = None,
) -> PredictionScores:
    """Scores of predictions, and of a baseline that is computed from the training targets."""
    y, train = _targets_of_predictions(predictions, y, y_train)
    if predictions.classes is None:
        return _number_scores(predictions.values, y, train, scoring, resampling, rows)
    return _class_scores(predictions, predictions.classes, y, train, scoring, resampling, rows)


def _targets_of_predictions(
    predictions: _Predictions, y: Any, y_train: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The targets of the scored rows and of the training, if they suit the predictions."""
    y = np.asarray(y)
    y = column_or_1d(y) if y.ndim == 1 or y.shape[1] == 1 else y
    train = y if y_train is None else np.asarray(y_train).reshape(-1, *y.shape[1:])
    if len(y) != len(predictions.values) or not len(y):
        raise ValueError(f"y has {len(y)} targets for {len(predictions.values)} rows of X")
    if y.shape != predictions.values.shape:
        raise ValueError(
            f"y has the shape {y.shape}, and the predictions have {predictions.values.shape}"
        )
    if pd.isna(y).any() or pd.isna(train).any():
        raise ValueError("y has missing values; leave those rows out")
    return y, train


def _class_scores(
    predictions: _Predictions,
    classes: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    scoring: str | Sequence[str] | None,
    resampling: Callable[[np.ndarray | None, int], tuple[Bootstrap, str]],
    rows: np.ndarray | None,
) -> PredictionScores:
    multilabel = y.ndim == 2
    predicted, scores = predictions.values.astype(np.int64), predictions.scores
    positions = class_positions(y, classes, "y")
    positive = 1
    if multilabel:
        shares = train.mean(0)
        baseline = np.tile(shares > 0.5, (len(y), 1)).astype(int), np.tile(shares, (len(y), 1))
        description = "the frequencies of the labels"
    else:
        train_positions = pd.Index(classes).get_indexer(pd.Index(train))
        known_positions = train_positions[train_positions >= 0]
        baseline = guess_targets("", known_positions, len(y), len(classes))
        label = classes.tolist()[baseline[0][0]]
        description = f"the class frequencies (most frequent: {label!r})"
        if len(classes) == 2:
            positive = positive_class(classes, baseline[1][0])
    candidates = _metrics_for_classes(scoring, predictions.method, len(classes), multilabel)
    samples, reason = resampling(positions.astype(np.int64), len(y))
    table = _table(
        candidates,
        scoring is not None,
        as_positive(positive, positions, predicted, scores),
        lambda metric: metric.values(*as_positive(positive, positions, *baseline)),
        samples,
    )
    return PredictionScores(
        "classification",
        table.index[0],
        table,
        description,
        len(y),
        None if multilabel else _confusion_table(positions, predicted, classes),
        None,
        y,
        predicted if multilabel else classes[predicted],
        scores if predictions.method == "predict_proba" else None,
        classes,
        rows,
        reason,
        classes.tolist()[positive] if len(classes) == 2 and not multilabel else None,
    )


def _metrics_for_classes(
    scoring: str | Sequence[str] | None, method: str, n_classes: int, multilabel: bool
) -> list[Metric]:
    """Metrics that the scores of a classifier's ``method`` allow; an error if one is required."""
    without = ["balanced_accuracy"] * multilabel
    without += ["average_precision"] * (n_classes > 2 and not multilabel)
    candidates = _find_metrics(scoring, "classification", without)
    if scoring is not None:
        for metric in candidates[:1] if isinstance(scoring, str) else candidates:
            if not metric.accepts(method):
                raise ValueError(needs_method(metric.name, metric.response_method))
    return [metric for metric in candidates if metric.accepts(method)]


def _confusion_table(
    positions: np.ndarray, predicted: np.ndarray, classes: np.ndarray
) -> pd.DataFrame | None:
    """The confusion matrix with the names of the classes, if these are few."""
    if len(classes) > _FEW:
        return None
    names = [str(label) for label in classes.tolist()]
    return pd.DataFrame(
        confusion_counts(positions, predicted, len(classes)),
        pd.Index(names, name="true"),
        pd.Index(names, name="predicted"),
    )


def _number_scores(
    predicted: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    scoring: str | Sequence[str] | None,
    resampling: Callable[[np.ndarray | None, int], tuple[Bootstrap, str]],
    rows: np.ndarray | None,
) -> PredictionScores:
    samples, reason = resampling(None, len(y))
    y_true, train = y.astype(np.float64), train.astype(np.float64)
    mean, median = train.mean(0), np.median(train, axis=0)
    near_zero = np.abs(y_true).min() < _NEAR_ZERO * np.abs(y_true).mean()
    table = _table(
        _find_metrics(scoring, "regression", ["mape"] * bool(near_zero)),
        scoring is not None,
        (y_true, predicted, predicted),
        lambda metric: metric.values(y_true, *guess_targets(metric.name, train, len(y_true))),
        samples,
    )
    errors = {"model": np.abs(predicted - y_true), "baseline": np.abs(median - y_true)}
    quantiles = pd.DataFrame(
        {name: np.quantile(values, _QUANTILES) for name, values in errors.items()},
        index=pd.Index(_QUANTILES, name="share of rows"),
    )
    description = "the mean (for MAE and MAPE the median)"
    if y_true.ndim == 1:
        description = f"the mean, {mean:.4g} (for MAE and MAPE the median, {median:.4g})"
    return PredictionScores(
        "regression",
        table.index[0],
        table,
        description,
        len(y),
        None,
        quantiles,
        y,
        predicted,
        rows=rows,
        no_interval=reason,
    )


def _find_metrics(
    scoring: str | Sequence[str] | None, task: str, without: Sequence[str] = ()
) -> list[Metric]:
    """The metrics in ``scoring``; a single one is followed by the default metrics of the task."""
    defaults = [m for m in METRICS[task].values() if m.name not in (*NOT_SHOWN, *without)]
    if scoring is None:
        return defaults
    if not len(scoring):
        raise ValueError("scoring is empty: name a metric, or leave it out")
    if isinstance(scoring, str):
        main = find_metric(scoring, task)
        return [main, *(metric for metric in defaults if metric.name != main.name)]
    return list({m.name: m for m in (find_metric(name, task) for name in scoring)}.values())


def _table(
    candidates: Sequence[Metric],
    is_first_required: bool,
    targets_and_predictions: tuple[np.ndarray, np.ndarray, np.ndarray],
    baseline: Callable[[Metric], float],
    samples: Bootstrap,
) -> pd.DataFrame:
    """One row per metric that can be computed."""
    rows = {}
    for i, metric in enumerate(candidates):
        is_required = is_first_required and i == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about classes without rows or predictions
            try:
                score = metric.values(*targets_and_predictions)
                baseline_score = baseline(metric)
            except ValueError as error:
                if is_required:
                    raise ValueError(f"{metric.name} cannot score these rows: {error}") from error
                continue
        if np.isnan(score) and not is_required:
            continue
        y_true, *predictions = targets_and_predictions
        low, high = samples.interval(metric, score, y_true, (predictions[0], predictions[1]))
        rows[metric.name] = {
            "title": metric.title,
            "score": score,
            "low": low,
            "high": high,
            "baseline": baseline_score,
            "greater_is_better": metric.greater_is_better,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("metric")
