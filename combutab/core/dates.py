"""Dates as text: find the format of a column, read dates, and write them."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import numpy as np
import pandas as pd

_NAMES = ("%b", "%B", "%^b", "%^B")  # names of months; the last two are in capital letters
DAY_FORMATS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"),
    *("%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d"),
    *(f"%d{mark}{name}{mark}{year}" for name in _NAMES for mark in "- /" for year in ("%Y", "%y")),
    *(f"{name}{day}%Y" for name in _NAMES for day in (" %d, ", " %d ", "-%d-")),
    *(f"%Y-{name}-%d" for name in _NAMES),
)
_MONTH_FORMATS = ("%Y-%m", *(f"{name}{mark}%Y" for name in _NAMES for mark in " -"))
_CLOCKS = (
    *("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%SZ", "%H:%M:%S.%fZ"),
    *("%H:%M%z", "%H:%M:%S%z", "%H:%M:%S.%f%z", "%I:%M %p", "%I:%M:%S %p"),
)
DATE_FORMATS = (
    *DAY_FORMATS,
    *_MONTH_FORMATS,
    *map("".join, itertools.product(DAY_FORMATS, " T", _CLOCKS)),
)
"""Formats of dates as text, in the directives of ``strftime``; %^b is %b in capital letters."""

NOW = ("now", "today")  # text that pandas reads as the current time

_SHORT_NAMES = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_LONG_NAMES = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
)
_DIRECTIVES = {
    "%^b": f"(?:{_SHORT_NAMES.upper()})",
    "%^B": f"(?:{_LONG_NAMES.upper()})",
    "%b": f"(?i:{_SHORT_NAMES})",
    "%B": f"(?i:{_LONG_NAMES})",
    "%Y": r"[1-9]\d{3}",
    "%y": r"\d{2}",
    "%m": r"\d{1,2}",
    "%d": r"\d{1,2}",
    "%H": r"\d{1,2}",
    "%I": r"\d{1,2}",
    "%M": r"\d{2}",
    "%S": r"\d{2}",
    "%f": r"\d{1,9}",
    "%p": "(?i:am|pm)",
    "%z": r"[+-]\d\d:?(?:\d\d)?",
}
_START = re.compile(rf"\d{{1,4}}[-/. ][\da-zA-Z ]|(?:{_SHORT_NAMES})[a-z]*[- ]\d", re.IGNORECASE)
_DIRECTIVE = re.compile(r"%\^?[a-zA-Z]")
_OFFSET = r"([+-]\d\d):?(\d\d)?$"  # offset from UTC, as %z reads it; written as +01:00
_CLOCK_NAME = re.compile(r"time|hhmm|clock|hour", re.IGNORECASE)
_MIN_NUMBERS = 20  # minimum number of distinct integers that are recognized as dates
_HEAD = 100  # values that are checked first, because they rule most formats out
_N_TRIED = 5  # values whose formats are tried if not all values are dates
_LONGEST = 40  # maximum length of a date in characters


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """Build the pattern of a format; if the year has two digits, so have month and day."""
    patterns = dict(_DIRECTIVES)
    if "%y" in form and "b" not in form.lower():
        patterns |= {"%m": r"\d{2}", "%d": r"\d{2}"}
    if form in _MONTH_FORMATS:  # other digits may be a code
        patterns |= {"%Y": r"(19|20)\d{2}", "%m": r"\d{2}"}
    literals = [re.escape(text) for text in _DIRECTIVE.split(form)]
    directives = [*(patterns[directive] for directive in _DIRECTIVE.findall(form)), ""]
    return re.compile("".join(map("".join, zip(literals, directives, strict=True))))


def _formats_of(text: str) -> list[str]:
    """List the formats that a text may have."""
    formats = [form for form in _MONTH_FORMATS if _pattern(form).fullmatch(text)]
    for form in DAY_FORMATS if len(text) <= _LONGEST else ():
        match = _pattern(form).match(text)
        remainder = text[match.end() :] if match else ""
        if match and not remainder:
            formats.append(form)
        elif match and remainder[0] in " T":
            clocks = (clock for clock in _CLOCKS if _pattern(clock).fullmatch(remainder[1:]))
            formats += [f"{form}{remainder[0]}{clock}" for clock in clocks]
    return formats


def is_now(value: object) -> bool:
    """Tell whether a value is text that pandas reads as the current time."""
    return isinstance(value, str) and value in NOW


def find_date_format(texts: Iterable[str]) -> str | None:
    """Find the format of `DATE_FORMATS` that all texts have.

    Returns None if the texts have no common format, or if several formats give different dates, as
    when all days are below 13.

    >>> find_date_format(["2024-12-31"]), find_date_format(["22-JUN-2024", "01-MAY-2024"])
    ('%Y-%m-%d', '%d-%^b-%Y')
    >>> print(find_date_format(["01/02/2024", "03/04/2024"]))
    None
    """
    distinct_texts = list(dict.fromkeys(text.strip() for text in texts))
    if not distinct_texts or not all(map(_START.match, distinct_texts[:_HEAD])):
        return None
    column: pd.Series = pd.Series(distinct_texts, dtype=object)
    dates_by_format: dict[str, pd.Series] = {}
    for form in _formats_of(distinct_texts[0]):
        if all(map(_pattern(form).fullmatch, distinct_texts)):
            with suppress(ValueError):
                dates_by_format[form] = read_dates(column, form)
    candidates = list(dates_by_format.values())
    if not candidates or not all(candidates[0].equals(series) for series in candidates[1:]):
        return None
    # for months in capital letters, prefer the format that writes capital letters
    return next((form for form in dates_by_format if "%^" in form), next(iter(dates_by_format)))


def split_dates(texts: Iterable[str]) -> tuple[str | None, list[str]]:
    """Find the date format that most texts have, and the texts that do not have it.

    >>> split_dates(["2024-12-31", "2024-02-30", "2025-01-01", "2025-01-02", "Total"])
    ('%Y-%m-%d', ['2024-02-30', 'Total'])
    """
    distinct_texts = list(dict.fromkeys(texts))
    column: pd.Series = pd.Series(distinct_texts, dtype=object)
    best: tuple[str | None, list[str]] = None, distinct_texts
    formats = dict.fromkeys(
        form for text in distinct_texts[:_N_TRIED] for form in _formats_of(text)
    )
    for form in formats:
        dates = pd.to_datetime(column, format=form.replace("%^", "%"), errors="coerce", utc=True)
        parsed = dates.notna().tolist()
        pattern = _pattern(form)
        text_is_date = zip(distinct_texts, parsed, strict=True)
        unmatched = [
            text for text, is_date in text_is_date if not is_date or not pattern.fullmatch(text)
        ]
        if len(unmatched) < len(best[1]):
            best = form, unmatched
    return best


def read_dates(texts: pd.Series, form: str) -> pd.Series:
    """Read texts of a format as dates, in their common time zone, or in UTC if it varies.

    Dates outside the range of nanoseconds have the unit seconds or microseconds.

    Raises
    ------
    ValueError
        If some texts have another format.

    Examples
    --------
    >>> read_dates(pd.Series(["31.12.9999", None]), "%d.%m.%Y").dtype
    dtype('<M8[s]')
    """
    stripped_texts = texts.str.strip()
    strptime_format = form.replace("%^", "%")
    to_utc = "%z" in form and offsets_differ(stripped_texts)
    present_texts = stripped_texts.dropna()
    if present_texts.isin(NOW).any():
        raise ValueError(f"text that has not the format {form}")
    if "%z" in form and not all(re.search(_OFFSET, text) for text in present_texts):
        raise ValueError(f"dates without a time zone, which the format {form} has")
    try:
        return pd.to_datetime(stripped_texts, format=strptime_format, utc=to_utc)
    except pd.errors.OutOfBoundsDatetime:
        pass
    codes, distinct_texts = pd.factorize(stripped_texts)
    moments = [datetime.datetime.strptime(text, strptime_format) for text in distinct_texts]
    unit = "us" if "%f" in form else "s"
    if "%z" in form:
        moments = [moment.astimezone(datetime.UTC).replace(tzinfo=None) for moment in moments]
    values = np.array([*moments, "NaT"], dtype=f"datetime64[{unit}]")[codes]
    dates: pd.Series = pd.Series(values, texts.index, name=texts.name)
    return dates.dt.tz_localize("UTC") if "%z" in form else dates


def write_dates(column: pd.Series, form: str) -> pd.Series:
    """Write dates as text of a format.

    >>> write_dates(pd.Series(["2024-06-22"], dtype="datetime64[ns]"), "%d-%^b-%Y").tolist()
    ['22-JUN-2024']
    """
    texts = column.dt.strftime(form.replace("%^", "%"))
    texts = texts.str.upper() if "%^" in form else texts
    return texts.str.replace(_OFFSET, r"\1:\2", regex=True) if form.endswith("%z") else texts


def offsets_differ(texts: pd.Series) -> bool:
    """Tell whether times have different offsets from UTC."""
    offsets = texts.dropna().str.extract(_OFFSET).fillna("00")
    return len(offsets.drop_duplicates()) > 1


# ---- Times of day and durations, such as 10:18:00 and 2h 5m --------------------------------------

CLOCK_FORMATS = (
    *(f"{hour}:%M{end}" for end in ("", ":%S", ":%S.%f") for hour in ("%H", "%-H")),
    *(f"{hour}:%M{end} %p" for end in ("", ":%S") for hour in ("%I", "%-I")),
    *(f"%-Hh{space}{minute}m" for space in (" ", "") for minute in ("%-M", "%M")),
    *("%-Hh %-Mm %-Ss", "%-H h %-M min", "%-H hr %-M min", "%-Mm %-Ss", "%-M min %-S s"),
)
"""Formats of times of day and durations as text; %-H is an hour without a leading zero."""

_UNPADDED = r"0|[1-9]\d{0,3}"
_CLOCK_DIRECTIVES = {
    "%H": r"\d{2}",
    "%-H": _UNPADDED,
    "%I": r"0[1-9]|1[0-2]",
    "%-I": r"[1-9]|1[0-2]",
    "%M": r"[0-5]\d",
    "%-M": r"[1-5]?\d",
    "%S": r"[0-5]\d",
    "%-S": r"[1-5]?\d",
    "%f": r"\d{1,6}",
    "%p": r"(?i:am|pm)",
}
_CLOCK_DIRECTIVE = re.compile(r"%-?[a-zA-Z]")
_MICROSECONDS = {"H": 3_600_000_000, "I": 3_600_000_000, "M": 60_000_000, "S": 1_000_000, "f": 1}
_HALF_DAY = 12 * _MICROSECONDS["H"]


@cache
def _clock_pattern(form: str) -> re.Pattern[str]:
    directives = _CLOCK_DIRECTIVE.findall(form)
    patterns = dict(_CLOCK_DIRECTIVES)
    if directives[0] == "%-M":
        patterns["%-M"] = _UNPADDED
    groups = [f"(?P<{directive[-1]}>{patterns[directive]})" for directive in directives]
    literals = [re.escape(text) for text in _CLOCK_DIRECTIVE.split(form)]
    return re.compile("".join(map("".join, zip(literals, [*groups, ""], strict=True))))


def find_clock_format(texts: Iterable[str]) -> str | None:
    """Find the format of `CLOCK_FORMATS` that all texts have; at least two texts must differ.

    >>> find_clock_format(["10:18:00", "9:05:30"]), find_clock_format(["2h 5m", "11h 30m"])
    ('%-H:%M:%S', '%-Hh %-Mm')
    """
    distinct_texts = list(dict.fromkeys(text.strip() for text in texts))
    formats = CLOCK_FORMATS if len(distinct_texts) > 1 and distinct_texts[0][:1].isdigit() else ()
    return next(
        (form for form in formats if all(map(_clock_pattern(form).fullmatch, distinct_texts))), None
    )


def read_clocks(texts: pd.Series, form: str) -> pd.Series:
    """Read texts of a format of `CLOCK_FORMATS` as durations; times of day count from midnight.

    Raises ValueError if some texts have another format.

    >>> read_clocks(pd.Series(["10:18 PM", None]), "%I:%M %p").tolist()
    [Timedelta('0 days 22:18:00'), NaT]
    """
    codes, distinct_texts = pd.factorize(texts.str.strip())
    values = np.array(
        [*(_microseconds(text, form) for text in distinct_texts), "NaT"], "timedelta64[us]"
    )
    return pd.Series(values[codes].astype("timedelta64[ns]"), texts.index, name=texts.name)


def _microseconds(text: str, form: str) -> np.timedelta64:
    match = _clock_pattern(form).fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} has not the format {form}")
    parts = {name: part for name, part in match.groupdict().items() if name != "p"}
    if "f" in parts:
        parts["f"] = parts["f"].ljust(6, "0")
    total = sum(int(part) * _MICROSECONDS[name] for name, part in parts.items())
    if "I" in parts:
        is_afternoon = match["p"].lower() == "pm"
        total = total % _HALF_DAY + is_afternoon * _HALF_DAY
    return np.timedelta64(total, "us")


def write_clocks(column: pd.Series, form: str) -> pd.Series:
    """Write durations as text of a format of `CLOCK_FORMATS`.

    >>> write_clocks(pd.Series(pd.to_timedelta(["22:05:00", None])), "%-I:%M %p").tolist()
    ['10:05 PM', None]
    """
    directives = _CLOCK_DIRECTIVE.findall(form)
    template = _CLOCK_DIRECTIVE.sub("{}", form)
    largest_unit = directives[0][-1]

    def write(value: pd.Timedelta) -> str:
        microseconds = round(value / pd.Timedelta(1, "us"))
        parts: list[str] = []
        for directive in directives:
            unit = directive[-1]
            if unit == "p":
                parts.append("PM" if microseconds % (2 * _HALF_DAY) >= _HALF_DAY else "AM")
                continue
            part = microseconds // _MICROSECONDS[unit]
            if unit == "I":
                part = (part - 1) % 12 + 1
            elif unit == "f":
                part %= 1_000_000
            elif unit != largest_unit:
                part %= 60
            width = 6 if unit == "f" else 1 if "-" in directive else 2
            parts.append(f"{part:0{width}d}")
        return template.format(*parts)

    texts = column.astype(object).map(write, na_action="ignore")
    return texts.where(column.notna(), None)


NUMBER_FORMATS = ("%Y%m%d", "%Y%m", "%H%M")  # of dates and times of day as integers


def find_number_format(numbers: np.ndarray, name: str) -> str | None:
    """Find the format of dates, or of times of day, that are written as integers.

    Returns None for other numbers. Times of day such as 1745 look like many other numbers, so the
    name of the column must suggest them.

    >>> find_number_format(np.array([20240100 + day for day in range(1, 32)]), "day")
    '%Y%m%d'
    >>> find_number_format(np.arange(20240100, 20240132), "day") is None
    True
    >>> times = np.array([100 * hour + 30 for hour in range(24)])
    >>> find_number_format(times, "dep_time"), find_number_format(times, "price")
    ('%H%M', None)
    """
    numbers = np.unique(numbers[~np.isnan(numbers)])
    if len(numbers) < _MIN_NUMBERS or (numbers != np.round(numbers)).any():
        return None
    for form, low, high in (("%Y%m%d", 1900_01_01, 2100_12_31), ("%Y%m", 1900_01, 2100_12)):
        if numbers[0] >= low and numbers[-1] <= high:
            texts = pd.Series(numbers.astype(np.int64)).astype(str)
            if pd.to_datetime(texts, format=form, errors="coerce").notna().all():
                return form
    is_clock = numbers[0] >= 0 and 1000 <= numbers[-1] < 2400 and (numbers % 100 < 60).all()
    return "%H%M" if is_clock and _CLOCK_NAME.search(name) else None


def read_numbers_as_dates(column: pd.Series, form: str) -> pd.Series:
    """Read integers such as 20241231 or 1745 as datetimes; raises ValueError for other integers."""
    numbers = column.astype("float64").astype("Int64")
    texts = numbers.astype("string").str.zfill(4)  # 930 is 09:30
    return pd.to_datetime(texts, format=form).astype("datetime64[s]")


def write_dates_as_numbers(column: pd.Series, form: str) -> pd.Series:
    """Write datetimes as integers such as 20241231."""
    return pd.to_numeric(column.dt.strftime(form)).astype("Int64")
