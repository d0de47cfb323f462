"""Conformal prediction: intervals and sets of labels that hold the truth with a chosen probability.

Rows that networks were not trained on have nonconformity scores: large ones if the prediction was
far from the target. A quantile of the scores is the largest score that a value in the interval, or
a label in the set, may have (Vovk et al., "Algorithmic learning in a random world", 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from combutab.core.files import kind, number
from combutab.core.state import declare
from combutab.estimators._targets import Target
from combutab.training import Rows

_MAX_LEVELS = 1000
_DIGITS = 3  # so that a file does not have the exact residual of a row


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Distribution of the nonconformity scores of rows that networks were not trained on.

    ``n_rows`` is their number, or the effective number if they have weights. A share (i + 1) / m of
    the rows has scores of at most ``levels[i]``, for m levels.
    """

    n_rows: float
    levels: np.ndarray  # (m,) increasing

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray | None) -> Self:
        """Compute from the scores of rows, (n,), and their weights."""
        if weight is None:
            weight = np.ones(len(scores))
        scores, weight = scores[weight > 0], weight[weight > 0]
        order = np.argsort(scores)
        shares = np.cumsum(weight[order]) / weight.sum()
        m = min(len(scores), _MAX_LEVELS)
        index = np.searchsorted(shares, np.arange(1, m + 1) / m - 1e-9)
        n_rows = float(weight.sum() ** 2 / np.square(weight).sum()) if m else 0.0
        return cls(n_rows, _round_up(scores[order][np.minimum(index, len(scores) - 1)]))

    def threshold(self, coverage: float, rows: str) -> float:
        """The score that a new row exceeds with a probability of at most 1 - ``coverage``.

        Raises ValueError if there are too few rows, which the error calls ``rows``.
        """
        share = coverage * (1 + 1 / self.n_rows) if self.n_rows else math.inf
        if share > 1 + 1e-9:
            raise ValueError(
                f"coverage={coverage} needs at least {math.ceil(coverage / (1 - coverage) - 1e-9)} "
                f"{rows} that fit set aside, it set {self.n_rows:.0f} aside; lower coverage, or "
                "fit with more rows or bagging='cv'"
            )
        return float(self.levels[math.ceil(min(share, 1.0) * len(self.levels) - 1e-6) - 1])

    def _check(self) -> None:
        levels = self.levels
        if levels.ndim != 1 or levels.dtype.kind != "f" or len(levels) > _MAX_LEVELS:
            raise ValueError(f"conformal scores must have a list of at most {_MAX_LEVELS} levels")
        if np.isnan(levels).any() or (levels[1:] < levels[:-1]).any() or (levels < 0).any():
            raise ValueError("levels of conformal scores must be at least 0, and increase")
        if (self.n_rows > 0) != (len(levels) > 0):
            raise ValueError(f"conformal scores of {self.n_rows} rows have {len(levels)} levels")


declare(ConformalScores, {"n_rows": number(), "levels": kind(np.ndarray)}, ConformalScores._check)


def _round_up(scores: np.ndarray) -> np.ndarray:
    """Round numbers of at least 0 up to a few significant digits; 0 and infinity are unchanged."""
    is_rounded = np.isfinite(scores) & (scores > 1e-290)
    values = scores[is_rounded]
    exponent = np.floor(np.log10(values)) - (_DIGITS - 1)
    power = 10.0 ** np.abs(exponent)  # division and multiplication by it have short decimals
    rounded = scores.copy()
    with np.errstate(over="ignore"):  # in the value that is not taken
        rounded[is_rounded] = np.where(
            exponent < 0,
            np.ceil(values * power - 1e-9) / power,
            np.ceil(values / power - 1e-9) * power,
        )
    return rounded


def learn_scores(
    target: Target, outputs: Sequence[tuple[Tensor, Tensor]], rows: Rows
) -> list[ConformalScores]:
    """Compute the scores of rows from raw outputs of networks that were not trained on them.

    Parameters
    ----------
    target : Target
    outputs : sequence of (positions, raw)
        Positions of rows, (n,), and the raw outputs of their networks, (n_networks, n, n_outputs).
    rows : Rows
        All encoded rows, with targets and weights.

    Returns
    -------
    list of ConformalScores
        As ``Target.score_groups`` says.
    """
    index = torch.cat([positions for positions, _ in outputs])
    parts = [target.nonconformity(raw, rows.y[positions]) for positions, raw in outputs]
    scores = np.nan_to_num(torch.cat(parts).numpy(), nan=np.inf, posinf=np.inf)
    weight = None if rows.weight is None else rows.weight[index].double().numpy()
    return [
        ConformalScores.of(scores[group, column], None if weight is None else weight[group])
        for column, group in target.score_groups(rows.y[index].numpy())
    ]


def check_scores(target: Target, scores: Sequence[ConformalScores]) -> None:
    """Refuse scores of a file if they do not belong to the target."""
    expected = len(target.score_groups(np.zeros(0)))
    if len(scores) not in (0, expected):
        raise ValueError(f"there are {len(scores)} conformal scores, the target has {expected}")


def thresholds(
    estimator: Any, coverage: float, names: Sequence[str], scores: Sequence[ConformalScores]
) -> Tensor:
    """Thresholds of scores for a coverage; ``names`` say in errors which rows each is from.

    Raises ValueError if the coverage is invalid or there are too few rows.
    """
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0 < coverage < 1:
        raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r}")
    if not scores:
        raise ValueError(
            f"this {type(estimator).__name__} has no rows that fit set aside, which intervals and "
            "sets of labels are computed from; fit it with early_stopping=True, bagging='cv' or "
            "X_val (a pack with at least 50 rows), without warm_start or partial_fit"
        )
    return torch.tensor(
        [s.threshold(float(coverage), name) for s, name in zip(scores, names, strict=True)],
        dtype=torch.float64,
    )
