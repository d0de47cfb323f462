"""Markdown of the CombU paper's studies: tables in the paper's layout, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd

from benchmarks.papers.combu.expected import ACTIVATIONS, AVERAGE_RANK, LOST, METRICS, Table
from benchmarks.papers.combu.report_numbers import (
    WithinData,
    count_reproduced,
    rank_activations,
    rank_correlations,
    scores_by_data,
)
from benchmarks.papers.common.page import markdown_table

NOTHING = "—"


def number(value: float, metric: str) -> str:
    """Show a score as the paper does, with two digits at least where it is smaller than that."""
    if not math.isfinite(value):
        return NOTHING
    decimals = METRICS[metric].decimals
    if value:
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def mean_and_sd(mean: float, sd: float, metric: str) -> str:
    shown = number(mean, metric)
    if shown == NOTHING or not math.isfinite(sd):
        return shown
    return f"{shown} ± {sd:.{len(shown.partition('.')[2])}f}"


def activation_label(name: str) -> str:
    return ACTIVATIONS.get(name, name)


def data_label(name: str, table: Table | None) -> str:
    short = table.data.get(name) if table else None
    return name if short is None else short if short.lower() == name else f"{short} ({name})"


# ---- activations in columns --------------------------------------------------------------------


def grid(
    cells: pd.DataFrame,
    names: Sequence[str],
    label: Callable[[str], str],
    text: Callable[[pd.Series], str],
) -> list[list[str]]:
    """A line a data set and metric, with the text of each activation's cell."""
    lines = []
    for (data, metric), part in cells.groupby(["data", "metric"], sort=False):
        row = part.set_index("activation")
        texts = [text(row.loc[name]) if name in row.index else NOTHING for name in names]
        lines.append([label(data), METRICS[metric].label, *texts])
    return lines


def mark_best(cells: pd.DataFrame) -> pd.DataFrame:
    """Say in ``best`` which activations have the best mean of a data set and metric."""
    sign = cells["metric"].map(
        {n: 1.0 if m.greater_is_better else -1.0 for n, m in METRICS.items()}
    )
    good = sign * cells["mean"]
    return cells.assign(
        best=good == good.groupby([cells["data"], cells["metric"]]).transform("max")
    )


def cell_text(cell: pd.Series) -> str:
    """Mean ± standard deviation, bold where best; or how many runs failed."""
    if cell.get("failed"):
        return f"failed {cell['failed']} of {cell['runs']}"
    text = mean_and_sd(cell["mean"], cell["sd"], cell["metric"])
    return f"**{text}**" if cell["best"] else text


def our_table(cells: pd.DataFrame, activations: Sequence[str], table: Table | None) -> str:
    """Data set x metric in rows, activations in columns, average ranks below. One protocol."""
    shown = cells[cells["activation"].isin(activations)]
    lines = grid(mark_best(shown), activations, lambda data: data_label(data, table), cell_text)
    left_out: list[str] = []
    for metric in shown["metric"].unique():
        scores, incomplete = scores_by_data(shown, metric, activations)
        left_out += incomplete
        if len(scores) and len(activations) > 1:
            lines.append(_ranks_line(rank_activations(scores, metric), metric))
    text = markdown_table(["", "", *map(activation_label, activations)], lines)
    if left_out:
        names = ", ".join(data_label(name, table) for name in dict.fromkeys(left_out))
        text += f"\nNot in the average ranks, for want of some activations: {names}.\n"
    return text


def paper_table(expected: pd.DataFrame, table: Table) -> str:
    """Lay out the paper's table alike; cells that the text lost are "—"."""
    ranks = expected["data"] == AVERAGE_RANK
    cells = mark_best(expected[~ranks])
    lines = grid(cells, list(ACTIVATIONS), lambda data: data_label(data, table), cell_text)
    for metric, row in expected[ranks].groupby("metric", sort=False):
        lines.append(_ranks_line(row.set_index("activation")["mean"][list(ACTIVATIONS)], metric))
    return markdown_table(["", "", *ACTIVATIONS.values()], lines)


def comparison_table(comparison: pd.DataFrame, table: Table) -> str:
    """Ours less the paper's in each cell; ✓ where reproduced, ✗ where not. One protocol."""

    def text(cell: pd.Series) -> str:
        if pd.isna(cell["difference"]):
            return NOTHING
        verdict = cell["reproduced"]
        mark = "" if pd.isna(verdict) else " ✓" if verdict else " ✗"
        return f"{cell['difference']:+.{METRICS[cell['metric']].decimals}f}{mark}"

    lines = grid(comparison, list(ACTIVATIONS), lambda data: data_label(data, table), text)
    return markdown_table(["", "", *ACTIVATIONS.values()], lines)


