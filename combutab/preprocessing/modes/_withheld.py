"""Sentences on the values that a ModeEncoder does not keep, or keeps of single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combutab.preprocessing.modes._columns import CategoryColumn, Column, IdentifierColumn

_MUCH = 0.1  # of the rows
_MOST = 0.5  # of the values
_SHOWN = 10  # names


def refuse_unknown(names: Sequence[Any], columns: Sequence[Column], fewest: int) -> None:
    """Refuse columns of which no value is kept, although many rows have one."""
    unknown = [
        name
        for name, each in zip(names, columns, strict=True)
        if isinstance(each, CategoryColumn)
        and each.rare
        and not each.keys
        and (not each.missing or each.counts[-1] >= fewest)
    ]
    if unknown:
        raise ValueError(
            f"no value of {_listed(unknown)} is held by {fewest} rows (min_frequency), so that "
            "none could be made: leave the column out, or convert it if it holds numbers or dates, "
            "or list it in identifiers to have new ones made, or keep all values by min_frequency=1"
        )


def describe_withheld(names: Sequence[Any], columns: Sequence[Column]) -> list[str]:
    """Describe the values that an encoder does not keep, or keeps although they are private.

    A sentence each on columns of identifiers; on columns of which more than a tenth of the rows
    have values that are not kept; and on columns whose values are kept although most of them are
    there once.
    """
    identifiers, rare, copied = [], [], []
    for name, column in zip(names, columns, strict=True):
        if isinstance(column, IdentifierColumn):
            identifiers.append(name)
        elif isinstance(column, CategoryColumn):
            share = column.counts[-1] / column.counts.sum() if column.rare else 0.0
            present = column.counts[: len(column.keys)]
            if share > _MUCH:
                rare.append(f"{share:.0%} of the rows of {name!r}")
            if column.size > 1 and (present == 1).sum() > _MOST * max(1, present.sum()):
                copied.append(name)
    told = []
    if identifiers:
        told.append(
            f"{_listed(identifiers)} {_verb(identifiers, 'holds', 'hold')} identifiers: they are "
            "not learned, and rows get new ones that are not those of the table; 'identifiers' "
            "says which columns hold some, if not these"
        )
    if rare:
        told.append(
            f"{', '.join(rare[:_SHOWN])}{' and more' if len(rare) > _SHOWN else ''} have values "
            "that fewer rows than min_frequency have: they are not kept, and rows get the others "
            "in their place; join such values into groups, or keep them by a lower min_frequency"
        )
    if copied:
        told.append(
            f"most values of {_listed(copied)} are there once, and rows get them as they are: if "
            "they are private, leave the column out, or raise min_frequency"
        )
    return told


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _verb(names: Sequence[Any], one: str, many: str) -> str:
    return one if len(names) == 1 else many
