"""The scores of an evaluation by name, and requirements on them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import pandas as pd

from combutab.core.metrics import METRICS
from combutab.core.requirements import DATABASE_SCORES, SCORES, check_requirements
from combutab.reports._attacks import ATTRIBUTES, MEMBERSHIP, SINGLING_OUT
from combutab.reports._findings import (
    C2ST,
    HELD_OUT,
    LITTLE,
    SYNTHETIC,
    best_learner,
    retained_of_targets,
)
from combutab.reports._yardsticks import column_losses, pair_losses


def _utility(evaluation: Any) -> float:
    if evaluation.targets is not None:
        return retained_of_targets(evaluation.targets)[0]
    if evaluation.efficacy is None or evaluation.guess is None:
        return math.nan
    metric = METRICS[str(evaluation.task)][str(evaluation.metric)]
    table = evaluation.efficacy
    table = table[table["learner"] == best_learner(table, metric)]
    scores = table[table["metric"] == metric.name].set_index("source")
    means, error = scores["mean"], float(scores["se"]["real"])
    sign = 1 if metric.greater_is_better else -1
    improvement = sign * (float(means["real"]) - evaluation.guess)
    if not improvement >= max(LITTLE, 2 * error):  # as in the finding: the share would be chance
        return math.nan
    return sign * (float(means[SYNTHETIC]) - evaluation.guess) / improvement


def _detection_auc(evaluation: Any, source: str = SYNTHETIC) -> float:
    table = evaluation.detection
    chosen = table[(table["learner"] == C2ST) & (table["source"] == source)]["mean"]
    return float(chosen.iloc[0]) if len(chosen) else math.nan


def _detection(evaluation: Any) -> float:
    return 2 * (1 - max(_detection_auc(evaluation), 0.5))  # NaN stays NaN


def _mean_of(measure: str) -> Callable[[Any], float]:
    def compute(evaluation: Any) -> float:
        table = evaluation.fidelity
        return float(_of_synthetic(table[table["measure"] == measure])["mean"].mean())

    return compute


def _of_synthetic(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["source"] == SYNTHETIC]


def _distance_measure(measure: str) -> Callable[[Any], float]:
    def compute(evaluation: Any) -> float:
        if evaluation.privacy is None:
            return math.nan
        return float(evaluation.privacy.set_index("measure")["mean"][measure])

    return compute


def _membership(measure: str, rows: str) -> Callable[[Any], float]:
    def compute(evaluation: Any) -> float:
        table = evaluation.attacks.get(MEMBERSHIP)
        if table is None:
            return math.nan
        chosen = (table["attack"] == "worst") & (table["measure"] == measure)
        values = table[chosen & (table["rows"] == rows)]["value"]
        return float(values.iloc[0]) if len(values) else math.nan

    return compute


def _attack_advantage(attack: str) -> Callable[[Any], float]:
    def compute(evaluation: Any) -> float:
        table = evaluation.attacks.get(attack)  # the last row has the worst, or all predicates
        return math.nan if table is None else float(table["advantage"].iloc[-1])

    return compute


def mean_match(fidelity: pd.DataFrame) -> float:
    """The mean match of the distributions of columns."""
    return float(1 - column_losses(fidelity, SYNTHETIC).mean())


_COMPUTE: dict[str, Callable[[Any], float]] = {
    "utility": _utility,
    "detection": _detection,
    "detection_auc": _detection_auc,
    "real_detection_auc": lambda evaluation: _detection_auc(evaluation, HELD_OUT),
    "columns": lambda evaluation: mean_match(evaluation.fidelity),
    "pairs": lambda evaluation: float(1 - pair_losses(evaluation.fidelity, SYNTHETIC).mean()),
    "alpha_precision": _mean_of("alpha_precision"),
    "beta_recall": _mean_of("beta_recall"),
    "copies": lambda evaluation: float(evaluation.copies),
    "share_closer_to_train": _distance_measure("share_closer_to_train"),
    "membership_auc": _membership("auc", "all"),
    "membership_tpr@1%": _membership("tpr@1%", "all"),
    "membership_tpr@10%": _membership("tpr@10%", "all"),
    "isolated_tpr@1%": _membership("tpr@1%", "isolated"),
    "isolated_tpr@10%": _membership("tpr@10%", "isolated"),
    "attribute_advantage": _attack_advantage(ATTRIBUTES),
    "singling_out_advantage": _attack_advantage(SINGLING_OUT),
}


def scores_of(evaluation: Any) -> dict[str, float]:
    """Compute all scores by name; NaN if not known."""
    return {name: _COMPUTE[name](evaluation) for name in SCORES}


def person_scores(persons: Sequence[Any]) -> dict[str, float]:
    """Compute the largest scores of privacy of several tables; NaN if not known for one of them."""
    names = [name for name in DATABASE_SCORES if name in _COMPUTE and name != "columns"]
    values = {name: [_COMPUTE[name](person) for person in persons] for name in names}
    return {name: float(pd.Series(values[name], dtype=float).max(skipna=False)) for name in names}


class ScoredEvaluation(ABC):
    """An evaluation whose scores have names."""

    @property
    @abstractmethod
    def scores(self) -> dict[str, float]:
        """The scores that `require` may name; NaN if a score is not known."""

    def require(self, *requirements: str) -> Self:
        """Raise an error if the scores do not meet requirements.

        Parameters
        ----------
        *requirements : str
            Names of `scores` with a bound, such as "detection>=0.8" or "membership_tpr@1%<=0.03",
            and for several tables "orphans<=0".

        Returns
        -------
        SyntheticEvaluation or TablesEvaluation
            This evaluation, if all requirements are met.

        Raises
        ------
        RequirementError
            If a requirement is not met, or its score is not known. ``failures`` has a sentence for
            each.
        ValueError
            If a name is not known (the message lists the known ones), or a requirement has another
            form.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> from combutab.reports import evaluate_synthetic
        >>> rng = np.random.default_rng(0)
        >>> people = pd.DataFrame(rng.normal(size=(900, 2)), columns=["age", "height"])
        >>> evaluation = evaluate_synthetic(
        ...     real_train=people[:300], real_test=people[300:600], synthetic=people[:300]
        ... )
        >>> evaluation.require("columns>=0.9")
        SyntheticEvaluation(utility='unknown', fidelity='good', privacy='poor', n_synthetic=300)
        >>> evaluation.require("columns>=0.9", "membership_tpr@1%<=0.03")
        Traceback (most recent call last):
        ...
        combutab.core.requirements.RequirementError: membership_tpr@1%<=0.03: it is 1
        """
        check_requirements(self.scores, requirements)
        return self
