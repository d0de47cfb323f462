"""Whether a synthetic table looks like the real one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from ._verdict import ALIKE_FAIR, ALIKE_GOOD, HELD_OUT, SYNTHETIC, Finding, level_of, percent

_TOLD_APART = 0.8  # area under the ROC curve from where rows are called easy to tell
_NEAR = 0.05  # to the area of held-out real rows
_FEW = 100  # rows below which chance alone makes tables differ


def judge_likeness(fidelity: pd.DataFrame, detection: pd.DataFrame, *, n_rows: int) -> Finding:
    """Say how alike columns, pairs of columns and rows are.

    Parameters
    ----------
    fidelity, detection : DataFrame
        Of the evaluators, with the source `SYNTHETIC` and perhaps `HELD_OUT`. The latter may be
        empty.
    n_rows : int
        Of the smaller table.
    """
    score, best = (_alike(fidelity, source) for source in (SYNTHETIC, HELD_OUT))
    if math.isnan(score):
        why = "Not known: the real table has no values to compare with."
        return Finding("likeness", "unknown", why)
    columns = _scores(fidelity, SYNTHETIC, "shape")
    pairs = _scores(fidelity, SYNTHETIC, "pairs")
    what = "Columns and pairs of columns" if len(pairs) else "The columns"
    sentence = f"{what} match the real ones to {percent(score)} on average{_beside(best, percent)}"
    worst = columns.iloc[int(columns["mean"].argmin())]
    if len(columns) > 1 and worst["mean"] < 0.995:
        sentence += f", the column {str(worst['column'])!r} least, to {percent(worst['mean'])}"
    area, reference = (_area(detection, source) for source in (SYNTHETIC, HELD_OUT))
    if not math.isnan(area):
        sentence += (
            "; shown a real row and a synthetic one, gradient boosting tells which is which in "
            f"{_cases(area)} of 100 cases{_beside(reference, _cases, '50 is chance')}"
        )
    level = level_of(score, ALIKE_GOOD, ALIKE_FAIR)
    notes = []
    if level != "good" and score >= best:
        level = "unknown"
        sentence = f"Not known, with so few rows: {sentence[0].lower()}{sentence[1:]}"
        notes.append("Even held-out real rows are not more alike: chance makes tables differ.")
    elif math.isnan(best) and n_rows < _FEW and level != "good":
        notes.append(f"With {n_rows:,} rows, chance alone makes tables differ.")
    as_real_ones = area <= reference + _NEAR  # False of NaN
    if level in ("good", "fair") and area >= _TOLD_APART and not as_real_ones:
        notes.append(
            "Whole rows are easily told from real ones all the same: something is off that single "
            "columns and pairs of columns show little of."
        )
    return Finding("likeness", level, f"{sentence}.", tuple(notes))


def _beside(value: float, told: Callable[[float], str], first: str = "") -> str:
    """In brackets, what held-out real rows have, if that is known."""
    parts = [first] if first else []
    if not math.isnan(value):
        parts.append(f"held-out real rows: {told(value)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _cases(area: float) -> str:
    return f"{100 * area:.0f}"


def _alike(fidelity: pd.DataFrame, source: str) -> float:
    """As `FidelityScorer` has it; NaN where there is nothing to compare."""
    means = [_scores(fidelity, source, aspect)["mean"].mean() for aspect in ("shape", "pairs")]
    known = [float(mean) for mean in means if not math.isnan(mean)]
    return float(np.mean(known)) if known else math.nan


def _scores(fidelity: pd.DataFrame, source: str, aspect: str) -> pd.DataFrame:
    chosen = (fidelity["source"] == source) & (fidelity["aspect"] == aspect)
    return fidelity[chosen & fidelity["greater_is_better"]].dropna(subset="mean")


def _area(detection: pd.DataFrame, source: str) -> float:
    boosted = detection["learner"] == "hist_gradient_boosting"
    return float(detection.loc[boosted & (detection["source"] == source), "mean"].mean())
