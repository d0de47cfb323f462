"""Pages of the CombU paper's tables: claims, cells beside the paper's, CombU's advantage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from benchmarks.common import Arguments, Study
from benchmarks.common.looks import intervals
from benchmarks.common.page import Page, markdown_table
from benchmarks.common.verdicts import Claim, Verdict, add_claims, beats, best_of, by_unit
from benchmarks.papers.combu.expected import (
    ACTIVATIONS,
    METRICS,
    TASK_METRICS,
    Table,
    load_expected,
)
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, combu_study
from combutab.evaluation import compare_pairs

FOCUS = "combu"
ORDER = "activations come in the paper's order"
CELL = ["protocol", "data", "task", "metric", "activation"]
POOLED = 2.0  # a cell is reproduced within so many pooled standard deviations
ALLOWANCE = (
    f"A cell is reproduced (*) if the means are at most {POOLED:g} pooled standard deviations "
    "apart (the root of the mean of the two variances, ours with ddof 1), with a tolerance of half "
    "a unit of the paper's last digit. Large standard deviations make that easy."
)

Claims = Sequence[Claim]


# ---- claims ------------------------------------------------------------------------------------


def ranks(rows: pd.DataFrame, metric: str, unit: str = "data") -> pd.DataFrame:
    """Rank the paper's activations in each unit, 1 the best; ties share their mean rank."""
    known = rows[rows["activation"].isin(ACTIVATIONS) & rows[metric].notna()]
    wide = by_unit(known, metric, unit).round(12)
    return wide.rank(axis=1, ascending=not METRICS[metric].greater_is_better)


def judge_rank(metric: str, rows: pd.DataFrame, margin: float) -> Verdict:
    """Judge whether CombU has the best mean rank over data sets."""
    return best_of(ranks(rows, metric), FOCUS, greater_is_better=False)


def rank_claims(where: str, task: str, unit: str) -> Claims:
    """The paper's comparison of mean ranks, a claim per metric."""
    text = "CombU has the best mean rank of the seven in {}"
    return [
        Claim(
            where, text.format(METRICS[m].label), "data set", partial(judge_rank, m), 0.0, "ranks"
        )
        for m in TASK_METRICS[task]
    ]


def judge_splits(data: str, metric: str, rows: pd.DataFrame, margin: float) -> Verdict | None:
    """Judge whether CombU is the best on one data set, over splits of its rows."""
    own = rows[(rows["data"] == data) & rows["activation"].isin(ACTIVATIONS)]
    if own["split"].nunique() < 2:
        return None
    return best_of(signed(own, metric, "split"), FOCUS, **rows_of(own))


def rows_of(rows: pd.DataFrame) -> dict[str, float]:
    """Mean numbers of rows that train and test, for the corrected variance."""
    return rows[["n_train", "n_test"]].mean().to_dict()


def judge_order(table: Table, rows: pd.DataFrame, margin: float) -> Verdict:
    """Judge whether activations come in the paper's order, by `taus`."""
    return beats(taus(compare_with_paper(make_cells(rows), load_expected(table.number))), 0.0)


def taus(comparison: pd.DataFrame) -> pd.Series:
    """Kendall's tau of our means and the paper's by data set, over metrics with 3 legible cells."""
    both = comparison.dropna(subset=["mean", "paper_mean"])
    cells = both.groupby(["data", "protocol", "task", "metric"], sort=False)[["mean", "paper_mean"]]
    found = cells.apply(lambda x: x.corr("kendall").iat[0, 1] if len(x) >= 3 else math.nan)
    return found.dropna().groupby(level=0, sort=False).mean()


# ---- cells -------------------------------------------------------------------------------------


