"""Figures of comparisons of models: means with intervals, and mean ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from combutab.core.text import p_relation
from combutab.evaluation import NemenyiResult
from combutab.model_selection import ModelComparison, shown_range
from combutab.plotting._display import Display, label_rows, new_figure, outside_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_NOT_DIFFERENT, _DIFFERENT = "#0072B2", "#D55E00"  # Okabe and Ito's blue and vermilion
_BASELINE = "0.3"
_ROW = 0.36  # inches an activation
_SPREAD = 0.13  # rows that the dots of a row are spread over, up and down

# The critical-difference diagram: its axis is at row 0, rows count downwards
_LABEL_ROW, _CHARACTER = 0.24, 0.085  # inches
_FIRST_BAR, _BAR_ROW, _BRACKET, _TOP = 0.55, 0.45, -1.6, -2.7  # label rows


class ActivationComparisonDisplay(Display):
    """Plot of a comparison of activations or models: means with intervals, and folds as dots.

    The best one is on top. Filled blue circles are those that are not significantly
    different from it, open vermilion diamonds are the others. Baselines are grey squares below the
    activations. A baseline that is far from all activations is an arrow at the edge with its mean,
    so that the activations stay apart.

    Parameters
    ----------
    comparison : ModelComparison

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    axes_ : ndarray of matplotlib.axes.Axes
        Array of ``ax_``, the only panel.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab.model_selection import compare_activations
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare_activations(X, y, activations=["relu", "combu"], seeds=1, folds=2,
    ...                             epochs=2, hidden=[8], refit=False)
    >>> display = ActivationComparisonDisplay.from_results(found)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()] == [
    ...     *found.summary["activation"], *found.baselines["baseline"]]
    True
    """

    def __init__(self, *, comparison: ModelComparison) -> None:
        self.comparison = comparison

    @classmethod
    def from_results(cls, comparison: ModelComparison, *, ax: Any = None) -> Self:
        """Draw a comparison.

        Parameters
        ----------
        comparison : ModelComparison
            Result of `compare_activations` or `compare_models`.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; by default those of a new figure.

        Returns
        -------
        ActivationComparisonDisplay
        """
        return cls(comparison=comparison).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the comparison again; ``ax`` as in ``from_results``."""
        comparison = self.comparison
        summary, baselines = comparison.summary, comparison.baselines
        names = summary[comparison.group].tolist()
        names += [] if baselines.empty else baselines["baseline"].tolist()
        n_folds = int(summary["n_resamples"].iloc[0])
        (axes,) = self._make_panels(ax, 1, 1, (7.2, 1.9 + _ROW * len(names)))
        folds = comparison.results.groupby([comparison.group, "fold"])[comparison.metric].mean()
        offsets = np.linspace(-_SPREAD, _SPREAD, n_folds)
        for row, (_, line) in enumerate(summary.iterrows()):
            differs = bool(line["distinguishable"])
            color = _DIFFERENT if differs else _NOT_DIFFERENT
            _draw_folds(axes, folds[line[comparison.group]].to_numpy(), row + offsets)
            axes.hlines(row, line["low"], line["high"], color=color, linewidth=1.8, zorder=3)
            axes.plot(
                line["mean"],
                row,
                marker="D" if differs else "o",
                markersize=6.5 if differs else 8,
                color=color,
                markerfacecolor="white" if differs else color,
                markeredgewidth=1.6,
                zorder=4,
            )
        axes.axvline(summary["mean"].iloc[0], color="0.45", linewidth=0.8, linestyle="--", zorder=1)
        if not baselines.empty:
            _draw_baselines(axes, comparison, offsets)
        label_rows(axes, names)
        axes.set_xlabel(comparison.measure.description)
        axes.set_ylabel(comparison.group + ", baseline" * (not baselines.empty))
        axes.set_title(
            f"{comparison.data}: {comparison.design}",
            loc="left",
            fontsize=11,
            parse_math=False,  # a data set may be called price_$
        )
        keys = [
            _legend_key(
                _NOT_DIFFERENT, "o", _NOT_DIFFERENT, "not significantly different from the best"
            ),
            _legend_key(_DIFFERENT, "D", "white", "significantly different (p < 0.05)"),
            _legend_key("0.45", ".", "0.45", "one fold", linestyle=""),
        ]
        if not baselines.empty:
            keys.append(_legend_key(_BASELINE, "s", _BASELINE, "baseline"))
        self._make_legend(keys, max_columns=2)
        return self


