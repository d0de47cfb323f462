"""Numbers of the approximation study's report: losses, claims, ranks, and the propositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from benchmarks.papers.pln.approximation_runs import (
    ACTIVATIONS,
    HIGH,
    LOW,
    N_GRID,
    PLN_SIZES,
    PLS_SIZES,
    TARGETS,
    norm_size,
)
from combutab.constructions import lipschitz_network
from combutab.evaluation import friedman, holm, mean_ranks, wilcoxon

LEVEL = 0.05
DIVERGED = 1.0  # the log loss that a network counts with that has none: more than zero's is
FAMILIES = {
    "PLN": tuple(f"pln-{size}" for size in PLN_SIZES),
    "PLS": tuple(f"pls-{size}" for size in PLS_SIZES),
}
PROVED = ("pln-2", "pln-4", "pls-1", "pls-2", "sigmoid", "tanh", "relu")
OURS, CLASSIC = ("pln-4", "pls-2"), ("sigmoid", "tanh", "relu")  # of Figure 4

_PLACE, _SETTING = ["data", "activation", "width"], ["solver", "batch_size", "learning_rate"]

Pair = tuple[str, str, str]  # target, what is to have the lower loss, and the higher


def finals(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each activation's best setting at each width, by its median over the seeds.

    ``log_loss`` is the natural logarithm of the squared error at the training points.
    """
    rows = rows[rows["stage"] == "final"].copy()
    rows["log_loss"] = np.log(rows["mse"]).fillna(DIVERGED).clip(upper=DIVERGED)
    medians = rows.groupby([*_PLACE, *_SETTING], sort=False)["log_loss"].median().reset_index()
    best = medians.loc[medians.groupby(_PLACE, sort=False)["log_loss"].idxmin()]
    order = {name: i for i, name in enumerate(ACTIVATIONS)}
    return rows.merge(best[[*_PLACE, *_SETTING]]).sort_values(
        "activation", key=lambda names: names.map(order), kind="stable", ignore_index=True
    )


def cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Median and range over seeds by ``data``, ``activation`` and ``width``."""
    groups = rows.groupby(["data", "activation", "width"], sort=False)
    loss, sup = groups["log_loss"], groups["sup_error"]
    return pd.DataFrame(
        {
            "median": loss.median(),
            "low": loss.min(),
            "high": loss.max(),
            "sup": sup.median(),
            "sup_low": sup.min(),
            "sup_high": sup.max(),
            "runs": groups.size(),
        }
    ).reset_index()


def load_claims() -> pd.DataFrame:
    """The paper's orderings: its text has no numbers, Tables I to III are pictures of fits."""
    file = Path(__file__).parent / "expected" / "pln_approximation.csv"
    return pd.read_csv(file, keep_default_na=False)


