"""A paper's claims, and whether the rows of a study bear them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.common.page import markdown_table

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold here"
UNDECIDED = "not decided"

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Finding:
    """What came out of a claim.

    Attributes
    ----------
    numbers : str
        The statistics that say so.
    parts : sequence of bool or None
        For each part of the claim whether it holds; None where the rows do not decide it.
    """

    numbers: str
    parts: Sequence[bool | None]

    @property
    def verdict(self) -> str:
        """
        >>> Finding("", [True, None]).verdict, Finding("", [False, None]).verdict
        ('holds in part', 'does not hold here')
        """
        if all(self.parts):
            return HOLDS
        if any(self.parts):
            return IN_PART
        return FAILS if False in self.parts else UNDECIDED


@dataclass(frozen=True)
class Claim(Generic[Rows]):
    """What a paper says, and how it is judged from a study's rows.

    Attributes
    ----------
    where : str
        Of the paper: "Table 2".
    text : str
    judge : callable
        ``judge(rows)`` gives a Finding, or None where the rows do not speak of the claim.
    """

    where: str
    text: str
    judge: Callable[[Rows], Finding | None]


def claims_table(claims: Iterable[Claim[Rows]], samples: dict[str, Rows]) -> str:
    """Judge claims on several samples of rows, by name: a Markdown table, a column a sample."""
    lines = []
    for claim in claims:
        found = [claim.judge(rows) for rows in samples.values()]
        cells = [f"**{f.verdict}**: {f.numbers}" if f else "not judged" for f in found]
        lines.append([claim.where, claim.text, *cells])
    return markdown_table(["where", "claim", *samples], lines)
