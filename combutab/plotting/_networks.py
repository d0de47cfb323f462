"""Figures of what layers do, and of estimators on corrupted tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab.evaluation import ActivationStats, Robustness
from combutab.plotting._display import tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ---- Figures of what the layers of networks do ---------------------------------------------------

# Okabe and Ito's colours; a line style each as well, for eight and more, and for those who need it
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
_TERMS = {
    "P1": ("#D55E00", "P1: of the data set"),
    "P2": ("#0072B2", "P2: between inputs"),
    "P3": ("#56B4E9", "P3: within inputs"),
    "P4": ("#009E73", "P4: within, differing between inputs"),
}
_BINS = 40
_COLUMNS = 3  # panels beside each other
_PANEL = (3.4, 2.5)  # inches


def line_of(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th model."""
    return {"color": COLORS[i % len(COLORS)], "linestyle": STYLES[i // len(COLORS) % len(STYLES)]}


def plot_activation_means(
    stats: ActivationStats | Mapping[str, ActivationStats], *, layers: Sequence[str] | None = None
) -> Figure:
    """Draw how the means of the units are distributed, a panel a layer: near zero is better.

    Parameters
    ----------
    stats : ActivationStats, or mapping of name to ActivationStats
        As from `combutab.evaluation.activation_stats`; the models of a mapping are overlaid, by
        the names of their layers.
    layers : list of str, optional
        By default all.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Raises
    ------
    ValueError
        There is nothing to draw, or no model has a layer of that name.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Figure 2.

    Examples
    --------
    >>> import torch
    >>> from combutab.evaluation import activation_stats
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh())
    >>> figure = plot_activation_means(activation_stats(net, torch.randn(50, 4)))
    >>> figure.axes[0].get_title(loc="left")
    'layer 1'
    """
    tables = {name: each.units for name, each in _models(stats).items()}
    panels = {f"layer {layer}": {"layer": layer} for layer in _chosen_layers(tables, layers)}
    figure = _densities(tables, "mean", panels)
    for axes in figure.axes:
        axes.axvline(0, color="0.75", linewidth=0.8, zorder=1)
    figure.supxlabel("mean of a unit over the samples", fontsize=10)
    figure.supylabel("density over the units", fontsize=10)
    return figure


def plot_fluctuation(
    stats: ActivationStats | Mapping[str, ActivationStats], *, layers: Sequence[str] | None = None
) -> Figure:
    """Draw how the fluctuations of the samples are distributed, a panel a layer and noise.

    Parameters
    ----------
    stats : ActivationStats, or mapping of name to ActivationStats
        As in `plot_activation_means`, of the same noises.
    layers : list of str, optional
        By default all.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Raises
    ------
    ValueError
        There is nothing to draw, or no model has a layer of that name.

    References
    ----------
    "LayerAct: advanced activation mechanism for robust inference of CNNs", Figure 3.

    Examples
    --------
    >>> import torch
    >>> from combutab.evaluation import activation_stats
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh())
    >>> figure = plot_fluctuation(activation_stats(net, torch.randn(50, 4)))
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['layer 1, noise N(0, 0.5²)', 'layer 1, noise N(1, 0.5²)']
    """
    tables = {name: each.samples for name, each in _models(stats).items()}
    noises = pd.concat(tables.values())[["noise_mean", "noise_sd"]].drop_duplicates()
    if noises.empty:
        raise ValueError("the statistics have no noise; give activation_stats some by noises=")
    panels = {
        f"layer {layer}, noise N({mean:g}, {sd:g}²)": {
            "layer": layer,
            "noise_mean": mean,
            "noise_sd": sd,
        }
        for layer in _chosen_layers(tables, layers)
        for mean, sd in noises.itertuples(index=False)
    }
    figure = _densities(tables, "fluctuation", panels, columns=len(noises))
    figure.supxlabel("fluctuation of a sample, summed over the units", fontsize=10)
    figure.supylabel("density over the samples", fontsize=10)
    return figure


def plot_power(power: pd.DataFrame | Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a power plot: the shares of P1 to P4 by depth, a panel a network.

    Where P1 takes the whole of it, the channels have collapsed to constants.

    Parameters
    ----------
    power : DataFrame, or mapping of name to DataFrame
        As from `combutab.evaluation.power_decomposition`; members and channels are averaged.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Raises
    ------
    ValueError
        There is nothing to draw.

    References
    ----------
    "Proxy-normalizing activations to match batch normalization while removing batch dependence",
    Figure 2.

    Examples
    --------
    >>> import torch
    >>> from combutab.evaluation import power_decomposition
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.LayerNorm(16))
    >>> figure = plot_power(power_decomposition(net, torch.randn(50, 4)))
    >>> figure.get_supylabel()
    'share of the power'
    """
    networks = {"": power} if isinstance(power, pd.DataFrame) else dict(power)
    figure, panels = _panels(list(networks), share=True)
    for name, axes in panels.items():
        sums = networks[name].groupby("depth")[["P", *_TERMS]].mean()
        below = np.zeros(len(sums))
        for term, (color, _) in _TERMS.items():
            share = (sums[term] / sums["P"]).fillna(0.0).to_numpy()
            axes.bar(sums.index, share, 1.0, bottom=below, color=color, linewidth=0)
            below += share
        axes.set_xlim(0.5, sums.index.max() + 0.5)
        axes.set_ylim(0, 1)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(name, loc="left", fontsize=10, parse_math=False)
    figure.supxlabel("depth (normalised layers)", fontsize=10)
    figure.supylabel("share of the power", fontsize=10)
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(color=color, label=label) for color, label in _TERMS.values()],
        loc="outside upper center",
        ncols=2 if len(networks) == 1 else 4,
        frameon=False,
        fontsize=9,
    )
    return figure


def _models(stats: Any) -> dict[str, ActivationStats]:
    models = {"": stats} if isinstance(stats, ActivationStats) else dict(stats)
    if not models:
        raise ValueError("nothing to draw: no statistics are given")
    return models


def _chosen_layers(tables: Mapping[str, pd.DataFrame], asked: Sequence[str] | None) -> list[str]:
    """All layers, in order, or those asked for."""
    found = list(dict.fromkeys(layer for table in tables.values() for layer in table["layer"]))
    if asked is None:
        return found
    wanted = [asked] if isinstance(asked, str) else list(asked)
    if missing := [layer for layer in wanted if layer not in found]:
        raise ValueError(f"no model has a layer {missing[0]!r}; there are {', '.join(found)}")
    return wanted


def _panels(
    keys: Sequence[Any], *, columns: int = _COLUMNS, share: bool = False
) -> tuple[Figure, dict[Any, Any]]:
    """A figure with a panel for each key."""
    from matplotlib.figure import Figure

    if not keys:
        raise ValueError("nothing to draw: no statistics are given")
    columns = min(columns, len(keys))
    rows = math.ceil(len(keys) / columns)
    size = (max(5.2, _PANEL[0] * columns), 0.9 + _PANEL[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share).ravel()
    for axes in grid[len(keys) :]:
        axes.remove()
    for axes in grid:
        tidy(axes)
        axes.tick_params(labelsize=9)
    return figure, dict(zip(keys, grid, strict=False))


def _densities(
    tables: Mapping[str, pd.DataFrame],
    column: str,
    panels: Mapping[str, Mapping[str, Any]],
    columns: int = _COLUMNS,
) -> Figure:
    """Outlines of histograms with common bins: of the rows where a panel's columns are as told."""
    figure, axes_of = _panels(list(panels), columns=min(_COLUMNS, columns))
    for title, axes in axes_of.items():
        values = {}
        for name, table in tables.items():
            chosen = (table[list(panels[title])] == pd.Series(panels[title])).all(axis=1)
            values[name] = table.loc[chosen, column].to_numpy(dtype=float)
        edges = np.histogram_bin_edges(np.concatenate(list(values.values())), _BINS)
        for i, each in enumerate(values.values()):
            if len(each):
                heights, _ = np.histogram(each, edges, density=True)
                axes.stairs(heights, edges, linewidth=1.4, **line_of(i))
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    _legend(figure, list(tables))
    return figure


def _legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    if list(names) != [""]:
        figure.legend(
            handles=[Line2D([], [], label=name, **line_of(i)) for i, name in enumerate(names)],
            loc="outside upper center",
            ncols=min(len(names), 4),
            frameon=False,
            fontsize=9,
        )


# ---- Figures of estimators on tables that have gone wrong ----------------------------------------

_MARKERS = "oDs^vPX"
_ROW = 0.34  # inches a corruption


def plot_robustness(result: Robustness) -> Figure:
    """Draw scores by severity (left) and by corruption (right), a line or marker an estimator.

    On the left severity 0 is the clean table, and the others are means over the corruptions; on the
    right are means over the severities, with the clean scores as vertical lines.

    Parameters
    ----------
    result : Robustness
        As from `combutab.evaluation.robustness`.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from combutab.evaluation import robustness
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = DecisionTreeClassifier().fit(X, y)
    >>> figure = plot_robustness(robustness(tree, X, y, corruptions=["scale", "rounding"]))
    >>> [label.get_text() for label in figure.axes[1].get_yticklabels()]
    ['scale', 'rounding']
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    scores = result.scores
    names = result.summary["estimator"].tolist()
    wrong = scores[scores["severity"] > 0]
    corruptions = wrong["corruption"].unique().tolist()
    height = max(3.0, 1.6 + _ROW * len(corruptions))
    figure = Figure(figsize=(8.6, height), layout="constrained")
    by_severity, by_corruption = figure.subplots(1, 2)
    handles = []
    for i, name in enumerate(names):
        line, marker = line_of(i), _MARKERS[i % len(_MARKERS)]
        handles.append(Line2D([], [], marker=marker, label=name, **line))
        own, own_wrong = (table[table["estimator"] == name] for table in (scores, wrong))
        means = own.groupby("severity")["score"].mean()
        by_severity.plot(means.index, means, marker=marker, markersize=5, linewidth=1.4, **line)
        of_each = own_wrong.groupby("corruption")["score"].mean()[corruptions]
        by_corruption.plot(
            of_each, range(len(corruptions)), marker=marker, color=line["color"], linestyle=""
        )
        clean = own.loc[own["severity"] == 0, "score"].iloc[0]
        by_corruption.axvline(clean, linewidth=0.9, zorder=1, alpha=0.7, **line)
    by_severity.set_xlabel("severity (0: the clean table)")
    by_severity.set_ylabel(result.scoring, parse_math=False)
    by_severity.xaxis.get_major_locator().set_params(integer=True)
    by_corruption.set_yticks(range(len(corruptions)), corruptions, parse_math=False)
    by_corruption.set_ylim(len(corruptions) - 0.5, -0.5)
    by_corruption.set_xlabel(f"{result.scoring}, mean over the severities", parse_math=False)
    by_corruption.tick_params(axis="y", length=0)
    tidy(by_severity)
    tidy(by_corruption, grid="y")
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(names), 4),
        frameon=False,
        fontsize=9,
    )
    return figure
