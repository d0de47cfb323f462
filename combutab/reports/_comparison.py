"""The page of a comparison of activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.core.metrics import METRICS, NOT_SHOWN
from combutab.evaluation import interval_words
from combutab.model_selection import GUESSES, ActivationComparison
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

_NAMED = 3  # names in a sentence before the others are counted
# What a score says of a model, and the score by itself
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
    """One question's answer; ``level`` is its sign and colour, ``word`` what it is called."""

    subject: str
    level: str
    word: str
    short: str
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def verdict_cards(found: ActivationComparison) -> list[Card]:
    """Answer which activation is best, whether it learned, and whether it is worth a network."""
    cards = [_best_card(found), _guess_card(found), _learners_card(found)]
    return [card for card in cards if card is not None]


def _score_in_words(metric: str, value: float) -> str:
    """A score as people say it: shares in percent."""
    return _PHRASES[metric][1].format(value).replace("%", " %")


def _score_told(metric: str, value: float) -> str:
    if metric == "r2" and value < 0.0005:  # 0.0 %
        return f"explains no variance in the test rows (R2 {value:.2g})"
    return _PHRASES[metric][0].format(_score_in_words(metric, value))


def _best_card(found: ActivationComparison) -> Card:
    best, rest = found.best, found.summary.iloc[1:]
    apart = rest["distinguishable"].astype(bool)
    near, behind = rest["activation"][~apart], rest["activation"][apart]
    if not len(rest):
        why, level, word = "alone", "unknown", "only one"
    elif apart.all():
        why, level, word = "clear", "good", "clear"
    elif apart.any():
        why, level, word = "close", "fair", "several"
    else:
        why, level, word = "open", "unknown", "not decided"
    lists = {"near": near, "behind": behind, "together": [best, *near]}
    names = {name: _first_names(each) for name, each in lists.items()}
    short, *said = say("best_card", why=why, best=_first_names([best]), **names)
    return Card("Best activation", level, word, short, tuple(said))


def _guess_card(found: ActivationComparison) -> Card:
    line, metric = found.summary.iloc[0], found.guess_metric
    label = METRICS[found.task][metric].title
    low, high = (_score_in_words(found.metric, line[end]) for end in ("low", "high"))
    score, scored = _score_told(found.metric, line["mean"]), found.baseline_results
    guess = scored[scored.get("baseline", pd.Series(dtype=str)) == "guess"]
    subject, others = "Better than guessing", found.other_measures
    if not len(guess):
        why, level, word = "unknown", "unknown", "not tested"
    elif found.winner:
        why, level, word = "yes", "good", "yes" if metric == found.metric else f"by {label}"
    else:
        why = "best" if found.summary["beats_guess"].any() else "none"
        level, word = ("fair", f"not by {label}") if others else ("poor", "no")
    if metric != found.metric:
        of_best = found.results.loc[found.results["activation"] == found.best, metric]
        score += f" and {_score_told(metric, float(of_best.mean()))}"
    short, *said = say(
        "guess_card",
        why=why,
        best=_first_names([found.best]),
        score=score,
        label=label,
        others=others,
        guess=GUESSES[metric],
        guessing=_score_told(metric, float(guess[metric].mean())) if len(guess) else "",
        around=(low, high) if low != high else (),
        measure=found.measure.title,
    )
    return Card(subject, level, word, short, tuple(said))


def _learners_card(found: ActivationComparison) -> Card | None:
    if found.baselines.empty:
        return None
    table = found.baselines[found.baselines["baseline"] != "guess"]
    if table.empty:
        return None
    mean, names = float(found.summary["mean"].iloc[0]), table["baseline"]
    apart = table["distinguishable"].to_numpy(dtype=bool)
    ahead = np.asarray((table["mean"] > mean) == found.measure.greater_is_better)
    if (apart & ahead).any():
        which, why, level, word = names[apart & ahead], "ahead", "poor", "no"
    elif apart.all():
        which, why, level, word = names, "behind", "good", "yes"
    else:
        which, why, level, word = names[~apart], "near", "fair", "not significantly"
    best, label = _first_names([found.best]), found.measure.title
    scores = [(best, mean), *table[["baseline", "mean"]].itertuples(index=False)]
    short, *said = say(
        "learners_card",
        why=why,
        best=best,
        which=_first_names(which),
        n=len(which),
        label=label[0].upper() + label[1:],
        scores=", ".join(
            f"{name} {_score_in_words(found.metric, score)}" for name, score in scores
        ),
    )
    return Card("Better than other models", level, word, short, tuple(said))


def _first_names(names: Any) -> str:
    """Join names; of many, the first and how many more."""
    known = [" ".join(str(name).split()) for name in names]
    more = len(known) - _NAMED
    if more > 1:
        return f"{', '.join(known[:_NAMED])} and {more} more"
    return " and ".join([", ".join(known[:-1]), known[-1]]) if len(known) > 1 else "".join(known)


# ---- The dot plot of a comparison as a part of its page ------------------------------------------

_NAME = 24  # letters of a name beside the plot


def dot_plot(found: ActivationComparison) -> Markup:
    """Draw `plot_comparison` with what the page does not say itself, and short names."""
    with svg_style():
        figure = plot_comparison(found)
        (axes,) = figure.axes
        axes.set_title("", loc="left")
        axes.set_ylabel("")
        names = [
            shorten_middle(" ".join(without_control(label.get_text()).split()), _NAME)
            for label in axes.get_yticklabels()
        ]
        axes.set_yticks(axes.get_yticks(), names, parse_math=False)
        title = f"Scores of the activations: {found.measure.description}"
        return inline_svg(figure, title, _description(found), kind="fixed")


