"""Which differences of a study are real: the tests, and what they found in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.papers.combu.expected import METRICS, TASK_METRICS
from benchmarks.papers.combu.report_numbers import failed_last, rank_activations, scores_by_data
from benchmarks.papers.combu.report_text import markdown_table, number
from combutab.evaluation import (
    NemenyiResult,
    compare_with_best,
    nemenyi,
    summarise,
    summarise_nemenyi,
)


def across_data(
    cells: pd.DataFrame, metric: str, activations: Sequence[str]
) -> NemenyiResult | None:
    """Friedman's and Nemenyi's tests of one protocol's means; None under 2 data sets or 3 names."""
    scores, _ = scores_by_data(cells, metric, activations)
    if len(scores) < 2 or len(activations) < 3:
        return None
    scores = failed_last(scores, metric).rename_axis(index="data set", columns="activation")
    return nemenyi(scores, greater_is_better=METRICS[metric].greater_is_better)


def across_data_words(cells: pd.DataFrame, metric: str, activations: Sequence[str]) -> str:
    result = across_data(cells, metric, activations)
    if result is None:
        return "Friedman's test needs at least 2 data sets that all of 3 or more activations share."
    return summarise_nemenyi(result)


@dataclass(frozen=True)
class Finding:
    """What `compare_with_best` found on one data set, by one metric.

    ``comparison`` is None where nothing could be compared; ``text`` says why.
    """

    data: str
    metric: str
    comparison: pd.DataFrame | None
    text: str


def within_data(rows: pd.DataFrame, metric: str, activations: Sequence[str]) -> list[Finding]:
    """Compare with the best on each data set, paired by split; ``rows`` are of one protocol.

    Activations with a failed run are left out and named. Only the splits and seeds that all
    others finished are compared.
    """
    task = next(task for task, metrics in TASK_METRICS.items() if metric in metrics)
    rows = rows[(rows["task"] == task) & rows["activation"].isin(activations)]
    return [_compare(data, fits, metric) for data, fits in rows.groupby("data", sort=False)]


def _compare(data: str, fits: pd.DataFrame, metric: str) -> Finding:
    facts = METRICS[metric]
    scores = fits[metric].astype(np.float64)
    bad = (fits["error"] != "") | ~np.isfinite(scores)
    failed = list(dict.fromkeys(fits.loc[bad, "activation"]))
    notes = [f"Left out for failed runs: {', '.join(failed)}."] if failed else []
    fits = fits.assign(**{metric: facts.scale * scores})
    fits = fits[~fits["activation"].isin(failed)]
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
        return Finding(data, metric, None, " ".join(notes))
    comparison = compare_with_best(
        fits,
        score=metric,
        resample="split",
        n_train=float(fits["n_train"].mean()),
        n_test=float(fits["n_test"].mean()),
        greater_is_better=facts.greater_is_better,
    )
    words = summarise(comparison, score="accuracy" if metric == "accuracy" else facts.label)
    return Finding(data, metric, comparison, " ".join([*notes, *words.split("\n")]))


def verdicts_table(findings: Sequence[Finding], activations: Sequence[str]) -> str:
    """Count, for each activation, where it is best, tied with the best, and told apart from it."""
    tables = [finding.comparison for finding in findings if finding.comparison is not None]
    body = []
    for name in activations:
        places = [table[table["activation"] == name] for table in tables]
        here = [(place.index[0], place.iloc[0]) for place in places if len(place)]
        best = sum(position == 0 for position, _ in here)
        apart = sum(bool(line["distinguishable"]) for _, line in here)
        body.append([name, best, len(here) - best - apart, apart])
    return markdown_table(
        ["activation", "best mean", "not told apart from the best", "told apart"], body
    )


def ranks_table(cells: pd.DataFrame, metric: str, activations: Sequence[str]) -> str:
    """Mean rank, mean score and wins over data sets, the best first. One protocol's cells."""
    scores, left_out = scores_by_data(cells, metric, activations)
    if scores.empty:
        return f"No data set has all of {', '.join(activations)}."
    ranks = rank_activations(scores, metric).sort_values(kind="stable")
    part = cells[(cells["metric"] == metric) & cells["data"].isin(scores.index)]
    failed = part.groupby("activation")["failed"].sum()
    medians = part.groupby("activation")["mean"].median()
    won = wins(scores, METRICS[metric].greater_is_better)
    text = markdown_table(
        ["activation", "mean rank", f"median {METRICS[metric].label}", "best on", "failed runs"],
        [
            [name, f"{rank:.2f}", number(medians[name], metric), won[name], failed[name]]
            for name, rank in ranks.items()
        ],
    )
    words = f"Over {len(scores)} data sets"
    if left_out:
        words += f"; {len(left_out)} that lack an activation are left out"
    return f"{words}:\n\n{text}"


def wins(scores: pd.DataFrame, greater_is_better: bool) -> pd.Series:
    """Count the data sets where an activation has the best mean; a tie counts for each."""
    best = scores.max(axis=1) if greater_is_better else scores.min(axis=1)
    return scores.eq(best, axis=0).sum()
