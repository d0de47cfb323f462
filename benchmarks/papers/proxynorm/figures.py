"""Figures of both studies: Theorem 1 and linearity (the paper's Figure 5); accuracies."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.proxynorm.random_nets.model import RHO
from benchmarks.papers.proxynorm.random_nets.numbers import excess
from benchmarks.papers.proxynorm.training.numbers import cells
from benchmarks.papers.proxynorm.training.runs import NETS

# Okabe and Ito's colours; dashes and markers differ as well
STYLES = {
    "BN": ("#000000", "-", "o"),
    "IN": ("#56B4E9", (0, (5, 1, 1, 1)), "s"),
    "LN": ("#D55E00", "-", "D"),
    "GN": ("#E69F00", "--", "^"),
    "LN+PN": ("#0072B2", "-.", "v"),
    "GN+PN": ("#009E73", (0, (3, 1)), "P"),
    "LN+WS": ("#CC79A7", (0, (1, 1)), "X"),
}
# one colour a norm; PN is the filled marker on a solid line
TRAINING_STYLES = {
    "BN": ("#000000", "o"),
    "LN": ("#D55E00", "s"),
    "GN": ("#0072B2", "^"),
    "GN+WS": ("#009E73", "D"),
}
REGULARISATION_LABELS = {"plain": "no extra regularisation", "extra": "extra regularisation"}
_FLOOR = 1e-5  # of the nonlinearity that is drawn: it can be 0


def plot_theorem1(nets: dict[str, pd.DataFrame]) -> Figure:
    """Draw, a row for each kind of net, P - P1 with LN under its bound, and the nonlinearity.

    Thin lines are draws, thick ones and markers their means; bands are a standard deviation.
    """
    figure = Figure(figsize=(11.0, 0.9 + 3.7 * len(nets)), layout="constrained")
    grid = figure.subplots(len(nets), 2, squeeze=False)
    titles = ("P - P1 with LN", "P(z - z~) / P(z), 0 is channel-wise linear")
    for (kind, rows), row in zip(nets.items(), grid, strict=True):
        _bound(row[0], rows)
        _nonlinearity(row[1], rows)
        for axes, title in zip(row, titles, strict=True):
            text = f"{kind}, width {rows['width'].iloc[0]}: {title}"
            axes.set_title(text, loc="left", fontsize=10)
            axes.set(yscale="log", xlim=(0, rows["depth"].max() * 1.01), xlabel="depth l")
            axes.grid(color="0.92", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
    return figure


def _bound(axes: Axes, rows: pd.DataFrame) -> None:
    draws = excess(rows).pivot(index="depth", columns="draw", values="varying")
    color, depth = STYLES["LN"][0], np.arange(1, draws.index.max() + 1)
    lines = axes.plot(draws, color=color, linewidth=0.7, alpha=0.5)
    lines[0].set_label("a draw")
    axes.plot(draws.mean(axis=1), color=color, linewidth=2.2, label="mean of the draws")
    axes.plot(depth, RHO ** (depth - 1.0), color="black", linestyle="--", label="bound rho^(l-1)")
    axes.legend(frameon=False, fontsize=9)


def _nonlinearity(axes: Axes, rows: pd.DataFrame) -> None:
    own = rows[rows["nonlinearity"].notna()]
    for i, (norm, (color, dashes, marker)) in enumerate(STYLES.items()):
        found = own[own["norm"] == norm].groupby("depth")["nonlinearity"].agg(["mean", "std"])
        if found.empty:
            continue
        mean, spread = found["mean"], found["std"].fillna(0.0)
        axes.plot(
            mean.clip(_FLOOR),
            color=color,
            linestyle=dashes,
            marker=marker,
            markersize=5,
            markevery=(i, len(STYLES)),  # so that none hides another
            linewidth=1.5,
            label=norm,
        )
        low, high = (mean - spread).clip(_FLOOR), (mean + spread).clip(_FLOOR)
        axes.fill_between(mean.index, low, high, color=color, alpha=0.15, linewidth=0)
    axes.legend(frameon=False, fontsize=9, ncols=2)


def plot_training(rows: pd.DataFrame, metric: str, ylabel: str) -> Figure:
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
    color, marker = TRAINING_STYLES[norm.removesuffix("+PN")]
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
