"""Compute metrics, and the predictions that they compare, of any classifier or a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn import metrics

from combutab.core.text import counted

Values = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
"""Positions of true and predicted classes, and probabilities; or true and predicted numbers."""


def _over_classes(name: str) -> Values:
    """Average a metric of each class against the others; of two classes, use the second."""

    def values(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
        if y.ndim > 1 or p.shape[1] == 2:
            columns = [(y, p[:, 1])] if y.ndim == 1 else list(zip(y.T, p.T, strict=True))
        else:
            columns = [(y == k, p[:, k]) for k in range(p.shape[1])]
        return mean_over_classes(getattr(metrics, name), columns)

    return values


def mean_over_classes(
    score: Callable[..., float], columns: list[tuple[np.ndarray, np.ndarray]], **options: Any
) -> float:
    """Average a score over the classes that some rows have and some lack; NaN without any.

    Each of the ``columns`` is a mask of the rows of a class, and the scores for this class.
    """
    scores = [
        score(is_class, class_score, **options)
        for is_class, class_score in columns
        if 0 < is_class.sum() < len(is_class)
    ]
    return float(np.mean(scores)) if scores else np.nan


def _log_loss(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    true_class = p[np.arange(len(y)), y] if y.ndim == 1 else np.where(y == 1, p, 1 - p)
    return float(abs(np.log(true_class.clip(np.finfo(float).eps)).mean()))


def as_positive(
    class_index: int, y: np.ndarray, predicted: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Swap two classes in targets, predictions and probabilities, so that a class is positive.

    >>> labels, p = np.array([0, 1]), np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> [array.tolist() for array in as_positive(0, labels, labels, p)]
    [[1, 0], [1, 0], [[0.1, 0.9], [0.7, 0.3]]]
    """
    if class_index or p.shape[1] != 2 or y.ndim > 1:
        return y, predicted, p
    return 1 - y, 1 - predicted, p[:, ::-1]


