"""What the LayerAct studies share: the functions compared, training, tests, "better than all"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.common.claims import Finding
from combutab import MLPClassifier, paper_recipe
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import wilcoxon

# The paper's activations: LReLU, SiLU, HardSiLU are its names for leaky_relu, silu, hardsilu
ELEMENT_LEVEL = ("relu", "leaky_relu", "prelu", "silu", "hardsilu", "mish", "gelu", "elu")
COUNTERPARTS = {"la-silu": "silu", "la-hardsilu": "hardsilu"}
LAYER_LEVEL = tuple(COUNTERPARTS)
ACTIVATIONS = (*ELEMENT_LEVEL, *LAYER_LEVEL, "combu", "pln-8")  # the last two are other papers'
NOTHING = "—"
ALPHA = 0.05  # also the level of the normality test that stands before the paper's choice of a test
Table = tuple[pd.DataFrame, pd.Series]


def train(
    activations: Sequence[str], tables: Sequence[Table], **options: object
) -> dict[tuple[str, int], MLPClassifier]:
    """Train a network for each activation and seed, by these; ``tables`` has one a seed."""
    nets, options = {}, {"n_iter_no_change": math.inf, **options}
    for name, seed in product(activations, range(len(tables))):
        settings = {"activation": name, "random_state": seed, **options}
        nets[name, seed] = MLPClassifier(**paper_recipe("classification", **settings))
    tasks = [FitTask(net, *tables[seed], id(tables[seed][0])) for (_, seed), net in nets.items()]
    for outcome in fit_stacked(tasks):
        if outcome.error is not None:
            raise outcome.error
    return nets


def select(rows: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Keep the rows that have these values."""
    for column, value in values.items():
        rows = rows[rows[column] == value]
    return rows


def paper_test(a: Sequence[float], b: Sequence[float]) -> tuple[str, float]:
    """Choose and do a test as Tables 20 to 23: paired t where both are normal, else Wilcoxon's.

    The paper does not name its test of normality: ours is Shapiro and Wilk's at 0.05.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    varies = len(a) >= 3 and min(np.ptp(a), np.ptp(b)) > 0 and np.ptp(a - b) > 1e-12
    if varies and min(stats.shapiro(a).pvalue, stats.shapiro(b).pvalue) > ALPHA:
        return "t", float(stats.ttest_rel(a, b).pvalue)
    return "wilcoxon", wilcoxon(a, b).pvalue


def counts(tests: pd.DataFrame, p: str = "p_holm") -> tuple[list[str], list[str]]:
    """List the others over which ``difference`` is significant and positive, and negative."""
    real = tests[tests[p] < ALPHA]
    above = real["difference"] > 0
    return real.loc[above, "other"].tolist(), real.loc[~above, "other"].tolist()


def against_all(tests: pd.DataFrame, better: str, worse: str, detail: str) -> Finding:
    """Judge "better than all others"; better than more than it is worse than is a part of it."""
    found = counts(tests)
    n_better, n_worse, n = *map(len, found), len(tests)
    some = ["all" if len(names) == n else ", ".join(names) or NOTHING for names in found]
    numbers = f"{better} than {some[0]}; {worse} than {some[1]}; of {n}; {detail}"
    return Finding(numbers, [n_better == n, n_better > n_worse])
