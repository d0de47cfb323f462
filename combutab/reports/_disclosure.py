"""Whether the rows that a generator learned from show through."""

from __future__ import annotations

import math

import pandas as pd

from ._copies import Copies
from ._verdict import BLIND, CLEAR, ERRORS, Finding, counted


def judge_privacy(
    privacy: pd.DataFrame | None, copies: Copies, *, n_made: int, n_compared: int
) -> Finding:
    """Say whether synthetic rows are nearer to the rows learned from than to others, or copies.

    Parameters
    ----------
    privacy : DataFrame or None
        Of the evaluator, with the source "synthetic"; None without held-out rows.
    copies : Copies
    n_made : int
        Synthetic rows.
    n_compared : int
        Rows of each real table that these were compared with by distance.

    Notes
    -----
    The standard error of the share of rows nearer to one learned from is taken as
    ``0.5 * sqrt(1 / n_made + 1 / n_compared)``: the synthetic rows are a sample, and so are the
    real ones, each of which is the nearest to several. That of the area under the ROC curve is
    Mann and Whitney's without a difference, ``sqrt((2 m + 1) / (12 m ** 2))`` with m rows of each
    table.
    """
    copied = copies.of_single > copies.expected + ERRORS * copies.error
    equal = _copies_told(copies, n_made)
    if privacy is None:
        if copied:
            return Finding("privacy", "poor", f"The synthetic table gives real rows away: {equal}.")
        sentence = (
            f"Not known beyond copies: {equal}. Whether synthetic rows come too near to those "
            "learned from shows only beside real rows that the generator has not seen."
        )
        return Finding("privacy", "unknown", sentence)
    values = privacy.set_index("measure")["mean"]
    nearer, area = float(values["share_closer_to_train"]), float(values["membership_auc"])
    m = n_compared
    chance = 0.5 + ERRORS * 0.5 * math.sqrt(1 / n_made + 1 / m)
    chance_of_area = 0.5 + ERRORS * math.sqrt((2 * m + 1) / (12 * m**2))
    signs = [sign for sign, most in ((nearer, chance), (area, chance_of_area)) if sign > most]
    notes = []
    if copied or any(sign >= CLEAR for sign in signs):
        level, begin = "poor", "Rows that the generator learned from show through"
    elif signs:
        level, begin = "fair", "Rows that the generator learned from show through a little"
    elif chance > BLIND:
        level = "unknown"
        begin = f"Not known, with {counted(m, 'row')} of each real table to compare with"
    else:
        level, begin = "good", "No sign that rows learned from show through"
        notes.append(
            "This is no proof of privacy: distances and copies were looked at, and an attacker may "
            "know more."
        )
        if chance > CLEAR:
            notes.append(
                f"With {counted(m, 'row')} of each real table to compare with, up to "
                f"{100 * chance:.0f} of 100 synthetic rows may be nearer by chance: a sign that is "
                "weaker would not be seen."
            )
    sentence = (
        f"{begin}: of 100 synthetic rows, {100 * nearer:.1f} are nearer to a row learned from than "
        "to any held-out one (50 is chance); an attacker who goes by these distances tells which "
        f"of two rows was learned from in {100 * area:.1f} of 100 cases (50 is chance); {equal}."
    )
    return Finding("privacy", level, sentence, tuple(notes))


def _copies_told(copies: Copies, n_made: int) -> str:
    rows = counted(n_made, "synthetic row")
    if not copies.rows:
        return f"none of the {rows} equals a real one"
    by_chance = f"about {copies.expected:,.0f} by chance"
    one = "equals" if copies.rows == 1 else "equal"
    some = f"all {rows}" if copies.rows == n_made else f"{copies.rows:,} of the {rows}"
    if copies.rows == copies.of_single:
        return f"{some} {one} a real one that occurs once ({by_chance})"
    return (
        f"{some} {one} a real one, {copies.of_single:,} of them one that occurs once ({by_chance})"
    )
