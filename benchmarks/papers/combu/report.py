"""Write a study's report: our numbers, the paper's beside them, and which differences are real.

    from report import write_report
    write_report(rows, table=3, out=Path("results"))

``rows`` is the study's tidy table, one row a trained network.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.outputs import write_bytes
from benchmarks.papers.combu.expected import ACTIVATIONS, METRICS, TABLES, Table, load_expected
from benchmarks.papers.combu.figures import (
    REFERENCES,
    normalised,
    plot_curves,
    plot_radar,
    read_curves,
)
from benchmarks.papers.combu.report_findings import (
    across_data,
    across_data_words,
    ranks_table,
    verdicts_table,
    within_data,
)
from benchmarks.papers.combu.report_numbers import (
    check_rows,
    compare_with_paper,
    count_reproduced,
    make_cells,
    order_activations,
    scale_by_all_rows,
    sort_cells,
)
from benchmarks.papers.combu.report_text import (
    comparison_table,
    correlations_table,
    counts_table,
    data_label,
    design_words,
    duplicates_table,
    failures_table,
    our_table,
    paper_notes,
    paper_table,
    provenance,
    scaling_table,
    short_form,
    unfinished_words,
)
from combutab.plotting import plot_critical_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "paper"  # the protocol that is the paper's
SOUND, UNGROUPED = "sound", "sound-ungrouped"
_CURVES = (  # column, task, the paper's figure, axis, logarithmic, file
    ("loss_curve", "regression", "Figure 3", "training loss (MSE)", True, "loss_reg"),
    ("metric_curve", "regression", "Figure 4", "training absolute error", True, "error_reg"),
    ("loss_curve", "classification", "Figure 5", "training loss (cross-entropy)", True, "loss_clf"),
    ("metric_curve", "classification", "Figure 6", "training accuracy", False, "accuracy_clf"),
)


def write_report(
    rows: pd.DataFrame,
    *,
    table: int | None,
    out: Path,
    title: str | None = None,
    name: str | None = None,
    command: str | None = None,
) -> list[Path]:
    """Write a study's report, and print a short form of it.

    Parameters
    ----------
    rows : DataFrame
        The study's rows; parts of a study will do, and rows of failed fits are counted and named.
    table : {3, 5, 6} or None
        The paper's table to compare with. None: a study of many data sets that the paper does not
        have; ranks over data sets, without tables of single ones in the text.
    out : Path
        Folder, made where it is not there. Existing files of the report are replaced, each at once.
    title, name : str, optional
        Heading, and how the files' names begin; those of the paper's table, or "study".
    command : str, optional
        What ran the study, for the report to quote.

    Returns
    -------
    list of Path
        What was written: ``<name>.md``, ``<name>_comparison.csv`` (``<name>_cells.csv`` without a
        table of the paper's), and the figures.

    Raises
    ------
    ValueError
        There are no rows, columns are missing, or the table is not one of these.
    """
    if table is not None and table not in TABLES:
        raise ValueError(f"table must be one of {', '.join(map(str, TABLES))} or None, got {table}")
    rows = check_rows(rows)
    paper = None if table is None else TABLES[table]
    expected = None if table is None else load_expected(table)
    cells = sort_cells(make_cells(rows), paper)
    report = ReportFiles(Path(out), name or (paper.name if paper else "study"))
    heading = title or (
        paper.title if paper else f"Activations on {cells['data'].nunique()} data sets"
    )
    report.add(f"# {heading}", provenance(rows, command), failures_table(rows))
    if paper is None or expected is None:
        report.write_csv("cells", cells)
        for protocol, part in cells.groupby("protocol", sort=False):
            _add_many(report, rows[rows["protocol"] == protocol], part)
    else:
        comparison = compare_with_paper(cells, expected)
        report.write_csv("comparison", comparison)
        _add_paper(report, rows, cells, comparison, expected, paper)
    report.write_text()
    print(f"\n{heading}\n\n{short_form(cells, paper)}")
    if paper is not None:
        for protocol, part in count_reproduced(comparison).groupby("protocol", sort=False):
            print(f"{protocol}: {part['reproduced'].sum()} of {part['compared'].sum()} reproduced")
    print("\n".join(["", *map(str, report.files)]))
    return report.files


def write_figure2(rows: pd.DataFrame, *, out: Path, name: str = "figure2_radar") -> list[Path]:
    """Draw the paper's Figure 2 from the rows of Tables 5 and 6 together.

    Returns what was written: nothing where fewer than 3 data sets have all activations, a second
    figure where there are others than the paper's. The paper's own cannot be drawn beside it:
    cells of all but one of its data sets are lost.
    """
    names = {**TABLES[5].data, **TABLES[6].data}
    cells = sort_cells(make_cells(check_rows(rows)), Table("", "", names))
    report = ReportFiles(Path(out), name)
    first = cells[cells["protocol"] == cells["protocol"].iloc[0]]
    _add_radar(report, first, None, names, suffix="")
    return report.files


@dataclass
class ReportFiles:
    """The text so far, and the files written."""

    folder: Path
    name: str
    blocks: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def add(self, *blocks: str) -> None:
        self.blocks += [block for block in blocks if block]

    def add_figure(self, figure: Figure, suffix: str, caption: str) -> None:
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=100)
        path = self._write(f"{suffix}.png", data.getvalue())
        self.add(f"![{caption}]({path.name})", f"*{caption}*")

    def write_csv(self, suffix: str, table: pd.DataFrame) -> None:
        text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        self._write(f"_{suffix}.csv", text.encode())

    def write_text(self) -> None:
        self._write(".md", ("\n\n".join(self.blocks) + "\n").encode())

    def _write(self, suffix: str, data: bytes) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}{suffix}"
        write_bytes(path, data)
        self.files.append(path)
        return path


def _add_paper(
    report: ReportFiles,
    rows: pd.DataFrame,
    cells: pd.DataFrame,
    comparison: pd.DataFrame,
    expected: pd.DataFrame,
    paper: Table,
) -> None:
    """Our tables, the paper's, the comparison, the tests, the figures."""
    protocols = list(dict.fromkeys(cells["protocol"]))
    report.add(
        "Errors are in standard deviations of the training rows' target, accuracy and macro F1 in "
        "percent. The best mean of a row is bold; ranks are of unrounded means, and ties share "
        "their mean rank (the paper gives ties the better rank)."
    )
    for protocol in protocols:
        part = cells[cells["protocol"] == protocol]
        report.add(f"## Ours, {protocol} protocol", design_words(part, rows, protocol))
        report.add(unfinished_words(part, paper))
        for activations in _groups(part):
            report.add(our_table(part, activations, paper))
    report.add("## The paper's", paper_table(expected, paper))
    report.add("Of the paper's cells:\n\n" + paper_notes(expected, paper))
    report.add("## Ours beside the paper's")
    for protocol in protocols:
        _add_comparison(report, rows, comparison, expected, paper, protocol)
    report.add(duplicates_table(cells, SOUND, UNGROUPED, paper))
    report.add("## Which differences are real")
    for protocol in protocols:
        if protocol == UNGROUPED and SOUND in protocols:
            continue  # equal rows on both sides favour what memorises them
        part = cells[cells["protocol"] == protocol]
        _add_tests(report, rows[rows["protocol"] == protocol], part, protocol, paper)
    main = PAPER if PAPER in protocols else protocols[0]
    part = cells[cells["protocol"] == main]
    report.add("## Figures")
    _add_radar(report, part, expected, paper.data)
    if paper is TABLES[3]:
        _add_curves(report, rows, paper)


def _add_comparison(
    report: ReportFiles,
    rows: pd.DataFrame,
    comparison: pd.DataFrame,
    expected: pd.DataFrame,
    paper: Table,
    protocol: str,
) -> None:
    part = comparison[comparison["protocol"] == protocol]
    report.add(
        f"### {protocol} protocol",
        "Cells reproduced, their means being at most 2 pooled standard deviations apart (give or "
        "take the rounding of the paper's):",
        counts_table(part, paper),
    )
    of_n = count_reproduced(part, "reproduced_ddof0")
    report.add(
        "Our standard deviations have ddof 1. The paper's seem to have ddof 0: those of its "
        "accuracies on the 114 to 154 test rows of wdbc, breast-w and diabetes, which can have few "
        "values, fit nothing else. With ddof 0 on both sides "
        f"{of_n['reproduced'].sum()} of {of_n['compared'].sum()} cells are reproduced."
    )
    if protocol == PAPER:
        report.add("Our mean less the paper's, ✓ where reproduced:", comparison_table(part, paper))
    report.add("How alike the orders of the activations are:", correlations_table(part, paper))
    scaled = rows[(rows["protocol"] == protocol) & (rows["task"] == "regression")]
    if len(scaled) and protocol == PAPER:
        restated = sort_cells(make_cells(scale_by_all_rows(scaled)), paper)
        restated = compare_with_paper(restated, expected)
        report.add(
            "The paper may have scaled the target before it split. Then its errors are in standard "
            "deviations of all rows, and ours would have to be multiplied by the ratio below (MSE: "
            "by its square):",
            scaling_table(part, restated, scaled, paper),
        )


def _add_tests(
    report: ReportFiles, rows: pd.DataFrame, cells: pd.DataFrame, protocol: str, paper: Table | None
) -> None:
    """Across data sets by ranks, and on each data set where there are several splits."""
    report.add(f"### {protocol} protocol")
    groups = _groups(cells)
    for metric in dict.fromkeys(cells["metric"]):
        label = METRICS[metric].label
        for activations in groups:
            words = across_data_words(cells, metric, activations)
            report.add(f"**{label}, {len(activations)} activations.** {words}")
        _add_diagram(report, cells, metric, groups[-1], protocol)
    if rows["split"].nunique() < 2:
        return
    report.add(
        f"#### Each data set, {protocol} protocol",
        "Paired by split, with Nadeau and Bengio's corrected t-test against the best mean, "
        "Holm-adjusted.",
    )
    for activations in groups:
        findings = [
            finding
            for metric in dict.fromkeys(cells["metric"])
            for finding in within_data(rows, metric, activations)
        ]
        report.add(
            f"Among {len(activations)} activations, data sets and metrics counted:",
            verdicts_table(findings, activations),
            "\n".join(
                f"- {data_label(finding.data, paper)}, {METRICS[finding.metric].label}: "
                f"{finding.text}"
                for finding in findings
            ),
        )


def _add_many(report: ReportFiles, rows: pd.DataFrame, cells: pd.DataFrame) -> None:
    """Ranks over many data sets, for a study without a table of the paper's."""
    protocol = str(cells["protocol"].iloc[0])
    report.add(f"## {protocol} protocol", design_words(cells, rows, protocol))
    report.add(unfinished_words(cells, None))
    for metric in dict.fromkeys(cells["metric"]):
        report.add(f"### {METRICS[metric].label}")
        groups = _groups(cells)
        for activations in groups:
            report.add(
                ranks_table(cells, metric, activations),
                across_data_words(cells, metric, activations),
            )
        _add_diagram(report, cells, metric, groups[-1], protocol)


def _add_diagram(
    report: ReportFiles, cells: pd.DataFrame, metric: str, activations: Sequence[str], protocol: str
) -> None:
    result = across_data(cells, metric, activations)
    if result is not None:
        label = METRICS[metric].label
        report.add_figure(
            plot_critical_difference(result),
            f"_ranks_{protocol}_{metric}",
            f"Mean ranks by {label}, {protocol} protocol",
        )


def _add_radar(
    report: ReportFiles,
    cells: pd.DataFrame,
    expected: pd.DataFrame | None,
    labels: dict[str, str],
    suffix: str = "_radar",
) -> None:
    """The paper's seven, ours and the paper's where it is whole; then all, where there are more."""
    caption = (
        "As the paper's Figures 1 and 2: each metric scaled by its range over the activations, 1 "
        "the best and 0 the worst or failed, and averaged over the metrics of an experiment"
    )
    for activations in _groups(cells):
        ours = normalised(cells, activations, labels)
        if len(ours) < 3:
            continue
        seven = [name for name in activations if name in ACTIVATIONS]
        if seven == activations:
            panels = {"ours": ours}
            theirs = pd.DataFrame() if expected is None else _paper_radar(expected, labels)
            lost = "; too many of the paper's cells are lost to draw its own"
            if len(theirs) >= 3:
                panels["the paper's"], lost = theirs, ""
            report.add_figure(plot_radar(panels), suffix, caption + lost)
            continue
        others = _with_references(activations)
        panels = {"the paper's seven": ours[seven], "others": ours[others]}
        panels = {name: scores for name, scores in panels.items() if scores.shape[1]}
        report.add_figure(
            plot_radar(panels), f"{suffix}_all", f"{caption}; range over all activations"
        )


def _paper_radar(expected: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    cells = expected[expected["data"].isin(labels)].dropna(subset=["mean"]).assign(runs=1)
    return normalised(cells, list(ACTIVATIONS), labels)


def _add_curves(report: ReportFiles, rows: pd.DataFrame, paper: Table) -> None:
    """Figures 3 to 6 of the paper, of the first protocol that kept curves."""
    for column, task, figure, label, log, suffix in _CURVES:
        fits = rows[rows["task"] == task] if column in rows else rows.iloc[:0]
        fits = fits[[read_curves(fits.iloc[[i]], column) is not None for i in range(len(fits))]]
        if fits.empty:
            continue
        fits = fits[fits["protocol"] == fits["protocol"].iloc[0]]
        caption = f"{figure}: {label}, mean and range over runs, without the first two epochs"
        if figure == "Figure 5":
            caption += " (the paper's caption calls it absolute error, but it is the loss)"
        first, *more = _groups(fits)
        shown = {"": first}
        if more:
            shown["_all"] = _with_references(more[0])
        for end, activations in shown.items():
            report.add_figure(
                plot_curves(fits, column, activations, paper.data, ylabel=label, log=log),
                f"_curves_{suffix}{end}",
                f"{caption}; further activations" if end else caption,
            )


def _with_references(activations: Sequence[str]) -> list[str]:
    """Those that the paper does not have, after the two that they are seen against."""
    return [name for name in activations if name in REFERENCES or name not in ACTIVATIONS]


def _groups(table: pd.DataFrame) -> list[list[str]]:
    """The paper's activations, and all where there are others too."""
    present = order_activations(table["activation"])
    seven = [name for name in present if name in ACTIVATIONS]
    return [group for group in (seven, present) if group][: 1 if seven == present else 2]
