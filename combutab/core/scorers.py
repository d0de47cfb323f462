"""Score predictions by all metrics of a task, and find scikit-learn's scorers by metric names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn import metrics
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from combutab.core.metrics import (
    METRICS,
    NOT_SHOWN,
    Metric,
    metric_names,
    named_metric,
    plain_name,
)
from combutab.core.scores import class_scores, mean_over_classes, needs_method
from combutab.core.text import known_instead

Scorer = Callable[..., float]
"""A scorer of scikit-learn: estimator, X, y and optional sample weights -> a score."""


def score_predictions(
    task: str, y: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Compute all metrics of a task.

    >>> numbers = np.array([1.0, 3.0])
    >>> score_predictions("regression", np.array([1.0, 2.0]), numbers, numbers)["mae"]
    0.5
    """
    return {
        name: metric.values(y, predicted, probabilities) for name, metric in METRICS[task].items()
    }


# ---- Scorers of scikit-learn by the names of metrics ---------------------------------------------

# Scores of one class, which must be named unless the labels are 0 and 1.
_OF_LABELS = {
    "f1": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "jaccard": metrics.jaccard_score,
}


def scorer_name(scoring: str, task: str, n_classes: int = 2) -> str:
    """Find the name of scikit-learn's scorer for a metric in any spelling, or for a scorer.

    Raises ValueError if the name is unknown, or if the metric belongs to the other task.

    >>> scorer_name("log loss", "classification"), scorer_name("ROC AUC", "classification", 3)
    ('neg_log_loss', 'roc_auc_ovr')
    """
    metric = named_metric(scoring, task)
    name = plain_name(scoring) if metric is None else metric.scorer_name(n_classes)
    scorers = metrics.get_scorer_names()
    if name not in scorers:
        instead = known_instead(name, [*metric_names(task), *scorers], n=12)
        raise ValueError(f"{scoring!r} is not a valid scoring value; {instead}")
    return name


def make_target_scorer(scoring: str, y: np.ndarray, task: str) -> Scorer:
    """Make a scorer by the name of a metric, or of a scorer of scikit-learn, for a target.

    With two classes, the positive class is 1 or True, or else the rarer class in ``y``.

    >>> make_target_scorer("log loss", np.array(["no", "yes"]), "classification")
    make_scorer(log_loss, greater_is_better=False, response_method='predict_proba')
    """
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if task == "regression" or y.ndim > 1:
        scorer: Scorer = metrics.get_scorer(scorer_name(scoring, task, n_classes=3))
        return scorer
    classes, counts = np.unique(y, return_counts=True)
    return class_scorer(scorer_name(scoring, task, len(classes)), classes, counts)


def class_scorer(name: str, classes: np.ndarray, counts: np.ndarray) -> Scorer:
    """Make the scorer of this name for classes with these numbers of rows.

    With two classes, the positive class is 1 or True, or else the rarer class. ROC AUC and average
    precision of more classes are means over the classes that occur in the rows.
    """
    if len(classes) > 2 and name in ("roc_auc_ovr", "average_precision"):
        return partial(_score_each_class, name.removesuffix("_ovr"))
    scorer: Scorer = metrics.get_scorer(name)
    if len(classes) != 2:
        return scorer
    positive = classes.tolist()[positive_class(classes, counts)]
    if name in _OF_LABELS:  # a division by zero shall not warn in each epoch
        scorer = metrics.make_scorer(_OF_LABELS[name], pos_label=positive, zero_division=0)
    elif name == "average_precision":
        scorer = metrics.make_scorer(
            metrics.average_precision_score,
            response_method=("predict_proba", "decision_function"),
            pos_label=positive,
        )
    elif name == "neg_brier_score":
        scorer = metrics.make_scorer(
            metrics.brier_score_loss,
            greater_is_better=False,
            response_method="predict_proba",
            pos_label=positive,
        )
    return scorer


