"""Figures of proxynorm_random_nets: Theorem 1's bound and linearity, after the paper's Figure 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.proxynorm.random_nets_model import RHO
from benchmarks.papers.proxynorm.random_nets_numbers import excess

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 0.9 + 3.7 * len(nets)), layout="constrained")
    grid = figure.subplots(len(nets), 2, squeeze=False)
    for (kind, rows), (left, right) in zip(nets.items(), grid, strict=True):
        width = rows["width"].iloc[0]
        _bound(left, rows)
        left.set_title(f"{kind}, width {width}: P - P1 with LN", loc="left", fontsize=10)
        _nonlinearity(right, rows)
        right.set_title(
            f"{kind}, width {width}: P(z - z~) / P(z), 0 is channel-wise linear",
            loc="left",
            fontsize=10,
        )
        for axes in (left, right):
            axes.set_yscale("log")
            axes.grid(color="0.92", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(0, rows["depth"].max() * 1.01)
            axes.set_xlabel("depth l")
    return figure


def _bound(axes: Axes, rows: pd.DataFrame) -> None:
    own = excess(rows)
    color = STYLES["LN"][0]
    for number, (_, draw) in enumerate(own.groupby("draw")):
        axes.plot(
            draw["depth"],
            draw["varying"],
            color=color,
            linewidth=0.7,
            alpha=0.5,
            label="a draw" if number == 0 else None,
        )
    mean = own.groupby("depth")["varying"].mean()
    axes.plot(mean.index, mean, color=color, linewidth=2.2, label="mean of the draws")
    depth = np.arange(1, own["depth"].max() + 1)
    axes.plot(depth, RHO ** (depth - 1.0), color="black", linestyle="--", label="bound rho^(l-1)")
    axes.legend(frameon=False, fontsize=9)


def _nonlinearity(axes: Axes, rows: pd.DataFrame) -> None:
    for place, (norm, (color, dashes, marker)) in enumerate(STYLES.items()):
        own = rows[(rows["norm"] == norm) & rows["nonlinearity"].notna()]
        if own.empty:
            continue
        found = own.groupby("depth")["nonlinearity"].agg(["mean", "std"]).fillna(0.0)
        axes.plot(
            found.index,
            found["mean"].clip(_FLOOR),
            color=color,
            linestyle=dashes,
            marker=marker,
            markersize=5,
            markevery=(place, len(STYLES)),  # so that none hides another
            linewidth=1.5,
            label=norm,
        )
        low, high = found["mean"] - found["std"], found["mean"] + found["std"]
        axes.fill_between(
            found.index, low.clip(_FLOOR), high.clip(_FLOOR), color=color, alpha=0.15, linewidth=0
        )
    axes.legend(frameon=False, fontsize=9, ncols=2)
