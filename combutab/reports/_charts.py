"""Charts of columns for a page, and which values of a column may be shown."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ---- Values that a page may show: those of enough rows -------------------------------------------


def least_rows(min_frequency: float, n_rows: int) -> int:
    """Number of rows that a value needs to be shown, from a number or a share of ``n_rows``.

    >>> least_rows(5, 1000), least_rows(0.01, 1050), least_rows(0.1, 30)
    (5, 11, 3)
    """
    is_count = isinstance(min_frequency, numbers.Integral) and not isinstance(min_frequency, bool)
    if is_count and min_frequency >= 1:
        return int(min_frequency)
    if isinstance(min_frequency, float) and 0.0 < min_frequency < 1.0:
        return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little above 3
    raise ValueError(
        "min_frequency must be an integer of at least 1, or a share between 0 and 1, got "
        f"{min_frequency!r}"
    )


def shown_values(real: Sequence[pd.Series], synthetic: pd.Series, min_rows: int) -> pd.Index:
    """Values of ``min_rows`` or more real rows, or of no real row and as many synthetic rows."""
    counts = pd.concat([column.dropna().astype(object) for column in real]).value_counts()
    invented = synthetic.dropna().astype(object).value_counts()
    invented = invented[~invented.index.isin(counts.index)]
    return pd.Index([*counts.index[counts >= min_rows], *invented.index[invented >= min_rows]])


# ---- Axes for the values of a column: round numbers that do not depend on a single row ----------

_BINS = 30  # at most, about
_FEW = 20  # values up to which each one has its own bin
_EDGES = (0.005, 0.05, 0.25)  # of the values, beyond which the axis may end on either side
_FULL_BIN = 1 / 3  # share of a bin from where the axis is too long for the others to be seen
_DAY = 86_400_000_000.0  # microseconds


@dataclass(frozen=True)
class Axis:
    """Edges of bins, with labels of some values; ``step`` is the unit of shown numbers."""

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

    def summary(self, values: np.ndarray, min_rows: int) -> str:
        """Say where the middle of the values is and where most are, rounded to the axis' unit."""
        # values beyond the axis may identify a row, also in a synthetic column
        values = np.clip(np.sort(values), self.edges[0], self.edges[-1])
        n = len(values)
        off = min(max(int(0.05 * n), min_rows - 1), (n - 1) // 2)
        low = np.floor(values[off] / self.step) * self.step
        high = np.ceil(values[n - 1 - off] / self.step) * self.step
        middle = np.round(np.median(values) / self.step) * self.step
        name = [label(number, self.step, dates=self.dates) for number in (middle, low, high)]
        return f"median about {name[0]}, most between {name[1]} and {name[2]}"


def make_axis(values: np.ndarray, min_rows: int, *, dates: bool) -> Axis | None:
    """An axis for numbers, or for dates as microseconds; None if too few rows have similar values.

    At least ``min_rows`` values lie at or beyond each end.
    """
    values = np.sort(values)
    if len(values) < 2 * min_rows or not np.isfinite(values[-1] - values[0]):
        return None
    return _of_few(values, min_rows, dates) or _of_many(values, min_rows, dates)


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


def _of_few(values: np.ndarray, min_rows: int, dates: bool) -> Axis | None:
    """Axis of a few equidistant values, such as counts and grades: one bin per value."""
    inside = values[min_rows - 1 : len(values) - min_rows + 1]
    distinct, counts = np.unique(inside, return_counts=True)
    if not 1 < len(distinct) <= _FEW:
        return None
    gaps = np.diff(distinct)
    # a value at an end has the rows that were cut off as well
    counts[[0, -1]] += min_rows - 1
    frequent = distinct[counts >= min_rows]
    if not np.allclose(gaps, gaps[0]) or not len(frequent):
        return None
    half = gaps[0] / 2
    labelled = frequent if len(frequent) <= 5 else frequent[[0, len(frequent) // 2, -1]]
    ticks = [(float(value), _value_name(value, dates=dates)) for value in labelled]
    return Axis(np.append(distinct - half, distinct[-1] + half), ticks, float(gaps[0]), dates)


def _of_many(values: np.ndarray, min_rows: int, dates: bool) -> Axis | None:
    n = len(values)
    is_whole = not dates and bool((values == np.round(values)).all())
    axis = None
    for share in _EDGES:
        off = max(int(share * n), min_rows - 1)
        low, high = values[off], values[n - 1 - off]
        if off >= n - 1 - off or not low < high:
            break
        axis = _even(low, high, is_whole=is_whole, dates=dates)
        if axis.counts(values).max() <= _FULL_BIN * n:
            break
    return axis


def _even(low: float, high: float, *, is_whole: bool, dates: bool) -> Axis:
    """Bins of one round width, which contain equally many integers if all values are integers."""
    from matplotlib.ticker import MaxNLocator

    unit = _DAY if dates and high - low >= 5 * _DAY else 1e6 if dates else 1.0
    if not (is_whole or dates):  # the locator takes a range below 1e-13 for none
        unit = max(10.0 ** math.floor(math.log10(high - low)), 1e-320)
    locator = MaxNLocator(_BINS, steps=[1, 2, 5, 10], integer=is_whole or dates)
    edges = unit * np.asarray(locator.tick_values(low / unit, high / unit + is_whole))
    step = float(edges[1] - edges[0])
    labelled = edges[[0, len(edges) // 2, -2 if is_whole else -1]]
    ticks = [(float(at), label(at, step, dates=dates)) for at in labelled]
    return Axis(edges - 0.5 * is_whole, ticks, step, dates)


# ---- Charts of a page: shares of single values, and histograms -----------------------------------

_CATEGORIES = 8  # bars of categories; the others are one more
_MASS = 0.05  # share of the rows, in either table, from which a single number has its own bar
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
    """Real and synthetic density in bins, and a description."""

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
        positions = [(at - low) / (high - low) for at, _ in ticks]
        axes.stairs(self.real, along, fill=True, fc=REAL_AREA, ec=REAL, lw=0.8)
        axes.stairs(self.synthetic, along, color=SYNTHETIC, linewidth=1.5)
        axes.set(xlim=(0, 1), ylim=(0, None), yticks=[])
        axes.set_xticks(positions, [name for _, name in ticks], fontsize=9)
        axes.spines[["left", "top", "right"]].set_visible(False)
        for position, text in zip(positions, axes.get_xticklabels(), strict=True):
            text.set_horizontalalignment(
                "left" if position < 0.1 else "right" if position > 0.9 else "center"
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
    real: pd.Series, synthetic: pd.Series, other_columns: Sequence[pd.Series] = (), *, min_rows: int
) -> Chart | None:
    """Return the shares of numbers or datetimes; None if there are too few of them.

    The rows of ``others``, the column in other real tables, count as well. A value of fewer than
    ``min_rows`` rows is not named. A bin has no real rows, or at least ``min_rows``.

    Single numbers that many rows have, such as zeros, are separate bars unless each bin has only
    one number. Otherwise zeros and small numbers could not be distinguished. Values beyond the axis
    are counted in the first and the last bin.
    """
    dates = real.dtype.kind == "M"
    a, b = (_present_numbers(column) for column in (real, synthetic))
    if len(a) < 2 * min_rows or not len(b):
        return None
    axis = make_axis(a, min_rows, dates=dates)
    if axis is not None and axis.tells(a, b):
        return Chart([], _outlines(a, b, axis, min_rows))
    single_values = _masses(a, b, [_present_numbers(column) for column in other_columns], min_rows)
    if not len(single_values):
        return None if axis is None else Chart([], _outlines(a, b, axis, min_rows))
    n_real, n_synthetic = len(a), len(b)
    bars = [
        Bar(_value_name(value, dates=dates), float((a == value).mean()), float((b == value).mean()))
        for value in single_values
    ]
    a, b = a[~np.isin(a, single_values)], b[~np.isin(b, single_values)]
    if len(a) or len(b):
        bars.append(Bar("all other values", len(a) / n_real, len(b) / n_synthetic))
    axis = make_axis(a, min_rows, dates=dates) if len(b) else None
    return Chart(bars, None if axis is None else _outlines(a, b, axis, min_rows))


def category_bars(
    real: pd.Series, synthetic: pd.Series, other_columns: Sequence[pd.Series] = (), *, min_rows: int
) -> Chart | None:
    """Return the shares of categories, as `histogram`; None if no category may be named.

    Missing values are a category. Categories that cannot be named, or for which there is no room,
    are one bar.
    """
    if not len(real) or not len(synthetic):
        return None
    frequent_names = {
        str(value) for value in shown_values([real, *other_columns], synthetic, min_rows)
    }
    p, q = (_value_shares(column) for column in (real, synthetic))
    table = pd.DataFrame({"real": p, "synthetic": q}).fillna(0.0)
    table = table.sort_values(["real", "synthetic"], ascending=False, kind="stable")
    may = np.array([missing or name in frequent_names for missing, name in table.index])
    if not may.any():
        return None
    kept_rows, grouped = table[may], table[~may]
    if len(grouped) + len(kept_rows) - _CATEGORIES > 1:  # a single one has room
        grouped = pd.concat([kept_rows.iloc[_CATEGORIES:], grouped])
        kept_rows = kept_rows.iloc[:_CATEGORIES]
    bars = [Bar(name, *shares) for (_, name), *shares in kept_rows.itertuples()]
    if len(grouped):
        group_name = f"other ({len(grouped):,} {'value' if len(grouped) == 1 else 'values'})"
        bars.append(
            Bar(group_name, float(grouped["real"].sum()), float(grouped["synthetic"].sum()))
        )
    return Chart(bars)


def shorten_middle(name: str, max_length: int) -> str:
    """Shorten a name to a number of letters, with an ellipsis in its middle.

    Names of columns often begin alike and differ in their ends.

    >>> shorten_middle("median_income", 14), shorten_middle("median_house_value", 14)
    ('median_income', 'median_h…value')
    """
    if len(name) <= max_length:
        return name
    tail = max_length * 2 // 5
    return f"{name[: max_length - tail - 1]}…{name[-tail:]}"


# ---- parts -------------------------------------------------------------------------------------


def _masses(
    a: np.ndarray, b: np.ndarray, other_values: list[np.ndarray], min_rows: int
) -> np.ndarray:
    """Frequent single numbers, in order; in a bin they would hide their neighbours."""
    tables = []
    for values in (a, b):
        distinct, counts = np.unique(values, return_counts=True)
        often = counts >= max(_MASS * len(values), 2)
        tables.append(pd.Series(counts[often] / len(values), index=distinct[often]))
    shares = pd.concat(tables, axis=1).fillna(0.0).max(axis=1)
    shares = shares[
        shares.index.isin(
            shown_values([*map(pd.Series, (a, *other_values))], pd.Series(b), min_rows)
        )
    ]
    return np.sort(shares.nlargest(_MASSES).index.to_numpy(dtype=float))


def _outlines(a: np.ndarray, b: np.ndarray, axis: Axis, min_rows: int) -> Outlines:
    """Both outlines, with bins of too few real rows taken together with others."""
    counts = axis.counts(a)
    starts = _bin_groups(counts, min_rows)
    widths = np.diff(starts, append=len(counts))
    real, synthetic = (
        np.add.reduceat(bin_counts, starts) / bin_counts.sum() / widths
        for bin_counts in (counts, axis.counts(b))
    )
    words = f"real: {axis.summary(a, min_rows)}; synthetic: {axis.summary(b, min_rows)}"
    return Outlines(
        np.append(axis.edges[starts], axis.edges[-1]), real, synthetic, axis.ticks, words
    )


def _bin_groups(counts: np.ndarray, min_rows: int) -> np.ndarray:
    """Merge neighbouring bins until each has no rows or ``min_rows``; returns the starts."""
    starts, n = [], 0
    for position, count in enumerate(counts):
        if not 0 < n < min_rows:  # the group before is complete
            starts.append(position)
            n = 0
        n += int(count)
    while 0 < n < min_rows and len(starts) > 1:
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