def positive_class(classes: np.ndarray, counts: np.ndarray) -> int:
    """Find the index of the positive class of two: 1 or True, or else the one with fewer rows.

    >>> positive_class(np.array(["churned", "stayed"]), np.array([30, 270]))
    0
    """
    labels = classes.tolist()
    if 1 in labels:
        return labels.index(1)
    return int(counts[0] >= counts[1])


def _score_each_class(
    name: str, estimator: Any, X: Any, y: np.ndarray, sample_weight: Any = None
) -> float:
    """Average the score of each class against the others, over the classes in the rows."""
    response = class_scores(estimator, X)
    if response is None:
        raise ValueError(needs_method(name, "decision_function"))
    p, score = response[0], getattr(metrics, f"{name}_score")
    columns = [(y == label, p[:, k]) for k, label in enumerate(estimator.classes_)]
    return mean_over_classes(score, columns, sample_weight=sample_weight)


# ---- Metrics that scikit-learn has a scorer for, but that are not in METRICS ---------------------


def find_metric(name: str, task: str) -> Metric:
    """Find a metric by its name, or by the name of a scikit-learn scorer.

    Parameters
    ----------
    name : str
        A name in ``METRICS``, such as ``"roc_auc"``, ``"ROC AUC"`` or ``"rmse"``, in upper or lower
        case, with spaces, hyphens or underscores; or a name in
        ``sklearn.metrics.get_scorer_names()``.
    task : {"classification", "regression"}

    Returns
    -------
    Metric

    Raises
    ------
    ValueError
        If the metric is unknown, or belongs to the other task.

    Examples
    --------
    >>> from combutab.evaluation import find_metric
    >>> find_metric("ROC AUC", "classification").scorer_name(3)
    'roc_auc_ovr'
    >>> find_metric("neg_mean_absolute_error", "regression").title
    'MAE'
    """
    metric = named_metric(name, task)
    if metric is not None:
        return metric
    normalized = plain_name(name)
    try:
        scorer = metrics.get_scorer(normalized)
    except (ValueError, KeyError):
        names = [metric_name for metric_name in metric_names(task) if metric_name not in NOT_SHOWN]
        raise ValueError(
            f"{name!r} is not a known metric; {known_instead(normalized, names)} (or any scorer of "
            "scikit-learn)"
        ) from None

    response_method = "predict" if task == "regression" else _response_method(scorer)

    def values(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
        model = _Numbers if task == "regression" else _MODELS[response_method]
        value = float(scorer(model(predicted, p), np.arange(len(y))[:, None], y))
        return -value if normalized.startswith("neg_") else value

    title = normalized.removeprefix("neg_").replace("_", " ")
    return Metric(
        *(normalized, title, normalized, not normalized.startswith("neg_")),
        low=-np.inf,
        response_method=response_method,
        computed_by=values,
    )


class _Numbers(RegressorMixin, BaseEstimator):
    """An estimator that returns given predictions for the positions of rows."""

    def __init__(self, predicted: np.ndarray, p: np.ndarray) -> None:
        self.predicted, self.p = predicted, p

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: np.ndarray) -> np.ndarray:
        predicted: np.ndarray = self.predicted[X[:, 0]]
        return predicted


class _Labels(ClassifierMixin, _Numbers):
    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.p.shape[1])


class _Scores(_Labels):
    def decision_function(self, X: np.ndarray) -> np.ndarray:
        scores: np.ndarray = self.p[X[:, 0]]
        return scores[:, 1] if scores.shape[1] == 2 else scores


class _Probabilities(_Labels):
    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        probabilities: np.ndarray = self.p[X[:, 0]]
        return probabilities


_MODELS = {
    "predict": _Labels,
    "decision_function": _Scores,
    "predict_proba": _Probabilities,
}  # fmt: skip


def _response_method(scorer: Callable[..., float]) -> str:
    """Find the method of a classifier that a scorer of scikit-learn calls."""
    classes = np.array([0, 1])
    for method, model in _MODELS.items():
        try:
            scorer(model(classes, np.eye(2)), classes[:, None], classes)
        except AttributeError:  # the scorer calls another method
            continue
        except ValueError:  # the metric does not accept these rows
            pass
        return method
    return "predict_proba"
