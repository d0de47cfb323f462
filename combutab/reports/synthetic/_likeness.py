"""Judge whether a synthetic table looks like the real one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pandas as pd

from combutab.reports.synthetic._verdict import (
    C2ST,
    FEW,
    HELD_OUT,
    LEARNERS,
    SYNTHETIC,
    TIES_FAIR,
    TIES_GOOD,
    TOLD_FAIR,
    TOLD_GOOD,
    UNTIED,
    Finding,
    counted,
    level_within,
    percent,
    points,
    worst_level,
)
from combutab.reports.synthetic._yardsticks import Yardsticks, column_losses, pair_losses

_LITTLE = 0.005  # beyond what chance takes from a column
_ROUGH = 0.05  # from where it is told how far chance may move a share
_WEAK = 0.4  # association up to which ties that few rows do not show are called weak


@dataclass(frozen=True)
class _Part:
    """The verdict on whole rows or on pairs of columns; "" is no level at all."""

    level: str
    said: str


def judge_likeness(
    alike: pd.DataFrame,
    detection: pd.DataFrame,
    yardsticks: Yardsticks,
    *,
    n_train: int,
    n_made: int,
    n_test: int = 0,
    left_out: Sequence[Hashable] = (),
) -> Finding:
    """Say how well rows are told apart, and how alike pairs of columns and columns are.

    ``alike`` and ``detection`` are of `fidelity` and `detection`, with the source `SYNTHETIC` and
    perhaps `HELD_OUT`; the latter may be empty. There are ``n_train`` rows in the real table,
    ``n_made`` in the synthetic one and ``n_test`` in the held-out real one; columns ``left_out``
    name rows, and are in none of the tables.
    """
    if column_losses(alike, SYNTHETIC).empty:
        why = "Not known: the real table has no values to compare with."
        return Finding("likeness", "unknown", why)
    detected = detection[detection["learner"] == C2ST].dropna(subset="mean").set_index("source")
    rows, pairs = _rows(detected, n_train, n_made), _pairs(alike, yardsticks)
    level = worst_level([part.level for part in (rows, pairs) if part.level])
    # no level comes of single columns: those drawn each for itself match as well
    said = [rows.said, pairs.said, _columns(alike, yardsticks)]
    sentence = "; ".join(each for each in said if each)
    notes = []
    if level == "unknown":
        few = min(n_train, n_made)
        sentence = f"Not known, with {counted(few, 'row')}: {sentence}"
        notes.append("What is called open here may be good or poor: more rows would tell.")
    else:
        sentence = sentence[0].upper() + sentence[1:]
    if min(n_train, n_test) >= FEW and detected["mean"].get(HELD_OUT, 0.0) >= TOLD_FAIR:
        notes.append(
            "Held-out real rows are told from those learned from as well: the two real tables "
            "differ."
        )
    if left_out:
        names = ", ".join(repr(str(name)) for name in left_out)
        notes.append(f"Left out, as identifiers, which are not to be alike: {names}.")
    return Finding("likeness", level, f"{sentence}.", tuple(notes))


def _columns(alike: pd.DataFrame, yardsticks: Yardsticks) -> str:
    losses, held_out = (column_losses(alike, source) for source in (SYNTHETIC, HELD_OUT))
    beside = []
    if yardsticks.chance:
        by_chance = 1.0 - sum(yardsticks.chance.values()) / len(yardsticks.chance)
        beside.append(f"as many real rows, by chance: {percent(by_chance)}")
    if len(held_out):
        beside.append(f"held-out real rows: {percent(1.0 - held_out.mean())}")
    said = f"the columns match the real ones to {percent(1.0 - losses.mean())} on average"
    said += f" ({'; '.join(beside)})" if beside else ""
    beyond = {name: loss - yardsticks.chance.get(name, 0.0) for name, loss in losses.items()}
    worst = max(beyond, key=lambda name: beyond[name])  # not an identifier, which none can meet
    if len(losses) > 1 and beyond[worst] > _LITTLE:
        least = 1.0 - dict(losses)[worst]
        said += f", the column {str(worst)!r} least, to {percent(least)}"
    return said


def _pairs(alike: pd.DataFrame, yardsticks: Yardsticks) -> _Part:
    losses = pair_losses(alike, SYNTHETIC)
    if losses.empty:
        return _Part("", "")
    strongest = yardsticks.strongest
    if yardsticks.ties:
        kept = yardsticks.kept(losses)
        off = yardsticks.kept_off(kept)
        said = f"{percent(kept)} of what ties columns together is kept"
        if off >= _ROUGH:
            said += f", give or take {points(off)}"
        level = level_within(kept, off, TIES_GOOD, TIES_FAIR)
        return _Part(level, said + ", which leaves it open" * (level == "unknown"))
    if strongest <= UNTIED:
        return _Part("", f"no two real columns are associated by more than {UNTIED:g}")
    if strongest <= _WEAK:
        return _Part("", "what ties the real columns together is too weak to show in so few rows")
    return _Part("unknown", "whether what ties columns together is kept is left open")


def _rows(detected: pd.DataFrame, n_train: int, n_made: int) -> _Part:
    if SYNTHETIC not in detected.index:
        return _Part("unknown", "there are too few rows to learn to tell real from synthetic ones")
    area, error = float(detected["mean"][SYNTHETIC]), float(detected["se"][SYNTHETIC])
    beside = ["50 is chance"]
    if HELD_OUT in detected.index:
        beside.append(f"held-out real rows: {_cases(detected['mean'][HELD_OUT])}")
    said = (
        f"shown a real row and a synthetic one, {LEARNERS[C2ST]} tells which is which in "
        f"{_cases(area)} of 100 cases, give or take {200 * error:.1f} ({'; '.join(beside)})"
    )
    few = min(n_train, n_made) < FEW
    off = (4 if few else 2) * error
    level = level_within(1.0 - area, off, 1.0 - TOLD_GOOD, 1.0 - TOLD_FAIR)
    if few and level != "poor":
        level = "unknown"  # a learner that tells nothing has had too few rows to learn it from
    return _Part(level, said + ", which leaves it open" * (level == "unknown"))


def _cases(area: float) -> str:
    """Write a share as a whole number of 100 cases; 99.9 are not 100."""
    return "more than 99" if 0.995 <= area < 1 else f"{100 * area:.0f}"
