"""Effects on the error, as ratios over tables, and the rule by which they are judged.

The unit is the table: the logarithms of its splits' errors are averaged first. Two activations
differ by "less than 2 %" where the 95 % interval of the ratio of their errors over tables lies
within 1 / 1.02 and 1.02; one is better where Student's paired test is significant at 0.05, adjusted
by Holm's method over all pairs that are asked about; otherwise the answer is "not decided".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.common import Page
from benchmarks.common.looks import label
from benchmarks.common.page import p_text
from benchmarks.common.verdicts import HOLDS, MIN_UNITS, UNDECIDED, matches
from combutab.evaluation import friedman, holm

MARGIN = 0.0198  # log(1.02): a difference of logarithms that does not matter
LEVEL = 0.05
WITHIN = "less than 2 %"


def logs_of(
    rows: pd.DataFrame, column: str, levels: Sequence[str], value: str = "loss", **where: str
) -> pd.DataFrame:
    """Logarithms of a value: a row for each table and split, a column for each level.

    Only splits that have all levels. What diverged has the largest value of its table and split.
    """
    own = rows[rows[column].isin(levels)]
    for name, wanted in where.items():
        own = own[own[name] == wanted]
    found = own.groupby(["data", "split"])[column].transform("nunique")
    own = own[found == len(levels)]
    own = own.assign(log=np.log(own[value].clip(lower=1e-12)))
    order = {data: place for place, data in enumerate(dict.fromkeys(own["data"]))}
    wide = own.pivot(index=["data", "split"], columns=column, values="log")
    wide = wide.reindex(columns=list(levels))
    wide = wide.sort_index(key=lambda index: index.map(order) if index.name == "data" else index)
    return wide.apply(lambda row: row.fillna(row.max()), axis=1)


def by_table(logs: pd.DataFrame) -> pd.DataFrame:
    """Means over splits: a row for each table.

    Tables of the same values throughout are one: equations that are the same up to a factor.
    """
    means = logs.groupby(level="data", sort=False).mean()
    return means[~means.round(6).duplicated()]


def size(logs: pd.DataFrame) -> str:
    """Tables x splits."""
    splits = logs.groupby(level="data").size().max()
    return f"{len(by_table(logs))} tables x {splits} split{'s' * bool(splits > 1)}"


def omnibus(values: pd.DataFrame) -> tuple[float, float]:
    """Friedman's p-value over tables, and that of Iman and Davenport's F, less conservative.

    R. L. Iman and J. M. Davenport, "Approximations of the critical region of the Friedman
    statistic", Communications in Statistics 9, 1980.
    """
    n, k = values.shape
    test = friedman(values)
    rest = n * (k - 1) - test.statistic
    f = (n - 1) * test.statistic / rest if rest > 0 else math.inf
    return test.pvalue, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))


def compare(values: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Judge pairs (a, b) of columns of logarithms, a row for each table, by the module's rule.

    Returns
    -------
    DataFrame with a, b; ``ratio``, ``low``, ``high`` of a's error over b's; p adjusted; ``answer``
    """
    lines, words = [], []
    for a, b in pairs:
        verdict = matches(values[a], values[b], MARGIN)
        p = stats.ttest_rel(values[a], values[b]).pvalue if len(values) > 1 else math.nan
        ends = np.exp([verdict.estimate, verdict.low, verdict.high])
        lines.append((a, b, *ends, 1.0 if math.isnan(p) else p))
        words.append(verdict.word)
    found = pd.DataFrame(lines, columns=["a", "b", "ratio", "low", "high", "p"])
    found["p"] = holm(found["p"])
    found["answer"] = [
        _answer(word, row) if len(values) >= MIN_UNITS else UNDECIDED
        for word, row in zip(words, found.itertuples(), strict=True)
    ]
    return found


def _answer(word: str, row: Any) -> str:
    if word == HOLDS:
        return WITHIN
    if row.p >= LEVEL:
        return UNDECIDED
    return f"{label(row.a if row.ratio < 1 else row.b)} is better"


def beside(values: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Judge all other columns beside one."""
    return compare(values, [(name, reference) for name in values if name != reference])


def ratio_text(row: Any) -> str:
    """The ratio of a row of `compare`, with its interval."""
    return f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]"


def answers_table(page: Page, found: pd.DataFrame, measure: str) -> None:
    """Add a table of rows of `compare`, the smallest ratio first."""
    page.table(
        ["A", "B", f"{measure}, A / B [95 % interval]", "p, Holm", "verdict"],
        [
            [label(row.a), label(row.b), ratio_text(row), p_text(row.p), row.answer]
            for row in found.sort_values("ratio").itertuples()
        ],
    )
