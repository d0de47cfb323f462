"""The verdict of a report: a level and a sentence for each of three questions, and the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SYNTHETIC, HELD_OUT = "synthetic", "held-out real"  # the sources of all tables
LEARNERS = {
    "linear": "a linear model",
    "decision_tree": "a decision tree",
    "random_forest": "a random forest",
    "hist_gradient_boosting": "gradient boosting",
    "mlp": "a neural network",
    "paper_mlp": "a neural network",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
}

C2ST = "hist_gradient_boosting"  # the classifier of the two-sample test that decides

KEPT_GOOD, KEPT_FAIR = 0.9, 0.7
LITTLE = 0.02  # skill over guessing below which there is nothing to keep
FEWEST = 10  # rows to test on below which no score says anything
TOLD_GOOD, TOLD_FAIR = 0.65, 0.8  # areas under the ROC curve up to which rows are so alike
TIES_GOOD, TIES_FAIR = 0.9, 0.75
FEW = 100  # rows below which no learner learns to tell tables apart
UNTIED = 0.1  # association up to which columns have nothing to do with each other
ERRORS = 3.0  # standard errors up to which chance explains a sign
RARE = 0.001  # probability from which on chance explains copies
CLEAR = 0.55  # from where a sign is clear; one half is ideal
BLIND = 0.7  # if chance alone may reach this, no sign says nothing
_ROUNDING = 1e-9

RULES = {
    "usefulness": (
        "Of the learner that is best after training on the real rows: which share of its skill "
        "over guessing is kept by training on the synthetic ones. The skill is the accuracy over "
        "that of always naming the most frequent class, or R². Where no accuracy is better than "
        "guessing, as may be if one class is rare, it is the area under the ROC curve over 0.5. "
        f"Good from {KEPT_GOOD}, fair from {KEPT_FAIR}. Not known where the skill after training "
        f"on the real rows is below {LITTLE} or twice its standard error, with fewer than "
        f"{FEWEST} rows to test on, or where two standard errors of the share, which are told with "
        "it, reach from poor to good. Of a poor share they hold also how far the learner is moved "
        "by learning from synthetic rows drawn anew from these, with replacement."
    ),
    "likeness": (
        "A two-sample test: gradient boosting learns to tell synthetic rows from real ones, and is "
        "scored on rows that it has not learned from, by the area under the ROC curve: how often, "
        "shown a real row and a synthetic one, it tells which is which. Good up to "
        f"{TOLD_GOOD}, fair up to {TOLD_FAIR}. Not known with fewer than {FEW} rows of either "
        "table, unless it is poor, or where two standard errors reach from poor to good. What ties "
        "columns together may lower it, as a pair among many columns may escape the test: 0 if the "
        "pairs that are tied score as those of shuffled columns, and 1 if they score as those of "
        f"real rows; good from {TIES_GOOD}, fair from {TIES_FAIR}. There is no such part where no "
        f"two real columns are associated by more than {UNTIED}, or the rows are too few to show "
        "so weak a tie. If a part is not known, the whole is not, unless the other is poor. The "
        "scores of columns stand beside and decide nothing: columns drawn each for itself match "
        "as well. Columns that name rows are left out: new names are to differ."
    ),
    "privacy": (
        "Four signs count: the share of synthetic rows nearer to a row learned from than to any "
        "held-out one (ideally 0.5), the area under the attacker's ROC curve (0.5), copies of "
        "rows that the real table has once (as many as of held-out rows), and copies of a column's "
        "values that one real row has. A sign is one if it is "
        f"more than {ERRORS:g} standard errors above the ideal, or so many copies have a "
        f"probability below {RARE}; what is less may be chance. The first one's standard error is "
        "measured: real rows of both kinds are mixed and split anew at random. Good without any "
        f"sign. Poor if it is copies, or one of the others and at least {CLEAR}. Else fair. Not "
        "known without held-out rows, or if they are so few that chance might take the second to "
        f"{BLIND}; copies are poor even then."
    ),
}


_SHORT = {
    ("usefulness", "good"): "A model learns nearly as much from it as from the real rows.",
    ("usefulness", "fair"): "A model learns somewhat less from it than from the real rows.",
    ("usefulness", "poor"): "Much of what the real rows teach a model is lost.",
    ("usefulness", "unknown"): "How much a model learns from it is not known.",
    ("likeness", "good"): "Its rows look like real ones.",
    ("likeness", "fair"): "Its rows look somewhat different from real ones.",
    ("likeness", "poor"): "Its rows look clearly different from real ones.",
    ("likeness", "unknown"): "Whether its rows look like real ones is not known.",
    ("privacy", "good"): "No sign that it gives real rows away.",
    ("privacy", "fair"): "Real rows show through a little.",
    ("privacy", "poor"): "It gives parts of the real table away.",
    ("privacy", "unknown"): "Whether it gives real rows away is not known.",
}


@dataclass(frozen=True)
class Finding:
    """One of the three things that a reader is told first.

    Attributes
    ----------
    subject : {"usefulness", "likeness", "privacy"}
    level : {"good", "fair", "poor", "unknown"}
        By `RULES`.
    sentence : str
        With the numbers that the level comes from.
    notes : tuple of str
        What limits it.
    """

    subject: str
    level: str
    sentence: str
    notes: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """What the level says, in a few words and without numbers."""
        return _SHORT[self.subject, self.level]


def level_of(value: float, good: float, fair: float) -> str:
    """The level of a value that is better the greater it is.

    >>> level_of(0.9, 0.9, 0.8), level_of(0.8999, 0.9, 0.8), level_of(0.5, 0.9, 0.8)
    ('good', 'fair', 'poor')
    """
    value += _ROUNDING
    return "good" if value >= good else "fair" if value >= fair else "poor"


def percent(share: float) -> str:
    """Whole percent, rounded down so that no threshold seems to be reached that is not.

    >>> percent(0.8999), percent(0.29), percent(1.0)
    ('89 %', '29 %', '100 %')
    """
    return f"{math.floor(100 * (share + _ROUNDING))} %"


def counted(n: int, what: str) -> str:
    """Count something, whose plural ends in s.

    >>> counted(1, "real row"), counted(4000, "real row")
    ('1 real row', '4,000 real rows')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def level_within(value: float, off: float, good: float, fair: float) -> str:
    """The level of a value that is known give or take so much: "unknown" from poor to good.

    >>> level_within(0.5, 0.1, 0.9, 0.75), level_within(0.5, 0.45, 0.9, 0.75)
    ('poor', 'unknown')
    >>> level_within(0.92, 0.1, 0.9, 0.75), level_within(0.92, 0.2, 0.9, 0.75)
    ('good', 'unknown')
    """
    ends = {level_of(value - off, good, fair), level_of(value + off, good, fair)}
    return "unknown" if ends == {"good", "poor"} else level_of(value, good, fair)


def worst_level(levels: Sequence[str]) -> str:
    """Poor, whatever else; not known, if that is not known of a part; else the lowest.

    >>> worst_level(["good", "unknown", "fair"]), worst_level(["good", "poor", "unknown"])
    ('unknown', 'poor')
    """
    return min(levels, key=("poor", "unknown", "fair", "good").index)


def points(share: float) -> str:
    """A difference of shares, in percentage points.

    >>> points(0.123), points(0.009), points(2.0)
    ('12 points', '1 point', '100 points')
    """
    return counted(round(min(100 * share, 100)), "point")
