"""Results of a comparison in sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from combutab.core.metrics import METRICS, NOT_SHOWN
from combutab.core.text import counted, join_names, join_with_smallest_p
from combutab.evaluation import holm, p_words, summarise
from combutab.model_selection._baselines import GUESSES
from combutab.model_selection._plan import ComparisonPlan
from combutab.model_selection._significance import ALPHA, fold_means


def sentences(
    plan: ComparisonPlan,
    summary: pd.DataFrame,
    results: pd.DataFrame,
    scored: pd.DataFrame,
    baselines: pd.DataFrame,
    others_beat: str,
) -> list[str]:
    """Say the summary in sentences, the verdict first; ``others_beat`` is `other_measures`."""
    first, *other_lines = summarise(summary, score=plan.measure.title).splitlines()
    guesses = scored[scored["baseline"] == "guess"]
    lines = [first]
    if "beats_guess" in summary:
        lines = _guess_sentences(plan, first, summary, results, guesses, others_beat)
    lines += _learner_sentences(plan, summary, baselines[baselines["baseline"] != "guess"])
    lines += [*other_lines, _measures_sentence(plan, summary, results, guesses)]
    return [*lines, *_constant_sentences(plan, results)]


def _guess_sentences(
    plan: ComparisonPlan,
    first: str,
    summary: pd.DataFrame,
    results: pd.DataFrame,
    guesses: pd.DataFrame,
    others_beat: str,
) -> list[str]:
    best, metric = summary.iloc[0], plan.guess_metric
    name, label, p = best["activation"], METRICS[plan.task][metric].title, p_words(best["p_guess"])
    mean, score = float(guesses[metric].mean()), _mean_score(results, name, metric)
    guess = f"guessing ({GUESSES[metric]}) has a mean {label} of {mean:.4g}"
    beaten = summary["beats_guess"].astype(bool)
    if best["beats_guess"]:
        lines = [first, f"It is significantly better than guessing ({p}): {guess}."]
        if metric != plan.metric:
            lines[1] = (
                f"It is significantly better than guessing by {label} ({score:.4g}, guessing "
                f"{mean:.4g}, {p})."
            )
            lines += _no_better_words(plan, best, float(guesses[plan.metric].mean()))
        if not beaten.all():
            unbeaten = summary[~beaten]
            names = join_with_smallest_p(unbeaten["activation"], unbeaten["p_guess"])
            level = f"at the {100 * ALPHA:g} % level"
            lines.append(f"Not significantly better than guessing {level}: {names}.")
        return lines
    none = f"{name}, which has the best mean, is not significantly better than guessing by {label}"
    if not beaten.any():
        none = f"No activation is significantly better than guessing by {label}"
    n, k = len(summary), int(best["n_resamples"])
    if plan.test == "wilcoxon" and n * 2.0 ** (1 - k) >= ALPHA:
        why = (
            f"with {k} resamples the Wilcoxon test cannot find a significant difference for "
            f"{counted(n, 'activation')}"
        )
    elif plan.is_better(score, mean, metric):
        why = f"{name} is not significantly different from it ({p})"
    else:
        why = f"{name} has {score:.4g}"
    return [
        f"{none}: {guess}, and {why}.",
        *([others_beat] if others_beat else ()),
        f"Among the activations, {first}",
        *_beating_sentence(summary[beaten]),
    ]


def _beating_sentence(rows: pd.DataFrame) -> list[str]:
    names = (f"{name} ({p_words(p)})" for name, p in rows[["activation", "p_guess"]].to_numpy())
    return [f"Significantly better than guessing: {', '.join(names)}."] if len(rows) else []


def _no_better_words(plan: ComparisonPlan, best: pd.Series, guess: float) -> list[str]:
    """Sentence for a guess that is as good by a metric of predicted labels."""
    if plan.is_better(best["mean"], guess):
        return []
    return [
        f"By {plan.measure.title}, guessing ({GUESSES[plan.metric]}) is at least as good, with "
        f"{guess:.4g}. For imbalanced classes, compare by roc_auc, average_precision or log_loss."
    ]


def _measures_sentence(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, guesses: pd.DataFrame
) -> str:
    """Give the best activation's mean by the other measures, and their units."""
    best = summary["activation"].iloc[0]
    scores_listed: list[str] = []
    units: dict[str, list[str]] = {}
    for metric, measure in METRICS[plan.task].items():
        score = _mean_score(results, best, metric)
        if metric not in (plan.metric, *NOT_SHOWN) and np.isfinite(score):
            guess = f" (guessing {guesses[metric].mean():.3g})" if len(guesses) else ""
            scores_listed.append(f"{measure.title} {score:.4g}{guess}")
            if measure.unit:
                units.setdefault(measure.unit, []).append(measure.title)
    units_listed = [
        f"{join_names(titles)} {'are' if len(titles) > 1 else 'is'} in {unit}"
        for unit, titles in units.items()
    ]
    return f"Other metrics of {best}: {join_names(scores_listed)}." + (
        f" {join_names(units_listed)}." if units_listed else ""
    )


