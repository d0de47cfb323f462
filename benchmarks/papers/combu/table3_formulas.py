"""Is Table 3 of the CombU paper reproduced, and which activations differ significantly?

Table 3 and Figures 1 and 3 to 6: seven activations on four formulas (GS, AR, NS, BS), as regression
and as classification. Protocol *paper*: one random 4:1 split, 5 seeds. Networks and training are
those of the paper's appendix B. Targets are standardised by the training rows; accuracy and macro
F1 are in percent.

    python -m benchmarks.papers.combu.table3_formulas [--quick] [--activations NAME ...]
        [--out FOLDER]
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from sklearn.model_selection import ShuffleSplit

from benchmarks.common import Arguments, Page
from benchmarks.common.verdicts import Claim, Verdict, beats, exact
from benchmarks.papers.combu.expected import ACTIVATIONS, METRICS, TABLES
from benchmarks.papers.combu.report import FOCUS, ORDER, judge_order, rank_claims, ranks, write_page
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import TEST_SIZE, combu_study
from combutab.datasets import make_formula

TABLE = TABLES[3]
FORMULAS = tuple(TABLE.data)
LAST = 5  # points of a training curve, of two epochs each


def line_ranks(rows: pd.DataFrame) -> pd.Series:
    """CombU's rank in each formula and metric."""
    found = {metric: ranks(rows, metric)[FOCUS] for metric in METRICS}
    return pd.concat(found, names=["metric", "data"])


def curve_ranks(rows: pd.DataFrame) -> pd.Series:
    """CombU's rank at the end of each formula's curves, two a task: Figures 3 to 6."""
    found = {}
    rows = rows[rows["activation"].isin(ACTIVATIONS)]
    for (data, task), own in rows.groupby(["data", "task"], sort=False):
        for curve in ("loss_curve", "metric_curve"):
            ends = own[curve].str.split(expand=True).astype(float).iloc[:, -LAST:].mean(axis=1)
            rising = (task, curve) == ("classification", "metric_curve")
            means = ends.groupby(own["activation"]).mean()
            found[task, curve, data] = means.rank(ascending=not rising)[FOCUS]
    return pd.Series(found).rename_axis(["task", "curve", "data"])


def judge_share(find, best: int, rows: pd.DataFrame, margin: float) -> Verdict:
    """Judge whether CombU is among the first ``best`` in most of a formula's lines."""
    return beats((find(rows) <= best).groupby(level="data").mean(), 0.5, margin)


def judge_never(find, worst: int, rows: pd.DataFrame, margin: float) -> Verdict:
    """Judge whether no rank is below ``worst``; one that is refutes it."""
    return exact((find(rows) - worst).clip(lower=0), margin)


def claim(where: str, text: str, judge, measure: str, unit: str = "formula") -> Claim:
    return Claim(where, text, unit, judge, measure=measure)


CURVES = "Figures 3 to 6"
CLAIMS = (
    *rank_claims("Table 3", "regression", "formula"),
    *rank_claims("Table 3", "classification", "formula"),
    claim("Table 3", "CombU is the best in more than half of the lines",
          partial(judge_share, line_ranks, 1), "share of lines, above a half"),
    claim("Table 3", "where CombU is not the best, it is second or third",
          partial(judge_never, line_ranks, 3), "ranks below the third", "exact"),
    claim("Table 3", ORDER, partial(judge_order, TABLE), "Kendall's tau"),
    claim(CURVES, "CombU is usually among the best three",
          partial(judge_share, curve_ranks, 3), "share of curves, above a half"),
    claim(CURVES, "CombU is never one of the worst three",
          partial(judge_never, curve_ranks, 4), "ranks below the fourth", "exact"),
)  # fmt: skip


def sources(quick: bool, data_home: str | None) -> list[Source]:
    """The four formulas as regression and as classification; quick: two of them, 200 rows."""
    names, n_samples = (FORMULAS[:2], 200) if quick else (FORMULAS, 5000)
    tasks = ("regression", "classification")
    return [Source("formula", name, task, n_samples) for name in names for task in tasks]


def mean_errors(formula: str, draw: int) -> dict[str, float]:
    """Errors of the training rows' mean on the test rows of one draw, split as the study splits."""
    y = make_formula(formula, 5000, random_state=draw)[1].to_numpy()
    train, test = next(ShuffleSplit(1, test_size=TEST_SIZE, random_state=0).split(y))
    error = (y[test] - y[train].mean()) / y[train].std()
    return {"mae": float(np.abs(error).mean()), "mse": float(np.square(error).mean())}


def write(page: Page, arguments: Arguments, rows: pd.DataFrame) -> None:
    """Fill the page."""
    write_page(TABLE, CLAIMS, page, arguments, rows)
    lines, n_draws = [], 5 if arguments.quick else 200
    for formula in FORMULAS:
        found = pd.DataFrame([mean_errors(formula, draw) for draw in range(n_draws)])
        for metric, own in found.items():
            values = [own[0], *own.quantile([0.05, 0.5, 0.95])]
            lines.append([formula, METRICS[metric].label, *(f"{value:.3g}" for value in values)])
    with page.details("How much the draw of rows matters: errors of a constant prediction"):
        page.text(
            f"{n_draws} draws of 5,000 rows, split 4:1; the prediction is the training mean. The "
            "targets of AR and NS have such heavy tails that a few rows determine the MSE."
        )
        page.table(
            ["formula", "error", "the study's draw", "5 % quantile", "median", "95 % quantile"],
            lines,
        )


STUDY = combu_study(TABLE, __doc__, sources, write, ("paper",), curve_block=2)

if __name__ == "__main__":
    STUDY.main()
