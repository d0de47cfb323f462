"""Names of the scores of a synthetic table, and requirements on them such as ``detection>=0.8``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal


@dataclass(frozen=True)
class Score:
    """A score that requirements may name.

    Attributes
    ----------
    description : str
    needs : {"", "target", "test"}
        Without a target column, or without held-out rows, the score is not known.
    """

    description: str
    needs: Literal["", "target", "test"] = ""


SCORES = {
    "utility": Score(
        "share of the improvement over guessing that is kept by training on synthetic rows",
        "target",
    ),
    "detection": Score(
        "2 (1 - ROC AUC) of the two-sample test, at most 1: 1 if rows cannot be distinguished"
    ),
    "detection_auc": Score(
        "ROC AUC of the two-sample test of synthetic rows against held-out rows, or against "
        "training rows if there are no others"
    ),
    "real_detection_auc": Score("the same for training rows against held-out rows", "test"),
    "columns": Score("mean match of the distributions of columns"),
    "pairs": Score("mean score of pairs of columns"),
    "alpha_precision": Score("alpha-precision"),
    "beta_recall": Score("beta-recall"),
    "copies": Score("number of exact duplicates of training rows"),
    "share_closer_to_train": Score(
        "share of synthetic rows that are closer to a training row than to any held-out row", "test"
    ),
    "membership_auc": Score("ROC AUC of the strongest membership inference attack", "test"),
    "membership_tpr@1%": Score(
        "share of training rows that the strongest attack recognises with 1 % false positives",
        "test",
    ),
    "membership_tpr@10%": Score("the same with 10 % false positives", "test"),
    "isolated_tpr@1%": Score(
        "the same for the most isolated tenth of the rows, with 1 % false positives", "test"
    ),
    "isolated_tpr@10%": Score("the same with 10 % false positives", "test"),
    "attribute_advantage": Score(
        "right guesses of the worst column: share for training rows less that for held-out rows",
        "test",
    ),
    "singling_out_advantage": Score(
        "multivariate predicates that isolate one row: share for training rows less that for "
        "held-out rows",
        "test",
    ),
}

# ---- Requirements --------------------------------------------------------------------------------

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda value, bound: value <= bound,
    ">=": lambda value, bound: value >= bound,
    "<": lambda value, bound: value < bound,
    ">": lambda value, bound: value > bound,
}
_REQUIREMENT = re.compile(r"\s*([^\s<>=]+)\s*(<=|>=|<|>)\s*(\S+)\s*")


class RequirementError(Exception):
    """Requirements that are not met.

    Attributes
    ----------
    failures : tuple of str
        One sentence for each requirement that is not met.
    """

    def __init__(self, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("\n".join(self.failures))


@dataclass(frozen=True)
class Requirement:
    """A bound of a score: ``name``, ``sign`` ("<=", ">=", "<" or ">") and ``bound``."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"

    def failure(self, value: float) -> str:
        """Say how a score fails to meet the requirement; empty if it does. NaN does not."""
        if _SIGNS[self.sign](value, self.bound):
            return ""
        if not math.isnan(value):
            return f"{self}: it is {value:.4g}"
        needs = SCORES[self.name].needs
        missing = {
            "": "there are too few rows or columns",
            "target": "it needs a target column that models can predict",
            "test": "it needs more held-out rows, which are not training rows",
        }
        return f"{self}: it is not known, because {missing[needs]}"


def parse_requirement(text: str) -> Requirement:
    """Read a requirement, such as ``membership_tpr@1%<=0.03``.

    Raises ValueError if it is not of this form, or its name is not known.

    >>> parse_requirement("detection >= 0.8")
    Requirement(name='detection', sign='>=', bound=0.8)
    """
    match = _REQUIREMENT.fullmatch(text) if isinstance(text, str) else None
    bound = math.nan if match is None else _to_number(match[3])
    if match is None or math.isnan(bound):
        raise ValueError(
            f"requirement {text!r}: write a score, one of <=, >=, < and >, and a number, such as "
            "detection>=0.8"
        )
    name, sign = match[1], match[2]
    if name not in SCORES:
        hints = get_close_matches(name, SCORES, n=1)
        hint = f" (did you mean {hints[0]!r}?)" if hints else ""
        raise ValueError(
            f"requirement {text!r}: {name!r} is not a known score{hint}; known are "
            f"{', '.join(SCORES)}"
        )
    return Requirement(name, sign, bound)


def _to_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def unmet_requirements(
    scores: Mapping[str, float], requirements: Iterable[Requirement]
) -> list[str]:
    """A sentence for each requirement that is not met."""
    failures = [requirement.failure(scores[requirement.name]) for requirement in requirements]
    return [failure for failure in failures if failure]
