"""Results of a comparison in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.metrics import METRICS, NOT_SHOWN
from combutab.core.text import counted, join_names, join_with_smallest_p
from combutab.estimators import MLPClassifier
from combutab.evaluation import holm, p_words, summarise
from combutab.model_selection._baselines import ALPHA, GUESSES, fold_means
from combutab.model_selection._models import SIMPLEST_FIRST
from combutab.model_selection._plan import ComparisonPlan


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
    name, label, p = best.iloc[0], METRICS[plan.task][metric].title, p_words(best["p_guess"])
    mean, score = float(guesses[metric].mean()), _mean_score(results, plan.group, name, metric)
    guess = f"guessing ({GUESSES[metric]}) scores {round(mean, 4):.4g}"
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
            names = join_with_smallest_p(unbeaten[plan.group], unbeaten["p_guess"])
            level = f"at the {100 * ALPHA:g} % level"
            lines.append(f"Not significantly better than guessing {level}: {names}.")
        return lines
    none = f"{name}, which has the best mean, is not significantly better than guessing by {label}"
    if not beaten.any():
        none = f"No {plan.group} is significantly better than guessing by {label}"
    n, k = len(summary), int(best["n_resamples"])
    if plan.test == "wilcoxon" and n * 2.0 ** (1 - k) >= ALPHA:
        why = (
            f"with {k} folds Wilcoxon's test cannot find a significant difference for "
            f"{counted(n, plan.group)}"
        )
    elif plan.is_better(score, mean, metric):
        why = f"{name} is not significantly different from it ({p})"
    else:
        why = f"{name} has {score:.4g}"
    return [
        f"{none}: {guess}, and {why}.",
        *([others_beat] if others_beat else ()),
        f"Among the {plan.group}s, {first}",
        *_beating_sentence(summary[beaten]),
    ]


def _beating_sentence(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows.iloc[:, 0], rows["p_guess"], strict=True)
    names = (f"{name} ({p_words(p)})" for name, p in pairs)
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
    """Give the mean of the best one by the other measures, and their units."""
    best = str(summary.iloc[0, 0])
    scores_listed: list[str] = []
    units: dict[str, list[str]] = {}
    for metric, measure in METRICS[plan.task].items():
        score = _mean_score(results, plan.group, best, metric)
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


def _mean_score(results: pd.DataFrame, group: str, name: str, metric: str) -> float:
    return float(results.loc[results[group] == name, metric].mean(skipna=False))


def _learner_sentences(
    plan: ComparisonPlan, summary: pd.DataFrame, learners: pd.DataFrame
) -> list[str]:
    """Compare the best one with the trained baselines."""
    best, name = summary.iloc[0], str(summary.iloc[0, 0])
    better = learners["mean"].map(lambda mean: plan.is_better(mean, best["mean"]))
    differs = learners["distinguishable"].astype(bool)
    lines = []
    for rows, verdict in (
        (learners[differs & better], f"Better than {name}"),
        (learners[~differs], f"Baselines not significantly different from {name}"),
        (learners[differs & ~better], f"Worse than {name}"),
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
    counts = results.groupby(plan.group, sort=False)["constant"].sum()
    n_fits = len(plan.splits) * plan.seeds
    answer = "the same class" if plan.task == "classification" else "nearly the same number"
    if not counts.any():
        return []
    if (counts == n_fits).all():
        which = f"All {counts.sum()} {plan.fit_noun}s"
    else:
        which = f"{plan.fit_noun.capitalize()}s of " + join_names(
            f"{name} ({n} of {n_fits})" for name, n in counts.items() if n
        )
    return [f"{which} predict {answer} for every row of their test fold."]


def other_measures(
    plan: ComparisonPlan, summary: pd.DataFrame, results: pd.DataFrame, scored: pd.DataFrame
) -> str:
    """Name the metrics by which one beats the guess, if the best by the metric does not.

    All rows of the summary and metrics are tested together, with Holm's correction. The sentence
    is empty if there is no such metric.
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
    return f"Some {plan.group} is significantly better than guessing {listing}." if best else ""


_SAME = 0.001  # differences of means below this do not matter; all scores are without a unit


