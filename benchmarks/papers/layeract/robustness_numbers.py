"""What the LayerAct study's accuracies say: tests as in the paper, and ones fit for splits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.papers.common.claims import Finding
from combutab.evaluation import corrected_interval, corrected_resampled_ttest, holm, wilcoxon

NAME, NOTHING = "layeract_robustness", "—"
# The paper's activations: LReLU, SiLU, HardSiLU are its names for leaky_relu, silu, hardsilu
ELEMENT_LEVEL = ("relu", "leaky_relu", "prelu", "silu", "hardsilu", "mish", "gelu", "elu")
LAYER_LEVEL = ("la-silu", "la-hardsilu")
OTHERS = ("combu", "pln-8")  # of the other papers
COUNTERPARTS = {"la-silu": "silu", "la-hardsilu": "hardsilu"}
SCORES = ("clean", "corrupted", "kept")
GROUPS = {
    "noise": ("gaussian_noise", "heavy_tailed_noise"),
    "units": ("scale", "shift"),
    "detail": ("clipping", "rounding"),
    "loss": ("missing", "column_dropout", "category_swap"),
}
MEAN = "mean of the sets"
ALPHA = 0.05
_NORMAL = 0.05  # level of the Shapiro-Wilk test that stands before the paper's choice of a test


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """The networks that trained, with ``kept``: corrupted minus clean, and the corruption groups.

    Accuracies become percent.
    """
    table = rows[rows["error"] == ""].copy()
    accuracies = ["clean", "corrupted", *(c for group in GROUPS.values() for c in group)]
    accuracies += [name for name in table if name.startswith("severity_")]
    table[accuracies] *= 100.0
    table["kept"] = table["corrupted"] - table["clean"]
    for group, members in GROUPS.items():
        table[group] = table[list(members)].mean(axis=1)
    return table


def by_seed(table: pd.DataFrame, score: str, data: str, normalization: str) -> pd.DataFrame:
    """A score as seeds x activations; of ``MEAN``, its mean over the sets.

    Seeds in which a network failed are left out.
    """
    own = table[table["normalization"] == normalization]
    if data != MEAN:
        own = own[own["data"] == data]
    wide = own.pivot_table(index="seed", columns=["activation", "data"], values=score).dropna()
    names = [name for name in dict.fromkeys(own["activation"]) if name in wide]
    return pd.DataFrame({name: wide[name].mean(axis=1) for name in names})


def paper_test(a: Sequence[float], b: Sequence[float]) -> tuple[str, float]:
    """A paired t-test where both are normally distributed, else Wilcoxon's, as Tables 20 to 23.

    The paper does not name its test of normality: ours is Shapiro and Wilk's at 0.05.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    known = len(a) >= 3  # fewer say nothing of a distribution
    if known and all(np.ptp(x) > 0 and stats.shapiro(x).pvalue > _NORMAL for x in (a, b)):
        d = a - b
        if np.ptp(d) > 1e-12:
            return "t", float(stats.ttest_rel(a, b).pvalue)
    return "wilcoxon", wilcoxon(a, b).pvalue


def compare(table: pd.DataFrame, activations: Sequence[str]) -> pd.DataFrame:
    """Both LayerAct functions with every other, by set, normalisation and score.

    Returns
    -------
    DataFrame
        ``difference`` of the means over seeds and its interval (``low``, ``high``); ``effect``,
        that difference in standard deviations of the seeds' differences; ``test`` and ``p_paper``
        as the paper's; ``p`` of the corrected resampled t-test, which allows for training sets
        that overlap; ``p_holm``, corrected for the others of the same row of a table.
    """
    rows: list[dict[str, object]] = []
    n_train, n_test = table["n_train"].mean(), table["n_test"].mean()
    sets = (*dict.fromkeys(table["data"]), MEAN)
    for norm, data, score in product(dict.fromkeys(table["normalization"]), sets, SCORES):
        wide = by_seed(table, score, data, norm)
        for name in (n for n in LAYER_LEVEL if n in wide):
            others = [o for o in activations if o in wide and o not in LAYER_LEVEL]
            pairs = [_pair(wide[name], wide[other], n_train, n_test) for other in others]
            key = {"data": data, "normalization": norm, "score": score, "activation": name}
            for other, pair, p in zip(others, pairs, holm([x["p"] for x in pairs]), strict=True):
                rows.append(key | {"other": other} | pair | {"p_holm": p})
    return pd.DataFrame(rows)


