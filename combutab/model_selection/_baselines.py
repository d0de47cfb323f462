"""Baselines of a comparison: a guess, a linear model and boosted trees."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import ConvergenceWarning

from combutab.core.rng import Stream, fold_in
from combutab.model_selection._plan import ComparisonPlan
from combutab.model_selection._scores import METRICS, grade_classes, grade_numbers
from combutab.preprocessing import binary_unit

GUESSES = {
    "accuracy": "always the most frequent class",
    "f1": "classes drawn as often as they occur",
    "log_loss": "the classes' shares for every row",
    "roc_auc": "the same for every row",
    "r2": "always the mean",
    "mae": "always the median",
    "mse": "always the mean",
}
"""The answer of the baseline "guess", by metric: the best of a DummyClassifier or -Regressor."""

_DRAWS, _DRAWN_ROWS = 20, 100_000  # of random guesses: their mean is a score with less noise
_MAX_CATEGORIES = 255  # of boosted trees: a column of more is taken for a number


def score_baseline(plan: ComparisonPlan, name: str, fold: int) -> dict[str, Any]:
    """Fit a baseline to a fold's training rows; its scores on the others, and seconds.

    A baseline that cannot be fitted has NaN for scores, and ``error`` says why.
    """
    train, test = plan.splits[fold]
    started, error = time.perf_counter(), None
    scores: dict[str, float] = dict.fromkeys(METRICS[plan.task], np.nan)
    try:
        with _without_advice():
            scores |= _guess(plan, fold) if name == "guess" else _learner(plan, name, train, test)
    except ValueError as refused:
        error = " ".join(str(refused).split())
    return {**scores, "seconds": time.perf_counter() - started, "error": error}


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence the learners' advice to whoever has chosen them."""
    from scipy.linalg import LinAlgWarning

    with warnings.catch_warnings():
        for category in (ConvergenceWarning, LinAlgWarning):
            warnings.simplefilter("ignore", category)
        yield


def _target_unit(plan: ComparisonPlan) -> float:
    """Return the divisor of huge and tiny targets, whose squares float64 does not hold; else 1."""
    return float(binary_unit(np.asarray(plan.target_std)))


def _guess(plan: ComparisonPlan, fold: int) -> dict[str, float]:
    """Return the score of each metric by the guess that is right for it."""
    train, test = plan.splits[fold]
    X, y = np.zeros((len(train), 1)), plan.y[train]
    unit = _target_unit(plan)
    unseen, truth = np.zeros((len(test), 1)), plan.y[test]
    if plan.task == "regression":
        scores: dict[str, float] = {}
        for strategy in ("median", "mean"):  # the mean's last: r2 and mse are its
            answers = DummyRegressor(strategy=strategy).fit(X, y / unit).predict(unseen) * unit
            graded = grade_numbers(answers, truth, plan.target_std)
            scores = graded | ({"mae": scores["mae"]} if scores else {})
        return scores
    prior = DummyClassifier(strategy="prior").fit(X, y)
    scores = grade_classes(prior.predict_proba(unseen), prior.classes_, truth)
    draws = int(np.clip(_DRAWN_ROWS // len(test), 1, _DRAWS))
    drawn = [
        DummyClassifier(strategy="stratified", random_state=key >> 32).fit(X, y)
        for key in (fold_in(plan.random_state, Stream.GUESSES, fold, i) for i in range(draws))
    ]
    f1 = [grade_classes(g.predict_proba(unseen), g.classes_, truth)["f1"] for g in drawn]
    return scores | {"f1": float(np.mean(f1))}


def _learner(
    plan: ComparisonPlan, name: str, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    """Scores of scikit-learn's estimator, on the columns that the networks are given."""
    encoder = plan.encoder()
    X, y = plan.rows(train)
    unseen, truth = plan.rows(test)
    fitted, held_out = encoder.fit_encode(X), encoder.encode(unseen, fitted=True)
    make = _linear_model if name == "linear" else _boosting
    model, prepare = make(plan, fitted.codes, encoder.cardinalities_, fitted.dense.shape[1])
    if plan.task == "regression":
        unit = _target_unit(plan)
        model.fit(prepare(fitted), y / unit)
        return grade_numbers(model.predict(prepare(held_out)) * unit, truth, plan.target_std)
    model.fit(prepare(fitted), y)
    return grade_classes(model.predict_proba(prepare(held_out)), model.classes_, truth)


def _linear_model(plan: ComparisonPlan, codes: np.ndarray, *_: Any) -> tuple[Any, Any]:
    """Logistic or ridge regression; columns of many categories are one-hot, too."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import OneHotEncoder

    onehot = OneHotEncoder(handle_unknown="ignore").fit(codes) if codes.shape[1] else None

    def prepare(table: Any) -> Any:
        dense = table.dense.astype(np.float64)
        if onehot is None:
            return dense
        return sparse.hstack([dense, onehot.transform(table.codes)]).tocsr()

    model = LogisticRegression(max_iter=1000) if plan.task == "classification" else Ridge()
    return model, prepare


def _boosting(
    plan: ComparisonPlan, codes: np.ndarray, cardinalities: tuple[int, ...], n_dense: int
) -> tuple[Any, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    few = [size <= _MAX_CATEGORIES for size in cardinalities]
    make: Any = (
        HistGradientBoostingClassifier
        if plan.task == "classification"
        else HistGradientBoostingRegressor
    )
    seed = fold_in(plan.random_state, Stream.BASELINE) >> 32
    model = make(categorical_features=np.array([False] * n_dense + few), random_state=seed)
    return model, lambda table: np.hstack([table.dense, table.codes.astype(np.float32)])
