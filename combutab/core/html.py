"""Fitted estimators and results in notebooks: HTML with small charts in SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

# ---- The curves of a fit, as estimators, packs, generators and scikit-learn's networks keep them

_NO_LOSS = {"member", "epoch", "train_metric", "learning_rate"}
_SCORES = {"r2": "R²"}
_LOSSES = {"validation loss", "validation distance"}  # which are better if smaller


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
        """Columns to draw, and their names in words."""
        titles = {name: name.replace("train_", "training ") for name in self.losses}
        titles = {name: words.replace("_", " ") for name, words in titles.items()}
        return titles | ({"validation_score": self.validation} if self.scored else {})

    def of_each(self, column: str, *, as_scores: bool = False) -> pd.DataFrame:
        """One column by epoch (rows) and member (columns), a loss of validation rows as such."""
        table = self.table.pivot(index="epoch", columns="member", values=column)
        negative = column == "validation_score" and self.validation in _LOSSES and not as_scores
        return -table if negative else table

    @property
    def scored(self) -> bool:
        """Whether there are validation scores."""
        return bool(self.table["validation_score"].notna().any())

    def best_epochs(self) -> dict[Any, int]:
        """The epoch whose weights are kept, by member: the best, the first of equals."""
        scored = self.table[self.table["validation_score"].notna() & self.keeps_best]
        rows = scored.loc[scored.groupby("member")["validation_score"].idxmax()]
        return dict(zip(rows["member"].tolist(), rows["epoch"].tolist(), strict=True))


def learning_curves(estimator: Any) -> LearningCurves:
    """Read the curves of a fitted estimator: of the last call of ``fit``, of one network of all.

    Raises
    ------
    ValueError
        If it has no epochs.
    """
    history = getattr(estimator, "history_", None)
    losses = getattr(estimator, "loss_curve_", None) or []
    if history is None or (history["member"].nunique() == 1 and len(history) < len(losses)):
        scores = getattr(estimator, "validation_scores_", None) or []
        history = pd.DataFrame({"member": 0, "epoch": np.arange(len(losses)) + 1})
        # of earlier calls there may be none
        history["train_loss"] = np.asarray(losses, dtype=float)
        history["validation_score"] = [np.nan] * (len(losses) - len(scores)) + list(scores)
    if history.empty:
        raise ValueError("has no epochs to draw; solver='lbfgs' has none")
    columns = [str(name) for name in history if name not in _NO_LOSS]
    validations = [name for name in columns if name.startswith("validation")]
    if len(validations) > 1:  # several networks have different best epochs
        validations = []
    names = [name for name in columns if name not in validations]
    scores, words = pd.Series(np.nan, history.index), "score"
    for name in validations:
        if name == "validation_score":
            scores, words = history[name], _score_words(estimator)
        else:
            scores, words = -history[name], name.removeprefix("validation_")
    table = history[["member", "epoch", *names]].assign(validation_score=scores)
    table = table.rename(columns={"loss": "train_loss"})
    losses = tuple("train_loss" if name == "loss" else name for name in names)
    return LearningCurves(table, losses, f"validation {words}", not hasattr(estimator, "members_"))


def _score_words(estimator: Any) -> str:
    scoring = getattr(estimator, "early_stopping_scoring", None)
    # of scikit-learn's networks the target is not known
    scoring = scoring or getattr(getattr(estimator, "target_", None), "score_name", "score")
    words = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
    return _SCORES.get(words, words)


# ---- Results of a fit in scikit-learn's HTML of an estimator: facts, and curves as small SVG -----
# It needs neither JavaScript nor colours: a curve is described below it.

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
        """Facts that are shown with the curves: names, and values in words."""
        raise NotImplementedError

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        html = super()._get_params_html(*args, **kwargs)  # type: ignore[misc]
        fitted = self.__sklearn_is_fitted__()  # type: ignore[attr-defined]
        return _Shown(html, fitted_html(self)) if fitted else html


class _Shown:
    """scikit-learn's table of parameters, with the fitted attributes below it."""

    def __init__(self, parameters: Any, fitted_html: str) -> None:
        self.parameters, self.found = parameters, fitted_html

    def _repr_html_inner(self) -> str:
        return f"{self.parameters._repr_html_inner()}{self.found}"


def fitted_html(estimator: FittedHTML) -> str:
    """Fitted attributes of an estimator as a table, and its learning curves."""
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
    counted = f"{largest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return f"{counted} epoch{'s' * (largest != 1)}"


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
    positions = np.arange(len(y)) / max(len(y) - 1, 1)
    points = np.column_stack(
        [_PAD + positions * (_WIDTH - 2 * _PAD), _HEIGHT - _PAD - heights * (_HEIGHT - 2 * _PAD)]
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


# ---- Results in notebooks: sentences, a chart of means with their intervals, and tables ----------

_BARS, _NUMBERS, _ROW = 300, 80, 22  # widths of the chart's parts, and the height of a row
_LETTERS, _LETTER = 50, 7  # of a name, at most, and the width of one
_MAIN, _OTHER = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class ChartRow:
    """A row of `interval_chart`: a mean, the ends of its interval, and whether it is a baseline."""

    name: str
    mean: float
    low: float
    high: float
    baseline: bool = False


def interval_chart(rows: Sequence[ChartRow], ends: tuple[float, float], axis: str) -> str:
    """Draw means with their intervals as SVG, one row each, from the first end to the second.

    A mean beyond an end is a triangle at that end. ``axis`` is the label of the axis.
    """
    low, high = ends
    scale = _BARS / ((high - low) or 1.0)
    names = _LETTER * min(max((len(row.name) for row in rows), default=0), _LETTERS) + 10

    def place(value: float) -> float:
        return round(names + 8 + min(max((value - low) * scale, 0.0), _BARS), 1)

    parts = []
    for i, row in enumerate(rows):
        y, color = _ROW * i + _ROW / 2, _OTHER if row.baseline else _MAIN
        short = row.name if len(row.name) <= _LETTERS else f"{row.name[: _LETTERS - 1]}…"
        x = place(row.mean)
        mark = f'<circle cx="{x}" cy="{y}" r="4" fill="{color}"/>'
        if not low <= row.mean <= high:
            tip = 8 if row.mean > high else -8
            mark = f'<path d="M {x} {y - 5} v 10 l {tip} -5 z" fill="{color}"/>'
        parts.append(
            f"<g><title>{escape(row.name)}: {row.mean:.4g} ({row.low:.4g} to {row.high:.4g})"
            f'</title><text x="{names}" y="{y + 4}" text-anchor="end">{escape(short)}</text>'
            f'<line x1="{place(row.low)}" x2="{place(row.high)}" y1="{y}" y2="{y}" '
            f'stroke="{color}" stroke-width="2"/>{mark}'
            f'<text x="{names + _BARS + 20}" y="{y + 4}">{row.mean:.4g}</text></g>'
        )
    width, bottom = names + _BARS + _NUMBERS, _ROW * len(rows)
    left_end, right = place(low), place(high)
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
    """Lay out a result: its title and sentences, a figure, and tables that can be unfolded."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences)
    drawn = f"<figcaption><small>{escape(caption)}</small></figcaption>" if figure else ""
    folded = "".join(
        f"<details><summary>{escape(name)}</summary>{table.to_html(index=False)}</details>"
        for name, table in tables
    )
    return (
        f'<div style="max-width: 60em"><p><b>{escape(title)}</b></p>'
        f'<figure style="margin: 0.5em 0">{figure}{drawn}</figure><ul>{lines}</ul>{folded}</div>'
    )
