"""The pages of the CombU paper's tables: our cells, the paper's, its claims, which differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.outputs import write_figure, write_table
from benchmarks.papers.combu.expected import ACTIVATIONS, METRICS, TABLES, Table, load_expected
from benchmarks.papers.combu.figures import CURVES, normalised, plot_curves, plot_radar, read_curves
from benchmarks.papers.combu.report_numbers import (
    across_data,
    compare_with_paper,
    count_reproduced,
    make_cells,
    order_activations,
    rank_activations,
    scale_by_all_rows,
    scores_by_data,
    sort_cells,
    within_data,
)
from benchmarks.papers.combu.report_text import (
    comparison_table,
    correlations_table,
    counts_table,
    data_label,
    design_text,
    duplicates_table,
    failures_table,
    mark_best,
    our_table,
    paper_notes,
    paper_table,
    provenance,
    ranks_table,
    scaling_table,
    unfinished_text,
    verdicts_table,
)
from benchmarks.papers.common.claims import Claim, Finding, claims_table
from benchmarks.papers.common.page import Page, p_text
from combutab.evaluation import summarise_nemenyi
from combutab.plotting import plot_critical_difference

PAPER = "paper"  # the protocol that is the paper's
SOUND, UNGROUPED = "sound", "sound-ungrouped"
FOCUS = "combu"
RADAR = (
    "each metric scaled by its range over the activations, 1 the best and 0 the worst or failed, "
    "and averaged over the metrics of an experiment"
)


# ---- the paper's claims, judged from one protocol's comparison with the paper --------------------


def judge_cells(comparison: pd.DataFrame) -> Finding | None:
    """Whether the paper's cells come out again."""
    parts = comparison["reproduced"].dropna().astype(bool).tolist()
    return Finding(f"{sum(parts)} of {len(parts)} cells reproduced", parts) if parts else None


def judge_ranks(comparison: pd.DataFrame) -> Finding | None:
    """Whether no other of the paper's activations has a better mean rank, metric by metric."""
    texts, parts = [], []
    for metric, names, cells in _by_metric(comparison):
        scores, _ = scores_by_data(cells, metric, names)
        if scores.empty:
            continue
        ranks = rank_activations(scores, metric)
        parts.append(bool(ranks[FOCUS] == ranks.min()))
        texts.append(f"{METRICS[metric].label} {ranks[FOCUS]:.2f} (least {ranks.min():.2f})")
    return Finding("mean ranks " + ", ".join(texts), parts) if parts else None


def judge_advantage(comparison: pd.DataFrame) -> Finding | None:
    """Whether Nemenyi's test tells that it ranks better than some other, metric by metric."""
    texts, parts = [], []
    for metric, names, cells in _by_metric(comparison):
        result = across_data(cells, metric, names)
        if result is None:
            continue
        ranks = result.mean_ranks
        sure = (result.p[FOCUS] < result.alpha) & (ranks > ranks[FOCUS]) & result.differ
        parts.append(bool(sure.any()))
        p = p_text(result.friedman.pvalue)
        texts.append(f"{METRICS[metric].label} better than {sure.sum()} (Friedman {p})")
    return Finding(", ".join(texts), parts) if parts else None


def _by_metric(comparison: pd.DataFrame) -> Iterator[tuple[str, list[str], pd.DataFrame]]:
    """Cells of the paper's activations, where CombU and another are among them."""
    for metric, cells in comparison.groupby("metric", sort=False):
        names = [n for n in order_activations(cells["activation"]) if n in ACTIVATIONS]
        if FOCUS in names and len(names) > 1:
            yield str(metric), names, cells


def judge_lines(least: int, comparison: pd.DataFrame) -> Finding | None:
    """Whether it has the best mean of so many data sets and metrics at least."""
    cells = mark_best(comparison[comparison["activation"].isin(ACTIVATIONS)])
    own = cells.loc[cells["activation"] == FOCUS, "best"]
    if own.empty:
        return None
    return Finding(f"best in {own.sum()} of {len(own)} lines", [bool(own.sum() >= least)])