def write_advice(summary: pd.DataFrame, baselines: pd.DataFrame, greater_is_better: bool) -> str:
    """Say what to do in a sentence or two, from the tables of a `ModelComparison`.

    The advice is to use the model, activation or baseline with the best mean. A simpler model, or
    the default activation, is preferred only if its mean is worse by less than 0.001. If it is
    worse by more, but not significantly, it may or may not be as good: the advice then gives the
    difference and the p-value, and says that these rows cannot decide.
    """
    group, best = str(summary.columns[0]), summary.iloc[0]
    if not best.get("beats_guess", True):
        return (
            f"No choice of the {group} helps here: {best.iloc[0]} is not better than guessing. "
            "Check the target and the columns, or collect more rows."
        )
    rows = summary.rename(columns={group: "name"})
    similar = rows[~rows["distinguishable"].astype(bool)]
    if group == "model":
        return _advise_model(rows, similar)
    if not len(baselines):
        return _advise_activation(rows, similar, similar[:0])
    learners = baselines[baselines["baseline"] != "guess"].rename(columns={"baseline": "name"})
    gains = (learners["mean"] - best["mean"]) * (1 if greater_is_better else -1)
    differs = learners["distinguishable"].astype(bool)
    if (differs & (gains > 0)).any():
        name = learners.loc[differs & (gains > 0), "name"].iloc[0]
        return f"Use {name} instead of a network: it is significantly better."
    if (gains > -_SAME).any():
        return _advise_baseline(learners[gains > -_SAME], rows)
    linear = learners[(learners["name"] == "linear") & ~differs]
    return _advise_activation(rows, similar, linear)


def _advise_model(rows: pd.DataFrame, similar: pd.DataFrame) -> str:
    name, simplest = rows["name"].iloc[0], _simplest(rows)
    if simplest != name:
        return f"Use {simplest}: it is simpler than {name}, and not worse by {_SAME} or more."
    if len(rows) == 1:
        return f"Use {name}."
    if len(similar) == 1:
        return f"Use {name}: it is significantly better than the others."
    return f"Use {name}, which has the best mean.{_undecided(rows, similar[1:])}"


def _advise_baseline(as_good: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Advise a baseline that is as good as the best network, or better, but not significantly."""
    name, network = _simplest(as_good), rows["name"].iloc[0]
    if name == "linear":
        return f"Use linear: it is simpler than a network, and not worse by {_SAME} or more."
    baseline = as_good[as_good["name"] == name]
    if abs(baseline["mean"].iloc[0] - rows["mean"].iloc[0]) < _SAME:
        return f"Use {network} or {name}: their means differ by less than {_SAME}."
    networks = rows[:1].assign(p=baseline["p"].iloc[0])
    return f"Use {name}, which has the best mean.{_undecided(baseline, networks)}"


def _advise_activation(rows: pd.DataFrame, similar: pd.DataFrame, linear: pd.DataFrame) -> str:
    best, default = rows["name"].iloc[0], str(MLPClassifier().activation)
    alternatives = similar[1:]
    advice = f"Use {best}, which has the best mean."
    if default == best:
        advice = f"Keep the default activation, {default}, which has the best mean."
        alternatives = alternatives[:0]
    elif default in _same_mean(rows):
        advice = f"Keep the default activation, {default}: no other is better by {_SAME} or more."
        alternatives = alternatives[:0]
    elif default in alternatives["name"].tolist():
        alternatives = alternatives[alternatives["name"] == default]
    elif default in rows["name"].tolist():
        advice = f"Use {best}: it is significantly better than the default activation, {default}."
        alternatives = alternatives[:0]
    notes = {default: "the default activation, ", "linear": "simpler, "}
    return advice + _undecided(rows, pd.concat([alternatives, linear]), notes)


def _same_mean(rows: pd.DataFrame) -> list[str]:
    """Return the names of those whose means differ from that of the first by less than 0.001."""
    names = rows.loc[(rows["mean"] - rows["mean"].iloc[0]).abs() < _SAME, "name"]
    return list(names)


def _simplest(rows: pd.DataFrame) -> str:
    """Return the simplest of the models whose means are the same as that of the first row."""
    names = _same_mean(rows)
    return next((name for name in SIMPLEST_FIRST if name in names), names[0])


def _undecided(
    best: pd.DataFrame, alternatives: pd.DataFrame, notes: Mapping[str, str] = {}
) -> str:
    """Say how much worse than the first row of ``best`` the alternatives are, with p-values."""
    names = [
        f"{name} ({notes.get(name, '')}{abs(mean - best['mean'].iloc[0]):.2g} worse, {p_words(p)})"
        for name, mean, p in alternatives[["name", "mean", "p"]].to_numpy()
    ]
    return f" These rows cannot decide between {join_names(['it', *names], 4)}." if names else ""
