"""Baselines of a comparison (a guess, a linear model, boosted trees), and tests against them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier

from combutab.core.metrics import METRICS
from combutab.core.rng import Stream, fold_in
from combutab.core.scores import guess_targets
from combutab.core.text import one_line
from combutab.evaluation import corrected_interval, holm
from combutab.model_selection._models import (
    EncodedModel,
    score_estimator,
    score_numbers,
    score_probabilities,
)
from combutab.model_selection._plan import ComparisonPlan

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


# ---- Tests of activations or models against the baselines ----------------------------------------

ALPHA = 0.05


def judge(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Test activations and baselines against each other, by the plan's test over the folds.

    ``summary`` is of the activations, the best first; it is returned with ``p_guess`` and
    ``beats_guess`` where the guess is among the baselines, and with a table of one row a baseline,
    the best first. ``results`` and ``scored`` have the scores of the networks, and of the baselines
    by fold.
    """
    nets = fold_means(results, summary, plan.metric)
    by_name = {
        str(name): rows.sort_values("fold")[plan.metric].to_numpy()
        for name, rows in scored.groupby("baseline", sort=False)
    }
    complete = {name: scores for name, scores in by_name.items() if np.isfinite(scores).all()}
    best = next(iter(nets.values()))
    learners = [name for name in complete if name != "guess"]
    p = dict(
        zip(learners, holm([plan.p_value(best, complete[name]) for name in learners]), strict=True)
    )
    if "guess" in complete:
        p["guess"] = holm([plan.p_value(scores, complete["guess"]) for scores in nets.values()])[0]
        metric = plan.guess_metric
        guess = scored[scored["baseline"] == "guess"].sort_values("fold")[metric].to_numpy()
        tested = fold_means(results, summary, metric).values()
        p_guess = holm([plan.p_value(scores, guess) for scores in tested])
        better = [plan.is_better(scores.mean(), guess.mean(), metric) for scores in tested]
        summary = summary.assign(p_guess=p_guess, beats_guess=(p_guess < ALPHA) & better)
    rows = []
    for name, scores in complete.items():
        interval = corrected_interval(scores, n_train=plan.n_train, n_test=plan.n_test)
        low, high = np.clip([interval.low, interval.high], plan.measure.low, plan.measure.high)
        rows.append({"baseline": name, "mean": interval.mean, "low": low, "high": high})
    table = pd.DataFrame(rows, columns=["baseline", "mean", "low", "high"])
    table["p"] = [float(p[name]) for name in complete]
    table["distinguishable"] = table["p"] < ALPHA
    table["n_resamples"] = len(plan.splits)
    table["test"] = plan.test
    order = table["mean"].argsort(kind="stable")
    order = order[::-1] if plan.measure.greater_is_better else order
    return summary, table.iloc[order].reset_index(drop=True)


def fold_means(results: pd.DataFrame, summary: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Scores by fold, averaged over the seeds, in the order of the summary."""
    group = summary.columns[0]
    folds = results.groupby([group, "fold"])[metric].mean()
    return {name: folds[name].to_numpy() for name in summary[group]}
