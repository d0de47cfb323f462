"""Show fitted estimators and results in notebooks: HTML with small charts in SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

# ---- Learning curves of estimators, packs, generators and scikit-learn's networks ----------------

_NO_LOSS = {"member", "epoch", "train_metric", "learning_rate"}
_SCORES = {"r2": "R²"}
_LOSSES = {"validation loss", "validation distance"}  # smaller is better


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Training losses and validation score by member and epoch.

    ``table`` has the columns member, epoch, those of ``losses`` and validation_score, which is
    NaN for missing scores; larger scores are better. ``validation`` is the name of the score, or of
    the loss whose negative it is. ``keeps_best`` is False for a pack, which chooses among epochs.
    """

    table: pd.DataFrame
    losses: tuple[str, ...]
    validation: str
    keeps_best: bool = True

    def panels(self) -> dict[str, str]:
        """Map the columns to draw to their titles."""
        titles = {name: name.replace("train_", "training ") for name in self.losses}
        titles = {name: words.replace("_", " ") for name, words in titles.items()}
        return titles | ({"validation_score": self.validation} if self.scored else {})

    def of_each(self, column: str, *, as_scores: bool = False) -> pd.DataFrame:
        """Arrange a column by epoch (rows) and member (columns).

        A validation loss is positive, unless ``as_scores``.
        """
        table = self.table.pivot(index="epoch", columns="member", values=column)
        is_loss = column == "validation_score" and self.validation in _LOSSES and not as_scores
        return -table if is_loss else table

    @property
    def scored(self) -> bool:
        """Tell whether there are validation scores."""
        return bool(self.table["validation_score"].notna().any())

    def best_epochs(self) -> dict[Any, int]:
        """Find the epoch whose weights each member keeps: the first one with the best score."""
        scored_rows = self.table[self.table["validation_score"].notna() & self.keeps_best]
        rows = scored_rows.loc[scored_rows.groupby("member")["validation_score"].idxmax()]
        return dict(zip(rows["member"].tolist(), rows["epoch"].tolist(), strict=True))


def learning_curves(estimator: Any) -> LearningCurves:
    """Read the learning curves of a fitted estimator, by member, for the last call of ``fit``.

    Raises
    ------
    ValueError
        If the estimator has no epochs.
    """
    history = getattr(estimator, "history_", None)
    losses = getattr(estimator, "loss_curve_", None) or []
    if history is None or (history["member"].nunique() == 1 and len(history) < len(losses)):
        scores = getattr(estimator, "validation_scores_", None) or []
        history = pd.DataFrame({"member": 0, "epoch": np.arange(len(losses)) + 1})
        # earlier calls may have no scores
        history["train_loss"] = np.asarray(losses, dtype=float)
        history["validation_score"] = [np.nan] * (len(losses) - len(scores)) + list(scores)
    if history.empty:
        raise ValueError("has no epochs to draw; solver='lbfgs' has none")
    columns = [str(name) for name in history if name not in _NO_LOSS]
    validations = [name for name in columns if name.startswith("validation")]
    if len(validations) > 1:  # several networks have different best epochs
        validations = []
    names = [name for name in columns if name not in validations]
    scores, score_title = pd.Series(np.nan, history.index), "score"
    for name in validations:
        if name == "validation_score":
            scores, score_title = history[name], _score_words(estimator)
        else:
            scores, score_title = -history[name], name.removeprefix("validation_")
    table = history[["member", "epoch", *names]].assign(validation_score=scores)
    table = table.rename(columns={"loss": "train_loss"})
    losses = tuple("train_loss" if name == "loss" else name for name in names)
    return LearningCurves(
        table, losses, f"validation {score_title}", not hasattr(estimator, "members_")
    )


def _score_words(estimator: Any) -> str:
    scoring = getattr(estimator, "early_stopping_scoring", None)
    # scikit-learn's networks have no attribute target_
    scoring = scoring or getattr(getattr(estimator, "target_", None), "score_name", "score")
    name = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
    return _SCORES.get(name, name)


