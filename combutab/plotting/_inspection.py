"""Figures of how a model uses its columns: importances, partial dependences, attributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from combutab.inspection import Attributions, PartialDependence, PermutationImportance
from combutab.plotting._display import Display, label_rows, outside_legend, tidy

_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "0.3"
_ROW = 0.3  # inches a column
_PANEL = (3.2, 2.5)  # inches
_BESIDE = 3  # panels
_LETTERS = 28  # of a name


def _shown_name(name: Any, max_letters: int = _LETTERS) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= max_letters else f"{text[: max_letters - 7]}…{text[-6:]}"


class PermutationImportanceDisplay(Display):
    """Plot of the permutation importance of each column with its 95 % interval, largest on top.

    Filled circles are columns whose interval lies above 0, open circles are the others.

    Parameters
    ----------
    importance : PermutationImportance

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    axes_ : ndarray of matplotlib.axes.Axes
        Array of ``ax_``, the only panel.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from combutab.inspection import permutation_importance
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = LogisticRegression(max_iter=500).fit(X, y)
    >>> found = permutation_importance(clf, X, y, n_repeats=3, random_state=0)
    >>> display = PermutationImportanceDisplay.from_results(found)
    >>> display.ax_.get_yticklabels()[0].get_text()
    'petal length (cm)'
    """

    def __init__(self, *, importance: PermutationImportance) -> None:
        self.importance = importance

    @classmethod
    def from_results(
        cls, importance: PermutationImportance, *, n_columns: int = 20, ax: Any = None
    ) -> Self:
        """Draw a result of `combutab.inspection.permutation_importance`.

        Parameters
        ----------
        importance : PermutationImportance
        n_columns : int, default=20
            Maximum number of columns; the most important ones are drawn.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; by default those of a new figure.

        Returns
        -------
        PermutationImportanceDisplay
        """
        return cls(importance=importance).plot(n_columns=n_columns, ax=ax)

    def plot(self, *, n_columns: int = 20, ax: Any = None) -> Self:
        """Draw the result again; parameters as in ``from_results``."""
        from matplotlib.lines import Line2D

        table = self.importance.table[:n_columns]
        (axes,) = self._make_panels(ax, 1, 1, (7.2, 1.3 + _ROW * len(table)))
        numbers = table[["importance", "low", "high"]].to_numpy(dtype=float)
        for row, (mean, low, high) in enumerate(numbers.tolist()):
            axes.hlines(row, low, high, color=_BLUE, linewidth=1.8, zorder=3)
            face = _BLUE if low > 0 else "white"
            axes.plot(mean, row, "o", color=_BLUE, markerfacecolor=face, markersize=7, zorder=4)
        axes.axvline(0, color="0.45", linewidth=0.8, linestyle="--", zorder=1)
        label_rows(axes, [_shown_name(name) for name in table["column"]])
        axes.set_xlabel(f"{self.importance.effect} when the column is shuffled", parse_math=False)
        open_circle = Line2D(
            [], [], color=_BLUE, marker="o", markerfacecolor="white", label="interval not above 0"
        )
        self._make_legend([open_circle] if (table["low"] <= 0).any() else [])
        return self


class PartialDependenceDisplay(Display):
    """Plot of the partial dependence of a prediction on columns, one panel per column.

    Thin grey lines are rows (ICE), the thick line is the mean over all rows. For categories the
    mean is a dot, and a line spans the 5 % to the 95 % quantile of the rows. For several outputs
    only the means are drawn.

    Parameters
    ----------
    dependences : sequence of PartialDependence

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The first panel.
    axes_ : ndarray of matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from combutab.inspection import partial_dependence
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> found = partial_dependence(Ridge().fit(X, y), X, ["bmi", "age"])
    >>> display = PartialDependenceDisplay.from_results(found)
    >>> [axes.get_title(loc="left") for axes in display.axes_]
    ['bmi', 'age']
    """

    def __init__(self, *, dependences: Sequence[PartialDependence]) -> None:
        self.dependences = list(dependences)

    @classmethod
    def from_results(
        cls,
        dependences: PartialDependence | Sequence[PartialDependence],
        *,
        n_lines: int = 50,
        ax: Any = None,
    ) -> Self:
        """Draw results of `combutab.inspection.partial_dependence`.

        Parameters
        ----------
        dependences : PartialDependence or sequence of them
        n_lines : int, default=50
            Maximum number of rows that are drawn as lines; 0 draws only the means.
        ax : matplotlib.axes.Axes, or sequence of them, optional
            Axes to draw into: one, which is divided among the panels, or one per panel. By default
            those of a new figure.

        Returns
        -------
        PartialDependenceDisplay

        Raises
        ------
        ValueError
            If ``dependences`` is empty, or ``ax`` does not fit the number of panels.
        """
        results = [dependences] if isinstance(dependences, PartialDependence) else dependences
        return cls(dependences=results).plot(n_lines=n_lines, ax=ax)

    def plot(self, *, n_lines: int = 50, ax: Any = None) -> Self:
        """Draw the result again; parameters as in ``from_results``."""
        from matplotlib.lines import Line2D

        if not self.dependences:
            raise ValueError("nothing to draw: no column is given")
        n = len(self.dependences)
        n_across = min(_BESIDE, n)
        below = math.ceil(n / n_across)
        # of a last row that is not full the rest stays empty
        size = (max(4.8, _PANEL[0] * n_across), 0.5 + _PANEL[1] * below)
        panels = self._make_panels(ax, *((below, n_across) if ax is None else (1, n)), size)
        for axes in panels[n:]:
            axes.remove()
        panels = panels[:n]
        self.axes_ = np.array(panels)
        lying = [_lies(dependence) for dependence in self.dependences]
        for axes, dependence in zip(panels, self.dependences, strict=True):
            _draw_dependence(axes, dependence, n_lines)
        ends = [
            axes.get_xlim() if lies else axes.get_ylim()
            for axes, lies in zip(panels, lying, strict=True)
        ]
        same = min(low for low, _ in ends), max(high for _, high in ends)
        names = list(self.dependences[0].average.columns)
        answer = _shown_name(names[0]) if len(names) == 1 else "prediction"
        for axes, lies in zip(panels, lying, strict=True):
            (axes.set_xlim if lies else axes.set_ylim)(same)  # a flat curve looks flat
            label: Any = axes.set_xlabel if lies else axes.set_ylabel
            label(answer, parse_math=False, fontsize=9)
        if len(names) > 1:
            handles = [
                Line2D([], [], label=_shown_name(n), **_output_style(i))
                for i, n in enumerate(names[:9])
            ]
            if self._own:
                outside_legend(self.figure_, handles, "upper", 3)
            else:
                self._make_legend(handles)
        return self


def _output_style(i: int) -> dict[str, Any]:
    """Colour and line style of the i-th output."""
    colors, styles = (_BLUE, _VERMILION, _GREY), ("-", "--", ":")
    return {"color": colors[i % 3], "linestyle": styles[i // 3 % 3]}


def _lies(dependence: PartialDependence) -> bool:
    """Whether names of categories are too long for the horizontal axis."""
    names = [_shown_name(value, 16) for value in dependence.values]
    return dependence.categorical and len(names) * max(map(len, names)) > 24


def _draw_dependence(axes: Any, dependence: PartialDependence, n_lines: int) -> None:
    one, lies = len(dependence.average.columns) == 1, _lies(dependence)
    positions: Any = range(len(dependence.values)) if dependence.categorical else dependence.values
    if isinstance(dependence.values[0], pd.Timedelta):
        positions = [value.total_seconds() / 3600 for value in dependence.values]
    for i, name in enumerate(dependence.average.columns):
        mean, rows = dependence.average[name].to_numpy(), dependence.individual[i]
        if dependence.categorical:
            shift = 0.0 if one else 0.5 * (i / (len(dependence.average.columns) - 1) - 0.5)
            at = np.arange(len(mean)) + shift
            if one and n_lines:
                low, high = np.quantile(rows, [0.05, 0.95], axis=0)
                (axes.hlines if lies else axes.vlines)(at, low, high, color="0.8", linewidth=4)
            dots = (mean, at) if lies else (at, mean)
            axes.plot(*dots, "o", color=_output_style(i)["color"], markersize=5, zorder=4)
            continue
        if one and n_lines:
            step = max(1, math.ceil(len(rows) / n_lines))
            axes.plot(positions, rows[::step].T, color="0.8", linewidth=0.6, zorder=2)
        look = {"marker": "o" if len(mean) <= 10 else "", "markersize": 4, **_output_style(i)}
        axes.plot(positions, mean, linewidth=2.2, zorder=4, **look)
    tidy(axes, grid="x" if lies else "y")
    unit = " (hours)" if isinstance(dependence.values[0], pd.Timedelta) else ""
    axes.set_title(_shown_name(dependence.column) + unit, loc="left", fontsize=10, parse_math=False)
    axes.tick_params(labelsize=8)
    if dependence.categorical:
        names = [_shown_name(value, 16) for value in dependence.values]
        ends = (len(names) - 0.4, -0.6) if lies else (-0.6, len(names) - 0.4)
        ticks: Any = axes.set_yticks if lies else axes.set_xticks
        size = 8 if len(names) <= 12 else 6.5
        ticks(range(len(names)), names, parse_math=False, fontsize=size)
        (axes.set_ylim if lies else axes.set_xlim)(*ends)
    elif isinstance(dependence.values[0], pd.Timestamp):
        dates = [
            dependence.values[0],
            dependence.values[len(dependence.values) // 2],
            dependence.values[-1],
        ]
        form = "%Y-%m-%d" if dates[2] - dates[0] > pd.Timedelta(days=3) else "%m-%d %H:%M"
        axes.set_xticks(dates, [date.strftime(form) for date in dates])


class AttributionDisplay(Display):
    """Bar plot of the attribution of each column for one row, largest absolute value on top.

    Blue bars to the right make the prediction higher than the base value, orange ones to the left
    make it lower.

    Parameters
    ----------
    attributions : Attributions

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    axes_ : ndarray of matplotlib.axes.Axes
        Array of ``ax_``, the only panel.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from combutab.inspection import attributions
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> found = attributions(Ridge(0.01).fit(X, y), X[:1], X, random_state=0)
    >>> display = AttributionDisplay.from_results(found)
    >>> [text.get_text() for text in display.ax_.get_yticklabels()][:1]
    ['bmi = 0.0617']
    """

    def __init__(self, *, attributions: Attributions) -> None:
        self.attributions = attributions

    @classmethod
    def from_results(
        cls, attributions: Attributions, row: int = 0, *, n_columns: int = 10, ax: Any = None
    ) -> Self:
        """Draw a result of `combutab.inspection.attributions` for one row.

        Parameters
        ----------
        attributions : Attributions
        row : int, default=0
            Position of the row in ``attributions``, from 0.
        n_columns : int, default=10
            Maximum number of bars; if there are more columns, the last bar is the sum of the rest.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; by default those of a new figure.

        Returns
        -------
        AttributionDisplay
        """
        return cls(attributions=attributions).plot(row, n_columns=n_columns, ax=ax)

    def plot(self, row: int = 0, *, n_columns: int = 10, ax: Any = None) -> Self:
        """Draw the result again; parameters as in ``from_results``."""
        attributions = self.attributions
        values = attributions.values.iloc[row]
        order = np.argsort(-values.abs().to_numpy(), kind="stable")
        selected = order if len(order) <= n_columns else order[: n_columns - 1]
        labels = [
            f"{_shown_name(values.index[j])} = {_cell(attributions.data.iat[row, j])}"
            for j in selected
        ]
        bars = values.iloc[selected].tolist()
        if len(selected) < len(order):
            labels.append(f"{len(order) - len(selected)} other columns")
            bars.append(float(values.iloc[order[len(selected) :]].sum()))
        (axes,) = self._make_panels(ax, 1, 1, (7.2, 1.5 + _ROW * len(bars)))
        colors = [_BLUE if value >= 0 else _VERMILION for value in bars]
        axes.barh(range(len(bars)), bars, color=colors, height=0.7, zorder=3)
        axes.axvline(0, color="0.45", linewidth=0.8, zorder=4)
        label_rows(axes, labels)
        base, answer = attributions.base_values[row], attributions.predictions[row]
        axes.set_xlabel(f"added to the base value {base:.4g}", parse_math=False)
        axes.set_title(
            f"Row {values.name}: {attributions.outputs[row]} {answer:.4g}",
            loc="left",
            fontsize=11,
            parse_math=False,
        )
        return self


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    return str(value)[:20].removesuffix(" 00:00:00")
