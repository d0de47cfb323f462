"""Where the marks of a comparison's dot plot stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from combutab.evaluation import interval_words
from combutab.model_selection import shown_range
from combutab.reports.charts import shortened, text_width

WIDTH = 420  # of the drawing area, in SVG units
ROW = 34  # an activation's height
_NAMES = 136  # units that names may take beside it
_INSET = 8  # marks at the ends of the axis have room
_SPREAD = 9  # units that the folds of a row are spread over, up and down
_TICKS = 6  # at most


@dataclass(frozen=True)
class Marks:
    """One activation's or baseline's row: positions along the axis, of folds also down the row.

    A baseline that is ``beyond`` the axis ("low" or "high") has its mean at the edge, in words too.
    """

    name: str
    mean: float
    low: float
    high: float
    folds: list[tuple[float, float]]
    apart: bool
    baseline: bool = False
    beyond: str = ""
    number: str = ""


@dataclass(frozen=True)
class DotPlot:
    """Means with intervals and the folds as dots, the best activation on top, baselines below.

    The names stand in ``left`` units beside the drawing area; ``words`` say what the picture does.
    """

    left: int
    rows: list[Marks]
    ticks: list[tuple[float, str]]
    words: str


def dot_plot(
    results: pd.DataFrame,
    summary: pd.DataFrame,
    metric: str,
    baselines: pd.DataFrame | None = None,
    baseline_results: pd.DataFrame | None = None,
) -> DotPlot:
    """Of a comparison's results and summary, and of its baselines.

    Examples
    --------
    >>> results = pd.DataFrame({"activation": ["relu"] * 2, "fold": [0, 1], "r2": [0.2, 0.4]})
    >>> summary = pd.DataFrame({"activation": ["relu"], "mean": [0.3], "low": [0.1],
    ...                         "high": [0.5], "distinguishable": [False]})
    >>> plot = dot_plot(results, summary, "r2")
    >>> [label for _, label in plot.ticks]
    ['0.1', '0.2', '0.3', '0.4', '0.5']
    >>> plot.words
    'relu: mean 0.3, interval 0.1 to 0.5'
    """
    below = pd.DataFrame() if baselines is None else baselines
    scores = results.groupby(["activation", "fold"])[metric].mean()
    lines = [
        (line["activation"], line, scores[line["activation"]].to_numpy(), False)
        for _, line in summary.iterrows()
    ]
    if baseline_results is not None and not below.empty:
        scores = baseline_results.set_index(["baseline", "fold"])[metric].sort_index()
        lines += [
            (line["baseline"], line, scores[line["baseline"]].to_numpy(), True)
            for _, line in below.iterrows()
        ]
    low, high = _ends(*shown_range(results, summary, metric, below))
    names = [shortened(str(name), _NAMES) for name, *_ in lines]
    left = round(max(map(text_width, names))) + 12

    def place(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return left + _INSET + float(share) * (WIDTH - 2 * _INSET)

    rows, words = [], []
    for shown, (name, line, folds, baseline) in zip(names, lines, strict=True):
        seen = (low <= folds) & (folds <= high)
        dots = zip(map(place, folds[seen]), np.array(_offsets(len(folds)))[seen], strict=True)
        beyond = "low" if line["mean"] < low else "high" if line["mean"] > high else ""
        mean, low_end, high_end = (place(line[part]) for part in ("mean", "low", "high"))
        rows.append(
            Marks(
                shown,
                mean,
                low_end,
                high_end,
                folds=[] if beyond else [(x, float(y)) for x, y in dots],
                apart=bool(line["distinguishable"]),
                baseline=baseline,
                beyond=beyond,
                number=f"{line['mean']:.4g}",
            )
        )
        ends = interval_words(line["low"], line["high"])
        words.append(
            f"{name}{', a baseline' * baseline}: mean {line['mean']:.4g}, "
            + (f"interval {ends}" if ends else "the same score in all folds")
            + ", told apart from the best" * bool(line["distinguishable"])
        )
    ticks = [(place(at), text) for at, text in _ticks(low, high)]
    return DotPlot(left, rows, ticks, "; ".join(words))


def _ends(low: float, high: float) -> tuple[float, float]:
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    half = 0.05 * abs(low) or 0.5
    return low - half, high + half


def _offsets(n: int) -> list[float]:
    return np.linspace(-_SPREAD, _SPREAD, n).tolist() if n > 1 else [0.0]


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers along an axis, three to six of them."""
    least = (high - low) / _TICKS
    power = 10.0 ** np.floor(np.log10(least))
    step = next(power * round_ for round_ in (1, 2, 5, 10) if power * round_ >= least * (1 - 1e-9))
    decimals = max(0, int(-np.floor(np.log10(step) + 1e-9)))
    plain = decimals <= 6 and max(abs(low), abs(high)) < 1e6
    form = f",.{decimals}f" if plain else ".4g"
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    places = np.arange(first, last + 1) * step + 0.0  # no minus before a zero
    return [(float(at), format(at, form)) for at in places]
