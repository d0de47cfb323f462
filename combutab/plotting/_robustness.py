"""Figures of estimators on tables that have gone wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combutab.evaluation import Robustness
from combutab.plotting._layers import line_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    by_corruption.grid(axis="y", color="0.92", linewidth=0.8)
    by_corruption.tick_params(axis="y", length=0)
    for axes in (by_severity, by_corruption):
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(names), 4),
        frameon=False,
        fontsize=9,
    )
    return figure
