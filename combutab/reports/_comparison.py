"""The page of a comparison of activations or models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.core.metrics import METRICS, NOT_SHOWN
from combutab.core.text import format_p, join_names, one_line
from combutab.evaluation import interval_words
from combutab.model_selection import GUESSES, ModelComparison
from combutab.plotting import plot_comparison
from combutab.reports._charts import shorten_middle
from combutab.reports._page import (
    inline_svg,
    render,
    say,
    svg_style,
    versions,
    without_control,
)

if TYPE_CHECKING:
    from markupsafe import Markup


# ---- The verdict of a comparison for a reader in a hurry: three questions, a card each -----------

_NOUNS = {"activation": "activation function", "model": "model"}
_NAMED = 3  # names in a sentence before the others are counted
# The score of a model in a sentence, and the format of the number
_PHRASES = {
    "accuracy": ("predicts the correct class for {} of the test rows", "{:.1%}"),
    "balanced_accuracy": ("has a balanced accuracy of {} on the test rows", "{:.1%}"),
    "average_precision": ("has an average precision of {} (1 is perfect)", "{:.3g}"),
    "r2": ("explains {} of the variance in the test rows", "{:.1%}"),
    "f1": ("has an F1 of {} (1 is perfect)", "{:.3g}"),
    "f1_macro": ("has a macro F1 of {} (1 is perfect)", "{:.3g}"),
    "roc_auc": ("has a ROC AUC of {} (0.5 is chance, 1 is perfect)", "{:.3g}"),
    "log_loss": ("has a log loss of {} (0 is perfect)", "{:.3g}"),
    "mae": ("has a mean absolute error of {} standard deviations of the target", "{:.3g}"),
    "rmse": ("has an RMSE of {} standard deviations of the target", "{:.3g}"),
    "mape": ("has a mean absolute error of {} of the target", "{:.1%}"),
    "mse": ("has a mean squared error of {} variances of the target", "{:.3g}"),
}


@dataclass(frozen=True)
class Card:
    """The answer to one question; ``level`` sets its icon and colour, ``word`` is its label."""

    subject: str
    level: str
    word: str
    short: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verdict_cards(comparison: ModelComparison) -> list[Card]:
    """Answer which one is best, whether it learned, and whether it is worth a network."""
    cards = [_best_card(comparison), _guess_card(comparison), _learners_card(comparison)]
    return [card for card in cards if card is not None]


def _score_in_words(metric: str, value: float) -> str:
    """A score as people say it: shares in percent."""
    return _PHRASES[metric][1].format(value).replace("%", " %")


def _score_told(metric: str, value: float) -> str:
    if metric == "r2" and value < 0.0005:  # 0.0 %
        return f"explains no variance in the test rows (R2 {value:.2g})"
    return _PHRASES[metric][0].format(_score_in_words(metric, value))


def _best_card(comparison: ModelComparison) -> Card:
    best, contenders = comparison.best, comparison.summary.iloc[1:]
    differs = contenders["distinguishable"].astype(bool)
    near, behind = contenders[comparison.group][~differs], contenders[comparison.group][differs]
    if not len(contenders):
        case, level, word = "alone", "unknown", "only one"
    elif differs.all():
        case, level, word = "clear", "good", "clear"
    elif differs.any():
        case, level, word = "close", "fair", "several"
    else:
        case, level, word = "open", "unknown", "not decided"
    lists: dict[str, Any] = {"near": near, "behind": behind, "together": [best, *near]}
    names = {name: join_names(group, _NAMED) for name, group in lists.items()}
    noun = _NOUNS[comparison.group]
    short, *said = say("best_card", why=case, noun=noun, best=one_line(best), **names)
    return Card(f"Best {comparison.group}", level, word, short, tuple(said))


def _guess_card(comparison: ModelComparison) -> Card:
    line, metric = comparison.summary.iloc[0], comparison.guess_metric
    label = METRICS[comparison.task][metric].title
    low, high = (_score_in_words(comparison.metric, line[end]) for end in ("low", "high"))
    score, scored = _score_told(comparison.metric, line["mean"]), comparison.baseline_results
    guess = scored[scored.get("baseline", pd.Series(dtype=str)) == "guess"]
    subject, other_measures = "Better than guessing", comparison.other_measures
    if not len(guess):
        why, level, word = "unknown", "unknown", "not tested"
    elif comparison.winner:
        why, level, word = "yes", "good", "yes" if metric == comparison.metric else f"by {label}"
    else:
        why = "best" if comparison.summary["beats_guess"].any() else "none"
        level, word = ("fair", f"not by {label}") if other_measures else ("poor", "no")
    if metric != comparison.metric:
        of_best = comparison.results.loc[
            comparison.results[comparison.group] == comparison.best, metric
        ]
        score += f" and {_score_told(metric, float(of_best.mean()))}"
    short, *said = say(
        "guess_card",
        why=why,
        noun=_NOUNS[comparison.group],
        best=one_line(comparison.best),
        score=score,
        label=label,
        others=other_measures,
        guess=GUESSES[metric],
        guessing=_score_told(metric, float(guess[metric].mean())) if len(guess) else "",
        around=(low, high) if low != high else (),
        measure=comparison.measure.title,
    )
    return Card(subject, level, word, short, tuple(said))


def _learners_card(comparison: ModelComparison) -> Card | None:
    if comparison.baselines.empty:
        return None
    table = comparison.baselines[comparison.baselines["baseline"] != "guess"]
    if table.empty:
        return None
    mean, names = float(comparison.summary["mean"].iloc[0]), table["baseline"]
    differs = table["distinguishable"].to_numpy(dtype=bool)
    is_better = np.asarray((table["mean"] > mean) == comparison.measure.greater_is_better)
    if (differs & is_better).any():
        which, why, level, word = names[differs & is_better], "ahead", "poor", "no"
    elif differs.all():
        which, why, level, word = names, "behind", "good", "yes"
    else:
        which, why, level, word = names[~differs], "near", "fair", "not significantly"
    best, label = one_line(comparison.best), comparison.measure.title
    scores = [(best, mean), *table[["baseline", "mean"]].itertuples(index=False)]
    short, *said = say(
        "learners_card",
        why=why,
        best=best,
        which=join_names(which, _NAMED),
        n=len(which),
        label=label[0].upper() + label[1:],
        scores=", ".join(
            f"{name} {_score_in_words(comparison.metric, score)}" for name, score in scores
        ),
    )
    return Card("Better than other models", level, word, short, tuple(said))


# ---- The dot plot of a comparison as a part of its page ------------------------------------------

_NAME = 24  # letters of a name at the axis of the plot


def dot_plot(comparison: ModelComparison) -> Markup:
    """Draw `plot_comparison` without title, and with short names."""
    with svg_style():
        figure = plot_comparison(comparison)
        (axes,) = figure.axes
        axes.set_title("", loc="left")
        axes.set_ylabel("")
        names = [
            shorten_middle(" ".join(without_control(label.get_text()).split()), _NAME)
            for label in axes.get_yticklabels()
        ]
        axes.set_yticks(axes.get_yticks(), names, parse_math=False)
        title = f"Scores of the {comparison.group}s: {comparison.measure.description}"
        return inline_svg(figure, title, _description(comparison), kind="fixed")


def _description(comparison: ModelComparison) -> str:
    """Describe the plot in text: each mean, its interval and the result of the test."""
    descriptions = []
    for kind, table in ((comparison.group, comparison.summary), ("baseline", comparison.baselines)):
        for _, line in table.iterrows():
            ends = interval_words(line["low"], line["high"])
            descriptions.append(
                f"{line[kind]}{', a baseline' * (kind == 'baseline')}: mean {line['mean']:.4g}, "
                + (f"interval {ends}" if ends else "the same score in all folds")
                + ", significantly different from the best" * bool(line["distinguishable"])
            )
    return "; ".join(descriptions)


# ---- The page of a comparison --------------------------------------------------------------------

_TESTS = {"corrected-t": "corrected resampled t-test", "wilcoxon": "Wilcoxon's signed-rank test"}
_NARROW = 0.01  # of the largest mean: an interval that three digits would not show
_VERDICTS = {True: "significantly different", False: "not significantly different"}


def comparison_page(comparison: ModelComparison) -> str:
    """Render the comparison as one self-contained HTML page."""
    settings = comparison.settings
    return render(
        "comparison.html",
        version=__version__,
        sections=[
            ("scores", "Scores"),
            ("other", "Other metrics"),
            ("made", "Settings"),
            ("reading", "How to read"),
        ],
        found=comparison,
        measure=comparison.measure,
        cards=verdict_cards(comparison),
        sentences=comparison.sentences.splitlines(),
        summary=_score_rows(comparison, comparison.summary),
        guessed="p_guess" in comparison.summary,
        baselines=_score_rows(comparison, comparison.baselines),
        guess=GUESSES[comparison.guess_metric],
        guess_label=METRICS[comparison.task][comparison.guess_metric].title
        if comparison.guess_metric != comparison.metric
        else "",
        picture=dot_plot(comparison),
        folds=_fold_table(comparison),
        other=_other(comparison),
        noun=_NOUNS[comparison.group],
        made=_settings(settings),
        versions=versions(),
        test=str(comparison.summary["test"].iloc[0]),
    )


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as the page shows them."""
    rows = settings | {"test": _TESTS[settings["test"]]}
    rows["baselines"] = ", ".join(settings["baselines"]) or "none"
    if "hidden" in settings:
        rows["hidden"] = f"{' and '.join(map(str, settings['hidden']))} units"
    return rows | rows.pop("models", {})


