"""The LayerAct paper's Figures 2, 3, 6 and 7: distributions over units and samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from combutab.evaluation import ActivationStats

# Okabe and Ito's colours; a line style each as well, for eight and more, and for those who need it
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":")
_BINS = 40
_COLUMNS = 3  # panels beside each other
_PANEL = (3.4, 2.5)  # inches


def plot_activation_means(stats: Mapping[str, ActivationStats]) -> Figure:
    """Draw how the means of the units are distributed, a panel a layer: near zero is better."""
    tables = {name: each.units for name, each in stats.items()}
    panels = {f"layer {layer}": {"layer": layer} for layer in _layers(tables)}
    figure = _densities(tables, "mean", panels, columns=_COLUMNS)
    for axes in figure.axes:
        axes.axvline(0, color="0.75", linewidth=0.8, zorder=1)
    figure.supxlabel("mean of a unit over the samples", fontsize=10)
    figure.supylabel("density over the units", fontsize=10)
    return figure


def plot_fluctuation(stats: Mapping[str, ActivationStats]) -> Figure:
    """Draw how the fluctuations of the samples are distributed, a panel a layer and noise."""
    tables = {name: each.samples for name, each in stats.items()}
    noises = pd.concat(tables.values())[["noise_mean", "noise_sd"]].drop_duplicates()
    panels = {
        f"layer {layer}, noise N({mean:g}, {sd:g}²)": {
            "layer": layer,
            "noise_mean": mean,
            "noise_sd": sd,
        }
        for layer in _layers(tables)
        for mean, sd in noises.itertuples(index=False)
    }
    figure = _densities(tables, "fluctuation", panels, columns=min(_COLUMNS, len(noises)))
    figure.supxlabel("fluctuation of a sample, summed over the units", fontsize=10)
    figure.supylabel("density over the samples", fontsize=10)
    return figure


def _layers(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    return list(dict.fromkeys(layer for table in tables.values() for layer in table["layer"]))


def _densities(
    tables: Mapping[str, pd.DataFrame],
    column: str,
    panels: Mapping[str, Mapping[str, Any]],
    columns: int,
) -> Figure:
    """Outlines of histograms with common bins, of the rows whose columns are as a panel says."""
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (max(5.2, _PANEL[0] * columns), 0.9 + _PANEL[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    lines = [
        {"color": _COLORS[i % len(_COLORS)], "linestyle": _STYLES[i // len(_COLORS) % len(_STYLES)]}
        for i in range(len(tables))
    ]
    for axes in grid[len(panels) :]:
        axes.remove()
    for (title, wanted), axes in zip(panels.items(), grid, strict=False):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
        chosen = [
            table.loc[(table[list(wanted)] == pd.Series(wanted)).all(axis=1), column]
            for table in tables.values()
        ]
        edges = np.histogram_bin_edges(np.concatenate(chosen).astype(float), _BINS)
        for values, line in zip(chosen, lines, strict=True):
            if len(values):
                heights, _ = np.histogram(values.to_numpy(dtype=float), edges, density=True)
                axes.stairs(heights, edges, linewidth=1.4, **line)
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    figure.legend(
        handles=[Line2D([], [], label=n, **line) for n, line in zip(tables, lines, strict=True)],
        loc="outside upper center",
        ncols=min(len(tables), 4),
        frameon=False,
        fontsize=9,
    )
    return figure
