"""Scores of a fitted estimator on held-out rows, by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
)

from combutab.estimators import BaseMLP
from combutab.preprocessing import binary_unit

Task = Literal["classification", "regression"]

_ONE_ANSWER = 1e-3  # of the target's standard deviation


@dataclass(frozen=True)
class Metric:
    """A score's name for people, which way is better, its unit, and its range."""

    label: str
    greater_is_better: bool
    low: float = 0.0
    high: float = np.inf
    unit: str = ""

    @property
    def description(self) -> str:
        """Name, unit and direction, for titles and axes."""
        better = "higher" if self.greater_is_better else "lower"
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.label}{unit} ({better} is better)"


METRICS: dict[Task, dict[str, Metric]] = {
    "classification": {
        "accuracy": Metric("accuracy", True, high=1.0),
        "f1": Metric("macro F1", True, high=1.0),
        "log_loss": Metric("log loss", False),
        "roc_auc": Metric("ROC AUC", True, high=1.0),
    },
    "regression": {
        "r2": Metric("R2", True, low=-np.inf, high=1.0),
        "mae": Metric("MAE", False, unit="standard deviations of the target"),
        "mse": Metric("MSE", False, unit="variances of the target"),
    },
}
"""Task -> name of a score column -> what it is; the first is the task's default."""


def score_classifier(estimator: BaseMLP, X: Any, y: np.ndarray) -> dict[str, float]:
    """Score a fitted classifier on held-out rows.

    Parameters
    ----------
    estimator : MLPClassifier
    X : table of n_samples rows
    y : ndarray of shape (n_samples,)

    Returns
    -------
    dict
        accuracy, f1 (macro), log_loss and roc_auc: NaN where ``y`` lacks a class; of more than two
        classes the unweighted mean of one against the rest.

    Raises
    ------
    ValueError
        A prediction is not finite.
    """
    return grade_classes(estimator.predict_proba(X), estimator.classes_, y)


def score_regressor(
    estimator: BaseMLP, X: Any, y: np.ndarray, target_std: float
) -> dict[str, float]:
    """Score a fitted regressor on held-out rows.

    Parameters
    ----------
    estimator : MLPRegressor
    X : table of n_samples rows
    y : ndarray of shape (n_samples,)
    target_std : float
        The unit of the errors, in the target's own.

    Returns
    -------
    dict
        r2; mae in units of ``target_std``; mse in units of its square.

    Raises
    ------
    ValueError
        A prediction is not finite.
    """
    return grade_numbers(estimator.predict(X), y, target_std)


def grade(
    estimator: BaseMLP, X: Any, y: np.ndarray, target_std: float
) -> tuple[dict[str, float], bool]:
    """Scores, and whether all rows get one answer though their targets differ.

    One answer is the same class, or numbers that differ by less than a thousandth of
    ``target_std``.
    """
    differ = len(np.unique(y)) > 1
    if not isinstance(estimator, ClassifierMixin):
        predicted = estimator.predict(X)
        constant = differ and np.ptp(predicted) < _ONE_ANSWER * target_std
        return grade_numbers(predicted, y, target_std), bool(constant)
    probabilities = estimator.predict_proba(X)
    scores = grade_classes(probabilities, estimator.classes_, y)
    return scores, differ and len(np.unique(probabilities.argmax(axis=1))) == 1


def grade_classes(
    probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray
) -> dict[str, float]:
    """Scores of the probabilities of classes, (n_samples, n_classes)."""
    probabilities = probabilities.astype(np.float64)
    _refuse_non_finite(probabilities)
    probabilities /= probabilities.sum(axis=1, keepdims=True)  # float32's sums are not quite 1
    labels = classes[probabilities.argmax(axis=1)]
    area = np.nan
    if len(np.unique(y)) == len(classes):
        scores = probabilities[:, 1] if len(classes) == 2 else probabilities
        area = roc_auc_score(y, scores, multi_class="ovr", labels=classes)
    return {
        "accuracy": float(accuracy_score(y, labels)),
        "f1": float(f1_score(y, labels, average="macro", zero_division=0)),
        "log_loss": float(log_loss(y, probabilities, labels=classes)),
        "roc_auc": float(area),
    }


def grade_numbers(predicted: np.ndarray, y: np.ndarray, target_std: float) -> dict[str, float]:
    """Scores of predicted numbers, (n_samples,)."""
    _refuse_non_finite(predicted)
    unit = float(binary_unit(np.asarray(target_std)))  # squares of huge and tiny numbers are lost
    predicted, y, target_std = predicted / unit, y / unit, target_std / unit
    error, truth = (predicted - y) / target_std, np.zeros(len(y))
    return {
        "r2": float(r2_score(y, predicted)),
        "mae": float(mean_absolute_error(truth, error)),
        "mse": float(mean_squared_error(truth, error)),
    }


def _refuse_non_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ValueError("the network's predictions are not finite: it diverged")