def _description(found: ActivationComparison) -> str:
    """Say what the picture shows: each mean with its interval and its verdict."""
    said = []
    for kind, table in (("activation", found.summary), ("baseline", found.baselines)):
        for _, line in table.iterrows():
            ends = interval_words(line["low"], line["high"])
            said.append(
                f"{line[kind]}{', a baseline' * (kind == 'baseline')}: mean {line['mean']:.4g}, "
                + (f"interval {ends}" if ends else "the same score in all folds")
                + ", significantly different from the best" * bool(line["distinguishable"])
            )
    return "; ".join(said)


# ---- The page of a comparison of activations -----------------------------------------------------

_TESTS = {"corrected-t": "corrected resampled t-test", "wilcoxon": "Wilcoxon's signed-rank test"}
_NARROW = 0.01  # of the largest mean: an interval that three digits would not show
_VERDICTS = {True: "significantly different", False: "not significantly different"}


def comparison_page(found: ActivationComparison) -> str:
    """Render one self-contained HTML page of what was found."""
    settings = found.settings
    return render(
        "comparison.html",
        version=__version__,
        sections=[
            ("scores", "Scores"),
            ("other", "Other metrics"),
            ("made", "Settings"),
            ("reading", "How to read"),
        ],
        found=found,
        measure=found.measure,
        cards=verdict_cards(found),
        sentences=found.sentences.splitlines(),
        summary=_score_rows(found, found.summary),
        guessed="p_guess" in found.summary,
        baselines=_score_rows(found, found.baselines),
        guess=GUESSES[found.guess_metric],
        guess_label=METRICS[found.task][found.guess_metric].title
        if found.guess_metric != found.metric
        else "",
        picture=dot_plot(found),
        folds=_fold_table(found),
        other=_other(found),
        made={
            **settings,
            "test": _TESTS[settings["test"]],
            "hidden": f"{' and '.join(map(str, settings['hidden']))} units",
            "baselines": ", ".join(settings["baselines"]) or "none",
        },
        versions=versions(),
        test=str(found.summary["test"].iloc[0]),
    )


def _score_rows(found: ActivationComparison, table: pd.DataFrame) -> list[dict[str, str]]:
    """A row an activation or a baseline, the best first; ``verdict`` says what the test found."""
    digits = _digits(found)
    best = "best" if found.winner else "best mean, not better than guessing"
    return [
        {
            "name": str(line.iloc[0]),
            "mean": _fixed(line["mean"], digits),
            "interval": interval_words(line["low"], line["high"], digits)
            or "the same in all folds",
            "mean_rank": f"{line.get('mean_rank', np.nan):.2f}",
            "p": "–" if np.isnan(line["p"]) else _p_value(float(line["p"])),
            "verdict": best if np.isnan(line["p"]) else _VERDICTS[bool(line["distinguishable"])],
            "guess": "yes" if line.get("beats_guess") else "no",
        }
        for _, line in table.iterrows()
    ]


def _fold_table(found: ActivationComparison) -> dict[str, Any]:
    """Each fold's score, the mean of its seeds: the dots of the chart as numbers."""
    wide = found.results.pivot_table(index="activation", columns="fold", values=found.metric)
    wide = wide.loc[found.summary["activation"]]
    return {
        "names": [str(int(fold) + 1) for fold in wide.columns],
        "rows": _number_rows(wide, [_digits(found)] * wide.shape[1]),
    }


def _other(found: ActivationComparison) -> dict[str, Any]:
    """Means of the measures, the compared one first."""
    known = METRICS[found.task]
    others = (name for name in known if name not in (found.metric, *NOT_SHOWN))
    metrics = [found.metric, *others]
    means = found.results.groupby("activation")[metrics].mean().loc[found.summary["activation"]]
    digits = [_decimals_shown(means[name]) + 1 for name in metrics]  # small ones beside large
    rows = _number_rows(means, digits)
    if not found.baselines.empty:
        means = found.baseline_results.groupby("baseline")[metrics].mean()
        rows += _number_rows(means.loc[found.baselines["baseline"]], digits)
    return {"measures": [known[name] for name in metrics], "rows": rows}


def _number_rows(table: pd.DataFrame, decimals: Sequence[int]) -> list[tuple[str, list[str]]]:
    """Each row's name and numbers, with so many decimals in each column."""
    return [
        (str(name), [_fixed(value, n) for value, n in zip(row, decimals, strict=True)])
        for name, row in table.iterrows()
    ]


def _digits(found: ActivationComparison) -> int:
    """Decimals of the scores: one more where an interval is narrow."""
    summary = found.summary
    narrow = (summary["high"] - summary["low"]).min() < _NARROW * summary["mean"].abs().max()
    return _decimals_shown(summary["mean"]) + bool(narrow)


def _decimals_shown(values: pd.Series) -> int:
    """Decimals that give the largest value three digits."""
    largest = float(values.abs().max())
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 8)) if largest > 0 else 3


def _fixed(value: float, decimals: int) -> str:
    return "–" if value != value else f"{value:,.{decimals}f}"  # NaN: a class is in no test fold


def _p_value(p: float) -> str:
    """A p-value with two digits or so.

    >>> [_p_value(p) for p in (1.0, 0.6332, 0.0312, 0.00029, 1e-7)]
    ['1.00', '0.63', '0.031', '0.0003', '< 0.0001']
    """
    return "< 0.0001" if p < 1e-4 else f"{p:.{2 if p >= 0.1 else 3 if p >= 0.01 else 4}f}"
