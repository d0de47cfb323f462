"""Scores of synthetic tables and databases, and requirements such as ``detection>=0.8``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
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

_OF_PERSONS = ("share_closer_to_train", "membership_", "attribute_", "singling_out_")
DATABASE_SCORES = {
    "keys_unique": Score("smallest share of unique values of a key that others refer to"),
    "orphans": Score("largest share of rows whose foreign key is that of no row"),
    "missing_keys": Score("largest difference of the shares of missing foreign keys"),
    "cardinality": Score(
        "smallest match of the numbers of children (1 - Kolmogorov-Smirnov statistic)"
    ),
    "childless": Score("largest difference of the shares of rows without children"),
    "trends": Score("mean score of pairs of a parent's and a child's column"),
    "detection_rows": Score("smallest score of a two-sample test of the rows of a table"),
    "detection_children": Score("the same of rows with summaries of their children"),
    "detection_siblings": Score("the same with the order and changes of the children"),
    "columns": Score("smallest mean match of the distributions of a table's columns"),
    "copied_families": Score("number of rows that equal a training row with all its children"),
} | {name: score for name, score in SCORES.items() if name.startswith(_OF_PERSONS)}

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
        needs = (DATABASE_SCORES | SCORES)[self.name].needs
        missing = {
            "": "there are too few rows or columns",
            "target": "it needs a target column that models can predict",
            "test": "it needs more held-out rows, which are not training rows",
        }
        return f"{self}: it is not known, because {missing[needs]}"


def parse_requirement(text: str, scores: Collection[str] = SCORES) -> Requirement:
    """Read a requirement on one of these scores, such as ``membership_tpr@1%<=0.03``.

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
    if name not in scores:
        hints = get_close_matches(name, scores, n=1)
        hint = f" (did you mean {hints[0]!r}?)" if hints else ""
        raise ValueError(
            f"requirement {text!r}: {name!r} is not a known score{hint}; known are "
            f"{', '.join(scores)}"
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


def check_requirements(scores: Mapping[str, float], texts: Iterable[str]) -> None:
    """Raise RequirementError if the scores do not meet the requirements."""
    requirements = [parse_requirement(text, scores) for text in texts]
    if failures := unmet_requirements(scores, requirements):
        raise RequirementError(failures)
