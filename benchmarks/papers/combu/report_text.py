"""Markdown of a study's report: the tables in the paper's layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from benchmarks.papers.combu.expected import ACTIVATIONS, AVERAGE_RANK, LOST, METRICS, Table
from benchmarks.papers.combu.report_numbers import (
    count_reproduced,
    rank_activations,
    rank_correlations,
    scores_by_data,
)

NOTHING = "—"


def markdown_table(head: Sequence[str], body: Iterable[Sequence[object]], left: int = 1) -> str:
    """Write a table; the first ``left`` columns are aligned left, the others right."""
    lines = [list(head), *([str(cell) for cell in row] for row in body)]
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in (lines[0], rule, *lines[1:])
    )


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


def our_table(cells: pd.DataFrame, activations: Sequence[str], table: Table | None) -> str:
    """Data set x metric in rows, activations in columns, with average ranks below.

    ``cells`` are those of one protocol.
    """
    shown = cells[cells["activation"].isin(activations)]
    body = []
    for (data, metric), row in shown.groupby(["data", "metric"], sort=False):
        row = row.set_index("activation")
        best = row["mean"].max() if METRICS[metric].greater_is_better else row["mean"].min()
        texts = []
        for name in activations:
            if name not in row.index:
                texts.append("")
                continue
            cell = row.loc[name]
            text = mean_and_sd(cell["mean"], cell["sd"], metric)
            if cell["failed"]:
                text = f"failed {cell['failed']} of {cell['runs']}"
            texts.append(f"**{text}**" if cell["mean"] == best else text)
        body.append([data_label(data, table), METRICS[metric].label, *texts])
    left_out = []
    for metric in shown["metric"].unique():
        scores, incomplete = scores_by_data(shown, metric, activations)
        left_out += incomplete
        if len(scores) and len(activations) > 1:
            ranks = rank_activations(scores, metric)
            body.append(["Avg. rank", METRICS[metric].label, *_bold_least(ranks)])
    head = ["", "", *map(activation_label, activations)]
    text = markdown_table(head, body, left=2)
    if left_out:
        names = ", ".join(data_label(name, table) for name in dict.fromkeys(left_out))
        text += f"\n\nNot in the average ranks, for want of some activations: {names}."
    return text


def paper_table(expected: pd.DataFrame, table: Table) -> str:
    """Lay out the paper's table alike; cells that the text lost are "—"."""
    body = []
    for (data, metric), row in expected.groupby(["data", "metric"], sort=False):
        row = row.set_index("activation").loc[list(ACTIVATIONS)]
        if data == AVERAGE_RANK:
            body.append(["Avg. rank", METRICS[metric].label, *_bold_least(row["mean"])])
            continue
        best = row["mean"].max() if METRICS[metric].greater_is_better else row["mean"].min()
        texts = (
            (mean_and_sd(mean, sd, metric), mean == best)
            for mean, sd in zip(row["mean"], row["sd"], strict=True)
        )
        body.append(
            [
                data_label(data, table),
                METRICS[metric].label,
                *(f"**{text}**" if is_best else text for text, is_best in texts),
            ]
        )
    return markdown_table(["", "", *ACTIVATIONS.values()], body, left=2)


def comparison_table(comparison: pd.DataFrame, table: Table) -> str:
    """Ours less the paper's in each cell; ✓ where reproduced, ✗ where not. One protocol."""
    body = []
    for (data, metric), row in comparison.groupby(["data", "metric"], sort=False):
        row = row.set_index("activation")
        texts = []
        for name in ACTIVATIONS:
            if name not in row.index or pd.isna(row.loc[name, "difference"]):
                texts.append(NOTHING)
                continue
            difference, verdict = row.loc[name, "difference"], row.loc[name, "reproduced"]
            mark = "" if pd.isna(verdict) else " ✓" if verdict else " ✗"
            texts.append(f"{difference:+.{METRICS[metric].decimals}f}{mark}")
        body.append([data_label(data, table), METRICS[metric].label, *texts])
    return markdown_table(["", "", *ACTIVATIONS.values()], body, left=2)


