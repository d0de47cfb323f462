"""Can the choice be foreseen from the table? Leave-one-table-out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.activations.effects import by_table
from combutab.evaluation import Interval, holm, t_interval, wilcoxon

N_NEIGHBOURS = 3
RULES = ("best on the other tables", "ridge", "nearest tables", "its own other splits")


def foresee(logs: pd.DataFrame, features: pd.DataFrame, default: str) -> pd.DataFrame:
    """Errors of activations that rules choose for a table they have not seen.

    Parameters
    ----------
    logs : DataFrame
        As `effects.block` gives it.
    features : DataFrame, a row a table
        What is known beforehand.
    default : str
        The activation whose error they are compared with.

    Returns
    -------
    DataFrame of tables x rules
        Logarithm of the error over the default's. "its own other splits" chooses by the mean error
        on the table's other splits: what there is to foresee at all. It is missing where there is
        one split.
    """
    means = by_table(logs)
    known = features.loc[means.index].to_numpy(float)
    centred = means.sub(means.mean(axis=1), axis=0)
    models = {
        "ridge": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 11))),
        "nearest tables": make_pipeline(StandardScaler(), KNeighborsRegressor(N_NEIGHBOURS)),
    }
    chosen: dict[str, list[float]] = {rule: [] for rule in RULES}
    for i, table in enumerate(means.index):
        others = np.arange(len(means)) != i
        own = means.loc[table]

        def cost(choice: int, own: pd.Series = own) -> float:
            return float(own.iloc[choice] - own[default])

        chosen[RULES[0]].append(cost(int(centred[others].mean().to_numpy().argmin())))
        for rule, model in models.items():
            model.fit(known[others], centred.to_numpy()[others])
            chosen[rule].append(cost(int(model.predict(known[[i]]).argmin())))
        chosen[RULES[3]].append(_by_own_splits(logs.loc[table], default))
    return pd.DataFrame(chosen, index=means.index).dropna(axis=1)


def _by_own_splits(own: pd.DataFrame, default: str) -> float:
    """Mean over splits of the cost of what the others choose."""
    if len(own) < 2:
        return np.nan
    costs = []
    for split in own.index:
        choice = own.drop(index=split).mean().idxmin()
        costs.append(own.loc[split, choice] - own.loc[split, default])
    return float(np.mean(costs))


def judged(costs: pd.DataFrame) -> dict[str, tuple[Interval, float]]:
    """The ratio of errors to the default's, and Wilcoxon's p over tables, Holm-adjusted."""
    pvalues = holm([wilcoxon(cost, 0.0 * cost).pvalue for _, cost in costs.items()])
    return {
        rule: (Interval(*np.exp(t_interval(cost)).tolist()), float(p))
        for (rule, cost), p in zip(costs.items(), pvalues, strict=True)
    }
