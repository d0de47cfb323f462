"""Scorers of scikit-learn by the names of metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn import metrics

from combutab.core.metrics import metric_names, named_metric, plain_name
from combutab.core.text import known_instead

ClassScorer = Callable[..., float]
"""A scorer of scikit-learn: estimator, X, y and optional sample weights -> a score."""
# Scores of one class, which needs a name unless the labels are 0 and 1.
_OF_LABELS = {
    "f1": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "jaccard": metrics.jaccard_score,
}


def scorer_name(scoring: str, task: str, n_classes: int = 2) -> str:
    """The name of scikit-learn's scorer, of a metric in any spelling or of a scorer.

    Raises ValueError if neither is known, or the metric is one of the other task.

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


def class_scorer(name: str, classes: np.ndarray, counts: np.ndarray) -> ClassScorer:
    """The scorer of this name for classes with so many rows.

    Of two classes, the positive one is 1 or True, or else the rarer one. ROC AUC and average
    precision of more classes are means over the classes that the rows have.
    """
    if len(classes) > 2 and name in ("roc_auc_ovr", "average_precision"):
        return partial(_score_each_class, name.removesuffix("_ovr"))
    scorer: ClassScorer = metrics.get_scorer(name)
    if len(classes) != 2:
        return scorer
    positive = classes.tolist()[positive_class(classes, counts)]
    if name in _OF_LABELS:  # a division by zero shall not warn in each epoch
        scorer = metrics.make_scorer(_OF_LABELS[name], pos_label=positive, zero_division=0)
    elif name == "average_precision":
        score = metrics.average_precision_score
        scorer = metrics.make_scorer(score, response_method="predict_proba", pos_label=positive)
    elif name == "neg_brier_score":
        scorer = metrics.make_scorer(
            metrics.brier_score_loss,
            greater_is_better=False,
            response_method="predict_proba",
            pos_label=positive,
        )
    return scorer


def positive_class(classes: np.ndarray, counts: np.ndarray) -> int:
    """The index of the positive one of two classes: 1 or True, or else the one with fewer rows.

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
    """The mean score of each class against the others, of those that the rows have."""
    p, score = estimator.predict_proba(X), getattr(metrics, f"{name}_score")
    labels = [(y == label, p[:, k]) for k, label in enumerate(estimator.classes_)]
    scores = [
        score(is_class, column, sample_weight=sample_weight)
        for is_class, column in labels
        if is_class.any() and not is_class.all()
    ]
    return float(np.mean(scores)) if scores else np.nan
