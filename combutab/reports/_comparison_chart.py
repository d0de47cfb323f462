"""Where the marks of a comparison's dot plot stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ._labels import shortened, text_width

WIDTH = 420  # of the drawing area, in SVG units
ROW = 34  # an activation's height
_NAMES = 136  # units that names may take beside it
_INSET = 8  # marks at the ends of the axis have room
_SPREAD = 9  # units that the folds of a row are spread over, up and down
_TICKS = 6  # at most


@dataclass(frozen=True)
class Marks:
    """One activation's row: positions along the axis, and of each fold also down the row."""

    name: str
    mean: float
    low: float
    high: float
    folds: list[tuple[float, float]]
    apart: bool


@dataclass(frozen=True)
class DotPlot:
    """Means with intervals and the folds as dots, the best activation on top.

    The names stand in ``left`` units beside the drawing area; ``words`` say what the picture does.
    """

    left: int
    rows: list[Marks]
    ticks: list[tuple[float, str]]
    words: str


def dot_plot(results: pd.DataFrame, summary: pd.DataFrame, metric: str) -> DotPlot:
    """Of a comparison's results and summary.

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
    scores = results.groupby(["activation", "fold"])[metric].mean()
    by_name = {name: scores[name].to_numpy() for name in summary["activation"]}
    values = np.concatenate([*by_name.values(), summary["low"], summary["high"]])
    low, high = _ends(values)
    names = {name: shortened(str(name), _NAMES) for name in by_name}
    left = round(max(map(text_width, names.values()))) + 12

    def place(value: float) -> float:
        share = (value - low) / (high - low)
        return left + _INSET + float(share) * (WIDTH - 2 * _INSET)

    rows, words = [], []
    for _, line in summary.iterrows():
        name, folds = line["activation"], by_name[line["activation"]]
        dots = zip(map(place, folds), _offsets(len(folds)), strict=True)
        mean, low_end, high_end = (place(line[part]) for part in ("mean", "low", "high"))
        apart = bool(line["distinguishable"])
        rows.append(Marks(names[name], mean, low_end, high_end, list(dots), apart))
        words.append(
            f"{name}: mean {line['mean']:.4g}, interval {line['low']:.4g} to {line['high']:.4g}"
            + ", told apart from the best" * apart
        )
    ticks = [(place(at), text) for at, text in _ticks(low, high)]
    return DotPlot(left, rows, ticks, "; ".join(words))


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
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