def counts_table(comparison: pd.DataFrame, table: Table) -> str:
    """Cells reproduced of those compared, data sets x metrics. One protocol.

    Runs that differ much are soon within two standard deviations of anything, so the last line
    has the size of the differences.
    """
    counts = count_reproduced(comparison)
    if counts.empty:
        return "No cell can be compared."
    metrics = list(dict.fromkeys(counts["metric"]))
    body = []
    for data in [*dict.fromkeys(counts["data"]), None]:
        rows = counts if data is None else counts[counts["data"] == data]
        label = "**all**" if data is None else data_label(data, table)
        texts = [_of(rows[rows["metric"] == metric]) for metric in metrics]
        body.append([label, *texts, _of(rows)])
    sizes = comparison["difference"].abs().groupby(comparison["metric"]).median()
    texts = [number(sizes[metric], metric) for metric in metrics]
    body.append(["median size of the difference", *texts, ""])
    return markdown_table(["", *(METRICS[metric].label for metric in metrics), "all"], body)


def correlations_table(comparison: pd.DataFrame, table: Table) -> str:
    """How alike the two orders of the activations are, a row a data set and metric."""
    rows = rank_correlations(comparison)
    if rows.empty:
        return "No row has three activations to order."
    body = [
        [
            data_label(row.data, table),
            METRICS[row.metric].label,
            row.n,
            *(NOTHING if math.isnan(x) else f"{x:+.2f}" for x in (row.kendall, row.spearman)),
        ]
        for row in rows.itertuples()
    ]
    return markdown_table(["", "", "activations", "Kendall's τ", "Spearman's ρ"], body, left=2)


def paper_notes(expected: pd.DataFrame, table: Table) -> str:
    """List what was noted of the paper's cells, but for those lost."""
    noted = expected[(expected["note"] != "") & ~expected["note"].str.startswith(LOST)]
    lines = []
    for row in noted.itertuples():
        place = "average rank" if row.data == AVERAGE_RANK else data_label(row.data, table)
        name = ACTIVATIONS[row.activation]
        lines.append(f"- {place}, {METRICS[row.metric].label}, {name}: {row.note}.")
    lost = expected["note"].str.startswith(LOST).sum()
    if lost:
        cells = int((expected["data"] != AVERAGE_RANK).sum())
        lines.append(f"- {lost} of {cells} cells (—) are lost in the text that we have.")
    return "\n".join(lines)


def scaling_table(
    comparison: pd.DataFrame, restated: pd.DataFrame, rows: pd.DataFrame, table: Table
) -> str:
    """Cells reproduced as scored, and with the target scaled over all rows instead."""
    ratios = (rows["target_std_train"] / rows["target_std_all"]).groupby(rows["data"])
    low, high = ratios.min(), ratios.max()
    counts = count_reproduced(comparison).merge(
        count_reproduced(restated), on=["protocol", "data", "metric"], suffixes=("", "_restated")
    )
    body = []
    for row in counts.itertuples():
        ratio = f"{low[row.data]:.3f}"
        if f"{high[row.data]:.3f}" != ratio:
            ratio += f" to {high[row.data]:.3f}"
        body.append(
            [
                data_label(row.data, table),
                METRICS[row.metric].label,
                ratio,
                f"{row.reproduced} of {row.compared}",
                f"{row.reproduced_restated} of {row.compared_restated}",
            ]
        )
    head = ["", "", "sd of training rows / of all", "reproduced as scored", "scaled by all rows"]
    return markdown_table(head, body, left=2)


def design_words(cells: pd.DataFrame, rows: pd.DataFrame, protocol: str) -> str:
    """Say how many splits and seeds there are, and what the ± is. One protocol's cells."""
    fits = rows[rows["protocol"] == protocol]
    splits, seeds = fits["split"].nunique(), fits["seed"].nunique()
    spread = (
        f"over the {seeds} seeds"
        if splits == 1
        else f"over the {splits} splits, the seeds of a split averaged first"
    )
    return (
        f"{splits} split{'s' * (splits > 1)} x {seeds} seed{'s' * (seeds > 1)}; "
        f"mean ± standard deviation {spread} (ddof 1)."
    )


def unfinished_words(cells: pd.DataFrame, table: Table | None) -> str:
    """Name the cells with fewer runs than others; "" where all have the same."""
    most = cells["runs"].max()
    few = cells[cells["runs"] < most].drop_duplicates(["data", "task", "activation"])
    if few.empty:
        return ""
    names = [
        f"{data_label(row.data, table)} {row.activation} {row.runs}" for row in few.itertuples()
    ]
    return f"Fewer runs than {most}: {_shortened(names, 20)}."