def _ranks_line(ranks: pd.Series, metric: str) -> list[str]:
    bold = ranks == ranks.min()
    texts = [f"**{r:.2f}**" if b else f"{r:.2f}" for r, b in zip(ranks, bold, strict=True)]
    return ["Avg. rank", METRICS[metric].label, *texts]


# ---- counts ------------------------------------------------------------------------------------


def counts_table(comparison: pd.DataFrame, table: Table) -> str:
    """Cells reproduced of those compared, data sets x metrics. One protocol.

    Runs that differ much are soon within two standard deviations of anything, so the last line
    has the size of the differences.
    """
    counts = count_reproduced(comparison)
    if counts.empty:
        return "No cell can be compared."
    metrics = list(dict.fromkeys(counts["metric"]))

    def line(label: str, rows: pd.DataFrame) -> list[str]:
        return [label, *(_of(rows[rows["metric"] == metric]) for metric in metrics), _of(rows)]

    lines = [line(data_label(d, table), r) for d, r in counts.groupby("data", sort=False)]
    lines.append(line("**all**", counts))
    sizes = comparison["difference"].abs().groupby(comparison["metric"]).median()
    texts = [number(sizes[metric], metric) for metric in metrics]
    lines.append(["median size of the difference", *texts, ""])
    return markdown_table(["", *(METRICS[metric].label for metric in metrics), "all"], lines)


def _of(counts: pd.DataFrame) -> str:
    if counts.empty:
        return NOTHING
    return f"{counts['reproduced'].sum()} of {counts['compared'].sum()}"


def correlations_table(comparison: pd.DataFrame, table: Table) -> str:
    """How alike the two orders of the activations are, a row a data set and metric."""
    rows = rank_correlations(comparison)
    if rows.empty:
        return "No row has three activations to order."
    lines = [
        [
            data_label(row.data, table),
            METRICS[row.metric].label,
            row.n,
            *(NOTHING if math.isnan(x) else f"{x:+.2f}" for x in (row.kendall, row.spearman)),
        ]
        for row in rows.itertuples()
    ]
    return markdown_table(["", "", "activations", "Kendall's τ", "Spearman's ρ"], lines)


def scaling_table(
    comparison: pd.DataFrame, restated: pd.DataFrame, rows: pd.DataFrame, table: Table
) -> str:
    """Cells reproduced as scored, and with the target scaled over all rows instead."""
    ratios = (rows["target_std_train"] / rows["target_std_all"]).groupby(rows["data"])
    texts = {
        data: " to ".join(dict.fromkeys(f"{x:.3f}" for x in (of.min(), of.max())))
        for data, of in ratios
    }
    keys = ["protocol", "data", "metric"]
    counts = count_reproduced(comparison).merge(
        count_reproduced(restated), on=keys, suffixes=("", "_restated")
    )
    lines = [
        [
            data_label(row.data, table),
            METRICS[row.metric].label,
            texts[row.data],
            f"{row.reproduced} of {row.compared}",
            f"{row.reproduced_restated} of {row.compared_restated}",
        ]
        for row in counts.itertuples()
    ]
    head = ["", "", "sd of training rows / of all", "reproduced as scored", "scaled by all rows"]
    return markdown_table(head, lines)


def duplicates_table(cells: pd.DataFrame, grouped: str, ungrouped: str, table: Table) -> str:
    """What equal rows on both sides of the split are worth; "" where one protocol is not there."""
    wide = cells.pivot(index=["data", "metric", "activation"], columns="protocol", values="mean")
    if grouped not in wide or ungrouped not in wide:
        return ""
    lines = []
    both = wide[[grouped, ungrouped]].dropna()
    for (data, metric), row in both.groupby(["data", "metric"], sort=False):
        inside, across = row.mean()
        difference = f"{across - inside:+.{METRICS[metric].decimals}f}"
        shown = (len(row), number(inside, metric), number(across, metric), difference)
        lines.append([data_label(data, table), METRICS[metric].label, *shown])
    head = ["", "", "activations", "equal rows on one side", "on either side", "difference"]
    return (
        f"The {grouped} protocol keeps rows with equal features on one side, the {ungrouped} one "
        f"does not. Means over the activations:\n\n{markdown_table(head, lines)}"
    )


def verdicts_table(findings: Sequence[WithinData], activations: Sequence[str]) -> str:
    """Count where each activation is best, as good as the best, and significantly different."""
    tables = [finding.comparison for finding in findings if finding.comparison is not None]
    lines = []
    for name in activations:
        places = [table[table["activation"] == name] for table in tables]
        here = [(place.index[0], place.iloc[0]) for place in places if len(place)]
        best = sum(position == 0 for position, _ in here)
        apart = sum(bool(line["distinguishable"]) for _, line in here)
        lines.append([name, best, len(here) - best - apart, apart])
    head = ["activation", "best mean", "not significantly different from the best", "different"]
    return markdown_table(head, lines)