def _score_rows(comparison: ModelComparison, table: pd.DataFrame) -> list[dict[str, str]]:
    """One row per activation, model or baseline; ``verdict`` is the result of the test."""
    digits = _digits(comparison)
    best = "best" if comparison.winner else "best mean, not better than guessing"
    return [
        {
            "name": str(line.iloc[0]),
            "mean": _fixed(line["mean"], digits),
            "interval": interval_words(line["low"], line["high"], digits)
            or "the same in all folds",
            "mean_rank": f"{line.get('mean_rank', np.nan):.2f}",
            "p": "–" if np.isnan(line["p"]) else format_p(line["p"]),
            "verdict": best if np.isnan(line["p"]) else _VERDICTS[bool(line["distinguishable"])],
            "guess": "yes" if line.get("beats_guess") else "no",
        }
        for _, line in table.iterrows()
    ]


def _fold_table(comparison: ModelComparison) -> dict[str, Any]:
    """Each fold's score, the mean of its seeds: the dots of the chart as numbers."""
    wide = comparison.results.pivot_table(
        index=comparison.group, columns="fold", values=comparison.metric
    )
    wide = wide.loc[comparison.summary[comparison.group]]
    return {
        "names": [str(int(fold) + 1) for fold in wide.columns],
        "rows": _number_rows(wide, [_digits(comparison)] * wide.shape[1]),
    }


