"""Privacy attacks in a report: which are tried, and which of their results are signs of leakage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from combutab.evaluation import (
    AlignedTables,
    attribute_inference,
    membership_inference,
    singling_out,
)
from combutab.reports._copies import ALPHA

MEMBERSHIP, ATTRIBUTES, SINGLING_OUT = (
    "membership inference",
    "attribute inference",
    "singling out",
)
_FEWEST = 4  # rows or persons of each real table


def run_attacks(
    aligned: AlignedTables, person: Hashable | None, options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """The results of the attacks by name; empty if there are too few rows for any.

    ``aligned`` has the tables "real", "synthetic" and "test", with the column ``person``.
    """
    train, test = aligned["real"], aligned["test"]
    if person is None:
        sizes = [len(train), len(test)]
    else:
        is_member = test[person].isin(train[person].unique())
        sizes = [train[person].nunique(), test[person][~is_member].nunique()]
    if min(*sizes, _FEWEST) < _FEWEST or not len(aligned["synthetic"]):
        return {}
    tables = {"real_train": train, "synthetic": aligned["synthetic"], "holdout": test}
    seed = {"random_state": options["random_state"]}
    shared = {**tables, "person": person, "categorical": aligned.columns("category"), **seed}
    results = {MEMBERSHIP: membership_inference(**shared, n_jobs=options["n_jobs"])}
    if train.shape[1] - (person is not None) > 1:
        results[ATTRIBUTES] = attribute_inference(**shared, n_jobs=options["n_jobs"])
    return results | {SINGLING_OUT: singling_out(**shared)}


def distance_area(attacks: Mapping[str, pd.DataFrame]) -> tuple[float, float]:
    """The ROC AUC of membership inference by distance, and its standard error by chance."""
    if MEMBERSHIP not in attacks:
        return 0.5, np.inf
    table = attacks[MEMBERSHIP]
    chosen = (table["rows"] == "all") & (table["measure"] == "auc")
    row = table[chosen & (table["attack"] == "distance")].iloc[0]
    n, m = row["n_members"], row["n_non_members"]
    # Mann and Whitney's, for two groups that do not differ
    return float(row["value"]), float(np.sqrt((n + m + 1) / (12 * n * m)))


@dataclass(frozen=True)
class AttackResult:
    """The success of an attack on training rows, and without any leakage.

    Attributes
    ----------
    attack : {MEMBERSHIP, ATTRIBUTES, SINGLING_OUT}
    name : str
        The strongest attack, the column, or the kind of predicates.
    rows, measure : str
        Of membership inference: "all" or "isolated", and "tpr@1%" or "tpr@10%"; else "".
    success, reference : float
        Share of successes; and by chance, or on held-out rows.
    low, high : float
        95 % interval of the success, or of the advantage; NaN for singling out.
    is_sign : bool
        Whether chance explains it improbably, at the level ``ALPHA`` for each attack.
    """

    attack: str
    name: str
    rows: str
    measure: str
    success: float
    reference: float
    low: float
    high: float
    is_sign: bool

    @property
    def advantage(self) -> float:
        return self.success - self.reference

    @property
    def rate(self) -> str:
        """The false positives of a measure of membership inference, such as "1 %"."""
        return self.measure.removeprefix("tpr@").replace("%", " %")


def attack_results(attacks: Mapping[str, pd.DataFrame]) -> list[AttackResult]:
    """The results that are known: the worst of each kind."""
    results = []
    membership = attacks.get(MEMBERSHIP)
    if membership is not None:
        worst = membership[(membership["attack"] == "worst") & (membership["measure"] != "auc")]
        for row in worst.dropna(subset="value").to_dict("records"):
            is_sign = row["pvalue"] < ALPHA / len(worst)
            name = row["note"].split(";")[0]
            of_rows = (row["rows"], row["measure"], row["value"], row["reference"])
            results.append(
                AttackResult(MEMBERSHIP, name, *of_rows, row["low"], row["high"], is_sign)
            )
    attributes = attacks.get(ATTRIBUTES)
    if attributes is not None:
        row = attributes.iloc[-1].to_dict()  # the worst column, adjusted for its choice
        shares = (row["success"], row["holdout_success"], row["low"], row["high"])
        column = str(attributes["column"].iloc[int(attributes["advantage"].iloc[:-1].argmax())])
        results.append(AttackResult(ATTRIBUTES, column, "", "", *shares, row["pvalue"] < ALPHA))
    predicates = attacks.get(SINGLING_OUT)
    if predicates is not None:
        for row in predicates.dropna(subset="success").to_dict("records"):
            shares = (row["success"], row["holdout_success"], np.nan, np.nan)
            is_sign = row["pvalue"] < ALPHA / len(predicates)
            results.append(AttackResult(SINGLING_OUT, row["predicates"], "", "", *shares, is_sign))
    return results
