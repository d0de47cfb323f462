"""Markdown of the CombU paper's studies: tables in the paper's layout, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from benchmarks.common.page import markdown_table
from benchmarks.papers.combu.expected import ACTIVATIONS, AVERAGE_RANK, LOST, METRICS, Table
from benchmarks.papers.combu.report_numbers import order_activations

NOTHING = "—"
CellText = Callable[[pd.Series], str]


def number(value: float, metric: str) -> str:
    """Show a score as the paper does, with two digits at least where it is smaller than that."""
    if not math.isfinite(value):
        return NOTHING
    decimals = METRICS[metric].decimals
    if value:
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def activation_label(name: str) -> str:
    return ACTIVATIONS.get(name, name)


def data_label(name: str, table: Table) -> str:
    short = table.data.get(name, name)
    return short if short.lower() == name.lower() else f"{short} ({name})"


# ---- tables of one protocol's cells ------------------------------------------------------------


def grid(
    cells: pd.DataFrame, names: Sequence[str], label: Callable[[str], str], text: CellText
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
    good = cells["mean"] * [1 if METRICS[m].greater_is_better else -1 for m in cells["metric"]]
    best = good.groupby([cells["data"], cells["metric"]]).transform("max")
    return cells.assign(best=good == best)


def cell_text(cell: pd.Series) -> str:
    """Mean ± standard deviation, bold where best; or how many runs failed."""
    if cell.get("failed"):
        return f"failed {cell['failed']} of {cell['runs']}"
    text = number(cell["mean"], cell["metric"])
    if text != NOTHING and math.isfinite(cell["sd"]):
        text += f" ± {cell['sd']:.{len(text.partition('.')[2])}f}"
    return f"**{text}**" if cell["best"] else text


def cells_table(cells: pd.DataFrame, table: Table, ranks: Mapping[str, pd.Series]) -> str:
    """Data set x metric in rows, activations in columns; below, average ranks by metric."""
    names = order_activations(cells["activation"])
    lines = grid(mark_best(cells), names, lambda data: data_label(data, table), cell_text)
    for metric, of_names in ranks.items():
        texts = [f"**{r:.2f}**" if r == of_names.min() else f"{r:.2f}" for r in of_names[names]]
        lines.append(["Avg. rank", METRICS[metric].label, *texts])
    return markdown_table(["", "", *map(activation_label, names)], lines)


def counts_table(comparison: pd.DataFrame, table: Table) -> str:
    """Cells reproduced of those compared, data sets x metrics.

    Runs that differ much are soon within two standard deviations of anything, so the last line
    has the size of the differences.
    """
    known = comparison[comparison["reproduced"].notna()]
    if known.empty:
        return "No cell can be compared."
    metrics = list(dict.fromkeys(known["metric"]))

    def line(label: str, rows: pd.DataFrame) -> list[str]:
        parts = [rows.loc[rows["metric"] == metric, "reproduced"] for metric in metrics]
        parts.append(rows["reproduced"])
        return [label, *(f"{p.sum()} of {len(p)}" if len(p) else NOTHING for p in parts)]

    lines = [line(data_label(d, table), part) for d, part in known.groupby("data", sort=False)]
    sizes = comparison["difference"].abs().groupby(comparison["metric"]).median()
    texts = [number(sizes[metric], metric) for metric in metrics]
    lines += [line("**all**", known), ["median size of the difference", *texts, ""]]
    return markdown_table(["", *(METRICS[metric].label for metric in metrics), "all"], lines)


def correlations_table(comparison: pd.DataFrame, table: Table) -> str:
    """How alike our order of the activations is to the paper's, a row a data set and metric.

    Over the activations that both have; a row with fewer than 3 of them is left out.
    """
    lines = []
    both = comparison.dropna(subset=["mean", "paper_mean"])
    for (data, metric), row in both.groupby(["data", "metric"], sort=False):
        if len(row) >= 3:
            pair = row[["mean", "paper_mean"]]
            found = [pair.corr(method).iat[0, 1] for method in ("kendall", "spearman")]
            texts = [NOTHING if math.isnan(x) else f"{x:+.2f}" for x in found]
            lines.append([data_label(data, table), METRICS[metric].label, len(row), *texts])
    if not lines:
        return "No row has three activations to order."
    return markdown_table(["", "", "activations", "Kendall's τ", "Spearman's ρ"], lines)


# ---- other tables ------------------------------------------------------------------------------


def duplicates_table(cells: pd.DataFrame, table: Table) -> str:
    """Compare means over the activations, with equal rows on one side of the split and on both."""
    cell = ["data", "metric", "activation"]
    both = cells.pivot(index=cell, columns="protocol", values="mean")[["sound", "sound-ungrouped"]]
    means = both.dropna().groupby(level=cell[:2], sort=False).mean()
    means["difference"] = means["sound-ungrouped"] - means["sound"]
    lines = [
        [data_label(data, table), METRICS[metric].label, *(number(x, metric) for x in row)]
        for (data, metric), *row in means.itertuples()
    ]
    return markdown_table(["", "", *means.columns], lines)


def verdicts_table(comparisons: Iterable[pd.DataFrame]) -> str:
    """Count where each activation is best, as good as the best, and significantly different."""
    found = pd.concat(comparisons)  # the best of each stands at 0
    verdicts = ["best mean", "not significantly different from the best", "different"]
    different = found["distinguishable"].map({False: verdicts[1], True: verdicts[2]})
    counts = pd.crosstab(found["activation"], different.where(found.index > 0, verdicts[0]))
    names = order_activations(found["activation"])
    counts = counts.reindex(index=names, columns=verdicts, fill_value=0)
    return markdown_table(["activation", *verdicts], counts.reset_index().to_numpy())


# ---- what a page rests on ----------------------------------------------------------------------


def paper_notes(expected: pd.DataFrame) -> str:
    """List what was noted of the paper's cells, but for those lost."""
    is_lost = expected["note"].str.startswith(LOST)
    noted = expected[(expected["note"] != "") & ~is_lost].itertuples()
    lines = [f"- {row.data} {row.metric} {row.activation}: {row.note}." for row in noted]
    cells = (expected["data"] != AVERAGE_RANK).sum()
    lines.append(f"- {is_lost.sum()} of {cells} cells (—) are lost in the text that we have.")
    return "\n".join(lines)


def design_text(cells: pd.DataFrame) -> str:
    """Say how often networks were trained, and what the ± is."""
    splits, runs = cells["splits"].max(), cells["runs"].max()
    over = "splits, the seeds of a split averaged first" if splits > 1 else "seeds"
    seeds = f"Splits: {splits}, seeds of each: {runs // splits}"
    return f"{seeds}; mean ± standard deviation over the {over} (ddof 1)."


def failures_table(rows: pd.DataFrame) -> str:
    """Count the fits that failed, by data set and activation, with one message of each."""
    failed = rows[rows["error"] != ""]
    if failed.empty:
        return f"None of the {len(rows)} fits failed."
    keys = ["protocol", "data", "task", "activation"]
    of_n = rows.groupby(keys).size()
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
        values = [str(v) for v in rows[column].dropna().unique()] if column in rows else []
        if values:
            more = f"; and {len(values) - 6} more" if len(values) > 6 else ""
            lines.append(f"- {column}: {'; '.join(values[:6])}{more}")
    hours = rows["seconds"].sum() / 3600
    return "\n".join([*lines, f"- networks: {len(rows)}, {hours:.2f} hours of training"])