def failures_table(rows: pd.DataFrame) -> str:
    """Count the fits that failed, by data set and activation, with one message of each."""
    failed = rows[rows["error"] != ""]
    if failed.empty:
        return f"None of the {len(rows)} fits failed."
    keys = ["protocol", "data", "task", "activation"]
    of_n = rows.groupby(keys)["error"].size()
    body = [
        [*key, f"{len(fits)} of {of_n[key]}", fits["error"].iloc[0]]
        for key, fits in failed.groupby(keys, sort=False)
    ]
    head = ["protocol", "data", "task", "activation", "failed", "first message"]
    return f"{len(failed)} of the {len(rows)} fits failed:\n\n{markdown_table(head, body, left=6)}"


def provenance(rows: pd.DataFrame, command: str | None) -> str:
    """What ran, with which settings and versions: the values in the rows."""
    lines = [f"- command: `{command}`"] if command else []
    for column in (
        *("epochs", "hidden", "batch_size", "learning_rate_init", "dropout", "normalization"),
        *("proxy_norm", "device", "precision", "combutab", "torch", "numpy", "sklearn", "pandas"),
        *("python", "cpu"),
    ):
        if column in rows and rows[column].notna().any():
            values = [str(value) for value in rows[column].dropna().unique()]
            lines.append(f"- {column}: {_shortened(values, 6, '; ')}")
    if "seconds" in rows:
        lines.append(
            f"- networks: {len(rows)}, {rows['seconds'].sum() / 3600:.2f} hours of training"
        )
    return "\n".join(lines)


def duplicates_table(cells: pd.DataFrame, grouped: str, ungrouped: str, table: Table) -> str:
    """What equal rows on both sides of the split are worth; "" where one protocol is not there."""
    wide = cells.pivot(index=["data", "metric", "activation"], columns="protocol", values="mean")
    if grouped not in wide or ungrouped not in wide:
        return ""
    both = wide[[grouped, ungrouped]].dropna()
    body = []
    for (data, metric), row in both.groupby(["data", "metric"], sort=False):
        inside, across = row[grouped].mean(), row[ungrouped].mean()
        texts = (number(inside, metric), number(across, metric))
        difference = f"{across - inside:+.{METRICS[metric].decimals}f}"
        body.append([data_label(data, table), METRICS[metric].label, len(row), *texts, difference])
    head = ["", "", "activations", "equal rows on one side", "on either side", "difference"]
    return (
        "### Equal rows on both sides of the split\n\n"
        f"The {grouped} protocol keeps rows with equal features on one side, the {ungrouped} one "
        f"does not. Means over the activations:\n\n{markdown_table(head, body, left=2)}"
    )


def short_form(cells: pd.DataFrame, table: Table | None) -> str:
    """The means alone, for a terminal."""
    parts = []
    for protocol, part in cells.groupby("protocol", sort=False):
        activations = list(dict.fromkeys(part["activation"]))
        if table is None:
            body = pd.DataFrame(
                {
                    METRICS[metric].label: rank_activations(scores, metric)
                    for metric in dict.fromkeys(part["metric"])
                    if len(scores := scores_by_data(part, metric, activations)[0])
                }
            )
            title = "mean ranks"
        else:
            shown = [
                "failed" if cell.failed else number(cell.mean, cell.metric)
                for cell in part.itertuples()
            ]
            part = part.assign(
                data=[data_label(name, table) for name in part["data"]],
                metric=[METRICS[name].label for name in part["metric"]],
                shown=shown,
            )
            body = part.pivot(index=["data", "metric"], columns="activation", values="shown")
            body = body.reindex(part[["data", "metric"]].drop_duplicates().apply(tuple, axis=1))
            body = body[activations].rename_axis(index=["", ""], columns=None).fillna("")
            title = "means"
        parts.append(f"{protocol} protocol, {title}:\n{body.round(2).to_string()}")
    return "\n\n".join(parts)


def _shortened(names: Sequence[str], most: int, separator: str = ", ") -> str:
    more = f"{separator}and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def _of(counts: pd.DataFrame) -> str:
    if counts.empty:
        return NOTHING
    return f"{counts['reproduced'].sum()} of {counts['compared'].sum()}"


def _bold_least(ranks: pd.Series) -> list[str]:
    least = ranks.min()
    return [f"**{rank:.2f}**" if rank == least else f"{rank:.2f}" for rank in ranks]