def compare(rows: pd.DataFrame, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Test for each pair whether the first's loss is lower, over all widths and seeds.

    Returns
    -------
    DataFrame
        A row a pair that both were trained for: ``data``, ``lower``, ``higher``, ``difference``
        (median of the log losses' differences), ``widths`` and ``won`` (those where the first's
        median is lower), ``pvalue`` (Wilcoxon's signed-rank test of the pairs of one width and
        seed, Holm-adjusted for all pairs given) and ``verdict``: "holds", "reversed" or
        "not shown".
    """
    table = rows.pivot_table(
        index=["data", "width", "seed"], columns="activation", values="log_loss"
    )
    lines = []
    for data, lower, higher in pairs:
        if not {lower, higher} <= set(table) or data not in table.index:
            continue
        both = table.loc[data, [lower, higher]].dropna()
        if both.empty:
            continue
        medians = both.groupby("width").median()
        lines.append(
            {
                "data": data,
                "lower": lower,
                "higher": higher,
                "difference": (both[lower] - both[higher]).median(),
                "won": int((medians[lower] < medians[higher]).sum()),
                "widths": len(medians),
                "pvalue": wilcoxon(both[lower], both[higher]).pvalue,
            }
        )
    found = pd.DataFrame(lines)
    if not found.empty:
        found["pvalue"] = holm(found["pvalue"])
        found["verdict"] = [
            "not shown" if p >= LEVEL else "holds" if difference < 0 else "reversed"
            for p, difference in zip(found["pvalue"], found["difference"], strict=True)
        ]
    return found


def trends(rows: pd.DataFrame) -> pd.DataFrame:
    """Whether the loss falls as the width grows: Spearman's correlation over widths and seeds.

    Returns
    -------
    DataFrame
        ``data``, ``activation``, ``correlation``, ``pvalue`` (Holm-adjusted for all rows) and
        ``verdict``: "falls", "rises" or "neither shown". Of a single width there is no row.
    """
    lines = []
    for (data, activation), part in rows.groupby(["data", "activation"], sort=False):
        if part["width"].nunique() < 2:
            continue
        found = stats.spearmanr(part["width"], part["log_loss"])
        lines.append((data, activation, float(found.statistic), float(found.pvalue)))
    table = pd.DataFrame(lines, columns=["data", "activation", "correlation", "pvalue"])
    if not table.empty:
        table["pvalue"] = holm(table["pvalue"])
    table["verdict"] = [
        "neither shown" if p >= LEVEL else "falls" if correlation < 0 else "rises"
        for p, correlation in zip(table["pvalue"], table["correlation"], strict=True)
    ]
    return table


@dataclass(frozen=True)
class Ranking:
    """How the norm sizes of one family rank on one target."""

    data: str
    family: str
    ranks: pd.Series  # mean rank by activation, best first
    pvalue: float  # Friedman's
    n_widths: int


def rank_sizes(rows: pd.DataFrame) -> list[Ranking]:
    """Rank the norm sizes by their loss, over seeds and those widths that have all of them."""
    found = []
    for data in dict.fromkeys(rows["data"]):
        for family, names in FAMILIES.items():
            part = rows[(rows["data"] == data) & rows["activation"].isin(names)]
            table = part.pivot_table(
                index=["width", "seed"], columns="activation", values="log_loss"
            ).dropna()
            if len(table) < 2 or table.shape[1] < 3:
                continue
            ranks = mean_ranks(table, greater_is_better=False).sort_values()
            n_widths = table.index.get_level_values("width").nunique()
            found.append(Ranking(data, family, ranks, friedman(table).pvalue, n_widths))
    return found


@dataclass(frozen=True)
class Reference:
    """What propositions 1 to 3 promise for a width, and the network of their proofs."""

    bound: float  # errors above it are reached for every such function
    sup: float
    log_loss: float


def reference(data: str, activation: str, width: int) -> Reference:
    """The error that N units suffice for, and the written-down network's own.

    floor(L / 2 epsilon) + 1 <= N for every epsilon > L / 2N: N = width / d groups of d units, or
    the width itself; ReLU has N + 1 units. L is that of the function on [0, 1], 10 times ours.
    """
    target, size = TARGETS[data], norm_size(activation)
    kind = activation.partition("-")[0]
    n = width - 1 if kind == "relu" else width // size
    lipschitz = (HIGH - LOW) * target.lipschitz
    network = lipschitz_network(
        lambda t: target.function(LOW + (HIGH - LOW) * t),
        lipschitz,
        lipschitz / (2 * n - 1),
        kind,
        norm_size=size if kind in ("pln", "pls") else None,
    )

    @torch.inference_mode()
    def errors(x: np.ndarray) -> np.ndarray:
        t = torch.from_numpy((x - LOW) / (HIGH - LOW))[:, None]
        return network(t)[:, 0].numpy() - target.function(x)

    return Reference(
        lipschitz / (2 * n),
        float(np.abs(errors(np.linspace(LOW, HIGH, N_GRID))).max()),
        math.log(np.square(errors(target.points())).mean()),
    )


def slope(widths: Sequence[float], errors: Sequence[float]) -> float:
    """Of the least-squares line through the logarithms; NaN for less than two finite errors."""
    x, y = np.log(np.asarray(widths, float)), np.log(np.asarray(errors, float))
    finite = np.isfinite(y)
    if finite.sum() < 2:
        return math.nan
    return float(np.polyfit(x[finite], y[finite], 1)[0])


def against_bounds(rows: pd.DataFrame) -> pd.DataFrame:
    """By target, activation and width: the trained networks' greatest errors, and the theory's."""
    table = cells(rows)
    table = table[table["activation"].isin(PROVED)].copy()
    theory = [reference(row.data, row.activation, int(row.width)) for row in table.itertuples()]
    table["bound"] = [found.bound for found in theory]
    table["constructed"] = [found.sup for found in theory]
    table["constructed_log_loss"] = [found.log_loss for found in theory]
    return table.reset_index(drop=True)