def confusion_counts(y: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Compute the confusion matrix, for many resamples much faster than scikit-learn."""
    cells = np.bincount(y * n_classes + predicted, minlength=n_classes**2)
    return cells.reshape(n_classes, n_classes)


def _f1_macro(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    if y.ndim > 1:
        return float(metrics.f1_score(y, predicted, average="macro", zero_division=0))
    scores, total = _f1_of_classes(y, predicted, p)
    return float(scores[total > 0].mean())


def _f1(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    if y.ndim > 1 or p.shape[1] != 2:
        return _f1_macro(y, predicted, p)
    return float(_f1_of_classes(y, predicted, p)[0][1])


def _f1_of_classes(
    y: np.ndarray, predicted: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    counts = confusion_counts(y, predicted, p.shape[1])
    total = counts.sum(0) + counts.sum(1)
    return 2 * counts.diagonal() / np.maximum(total, 1), total


def _balanced_accuracy(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    counts = confusion_counts(y, predicted, p.shape[1])
    rows = counts.sum(1)
    return float((counts.diagonal()[rows > 0] / rows[rows > 0]).mean())


def _accuracy(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    is_correct = y == predicted
    return float((is_correct if y.ndim == 1 else is_correct.all(1)).mean())


def _of_numbers(name: str) -> Values:
    def values(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
        return float(getattr(metrics, name)(y, predicted))

    return values


def _r2(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    return float(metrics.r2_score(y, predicted)) if len(y) > 1 else np.nan


def _mape(y: np.ndarray, predicted: np.ndarray, p: np.ndarray) -> float:
    if not np.all(y):  # scikit-learn divides by the smallest number there
        return np.nan
    return _of_numbers("mean_absolute_percentage_error")(y, predicted, p)


VALUES: Mapping[str, Values] = {
    "roc_auc": _over_classes("roc_auc_score"),
    "log_loss": _log_loss,
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "average_precision": _over_classes("average_precision_score"),
    "f1": _f1,
    "f1_macro": _f1_macro,
    "r2": _r2,
    "mae": _of_numbers("mean_absolute_error"),
    "rmse": _of_numbers("root_mean_squared_error"),
    "mse": _of_numbers("mean_squared_error"),
    "mape": _mape,
}
"""Function that computes each metric, by its name."""


def check_defined(metric: str, y: Any) -> None:
    """Raise ValueError for MAPE if some targets are 0, because MAPE divides by the target."""
    n_zeros = int(np.sum(np.asarray(y) == 0)) if metric == "mape" else 0
    if n_zeros:
        raise ValueError(
            f"mape divides by the target, which is 0 in {counted(n_zeros, 'row')}; use mae or rmse"
        )


def guess_targets(
    metric: str, train: np.ndarray, n_rows: int, n_classes: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Predict by a baseline that uses only the training targets; also return probabilities.

    The baseline predicts the most frequent class, and class shares as probabilities. For numbers
    it predicts the mean, or the median for MAE and MAPE.

    >>> guess_targets("accuracy", np.array([0, 0, 0, 1]), 1, 2)
    (array([0]), array([[0.75, 0.25]]))
    """
    if n_classes:
        shares = np.bincount(train, minlength=n_classes) / len(train)
        return np.full(n_rows, shares.argmax()), np.tile(shares, (n_rows, 1))
    constant = (np.median if metric in ("mae", "mape") else np.mean)(train, axis=0)
    predicted = np.broadcast_to(constant, (n_rows, *train.shape[1:]))
    return predicted, predicted


# ---- Labels and class scores of any fitted classifier --------------------------------------------


def predict_labels(estimator: Any, X: Any) -> np.ndarray:
    """Predict by ``predict``: (n_samples,), or (n_samples, n_outputs) for several outputs.

    An estimator may use another rule than the most probable class, such as a tuned threshold.
    """
    labels = estimator.predict(X)
    if scipy.sparse.issparse(labels):
        labels = labels.toarray()
    labels = np.asarray(labels)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def class_labels(estimator: Any) -> np.ndarray:
    """Return the classes of a classifier, or the positions of labels for multi-label targets.

    Raises ValueError if one of several targets has other classes than 0 and 1.
    """
    classes = estimator.classes_
    if not (isinstance(classes, list) and classes and np.ndim(classes[0]) == 1):
        return np.asarray(classes)
    for values in classes:
        if not set(values.tolist()) <= {0, 1}:
            raise ValueError(
                f"a target has the classes {values.tolist()[:5]}; several targets are supported "
                "only if all of them are 0 or 1. Fit one classifier per target"
            )
    return np.arange(len(classes))


def class_scores(estimator: Any, X: Any) -> tuple[np.ndarray, str] | None:
    """Predict scores of the classes; also return the method that computed them.

    The scores have the shape (n_samples, n_classes), or (n_samples, n_labels) for multi-label
    targets. Returns None for an estimator that only predicts labels.

    >>> from sklearn.svm import LinearSVC
    >>> svc = LinearSVC().fit([[-1.0], [1.0]], ["no", "yes"])
    >>> scores, method = class_scores(svc, [[2.0]])
    >>> scores.shape, bool(scores[0, 1] == -scores[0, 0] > 0), method
    ((1, 2), True, 'decision_function')
    """
    if hasattr(estimator, "predict_proba"):
        probabilities = estimator.predict_proba(X)
        if isinstance(probabilities, list):  # one array per label
            columns = zip(probabilities, estimator.classes_, strict=True)
            probabilities = np.column_stack([_label_probability(*column) for column in columns])
        return np.asarray(probabilities), "predict_proba"
    if not hasattr(estimator, "decision_function"):
        return None
    scores = np.asarray(estimator.decision_function(X))
    if scores.ndim == 1:  # two classes
        scores = np.column_stack([-scores, scores])
    # support vector machines can return one column per pair of classes
    is_per_class = scores.shape[1] == len(estimator.classes_)
    return (scores, "decision_function") if is_per_class else None


def one_hot(positions: np.ndarray, n_classes: int) -> np.ndarray:
    """Encode classes as one-hot rows; labels of multi-label targets are only cast to float."""
    return positions.astype(float) if positions.ndim == 2 else np.eye(n_classes)[positions]


def class_positions(labels: np.ndarray, classes: np.ndarray, source: str) -> np.ndarray:
    """Find the positions of labels among the classes; errors name the ``source`` of the labels.

    >>> class_positions(np.array(["b", "a"]), np.array(["a", "b"]), "y").tolist()
    [1, 0]
    """
    if labels.ndim == 2:
        return labels.astype(np.int64)
    positions: np.ndarray = pd.Index(classes).get_indexer(pd.Index(labels))
    if (positions < 0).any():
        label = labels[positions < 0].tolist()[0]
        raise ValueError(f"{source} has the class {label!r}, which the estimator was not fitted to")
    return positions


def needs_method(metric: str, method: str) -> str:
    """Write the error for a classifier from which a metric cannot be computed."""
    methods = "predict_proba" if method == "predict_proba" else f"predict_proba or {method}"
    return (
        f"{metric} needs {methods}, which the estimator lacks; use another metric, or give the "
        "estimator probabilities (sklearn.calibration.CalibratedClassifierCV)"
    )


def _label_probability(probabilities: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    labels = np.asarray(classes).tolist()
    return probabilities[:, labels.index(1)] if 1 in labels else np.zeros(len(probabilities))
