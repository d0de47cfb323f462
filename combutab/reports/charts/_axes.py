"""Axes for the values of a column: round numbers, that no row alone decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BINS = 30  # at most, about
_FEW = 20  # values up to which each has a bin of its own
_EDGES = (0.005, 0.05, 0.25)  # of the values, beyond which the axis may end on either side
_FULL = 1 / 3  # share of a bin from where the axis is too long for the others to be seen
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
    ticks = [(float(each), label(each, _unit(each, gaps[0], dates), dates=dates)) for each in named]
    return Axis(np.append(distinct - half, distinct[-1] + half), ticks, float(gaps[0]), dates)


def _unit(value: float, gap: float, dates: bool) -> float:
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
        if axis.counts(values).max() <= _FULL * n:
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
