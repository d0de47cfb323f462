"""What becomes of dates beside their number: parts of the calendar, as sine and cosine."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

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
_WEEK = 604_800  # seconds: a time zone does not change and change back within it
_UTC = ("UTC", "UTC+00:00", "ETC/UTC", "TZUTC()")
_YEARS = ("1900", "2100")  # between which changes of a time zone's offset are kept


def check_date_features(date_features: Any) -> None:
    """Raise ValueError if ``date_features`` is not "auto", nor a list of parts of a date."""
    if isinstance(date_features, str) and date_features == "auto":
        return
    known = ("number", *DATE_PARTS)
    one = isinstance(date_features, str)
    unknown = [name for name in ([date_features] if one else date_features) if name not in known]
    if unknown or one:
        raise ValueError(
            f"date_features must be 'auto' or a list of {', '.join(map(repr, known))}, "
            f"got {date_features!r}"
        )


@dataclass(frozen=True, eq=False)
class Calendar:
    """The parts of the date that a column of dates is encoded as, beside its number.

    ``zone`` names the time zone of the fitted column, "" if it had none, which counts as UTC.
    ``offsets`` are its distances from UTC in seconds: the first until ``changes[0]``, in seconds
    since 1970-01-01 UTC, the next until ``changes[1]``, and so on.
    """

    column: int
    parts: tuple[str, ...]
    zone: str
    changes: np.ndarray  # (n_changes,) float64
    offsets: np.ndarray  # (n_changes + 1,) float64

    @property
    def width(self) -> int:
        """Columns that it fills."""
        return 2 * len(self.parts)

    def suffixes(self) -> list[str]:
        """Names of those columns, behind the name of the date."""
        return [f"{part}_{function}" for part in self.parts for function in ("sin", "cos")]

    def check(self) -> None:
        """Raise ValueError if its arrays are not what a time zone has, or a part is there twice."""
        arrays = (self.changes, self.offsets)
        whole = self.changes.ndim == 1 and self.offsets.shape == (len(self.changes) + 1,)
        if (
            not whole
            or any(each.dtype != np.float64 for each in arrays)
            or len({*self.parts}) < len(self.parts)
            or not (np.diff(self.changes) > 0).all()
            or not (np.abs(self.offsets) <= 2 * _DAY).all()
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
                f"{label} is in the time zone {zone}, and is read in UTC, as which the dates "
                "without a time zone count that fit saw; call .dt.tz_localize(None) on it if these "
                "were local times",
                stacklevel=2,
            )

    def encode(self, seconds: np.ndarray) -> np.ndarray:
        """Moments in seconds since 1970-01-01 UTC, (n,) -> (n, width); rows of NaN are zeros."""
        known = ~np.isnan(seconds)
        moments = np.where(known, seconds, 0.0)
        local = moments + self.offsets[np.searchsorted(self.changes, moments, side="right")]
        angles = [2 * np.pi * phase for phase in calendar_phases(local, self.parts)]
        both = [function(angle) for angle in angles for function in (np.sin, np.cos)]
        return np.stack(both, axis=1) * known[:, None]


def calendar_phases(local: T, parts: Sequence[str]) -> list[T]:
    """Where moments lie in their day, week, month or year, from 0 to below 1.

    The time of day is taken with its minutes and seconds, all others by whole days (or months).

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
    """Counts what the dates of a column have of each part, over the pieces that are added."""

    def __init__(self, zone: Any = None) -> None:
        self._zone = "" if zone is None else str(zone)
        self._changes, self._offsets = _offsets(zone)
        self._counts = np.zeros((len(DATE_PARTS), _N_BINS), dtype=np.int64)
        self._low, self._high = np.inf, -np.inf

    def add(self, seconds: np.ndarray) -> None:
        """Take moments in seconds since 1970-01-01 UTC, (n,)."""
        known = seconds[~np.isnan(seconds)]
        if not len(known):
            return
        self._low, self._high = min(self._low, known.min()), max(self._high, known.max())
        local = known + self._offsets[np.searchsorted(self._changes, known, side="right")]
        for counts, phase in zip(self._counts, calendar_phases(local, [*DATE_PARTS]), strict=True):
            bins = np.rint(phase * _N_BINS).astype(np.int64) % _N_BINS
            counts += np.bincount(bins, minlength=_N_BINS)

    def learn(self, column: int, date_features: Any, min_count: int) -> Calendar:
        """The parts that are asked for, or of "auto" those that the dates have and cover.

        A part is left out if fewer than ``min_count`` dates, or than one in a hundred, have another
        value than most have, and if the dates span less than about two of its periods.
        """
        if isinstance(date_features, str):
            parts = self._found(min_count)
        else:
            parts = tuple(dict.fromkeys(name for name in date_features if name != "number"))
        return Calendar(column, parts, self._zone, self._changes, self._offsets)

    def _found(self, min_count: int) -> tuple[str, ...]:
        totals = self._counts.sum(axis=1)
        others = totals - self._counts.max(axis=1)
        least = np.maximum(min_count, _MIN_SHARE * totals)
        varied = [part for part, enough in zip(DATE_PARTS, others >= least, strict=True) if enough]
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
    found = offset(grid)
    places = np.flatnonzero(np.diff(found))
    before, after = grid[places], grid[places + 1]
    while (after - before > 1).any():
        middle = (before + after) // 2
        late = offset(middle) != found[places]
        before, after = np.where(late, before, middle), np.where(late, middle, after)
    return after.astype(np.float64), np.append(found[:1], found[places + 1])
