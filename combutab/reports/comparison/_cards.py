"""The verdict of a comparison for a reader in a hurry: three questions, a card each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.model_selection import GUESSES, ActivationComparison

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
    cards = [_beside_others(found), _beside_guess(found), _beside_learners(found)]
    return [card for card in cards if card is not None]


def _score(found: ActivationComparison, value: float) -> str:
    """A score as people say it: shares in percent."""
    return _PHRASES[found.metric][1].format(value).replace("%", " %")


def _told(found: ActivationComparison, value: float) -> str:
    if found.metric == "r2" and value < 0.0005:  # 0.0 %
        return f"explains nothing of the variation in new rows (R2 {value:.2g})"
    return _PHRASES[found.metric][0].format(_score(found, value))


def _beside_others(found: ActivationComparison) -> Card:
    subject, best, rest = "The best activation", found.best, found.summary.iloc[1:]
    apart = rest["distinguishable"].astype(bool)
    near, behind = (_names(rows["activation"]) for rows in (rest[~apart], rest[apart]))
    if not len(rest):
        return Card(subject, "unknown", "one alone", f"{best} was compared with no other.", ())
    if apart.all():
        said = f"Chance does not explain its lead over {behind}."
        return Card(subject, "good", "clear", f"{best} is the best.", (said,))
    if not apart.any():
        said = f"{best} leads, but chance may explain its lead over {near}."
        return Card(subject, "unknown", "open", "None is clearly the best.", (said,))
    short = f"{_names([best, *rest[~apart]['activation']])} are too close to call."
    said = f"Chance may explain the lead of {best} over {near}, but not over {behind}."
    return Card(subject, "fair", "several", short, (said,))


def _beside_guess(found: ActivationComparison) -> Card:
    line = found.summary.iloc[0]
    said = f"{found.best} {_told(found, line['mean'])}"
    low, high = (_score(found, line[end]) for end in ("low", "high"))
    around = (f"For other rows of the same kind: about {low} to {high}.",) if low != high else ()
    guess = found.baselines[found.baselines.get("baseline", pd.Series(dtype=str)) == "guess"]
    if not len(guess):
        return Card("What it learned", "unknown", "no guess beside", f"{said}.", around)
    guessing = _told(found, float(guess["mean"].iloc[0]))
    beside = (f"The guess ({GUESSES[found.metric]}) {guessing}.", *around)
    if found.winner:
        return Card("Better than a guess", "good", "yes", f"{said}.", beside)
    none = not found.summary["beats_guess"].any()
    short = "No activation is" if none else f"{found.best}, the best mean, is not"
    return Card(
        *("Better than a guess", "poor", "no", f"{short} surely better than guessing."),
        (f"{said}.", *beside),
    )


def _beside_learners(found: ActivationComparison) -> Card | None:
    if found.baselines.empty:
        return None
    table = found.baselines[found.baselines["baseline"] != "guess"]
    if table.empty:
        return None
    best, mean = found.best, float(found.summary["mean"].iloc[0])
    apart = table["distinguishable"].to_numpy(dtype=bool)
    ahead = np.asarray((table["mean"] > mean) == found.measure.greater_is_better)
    scores = [(best, mean), *table[["baseline", "mean"]].itertuples(index=False)]
    said = ", ".join(f"{name} {_score(found, score)}" for name, score in scores)
    label = found.measure.label
    said = f"{label[0].upper()}{label[1:]}: {said}."
    subject, names = "Better than simpler models", table["baseline"]
    if (apart & ahead).any():
        which = names[apart & ahead]
        short = f"{_names(which)} {'is' if len(which) == 1 else 'are'} better than every activation"
        return Card(subject, "poor", "no", f"{short} here.", (said,))
    if apart.all():
        return Card(subject, "good", "yes", f"{best} is better than {_names(names)}.", (said,))
    which = names[~apart]
    short = f"{_names(which)} {'does' if len(which) == 1 else 'do'} as well, as far as can be told."
    return Card(subject, "fair", "not surely", short[0].upper() + short[1:], (said,))


def _names(names: Any) -> str:
    """Join names; of many, the first and how many more."""
    known: Sequence[str] = [str(name) for name in names]
    more = len(known) - _NAMED
    if more > 1:
        return f"{', '.join(known[:_NAMED])} and {more} more"
    return " and ".join([", ".join(known[:-1]), known[-1]]) if len(known) > 1 else "".join(known)