def _other(comparison: ModelComparison) -> dict[str, Any]:
    """Means of the measures, the compared one first."""
    task_metrics = METRICS[comparison.task]
    other_metrics = (name for name in task_metrics if name not in (comparison.metric, *NOT_SHOWN))
    metrics = [comparison.metric, *other_metrics]
    means = (
        comparison.results.groupby(comparison.group)[metrics]
        .mean()
        .loc[comparison.summary[comparison.group]]
    )
    digits = [
        _decimals_shown(means[name]) + 1 for name in metrics
    ]  # columns can have small and large values
    rows = _number_rows(means, digits)
    if not comparison.baselines.empty:
        means = comparison.baseline_results.groupby("baseline")[metrics].mean()
        rows += _number_rows(means.loc[comparison.baselines["baseline"]], digits)
    return {"measures": [task_metrics[name] for name in metrics], "rows": rows}


def _number_rows(table: pd.DataFrame, decimals: Sequence[int]) -> list[tuple[str, list[str]]]:
    """The name and numbers of each row; ``decimals`` has a number per column."""
    return [
        (str(name), [_fixed(value, n) for value, n in zip(row, decimals, strict=True)])
        for name, row in table.iterrows()
    ]


def _digits(comparison: ModelComparison) -> int:
    """Decimals of the scores: one more where an interval is narrow."""
    summary = comparison.summary
    narrow = (summary["high"] - summary["low"]).min() < _NARROW * summary["mean"].abs().max()
    return _decimals_shown(summary["mean"]) + bool(narrow)


def _decimals_shown(values: pd.Series) -> int:
    """Decimals that give the largest value three digits."""
    largest = float(values.abs().max())
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 3


def _fixed(value: float, decimals: int) -> str:
    return "–" if value != value else f"{value:,.{decimals}f}"  # NaN: a class is in no test fold
