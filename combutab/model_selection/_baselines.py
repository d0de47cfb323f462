"""Baselines of a comparison: a guess, a linear model and boosted trees."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning

from combutab.core.metrics import METRICS
from combutab.core.rng import Stream, fold_in
from combutab.core.scores import guess_targets
from combutab.core.text import one_line
from combutab.core.threads import limit_openmp, tree_threads
from combutab.model_selection._plan import ComparisonPlan
from combutab.model_selection._scores import score_numbers, score_probabilities
from combutab.preprocessing import binary_unit

GUESSES = {
    "accuracy": "always the most frequent class",
    "balanced_accuracy": "always the most frequent class",
    "f1": "classes drawn as often as they occur",
    "f1_macro": "classes drawn as often as they occur",
    "roc_auc": "the same for every row",
    "average_precision": "the same for every row",
    "log_loss": "the class frequencies for every row",
    "r2": "always the mean",
    "mae": "always the median",
    "rmse": "always the mean",
    "mse": "always the mean",
    "mape": "always the number with the least MAPE",
}
"""Prediction of the baseline "guess" for each metric, in words."""

_DRAWS, _DRAWN_ROWS = 20, 100_000  # of random guesses: their mean is a score with less noise
_MAX_CATEGORIES = 255  # of boosted trees: a column of more is taken for a number


def score_baseline(plan: ComparisonPlan, name: str, fold: int) -> dict[str, Any]:
    """Fit a baseline to a fold's training rows; its scores on the others, and seconds.

    A baseline that cannot be fitted has NaN for scores, and ``error`` says why.
    """
    train, test = plan.splits[fold]
    started, error = time.perf_counter(), None
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    with warnings.catch_warnings():  # advice to whoever has chosen the learner
        for category in (ConvergenceWarning, LinAlgWarning):
            warnings.simplefilter("ignore", category)
        try:
            scores |= _guess(plan, fold) if name == "guess" else _learner(plan, name, train, test)
        except ValueError as refused:
            error = one_line(refused)
    return {**scores, "seconds": time.perf_counter() - started, "error": error}


def _target_unit(plan: ComparisonPlan) -> float:
    """Return the divisor of huge and tiny targets, whose squares float64 does not hold; else 1."""
    return float(binary_unit(np.asarray(plan.target_std)))


def _guess(plan: ComparisonPlan, fold: int) -> dict[str, float]:
    """Return the score of each metric by the guess that is right for it."""
    train, test = plan.splits[fold]
    y, truth = plan.y[train], plan.y[test]
    unit = _target_unit(plan)
    if plan.task == "regression":
        constants: dict[str, float] = {
            "mape": _least_mape(y / unit),
            "mae": float(np.median(y / unit)),
            "mean": float(np.mean(y / unit)),
        }
        graded = {
            name: score_numbers(np.full(len(test), constant * unit), truth, plan.target_std)
            for name, constant in constants.items()
        }
        return graded["mean"] | {name: graded[name][name] for name in ("mae", "mape")}
    classes, codes = np.unique(y, return_inverse=True)
    shares = guess_targets("", codes, len(test), len(classes))[1]
    scores = score_probabilities(shares, classes, truth, plan.positive)
    n_draws = int(np.clip(_DRAWN_ROWS // len(test), 1, _DRAWS))
    drawn_scores = []
    for i in range(n_draws):
        key = fold_in(plan.random_state, Stream.GUESSES, fold, i)
        guess = DummyClassifier(strategy="stratified", random_state=key >> 32)
        drawn = guess.fit(np.zeros((len(train), 1)), y).predict_proba(np.zeros((len(test), 1)))
        drawn_scores.append(score_probabilities(drawn, classes, truth, plan.positive))
    return scores | {
        name: float(np.mean([draw[name] for draw in drawn_scores])) for name in ("f1", "f1_macro")
    }


def _least_mape(y: np.ndarray) -> float:
    """Return the constant of the least MAPE: the median, weighted by 1 / abs(y)."""
    y = np.sort(y[y != 0])
    weight = np.cumsum(1 / np.abs(y))
    return float(y[np.searchsorted(weight, weight[-1] / 2)])


def _learner(
    plan: ComparisonPlan, name: str, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    """Scores of scikit-learn's estimator, on the columns that the networks are given."""
    encoder = plan.encoder()
    X, y = plan.rows(train)
    unseen, truth = plan.rows(test)
    rows, unseen_rows = (
        np.hstack([table.dense, table.codes]).astype(np.float64)
        for table in (encoder.fit_encode(X), encoder.encode(unseen, fitted=True))
    )
    make = _linear_model if name == "linear" else _boosting
    model = make(plan, encoder.n_dense_, encoder.cardinalities_)
    with limit_openmp(tree_threads(rows.size)):
        if plan.task == "regression":
            unit = _target_unit(plan)
            answers = model.fit(rows, y / unit).predict(unseen_rows) * unit
            return score_numbers(answers, truth, plan.target_std)
        model.fit(rows, y)
        probabilities = model.predict_proba(unseen_rows)
        return score_probabilities(probabilities, model.classes_, truth, plan.positive)


def _linear_model(plan: ComparisonPlan, n_dense: int, cardinalities: Sequence[int]) -> Any:
    """Logistic or ridge regression; columns of many categories are one-hot, too."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    model = LogisticRegression(max_iter=1000) if plan.task == "classification" else Ridge()
    if not cardinalities:
        return model
    encoder = make_column_transformer(
        ("passthrough", slice(n_dense)),
        (OneHotEncoder(handle_unknown="ignore"), slice(n_dense, None)),
        sparse_threshold=1.0,
    )
    return make_pipeline(encoder, model)


def _boosting(plan: ComparisonPlan, n_dense: int, cardinalities: Sequence[int]) -> Any:
    from sklearn import ensemble

    few = [size <= _MAX_CATEGORIES for size in cardinalities]
    task = "Classifier" if plan.task == "classification" else "Regressor"
    return getattr(ensemble, f"HistGradientBoosting{task}")(
        categorical_features=np.array([False] * n_dense + few),
        random_state=fold_in(plan.random_state, Stream.BASELINE) >> 32,
    )
