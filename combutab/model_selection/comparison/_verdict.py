"""Activations beside baselines: who beats the guess, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from combutab.evaluation import (
    corrected_interval,
    corrected_resampled_ttest,
    holm,
    p_words,
    summarise,
    wilcoxon,
)
from combutab.model_selection._scores import METRICS
from combutab.model_selection.comparison._baselines import GUESSES
from combutab.model_selection.comparison._plan import ComparisonPlan

_ALPHA = 0.05


def judge(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Test activations and baselines against each other, by the plan's test over the folds.

    ``summary`` is of the activations, the best first; it is returned with ``p_guess`` and
    ``beats_guess`` where the guess is among the baselines, and with a table of one row a baseline,
    the best first. ``results`` and ``scored`` have the scores of the networks, and of the baselines
    by fold.
    """
    measure = METRICS[plan.task][plan.metric]
    folds = results.groupby(["activation", "fold"])[plan.metric].mean()
    nets = {name: folds[name].to_numpy() for name in summary["activation"]}
    by_name = {
        str(name): rows.sort_values("fold")[plan.metric].to_numpy()
        for name, rows in scored.groupby("baseline", sort=False)
    }
    known = {name: scores for name, scores in by_name.items() if np.isfinite(scores).all()}
    best = next(iter(nets.values()))
    others = [name for name in known if name != "guess"]
    p = dict(zip(others, holm([_p(plan, best, known[name]) for name in others]), strict=True))
    if "guess" in known:
        guess = known["guess"]
        p_guess = holm([_p(plan, scores, guess) for scores in nets.values()])
        better = [_better(plan, scores, guess) for scores in nets.values()]
        summary = summary.assign(p_guess=p_guess, beats_guess=(p_guess < _ALPHA) & better)
        p["guess"] = p_guess[0]
    rows = []
    for name, scores in known.items():
        interval = corrected_interval(scores, n_train=plan.n_train, n_test=plan.n_test)
        low, high = np.clip([interval.low, interval.high], measure.low, measure.high)
        rows.append({"baseline": name, "mean": interval.mean, "low": low, "high": high})
    table = pd.DataFrame(rows, columns=["baseline", "mean", "low", "high"])
    table["p"] = [float(p[name]) for name in known]
    table["distinguishable"] = table["p"] < _ALPHA
    table["n_resamples"] = len(plan.splits)
    table["test"] = plan.test
    order = table["mean"].argsort(kind="stable")
    return summary, table.iloc[order[::-1] if measure.greater_is_better else order].reset_index(
        drop=True
    )


def sentences(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, baselines: pd.DataFrame
) -> list[str]:
    """Say the summary in sentences, the verdict first."""
    first, *others = summarise(summary, score=METRICS[plan.task][plan.metric].label).splitlines()
    guess = baselines[baselines["baseline"] == "guess"]
    lines = [first]
    if len(guess):
        lines = _beside_guess(plan, first, summary, float(guess["mean"].iloc[0]))
    lines += _beside_learners(plan, summary, baselines[baselines["baseline"] != "guess"])
    return [*lines, *others, *_one_answer(plan, results)]


def _beside_guess(
    plan: ComparisonPlan, first: str, summary: pd.DataFrame, mean: float
) -> list[str]:
    best, label = summary.iloc[0], METRICS[plan.task][plan.metric].label
    guess = f"the guess ({GUESSES[plan.metric]}) has a mean {label} of {mean:.4g}"
    beaten = summary["beats_guess"].astype(bool)
    if best["beats_guess"]:
        lines = [first, f"It beats guessing ({p_words(best['p_guess'])}): {guess}."]
        short = f"No better than guessing at the {100 * _ALPHA:g} % level"
        return lines + _listed(short, summary[~beaten])
    none = "No activation beats guessing" if not beaten.any() else "The best mean is no winner"
    n, k = len(summary), int(best["n_resamples"])
    if plan.test == "wilcoxon" and n * 2.0 ** (1 - k) >= _ALPHA:
        why = f"over {k} resamples the Wilcoxon test cannot tell any of {n} from a guess"
    elif best["mean"] != mean and (best["mean"] > mean) == _greater(plan):
        p = p_words(best["p_guess"])
        why = f"{best['activation']} is not significantly different from it ({p})"
    else:
        why = f"{best['activation']} has {best['mean']:.4g}"
    return [
        f"{none}: {guess}, and {why}.",
        f"Of the activations {first}",
        *_listed("These beat guessing", summary[beaten]),
    ]


def _listed(what: str, rows: pd.DataFrame) -> list[str]:
    named = (
        f"{name} ({p_words(p)})"
        for name, p in zip(rows["activation"], rows["p_guess"], strict=True)
    )
    return [f"{what}: {', '.join(named)}."] if len(rows) else []


def _beside_learners(
    plan: ComparisonPlan, summary: pd.DataFrame, learners: pd.DataFrame
) -> list[str]:
    """The best activation beside the baselines that learn."""
    best = summary.iloc[0]
    better = (learners["mean"] > best["mean"]) == _greater(plan)
    apart = learners["distinguishable"].astype(bool)
    lines = []
    for rows, verdict in (
        (learners[apart & better], f"Better than {best['activation']}"),
        (learners[~apart], f"Baselines not significantly different from {best['activation']}"),
        (learners[apart & ~better], f"Worse than {best['activation']}"),
    ):
        named = [
            f"{name} {mean:.4g} ({p_words(p)})"
            for name, mean, p in rows[["baseline", "mean", "p"]].to_numpy()
        ]
        if named:
            lines.append(f"{verdict}: {', '.join(named)}.")
    return lines


def _one_answer(plan: ComparisonPlan, results: pd.DataFrame) -> list[str]:
    """Name the networks that give the same answer to all rows."""
    counts = results.groupby("activation", sort=False)["constant"].sum()
    n_fits = len(plan.splits) * plan.seeds
    answer = "the same class" if plan.task == "classification" else "nearly the same number"
    if not counts.any():
        return []
    if (counts == n_fits).all():
        which = f"All {counts.sum()} networks"
    else:
        which = "Networks of " + _and(
            f"{name} ({n} of {n_fits})" for name, n in counts.items() if n
        )
    return [f"{which} answer {answer} for every row of their test fold."]


def _and(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _p(plan: ComparisonPlan, a: np.ndarray, b: np.ndarray) -> float:
    if plan.test == "wilcoxon":
        return float(wilcoxon(a, b).pvalue)
    sizes = {"n_train": plan.n_train, "n_test": plan.n_test}
    return float(corrected_resampled_ttest(a, b, **sizes).pvalue)


def _better(plan: ComparisonPlan, a: np.ndarray, b: np.ndarray) -> bool:
    return bool(a.mean() > b.mean()) if _greater(plan) else bool(a.mean() < b.mean())


def _greater(plan: ComparisonPlan) -> bool:
    return METRICS[plan.task][plan.metric].greater_is_better