# ---- pages -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TablePage:
    """The page of a study, to be called by it.

    ``table`` is the paper's to compare with; None for a study of many data sets that the paper does
    not have: ranks over data sets, without tables of single ones in the text.
    """

    name: str
    table: int | None = None
    claims: Sequence[Claim[pd.DataFrame]] = ()

    def __call__(self, page: Page, arguments: argparse.Namespace, rows: pd.DataFrame) -> None:
        paper = None if self.table is None else TABLES[self.table]
        cells = sort_cells(make_cells(rows), paper)
        page.text(provenance(rows), failures_table(rows))
        parts = dict(iter(cells.groupby("protocol", sort=False)))
        if paper is None or self.table is None:
            write_rows(cells, arguments.out / f"{self.name}_cells.csv")
            for protocol, part in parts.items():
                _add_many(page, rows[rows["protocol"] == protocol], part, protocol)
            return
        expected = load_expected(self.table)
        comparison = compare_with_paper(cells, expected)
        write_rows(comparison, arguments.out / f"{self.name}_comparison.csv")
        parts = dict(iter(comparison.groupby("protocol", sort=False)))
        page.heading("The paper's claims")
        page.text(claims_table(self.claims, parts))
        _add_cells(page, rows, parts, expected, paper)
        _add_comparison(page, rows, parts, expected, paper)
        page.heading("Which differences are real")
        for protocol, part in parts.items():
            # equal rows on both sides favour what memorises them
            if protocol != UNGROUPED or SOUND not in parts:
                _add_tests(page, rows[rows["protocol"] == protocol], part, protocol, paper)
        page.heading("Figures")
        add_radar(page, parts.get(PAPER, next(iter(parts.values()))), expected, paper.data)
        if "loss_curve" in rows:
            _add_curves(page, rows, paper)


def write_rows(table: pd.DataFrame, path: Path) -> None:
    """Write numbers to a file of their own."""
    write_table(table, path, index=False, float_format="%.6g", lineterminator="\n")


def _add_cells(
    page: Page,
    rows: pd.DataFrame,
    parts: dict[str, pd.DataFrame],
    expected: pd.DataFrame,
    paper: Table,
) -> None:
    page.text(
        "Errors are in standard deviations of the training rows' target, accuracy and macro F1 in "
        "percent. The best mean of a row is bold; ranks are of unrounded means, and ties share "
        "their mean rank (the paper gives ties the better rank)."
    )
    for protocol, part in parts.items():
        page.heading(f"Ours, {protocol} protocol")
        page.text(design_text(rows[rows["protocol"] == protocol]))
        page.text(*filter(None, [unfinished_text(part, paper)]))
        page.text(*(our_table(part, activations, paper) for activations in groups(part)))
    page.heading("The paper's")
    notes = paper_notes(expected, paper)
    page.text(paper_table(expected, paper), f"Of the paper's cells:\n\n{notes}")


def _add_comparison(
    page: Page,
    rows: pd.DataFrame,
    parts: dict[str, pd.DataFrame],
    expected: pd.DataFrame,
    paper: Table,
) -> None:
    page.heading("Ours beside the paper's")
    page.text(
        "Cells reproduced have means at most 2 pooled standard deviations apart (give or take the "
        "rounding of the paper's). Ours have ddof 1. The paper's seem to have ddof 0: those of its "
        "accuracies on the 114 to 154 test rows of wdbc, breast-w and diabetes, which can have few "
        "values, fit nothing else."
    )
    for protocol, part in parts.items():
        page.heading(f"{protocol} protocol", 3)
        n = count_reproduced(part, "reproduced_ddof0")[["reproduced", "compared"]].sum()
        page.text(
            counts_table(part, paper),
            f"With ddof 0 on both sides {n['reproduced']} of {n['compared']} cells are reproduced.",
        )
        if protocol == PAPER:
            page.text("Our mean less the paper's, ✓ where reproduced:")
            page.text(comparison_table(part, paper))
        page.text("How alike the orders of the activations are:", correlations_table(part, paper))
        scaled = rows[(rows["protocol"] == protocol) & (rows["task"] == "regression")]
        if len(scaled) and protocol == PAPER:
            restated = sort_cells(make_cells(scale_by_all_rows(scaled)), paper)
            restated = compare_with_paper(restated, expected)
            page.text(
                "The paper may have scaled the target before it split. Then its errors are in "
                "standard deviations of all rows, and ours would have to be multiplied by the "
                "ratio below (MSE: by its square):",
                scaling_table(part, restated, scaled, paper),
            )
    duplicates = duplicates_table(pd.concat(parts.values()), SOUND, UNGROUPED, paper)
    if duplicates:
        page.heading("Equal rows on both sides of the split", 3)
        page.text(duplicates)


