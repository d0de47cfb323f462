"""What dates and free text become: parts of the calendar on circles, and weights of n-grams."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from combutab.preprocessing._columns import Factors

# ---- Dates: hour, weekday, day, month and day of the year, each as a point on a circle -----------

T = TypeVar("T")  # an array of numpy, or a tensor of torch
_DAY = 86_400.0  # seconds
_YEAR = 365.2425 * _DAY
DATE_PARTS = {  # a part, named as pandas names it -> its period in seconds
    "hour": _DAY,
    "dayofweek": 7 * _DAY,
    "day": _YEAR / 12,
    "month": _YEAR,
    "dayofyear": _YEAR,
}
_MIN_PERIODS = 1.8  # "about two", so that 14 dates, which span 13 days, are two weeks
_MIN_SHARE = 0.01  # of the dates, that do not have the most frequent value of a part
_N_BINS = 24  # of a period, in which its dates are counted
CIRCLE_STEPS = 2.0**20  # sines are multiples of 1 / CIRCLE_STEPS, which float32 holds exactly
QUARTERS = (0.0, 0.25)  # a sine, and as a cosine the sine a quarter of the period later
_WEEK = 604_800  # seconds: a time zone does not change and change back within it
_UTC = ("UTC", "UTC+00:00", "ETC/UTC", "TZUTC()")
_YEARS = ("1900", "2100")  # between which changes of a time zone's offset are kept


def check_date_features(date_features: Any) -> None:
    """Raise ValueError if ``date_features`` is neither "auto" nor a list of parts of a date."""
    if isinstance(date_features, str) and date_features == "auto":
        return
    allowed = ("number", *DATE_PARTS)
    is_text = isinstance(date_features, str)
    unknown = [
        name for name in ([date_features] if is_text else date_features) if name not in allowed
    ]
    if unknown or is_text:
        raise ValueError(
            f"date_features must be 'auto' or a list of {', '.join(map(repr, allowed))}, "
            f"got {date_features!r}"
        )


@dataclass(frozen=True, eq=False)
class Calendar:
    """The parts of dates that encode a column of dates, in addition to its number.

    ``zone`` names the time zone of the fitted column, "" if it had none, which counts as UTC.
    ``offsets`` are its distances from UTC in seconds: the first until ``changes[0]``, in seconds
    since 1970-01-01 UTC, the next until ``changes[1]``, and so on.
    """

    column: int
    parts: tuple[str, ...]
    zone: str
    changes: np.ndarray  # (n_changes,) float64
    offsets: np.ndarray  # (n_changes + 1,) float64
    varied: np.ndarray  # (width,) bool: columns that varied in fit; the others are 0

    @property
    def width(self) -> int:
        """Columns that it fills."""
        return 2 * len(self.parts)

    def suffixes(self) -> list[str]:
        """Names of those columns, behind the name of the date."""
        return [f"{part}_{function}" for part in self.parts for function in ("sin", "cos")]

    def check(self) -> None:
        """Raise ValueError if its arrays are not those of a time zone, or a part occurs twice."""
        arrays = (self.changes, self.offsets)
        shapes_fit = self.changes.ndim == 1 and self.offsets.shape == (len(self.changes) + 1,)
        if (
            not shapes_fit
            or any(array.dtype != np.float64 for array in arrays)
            or len({*self.parts}) < len(self.parts)
            or not (np.diff(self.changes) > 0).all()
            or not (np.abs(self.offsets) <= 2 * _DAY).all()
            or self.varied.shape != (self.width,)
            or self.varied.dtype != np.bool_
        ):
            raise ValueError("the encoder's state has a calendar that no time zone has")

    def check_zone(self, zone: Any, label: str) -> None:
        """Warn of a column in a time zone, or without one (None), where fit saw it otherwise."""
        if zone is None and self.offsets.any():
            warnings.warn(
                f"{label} has no time zone, and is read as UTC; fit saw {self.zone}: call "
                f".dt.tz_localize({self.zone!r}) on it if its times are local",
                stacklevel=2,
            )
        elif zone is not None and not self.zone and str(zone).upper() not in _UTC:
            warnings.warn(
                f"{label} is in the time zone {zone}, and is converted to UTC, because fit saw "
                "dates without a time zone; call .dt.tz_localize(None) on it if those were local "
                "times",
                stacklevel=2,
            )

    def encode(self, seconds: np.ndarray) -> np.ndarray:
        """Moments in seconds since 1970-01-01 UTC, (n,) -> (n, width); rows of NaN are zeros."""
        is_known = ~np.isnan(seconds)
        moments = np.where(is_known, seconds, 0.0)
        local = moments + self.offsets[np.searchsorted(self.changes, moments, side="right")]
        return _circle(calendar_phases(local, self.parts)) * (is_known[:, None] & self.varied)


def _circle(phases: Sequence[np.ndarray]) -> np.ndarray:
    """Sines and cosines of phases, (n_phases, n) -> (n, 2 n_phases), rounded.

    Libraries and processors round sines differently. Without the rounding the sine at noon and
    that at midnight differ by 1e-16 here, and trees would split between them.
    """
    shifted = [phase + quarter for phase in phases for quarter in QUARTERS]
    return np.rint(np.sin(2 * np.pi * np.stack(shifted, axis=1)) * CIRCLE_STEPS) / CIRCLE_STEPS


def calendar_phases(local: T, parts: Sequence[str]) -> list[T]:
    """Return the phase of times within their day, week, month or year, in [0, 1).

    The phase in the day includes minutes and seconds. The others are by whole days (or months).

    Parameters
    ----------
    local : ndarray or Tensor of any shape, float64
        Local time, in seconds since 1970-01-01.
    parts : sequence of str
        Names of `DATE_PARTS`.

    References
    ----------
    Hinnant (2013), "chrono-compatible low-level date algorithms", ``civil_from_days``.

    Examples
    --------
    >>> noon = np.array([pd.Timestamp("2024-02-29 12:00").timestamp()])
    >>> [float(phase[0]) for phase in calendar_phases(noon, ["hour", "month", "dayofweek"])]
    [0.5, 0.08333333333333333, 0.42857142857142855]
    """
    x: Any = local  # numpy and torch have the same operators; // has no gradient
    days = _quotient(x, _DAY)
    # years begin in March, so that the day that some of them lack is the last one
    day = (days + 719468) % 146097  # within 400 years
    year = _quotient(
        day - _quotient(day, 1460) + _quotient(day, 36524) - _quotient(day, 146096), 365
    )
    day = day - (365 * year + _quotient(year, 4) - _quotient(year, 100))
    month = _quotient(5 * day + 2, 153)  # 0 is March
    day_of_month = day - _quotient(153 * month + 2, 5)
    next_year = 1.0 * (month > 9)
    year = year + next_year
    leap = 1.0 * ((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)))
    days_in_month = 31 - month % 5 % 2 - (month == 11) * (2 - leap)
    day_of_year = day + (1 - next_year) * (59 + leap) - 306 * next_year
    phases = {
        "hour": x % _DAY / _DAY,
        "dayofweek": (days + 3) % 7 / 7,
        "day": day_of_month / days_in_month,
        "month": (month + 2) % 12 / 12,
        "dayofyear": day_of_year / (365 + leap),
    }
    return [phases[part] for part in parts]


def _quotient(x: Any, divisor: float) -> Any:
    """The whole quotient."""
    return (x - x % divisor) / divisor


class DateCounts:
    """Counts the values of each part of the dates of a column."""

    def __init__(self, zone: Any = None) -> None:
        self._zone = "" if zone is None else str(zone)
        self._changes, self._offsets = _offsets(zone)
        self._counts = np.zeros((len(DATE_PARTS), _N_BINS), dtype=np.int64)
        self._low, self._high = np.inf, -np.inf
        self._lows = np.full(2 * len(DATE_PARTS), np.inf)  # of each sine and cosine
        self._highs = -self._lows

    def add(self, seconds: np.ndarray) -> None:
        """Take moments in seconds since 1970-01-01 UTC, (n,)."""
        present = seconds[~np.isnan(seconds)]
        if not len(present):
            return
        self._low, self._high = min(self._low, present.min()), max(self._high, present.max())
        local = present + self._offsets[np.searchsorted(self._changes, present, side="right")]
        phases = calendar_phases(local, [*DATE_PARTS])
        circles = _circle(phases)
        self._lows = np.minimum(self._lows, circles.min(axis=0))
        self._highs = np.maximum(self._highs, circles.max(axis=0))
        for counts, phase in zip(self._counts, phases, strict=True):
            bins = np.rint(phase * _N_BINS).astype(np.int64) % _N_BINS
            counts += np.bincount(bins, minlength=_N_BINS)

    def bounds(self) -> tuple[float, float]:
        """The first and the last moment, rounded outwards by at most a 128th of the time between.

        The rounded ones are of no single row. Both are 0 where there is no moment.
        """
        if self._low > self._high:
            return 0.0, 0.0
        unit = np.exp2(np.frexp((self._high - self._low) / 128)[1] - 1)
        return float(np.floor(self._low / unit) * unit), float(np.ceil(self._high / unit) * unit)

    def learn(self, column: int, date_features: Any, min_count: int) -> Calendar:
        """Learn the calendar: the parts in ``date_features``, or for "auto" those that vary.

        A part is left out if fewer than ``min_count`` dates, or than one in a hundred, have another
        value than most have, and if the dates span less than about two of its periods.
        """
        if isinstance(date_features, str):
            parts = self._varied_parts(min_count)
        else:
            parts = tuple(dict.fromkeys(name for name in date_features if name != "number"))
        has_varied = (self._lows < self._highs).reshape(-1, 2)
        indices = [[*DATE_PARTS].index(part) for part in parts]
        varied = has_varied[indices].ravel()
        return Calendar(column, parts, self._zone, self._changes, self._offsets, varied)

    def _varied_parts(self, min_count: int) -> tuple[str, ...]:
        totals = self._counts.sum(axis=1)
        n_other_values = totals - self._counts.max(axis=1)
        min_other_values = np.maximum(min_count, _MIN_SHARE * totals)
        varied = [
            part
            for part, is_varied in zip(DATE_PARTS, n_other_values >= min_other_values, strict=True)
            if is_varied
        ]
        # of months weekdays are by chance, and the day of the year is the month
        left_out = ("month",) if "day" in varied else ("dayofweek", "dayofyear")
        span = self._high - self._low
        return tuple(
            part
            for part in varied
            if part not in left_out and span >= _MIN_PERIODS * DATE_PARTS[part]
        )


def _offsets(zone: Any) -> tuple[np.ndarray, np.ndarray]:
    """When the offset of a time zone from UTC changes, and the offsets, all in seconds."""
    if zone is None:
        return np.empty(0), np.zeros(1)

    def offset(moments: np.ndarray) -> np.ndarray:
        utc = pd.DatetimeIndex(moments.astype("datetime64[s]"))
        local = utc.tz_localize("UTC").tz_convert(zone).tz_localize(None)
        return np.asarray((local - utc) / pd.Timedelta(1, "s"), dtype=np.float64)

    first, last = (np.datetime64(year, "s").astype(np.int64) for year in _YEARS)
    grid = np.arange(first, last, _WEEK)
    grid_offsets = offset(grid)
    change_indices = np.flatnonzero(np.diff(grid_offsets))
    before, after = grid[change_indices], grid[change_indices + 1]
    while (after - before > 1).any():
        middle = (before + after) // 2
        late = offset(middle) != grid_offsets[change_indices]
        before, after = np.where(late, before, middle), np.where(late, middle, after)
    return after.astype(np.float64), np.append(grid_offsets[:1], grid_offsets[change_indices + 1])


# ---- Free text: weights of hashed n-grams of characters, and their main directions ---------------

_MIN_WORDS = 5  # on average: names of people, titles and addresses have fewer
_MIN_TEXTS = 20  # different ones
_MIN_DISTINCT = 0.5  # of the rows have a unique text
_N_LOOKED_AT = 500  # texts whose words are counted
# letters only, so that parts of keys are not words; two letters in writing without spaces
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]{2}|\b[^\W\d_]{2,}\b")
_MAX_CHARACTERS = 1_000  # of a text
_N_BUCKETS = 2**13  # of hashed n-grams
_MAX_COMPONENTS = 30
TEXT_SAMPLE = 10_000  # texts that the directions are learned from
_CHUNK = 1_000  # texts that are encoded at a time


def is_free_text(factors: Factors) -> bool:
    """Tell whether a column is free text.

    It holds only text, more than half of the rows (and at least 20) have a unique text, and a text
    has 5 words on average: sequences of two letters or more, without digits.
    """
    texts = factors.keys[:: 1 + len(factors.keys) // _N_LOOKED_AT]
    if not texts or not all(isinstance(text, str) for text in texts):
        return False
    n_words = sum(len(_WORD.findall(text[:_MAX_CHARACTERS])) for text in map(str, texts))
    n_rows = int((factors.codes >= 0).sum())
    return (
        n_words >= _MIN_WORDS * len(texts)
        and len(factors.keys) >= max(_MIN_TEXTS, _MIN_DISTINCT * n_rows)
        and all(isinstance(text, str) for text in factors.keys)
    )


@dataclass(frozen=True, eq=False)
class TextMap:
    """How a column of free text is encoded: no text, but weights of hashed n-grams.

    An n-gram's ``weights`` are 0 where fewer than `min_frequency` of the texts have it. It takes
    one megabyte at most.
    """

    column: int
    weights: np.ndarray  # (n_buckets,) float32, the inverse document frequencies; empty if ignored
    components: np.ndarray  # (n_components, n_buckets) float32
    centre: np.ndarray  # (n_components,) float32
    scale: np.ndarray  # (n_components,) float32
    missing: bool  # whether a column indicates missing texts

    @property
    def width(self) -> int:
        """Columns that it fills."""
        return len(self.components) + self.missing

    def suffixes(self) -> list[str]:
        """Names of those columns, behind the name of the text."""
        return [f"svd{i}" for i in range(len(self.components))] + ["missing"] * self.missing

    def check(self) -> None:
        """Raise ValueError if its arrays are not of one encoding."""
        n, width = len(self.components), len(self.weights)
        shapes = {"weights": (width,), "components": (n, width), "centre": (n,), "scale": (n,)}
        arrays = {name: getattr(self, name) for name in shapes}
        if (
            any(a.shape != shapes[name] or a.dtype != np.float32 for name, a in arrays.items())
            or width not in (0, _N_BUCKETS)
            or n > _MAX_COMPONENTS
            or not all(np.isfinite(array).all() for array in arrays.values())
            or not (self.scale > 0).all()
        ):
            raise ValueError("the encoder's state has arrays that are of no text's encoding")

    def encode(self, factors: Factors) -> np.ndarray:
        """A column -> (n, width) float32; missing and entirely unknown texts have the mean."""
        encoded = np.zeros((len(factors.keys) + 1, self.width), dtype=np.float32)
        n = len(self.components)
        for start in range(0, len(factors.keys) if n else 0, _CHUNK):
            rows = _weighted(factors.keys[start : start + _CHUNK], self.weights)
            scaled = (np.asarray(rows @ self.components.T) - self.centre) / self.scale
            has_known = np.asarray(rows.sum(axis=1)).reshape(-1, 1) > 0  # n-grams
            encoded[start : start + len(scaled), :n] = np.where(has_known, scaled, 0.0)
        encoded[-1, n:] = 1.0  # gathered by code -1
        return encoded[factors.codes]


def learn_text(column: int, texts: Sequence[str], min_count: int, *, missing: bool) -> TextMap:
    """Learn the main directions of a sample of texts.

    N-grams of 3 and 4 characters within words, hashed to 8,192 numbers, weighted by how rare they
    are (tf-idf) and projected on 30 directions at most by a truncated SVD, whose seed is fixed.
    """
    from sklearn.decomposition import TruncatedSVD

    counts = _hashed(texts)
    n_having = np.bincount(counts.indices, minlength=_N_BUCKETS)
    weights = np.log((1 + len(texts)) / (1 + n_having)) + 1
    weights = np.where(n_having >= min_count, weights, 0.0).astype(np.float32)
    n_components = min(_MAX_COMPONENTS, len(texts) - 1, int((weights > 0).sum()) - 1)
    if n_components < 1:
        return ignored_text(column)
    rows = _weighted(texts, weights)
    with np.errstate(divide="ignore", invalid="ignore"):  # where all texts are as one
        svd = TruncatedSVD(n_components, random_state=0).fit(rows)
    components = svd.components_.astype(np.float32)
    directions = np.asarray(rows @ components.T)
    scale = directions.std(axis=0)
    is_varied = scale > 1e-4  # of rows of length 1; less is rounding
    if not is_varied.any():
        return ignored_text(column)
    centre = directions.mean(axis=0)
    return TextMap(
        column, weights, components[is_varied], centre[is_varied], scale[is_varied], missing
    )


def ignored_text(column: int) -> TextMap:
    """A column of free text that is left out."""
    none = np.empty(0, dtype=np.float32)
    return TextMap(column, none, none.reshape(0, 0), none, none, missing=False)


def _hashed(texts: Iterable[Any]) -> Any:
    """Counts of hashed n-grams: sparse (n, n_buckets) float32."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=(3, 4),
        n_features=_N_BUCKETS,
        norm=None,
        alternate_sign=False,
        dtype=np.float32,
    )
    return vectorizer.transform(str(text)[:_MAX_CHARACTERS] for text in texts)


def _weighted(texts: Iterable[Any], weights: np.ndarray) -> Any:
    """Weighted n-grams, each row of length 1."""
    from sklearn.preprocessing import normalize

    return normalize(_hashed(texts).multiply(weights).tocsr())
