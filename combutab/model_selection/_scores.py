"""Scores of fitted estimators on held-out rows, by all metrics of the task."""

from __future__ import annotations

from typing import Any

import numpy as np

from combutab.core.scorers import positive_class, score_predictions
from combutab.core.scores import as_positive, class_positions
from combutab.estimators import BaseMLP
from combutab.preprocessing import binary_unit

_CONSTANT = 1e-3  # of the target's standard deviation: predictions that differ less are equal


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
        roc_auc, log_loss, accuracy, balanced_accuracy, average_precision, f1 and f1_macro. ROC AUC
        and average precision are NaN if ``y`` lacks a class. For two classes, average precision and
        f1 are those of 1 or True, or else of the rarer class of ``y``. For more classes, these two
        and ROC AUC are unweighted means over the classes, each against the rest.

    Raises
    ------
    ValueError
        If a prediction is not finite, or ``y`` has a class that is not in ``classes_``.
    """
    positions = class_positions(np.asarray(y), estimator.classes_, "y")
    counts = np.bincount(positions, minlength=len(estimator.classes_))
    positive = positive_class(estimator.classes_, counts) if len(counts) == 2 else 1
    return score_probabilities(estimator.predict_proba(X), estimator.classes_, y, positive)


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
        Unit of the errors, such as the standard deviation of all targets, in units of ``y``.

    Returns
    -------
    dict
        r2; mae and rmse in units of ``target_std``; mse in units of its square; mape as a share of
        the target (0.1 is 10 %), NaN if a target is 0.

    Raises
    ------
    ValueError
        If a prediction is not finite.
    """
    return score_numbers(estimator.predict(X), y, target_std)


def score_estimator(
    estimator: Any, X: Any, y: np.ndarray, task: str, target_std: float, positive: int
) -> tuple[dict[str, float], bool]:
    """Score an estimator, and tell whether its predictions are constant though the targets differ.

    Constant predictions are the same class, or numbers that differ by less than a thousandth of
    ``target_std``.
    """
    differ = len(np.unique(y)) > 1
    if task == "regression":
        predicted = estimator.predict(X)
        constant = differ and np.ptp(predicted) < _CONSTANT * target_std
        return score_numbers(predicted, y, target_std), bool(constant)
    probabilities = estimator.predict_proba(X)
    scores = score_probabilities(probabilities, estimator.classes_, y, positive)
    return scores, differ and len(np.unique(probabilities.argmax(axis=1))) == 1


def score_probabilities(
    probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray, positive: int
) -> dict[str, float]:
    """Score probabilities of classes, (n_samples, n_classes).

    ``positive`` is the index of the positive one of two classes.
    """
    probabilities = probabilities.astype(np.float64)
    _check_finite(probabilities)
    probabilities /= probabilities.sum(axis=1, keepdims=True)  # float32's sums are not quite 1
    positions = class_positions(np.asarray(y), classes, "y")
    predictions = as_positive(positive, positions, probabilities.argmax(axis=1), probabilities)
    scores = score_predictions("classification", *predictions)
    if len(np.unique(positions)) < len(classes):
        scores |= {"roc_auc": np.nan, "average_precision": np.nan}
    return scores


def score_numbers(predicted: np.ndarray, y: np.ndarray, target_std: float) -> dict[str, float]:
    """Score predicted numbers, (n_samples,), with errors in units of ``target_std``."""
    _check_finite(predicted)
    unit = float(binary_unit(np.asarray(target_std)))  # squares of huge and tiny numbers are lost
    predicted, y = (values / unit / (target_std / unit) for values in (predicted, y))
    return score_predictions("regression", y, predicted, predicted)


def _check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ValueError("the network's predictions are not finite: it diverged")
