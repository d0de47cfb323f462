"""The numbers of a study's report: cells, average ranks, and the comparison with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.papers.combu.expected import ACTIVATIONS, AVERAGE_RANK, METRICS, TASK_METRICS, Table
from combutab.evaluation import (
    NemenyiResult,
    compare_with_best,
    mean_ranks,
    nemenyi,
    summarise,
)

CELL = ["protocol", "data", "task", "metric", "activation"]
PROTOCOLS = ("paper", "sound", "sound-ungrouped")  # others follow as they come
POOLED = 2.0  # a cell is reproduced within so many pooled standard deviations


def order_activations(present: Sequence[str]) -> list[str]:
    """Put the paper's seven first, in its order; the others follow as they came."""
    names = list(dict.fromkeys(present))
    return [name for name in ACTIVATIONS if name in names] + [
        name for name in names if name not in ACTIVATIONS
    ]


def make_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the runs of every protocol, data set, metric and activation, in the paper's units.

    Where there are several splits, the seeds of a split are averaged first and the standard
    deviation is over splits; on one split it is over the runs.

    Returns
    -------
    DataFrame, one row a cell
        The columns of ``CELL``; ``runs`` and ``failed``, counts of networks; ``splits``; ``mean``,
        ``sd`` (ddof 1) and ``sd0`` (ddof 0), which are NaN where a run failed: the mean of those
        that did not fail would flatter.
    """
    if rows.empty:
        raise ValueError("the study has no rows; run it first")
    table = []
    for key, fits in rows.groupby([name for name in CELL if name != "metric"], sort=False):
        protocol, data, task, activation = key
        for metric in TASK_METRICS[task]:
            scores, bad = scores_of(fits, metric)
            splits = fits["split"].nunique()
            units = scores if splits == 1 else scores.groupby(fits["split"]).mean()
            cell = dict(zip(CELL, (protocol, data, task, metric, activation), strict=True))
            cell |= {"runs": len(fits), "failed": int(bad.sum()), "splits": splits}
            if bad.any():
                units = units * np.nan
            sd0 = units.std(ddof=0) if len(units) > 1 else np.nan
            table.append(cell | {"mean": units.mean(), "sd": units.std(ddof=1), "sd0": sd0})
    return pd.DataFrame(table)


def scores_of(fits: pd.DataFrame, metric: str) -> tuple[pd.Series, pd.Series]:
    """Scores in the paper's units, and which of the runs failed."""
    scores = METRICS[metric].scale * fits[metric].astype(np.float64)
    return scores, (fits["error"] != "") | ~np.isfinite(scores)


def sort_cells(cells: pd.DataFrame, table: Table | None) -> pd.DataFrame:
    """Order cells as the paper does, whatever order the rows came in."""
    order = {
        "protocol": PROTOCOLS,
        "data": () if table is None else table.data,
        "metric": METRICS,
        "activation": ACTIVATIONS,
    }
    places = {}
    for column, names in order.items():
        known = dict.fromkeys([*names, *cells[column]])
        places[column] = cells[column].map({name: i for i, name in enumerate(known)})
    return cells.loc[pd.DataFrame(places).sort_values(list(order)).index].reset_index(drop=True)


