"""Charts of columns for a page, and which values of a column may be shown."""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from combutab.preprocessing import find_identifiers

# ---- Choose the values of a table that a page may show: those that enough rows have --------------

_EXACT = 2**53  # floats beyond it are no whole numbers for certain
_FEWEST = 20  # of so few rows all may well be different


def least_rows(min_frequency: float, n_rows: int) -> int:
    """Return the rows that a value needs to be shown: so many, or such a share of ``n_rows``.

    >>> least_rows(5, 1000), least_rows(0.01, 1050), least_rows(0.1, 30)
    (5, 11, 3)
    """
    whole = isinstance(min_frequency, numbers.Integral) and not isinstance(min_frequency, bool)
    if whole and min_frequency >= 1:
        return int(min_frequency)
    if isinstance(min_frequency, float) and 0.0 < min_frequency < 1.0:
        return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little above 3
    raise ValueError(
        "min_frequency must be an integer of at least 1, or a share between 0 and 1, got "
        f"{min_frequency!r}"
    )


def shown_values(real: Sequence[pd.Series], synthetic: pd.Series, least: int) -> pd.Index:
    """Return the values that ``least`` real rows have, or as many synthetic ones if no real row."""
    known = pd.concat([column.dropna().astype(object) for column in real]).value_counts()
    invented = synthetic.dropna().astype(object).value_counts()
    invented = invented[~invented.index.isin(known.index)]
    return pd.Index([*known.index[known >= least], *invented.index[invented >= least]])


def is_identifier(column: pd.Series) -> bool:
    """Tell whether a real column's values name its rows, or nearly all differ though no numbers.

    The column is as aligned.

    >>> is_identifier(pd.Series(range(1000, 1500), dtype=float))
    True
    >>> is_identifier(pd.Series(np.linspace(0.0, 1.0, 500)))
    False
    """
    known = column.dropna()
    kind = column.dtype.kind
    if kind == "f" and (known.abs() < _EXACT).all() and (known == known.round()).all():
        known = known.astype(np.int64)
    if find_identifiers(known) is not None:
        return True
    # of few rows, or of decimals as text: they go with every column all the same
    many = len(known) >= _FEWEST and known.nunique() > 0.5 * len(known)
    return kind not in "fM" and many


# ---- Axes for the values of a column: round numbers, that no row alone decides -------------------

_BINS = 30  # at most, about
_FEW = 20  # values up to which each has a bin of its own
_EDGES = (0.005, 0.05, 0.25)  # of the values, beyond which the axis may end on either side
_FULL_BIN = 1 / 3  # share of a bin from where the axis is too long for the others to be seen
_DAY = 86_400_000_000.0  # microseconds


