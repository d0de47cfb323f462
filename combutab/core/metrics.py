"""Metrics of predictions by name, with their range, unit and direction.

combutab.core.scores computes the metrics, so that this module imports no heavy library.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from combutab.core.text import known_instead

if TYPE_CHECKING:
    from combutab.core.scores import Values


@dataclass(frozen=True)
class Metric:
    """A metric of predictions: its names, range, unit and direction.

    Attributes
    ----------
    name, title : str
        Name in ``METRICS``, and name in texts.
    scorer : str
        Name of the scikit-learn scorer, for regression or two classes.
    greater_is_better : bool, default=True
    low, high : float, default=0.0, inf
        Range of its values.
    unit : str, default=""
        Unit of an error, for a target in standard deviations.
    scorer_multiclass : str, default=""
        Name of the scikit-learn scorer for more than two classes, if it is another one.
    response_method : {"predict", "decision_function", "predict_proba"}, default="predict"
        Method of a classifier that the metric is computed from. Metrics of ``decision_function``
        are also computed from probabilities.
    computed_by : callable, optional
        Function of targets, predictions and probabilities, for metrics that are not in ``METRICS``.
    """

    name: str
    title: str
    scorer: str
    greater_is_better: bool = True
    low: float = 0.0
    high: float = math.inf
    unit: str = ""
    scorer_multiclass: str = ""
    response_method: str = "predict"
    computed_by: Values | None = field(default=None, repr=False, compare=False)

    @property
    def values(self) -> Values:
        """Function that computes the metric from targets, predictions and probabilities."""
        from combutab.core.scores import VALUES

        return self.computed_by or VALUES[self.name]

    @property
    def description(self) -> str:
        """Title, unit and direction, for headings and axes."""
        direction = "higher" if self.greater_is_better else "lower"
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.title}{unit} ({direction} is better)"

    def accepts(self, method: str) -> bool:
        """Tell whether the metric can be computed from the output of this classifier method.

        >>> METRICS["classification"]["roc_auc"].accepts("predict_proba")
        True
        """
        order = ("predict", "decision_function", "predict_proba")
        return order.index(self.response_method) <= order.index(method)

    def scorer_name(self, n_classes: int = 2) -> str:
        """Name of the scikit-learn scorer, for ``scoring=`` with this number of classes."""
        return (self.scorer_multiclass if n_classes > 2 else "") or self.scorer


# ---- The metrics ---------------------------------------------------------------------------------

_SDS = "standard deviations of the target"
_CLASSIFICATION = [
    Metric("roc_auc", "ROC AUC", "roc_auc", high=1.0, scorer_multiclass="roc_auc_ovr",
           response_method="decision_function"),
    Metric("log_loss", "log loss", "neg_log_loss", greater_is_better=False,
           response_method="predict_proba"),
    Metric("accuracy", "accuracy", "accuracy", high=1.0),
    Metric("balanced_accuracy", "balanced accuracy", "balanced_accuracy", high=1.0),
    Metric("average_precision", "average precision", "average_precision", high=1.0,
           response_method="decision_function"),
    Metric("f1", "F1", "f1", high=1.0, scorer_multiclass="f1_macro"),
    Metric("f1_macro", "macro F1", "f1_macro", high=1.0),
]  # fmt: skip
_REGRESSION = [
    Metric("r2", "R2", "r2", low=-math.inf, high=1.0),
    Metric("mae", "MAE", "neg_mean_absolute_error", greater_is_better=False, unit=_SDS),
    Metric("rmse", "RMSE", "neg_root_mean_squared_error",
           greater_is_better=False, unit=_SDS),
    Metric("mse", "MSE", "neg_mean_squared_error",
           greater_is_better=False, unit="variances of the target"),
    Metric("mape", "MAPE", "neg_mean_absolute_percentage_error", greater_is_better=False,
           unit="fractions of the target"),
]  # fmt: skip
METRICS: dict[str, dict[str, Metric]] = {
    "classification": {metric.name: metric for metric in _CLASSIFICATION},
    "regression": {metric.name: metric for metric in _REGRESSION},
}
"""Task -> name -> the metric."""
NOT_SHOWN = ("f1_macro", "mse")  # by default, because F1 and RMSE contain the same information
_ALSO = {"auc": "roc_auc", "ap": "average_precision", "macro_f1": "f1_macro"}


def plain_name(name: str) -> str:
    """Convert the name of a metric to the spelling of ``METRICS``.

    >>> plain_name("ROC AUC"), plain_name("macro-F1")
    ('roc_auc', 'f1_macro')
    """
    normalized = re.sub(r"[\s-]+", "_", name.strip().lower())
    return _ALSO.get(normalized, normalized)


def named_metric(name: str, task: str = "auto") -> Metric | None:
    """Find a metric by its name or that of scikit-learn's scorer; None if ``METRICS`` has none.

    Raises ValueError if the metric belongs to the other task.

    >>> named_metric("Neg_Mean_Absolute_Error").title
    'MAE'
    """
    normalized = plain_name(name)
    for metric_task, metrics in METRICS.items():
        metrics_by_scorer = {metric.scorer: metric for metric in metrics.values()}
        metrics_by_scorer |= {
            multiclass_metric.scorer_multiclass: multiclass_metric
            for multiclass_metric in metrics.values()
            if multiclass_metric.scorer_multiclass
        }
        metric = metrics.get(normalized) or metrics_by_scorer.get(normalized)
        if metric is not None:
            if task not in ("auto", metric_task):
                raise ValueError(f"{name!r} is a metric of {metric_task}, and the task is {task}")
            return metric
    return None


def metric_names(task: str = "auto") -> list[str]:
    """List the names of the metrics of a task, or of both tasks.

    >>> metric_names("regression")
    ['r2', 'mae', 'rmse', 'mse', 'mape']
    """
    return [
        name
        for metric_task, metrics in METRICS.items()
        if task in ("auto", metric_task)
        for name in metrics
    ]


def choose_metric(name: str, task: str = "auto") -> Metric:
    """Find a metric by its name; raises ValueError if it is unknown or of the other task.

    >>> choose_metric("acuracy")
    Traceback (most recent call last):
    ...
    ValueError: 'acuracy' is not a known metric; did you mean 'accuracy'?
    """
    metric = named_metric(name, task)
    if metric is None:
        instead = known_instead(plain_name(name), metric_names(task), n=12)
        raise ValueError(f"{name!r} is not a known metric; {instead}")
    return metric
