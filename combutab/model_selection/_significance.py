"""Significance tests of a comparison: activations or models against baselines."""

from __future__ import annotations

import numpy as np
import pandas as pd

from combutab.evaluation import corrected_interval, holm
from combutab.model_selection._plan import ComparisonPlan

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
