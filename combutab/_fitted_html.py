"""What a fit found, within scikit-learn's HTML of an estimator: facts, and the curves as small SVG.

It needs neither JavaScript nor colours: what a curve says stands below it.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from combutab._histories import LearningCurves, learning_curves

_WIDTH, _HEIGHT, _PAD = 168, 56, 4  # of a curve, in pixels
_POINTS = 120  # of a curve, at most
_COLORS = {"validation_score": "#D55E00"}  # Okabe and Ito's vermilion, and for others blue
_TEMPLATE = """
<div class="estimator-table">
<table class="parameters-table" style="margin: 0.5em"><tbody>{rows}</tbody></table>
<div style="display: flex; flex-wrap: wrap; gap: 0.5em 1.5em; padding: 0.5em">{figures}</div>
</div>
"""


class FittedHTML:
    """Lets scikit-learn's HTML of a fitted estimator (1.7 and later) show what its fit found."""

    def _fit_facts(self) -> dict[str, str]:
        """What there is to say beside the curves: names, and values in words."""
        raise NotImplementedError

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        shown = super()._get_params_html(*args, **kwargs)  # type: ignore[misc]
        if self.__sklearn_is_fitted__():  # type: ignore[attr-defined]
            parameters = shown._html_repr
            shown._html_repr = lambda: parameters() + fitted_html(self)
        return shown


def fitted_html(estimator: FittedHTML) -> str:
    """What a fitted estimator learned, as a table and its curves."""
    facts = estimator._fit_facts()
    figures: list[str] = []
    history = getattr(estimator, "history_", None)
    if history is not None and len(history):
        curves = learning_curves(estimator)
        facts.setdefault("trained", _epochs(curves))
        figures = [_figure(curves, column, name) for column, name in curves.panels().items()]
    rows = "".join(
        f'<tr class="default"><td class="param">{escape(name)}</td><td>{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return _TEMPLATE.format(rows=rows, figures="".join(figures))


def _epochs(curves: LearningCurves) -> str:
    counts = curves.table["member"].value_counts().tolist()
    least, most = min(counts), max(counts)
    counted = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"{counted} epoch{'s' * (most != 1)}"


def _figure(curves: LearningCurves, column: str, name: str) -> str:
    """One curve, the mean of members as far as all train, and in words where it leads."""
    values = curves.of_each(column).dropna().mean(axis=1)
    several = curves.table["member"].nunique() > 1
    best = None if several else next(iter(curves.best_epochs().values()), None)
    if values.empty:
        return ""
    words = f"{name}{', mean' if several else ''}: {values.iloc[0]:.3g} → {values.iloc[-1]:.3g}"
    if column == "validation_score" and best is not None:
        words += f"; kept is epoch {best}: {values[best]:.3g}"
    return (
        f'<figure style="margin: 0; max-width: {_WIDTH + 40}px">{_svg(values, column, best)}'
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


def _svg(values: pd.Series, column: str, best: int | None) -> str:
    y = values.to_numpy(dtype=float)
    finite = y[np.isfinite(y)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    heights = (y - low) / (high - low) if high > low else np.full(len(y), 0.5)
    places = np.arange(len(y)) / max(len(y) - 1, 1)
    points = np.column_stack(
        [_PAD + places * (_WIDTH - 2 * _PAD), _HEIGHT - _PAD - heights * (_HEIGHT - 2 * _PAD)]
    ).round(1)
    drawn = points[np.unique(np.linspace(0, len(y) - 1, _POINTS).round().astype(int))]
    line = " ".join(f"{x:g},{height:g}" for x, height in drawn if np.isfinite(height))
    color = _COLORS.get(column, "#0072B2")
    marked = len(y) - 1 if best is None else values.index.get_loc(best)
    x, height = points[marked]
    dot = f'<circle cx="{x:g}" cy="{height:g}" r="3" fill="{color}"/>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'aria-hidden="true" style="border-bottom: 1px solid gray"><polyline points="{line}" '
        f'fill="none" stroke="{color}" stroke-width="1.5"/>{dot if np.isfinite(height) else ""}'
        "</svg>"
    )
