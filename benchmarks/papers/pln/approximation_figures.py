"""Figures of the approximation study: after the PLN paper's 3, 4, A1 and 5, and the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.papers.pln.approximation_numbers import FAMILIES, OURS
from benchmarks.papers.pln.approximation_runs import FITS, HIGH, LOW, N_CURVE, TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind; markers and dashes say it again
_LOOKS = (
    ("#D55E00", "D", "-"),
    ("#0072B2", "s", "--"),
    ("#000000", "o", "-"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "v", (0, (1, 1))),
    ("#E69F00", "P", (0, (5, 1, 1, 1))),
)
_SIZES = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}  # places in the colour map
_BOUNDS = ("pln-2", "pln-4", "pls-1", "pls-2", "sigmoid", "relu")
LABELS = {
    "relu": "ReLU",
    "gelu": "GELU",
    "nlrelu": "NLReLU",
    "combu": "CombU",
    "la-silu": "LA-SiLU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def label(activation: str) -> str:
    """How an activation is called."""
    return LABELS.get(activation, activation.upper())


def plot_sizes(table: pd.DataFrame) -> Figure:
    """Draw the log loss by width: a row a target, a column a family, a line a norm size."""
    import matplotlib

    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.83, len(_SIZES)))
    markers, dashes = "oDs^vP", ("-", "-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)))
    looks = {}
    for name in (name for names in FAMILIES.values() for name in names):
        place = _SIZES[int(name.partition("-")[2])]
        looks[name] = (colours[place], markers[place], dashes[place])
    return _panels(table, [(family, names) for family, names in FAMILIES.items()], looks)


def plot_activations(table: pd.DataFrame) -> Figure:
    """Draw the log loss by width: the paper's five, and further ones beside two of them."""
    first = (*OURS, "relu", "sigmoid", "tanh")
    known = {name for names in FAMILIES.values() for name in names} | set(first)
    others = [name for name in dict.fromkeys(table["activation"]) if name not in known]
    second = ("pln-4", "relu", *others)
    looks = dict(zip(first, _LOOKS, strict=False))
    free = (_LOOKS[1], _LOOKS[3], _LOOKS[4], _LOOKS[5])
    looks |= {name: free[i % len(free)] for i, name in enumerate(others)}
    return _panels(table, [("the paper's", first), ("further activations", second)], looks)


def _panels(
    table: pd.DataFrame, columns: Sequence[tuple[str, Sequence[str]]], looks: dict[str, tuple]
) -> Figure:
    from matplotlib.figure import Figure

    data = list(dict.fromkeys(table["data"]))
    figure = Figure(figsize=(11.0, 3.9 * len(data)), layout="constrained")
    panels = figure.subplots(len(data), len(columns), squeeze=False, sharey="row")
    for row, name in zip(panels, data, strict=True):
        part = table[table["data"] == name]
        for axes, (title, activations) in zip(row, columns, strict=True):
            for activation in activations:
                line = part[part["activation"] == activation].sort_values("width")
                if not line.empty:
                    _line(axes, line, ("median", "low", "high"), looks[activation], activation)
            axes.set_title(f"{TARGETS[name].label}: {title}", loc="left", fontsize=11)
            _widths(axes, part["width"])
            axes.legend(fontsize=9, frameon=False)
        row[0].set_ylabel("log loss: ln of the squared error")
    return figure


def _line(
    axes: Axes, line: pd.DataFrame, names: tuple[str, str, str], look: tuple, activation: str
) -> None:
    middle, low, high = names
    color, marker, dashes = look
    axes.plot(
        line["width"],
        line[middle],
        color=color,
        marker=marker,
        linestyle=dashes,
        markersize=5,
        linewidth=1.6,
        label=label(activation),
    )
    axes.fill_between(line["width"], line[low], line[high], color=color, alpha=0.1, linewidth=0)


def _widths(axes: Axes, widths: pd.Series) -> None:
    ticks = sorted(set(widths))
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("width")
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plot_bounds(table: pd.DataFrame, data: str) -> Figure:
    """Draw the greatest error on the interval by width: trained, constructed, and the bound."""
    from matplotlib.figure import Figure

    part = table[table["data"] == data]
    names = [name for name in _BOUNDS if name in set(part["activation"])]
    figure = Figure(figsize=(11.0, 7.0), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, name in zip(panels.flat, names, strict=False):
        line = part[part["activation"] == name].sort_values("width")
        _line(axes, line, ("sup", "sup_low", "sup_high"), _LOOKS[0], "trained: median, range")
        axes.plot(line["width"], line["constructed"], "s--", color="#0072B2", label="constructed")
        axes.plot(line["width"], line["bound"], ":", color="#000000", label="bound L / 2N")
        axes.lines[0].set_label("trained: median, range")
        axes.set_yscale("log")
        axes.set_title(label(name), loc="left", fontsize=11)
        _widths(axes, part["width"])
    for axes in list(panels.flat)[len(names) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("greatest error on [-5, 5]")
    panels[0, 0].legend(fontsize=9, frameon=False)
    figure.suptitle(f"{TARGETS[data].label}: what training finds, and what the proofs write down")
    return figure


def plot_fits(rows: pd.DataFrame, data: str = "trigonometric") -> Figure:
    """Draw Figure 5's fits, a panel an activation: the best seed, the others pale."""
    from matplotlib.figure import Figure

    part = rows[(rows["data"] == data) & rows["curve"].notna()]
    names = [name for name in FITS if name in set(part["activation"])]
    figure = Figure(figsize=(11.0, 6.4), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    x = np.linspace(LOW, HIGH, N_CURVE)
    for axes, name in zip(panels.flat, names, strict=False):
        runs = part[part["activation"] == name].sort_values("log_loss")
        axes.plot(x, TARGETS[data].function(x), color="#888888", linewidth=3.5, label="target")
        for rank, curve in reversed(list(enumerate(runs["curve"]))):
            values = np.array(curve.split(), dtype=np.float64)
            best = {"alpha": 1.0, "linewidth": 1.6, "label": "best seed"}
            pale = {"alpha": 0.25, "linewidth": 1.0}
            axes.plot(x, values, color=_LOOKS[0][0], **(pale if rank else best))
        loss = runs["log_loss"].iloc[0]
        axes.set_title(f"{label(name)}: log loss {loss:.2f}", loc="left", fontsize=11)
        axes.set_ylim(-2.6, 2.6)
        axes.set_xlabel("x")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(panels.flat)[len(names) :]:
        axes.set_visible(False)
    if names:
        panels[0, 0].legend(fontsize=9, frameon=False)
    return figure
