"""What a reader is told first: a level and a sentence for each of three things, and their rules."""

from __future__ import annotations

import math
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

KEPT_GOOD, KEPT_FAIR = 0.9, 0.7
LITTLE = 0.02  # skill over guessing below which there is nothing to keep
FEWEST = 10  # rows to test on below which no score says anything
ALIKE_GOOD, ALIKE_FAIR = 0.9, 0.75
TIED = 0.01  # of the pairs' scores, by which real rows are above independent columns
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
        f"on the real rows is below {LITTLE} or twice its standard error, or with fewer than "
        f"{FEWEST} rows to test on."
    ),
    "likeness": (
        "The mean of two numbers: the mean score of the columns, and how much of what ties columns "
        "together is kept. That is 0 if their pairs score as those of columns that have nothing "
        "to do with each other, and 1 if they score as those of held-out real rows (without these: "
        "of real rows drawn again). The second is left out where the two are less than "
        f"{TIED} apart. Good from {ALIKE_GOOD}, fair from {ALIKE_FAIR}. Not known where it is "
        "lower, but held-out real rows score no higher: there are too few rows then."
    ),
    "privacy": (
        "Three signs count: the share of synthetic rows nearer to a row learned from than to any "
        "held-out one (ideally 0.5), the area under the attacker's ROC curve (0.5), and copies of "
        "rows that the real table has once (as many as of held-out rows). A sign is one if it is "
        f"more than {ERRORS:g} standard errors above the ideal, or so many copies have a "
        f"probability below {RARE}; what is less may be chance. The first one's standard error is "
        "measured: real rows of both kinds are mixed and split anew at random. Good without any "
        f"sign. Poor if it is copies, or one of the others and at least {CLEAR}. Else fair. Not "
        "known without held-out rows, or if they are so few that chance might take the second to "
        f"{BLIND}; copies are poor even then."
    ),
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
    """So many of something, whose plural ends in s.

    >>> counted(1, "real row"), counted(4000, "real row")
    ('1 real row', '4,000 real rows')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"
