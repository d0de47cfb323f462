"""The numbers of a study's report: cells, average ranks, and the comparison with the paper."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from benchmarks.papers.combu.expected import ACTIVATIONS, AVERAGE_RANK, METRICS, TASK_METRICS, Table
from combutab.evaluation import NemenyiResult, compare_with_best, mean_ranks, nemenyi, summarise

CELL = ["protocol", "data", "task", "metric", "activation"]
PROTOCOLS = ("paper", "sound", "sound-ungrouped")  # others follow as they come
POOLED = 2.0  # a cell is reproduced within so many pooled standard deviations


def order_activations(present: Iterable[str]) -> list[str]:
    """Put the paper's seven first, in its order; the others follow as they came."""
    order = list(dict.fromkeys([*ACTIVATIONS, *present]))
    return sorted(set(present), key=order.index)


def scores_of(fits: pd.DataFrame, metric: str) -> tuple[pd.Series, pd.Series]:
    """Scores in the paper's units, and which of the runs failed."""
    scores = METRICS[metric].scale * fits[metric].astype(np.float64)
    return scores, (fits["error"] != "") | ~np.isfinite(scores)


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
        splits = fits["split"].nunique()
        for metric in TASK_METRICS[fits["task"].iloc[0]]:
            scores, failed = scores_of(fits, metric)
            units = scores if splits == 1 else scores.groupby(fits["split"]).mean()
            if failed.any():
                units = units * np.nan
            sd = units.std(ddof=1)
            numbers = (units.mean(), sd, sd * np.sqrt(1.0 - 1.0 / len(units)))
            table.append((*key[:3], metric, key[3], len(fits), failed.sum(), splits, *numbers))
    return pd.DataFrame(table, columns=[*CELL, "runs", "failed", "splits", "mean", "sd", "sd0"])


def sort_cells(cells: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Order cells as the paper does, whatever order the rows came in."""
    order = [PROTOCOLS, table.data, METRICS, ACTIVATIONS]
    known = dict(zip(["protocol", "data", "metric", "activation"], order, strict=True))

    def place(column: pd.Series) -> pd.Series:
        names = dict.fromkeys([*known[str(column.name)], *column])
        return column.map({name: i for i, name in enumerate(names)})

    return cells.sort_values(list(known), key=place, ignore_index=True)


def compare_with_paper(cells: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put the paper's number beside each of our cells.

    ``pooled_sd`` is the root of the mean of the two variances; ``reproduced`` says whether the
    difference is at most 2 of it (and half a unit of the last digit that the paper prints), and
    ``reproduced_ddof0`` the same with our standard deviation over n. Both are missing where either
    side has no mean or no standard deviation.
    """
    keys = ["data", "task", "metric", "activation"]
    paper = expected[[*keys, "mean", "sd", "note"]]
    paper = paper.rename(columns={"mean": "paper_mean", "sd": "paper_sd"})
    table = cells.merge(paper, on=keys, how="left").fillna({"note": ""})
    facts = [METRICS[metric] for metric in table["metric"]]
    table.insert(5, "unit", [metric.unit for metric in facts])
    table["difference"] = table["mean"] - table["paper_mean"]
    within = [0.5 * 10.0**-metric.decimals for metric in facts]
    pooled = {sd: np.sqrt((table[sd] ** 2 + table["paper_sd"] ** 2) / 2.0) for sd in ("sd", "sd0")}
    table["pooled_sd"] = pooled["sd"]
    for column, sd in zip(("reproduced", "reproduced_ddof0"), pooled.values(), strict=True):
        reproduced = table["difference"].abs() <= POOLED * sd + within
        table[column] = reproduced.astype("boolean").mask((sd + table["difference"]).isna())
    return table


def split_ranks(expected: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """Divide the paper's table into its cells and its average ranks, by metric."""
    is_rank = expected["data"] == AVERAGE_RANK
    of_metric = expected[is_rank].groupby("metric", sort=False)
    return expected[~is_rank], {m: row.set_index("activation")["mean"] for m, row in of_metric}


def scale_by_all_rows(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Restate regression errors in units of the target's standard deviation over all rows.

    The study scales the target by its training rows; scaling before the split, which the paper's
    words allow too, divides by the standard deviation over all rows instead. Returns the rows and
    the ratio of the two by data set.
    """
    ratio = rows["target_std_train"].astype(np.float64) / rows["target_std_all"]
    restated = rows.assign(mae=rows["mae"] * ratio, mse=rows["mse"] * ratio**2)
    return restated, ratio.groupby(rows["data"], sort=False).mean()


# ---- ranks and tests; of one protocol's cells --------------------------------------------------


def scores_by_data(cells: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means of the data sets that have all activations, as data sets x activations.

    NaN where a run failed.
    """
    part = cells[cells["metric"] == metric]
    wide = part.pivot(index="data", columns="activation", values=["mean", "runs"])
    whole = wide["runs"].notna().all(axis=1)
    data = [name for name in part["data"].unique() if whole[name]]
    return wide["mean"].loc[data, order_activations(part["activation"])].astype(np.float64)


def failed_last(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Put a number worse than any score where a run failed, for ranks."""
    worst = -1.0 if METRICS[metric].greater_is_better else 1e30
    # rounded: equal means may differ by the order in which they were summed, and are ties
    return scores.fillna(worst).round(12)


def rank_activations(cells: pd.DataFrame) -> dict[str, pd.Series]:
    """Average the ranks over data sets, by metric: 1 is best, ties share their mean rank."""
    ranks = {}
    for metric in cells["metric"].unique():
        scores = failed_last(scores_by_data(cells, metric), metric)
        if len(scores):
            ranks[metric] = mean_ranks(scores, greater_is_better=METRICS[metric].greater_is_better)
    return ranks


def across_data(cells: pd.DataFrame, metric: str) -> NemenyiResult | None:
    """Friedman's and Nemenyi's tests of the means; None under 2 data sets or 3 activations."""
    scores = failed_last(scores_by_data(cells, metric), metric)
    if len(scores) < 2 or scores.shape[1] < 3:
        return None
    scores = scores.rename_axis(index="data set", columns="activation")
    return nemenyi(scores, greater_is_better=METRICS[metric].greater_is_better)


def within_data(fits: pd.DataFrame, metric: str) -> tuple[pd.DataFrame | None, str]:
    """Compare with the best on one data set, paired by split; in numbers and in sentences.

    Where a run failed or is to come there is no comparison, and the sentence says so.
    """
    name = "accuracy" if metric == "accuracy" else METRICS[metric].label
    try:
        comparison = compare_with_best(
            fits.assign(**{name: scores_of(fits, metric)[0]}),
            score=name,
            resample="split",
            n_train=float(fits["n_train"].mean()),
            n_test=float(fits["n_test"].mean()),
            greater_is_better=METRICS[metric].greater_is_better,
        )
    except ValueError as lacking:
        return None, f"Not compared: {lacking}."
    return comparison, " ".join(summarise(comparison, score=name).split("\n"))