# ---- Results of a fit in scikit-learn's HTML of an estimator: facts, and curves as small SVG -----
# It needs neither JavaScript nor colours: each curve has a caption that describes it.

_WIDTH, _HEIGHT, _PAD = 168, 56, 4  # size and margin of a curve, in pixels
_POINTS = 120  # maximum number of points of a curve
_COLORS = {"validation_score": "#D55E00"}  # vermilion of Okabe and Ito; other curves are blue
_TEMPLATE = """
<div class="estimator-table">
<table class="parameters-table" style="margin: 0.5em"><tbody>{rows}</tbody></table>
<div style="display: flex; flex-wrap: wrap; gap: 0.5em 1.5em; padding: 0.5em">{figures}</div>
</div>
"""


class FittedHTML:
    """Adds facts and learning curves to scikit-learn's HTML (1.7 and later) of an estimator."""

    def _fit_facts(self) -> dict[str, str]:
        """Return the facts to show with the curves: names, and values in words."""
        raise NotImplementedError

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        html = super()._get_params_html(*args, **kwargs)  # type: ignore[misc]
        is_fitted = self.__sklearn_is_fitted__()  # type: ignore[attr-defined]
        return _Shown(html, fitted_html(self)) if is_fitted else html


class _Shown:
    """scikit-learn's table of parameters, with the fitted attributes below it."""

    def __init__(self, parameters: Any, fitted_html: str) -> None:
        self.parameters, self.found = parameters, fitted_html

    def _repr_html_inner(self) -> str:
        return f"{self.parameters._repr_html_inner()}{self.found}"


def fitted_html(estimator: FittedHTML) -> str:
    """Format the facts of a fit as a table, with its learning curves."""
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
    smallest, largest = min(counts), max(counts)
    epoch_count = f"{largest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return f"{epoch_count} epoch{'s' * (largest != 1)}"


def _figure(curves: LearningCurves, column: str, name: str) -> str:
    """Draw a curve with a caption: the mean over members, up to the epoch that all have reached."""
    values = curves.of_each(column).dropna().mean(axis=1)
    has_several = curves.table["member"].nunique() > 1
    best_epoch = None if has_several else next(iter(curves.best_epochs().values()), None)
    if values.empty:
        return ""
    caption = (
        f"{name}{', mean' if has_several else ''}: {values.iloc[0]:.3g} → {values.iloc[-1]:.3g}"
    )
    if column == "validation_score" and best_epoch is not None:
        caption += f"; kept is epoch {best_epoch}: {values[best_epoch]:.3g}"
    return (
        f'<figure style="margin: 0; max-width: {_WIDTH + 40}px">{_svg(values, column, best_epoch)}'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _svg(values: pd.Series, column: str, best: int | None) -> str:
    y = values.to_numpy(dtype=float)
    finite_values = y[np.isfinite(y)]
    low, high = (finite_values.min(), finite_values.max()) if len(finite_values) else (0.0, 0.0)
    heights = (y - low) / (high - low) if high > low else np.full(len(y), 0.5)
    positions = np.arange(len(y)) / max(len(y) - 1, 1)
    points = np.column_stack(
        [_PAD + positions * (_WIDTH - 2 * _PAD), _HEIGHT - _PAD - heights * (_HEIGHT - 2 * _PAD)]
    ).round(1)
    drawn_points = points[np.unique(np.linspace(0, len(y) - 1, _POINTS).round().astype(int))]
    line = " ".join(f"{x:g},{height:g}" for x, height in drawn_points if np.isfinite(height))
    color = _COLORS.get(column, "#0072B2")
    marked_position = len(y) - 1 if best is None else values.index.get_loc(best)
    x, height = points[marked_position]
    dot = f'<circle cx="{x:g}" cy="{height:g}" r="3" fill="{color}"/>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'aria-hidden="true" style="border-bottom: 1px solid gray"><polyline points="{line}" '
        f'fill="none" stroke="{color}" stroke-width="1.5"/>{dot if np.isfinite(height) else ""}'
        "</svg>"
    )