def plot_comparison(comparison: ModelComparison) -> Figure:
    """Plot a comparison of activations or models: means with intervals, and folds as dots.

    It is the figure of `ActivationComparisonDisplay`.

    Parameters
    ----------
    comparison : ModelComparison

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab.model_selection import compare_activations
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare_activations(X, y, activations=["relu", "combu"], seeds=1, folds=2,
    ...                             epochs=2, hidden=[8], refit=False)
    >>> plot_comparison(found).axes[0].get_xlabel()
    'accuracy (higher is better)'
    """
    figure: Figure = ActivationComparisonDisplay.from_results(comparison).figure_
    return figure


def _draw_folds(axes: Any, scores: np.ndarray, rows: np.ndarray) -> None:
    axes.scatter(scores, rows, s=20, color="0.45", edgecolors="white", linewidths=0.6, zorder=5)


def _draw_baselines(axes: Any, comparison: ModelComparison, offsets: np.ndarray) -> None:
    """Below the activations, within their range or at its edge."""
    metric, baselines = comparison.metric, comparison.baselines
    rows = comparison.baseline_results.sort_values("fold").groupby("baseline")[metric]
    folds = {name: scores.to_numpy() for name, scores in rows}
    low, high = shown_range(comparison.results, comparison.summary, metric, baselines)
    pad = 0.04 * ((high - low) or abs(low) or 1.0)
    first = len(comparison.summary)
    axes.axhline(first - 0.5, color="0.8", linewidth=0.8, zorder=1)
    for row, (_, line) in enumerate(baselines.iterrows(), first):
        if not low <= line["mean"] <= high:
            is_left = line["mean"] < low
            axes.plot(
                low if is_left else high,
                row,
                marker="<" if is_left else ">",
                markersize=7,
                color=_BASELINE,
            )
            axes.annotate(
                f"{line['mean']:.4g}",
                (low if is_left else high, row),
                xytext=(9 if is_left else -9, 0),
                textcoords="offset points",
                ha="left" if is_left else "right",
                va="center",
                fontsize=9,
                color=_BASELINE,
            )
            continue
        ends = np.clip([line["low"], line["high"]], low, high)
        axes.hlines(row, *ends, color=_BASELINE, linewidth=1.8, zorder=3)
        scores = folds[line["baseline"]]
        seen = (low <= scores) & (scores <= high)
        _draw_folds(axes, scores[seen], (row + offsets)[seen])
        axes.plot(line["mean"], row, marker="s", markersize=6.5, color=_BASELINE, zorder=4)
    axes.set_xlim(low - pad, high + pad)


