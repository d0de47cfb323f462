"""Get labels and class scores from any fitted classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse


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