def _pair(a: pd.Series, b: pd.Series, n_train: float, n_test: float) -> dict[str, float | str]:
    d = (a - b).to_numpy()
    interval = corrected_interval(d, n_train=n_train, n_test=n_test)
    spread = float(d.std(ddof=1))
    test, p_paper = paper_test(a, b)
    return {
        "difference": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "effect": interval.mean / spread if spread > 1e-12 else np.nan,
        "n_seeds": len(d),
        "test": test,
        "p_paper": p_paper,
        "p": corrected_resampled_ttest(a, b, n_train=n_train, n_test=n_test).pvalue,
    }


def counts(tests: pd.DataFrame, p: str = "p_holm") -> tuple[list[str], list[str]]:
    """The others that are worse, and those that are better, of some rows of `compare`."""
    real = tests[tests[p] < ALPHA]
    return (
        real.loc[real["difference"] > 0, "other"].tolist(),
        real.loc[real["difference"] < 0, "other"].tolist(),
    )


def listed(names: Sequence[str]) -> str:
    """Names in a cell of a table."""
    return ", ".join(names) or NOTHING


def better_than_all(numbers: str, n_better: int, n_worse: int, n: int) -> Finding:
    """Of "better than all n others"; better than more than it is worse than is a part of it."""
    return Finding(numbers, [n_better == n, n_better > n_worse])


def select(tests: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The rows with these values."""
    for column, value in values.items():
        tests = tests[tests[column] == value]
    return tests


def interactions(table: pd.DataFrame) -> pd.DataFrame:
    """Is a LayerAct function's advantage over its element-level counterpart larger with batch norm?

    Rows: ``activation``, ``score``, ``than`` (the other normalisation), ``difference`` of the
    advantages over the mean of the sets, ``p`` of the corrected resampled t-test.
    """
    rows = []
    n_train, n_test = table["n_train"].mean(), table["n_test"].mean()
    for score, (name, other) in product(SCORES[:2], COUNTERPARTS.items()):
        advantage = {}
        for norm in dict.fromkeys(table["normalization"]):
            wide = by_seed(table, score, MEAN, norm)
            if name in wide and other in wide:
                advantage[norm] = wide[name] - wide[other]
        for than in (n for n in advantage if n != "batch" and "batch" in advantage):
            a, b = advantage["batch"], advantage[than]
            test = corrected_resampled_ttest(a, b, n_train=n_train, n_test=n_test)
            row = {"activation": name, "score": score, "than": than}
            rows.append(row | {"difference": (a - b).mean(), "p": test.pvalue})
    return pd.DataFrame(rows)


def paper_accuracies() -> pd.DataFrame:
    """Tables 1, 2, 4 to 6 and 16 to 19; percent."""
    return pd.read_csv(Path(__file__).parent / "expected" / "layeract_accuracy.csv")


def paper_pvalues() -> pd.DataFrame:
    """Tables 20 to 23; ``significant`` for a printed p-value below 0.05."""
    table = pd.read_csv(Path(__file__).parent / "expected" / "layeract_pvalues.csv", dtype=str)
    table["significant"] = table["p"].str.lstrip("<").astype(float) < ALPHA
    return table


def paper_gain(activation: str, other: str, normalization: str, score: str) -> float:
    """The paper's mean difference over its networks and data sets that have both, or NaN."""
    column = {"clean": "clean", "corrupted": "total"}[score]
    table = paper_accuracies()
    own = table[table["normalization"] == normalization]
    wide = own.pivot_table(index=["data", "model"], columns="activation", values=column)
    if activation not in wide or other not in wide:
        return np.nan
    return float((wide[activation] - wide[other]).mean())
