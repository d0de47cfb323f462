"""Theorem 1's bound and how linear the layers become, after the paper's Figure 5."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.proxynorm.random_nets_model import RHO
from benchmarks.papers.proxynorm.random_nets_numbers import excess

# Okabe and Ito's colours; dashes and markers tell them apart as well
STYLES = {
    "BN": ("#000000", "-", "o"),
    "IN": ("#56B4E9", (0, (5, 1, 1, 1)), "s"),
    "LN": ("#D55E00", "-", "D"),
    "GN": ("#E69F00", "--", "^"),
    "LN+PN": ("#0072B2", "-.", "v"),
    "GN+PN": ("#009E73", (0, (3, 1)), "P"),
    "LN+WS": ("#CC79A7", (0, (1, 1)), "X"),
}
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