# ---- Results in notebooks: sentences, a chart of means with their intervals, and tables ----------

_BARS, _NUMBERS, _ROW = 300, 80, 22  # widths of the chart's parts, and the height of a row
_LETTERS, _LETTER = 50, 7  # maximum length of a name, and the width of a letter
_MAIN, _OTHER = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class ChartRow:
    """A row of `interval_chart`: a mean, its interval, and whether it is a baseline."""

    name: str
    mean: float
    low: float
    high: float
    baseline: bool = False


def interval_chart(rows: Sequence[ChartRow], ends: tuple[float, float], axis: str) -> str:
    """Draw means with their intervals as SVG, in one row each.

    ``ends`` are the limits of the axis, and ``axis`` is its label. A mean outside the limits is a
    triangle at the nearer limit.
    """
    low, high = ends
    scale = _BARS / ((high - low) or 1.0)
    name_width = _LETTER * min(max((len(row.name) for row in rows), default=0), _LETTERS) + 10

    def x_position(value: float) -> float:
        return round(name_width + 8 + min(max((value - low) * scale, 0.0), _BARS), 1)

    parts = []
    for i, row in enumerate(rows):
        y, color = _ROW * i + _ROW / 2, _OTHER if row.baseline else _MAIN
        short_name = row.name if len(row.name) <= _LETTERS else f"{row.name[: _LETTERS - 1]}…"
        x = x_position(row.mean)
        symbol = f'<circle cx="{x}" cy="{y}" r="4" fill="{color}"/>'
        if not low <= row.mean <= high:
            tip = 8 if row.mean > high else -8
            symbol = f'<path d="M {x} {y - 5} v 10 l {tip} -5 z" fill="{color}"/>'
        parts.append(
            f"<g><title>{escape(row.name)}: {row.mean:.4g} ({row.low:.4g} to {row.high:.4g})"
            f'</title><text x="{name_width}" y="{y + 4}" text-anchor="end">'
            f"{escape(short_name)}</text>"
            f'<line x1="{x_position(row.low)}" x2="{x_position(row.high)}" y1="{y}" y2="{y}" '
            f'stroke="{color}" stroke-width="2"/>{symbol}'
            f'<text x="{name_width + _BARS + 20}" y="{y + 4}">{row.mean:.4g}</text></g>'
        )
    width, bottom = name_width + _BARS + _NUMBERS, _ROW * len(rows)
    left_end, right = x_position(low), x_position(high)
    parts.append(
        f'<path d="M {left_end} {bottom} H {right}" stroke="gray"/>'
        f'<text x="{left_end}" y="{bottom + 15}">{low:.4g}</text>'
        f'<text x="{right}" y="{bottom + 15}" text-anchor="end">{high:.4g}</text>'
    )
    return (
        f'<svg width="{width}" height="{bottom + 20}" viewBox="0 0 {width} {bottom + 20}" '
        f'role="img" aria-label="{escape(axis)}" font-size="12" fill="currentColor" '
        f'style="max-width: 100%">{"".join(parts)}</svg>'
    )


def result_html(
    title: str,
    sentences: Iterable[str],
    figure: str = "",
    caption: str = "",
    tables: Iterable[tuple[str, pd.DataFrame]] = (),
) -> str:
    """Format a result: its title and sentences, a figure, and tables that can be unfolded."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences)
    figure_caption = f"<figcaption><small>{escape(caption)}</small></figcaption>" if figure else ""
    folded_tables = "".join(
        f"<details><summary>{escape(name)}</summary>{table.to_html(index=False)}</details>"
        for name, table in tables
    )
    return (
        f'<div style="max-width: 60em"><p><b>{escape(title)}</b></p>'
        f'<figure style="margin: 0.5em 0">{figure}{figure_caption}</figure>'
        f"<ul>{lines}</ul>{folded_tables}</div>"
    )
