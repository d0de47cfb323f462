"""Charts of columns for a page, and which values of a column may be shown."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from combutab.preprocessing import find_identifiers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    ticks = [(float(each), _value_name(each, dates=dates)) for each in named]
    return Axis(np.append(distinct - half, distinct[-1] + half), ticks, float(gaps[0]), dates)


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
    from matplotlib.ticker import MaxNLocator

    unit = _DAY if dates and high - low >= 5 * _DAY else 1e6 if dates else 1.0
    if not (whole or dates):  # the locator takes a range below 1e-13 for none
        unit = max(10.0 ** math.floor(math.log10(high - low)), 1e-320)
    locator = MaxNLocator(_BINS, steps=[1, 2, 5, 10], integer=whole or dates)
    edges = unit * np.asarray(locator.tick_values(low / unit, high / unit + whole))
    step = float(edges[1] - edges[0])
    named = edges[[0, len(edges) // 2, -2 if whole else -1]]
    ticks = [(float(at), label(at, step, dates=dates)) for at in named]
    return Axis(edges - 0.5 * whole, ticks, step, dates)


# ---- Charts of a page: shares of single values, and histograms -----------------------------------

_CATEGORIES = 8  # bars of categories; the others are one more
_MASS = 0.05  # share of the rows, in either table, from which one number is a bar of its own
_MASSES = 6  # such bars, at most
_LETTERS = 42  # below a histogram
REAL, REAL_AREA, SYNTHETIC = "#0b66a8", "#9cc7e6", "#b34700"  # the page has them darker or lighter


class Bar(NamedTuple):
    """Real and synthetic share of one value."""

    name: str
    real: float
    synthetic: float


@dataclass(frozen=True)
class Outlines:
    """Real and synthetic density in bins, and what they show in words."""

    edges: np.ndarray
    real: np.ndarray
    synthetic: np.ndarray
    ticks: list[tuple[float, str]]
    words: str

    def draw(self) -> Figure:
        """Draw the real outline filled, the synthetic one as a line."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(3.54, 1.5))
        axes = figure.add_axes((0.03, 0.18, 0.94, 0.8))
        low, high = self.edges[[0, -1]]
        along = (self.edges - low) / (high - low)  # numbers of any size
        ticks = self.ticks
        if sum(len(name) for _, name in ticks) > _LETTERS:  # would lie on one another
            ticks = [ticks[0], ticks[-1]]
        places = [(at - low) / (high - low) for at, _ in ticks]
        axes.stairs(self.real, along, fill=True, fc=REAL_AREA, ec=REAL, lw=0.8)
        axes.stairs(self.synthetic, along, color=SYNTHETIC, linewidth=1.5)
        axes.set(xlim=(0, 1), ylim=(0, None), yticks=[])
        axes.set_xticks(places, [name for _, name in ticks], fontsize=9)
        axes.spines[["left", "top", "right"]].set_visible(False)
        for place, text in zip(places, axes.get_xticklabels(), strict=True):
            text.set_horizontalalignment(
                "left" if place < 0.1 else "right" if place > 0.9 else "center"
            )
        return figure


@dataclass(frozen=True)
class Chart:
    """Real and synthetic shares of one column's values.

    ``bars`` are of single values that many rows have, the most frequent categories first, and of
    all others together; ``outlines`` of the other numbers, None where these are too few.
    """

    bars: list[Bar]
    outlines: Outlines | None = None

    @property
    def largest(self) -> float:
        """The longest bar."""
        return max(max(bar.real, bar.synthetic) for bar in self.bars)


def histogram(
    real: pd.Series, synthetic: pd.Series, others: Sequence[pd.Series] = (), *, least: int
) -> Chart | None:
    """Return the shares of numbers or datetimes; None if there are too few of them.

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
        return Chart([], _outlines(a, b, axis, least))
    named = _masses(a, b, [_present_numbers(column) for column in others], least)
    if not len(named):
        return None if axis is None else Chart([], _outlines(a, b, axis, least))
    n_real, n_synthetic = len(a), len(b)
    bars = [
        Bar(_value_name(value, dates=dates), float((a == value).mean()), float((b == value).mean()))
        for value in named
    ]
    a, b = a[~np.isin(a, named)], b[~np.isin(b, named)]
    if len(a) or len(b):
        bars.append(Bar("all other values", len(a) / n_real, len(b) / n_synthetic))
    axis = make_axis(a, least, dates=dates) if len(b) else None
    return Chart(bars, None if axis is None else _outlines(a, b, axis, least))


def category_bars(
    real: pd.Series, synthetic: pd.Series, others: Sequence[pd.Series] = (), *, least: int
) -> Chart | None:
    """Return the shares of categories, as `histogram`; None if no category may be named.

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
    bars = [Bar(name, *shares) for (_, name), *shares in shown.itertuples()]
    if len(rest):
        other = f"other ({len(rest):,} {'value' if len(rest) == 1 else 'values'})"
        bars.append(Bar(other, float(rest["real"].sum()), float(rest["synthetic"].sum())))
    return Chart(bars)


def shorten_middle(name: str, most: int) -> str:
    """Shorten a name to so many letters, with an ellipsis for its middle.

    Names of columns often begin alike and differ in their ends.

    >>> shorten_middle("median_income", 14), shorten_middle("median_house_value", 14)
    ('median_income', 'median_h…value')
    """
    if len(name) <= most:
        return name
    tail = most * 2 // 5
    return f"{name[: most - tail - 1]}…{name[-tail:]}"


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


def _outlines(a: np.ndarray, b: np.ndarray, axis: Axis, least: int) -> Outlines:
    """Both outlines, with bins of too few real rows taken together with others."""
    counts = axis.counts(a)
    starts = _bin_groups(counts, least)
    widths = np.diff(starts, append=len(counts))
    real, synthetic = (
        np.add.reduceat(each, starts) / each.sum() / widths for each in (counts, axis.counts(b))
    )
    words = f"real: {axis.summary(a, least)}; synthetic: {axis.summary(b, least)}"
    return Outlines(
        np.append(axis.edges[starts], axis.edges[-1]), real, synthetic, axis.ticks, words
    )


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


def _present_numbers(column: pd.Series) -> np.ndarray:
    present = column.dropna()
    if present.dtype.kind == "M":
        return present.to_numpy().astype("datetime64[us]").astype(np.int64).astype(float)
    return present.to_numpy(dtype=float)


def _value_shares(column: pd.Series) -> pd.Series:
    """Return the share of each value, by whether it is missing and its name."""
    counts: Any = column.value_counts(normalize=True, dropna=False)
    counts = counts[counts > 0]
    counts.index = pd.MultiIndex.from_tuples(
        [(True, "(missing)") if pd.isna(name) else (False, str(name)) for name in counts.index]
    )
    return counts.groupby(level=[0, 1], sort=False).sum()