def plot_critical_difference(result: NemenyiResult) -> Figure:
    """Draw a critical-difference diagram: models by their mean ranks, the best on the left.

    A blue bar joins models that are not significantly different. If Friedman's test finds no
    significant difference, one bar joins all models.

    Parameters
    ----------
    result : NemenyiResult
        Result of `combutab.evaluation.nemenyi`.

    Returns
    -------
    matplotlib.figure.Figure
        It is not registered with pyplot: save it with ``figure.savefig(path)``.

    References
    ----------
    J. Demsar, "Statistical comparisons of classifiers over multiple data sets", Journal of
    Machine Learning Research 7, 2006.

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab.evaluation import nemenyi
    >>> scores = pd.DataFrame([[0.7, 0.8, 0.6]] * 6, columns=["relu", "combu", "tanh"])
    >>> figure = plot_critical_difference(nemenyi(scores))
    >>> [label.get_text() for label in figure.axes[0].texts[:3]]
    ['combu (1.00)', 'relu (2.00)', 'tanh (3.00)']
    """
    ranks, k = result.mean_ranks, len(result.mean_ranks)
    over = 0.008 * k  # ends of bars beyond the ranks: a bar of equal ranks is seen, too
    bars = [
        (ranks[ranks.index.isin(group)].min() - over, ranks[ranks.index.isin(group)].max() + over)
        for group in result.not_different
    ]
    levels = _levels(bars, gap=2 * over)
    first_label = _FIRST_BAR + _BAR_ROW * (max(levels, default=-1) + 1) + 0.35
    bottom = first_label + (k + 1) // 2 - 0.4
    labels = [f"{name} ({rank:.2f})" for name, rank in ranks.items()]
    width = max(7.2, 4.0 + 2 * _CHARACTER * max(map(len, labels)))
    figure = new_figure((width, 0.8 + _LABEL_ROW * (bottom - _TOP)))
    axes = figure.add_subplot()
    left_edge, right_edge = 0.85, max(k, 1 + result.critical_difference) + 0.15
    for (low, high), level in zip(bars, levels, strict=True):
        row = _FIRST_BAR + _BAR_ROW * level
        axes.hlines(row, low, high, color=_NOT_DIFFERENT, linewidth=4, zorder=3)
    for i, (label, rank) in enumerate(zip(labels, ranks, strict=True)):
        at_left = i < (k + 1) // 2
        row = first_label + (i if at_left else k - 1 - i)  # outer ones on top: no lines cross
        edge = left_edge if at_left else right_edge
        axes.plot([rank, rank, edge], [0, row, row], color="0.45", linewidth=0.9, zorder=2)
        axes.plot(rank, 0, marker="o", markersize=4.5, color="0.2", zorder=4)
        axes.annotate(
            label,
            (edge, row),
            xytext=(-4 if at_left else 4, 0),
            textcoords="offset points",
            ha="right" if at_left else "left",
            va="center",
            fontsize=10,
            parse_math=False,
        )
    difference = result.critical_difference
    axes.plot([1, 1 + difference], [_BRACKET] * 2, color="0.2", marker="|", linewidth=1.2)
    axes.text(1, _BRACKET - 0.2, f"critical difference {difference:.2f}", va="bottom", fontsize=9)
    axes.set_xlim(left_edge, right_edge)
    axes.set_ylim(bottom, _TOP)
    axes.set_xticks(range(1, k + 1))
    axes.xaxis.tick_top()
    axes.set_yticks([])
    axes.spines["top"].set(position=("data", 0), bounds=(1, k))
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    figure.suptitle(
        f"Mean ranks over {result.n_rows} {result.rows}, 1 is the best "
        f"(Friedman's test: p {p_relation(result.friedman.pvalue)})",
        x=0.02,
        ha="left",
        fontsize=11,
        parse_math=False,
    )
    if bars:
        test = "Nemenyi" if result.differ else "Friedman"
        label = f"not significantly different ({test}'s test, {100 * result.alpha:g} % level)"
        key = _legend_key(_NOT_DIFFERENT, "", _NOT_DIFFERENT, label)
        key.set_linewidth(4)
        outside_legend(figure, [key])
    return figure


def _levels(bars: list[tuple[float, float]], gap: float) -> list[int]:
    """Row of each bar, from left to right: the first row without a bar nearer than the gap."""
    ends: list[float] = []
    levels = []
    for low, high in bars:
        level = next((i for i, end in enumerate(ends) if end + gap <= low), len(ends))
        ends[level : level + 1] = [high]
        levels.append(level)
    return levels


def _legend_key(color: str, marker: str, face: str, label: str, linestyle: Any = "-") -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=color, marker=marker, markerfacecolor=face, linestyle=linestyle, label=label
    )