def make_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Average every protocol, data set, metric and activation, in the paper's units.

    Where there are several splits, the seeds of a split are averaged first and the standard
    deviation is over splits; on one split it is over the seeds.

    Returns
    -------
    DataFrame, one row a cell
        The columns of ``CELL``, ``mean`` and ``sd`` (ddof 1), which are NaN where a run failed: the
        mean of those that did not fail would flatter.
    """
    names = [*CELL, "split", "seed"]
    long = rows.melt([n for n in names if n != "metric"], METRICS, "metric", "score")
    long = long[[m in TASK_METRICS[t] for t, m in zip(long["task"], long["metric"], strict=True)]]
    long["score"] *= [METRICS[metric].scale for metric in long["metric"]]
    several = long.groupby(CELL)["split"].transform("nunique") > 1
    long["unit"] = long["split"].where(several, long["seed"])
    mean = long.groupby([*CELL, "unit"], sort=False)["score"].agg(_mean)
    cells = mean.groupby(level=CELL, sort=False).agg([_mean, lambda x: x.std(skipna=False)])
    return cells.set_axis(["mean", "sd"], axis=1).reset_index()


def _mean(scores: pd.Series) -> float:
    return float(scores.mean(skipna=False))


def compare_with_paper(cells: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put the paper's number beside each of our cells; ``reproduced`` is as `ALLOWANCE` says.

    It is missing where either side has no mean or no standard deviation.
    """
    keys = CELL[1:]
    paper = expected.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})
    table = cells.merge(paper[[*keys, "paper_mean", "paper_sd"]], on=keys, how="left")
    pooled = np.sqrt((table["sd"] ** 2 + table["paper_sd"] ** 2) / 2.0)
    distance = (table["mean"] - table["paper_mean"]).abs()
    within = POOLED * pooled + [0.5 * 10.0 ** -METRICS[m].decimals for m in table["metric"]]
    table["reproduced"] = (distance <= within).astype("boolean").mask((pooled + distance).isna())
    return table


def cell_text(mean: float, sd: float, reproduced: object = False) -> str:
    """
    >>> cell_text(0.08812, 0.0113, True), cell_text(96.318, math.nan), cell_text(math.nan, 1.0)
    ('0.0881 ± 0.011*', '96.32', '—')
    """
    if not math.isfinite(mean):
        return "—"
    text = f"{mean:.2f}" if mean > 50 else f"{mean:.3g}"
    return (
        text
        + (f" ± {sd:.2g}" if math.isfinite(sd) else "")
        + "*" * (pd.notna(reproduced) and bool(reproduced))
    )


def cells_table(comparison: pd.DataFrame, expected: pd.DataFrame, ours: Mapping[str, str]) -> str:
    """Lines of data set and metric, ours by protocol (``ours`` names them) above the paper's."""
    known = dict.fromkeys([*ACTIVATIONS, *comparison["activation"]])
    names = [name for name in known if name in set(comparison["activation"])]
    parts = [comparison[comparison["protocol"] == name].assign(who=ours[name]) for name in ours]
    cells = pd.concat([*parts, expected.assign(who="the paper's", reproduced=False)])
    lines = []
    for (data, metric), part in cells.groupby(["data", "metric"], sort=False):
        for who, own in part.groupby("who", sort=False):
            texts = {c.activation: cell_text(c.mean, c.sd, c.reproduced) for c in own.itertuples()}
            lines.append([data, METRICS[metric].label, who, *(texts.get(n, "—") for n in names)])
    return markdown_table(["data", "score", "by", *map(label, names)], lines)


def counts(comparison: pd.DataFrame, ours: Mapping[str, str]) -> str:
    """Say how many cells are reproduced, by protocol and data set."""
    told = []
    for protocol, who in ours.items():
        known = comparison[comparison["protocol"] == protocol].dropna(subset="reproduced")
        by_data = known.groupby("data", sort=False)["reproduced"].agg(["sum", "count"])
        each = ", ".join(f"{row.Index} {row.sum} of {row.count}" for row in by_data.itertuples())
        told.append(f"{who}: {known['reproduced'].sum()} of {len(known)} ({each})")
    return f"Reproduced, {'; '.join(told)}. {ALLOWANCE}"


# ---- CombU's advantage over each other ---------------------------------------------------------


def advantages(scores: pd.DataFrame, **how: float) -> dict[str, pd.DataFrame]:
    """CombU's advantage over each other (units x activations, greater is better); see `beats`."""
    others = scores.columns.drop(FOCUS)
    found = [vars(beats(scores[FOCUS], scores[other], **how)) for other in others]
    table = pd.DataFrame(found, list(map(label, others)), ["estimate", "low", "high"])
    return {"": table}


def label(name: str) -> str:
    return ACTIVATIONS.get(name, name)


def signed(rows: pd.DataFrame, score: str, unit: str) -> pd.DataFrame:
    """Units x activations in the paper's units, greater is better; other scores are losses."""
    known = METRICS.get(score)
    sign = 1.0 if known and known.greater_is_better else -1.0
    return by_unit(rows, score, unit) * (sign * known.scale if known else sign)


