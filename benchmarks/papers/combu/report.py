"""The pages of the CombU paper's tables: our cells, the paper's, its claims, which differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.common.claims import Claim, Finding, claims_table
from benchmarks.common.page import Page, p_text
from benchmarks.outputs import write_table
from benchmarks.papers.combu import report_numbers as numbers
from benchmarks.papers.combu import report_text as text
from benchmarks.papers.combu.expected import ACTIVATIONS, METRICS, Table, load_expected
from benchmarks.papers.combu.figures import add_curves, normalised, plot_radar
from combutab.evaluation import summarise_nemenyi
from combutab.plotting import plot_critical_difference

FOCUS = "combu"


# ---- the paper's claims, judged from one protocol's comparison with the paper --------------------


def judge_cells(comparison: pd.DataFrame) -> Finding | None:
    """Judge whether the paper's cells come out again."""
    parts = comparison["reproduced"].dropna().astype(bool).tolist()
    return Finding(f"{sum(parts)} of {len(parts)} cells reproduced", parts) if parts else None


def judge_ranks(comparison: pd.DataFrame) -> Finding | None:
    """Judge whether no other of the paper's activations has a better mean rank, by metric."""
    texts, parts = [], []
    for metric, ranks in numbers.rank_activations(_papers(comparison)).items():
        if FOCUS in ranks and len(ranks) > 1:
            parts.append(bool(ranks[FOCUS] == ranks.min()))
            texts.append(f"{METRICS[metric].label} {ranks[FOCUS]:.2f} (least {ranks.min():.2f})")
    return Finding("mean ranks " + ", ".join(texts), parts) if parts else None


def judge_advantage(comparison: pd.DataFrame) -> Finding | None:
    """Judge whether Nemenyi's test finds that it ranks better than some other, by metric."""
    texts, parts = [], []
    for metric in comparison["metric"].unique():
        result = numbers.across_data(_papers(comparison), metric)
        if result is not None and FOCUS in result.mean_ranks:
            worse = result.mean_ranks > result.mean_ranks[FOCUS]
            sure = (result.p[FOCUS] < result.alpha) & worse & result.differ
            parts.append(bool(sure.any()))
            p = p_text(result.friedman.pvalue)
            texts.append(f"{METRICS[metric].label} better than {sure.sum()} (Friedman {p})")
    return Finding(", ".join(texts), parts) if parts else None


def judge_lines(least: int, comparison: pd.DataFrame) -> Finding | None:
    """Judge whether it has the best mean of so many data sets and metrics at least."""
    cells = text.mark_best(_papers(comparison))
    own = cells.loc[cells["activation"] == FOCUS, "best"]
    shown = f"best in {own.sum()} of {len(own)} lines"
    return Finding(shown, [bool(own.sum() >= least)]) if len(own) else None


def _papers(cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["activation"].isin(ACTIVATIONS)]


# ---- pages -------------------------------------------------------------------------------------


Claims = Sequence[Claim[pd.DataFrame]]


def write_page(
    table: Table, claims: Claims, page: Page, arguments: argparse.Namespace, rows: pd.DataFrame
) -> None:
    """Fill a study's page; our cells, beside the paper's, go to a file of their own.

    Where the paper has no such table, the page has the tests over data sets alone.
    """
    page.text(text.provenance(rows), text.failures_table(rows))
    cells = numbers.sort_cells(numbers.make_cells(rows), table)
    if table.number is None:
        write_rows(cells, arguments.out / f"{table.name}_cells.csv.gz")
        page.text(text.design_text(cells))
        _add_tests(page, rows, cells, table)
        return
    expected = load_expected(table.number)
    cells = numbers.compare_with_paper(cells, expected)
    write_rows(cells, arguments.out / f"{table.name}_comparison.csv.gz")
    protocols = dict(iter(cells.groupby("protocol", sort=False)))
    page.heading("The paper's claims")
    page.text(
        claims_table(claims, protocols),
        "Errors are in standard deviations of the training rows' target, accuracy and macro F1 in "
        "percent. The best mean of a row is bold; ranks are of unrounded means, and ties share "
        "their mean rank (the paper gives ties the better rank).",
    )
    for protocol, part in protocols.items():
        page.heading(f"Ours, {protocol} protocol")
        ranks = numbers.rank_activations(part)
        page.text(text.design_text(part), text.cells_table(part, table, ranks))
    page.heading("The paper's")
    paper, ranks = numbers.split_ranks(expected)
    notes = text.paper_notes(expected)
    page.text(text.cells_table(paper, table, ranks), f"Of the paper's cells:\n\n{notes}")
    _add_comparison(page, protocols, table)
    scaled = rows[(rows["protocol"] == "paper") & (rows["task"] == "regression")]
    if len(scaled):
        _add_scaling(page, scaled, expected, table)
    if "sound-ungrouped" in protocols and "sound" in protocols:
        page.heading("Equal rows on both sides of the split", 3)
        page.text(
            "The sound protocol keeps rows with equal features on one side, the sound-ungrouped "
            "one does not. Means over the activations:",
            text.duplicates_table(cells, table),
        )
    _add_tests(page, rows, cells, table)
    page.heading("Figures")
    _add_radar(page, next(iter(protocols.values())), paper, table)
    add_curves(page, rows, table.data)


