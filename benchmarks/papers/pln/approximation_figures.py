"""Figures of the approximation study: after the PLN paper's 3, 4, A1 and 5, and the bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.papers.pln import approximation_runs as runs
from benchmarks.papers.pln.approximation_runs import FAMILIES, TARGETS
from benchmarks.papers.common.looks import LOOKS, Line, Look, label, look, plot


def _size_look(activation: str) -> Look:
    place = runs.norm_size(activation).bit_length() - 1  # 1, 2, 4, ..., 32
    dashes = ("-", "-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)))[place]
    return matplotlib.colormaps["viridis"](0.166 * place), "oDs^vP"[place], dashes


def plot_sizes(table: pd.DataFrame) -> Figure:
    """Draw the log loss by width: a row a target, a column a family, a line a norm size."""
    return _plot_losses(table, FAMILIES, {a: _size_look(a) for a in runs.SIZED})


def plot_activations(table: pd.DataFrame) -> Figure:
    """Draw the log loss by width: the paper's five, and further ones beside two of them."""
    ours = ("pln-4", "pls-2", *runs.CLASSIC)
    names = [name for name in dict.fromkeys(table["activation"]) if name not in runs.SIZED]
    others = [name for name in names if name not in ours]
    columns = {"the paper's": ours, "further activations": ("pln-4", "relu", *others)}
    return _plot_losses(table, columns, {name: look(name) for name in (*ours, *others)})


def _plot_losses(
    table: pd.DataFrame, columns: Mapping[str, Sequence[str]], looks: Mapping[str, Look]
) -> Figure:
    of = dict(list(table.sort_values("width").groupby(["data", "activation"])))
    panels = {
        f"{TARGETS[data].label}: {title}": [
            Line(own["width"], own["median"], label(name), looks[name], own["low"], own["high"])
            for name in names
            if (own := of.get((data, name))) is not None
        ]
        for data in dict.fromkeys(table["data"])
        for title, names in columns.items()
    }
    labels = ("width", "log loss: ln of the squared error")
    return plot(
        panels, labels, n_columns=2, ticks=_ticks(table), scales=("log", "linear"), share="row"
    )


def _ticks(table: pd.DataFrame) -> dict[float, str]:
    return {width: str(width) for width in sorted(set(table["width"]))}


def plot_bounds(bounds: pd.DataFrame, data: str = "trigonometric") -> Figure:
    """Draw the greatest error on the interval by width: trained, constructed, and the bound."""
    part = bounds[(bounds["data"] == data) & (bounds["activation"] != "tanh")]  # it is sigmoid's
    panels = {}
    for name, own in part.sort_values("width").groupby("activation", sort=False):
        x, low, high = own["width"], own["sup_low"], own["sup_high"]
        panels[label(str(name))] = [
            Line(x, own["sup"], "trained: median, range", LOOKS["pln"], low, high),
            Line(x, own["constructed"], "constructed", ("#0072B2", "s", "--")),
            Line(x, own["bound"], "bound L / 2N", ("#000000", "", ":")),
        ]
    title = f"{TARGETS[data].label}: what training finds, and what the proofs write down"
    labels, scales = ("width", "greatest error on [-5, 5]"), ("log", "log")
    return plot(panels, labels, n_columns=3, ticks=_ticks(part), scales=scales, title=title)


def plot_fits(rows: pd.DataFrame, data: str = "trigonometric") -> Figure:
    """Draw Figure 5's fits, a panel an activation: the best seed, the others pale."""
    part = rows[(rows["data"] == data) & rows["curve"].notna()].sort_values("log_loss")
    x, panels = np.linspace(runs.LOW, runs.HIGH, runs.N_CURVE), {}
    target = Line(x, TARGETS[data].function(x), "target", ("#888888", "", "-"), width=3.5)
    for name, own in sorted(part.groupby("activation"), key=lambda item: runs.FITS.index(item[0])):
        best, *others = (np.array(curve.split(), dtype=np.float64) for curve in own["curve"])
        red = ("#D55E00", "", "-")
        panels[f"{label(name)}: log loss {own['log_loss'].iloc[0]:.2f}"] = [
            target,
            *(Line(x, other, "_other seeds", red, width=1.0, alpha=0.25) for other in others),
            Line(x, best, "best seed", red),
        ]
    return plot(panels, ("x", ""), n_columns=3, ylim=(-2.6, 2.6))
