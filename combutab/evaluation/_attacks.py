"""The rows that privacy attacks are tried on: members, non-members and synthetic rows."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.text import counted
from combutab.evaluation._alignment import AlignedTables, align_tables
from combutab.evaluation._distances import RowPoints, Space
from combutab.evaluation._fidelity import codes_of

TRAIN, SYNTHETIC, HOLDOUT = "real_train", "synthetic", "holdout"
MAX_ROWS = 10_000
FEWEST = 4  # members and non-members


@dataclass(frozen=True, eq=False)
class RealRows:
    """Real rows, and the person that each row belongs to.

    Attributes
    ----------
    points : RowPoints
    persons : int64 of shape (n,)
        Numbers from 0; each row is a person if persons are not known.
    is_member : bool of shape (n_persons,)
        Whether a person's rows are training rows; other rows are held out.
    """

    points: RowPoints
    persons: np.ndarray
    is_member: np.ndarray

    @property
    def n_members(self) -> int:
        return int(self.is_member.sum())

    @property
    def n_non_members(self) -> int:
        return len(self.is_member) - self.n_members

    def take_persons(self, persons: np.ndarray) -> RealRows:
        """The rows of some persons, who are numbered in this order."""
        numbers = np.full(len(self.is_member), -1)
        numbers[persons] = np.arange(len(persons))
        rows = np.flatnonzero(numbers[self.persons] >= 0)
        return RealRows(
            self.points.take(rows), numbers[self.persons[rows]], self.is_member[persons]
        )

    def mean_by_person(self, values: np.ndarray) -> np.ndarray:
        """Mean of the values of each person's rows, (n_persons,)."""
        return np.bincount(self.persons, values) / np.bincount(self.persons)


@dataclass(frozen=True, eq=False)
class AttackRows:
    """Members (training rows), non-members (held-out rows) and synthetic rows, in one space.

    ``note`` says which rows were left out.
    """

    real: RealRows
    synthetic: RowPoints
    space: Space
    note: str


def draw_attack_rows(
    *,
    real_train: Any,
    synthetic: Any,
    holdout: Any,
    categorical: Collection[Hashable],
    person: Hashable | None,
    max_rows: int,
    rng: np.random.Generator,
    max_real_rows: int | None = None,
) -> AttackRows:
    """Align the tables, and draw at most ``max_rows`` rows of each, by whole persons.

    Of the two real tables, at most ``max_real_rows`` rows are drawn.

    Held-out rows of persons who have training rows are left out: they are no non-members.

    Raises ValueError if ``person`` is not a column or has missing values, or if there are fewer
    than `FEWEST` members or non-members.
    """
    tables = {TRAIN: real_train, SYNTHETIC: synthetic, HOLDOUT: holdout}
    keys = [] if person is None else [person]
    aligned = align_tables(tables, reference=TRAIN, categorical=[*categorical, *keys])
    persons = {label: _persons(aligned, label, person) for label in (TRAIN, HOLDOUT)}
    rows = {label: aligned[label].drop(columns=keys) for label in tables}
    is_member = np.isin(persons[HOLDOUT], persons[TRAIN]) & (person is not None)
    notes = []
    if is_member.any():
        notes.append(
            f"{counted(int(is_member.sum()), 'held-out row')} of persons with training rows left "
            "out"
        )
        rows[HOLDOUT] = rows[HOLDOUT][~is_member].reset_index(drop=True)
        persons[HOLDOUT] = persons[HOLDOUT][~is_member]
    for label in (TRAIN, HOLDOUT, SYNTHETIC):
        if not len(rows[label]):
            raise ValueError(
                f"there is no row of {label} to try attacks on{': '.join(['', *notes])}"
            )
    for label in (TRAIN, HOLDOUT):
        drawn = _draw_persons(persons[label], min(max_rows, max_real_rows or max_rows), rng)
        if len(drawn) < len(rows[label]):
            notes.append(f"{len(drawn):,} of {len(rows[label]):,} rows of {label}")
        rows[label], persons[label] = rows[label].iloc[drawn], persons[label][drawn]
    if len(rows[SYNTHETIC]) > max_rows:
        notes.append(f"{max_rows:,} of {len(rows[SYNTHETIC]):,} rows of {SYNTHETIC}")
        rows[SYNTHETIC] = rows[SYNTHETIC].iloc[rng.permutation(len(rows[SYNTHETIC]))[:max_rows]]
    kinds = {name: kind for name, kind in aligned.kinds.items() if name != person}
    real = pd.concat([rows[TRAIN], rows[HOLDOUT]], ignore_index=True)
    # Scaled by members and non-members alike, so that the scale does not tell them apart.
    space = Space(AlignedTables({**rows, "real": real}, kinds, aligned.n_known), real)
    (first, n_members), (second, n_others) = (
        (codes, int(codes.max()) + 1)
        for codes in (
            np.unique(persons[label], return_inverse=True)[1] for label in (TRAIN, HOLDOUT)
        )
    )
    real_rows = RealRows(
        space.points(real),
        np.concatenate([first, second + n_members]),
        np.repeat([True, False], [n_members, n_others]),
    )
    if min(n_members, n_others) < FEWEST:
        what = "rows" if person is None else "persons"
        raise ValueError(
            f"the attacks need at least {FEWEST} {what} of {TRAIN} and of {HOLDOUT}, got "
            f"{n_members} and {n_others}"
        )
    return AttackRows(real_rows, space.points(rows[SYNTHETIC]), space, "; ".join(notes))


def _persons(aligned: AlignedTables, label: str, person: Hashable | None) -> np.ndarray:
    """Number the person of each row of a table."""
    if person is None:
        return np.arange(len(aligned[label]))
    codes = codes_of(aligned[label][person])
    if (codes < 0).any():
        raise ValueError(
            f"person={person!r} is missing in {counted(int((codes < 0).sum()), 'row')} of {label}; "
            "fill in or drop these rows"
        )
    return codes


def _draw_persons(persons: np.ndarray, max_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Positions of the rows of random persons, who together have at most ``max_rows`` rows."""
    if len(persons) <= max_rows:
        return np.arange(len(persons))
    numbers = np.unique(persons, return_inverse=True)[1]
    order = rng.permutation(int(numbers.max()) + 1)
    n_rows = np.bincount(numbers)[order].cumsum()
    chosen = order[: max(1, int((n_rows <= max_rows).sum()))]
    return np.flatnonzero(np.isin(numbers, chosen))
