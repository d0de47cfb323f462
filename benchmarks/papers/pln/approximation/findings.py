"""What the rows of the approximation study say: the losses that count, tests, and the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from benchmarks.common.claims import Finding
from benchmarks.common.looks import label
from benchmarks.common.page import p_text
from benchmarks.papers.pln.approximation import runs
from benchmarks.papers.pln.approximation.runs import CLASSIC, FAMILIES, HIGH, LOW, TARGETS
from combutab.constructions import lipschitz_network
from combutab.evaluation import friedman, holm, mean_ranks, wilcoxon

LEVEL = 0.05
DIVERGED = 1.0  # the log loss that a network counts with that has none: more than zero's is
PROVED = ("pln-2", "pln-4", "pls-1", "pls-2", *CLASSIC)
CELL = ["data", "activation", "width"]
SETTING = ["solver", "batch_size", "learning_rate"]
Order = tuple[str, str, str, str]  # where it is said, target, who has the lower loss, the higher
# the paper's, whose text has no numbers; Tables I to III are pictures
EXPECTED = pd.read_csv(Path(__file__).parents[1] / "expected" / "pln_approximation.csv")
ORDERS: list[Order] = [row[:4] for row in EXPECTED.itertuples(index=False, name=None)]
CONTEST = [("Figures 4, A1", *pair) for pair in product(TARGETS, ("pln-4", "pls-2"), CLASSIC)]
Key = tuple[str, str, str]  # where the paper says it, the claim, and the column of the verdict
Test = tuple[str, float, bool]  # the statistic, p, and whether it is as claimed


def finals(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each activation's best setting at each width, by its median over the seeds.

    ``log_loss`` is the natural logarithm of the squared error at the training points.
    """
    rows = rows[rows["stage"] == "final"].copy()
    rows["log_loss"] = np.log(rows["mse"]).fillna(DIVERGED).clip(upper=DIVERGED)
    medians = rows.groupby([*CELL, *SETTING], sort=False)["log_loss"].median().reset_index()
    best = medians.loc[medians.groupby(CELL, sort=False)["log_loss"].idxmin()]
    return rows.merge(best[[*CELL, *SETTING]]).sort_values(
        "activation", key=lambda names: names.map(runs.ACTIVATIONS.index), kind="stable"
    )


def cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Median and range over seeds by ``data``, ``activation`` and ``width``."""
    names = ["median", "low", "high", "sup", "sup_low", "sup_high"]
    errors = rows.groupby(CELL, sort=False)[["log_loss", "sup_error"]]
    return errors.agg(["median", "min", "max"]).set_axis(names, axis=1).reset_index()


def decide(tests: Mapping[Key, Test]) -> dict[Key, Finding]:
    """Judge by Holm's adjustment for all tests; what is not significant decides nothing."""
    pvalues = holm([p for _, p, _ in tests.values()])
    return {
        key: Finding(f"{said}, {p_text(p)}", [so if p < LEVEL else None])
        for (key, (said, _, so)), p in zip(tests.items(), pvalues, strict=True)
    }


def compare(rows: pd.DataFrame, orders: Iterable[Order]) -> dict[Key, Test]:
    """Test, of activations that were trained, whether the first's loss is lower."""
    index, tests = ["data", "width", "seed"], dict[Key, Test]()
    table = rows.pivot_table("log_loss", index, "activation")
    for where, data, lower, higher in orders:
        if {lower, higher} <= set(table):
            both = table.loc[data, [lower, higher]].dropna()
            medians, difference = both.groupby("width").median(), both[lower] - both[higher]
            won = medians[lower] < medians[higher]
            said = f"{difference.median():+.2f}, {won.sum()} of {len(won)} widths"
            p = wilcoxon(both[lower], both[higher]).pvalue
            claim = f"{data}: {label(lower)} < {label(higher)}"
            tests[where, claim, "here"] = said, p, bool(difference.median() < 0)
    return tests


def trends(rows: pd.DataFrame) -> dict[Key, Test]:
    """Test whether the loss falls as the width grows, by target and activation."""
    tests: dict[Key, Test] = {}
    for (data, name), part in rows.groupby(["data", "activation"], sort=False):
        test = stats.spearmanr(part["width"], part["log_loss"])
        where = "not in the paper" if name in runs.FURTHER else "Tables I to III"
        said, falls = f"{test.statistic:+.2f}", bool(test.statistic < 0)
        tests[where, label(name), data] = said, float(test.pvalue), falls
    return tests


def rank_sizes(rows: pd.DataFrame) -> dict[Key, Test]:
    """Test, over seeds and those widths that have all of them, whether norm sizes differ."""
    tests: dict[Key, Test] = {}
    for (family, names), data in product(FAMILIES.items(), TARGETS):
        part = rows[rows["activation"].isin(names) & (rows["data"] == data)]
        table = part.pivot_table("log_loss", ["width", "seed"], "activation").dropna()
        ranks = mean_ranks(table, greater_is_better=False).sort_values()
        said = ", ".join(f"{label(name)} {rank:.1f}" for name, rank in ranks.items())
        said += f"; {table.index.get_level_values('width').nunique()} widths"
        claim = f"the norm sizes of {family} differ"
        tests["Figures 3, A1", claim, data] = said, friedman(table).pvalue, True
    return tests


def reference(data: str, activation: str, width: int) -> dict[str, float]:
    """The error that N units suffice for, and the errors of the network of the proof.

    By propositions 1 to 3, floor(L / 2 epsilon) + 1 <= N for every epsilon > L / 2N: N = width / d
    groups of d units, or the width itself; ReLU has N + 1 units. L is that of the function on
    [0, 1], 10 times ours.
    """
    target, size = TARGETS[data], runs.norm_size(activation)
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

    return {
        "bound": lipschitz / (2 * n),
        "constructed": float(np.abs(errors(runs.GRID)).max()),
        "constructed_log_loss": math.log(np.square(errors(target.points)).mean()),
    }


def against_bounds(table: pd.DataFrame) -> pd.DataFrame:
    """`cells` of the activations with proofs, with the theory's errors beside the trained ones.

    ``below``: the best seed is below the bound; ``above``: the median is above the construction.
    """
    table = table[table["activation"].isin(PROVED)].reset_index(drop=True)
    table = table.join(pd.DataFrame([reference(*cell) for cell in table[CELL].to_numpy()]))
    return table.assign(
        below=table["sup_low"] < table["bound"], above=table["sup"] > table["constructed"]
    )