@dataclass(frozen=True)
class Axis:
    """Edges of bins, with a value's name at some places; ``step`` is the unit of what is told."""

    edges: np.ndarray
    ticks: list[tuple[float, str]]
    step: float
    dates: bool = False

    def counts(self, values: np.ndarray) -> np.ndarray:
        """Values in each bin; those beyond the axis are in the first and the last one."""
        inside = np.clip(values, self.edges[0], self.edges[-1])
        return np.histogram(inside, self.edges)[0]

    def tells(self, *columns: np.ndarray) -> bool:
        """Say whether no bin holds two different values, so that the bins hide no difference."""
        values = np.unique(np.concatenate(columns))
        if len(values) > len(self.edges) + 1:  # before all are looked at
            return False
        return len(np.unique(np.searchsorted(self.edges, values, side="right"))) == len(values)

    def summary(self, values: np.ndarray, least: int) -> str:
        """Say where the middle of the values is and where most are, rounded to the axis' unit."""
        # what lies beyond the axis may be one row's own, also in a synthetic column
        values = np.clip(np.sort(values), self.edges[0], self.edges[-1])
        n = len(values)
        off = min(max(int(0.05 * n), least - 1), (n - 1) // 2)
        low = np.floor(values[off] / self.step) * self.step
        high = np.ceil(values[n - 1 - off] / self.step) * self.step
        middle = np.round(np.median(values) / self.step) * self.step
        name = [label(each, self.step, dates=self.dates) for each in (middle, low, high)]
        return f"median about {name[0]}, most between {name[1]} and {name[2]}"


def make_axis(values: np.ndarray, least: int, *, dates: bool) -> Axis | None:
    """An axis for numbers, or for dates as microseconds; None where too few rows are alike.

    Beyond each end, or at it, are at least ``least`` of the values.
    """
    values = np.sort(values)
    if len(values) < 2 * least or not np.isfinite(values[-1] - values[0]):
        return None
    return _of_few(values, least, dates) or _of_many(values, least, dates)


def label(value: float, step: float, *, dates: bool = False) -> str:
    """A multiple of a step, with the digits that this has.

    >>> label(0.30000000000000004, 0.05), label(12000.0, 500.0), label(2.5e12, 1e11)
    ('0.30', '12,000', '2.5e+12')
    >>> label(86_400_000_000.0, 86_400_000_000.0, dates=True)
    '1970-01-02'
    """
    if dates:
        unit = "D" if step >= _DAY else "s"
        return str(np.datetime64(int(value), "us").astype(f"datetime64[{unit}]"))
    decimals = max(0, int(-np.floor(np.log10(step) + 1e-9)))
    value += 0.0  # no minus before a zero
    if decimals <= 6 and abs(value) < 1e10:
        return f"{value:,.{decimals}f}"
    digits = np.log10(max(abs(value), step) / step) + 1
    return f"{value:.{int(np.clip(digits, 2, 15))}g}"


def _of_few(values: np.ndarray, least: int, dates: bool) -> Axis | None:
    """Counts, grades: a bin a value."""
    inside = values[least - 1 : len(values) - least + 1]
    distinct, counts = np.unique(inside, return_counts=True)
    if not 1 < len(distinct) <= _FEW:
        return None
    gaps = np.diff(distinct)
    # a value at an end has the rows that were cut off as well
    counts[[0, -1]] += least - 1
    frequent = distinct[counts >= least]
    if not np.allclose(gaps, gaps[0]) or not len(frequent):
        return None
    half = gaps[0] / 2
    named = frequent if len(frequent) <= 5 else frequent[[0, len(frequent) // 2, -1]]
    ticks = [
        (float(each), label(each, _last_digit(each, gaps[0], dates), dates=dates)) for each in named
    ]
    return Axis(np.append(distinct - half, distinct[-1] + half), ticks, float(gaps[0]), dates)


def _last_digit(value: float, gap: float, dates: bool) -> float:
    """The digits that an exact value has; of dates those of a day, if it is one."""
    if dates:
        return _DAY if value % _DAY == 0 else 1e6
    for decimals in range(7):
        if np.isclose(value, np.round(value, decimals), rtol=0, atol=1e-9 * gap):
            return float(10.0**-decimals)
    return float(10.0 ** np.floor(np.log10(gap) - 2))


def _of_many(values: np.ndarray, least: int, dates: bool) -> Axis | None:
    n = len(values)
    whole = not dates and bool((values == np.round(values)).all())
    axis = None
    for share in _EDGES:
        off = max(int(share * n), least - 1)
        low, high = values[off], values[n - 1 - off]
        if off >= n - 1 - off or not low < high:
            break
        axis = _even(low, high, whole=whole, dates=dates)
        if axis.counts(values).max() <= _FULL_BIN * n:
            break
    return axis


def _even(low: float, high: float, *, whole: bool, dates: bool) -> Axis:
    """Bins of one width, a round one, that hold as many whole numbers each if all are whole."""
    unit = _DAY if dates and high - low >= 5 * _DAY else 1e6 if dates else 1.0
    step = unit * _round_up((high - low) / _BINS / unit)
    if whole or dates:
        step = max(step, unit)
    first = np.floor(low / step)
    n_bins = int(max(np.floor(high / step) - first + 1, 2))
    start = first * step
    edges = start + step * np.arange(n_bins + 1) - (0.5 if whole else 0.0)
    places = [0, n_bins // 2, n_bins - 1 if whole and step == 1 else n_bins]
    named = [start + step * place for place in places]
    return Axis(edges, [(at, label(at, step, dates=dates)) for at in named], step, dates)


def _round_up(value: float) -> float:
    """Round a number up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * each for each in (1, 2, 5, 10) if power * each >= value * (1 - 1e-9)))


# ---- Charts of a page: shares of values, as coordinates and words; names as far as there is room

WIDTH, HEIGHT = 320, 110  # of a histogram's drawing area, in SVG units
_CATEGORIES = 8  # bars of categories; the others are one more
_NAMES = 122  # units that a category's name may take
_MASS = 0.05  # share of the rows, in either table, from which one number is a bar of its own
_MASSES = 6  # such bars, at most
# Advances of letters at 12 pixels, at most, in DejaVu Sans: the widest of the fonts of a page
_NARROW = dict.fromkeys("fijlrtIJ .,:;'\"|!/\\()[]-`_*", 6.1)
_WIDE = dict.fromkeys("w#+<=>^~&ABCDGHKNOQRUVXZ", 10.2)
_WIDEST = dict.fromkeys("mMW@%…", 12.0)
_ADVANCES = _NARROW | _WIDE | _WIDEST
_HEAD = 0.6  # of the room, for a name's start
_OTHERS, _FULL = 7.7, 15.0  # letters and digits; signs as wide as high, such as 中


@dataclass(frozen=True)
class Bar:
    """Real and synthetic share of one value; ``short`` is its name as far as there is room."""

    name: str
    short: str
    real: float
    synthetic: float


@dataclass(frozen=True)
class Histogram:
    """Real and synthetic shares of one column's numbers.

    ``bars`` are of single values that many rows have, and of all others together; ``real`` and
    ``synthetic``, of the others, are SVG paths in an area of `WIDTH` x `HEIGHT`, "" where there
    are too few; ``ticks`` are positions along it and what stands there; ``words`` say the same
    without the picture.
    """

    bars: list[Bar]
    real: str
    synthetic: str
    ticks: list[tuple[float, str]]
    words: str

    @property
    def largest(self) -> float:
        """The longest bar."""
        return max((max(bar.real, bar.synthetic) for bar in self.bars), default=1.0)


@dataclass(frozen=True)
class Bars:
    """Shares of the categories, the most frequent first; ``largest`` is the longest bar."""

    bars: list[Bar]
    largest: float
    words: str


def histogram(
    real: pd.Series, synthetic: pd.Series, others: Sequence[pd.Series] = (), *, least: int
) -> Histogram | None:
    """Draw the shares of numbers or datetimes; None if there are too few of them.

    The rows of ``others``, the column in other real tables, count as well. A value of fewer than
    ``least`` rows is not named; as many are in a bin of the real ones, or none.

    Single numbers that many rows have, such as zeros, are bars of their own unless each bin holds
    one number: otherwise zeros and small numbers would look alike. What lies beyond the axis is
    counted in the first and the last bin.
    """
    dates = real.dtype.kind == "M"
    a, b = (_present_numbers(column) for column in (real, synthetic))
    if len(a) < 2 * least or not len(b):
        return None
    axis = make_axis(a, least, dates=dates)
    if axis is not None and axis.tells(a, b):
        return _outlined(a, b, axis, least)
    named = _masses(a, b, [_present_numbers(column) for column in others], least)
    if not len(named):
        return None if axis is None else _outlined(a, b, axis, least)
    n_real, n_synthetic = len(a), len(b)
    bars = [
        Bar(name, name, float((a == value).mean()), float((b == value).mean()))
        for value in named
        for name in [_value_name(value, dates=dates)]
    ]
    a, b = a[~np.isin(a, named)], b[~np.isin(b, named)]
    if len(a) or len(b):
        rest = "all other values"
        bars.append(Bar(rest, rest, len(a) / n_real, len(b) / n_synthetic))
    axis = make_axis(a, least, dates=dates) if len(b) else None
    drawn = Histogram([], "", "", [], "") if axis is None else _outlined(a, b, axis, least)
    words = [_bars_in_words(bars)] + [f"of the others, {drawn.words}"] * bool(drawn.words)
    return replace(drawn, bars=bars, words="; ".join(words))


def category_bars(
    real: pd.Series, synthetic: pd.Series, others: Sequence[pd.Series] = (), *, least: int
) -> Bars | None:
    """Draw the shares of categories, as `histogram`; None if no category may be named.

    Missing values are one of them. Those that cannot be named are one more, as are those that there
    is no room for.
    """
    if not len(real) or not len(synthetic):
        return None
    named = {str(value) for value in shown_values([real, *others], synthetic, least)}
    p, q = (_value_shares(column) for column in (real, synthetic))
    table = pd.DataFrame({"real": p, "synthetic": q}).fillna(0.0)
    table = table.sort_values(["real", "synthetic"], ascending=False, kind="stable")
    may = np.array([missing or name in named for missing, name in table.index])
    if not may.any():
        return None
    shown, rest = table[may], table[~may]
    if len(rest) + len(shown) - _CATEGORIES > 1:  # with one alone, there is room for it
        rest = pd.concat([shown.iloc[_CATEGORIES:], rest])
        shown = shown.iloc[:_CATEGORIES]
    bars = [
        Bar(name, shorten_middle(name, _NAMES), float(real_share), float(synthetic_share))
        for (_, name), real_share, synthetic_share in zip(
            shown.index.tolist(), shown["real"], shown["synthetic"], strict=True
        )
    ]
    if len(rest):
        other = f"other ({len(rest):,} {'value' if len(rest) == 1 else 'values'})"
        bars.append(Bar(other, other, float(rest["real"].sum()), float(rest["synthetic"].sum())))
    return Bars(bars, max(max(bar.real, bar.synthetic) for bar in bars), _bars_in_words(bars))


def text_width(text: str) -> float:
    """Return the width that a text of 12 pixels has at most, in pixels.

    >>> text_width("relu") < text_width("RELU") < text_width("WWWW")
    True
    """
    return sum(map(_advance, text))


def shorten_middle(name: str, room: float) -> str:
    """Shorten a name of 12 pixels to a width, with an ellipsis for its middle.

    Names of columns often begin alike and differ in their ends.

    >>> shorten_middle("median_income", 110), shorten_middle("median_house_value", 110)
    ('median_income', 'median_…value')
    """
    if text_width(name) <= room:
        return name
    room -= _advance("…")
    head = _start(name, _HEAD * room)
    tail = _start(name[::-1], room - text_width(head))[::-1]
    return f"{head}…{tail}"


# ---- parts -------------------------------------------------------------------------------------


def _masses(a: np.ndarray, b: np.ndarray, others: list[np.ndarray], least: int) -> np.ndarray:
    """Numbers that so many rows have that a bin would hide what is beside them, in order."""
    tables = []
    for values in (a, b):
        distinct, counts = np.unique(values, return_counts=True)
        often = counts >= max(_MASS * len(values), 2)
        tables.append(pd.Series(counts[often] / len(values), index=distinct[often]))
    shares = pd.concat(tables, axis=1).fillna(0.0).max(axis=1)
    shares = shares[
        shares.index.isin(shown_values([*map(pd.Series, (a, *others))], pd.Series(b), least))
    ]
    return np.sort(shares.nlargest(_MASSES).index.to_numpy(dtype=float))


def _outlined(a: np.ndarray, b: np.ndarray, axis: Axis, least: int) -> Histogram:
    """Draw both outlines, with bins of too few real rows taken together with others."""
    edges = axis.edges
    counts, synthetic = axis.counts(a), axis.counts(b)
    starts = _bin_groups(counts, least)
    ends = np.append(starts[1:], len(counts))
    heights = [
        np.add.reduceat(each, starts) / each.sum() / (ends - starts) for each in (counts, synthetic)
    ]
    top = max(each.max() for each in heights)
    along = (edges - edges[0]) / (edges[-1] - edges[0]) * WIDTH
    x = np.append(along[starts], along[-1])
    real_path, synthetic_path = (_outline(x, each / top * HEIGHT) for each in heights)
    places = [
        (float((at - edges[0]) / (edges[-1] - edges[0]) * WIDTH), text) for at, text in axis.ticks
    ]
    words = f"real: {axis.summary(a, least)}; synthetic: {axis.summary(b, least)}"
    return Histogram([], f"{real_path}Z", synthetic_path, places, words)


def _bin_groups(counts: np.ndarray, least: int) -> np.ndarray:
    """Group neighbouring bins so that each holds no row or at least so many; return the starts."""
    starts, n = [], 0
    for place, count in enumerate(counts):
        if not 0 < n < least:  # the group before is complete
            starts.append(place)
            n = 0
        n += int(count)
    while 0 < n < least and len(starts) > 1:
        end = starts.pop()
        n += int(counts[starts[-1] : end].sum())
    return np.array(starts)


def _value_name(value: float, *, dates: bool) -> str:
    if dates:
        return label(value, 1e6, dates=True).removesuffix("T00:00:00")
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.6g}"


def _bars_in_words(bars: Sequence[Bar]) -> str:
    return "; ".join(
        f"{bar.name}: {bar.real:.1%} real, {bar.synthetic:.1%} synthetic" for bar in bars
    )


def _present_numbers(column: pd.Series) -> np.ndarray:
    present = column.dropna()
    if present.dtype.kind == "M":
        return present.to_numpy().astype("datetime64[us]").astype(np.int64).astype(float)
    return present.to_numpy(dtype=float)


def _outline(x: np.ndarray, heights: np.ndarray) -> str:
    """The outline of bars, as an SVG path; from and to the ground."""
    y = HEIGHT - heights
    corners = [f"M{x[0]:.1f} {HEIGHT}"]
    corners += [f"V{top:.1f}H{right:.1f}" for top, right in zip(y, x[1:], strict=True)]
    return "".join([*corners, f"V{HEIGHT}"])


def _value_shares(column: pd.Series) -> pd.Series:
    """Return the share of each value, by whether it is missing and its name."""
    counts: Any = column.value_counts(normalize=True, dropna=False)
    counts = counts[counts > 0]
    counts.index = pd.MultiIndex.from_tuples(
        [(True, "(missing)") if pd.isna(name) else (False, str(name)) for name in counts.index]
    )
    return counts.groupby(level=[0, 1], sort=False).sum()


def _start(name: str, room: float) -> str:
    widths = accumulate(map(_advance, name))
    return name[: sum(width <= room for width in widths)]


def _advance(letter: str) -> float:
    if letter in _ADVANCES:
        return _ADVANCES[letter]
    if letter.isascii() or unicodedata.category(letter) in {"Ll", "Mn"}:
        return _OTHERS
    return _FULL
