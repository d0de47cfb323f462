"""The page of a comparison of activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab._version import __version__
from combutab.evaluation import interval_words
from combutab.model_selection import GUESSES, METRICS, ActivationComparison
from combutab.plotting import plot_comparison
from combutab.reports._charts import shorten_middle
from combutab.reports._page import (
    inline_svg,
    number,
    render,
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
    "accuracy": ("names the right class for {} of new rows", "{:.1%}"),
    "r2": ("explains {} of the variation in new rows", "{:.1%}"),
    "f1": ("has a macro F1 of {} on new rows (1 is perfect)", "{:.3g}"),
    "roc_auc": ("has a ROC AUC of {} on new rows (0.5 is chance, 1 perfect)", "{:.3g}"),
    "log_loss": ("has a log loss of {} on new rows (0 is perfect)", "{:.3g}"),
    "mae": ("is off by {} standard deviations of the target, on average", "{:.3g}"),
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


def _score_in_words(found: ActivationComparison, value: float) -> str:
    """A score as people say it: shares in percent."""
    return _PHRASES[found.metric][1].format(value).replace("%", " %")


def _score_told(found: ActivationComparison, value: float) -> str:
    if found.metric == "r2" and value < 0.0005:  # 0.0 %
        return f"explains nothing of the variation in new rows (R2 {value:.2g})"
    return _PHRASES[found.metric][0].format(_score_in_words(found, value))


def _best_card(found: ActivationComparison) -> Card:
    subject, best, rest = "The best activation", found.best, found.summary.iloc[1:]
    apart = rest["distinguishable"].astype(bool)
    near, behind = (_first_names(rows["activation"]) for rows in (rest[~apart], rest[apart]))
    if not len(rest):
        return Card(subject, "unknown", "one alone", f"{best} was compared with no other.", ())
    if apart.all():
        said = f"Chance does not explain its lead over {behind}."
        return Card(subject, "good", "clear", f"{best} is the best.", (said,))
    if not apart.any():
        said = f"{best} leads, but chance may explain its lead over {near}."
        return Card(subject, "unknown", "open", "None is clearly the best.", (said,))
    short = f"{_first_names([best, *rest[~apart]['activation']])} are too close to call."
    said = f"Chance may explain the lead of {best} over {near}, but not over {behind}."
    return Card(subject, "fair", "several", short, (said,))


def _guess_card(found: ActivationComparison) -> Card:
    line = found.summary.iloc[0]
    said = f"{found.best} {_score_told(found, line['mean'])}"
    low, high = (_score_in_words(found, line[end]) for end in ("low", "high"))
    around = (f"For other rows of the same kind: about {low} to {high}.",) if low != high else ()
    guess = found.baselines[found.baselines.get("baseline", pd.Series(dtype=str)) == "guess"]
    if not len(guess):
        return Card("What it learned", "unknown", "no guess beside", f"{said}.", around)
    guessing = _score_told(found, float(guess["mean"].iloc[0]))
    beside = (f"The guess ({GUESSES[found.metric]}) {guessing}.", *around)
    if found.winner:
        return Card("Better than a guess", "good", "yes", f"{said}.", beside)
    none = not found.summary["beats_guess"].any()
    short = "No activation is" if none else f"{found.best}, the best mean, is not"
    short = f"{short} surely better than guessing by {found.measure.label}."
    others = (found.other_measures,) if found.other_measures else ()
    level, word = ("fair", f"not by {found.measure.label}") if others else ("poor", "no")
    return Card("Better than a guess", level, word, short, (f"{said}.", *others, *beside))


def _learners_card(found: ActivationComparison) -> Card | None:
    if found.baselines.empty:
        return None
    table = found.baselines[found.baselines["baseline"] != "guess"]
    if table.empty:
        return None
    best, mean = found.best, float(found.summary["mean"].iloc[0])
    apart = table["distinguishable"].to_numpy(dtype=bool)
    ahead = np.asarray((table["mean"] > mean) == found.measure.greater_is_better)
    scores = [(best, mean), *table[["baseline", "mean"]].itertuples(index=False)]
    said = ", ".join(f"{name} {_score_in_words(found, score)}" for name, score in scores)
    label = found.measure.label
    said = f"{label[0].upper()}{label[1:]}: {said}."
    subject, names = "Better than simpler models", table["baseline"]
    if (apart & ahead).any():
        which = names[apart & ahead]
        verb = "is" if len(which) == 1 else "are"
        short = f"{_first_names(which)} {verb} better than every activation"
        return Card(subject, "poor", "no", f"{short} here.", (said,))
    if apart.all():
        return Card(
            subject, "good", "yes", f"{best} is better than {_first_names(names)}.", (said,)
        )
    which = names[~apart]
    verb = "does" if len(which) == 1 else "do"
    short = f"{_first_names(which)} {verb} as well, as far as can be told."
    return Card(subject, "fair", "not surely", short[0].upper() + short[1:], (said,))


def _first_names(names: Any) -> str:
    """Join names; of many, the first and how many more."""
    known: Sequence[str] = [str(name) for name in names]
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
    return render(
        "comparison.html",
        version=__version__,
        sections=[
            ("scores", "Scores"),
            ("other", "Other measures"),
            ("made", "How it was made"),
            ("reading", "How to read"),
        ],
        found=found,
        measure=found.measure,
        cards=verdict_cards(found),
        chart=_chart_sentence(found),
        sentences=found.sentences.splitlines(),
        facts=_comparison_facts(found),
        summary=_score_rows(found, found.summary),
        guessed="p_guess" in found.summary,
        baselines=_score_rows(found, found.baselines),
        guess=GUESSES[found.metric],
        picture=dot_plot(found),
        folds=_fold_table(found),
        other=_other(found),
        made=_settings_listed(found),
        test=str(found.summary["test"].iloc[0]),
    )


def _comparison_facts(found: ActivationComparison) -> list[tuple[str, str]]:
    """List what was compared, for the head of the page."""
    first = found.results.iloc[0]
    names = found.results["activation"].nunique()
    return [
        ("Rows", f"{first['n_train'] + first['n_test']:,}"),
        ("Task", found.task),
        ("Compared by", found.measure.description),
        ("Trained", f"{len(found.results):,} networks: {names} activations, {found.design}"),
    ]


def _chart_sentence(found: ActivationComparison) -> str:
    """Say in a sentence what the chart shows."""
    best, rest = found.summary.iloc[0], found.summary.iloc[1:]
    way = "right" if found.measure.greater_is_better else "left"
    said = f"The further to the {way}, the better: {found.best} is at "
    said += f"{number(best['mean'])} on average over the folds"
    if len(rest):
        last = rest.iloc[-1]
        said += f", and {last['activation']}, the last, at {number(last['mean'])}"
    n = int(rest["distinguishable"].sum())
    told = {0: "none is", 1: "one is"}.get(n, f"{n} are")
    of_others = f" Of {len(rest)} others, {told} behind by more than chance explains."
    return f"{said}.{of_others * bool(len(rest))}"


def _score_rows(found: ActivationComparison, table: pd.DataFrame) -> list[dict[str, str]]:
    """A row an activation or a baseline, the best first; ``verdict`` says what the test found."""
    digits = _digits(found)
    best = "the best" if found.winner else "the best, no winner"
    return [
        {
            "name": str(line.iloc[0]),
            "mean": _fixed(line["mean"], digits),
            "interval": interval_words(line["low"], line["high"], digits)
            or "the same in all folds",
            "mean_rank": f"{line.get('mean_rank', np.nan):.2f}",
            "p": "–" if np.isnan(line["p"]) else _percent_p(float(line["p"])),
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
    """Means of all measures, the compared one first."""
    known = METRICS[found.task]
    metrics = [found.metric, *(name for name in known if name != found.metric)]
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


def _settings_listed(found: ActivationComparison) -> list[tuple[str, str]]:
    shown = {**found.settings, "test": _TESTS[found.settings["test"]]}
    shown["hidden"] = " and ".join(map(str, found.settings["hidden"])) + " units"
    if "baselines" in shown:
        shown["baselines"] = ", ".join(shown["baselines"]) or "none"
    return [
        *((name, str(value)) for name, value in shown.items()),
        ("Versions", ", ".join(f"{name} {each}" for name, each in versions().items())),
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


def _percent_p(p: float) -> str:
    """A probability in percent, with two digits or so.

    >>> [_percent_p(p) for p in (1.0, 0.6332, 0.0312, 0.00029, 1e-7)]
    ['100 %', '63 %', '3.1 %', '0.03 %', '< 0.01 %']
    """
    if p < 1e-4:
        return "< 0.01 %"
    return f"{100 * p:.{0 if p >= 0.1 else 1 if p >= 0.01 else 2}f} %"
