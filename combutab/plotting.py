"""Figures, as matplotlib ``Figure`` objects that touch no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from combutab.model_selection import ActivationComparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_NOT_TOLD_APART, _TOLD_APART = "#0072B2", "#D55E00"  # Okabe and Ito's blue and vermilion
_ROW = 0.36  # inches an activation
_SPREAD = 0.13  # rows that the dots of a row are spread over, up and down


def plot_comparison(comparison: ActivationComparison) -> Figure:
    """Draw what `compare_activations` found: means with intervals, and the folds as dots.

    The best activation is on top. Those that cannot be told apart from it are filled blue
    circles, those that can are open vermilion diamonds: the shape says it without the colour.

    Parameters
    ----------
    comparison : ActivationComparison

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; ``figure.savefig(path)`` writes it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab.model_selection import compare_activations
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare_activations(X, y, activations=["relu", "combu"], seeds=1, folds=2,
    ...                             epochs=2, hidden=[8], refit=False)
    >>> figure = plot_comparison(found)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(
    ...     found.summary["activation"])
    True
    """
    from matplotlib.figure import Figure

    summary = comparison.summary
    names = summary["activation"].tolist()
    n_folds = int(summary["n_resamples"].iloc[0])
    figure = Figure(figsize=(7.2, 1.9 + _ROW * len(names)), layout="constrained")
    axes = figure.add_subplot()
    folds = comparison.results.groupby(["activation", "fold"])[comparison.metric].mean()
    offsets = np.linspace(-_SPREAD, _SPREAD, n_folds)
    for row, (_, line) in enumerate(summary.iterrows()):
        apart = bool(line["distinguishable"])
        color = _TOLD_APART if apart else _NOT_TOLD_APART
        scores = folds[line["activation"]].to_numpy()
        axes.scatter(
            scores, row + offsets, s=20, color="0.45", edgecolors="white", linewidths=0.6, zorder=5
        )
        axes.hlines(row, line["low"], line["high"], color=color, linewidth=1.8, zorder=3)
        axes.plot(
            line["mean"],
            row,
            marker="D" if apart else "o",
            markersize=6.5 if apart else 8,
            color=color,
            markerfacecolor="white" if apart else color,
            markeredgewidth=1.6,
            zorder=4,
        )
    axes.axvline(summary["mean"].iloc[0], color="0.8", linewidth=0.8, linestyle="--", zorder=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the best on top
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(comparison.measure.description)
    axes.set_ylabel("activation")
    axes.set_title(
        f"{comparison.data}: {comparison.design}",
        loc="left",
        fontsize=11,
        parse_math=False,  # a data set may be called price_$
    )
    figure.legend(
        handles=[
            _key(_NOT_TOLD_APART, "o", _NOT_TOLD_APART, "not told apart from the best"),
            _key(_TOLD_APART, "D", "white", "told apart (p < 0.05)"),
            _key("0.45", ".", "0.45", "one fold", linestyle=""),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    return figure


def _key(color: str, marker: str, face: str, label: str, linestyle: Any = "-") -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=color, marker=marker, markerfacecolor=face, linestyle=linestyle, label=label
    )