def _add_tests(
    page: Page, rows: pd.DataFrame, cells: pd.DataFrame, protocol: str, paper: Table
) -> None:
    """Across data sets by ranks, and on each data set where there are several splits."""
    page.heading(f"{protocol} protocol", 3)
    metrics = list(dict.fromkeys(cells["metric"]))
    for metric in metrics:
        label = METRICS[metric].label
        for activations in groups(cells):
            found = across_text(cells, metric, activations)
            page.text(f"**{label}, {len(activations)} activations.** {found}")
        _add_diagram(page, cells, metric, protocol)
    if rows["split"].nunique() < 2:
        return
    page.heading(f"Each data set, {protocol} protocol", 4)
    page.text(
        "Paired by split, with Nadeau and Bengio's corrected t-test against the best mean, "
        "Holm-adjusted."
    )
    for activations in groups(cells):
        found = [each for metric in metrics for each in within_data(rows, metric, activations)]
        lines = [
            f"- {data_label(each.data, paper)}, {METRICS[each.metric].label}: {each.text}"
            for each in found
        ]
        page.text(
            f"Among {len(activations)} activations, data sets and metrics counted:",
            verdicts_table(found, activations),
            "\n".join(lines),
        )


def _add_many(page: Page, rows: pd.DataFrame, cells: pd.DataFrame, protocol: str) -> None:
    """Ranks over many data sets, for a study without a table of the paper's."""
    page.heading(f"{protocol} protocol")
    page.text(*filter(None, [design_text(rows), unfinished_text(cells, None)]))
    for metric in dict.fromkeys(cells["metric"]):
        page.heading(METRICS[metric].label, 3)
        for activations in groups(cells):
            page.text(ranks_table(cells, metric, activations))
            page.text(across_text(cells, metric, activations))
        _add_diagram(page, cells, metric, protocol)


def across_text(cells: pd.DataFrame, metric: str, activations: Sequence[str]) -> str:
    """What Friedman's and Nemenyi's tests say."""
    result = across_data(cells, metric, activations)
    if result is None:
        return "Friedman's test needs at least 2 data sets that all of 3 or more activations share."
    return summarise_nemenyi(result)


# ---- figures -----------------------------------------------------------------------------------


def _add_diagram(page: Page, cells: pd.DataFrame, metric: str, protocol: str) -> None:
    result = across_data(cells, metric, groups(cells)[-1])
    if result is not None:
        page.figure(
            plot_critical_difference(result),
            f"Mean ranks by {METRICS[metric].label}, {protocol} protocol",
            f"ranks_{protocol}_{metric}",
        )


def add_radar(
    page: Page, cells: pd.DataFrame, expected: pd.DataFrame, labels: dict[str, str]
) -> None:
    """Ours, and the paper's where it is whole; then all activations, where there are more."""
    for activations in groups(cells):
        panels = {"ours": normalised(cells, activations, labels)}
        if len(panels["ours"]) < 3:
            continue
        seven = [name for name in activations if name in ACTIVATIONS] == activations
        caption = f"As the paper's Figures 1 and 2: {RADAR}"
        if seven:
            known = expected[expected["data"].isin(labels)].dropna(subset=["mean"]).assign(runs=1)
            theirs = normalised(known, list(ACTIVATIONS), labels)
            if len(theirs) >= 3:
                panels["the paper's"] = theirs
            else:
                caption += "; too many of the paper's cells are lost to draw its own"
        page.figure(plot_radar(panels), caption, "radar" if seven else "radar_all")


def _add_curves(page: Page, rows: pd.DataFrame, paper: Table) -> None:
    """Figures 3 to 6 of the paper, of the first protocol that kept curves."""
    for curve in CURVES:
        fits = rows[rows["task"] == curve.task]
        fits = fits[
            [read_curves(fits.iloc[[i]], curve.column) is not None for i in range(len(fits))]
        ]
        if fits.empty:
            continue
        fits = fits[fits["protocol"] == fits["protocol"].iloc[0]]
        for activations, end in zip(groups(fits), ("", "_all"), strict=False):
            page.figure(
                plot_curves(fits, curve, activations, paper.data),
                f"{curve.figure}: {curve.label}, mean and range over runs, without the first two "
                f"epochs{curve.note}",
                f"curves_{curve.suffix}{end}",
            )


def write_figure2(out: Path, *tables: pd.DataFrame) -> None:
    """Draw the paper's Figure 2 from the rows of Tables 5 and 6, where 3 data sets are whole.

    The paper's own cannot be drawn beside it: cells of all but one of its data sets are lost.
    """
    names = {**TABLES[5].data, **TABLES[6].data}
    cells = sort_cells(make_cells(pd.concat(tables)), Table("", "", names))
    cells = cells[cells["protocol"] == cells["protocol"].iloc[0]]
    scores = normalised(cells, groups(cells)[0], names)
    if len(scores) >= 3:
        write_figure(plot_radar({"ours": scores}), out / "figure2_radar.png", dpi=110)


def groups(table: pd.DataFrame) -> list[list[str]]:
    """The paper's activations, and all where there are others too."""
    present = order_activations(table["activation"])
    seven = [name for name in present if name in ACTIVATIONS]
    return [group for group in (seven, present) if group][: 1 if seven == present else 2]
