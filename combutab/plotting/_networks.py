"""Figures of the power of layers, and of the robustness of estimators to corrupted tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from combutab.evaluation import Robustness
from combutab.plotting._display import label_rows, new_figure, outside_legend, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ---- Figures of the activations in the layers of networks ----------------------------------------

# Okabe and Ito's colours, with line styles for more than seven lines and for colour-blind readers
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
_TERMS = {
    "P1": ("#D55E00", "P1: of the data set"),
    "P2": ("#0072B2", "P2: between inputs"),
    "P3": ("#56B4E9", "P3: within inputs"),
    "P4": ("#009E73", "P4: within, differing between inputs"),
}
_COLUMNS = 3  # panels per row
_PANEL = (3.4, 2.5)  # inches


def line_of(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th model."""
    return {"color": COLORS[i % len(COLORS)], "linestyle": STYLES[i // len(COLORS) % len(STYLES)]}


def plot_power(power: pd.DataFrame | Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a power plot: the shares of P1 to P4 in the power by depth, one panel per network.

    Where the share of P1 is close to 1, the channels have collapsed to constants.

    Parameters
    ----------
    power : DataFrame, or mapping of name to DataFrame
        Result of `combutab.evaluation.power_decomposition`, or one per network. Members and
        channels are averaged.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

    Raises
    ------
    ValueError
        If the mapping is empty.

    References
    ----------
    Labatie et al. (2021), "Proxy-normalizing activations to match batch normalization while
    removing batch dependence", Figure 2.

    Examples
    --------
    >>> import torch
    >>> from combutab.evaluation import power_decomposition
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.LayerNorm(16))
    >>> figure = plot_power(power_decomposition(net, torch.randn(50, 4)))
    >>> figure.get_supylabel()
    'share of the power'
    """
    from matplotlib.patches import Patch

    networks = {"": power} if isinstance(power, pd.DataFrame) else dict(power)
    if not networks:
        raise ValueError("nothing to draw: no statistics are given")
    columns = min(_COLUMNS, len(networks))
    rows = math.ceil(len(networks) / columns)
    size = (max(5.2, _PANEL[0] * columns), 0.9 + _PANEL[1] * rows)
    figure = new_figure(size)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes in panels[len(networks) :]:
        axes.remove()
    for name, axes in zip(networks, panels, strict=False):
        tidy(axes)
        axes.tick_params(labelsize=9)
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
    handles = [Patch(color=color, label=label) for color, label in _TERMS.values()]
    outside_legend(figure, handles, "upper", 2 if len(networks) == 1 else 4)
    return figure


# ---- Figures of estimators on tables that have gone wrong ----------------------------------------

_MARKERS = "oDs^vPX"
_ROW = 0.34  # inches a corruption


def plot_robustness(result: Robustness) -> Figure:
    """Draw scores by severity (left) and by corruption (right), with a colour per estimator.

    On the left, severity 0 is the clean table, and scores at other severities are means over the
    corruptions. On the right, scores are means over the severities, and vertical lines are the
    scores on the clean table.

    Parameters
    ----------
    result : Robustness
        Result of `combutab.evaluation.robustness`.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

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
    from matplotlib.lines import Line2D

    scores = result.scores
    names = result.summary["estimator"].tolist()
    wrong = scores[scores["severity"] > 0]
    corruptions = wrong["corruption"].unique().tolist()
    height = max(3.0, 1.6 + _ROW * len(corruptions))
    figure = new_figure((8.6, height))
    by_severity, by_corruption = figure.subplots(1, 2)
    handles = []
    for i, name in enumerate(names):
        line, marker = line_of(i), _MARKERS[i % len(_MARKERS)]
        handles.append(Line2D([], [], marker=marker, label=name, **line))
        estimator_scores, estimator_wrong = (
            table[table["estimator"] == name] for table in (scores, wrong)
        )
        means = estimator_scores.groupby("severity")["score"].mean()
        by_severity.plot(means.index, means, marker=marker, markersize=5, linewidth=1.4, **line)
        of_each = estimator_wrong.groupby("corruption")["score"].mean()[corruptions]
        by_corruption.plot(
            of_each, range(len(corruptions)), marker=marker, color=line["color"], linestyle=""
        )
        clean = estimator_scores.loc[estimator_scores["severity"] == 0, "score"].iloc[0]
        by_corruption.axvline(clean, linewidth=0.9, zorder=1, alpha=0.7, **line)
    by_severity.set_xlabel("severity (0: the clean table)")
    by_severity.set_ylabel(result.scoring, parse_math=False)
    by_severity.xaxis.get_major_locator().set_params(integer=True)
    by_corruption.set_xlabel(f"{result.scoring}, mean over the severities", parse_math=False)
    tidy(by_severity)
    label_rows(by_corruption, corruptions, "y")
    outside_legend(figure, handles)
    return figure
