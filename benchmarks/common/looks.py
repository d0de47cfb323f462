"""What pages share besides text: names and looks of activations, tables, line plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common.page import Page

Look = tuple[object, str, object]  # colour, marker, dashes

_NAMES = {
    "relu": "ReLU",
    "gelu": "GELU",
    "selu": "SELU",
    "nlrelu": "NLReLU",
    "combu": "CombU",
    "la-silu": "LA-SiLU",
    "identity": "none",
    # normalisations, which the same networks have
    "batch": "batch norm",
    "layer": "layer norm",
    "pln": "PLN-8",
}
# Okabe and Ito's colours, distinct also to the colour-blind; markers and dashes say it again
LOOKS: dict[str, Look] = {
    "relu": ("#000000", "o", "-"),
    "sigmoid": ("#E69F00", "s", "--"),
    "tanh": ("#56B4E9", "^", "-."),
    "pln": ("#D55E00", "D", "-"),
    "pls": ("#CC79A7", "P", "--"),
    "combu": ("#0072B2", "v", "-"),
    "nlrelu": ("#009E73", "X", "-."),
    "selu": ("#8C6D1F", "<", "--"),
    "la-silu": ("#777777", ">", (0, (1, 1))),
    "gelu": ("#332288", "*", (0, (3, 1))),
}


def label(activation: str) -> str:
    """Name an activation as the paper does.

    >>> label("nlrelu"), label("pln-8"), label("tanh")
    ('NLReLU', 'PLN-8', 'tanh')
    """
    upper = activation.upper() if activation.startswith(("pln-", "pls-")) else activation
    return _NAMES.get(activation, upper)


def listed(items: Iterable[object]) -> str:
    """
    >>> listed([8, 16, 32]), listed([8]), listed([])
    ('8, 16 and 32', '8', 'none')
    """
    *first, last = list(map(str, items)) or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def look(activation: str) -> Look:
    return LOOKS.get(activation) or LOOKS[activation.partition("-")[0]]


@dataclass(frozen=True)
class Line:
    """A line of a figure; without dashes ("none") its range is drawn as error bars."""

    x: Sequence[float] | np.ndarray | pd.Series
    y: Sequence[float] | np.ndarray | pd.Series
    name: str  # in the legend; none where it begins with "_"
    look: Look
    low: pd.Series | None = None
    high: pd.Series | None = None


def plot(
    panels: Mapping[str, Sequence[Line]],
    labels: tuple[str, str],
    *,
    n_columns: int,
    ticks: Mapping[float, str] | None = None,
    ylim: tuple[float, float] | None = None,
    scales: tuple[str, str] = ("linear", "linear"),
    share: str = "all",
) -> Figure:
    """Draw panels, by title, with one legend; ``labels``, ``scales``: of the axes x and y."""
    n_rows, n_columns = math.ceil(len(panels) / n_columns), min(n_columns, len(panels))
    figure = Figure(figsize=(11.0, 0.9 + 9.6 / (n_columns + 0.4) * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=share)
    legend = {}
    for axes, (name, lines) in zip(grid.flat, panels.items(), strict=False):
        for line in lines:
            color, marker, dashes = line.look
            (drawn,) = axes.plot(line.x, line.y, color=color, marker=marker, linestyle=dashes)
            drawn.set(markersize=5, linewidth=1.5)
            legend[line.name] = drawn
            if line.low is not None and dashes == "none":
                axes.vlines(line.x, line.low, line.high, color=color, linewidth=1.0)
            elif line.low is not None:
                axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.1, linewidth=0)
        axes.set_title(name, fontsize=10, loc="left")
        axes.set(xscale=scales[0], yscale=scales[1])
        if ylim is not None:
            axes.set_ylim(ylim)
        if ticks is not None:
            axes.set_xticks(list(ticks), list(ticks.values()))
            axes.minorticks_off()
        axes.grid(color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel(labels[0])
    figure.supylabel(labels[1], fontsize=10)
    shown = {name: handle for name, handle in legend.items() if not name.startswith("_")}
    n_columns = max(1, min(6, 110 // max(map(len, shown), default=1)))  # names fit the width
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=n_columns, frameon=False)
    return figure


Panels = Mapping[str, Mapping[str, pd.DataFrame]]  # by title and series: estimate, low and high


def intervals(panels: Panels, words: str, band: tuple[float, float] = (0.0, 0.0)) -> Figure:
    """Draw estimates with intervals, a line for each name; ``band`` is where nothing differs."""
    tables = [table for own in panels.values() for table in own.values()]
    names = list(dict.fromkeys(name for table in tables for name in table.index))
    n_columns = 2 if len(panels) == 4 else min(3, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    size = (1.2 + max(5.8, 2.9 * n_columns), 0.6 + (0.7 + 0.2 * len(names)) * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    for axes, (title, own) in zip_longest(grid.flat, panels.items(), fillvalue=("", {})):
        for i, (name, table) in enumerate(own.items()):
            middle, low, high = table.to_numpy().T
            at = [names.index(each) + 0.25 * i for each in table.index]
            look = {"fmt": "os"[i], "color": ("#0072B2", "#D55E00")[i], "markersize": 4}
            axes.errorbar(middle, at, xerr=(middle - low, high - middle), label=name, **look)
        axes.axvspan(*band, color="0.85", zorder=0)
        axes.set_title(title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_visible(bool(own))
    grid[0, 0].set_yticks(range(len(names)), list(map(label, names)))
    grid[0, 0].invert_yaxis()
    if len(tables) > len(panels):
        shown = grid[0, 0].get_legend_handles_labels()
        figure.legend(*shown, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.supxlabel(words, fontsize=9)
    return figure


def cross_table(page: Page, rows: pd.DataFrame, index: str, columns: str, corner: str = "") -> None:
    """Add a table of the column ``text``, by the values of two others."""
    wide = rows.pivot_table("text", index, columns, "first", sort=False).fillna("—")
    lines = [[label(str(name)), *texts] for name, *texts in wide.itertuples()]
    page.table([corner, *(label(str(head)) for head in wide)], lines)
