"""Whether a synthetic table looks like the real one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from combutab.evaluation import fidelity

from ._verdict import (
    ALIKE_FAIR,
    ALIKE_GOOD,
    HELD_OUT,
    SYNTHETIC,
    TIED,
    Finding,
    level_of,
    percent,
)

_TOLD_APART = 0.8  # area under the ROC curve from where rows are called easy to tell
_NEAR = 0.05  # to the area of held-out real rows
_FEW = 100  # rows below which chance alone makes tables differ


@dataclass(frozen=True)
class Yardsticks:
    """Mean scores of pairs of columns, NaN where there are none.

    Attributes
    ----------
    independent : float
        Of rows whose columns have nothing to do with each other.
    real : float
        Of real rows: of those held out, or else of those learned from, drawn again.
    """

    independent: float
    real: float

    @property
    def tied(self) -> bool:
        """Whether the real columns have enough to do with each other for a share of it."""
        return self.real - self.independent >= TIED


def measure_yardsticks(
    train: pd.DataFrame,
    found: pd.DataFrame,
    *,
    n_rows: int,
    categorical: Collection[Hashable],
    random_state: int,
) -> Yardsticks:
    """Between what and what the synthetic table's pairs can be.

    Parameters
    ----------
    train : DataFrame
        As `align_tables` gives it.
    found : DataFrame
        Of `fidelity`, perhaps with the source `HELD_OUT`.
    n_rows : int
        Of the synthetic table.
    categorical, random_state
        As in `fidelity`.
    """
    rng = np.random.default_rng(random_state)
    # the real table is itself a draw: so few rows of it are as far from it as other n_rows are
    n_drawn = max(2, len(train) * n_rows // (len(train) + n_rows))

    def drawn(column: pd.Series, places: np.ndarray) -> pd.Series:
        return column.take(places).reset_index(drop=True)

    again = rng.integers(len(train), size=n_drawn)
    tables = {
        "independent": {
            name: drawn(train[name], rng.integers(len(train), size=n_drawn)) for name in train
        },
        "again": {name: drawn(train[name], again) for name in train},
    }
    scores = fidelity(
        real=train,
        synthetic={source: pd.DataFrame(columns) for source, columns in tables.items()},
        categorical=categorical,
        max_rows=2,  # of alpha-precision and beta-recall, which are not looked at
        random_state=random_state,
    )
    independent, real = (_pairs(scores, source) for source in tables)
    held_out = _pairs(found, HELD_OUT)
    return Yardsticks(independent, real if math.isnan(held_out) else held_out)


def judge_likeness(
    alike: pd.DataFrame, detection: pd.DataFrame, yardsticks: Yardsticks, *, n_rows: int
) -> Finding:
    """Say how alike columns, pairs of columns and rows are.

    Parameters
    ----------
    alike, detection : DataFrame
        Of `fidelity` and `detection`, with the source `SYNTHETIC` and perhaps `HELD_OUT`. The
        latter may be empty.
    yardsticks : Yardsticks
    n_rows : int
        Of the smaller table.
    """
    columns = _scores(alike, SYNTHETIC, "shape")
    shape, best = (
        float(_scores(alike, source, "shape")["mean"].mean()) for source in (SYNTHETIC, HELD_OUT)
    )
    if math.isnan(shape):
        why = "Not known: the real table has no values to compare with."
        return Finding("likeness", "unknown", why)
    sentence = f"The columns match the real ones to {percent(shape)} on average"
    sentence += _beside(best, percent)
    worst = columns.iloc[int(columns["mean"].argmin())]
    if len(columns) > 1 and worst["mean"] < 0.995:
        sentence += f", the column {str(worst['column'])!r} least, to {percent(worst['mean'])}"
    score = shape
    if yardsticks.tied:
        kept = _kept(_pairs(alike, SYNTHETIC), yardsticks)
        score = (shape + kept) / 2
        best = (best + 1) / 2
        sentence += f"; {percent(kept)} of what ties columns together is kept"
    elif len(columns) > 1:
        sentence += "; the real columns have next to nothing to do with each other"
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


def _kept(pairs: float, yardsticks: Yardsticks) -> float:
    """The share of the way from independent columns to real ones, from 0 to 1."""
    way = yardsticks.real - yardsticks.independent
    return min(max((pairs - yardsticks.independent) / way, 0.0), 1.0)


def _beside(value: float, told: Callable[[float], str], first: str = "") -> str:
    """In brackets, what held-out real rows have, if that is known."""
    parts = [first] if first else []
    if not math.isnan(value):
        parts.append(f"held-out real rows: {told(value)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _cases(area: float) -> str:
    return f"{100 * area:.0f}"


def _pairs(alike: pd.DataFrame, source: str) -> float:
    return float(_scores(alike, source, "pairs")["mean"].mean())


def _scores(alike: pd.DataFrame, source: str, aspect: str) -> pd.DataFrame:
    chosen = (alike["source"] == source) & (alike["aspect"] == aspect)
    return alike[chosen & alike["greater_is_better"]].dropna(subset="mean")


def _area(detection: pd.DataFrame, source: str) -> float:
    boosted = detection["learner"] == "hist_gradient_boosting"
    return float(detection.loc[boosted & (detection["source"] == source), "mean"].mean())