def add_units(
    page: Page, rows: pd.DataFrame, scores: Iterable[str], unit: str, suffix: str = "", **how: float
) -> None:
    """Compare on each data set, by unit: all pairs in a table, CombU with each other in a figure.

    ``how``: rows that train and test, where they are not the rows' own.
    """
    lines, panels = [], {}
    for data, own in rows.groupby("data", sort=False):
        sizes = how or rows_of(own)
        for score in scores:
            wide = signed(own, score, unit)
            if wide.isna().any(axis=None) or min(wide.shape) < 2:
                continue
            long = wide.stack().rename("score").reset_index()
            found = compare_pairs(long, resample=unit, **sizes)
            sure = found[found["distinguishable"]]
            worse = sure.loc[sure["activation"] == FOCUS, "other_activation"]
            better = sure.loc[sure["other_activation"] == FOCUS, "activation"]
            told = [", ".join(map(label, names)) or "none" for names in (worse, better)]
            name = METRICS[score].label if score in METRICS else score
            lines.append([data, name, f"{len(sure)} of {len(found)}", *told])
            if score != "f1":  # as accuracy
                panels[f"{data}, {name}"] = advantages(wide, **sizes)
    if lines:
        corrected = " with Nadeau and Bengio's correction" * (unit == "split")
        page.text(f"Pairwise t-tests over {unit}s{corrected}, 5 % level after Holm's adjustment.")
        page.table(PAIRS_HEAD, lines)
    if max((len(own[""]) for own in panels.values()), default=0) > 1:
        words = f"CombU's advantage over each other activation, with 95 % intervals over {unit}s"
        page.figure(intervals(panels, words), words, suffix)


PAIRS_HEAD = ("data", "score", "significant pairs", "CombU is better than", "CombU is worse than")


# ---- pages -------------------------------------------------------------------------------------

RANKS = "CombU's advantage in rank over each other activation, with 95 % intervals over formulas"


def write_page(
    table: Table, claims: Claims, page: Page, arguments: Arguments, rows: pd.DataFrame
) -> None:
    """Fill a study's page."""
    rows = rows.sort_values("data", key=lambda d: d.map([*table.data].index), kind="stable")
    protocols = {name: rows[rows["protocol"] == name] for name in PROTOCOLS}
    protocols = {name: part for name, part in protocols.items() if len(part)}
    judged = {name: own for name, own in protocols.items() if name != "sound-ungrouped"}
    add_claims(page, claims, judged)
    if "sound" in protocols:
        add_units(page, protocols["sound"], METRICS, "split")
    else:
        scores = [metric for metric in METRICS if rows[metric].notna().any()]
        panels = {METRICS[m].label: advantages(-ranks(rows, m)) for m in scores}
        page.figure(intervals(panels, RANKS), RANKS)
    expected = load_expected(table.number)
    add_cells(page, rows, expected, {name: f"ours, {name}" for name in protocols})


def add_cells(
    page: Page, rows: pd.DataFrame, expected: pd.DataFrame, ours: Mapping[str, str]
) -> None:
    """Fold our cells, by protocol, beside the paper's."""
    paper = expected[expected["data"].isin(rows["data"])]
    comparison = compare_with_paper(make_cells(rows), paper)
    with page.details("Our cells compared with the paper's"):
        page.text(
            counts(comparison, ours),
            cells_table(comparison, paper, ours),
            "± is a standard deviation over splits, where there are several, or else over seeds. "
            f"{paper['mean'].isna().sum()} of the paper's {len(paper)} cells (—) are illegible in "
            "our copy.",
        )


def openml_study(table: Table, task: str, doc: str) -> Study:
    """The study of Table 5 or 6: four data sets of OpenML each; Figure 2 is of both."""
    where = f"Table {table.number}"
    order, first = partial(judge_order, table), METRICS[TASK_METRICS[task][0]]
    claims = (
        *rank_claims(f"{where}, Figure 2", task, "data set"),
        Claim(where, ORDER, "data set", order, measure="Kendall's tau"),
        *(
            Claim(where, f"{data}: CombU is the best of the seven in {first.label}",
                  "split of one data set", partial(judge_splits, data, TASK_METRICS[task][0]),
                  measure=first.unit)
            for data in table.data
        ),
    )  # fmt: skip

    def sources(quick: bool, data_home: str | None) -> list[Source]:
        names, limit = (list(table.data)[:2], 300) if quick else (table.data, None)
        return [Source("openml", name, task, limit=limit, data_home=data_home) for name in names]

    return combu_study(table, doc, sources, partial(write_page, table, claims))
