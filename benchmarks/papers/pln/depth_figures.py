"""Figures of the study on depth: initial gradients, and what the networks reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.pln.depth_numbers import INIT_NAMES, gradient_table, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind; markers and dashes say it again
_LOOKS = (
    ("#000000", "o", "-"),
    ("#E69F00", "s", "--"),
    ("#56B4E9", "^", "-."),
    ("#D55E00", "D", "-"),
    ("#CC79A7", "P", "--"),
    ("#0072B2", "v", "-"),
    ("#009E73", "X", "-."),
    ("#8C6D1F", "<", "--"),
    ("#777777", ">", (0, (1, 1))),
    ("#332288", "*", (0, (3, 1))),
)
_FLOOR = 1e-20  # smaller gradients are not shown: they are as good as none


def plot_gradients(rows: pd.DataFrame, data: str) -> Figure:
    """Norm of the first layer's gradient against depth; a column a body, a row an initialisation.

    Lines are geometric means over seeds.
    """
    from matplotlib.figure import Figure

    own = rows[rows["data"] == data]
    bodies, inits = list(dict.fromkeys(own["body"])), list(dict.fromkeys(own["init"]))
    figure = Figure(figsize=(4.1 * len(bodies), 0.9 + 3.4 * len(inits)), layout="constrained")
    grid = figure.subplots(len(inits), len(bodies), sharex=True, sharey=True, squeeze=False)
    for i, init in enumerate(inits):
        for j, body in enumerate(bodies):
            part = own[(own["body"] == body) & (own["init"] == init)]
            table, axes = gradient_table(part, "first"), grid[i, j]
            for name, (color, marker, dashes) in zip(table.index, _LOOKS, strict=False):
                norms = table.loc[name].replace(0.0, np.nan)
                axes.plot(
                    table.columns,
                    norms,
                    color=color,
                    marker=marker,
                    linestyle=dashes,
                    markersize=5,
                    linewidth=2.4 if name == "pln-8" else 1.3,
                    zorder=4 if name == "pln-8" else 3,
                    label=label(name),
                )
            axes.set_yscale("log")
            axes.set_ylim(_FLOOR, 10.0 * own["first"].max())
            axes.set_title(f"{body}, {INIT_NAMES[init]} initialisation", fontsize=10, loc="left")
            axes.grid(color="0.9", linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xticks(table.columns)
    for axes in grid[-1]:
        axes.set_xlabel("layers")
    for axes in grid[:, 0]:
        axes.set_ylabel("gradient norm, first layer")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        f"Gradients at the start, {data}, without normalisation (below 1e-20: not shown)",
        fontsize=12,
    )
    return figure


def plot_scores(chosen: pd.DataFrame) -> Figure:
    """Mean test score of each activation and depth at its best rate; a row of panels a data set.

    ``chosen`` is `choose_rates`'. Crosses mark what did not train.
    """
    from matplotlib.figure import Figure

    data = list(dict.fromkeys(chosen["data"]))
    kinds = {name: _kinds(chosen[chosen["data"] == name]) for name in data}
    columns = max(map(len, kinds.values()))
    n_lines = chosen["activation"].nunique()
    height = 1.3 + 0.29 * n_lines
    figure = Figure(figsize=(1.4 + 2.25 * columns, 0.5 + height * len(data)), layout="constrained")
    grid = figure.subplots(len(data), columns, squeeze=False)
    for row, name in zip(grid, data, strict=True):
        for axes in row[len(kinds[name]) :]:
            axes.set_visible(False)
        for place, (axes, (body, init)) in enumerate(zip(row, kinds[name], strict=False)):
            own = chosen[
                (chosen["data"] == name) & (chosen["body"] == body) & (chosen["init"] == init)
            ]
            _heat(axes, own)
            axes.set_title(f"{body},\n{INIT_NAMES[init]} initialisation", fontsize=9)
            if place:
                axes.set_yticklabels([])
            axes.set_xlabel("layers")
        score = "R²" if "california" in name else "accuracy"
        row[0].set_ylabel(f"{name}: test {score}", fontsize=10)
    figure.suptitle("What networks without normalisation reach (×: did not train)", fontsize=12)
    return figure


def _kinds(chosen: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(chosen["body"], chosen["init"], strict=True)))


def _heat(axes: Axes, own: pd.DataFrame) -> None:
    names = list(dict.fromkeys(own["activation"]))
    scores = own.pivot(index="activation", columns="depth", values="test").loc[names]
    trains = own.pivot(index="activation", columns="depth", values="trains").loc[names]
    axes.imshow(scores, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    for i, name in enumerate(names):
        for j, depth in enumerate(scores.columns):
            value = scores.loc[name, depth]
            text = f"{value:.2f}" if trains.loc[name, depth] else f"{value:.2f} ×"
            axes.text(
                *(j, i, text),
                ha="center",
                va="center",
                fontsize=9,
                color="black" if value > 0.55 else "white",
            )
    axes.set_xticks(range(len(scores.columns)), scores.columns)
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.tick_params(length=0)