def _mean_score(results: pd.DataFrame, activation: str, metric: str) -> float:
    return float(results.loc[results["activation"] == activation, metric].mean(skipna=False))


def _learner_sentences(
    plan: ComparisonPlan, summary: pd.DataFrame, learners: pd.DataFrame
) -> list[str]:
    """Compare the best activation with the trained baselines."""
    best = summary.iloc[0]
    better = learners["mean"].map(lambda mean: plan.is_better(mean, best["mean"]))
    differs = learners["distinguishable"].astype(bool)
    lines = []
    for rows, verdict in (
        (learners[differs & better], f"Better than {best['activation']}"),
        (learners[~differs], f"Baselines not significantly different from {best['activation']}"),
        (learners[differs & ~better], f"Worse than {best['activation']}"),
    ):
        names_and_scores = [
            f"{name} {mean:.4g} ({p_words(p)})"
            for name, mean, p in rows[["baseline", "mean", "p"]].to_numpy()
        ]
        if names_and_scores:
            lines.append(f"{verdict}: {', '.join(names_and_scores)}.")
    return lines


def _constant_sentences(plan: ComparisonPlan, results: pd.DataFrame) -> list[str]:
    """Name the networks that give the same answer to all rows."""
    counts = results.groupby("activation", sort=False)["constant"].sum()
    n_fits = len(plan.splits) * plan.seeds
    answer = "the same class" if plan.task == "classification" else "nearly the same number"
    if not counts.any():
        return []
    if (counts == n_fits).all():
        which = f"All {counts.sum()} networks"
    else:
        which = "Networks of " + join_names(
            f"{name} ({n} of {n_fits})" for name, n in counts.items() if n
        )
    return [f"{which} predict {answer} for every row of their test fold."]


def other_measures(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> str:
    """Name the metrics by which an activation beats the guess, if the best one does not.

    All activations and metrics are tested together, with Holm's correction. The sentence is empty
    if there is no such metric.
    """
    if "beats_guess" not in summary or summary["beats_guess"].iloc[0]:
        return ""
    guesses = scored[scored["baseline"] == "guess"].sort_values("fold")
    tested = []
    for metric, measure in METRICS[plan.task].items():
        guess = guesses[metric].to_numpy()
        for name, scores in fold_means(results, summary, metric).items():
            if metric != plan.guess_metric and np.isfinite([scores, guess]).all():
                ahead = (scores.mean() - guess.mean()) * (1 if measure.greater_is_better else -1)
                words = f"{measure.title} ({name} {scores.mean():.4g}, guessing {guess.mean():.4g}"
                tested.append((metric, ahead, plan.p_value(scores, guess), words))
    corrected: Any = holm([p for _, _, p, _ in tested]) if tested else []
    best: dict[str, tuple[float, str]] = {}
    for (metric, ahead, _, words), p in zip(tested, corrected, strict=True):
        if p < ALPHA and ahead > best.get(metric, (0.0, ""))[0]:
            best[metric] = ahead, f"{words}, {p_words(p)})"
    listing = join_names(f"by {words}" for _, words in best.values()) if best else ""
    return f"Some activation is significantly better than guessing {listing}." if best else ""
