"""Judge whether learners get from synthetic rows what they get from real ones."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from combutab.reports.synthetic._verdict import (
    FEW,
    FEWEST,
    KEPT_FAIR,
    KEPT_GOOD,
    LEARNERS,
    LITTLE,
    SYNTHETIC,
    Finding,
    counted,
    level_within,
    percent,
    points,
)

REAL = "real"  # a source of ml_efficacy
_SOME = 0.1  # skill over guessing that is no longer next to nothing
_ROUGH = 0.005  # two standard errors of the share that is kept, from where they are told
# After training on the synthetic rows, on the real ones, and by guessing.
_SENTENCES = {
    "accuracy": (
        "names the right class for {} of {rows}",
        "for {}",
        "always naming the most frequent class is right for {}",
    ),
    "r2": ("explains {} of the variation in {rows}", "{}", "always naming the mean, nothing"),
    "roc_auc": (
        "tells the classes apart in {} of all pairs of rows in {rows}",
        "in {}",
        "guessing, in {}",
    ),
}


@dataclass(frozen=True)
class _Skill:
    """The scores of the learner that is best after training on the real rows."""

    metric: str
    learner: str
    real: float
    synthetic: float
    guess: float
    error: float  # standard error of the first
    gap_error: float  # and of its distance to the second
    note: str  # of the training on the synthetic rows

    @property
    def over_guessing(self) -> float:
        return self.real - self.guess

    @property
    def is_one(self) -> bool:
        return self.over_guessing >= max(LITTLE, 2 * self.error)  # False of NaN

    @property
    def may_be_some(self) -> bool:
        """Tell whether the real rows may teach what is worth telling, for all that is known."""
        return not self.over_guessing + 2 * self.error < _SOME

    @property
    def kept(self) -> float:
        """The share of the skill that is kept: below 0 of what is worse than guessing."""
        return (self.synthetic - self.guess) / self.over_guessing

    @property
    def off(self) -> float:
        """Two standard errors of it."""
        return 2 * (self.gap_error + abs(1 - self.kept) * self.error) / self.over_guessing

    def told(self, score: float) -> str:
        if score < 0:
            return f"nothing (R² {score:.2f})"
        return f"{100 * score:.1f} %"


def judge_usefulness(
    efficacy: pd.DataFrame,
    *,
    target: Hashable,
    guess: float,
    n_test: int,
    seen: bool,
    again: pd.DataFrame | None = None,
) -> Finding:
    """Say which share of what the real rows teach is in the synthetic ones.

    ``efficacy`` is of `ml_efficacy`, with the sources "real" and "synthetic", tested on ``n_test``
    rows; ``guess`` is the share of the most frequent class in these, 0 of a regression, and
    ``seen`` says whether the generator may have learned from them. ``again`` is of `ml_efficacy`
    too, with synthetic rows that were drawn anew from the synthetic ones, a source each.
    """
    skill = _best(efficacy, guess, n_test)
    if again is not None:
        skill = _with_chance(skill, again)
    rows = counted(n_test, "real row" if seen else "held-out real row")
    name, learner = repr(str(target)), LEARNERS.get(skill.learner, skill.learner)
    synthetic, real, guessing = _SENTENCES[skill.metric]
    guessing = guessing.format(skill.told(skill.guess))
    notes = []
    if seen:
        notes.append(
            "The learners are tested on real rows that were set aside here, but that the generator "
            "may have learned from: rows that it has not seen are the sounder test."
        )
    if n_test < FEWEST or math.isnan(skill.real):
        why = f"Not known: {rows} with a value of {name} {'is' if n_test == 1 else 'are'} too few"
        if n_test >= FEWEST:
            why = f"Not known: all {rows} tested on have the same value of {name}"
        return Finding("usefulness", "unknown", f"{why}.", tuple(notes))
    if not skill.is_one:
        little = (
            "may teach nothing" if skill.may_be_some else "teach these learners next to nothing"
        )
        sentence = (
            f"Not known: even the real rows {little} about {name}. After learning from them, "
            f"{learner} {synthetic.format(skill.told(skill.real), rows=rows)}; {guessing}."
        )
        return Finding("usefulness", "unknown", sentence, tuple(notes))
    kept, low, high = (_share(skill.kept + off) for off in (0.0, -skill.off, skill.off))
    share = {0.0: "nothing", 1.0: "all"}.get(kept, percent(kept))
    off = max(kept - low, high - kept)
    level = level_within(skill.kept, skill.off, KEPT_GOOD, KEPT_FAIR)
    rough = f", give or take {points(off)}" if off > _ROUGH else ""
    sentence = (
        f"he synthetic rows keep {share} of what the real rows teach about {name}{rough}: after "
        f"learning from them, {learner} "
        f"{synthetic.format(skill.told(skill.synthetic), rows=rows)}; "
        f"after learning from the real rows, {real.format(skill.told(skill.real))}; {guessing}."
    )
    sentence = f"Not known, with so few rows: t{sentence}" if level == "unknown" else f"T{sentence}"
    if skill.note:
        notes.append(f"Of the training on the synthetic rows: {skill.note}.")
    return Finding("usefulness", level, sentence, tuple(notes))


def best_learner(efficacy: pd.DataFrame, *, guess: float, n_test: int) -> str:
    """The learner that is best after training on the real rows."""
    return _best(efficacy, guess, n_test).learner


def _with_chance(skill: _Skill, again: pd.DataFrame) -> _Skill:
    """Add to a gap's error how far the score is from those after learning from rows drawn anew.

    What learns from rows without a tie to the target still has some skill by chance, however many
    rows it is tested on. What is worse than guessing counts as guessing: R² has no lower end.
    """
    own = again[(again["metric"] == skill.metric) & (again["learner"] == skill.learner)]
    scores = own.loc[own["source"] != REAL, "mean"].clip(lower=skill.guess)
    by_chance = float(np.sqrt(((scores - max(skill.synthetic, skill.guess)) ** 2).mean()))
    return replace(skill, gap_error=math.hypot(skill.gap_error, by_chance))


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _best(efficacy: pd.DataFrame, guess: float, n_test: int) -> _Skill:
    if (efficacy["metric"] == "r2").any():
        return _best_by(efficacy, "r2", guess, n_test)
    skill = _best_by(efficacy, "accuracy", guess, n_test)
    if not skill.is_one:
        # its error is that of the rarer classes
        area = _best_by(efficacy, "roc_auc", 0.5, (1 - guess) * n_test)
        skill = area if area.is_one else skill
    return skill


def _best_by(efficacy: pd.DataFrame, metric: str, guess: float, n: float) -> _Skill:
    table = efficacy[efficacy["metric"] == metric]
    real = table[table["source"] == REAL]
    best = real.iloc[int(real["mean"].fillna(-math.inf).argmax())]
    taught = table[(table["source"] == SYNTHETIC) & (table["learner"] == best["learner"])].iloc[0]
    score = float(best["mean"])
    error = _standard_error(metric, score, n)
    return _Skill(
        metric,
        str(best["learner"]),
        score,
        float(taught["mean"]),
        guess,
        max(error, float(np.nan_to_num(best["se"]))),
        # of scores that are equal in a few rows, the difference is not certain either
        max(error if n < FEW else 0.0, float(np.nan_to_num(taught["gap_se"]))),
        str(taught["note"]),
    )


def _standard_error(metric: str, score: float, n: float) -> float:
    """Estimate the standard error of a score on n rows."""
    if metric == "r2":  # as of a squared correlation, for many rows
        score = min(max(score, 0.0), 1.0)
        return 2 * math.sqrt(score) * (1 - score) / math.sqrt(n)
    share = (n * score + 1) / (n + 2)  # a share of 1 in few rows is not certain
    return math.sqrt(share * (1 - share) / (n + 2))
