"""Accuracy over the batch size, a panel a network, data set and regularisation, a line a norm."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.proxynorm.training_numbers import cells
from benchmarks.papers.proxynorm.training_runs import NETS

# Okabe and Ito's colours, one a norm; PN is the filled marker on a solid line
STYLES = {
    "BN": ("#000000", "o"),
    "LN": ("#D55E00", "s"),
    "GN": ("#0072B2", "^"),
    "GN+WS": ("#009E73", "D"),
}
REGULARISATION_LABELS = {"plain": "no extra regularisation", "extra": "extra regularisation"}


def plot(rows: pd.DataFrame, metric: str, ylabel: str) -> Figure:
    """Draw means over seeds with their standard deviations; batch sizes are set side by side."""
    rows = rows.sort_values("net", key=lambda nets: nets.map(list(NETS).index), kind="stable")
    table = cells(rows.assign(data=rows["net"] + ", " + rows["data"]), metric)
    names = ("regularisation", "data", "norm")
    kinds, data, norms = (list(dict.fromkeys(table[name])) for name in names)
    sizes = sorted(set(table["batch_size"]))
    figure = Figure(figsize=(1.2 + 3.9 * len(data), 1.3 + 3.2 * len(kinds)), layout="constrained")
    panels = figure.subplots(len(kinds), len(data), squeeze=False, sharey="col")
    for (i, j), axes in np.ndenumerate(panels):
        own = table[(table["regularisation"] == kinds[i]) & (table["data"] == data[j])]
        for place, norm in enumerate(norms):
            line = own[own["norm"] == norm].set_index("batch_size").reindex(sizes)
            if line["mean"].notna().any():
                _line(axes, norm, line, 0.6 * ((place + 0.5) / len(norms) - 0.5))
        means = table.loc[table["data"] == data[j], "mean"]
        if means.min() < 0.9 < means.median():  # most near the top, a few far below
            _widen_the_top(axes)
        axes.set_xticks(range(len(sizes)), [f"{size:g}" for size in sizes])
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        title = f"{data[j]}\n{REGULARISATION_LABELS[kinds[i]]}"
        axes.set_title(title, loc="left", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("batch size")
    for axes in panels[:, 0]:
        axes.set_ylabel(ylabel)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(8, len(norms)), frameon=False
    )
    return figure


def _line(axes: Axes, norm: str, line: pd.DataFrame, shift: float) -> None:
    spread = line["std"].fillna(0.0)
    color, marker = STYLES[norm.removesuffix("+PN")]
    proxy = norm.endswith("+PN")
    axes.errorbar(
        np.arange(len(line)) + shift,
        100 * line["mean"],
        yerr=100 * np.stack([spread, np.minimum(spread, 1 - line["mean"])]),
        color=color,
        marker=marker,
        markerfacecolor=color if proxy else "white",
        linestyle="-" if proxy else (0, (3, 2)),
        linewidth=1.3,
        markersize=5,
        elinewidth=0.8,
        label=norm,
    )


def _widen_the_top(axes: Axes) -> None:
    """Scale accuracies by the logarithm of what is missing to 101 %."""
    scale = (lambda y: -np.log(np.maximum(101 - y, 0.1)), lambda y: 101 - np.exp(-y))
    axes.set_yscale("function", functions=scale)
    ticks = [40, 60, 70, 80, 90, 95, 97, 98, 99, 100]
    axes.set_yticks(ticks, [f"{tick}" for tick in ticks])
    axes.set_ylim(bottom=max(35.0, axes.get_ylim()[0]), top=100.5)
