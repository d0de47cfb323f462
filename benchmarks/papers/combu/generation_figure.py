"""The figure of Table 7's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.papers.combu.expected import METRICS
from benchmarks.papers.combu.generation import REAL
from benchmarks.papers.combu.generation_numbers import MODELS, TABLE
from benchmarks.papers.combu.report_numbers import order_activations
from benchmarks.papers.combu.report_text import activation_label, data_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = {"ctgan": "#0072B2", "tvae": "#D55E00"}


def plot_generation(cells: pd.DataFrame, expected: pd.DataFrame) -> Figure:
    """A panel a data set and metric: activations along x, ours, patched and the paper's."""
    from matplotlib.figure import Figure

    places = list(dict.fromkeys(zip(cells["data"], cells["metric"], strict=True)))
    names = [name for name in order_activations(cells["activation"]) if name != REAL]
    width = 2.0 + 0.95 * len(names)
    rows = -(-len(places) // 2)
    figure = Figure(figsize=(max(9.0, 2 * width), 0.8 + 3.4 * rows), layout="constrained")
    handles: dict[str, object] = {}
    for place, (data, metric) in enumerate(places, start=1):
        axes = figure.add_subplot(rows, min(2, len(places)), place)
        here = cells[(cells["data"] == data) & (cells["metric"] == metric)]
        theirs = expected[(expected["data"] == data) & (expected["metric"] == metric)]
        for i, base in enumerate(MODELS):
            drawn = [
                (here[here["model"] == base], "o", f"{MODELS[base]}, ours", True),
                (here[here["model"] == f"{base}-patched"], "s", f"{MODELS[base]}, patched", True),
                (theirs[theirs["model"] == base], "D", f"{MODELS[base]}, the paper's", False),
            ]
            for j, (part, marker, label, filled) in enumerate(drawn):
                part = part[part["activation"].isin(names)].dropna(subset=["mean"])
                if part.empty:
                    continue
                x = [names.index(name) - 0.3 + 0.12 * (3 * i + j) for name in part["activation"]]
                handles[label] = axes.errorbar(
                    x,
                    part["mean"],
                    yerr=part["sd"].fillna(0.0),
                    fmt=marker,
                    color=_COLORS[base],
                    markerfacecolor=_COLORS[base] if filled else "white",
                    markersize=5,
                    capsize=2,
                    linewidth=1.0,
                )
        for value in here.loc[here["model"] == REAL, "mean"].dropna():
            handles["real rows"] = axes.axhline(value, color="0.3", linestyle="--", linewidth=1.0)
        axes.set_title(f"{data_label(data, TABLE)}, {METRICS[metric].label}", loc="left")
        axes.set_xticks(range(len(names)), [activation_label(name) for name in names])
        if len(names) > 8:
            axes.tick_params(axis="x", labelrotation=30)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.grid(axis="y", color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        better = "higher" if METRICS[metric].greater_is_better else "lower"
        axes.set_ylabel(f"{METRICS[metric].unit}, {better} is better")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False
    )
    return figure
