"""Baselines of a comparison: a guess, a linear model and boosted trees."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from combutab.core.metrics import METRICS
from combutab.core.rng import Stream, fold_in
from combutab.core.scores import guess_targets
from combutab.core.text import one_line
from combutab.model_selection._models import EncodedModel
from combutab.model_selection._plan import ComparisonPlan
from combutab.model_selection._scores import score_estimator, score_numbers, score_probabilities

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


def score_baseline(plan: ComparisonPlan, name: str, fold: int) -> dict[str, Any]:
    """Fit a baseline to a fold's training rows; its scores on the others, and seconds.

    A baseline that cannot be fitted has NaN for scores, and ``error`` says why.
    """
    started, error = time.perf_counter(), None
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    try:
        scores |= _guess(plan, fold) if name == "guess" else _score_model(plan, name, fold)
    except ValueError as refused:
        error = one_line(refused)
    return {**scores, "seconds": time.perf_counter() - started, "error": error}


def _score_model(plan: ComparisonPlan, name: str, fold: int) -> dict[str, float]:
    """Score a linear model or boosting on the columns that the networks are trained on."""
    (X, y), (X_test, y_test) = (plan.rows(rows) for rows in plan.splits[fold])
    seed = fold_in(plan.random_state, Stream.BASELINE) >> 32
    model = EncodedModel(name, plan.task, plan.encoder(), plan.target_unit, seed).fit(X, y)
    return score_estimator(model, X_test, y_test, plan.task, plan.target_std, plan.positive)[0]


def _guess(plan: ComparisonPlan, fold: int) -> dict[str, float]:
    """Return the score of each metric by the guess that is right for it."""
    train, test = plan.splits[fold]
    y, truth = plan.y[train], plan.y[test]
    unit = plan.target_unit
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
