"""What the charts of a page show: shares of values, as coordinates and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ._labels import shortened
from ._page import number

WIDTH, HEIGHT = 320, 110  # of a histogram's drawing area, in SVG units
_BINS = 30
_FEW = 20  # values up to which each has a bin of its own
_EDGE = 0.005  # of the real values beyond which the axis ends, on either side
_CATEGORIES = 8  # bars of categories; the others are one more
_NAMES = 122  # units that a category's name may take


@dataclass(frozen=True)
class Histogram:
    """Real and synthetic shares of one column's values along an axis.

    ``real`` and ``made`` are SVG paths in an area of `WIDTH` x `HEIGHT`; ``ticks`` are positions
    along it and what stands there; ``words`` say the same without the picture.
    """

    real: str
    made: str
    ticks: list[tuple[float, str]]
    words: str


@dataclass(frozen=True)
class Bar:
    """Real and synthetic share of one category; ``short`` is its name as far as there is room."""

    name: str
    short: str
    real: float
    made: float


@dataclass(frozen=True)
class Bars:
    """Shares of the categories, the most frequent first; ``largest`` is the longest bar."""

    bars: list[Bar]
    largest: float
    words: str


def histogram(real: pd.Series, made: pd.Series) -> Histogram | None:
    """Of numbers or datetimes; None if the real column, or the other one, has no value.

    The axis holds all but the outermost half percent of the real values on either side; what lies
    beyond is counted in the first and the last bin.
    """
    dates = real.dtype.kind == "M"
    a, b = (_numbers(column) for column in (real, made))
    if not len(a) or not len(b):
        return None
    edges, ticks = _edges(a)
    shares = [np.histogram(np.clip(each, edges[0], edges[-1]), edges)[0] for each in (a, b)]
    p, q = (counts / counts.sum() for counts in shares)
    top = max(p.max(), q.max())
    x = (edges - edges[0]) / (edges[-1] - edges[0]) * WIDTH
    name = _date if dates else number
    places = [
        (float((tick - edges[0]) / (edges[-1] - edges[0]) * WIDTH), name(tick)) for tick in ticks
    ]
    words = "; ".join(
        f"{whose}: median {name(np.median(each))}, 90 % between {name(np.quantile(each, 0.05))} "
        f"and {name(np.quantile(each, 0.95))}"
        for whose, each in (("real", a), ("synthetic", b))
    )
    return Histogram(
        _steps(x, p / top * HEIGHT, closed=True), _steps(x, q / top * HEIGHT), places, words
    )


def category_bars(real: pd.Series, made: pd.Series) -> Bars | None:
    """Of a column of categories; None if either column is empty. Missing values are one of them."""
    if not len(real) or not len(made):
        return None
    p, q = (_shares(column) for column in (real, made))
    table = pd.DataFrame({"real": p, "made": q}).fillna(0.0)
    table = table.sort_values(["real", "made"], ascending=False, kind="stable")
    rest = table.iloc[_CATEGORIES:]
    if len(rest) > 1:
        table = table.iloc[:_CATEGORIES]
    bars = [
        Bar(str(name), shortened(str(name), _NAMES), float(row["real"]), float(row["made"]))
        for name, row in table.iterrows()
    ]
    if len(rest) > 1:
        others = f"{len(rest):,} others"
        bars.append(Bar(others, others, float(rest["real"].sum()), float(rest["made"].sum())))
    words = "; ".join(f"{bar.name}: {bar.real:.1%} real, {bar.made:.1%} synthetic" for bar in bars)
    return Bars(bars, max(max(bar.real, bar.made) for bar in bars), words)


# ---- axes --------------------------------------------------------------------------------------


def _edges(values: np.ndarray) -> tuple[np.ndarray, Sequence[float]]:
    """Edges of the bins, and where numbers stand below them."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        half = max(abs(distinct[0]) * 0.05, 0.5)
        return np.linspace(distinct[0] - half, distinct[0] + half, 4), distinct.tolist()
    gaps = np.diff(distinct)
    even = np.allclose(gaps, gaps[0])
    if len(distinct) <= _FEW and even:  # counts, grades: a bin a value
        half = gaps[0] / 2
        ticks = distinct if len(distinct) <= 5 else distinct[[0, len(distinct) // 2, -1]]
        return np.append(distinct - half, distinct[-1] + half), ticks.tolist()
    low, high = np.quantile(values, [_EDGE, 1 - _EDGE])
    if low == high:
        low, high = distinct[0], distinct[-1]
    if (distinct == np.round(distinct)).all() and high - low >= _FEW:  # as many numbers in each bin
        step = np.ceil((high - low + 1) / _BINS)
        edges = low - 0.5 + step * np.arange(np.ceil((high - low + 1) / step) + 1)
        return edges, [low, (low + high) // 2, high]
    return np.linspace(low, high, _BINS + 1), [low, (low + high) / 2, high]


def _numbers(column: pd.Series) -> np.ndarray:
    present = column.dropna()
    if present.dtype.kind == "M":
        return present.to_numpy().astype("datetime64[us]").astype(np.int64).astype(float)
    return present.to_numpy(dtype=float)


def _date(microseconds: float) -> str:
    return str(np.datetime64(int(microseconds), "us").astype("datetime64[D]"))


def _steps(x: np.ndarray, heights: np.ndarray, *, closed: bool = False) -> str:
    """The outline of bars, as an SVG path; from and to the ground."""
    y = HEIGHT - heights
    corners = [f"M{x[0]:.1f} {HEIGHT}"]
    corners += [f"V{top:.1f}H{right:.1f}" for top, right in zip(y, x[1:], strict=True)]
    return "".join([*corners, f"V{HEIGHT}", "Z" * closed])


def _shares(column: pd.Series) -> pd.Series:
    counts = column.value_counts(normalize=True, dropna=False)
    counts = counts[counts > 0]
    counts.index = pd.Index(
        ["(missing)" if pd.isna(name) else str(name) for name in counts.index], dtype=object
    )
    return counts.groupby(level=0).sum()