def write_rows(table: pd.DataFrame, path: Path) -> None:
    """Write numbers to a file of their own."""
    write_table(table, path, index=False, float_format="%.6g")


def _add_comparison(page: Page, protocols: dict[str, pd.DataFrame], table: Table) -> None:
    page.heading("Ours beside the paper's")
    page.text(
        "Cells reproduced have means at most 2 pooled standard deviations apart (give or take the "
        "rounding of the paper's). Ours have ddof 1. The paper's seem to have ddof 0: those of its "
        "accuracies on the 114 to 154 test rows of wdbc, breast-w and diabetes, which can have few "
        "values, fit nothing else. Each cell's difference stands in the CSV file of the comparison."
    )
    for protocol, part in protocols.items():
        page.heading(f"{protocol} protocol", 3)
        ddof0 = part["reproduced_ddof0"]
        page.text(
            text.counts_table(part, table),
            f"With ddof 0 on both sides {ddof0.sum()} of {ddof0.count()} cells are reproduced.",
            "How alike the orders of the activations are:",
            text.correlations_table(part, table),
        )


def _add_scaling(page: Page, rows: pd.DataFrame, expected: pd.DataFrame, table: Table) -> None:
    restated, ratios = numbers.scale_by_all_rows(rows)
    cells = numbers.sort_cells(numbers.make_cells(restated), table)
    listed = ", ".join(f"{text.data_label(d, table)} {x:.3f}" for d, x in ratios.items())
    page.heading("The target scaled by all rows", 3)
    page.text(
        "The paper may have scaled the target before it split. Then its errors are in standard "
        f"deviations of all rows, and ours have to be multiplied by a ratio (MSE: by its square): "
        f"{listed}. Paper protocol:",
        text.counts_table(numbers.compare_with_paper(cells, expected), table),
    )


def _add_tests(page: Page, rows: pd.DataFrame, cells: pd.DataFrame, table: Table) -> None:
    """Across data sets by ranks, and on each data set where there are several splits."""
    page.heading("Which differences are real")
    for protocol, part in cells.groupby("protocol", sort=False):
        if protocol == "sound-ungrouped" and "sound" in set(cells["protocol"]):
            continue  # equal rows on both sides favour what memorises them
        page.heading(f"{protocol} protocol", 3)
        for metric in part["metric"].unique():
            label, result = METRICS[metric].label, numbers.across_data(part, metric)
            if result is None:
                page.text(f"**{label}.** Too few data sets or activations for Friedman's test.")
                continue
            sentences = summarise_nemenyi(result)
            page.text(f"**{label}, {len(result.mean_ranks)} activations.** {sentences}")
            caption = f"Mean ranks by {label}, {protocol} protocol"
            page.figure(plot_critical_difference(result), caption, f"ranks_{protocol}_{metric}")
        if part["splits"].max() > 1:
            page.heading(f"Each data set, {protocol} protocol", 4)
            _add_tests_within(page, rows[rows["protocol"] == protocol], part, table)


def _add_tests_within(page: Page, rows: pd.DataFrame, cells: pd.DataFrame, table: Table) -> None:
    lines, comparisons = [], []
    for (data, task, metric), _ in cells.groupby(["data", "task", "metric"], sort=False):
        fits = rows[(rows["data"] == data) & (rows["task"] == task)]
        comparison, sentences = numbers.within_data(fits, metric)
        lines.append(f"- {text.data_label(data, table)}, {METRICS[metric].label}: {sentences}")
        comparisons += [] if comparison is None else [comparison]
    page.text(
        "Paired by split, with Nadeau and Bengio's corrected t-test against the best mean, "
        "Holm-adjusted. Data sets and metrics:",
        text.verdicts_table(comparisons) if comparisons else text.NOTHING,
        "\n".join(lines),
    )


def _add_radar(page: Page, cells: pd.DataFrame, paper: pd.DataFrame, table: Table) -> None:
    """Ours, and the paper's where it is whole."""
    theirs = paper.assign(runs=paper["mean"])  # a lost cell has no run
    both = {"ours": normalised(cells, table.data), "the paper's": normalised(theirs, table.data)}
    panels = {title: scores for title, scores in both.items() if len(scores) >= 3}
    if "ours" in panels:
        lost = "" if len(panels) == 2 else "; too much of the paper's is lost to draw its own"
        page.figure(
            plot_radar(panels),
            "As the paper's Figures 1 and 2: each metric scaled by its range over the activations, "
            "1 the best and 0 the worst or failed, and averaged over the metrics of an experiment"
            f"{lost}",
            "radar",
        )