def scores_by_data(
    cells: pd.DataFrame, metric: str, activations: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """One protocol's means as data sets x activations, and the data sets that lack an activation.

    NaN where a run failed.
    """
    part = cells[(cells["metric"] == metric) & cells["activation"].isin(activations)]
    data = list(dict.fromkeys(part["data"]))
    mean, runs = (
        part.pivot(index="data", columns="activation", values=column).reindex(
            index=data, columns=list(activations)
        )
        for column in ("mean", "runs")
    )
    whole = runs.notna().all(axis=1)
    return mean[whole].astype(np.float64), [name for name in data if not whole[name]]


def failed_last(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Put a number worse than all others of the row where a run failed, for ranks."""
    if METRICS[metric].greater_is_better:
        worst = scores.min(axis=1) - 1.0
    else:
        worst = 2.0 * scores.max(axis=1) + 1.0
    # rounded: equal means may differ by the order in which they were summed, and are ties
    return scores.apply(lambda column: column.fillna(worst)).fillna(0.0).round(12)


def rank_activations(scores: pd.DataFrame, metric: str) -> pd.Series:
    """Average the ranks over data sets: 1 is best, ties share their mean, failures come last."""
    return mean_ranks(
        failed_last(scores, metric), greater_is_better=METRICS[metric].greater_is_better
    )


def compare_with_paper(cells: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put the paper's number beside each of our cells.

    Returns
    -------
    DataFrame, one row a cell
        That of `make_cells`, ``unit``, ``paper_mean``, ``paper_sd``, ``note`` (all of the paper's
        table), ``difference`` (ours less the paper's), ``pooled_sd`` (root of the mean of the two
        variances), ``reproduced``: whether the difference is at most 2 pooled standard deviations
        (and half a unit of the last digit that the paper prints), and ``reproduced_ddof0``, the
        same with our standard deviation over n. Both are missing where either side has no mean or
        no standard deviation.
    """
    paper = expected[expected["data"] != AVERAGE_RANK].rename(
        columns={"mean": "paper_mean", "sd": "paper_sd"}
    )
    keys = ["data", "task", "metric", "activation"]
    table = cells.merge(paper[[*keys, "paper_mean", "paper_sd", "note"]], on=keys, how="left")
    table.insert(5, "unit", [METRICS[metric].unit for metric in table["metric"]])
    table["difference"] = table["mean"] - table["paper_mean"]
    rounding = [0.5 * 10.0 ** -METRICS[metric].decimals for metric in table["metric"]]
    for sd, column in (("sd", "reproduced"), ("sd0", "reproduced_ddof0")):
        pooled = np.sqrt((table[sd] ** 2 + table["paper_sd"] ** 2) / 2.0)
        if sd == "sd":
            table["pooled_sd"] = pooled
        within = table["difference"].abs() <= POOLED * pooled + rounding
        table[column] = within.astype("boolean").mask((pooled + table["difference"]).isna())
    table["note"] = table["note"].fillna("")
    return table


def count_reproduced(comparison: pd.DataFrame, column: str = "reproduced") -> pd.DataFrame:
    """Count the cells that could be compared, and those reproduced, by data set and metric."""
    compared = comparison[comparison[column].notna()]
    groups = compared.groupby(["protocol", "data", "metric"], sort=False)[column]
    return groups.agg(reproduced="sum", compared="count").astype(int).reset_index()


def rank_correlations(comparison: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau-b and Spearman's rho between our order of the activations and the paper's.

    Over the activations that both have; a row with fewer than 3 of them is left out, and a
    coefficient is NaN where one side ties them all.
    """
    both = comparison.dropna(subset=["mean", "paper_mean"])
    table = []
    for key, row in both.groupby(["protocol", "data", "metric"], sort=False):
        if len(row) < 3:
            continue
        tied = row["mean"].nunique() == 1 or row["paper_mean"].nunique() == 1
        kendall = np.nan if tied else stats.kendalltau(row["mean"], row["paper_mean"]).statistic
        spearman = np.nan if tied else stats.spearmanr(row["mean"], row["paper_mean"]).statistic
        names = dict(zip(("protocol", "data", "metric"), key, strict=True))
        table.append({**names, "n": len(row), "kendall": kendall, "spearman": spearman})
    return pd.DataFrame(table, columns=["protocol", "data", "metric", "n", "kendall", "spearman"])


def scale_by_all_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Restate regression errors in units of the target's standard deviation over all rows.

    The study scales the target by its training rows; scaling before the split, which the paper's
    words allow too, divides by the standard deviation over all rows instead.
    """
    ratio = rows["target_std_train"].astype(np.float64) / rows["target_std_all"].astype(np.float64)
    return rows.assign(mae=rows["mae"] * ratio, mse=rows["mse"] * ratio**2)


# ---- which differences are real ----------------------------------------------------------------


def across_data(
    cells: pd.DataFrame, metric: str, activations: Sequence[str]
) -> NemenyiResult | None:
    """Friedman's and Nemenyi's tests of one protocol's means; None under 2 data sets or 3 names."""
    scores, _ = scores_by_data(cells, metric, activations)
    if len(scores) < 2 or len(activations) < 3:
        return None
    scores = failed_last(scores, metric).rename_axis(index="data set", columns="activation")
    return nemenyi(scores, greater_is_better=METRICS[metric].greater_is_better)


@dataclass(frozen=True)
class WithinData:
    """What `compare_with_best` found on one data set, by one metric.

    ``comparison`` is None where nothing could be compared; ``text`` says why.
    """

    data: str
    metric: str
    comparison: pd.DataFrame | None
    text: str


def within_data(rows: pd.DataFrame, metric: str, activations: Sequence[str]) -> list[WithinData]:
    """Compare with the best on each data set, paired by split; ``rows`` are of one protocol.

    Activations with a failed run are left out and named. Only the splits and seeds that all
    others finished are compared.
    """
    task = next(task for task, metrics in TASK_METRICS.items() if metric in metrics)
    rows = rows[(rows["task"] == task) & rows["activation"].isin(activations)]
    return [_compare(data, fits, metric) for data, fits in rows.groupby("data", sort=False)]


def _compare(data: str, fits: pd.DataFrame, metric: str) -> WithinData:
    facts = METRICS[metric]
    scores, bad = scores_of(fits, metric)
    failed = list(dict.fromkeys(fits.loc[bad, "activation"]))
    notes = [f"Left out for failed runs: {', '.join(failed)}."] if failed else []
    fits = fits.assign(**{metric: scores})[~fits["activation"].isin(failed)]
    n_activations = fits["activation"].nunique()
    shared = fits.groupby(["split", "seed"])["activation"].transform("nunique") == n_activations
    if not shared.all():
        notes.append(
            f"Only the {fits[shared].groupby(['split', 'seed']).ngroups} of "
            f"{fits.groupby(['split', 'seed']).ngroups} runs that all activations finished."
        )
    fits = fits[shared]
    if fits["split"].nunique() < 2 or n_activations < 2:
        notes.append("Two splits that two activations share are the least to compare.")
        return WithinData(data, metric, None, " ".join(notes))
    comparison = compare_with_best(
        fits,
        score=metric,
        resample="split",
        n_train=float(fits["n_train"].mean()),
        n_test=float(fits["n_test"].mean()),
        greater_is_better=facts.greater_is_better,
    )
    words = summarise(comparison, score="accuracy" if metric == "accuracy" else facts.label)
    return WithinData(data, metric, comparison, " ".join([*notes, *words.split("\n")]))