def ranks_table(cells: pd.DataFrame, metric: str, activations: Sequence[str]) -> str:
    """Mean rank, mean score and wins over data sets, the best first. One protocol's cells."""
    scores, left_out = scores_by_data(cells, metric, activations)
    if scores.empty:
        return f"No data set has all of {', '.join(activations)}."
    part = cells[(cells["metric"] == metric) & cells["data"].isin(scores.index)]
    failed = part.groupby("activation")["failed"].sum()
    medians = part.groupby("activation")["mean"].median()
    won = wins(scores, METRICS[metric].greater_is_better)
    ranks = rank_activations(scores, metric).sort_values(kind="stable")
    lines = [
        [name, f"{rank:.2f}", number(medians[name], metric), won[name], failed[name]]
        for name, rank in ranks.items()
    ]
    head = ["activation", "mean rank", f"median {METRICS[metric].label}", "best on", "failed runs"]
    lacking = f"; {len(left_out)} that lack an activation are left out" if left_out else ""
    return f"Over {len(scores)} data sets{lacking}:\n\n{markdown_table(head, lines)}"


def wins(scores: pd.DataFrame, greater_is_better: bool) -> pd.Series:
    """Count the data sets where an activation has the best mean; a tie counts for each."""
    best = scores.max(axis=1) if greater_is_better else scores.min(axis=1)
    return scores.eq(best, axis=0).sum()


# ---- what a page rests on ----------------------------------------------------------------------


def paper_notes(expected: pd.DataFrame, table: Table) -> str:
    """List what was noted of the paper's cells, but for those lost."""
    is_lost = expected["note"].str.startswith(LOST)
    lines = []
    for row in expected[(expected["note"] != "") & ~is_lost].itertuples():
        place = "average rank" if row.data == AVERAGE_RANK else data_label(row.data, table)
        name = ACTIVATIONS[row.activation]
        lines.append(f"- {place}, {METRICS[row.metric].label}, {name}: {row.note}.")
    if is_lost.any():
        cells = int((expected["data"] != AVERAGE_RANK).sum())
        lines.append(f"- {is_lost.sum()} of {cells} cells (—) are lost in the text that we have.")
    return "\n".join(lines)


def design_text(rows: pd.DataFrame) -> str:
    """Say how many splits and seeds there are, and what the ± is. One protocol's rows."""
    splits, seeds = rows["split"].nunique(), rows["seed"].nunique()
    spread = (
        f"over the {seeds} seeds"
        if splits == 1
        else f"over the {splits} splits, the seeds of a split averaged first"
    )
    return (
        f"{splits} split{'s' * (splits > 1)} x {seeds} seed{'s' * (seeds > 1)}; "
        f"mean ± standard deviation {spread} (ddof 1)."
    )


def unfinished_text(cells: pd.DataFrame, table: Table | None) -> str:
    """Name the cells with fewer runs than others; "" where all have the same."""
    most = cells["runs"].max()
    few = cells[cells["runs"] < most].drop_duplicates(["data", "task", "activation"])
    names = [
        f"{data_label(row.data, table)} {row.activation} {row.runs}" for row in few.itertuples()
    ]
    return f"Fewer runs than {most}: {_shortened(names, 20)}." if names else ""


def failures_table(rows: pd.DataFrame) -> str:
    """Count the fits that failed, by data set and activation, with one message of each."""
    failed = rows[rows["error"] != ""]
    if failed.empty:
        return f"None of the {len(rows)} fits failed."
    keys = ["protocol", "data", "task", "activation"]
    of_n = rows.groupby(keys)["error"].size()
    lines = [
        [*key, f"{len(fits)} of {of_n[key]}", fits["error"].iloc[0].replace("|", "\\|")]
        for key, fits in failed.groupby(keys, sort=False)
    ]
    table = markdown_table([*keys, "failed", "first message"], lines)
    return f"{len(failed)} of the {len(rows)} fits failed:\n\n{table}"


def provenance(rows: pd.DataFrame) -> str:
    """Settings and versions that the networks were trained with: the values in the rows."""
    lines = []
    for column in (
        *("epochs", "hidden", "batch_size", "learning_rate_init", "dropout", "normalization"),
        *("proxy_norm", "device", "precision", "combutab", "torch", "numpy", "sklearn", "pandas"),
        *("python", "cpu"),
    ):
        values = rows[column].dropna().unique() if column in rows else []
        if len(values):
            lines.append(f"- {column}: {_shortened([str(v) for v in values], 6, '; ')}")
    hours = rows["seconds"].sum() / 3600
    return "\n".join([*lines, f"- networks: {len(rows)}, {hours:.2f} hours of training"])


def _shortened(names: Sequence[str], most: int, separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
