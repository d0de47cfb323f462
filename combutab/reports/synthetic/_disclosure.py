"""Judge whether the rows that a generator learned from show through."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import pandas as pd

from combutab.reports.synthetic._copies import Copies
from combutab.reports.synthetic._verdict import BLIND, CLEAR, ERRORS, Finding, counted


def judge_privacy(
    privacy: pd.DataFrame | None,
    copies: Copies,
    *,
    n_made: int,
    n_compared: int,
    share_error: float,
    n_seen: int = 0,
    values: Mapping[Hashable, Copies] | None = None,
) -> Finding:
    """Say whether synthetic rows are nearer to the rows learned from than to others, or copies.

    ``privacy`` is the evaluator's table, None without held-out rows, and ``share_error`` the
    standard deviation by chance of its share of rows nearer to one learned from. ``n_compared``
    rows of each real table were compared by distance; ``n_seen`` held-out rows are among those
    learned from, where these are too many for chance; ``values`` has the columns whose values are
    copied where one real row has them, beyond chance.

    The standard error of the area under the ROC curve is Mann and Whitney's for two groups that do
    not differ, ``sqrt((2 m + 1) / (12 m ** 2))`` with m rows of each real table.
    """
    copied = not copies.by_chance
    single = {} if copied or not values else values
    equal = _copies_told(copies, n_made) + _values_told(single)
    if privacy is None or n_seen:
        if copied or single:
            what = "rows" if copied else "values"
            return Finding(
                "privacy", "poor", f"The synthetic table gives real {what} away: {equal}."
            )
        why = (
            "Whether synthetic rows come too near to those learned from shows only beside real "
            "rows that the generator has not seen."
        )
        if n_seen:
            why = (
                f"The held-out real rows are no test: {n_seen:,} of them are among the rows "
                "learned from."
            )
        return Finding("privacy", "unknown", f"Not known beyond copies: {equal}. {why}")
    signals = privacy.set_index("measure")["mean"]
    nearer, area = float(signals["share_closer_to_train"]), float(signals["membership_auc"])
    m = n_compared
    off_share = ERRORS * share_error
    off_area = ERRORS * math.sqrt((2 * m + 1) / (12 * m**2))
    signs = [sign for sign, off in ((nearer, off_share), (area, off_area)) if sign > 0.5 + off]
    notes = []
    rows = counted(m, "row")
    if copied or any(sign >= CLEAR for sign in signs):
        level, begin = "poor", "Rows that the generator learned from show through"
    elif single:
        level, begin = "poor", "Values that one real row alone has are copied"
    elif signs:
        level, begin = "fair", "Rows that the generator learned from show through a little"
    elif 0.5 + off_area > BLIND:
        level, begin = "unknown", f"Not known, with {rows} of each real table to compare with"
    else:
        level, begin = "good", "No sign that rows learned from show through"
        notes.append(
            "This is no proof of privacy: distances and copies were looked at, and an attacker may "
            "know more."
        )
        if 0.5 + off_area > CLEAR:
            notes.append(
                f"With {rows} of each real table to compare with, signs that are weaker than what "
                "chance does would not be seen."
            )
    sentence = (
        f"{begin}: of 100 synthetic rows, {100 * nearer:.1f} are nearer to a row learned from than "
        f"to any held-out one ({_by_chance(off_share)}); an attacker who goes by these distances "
        f"tells which of two rows was learned from in {100 * area:.1f} of 100 cases "
        f"({_by_chance(off_area)}); {equal}."
    )
    return Finding("privacy", level, sentence, tuple(notes))


def _by_chance(off: float) -> str:
    return f"by chance 50, give or take {100 * min(off, 0.5):.1f}"


def _copies_told(copies: Copies, n_made: int) -> str:
    if n_made == 1:
        return f"the one synthetic row equals {'a real one' if copies.rows else 'no real one'}"
    if not copies.rows:
        return f"none of the {n_made:,} synthetic rows equals a real one"
    by_chance = f"about {copies.expected:,.0f} by chance"
    some = "all" if copies.rows == n_made else f"{copies.rows:,} of the"
    equal = f"{some} {n_made:,} synthetic rows equal{'s' * (copies.rows == 1)} a real one"
    if copies.rows == copies.of_single:
        return f"{equal} that occurs once ({by_chance})"
    return f"{equal}, {copies.of_single:,} of them one that occurs once ({by_chance})"


def _values_told(values: Mapping[Hashable, Copies]) -> str:
    if not values:
        return ""
    worst = max(values, key=lambda column: values[column].of_single - values[column].expected)
    others = f", as are such values of {counted(len(values) - 1, 'other column')}"
    return (
        f"; values of {str(worst)!r} that one real row alone has are copied in "
        f"{counted(values[worst].of_single, 'synthetic row')} (about "
        f"{values[worst].expected:,.0f} by chance){others if len(values) > 1 else ''}"
    )
