"""Conditions and shares on the command line, such as ``age=30..50`` and ``city=A:0.3|B:0.7``."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from combutab.cli._console import UserError, refusals, warn
from combutab.cli._files import FileFormat
from combutab.cli._options import CONDITION_FORMS, RowOptions, split_condition
from combutab.core.dates import write_dates
from combutab.core.text import known_instead
from combutab.generators import check_conditions
from combutab.generators.conditions import on_clocks, read_conditions
from combutab.generators.shares import read_shares
from combutab.preprocessing import IdentifierColumn, ModeEncoder, NumberColumn
from combutab.preprocessing.amounts import Form as AmountForm

# a value may have a "|" and a ":" itself
_SHARE = re.compile(r"(.*?):\s*(\d*\.?\d+)\s*(%?)\s*(?:\||$)")
_ISO = "%Y-%m-%d"
Parse = Callable[[str], tuple[Any, Any]]  # the first and the last value that a text stands for


def parse_conditions(
    texts: Sequence[str] | None, encoder: ModeEncoder, forms: FileFormat
) -> dict[Any, list[Any] | tuple[Any, Any]]:
    """Read conditions for a generator's ``sample``; those that all rows meet are left out.

    A condition is ``COLUMN=VALUE``, ``COLUMN=ONE|OTHER`` (nothing stands for a missing value) or
    ``COLUMN=LOW..HIGH`` (numbers and dates; both ends included, and either may be left out). A day
    stands for all times of that day. ``forms`` are those of the file's dates and truth values.

    Raises UserError if a condition is none of these, or names a column or value that there is not.

    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> parse_conditions(["age=35..", "city=b"], encoder, FileFormat())
    {'age': (35, None), 'city': ['b']}
    """
    found: dict[Any, list[Any] | tuple[Any, Any]] = {}
    for key, value in _asked_of_columns("--condition", texts, encoder):
        name, column = str(key), encoder.columns_[encoder.schema_.position(key)]
        if isinstance(column, NumberColumn):
            found[key] = _continuous_values(name, value, column.bounds, forms)
            continue
        chosen = _discrete_values(name, value, encoder.categories_[key], forms)
        if len(encoder.categories_[key]) > 1:
            found[key] = chosen
    with refusals():
        check_conditions(encoder, found)
    return found


def parse_shares(
    texts: Sequence[str] | None,
    encoder: ModeEncoder,
    forms: FileFormat,
    conditions: Mapping[Any, Any],
) -> dict[Any, dict[Any, float]]:
    """Read the shares of values for a generator's ``sample``.

    They are ``COLUMN=VALUE:SHARE|VALUE:SHARE``, with values as in conditions, and shares such as
    ``0.3`` or ``30%``.

    Raises UserError if shares are none of these or cannot be met, or if there is no such column or
    value.

    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> parse_shares(["age=..35:0.2|40..:0.8", "city=b:30%"], encoder, FileFormat(), {})
    {'age': {(None, 35): 0.2, (40, None): 0.8}, 'city': {('b',): 0.3}}
    """
    found: dict[Any, dict[Any, float]] = {}
    for key, text in _asked_of_columns("--shares", texts, encoder):
        name, column = str(key), encoder.columns_[encoder.schema_.position(key)]
        found[key] = own = {}
        for value, share in _split_shares(name, text):
            chosen: tuple[Any, ...] | None
            if isinstance(column, NumberColumn):
                one = _continuous_values(name, value, column.bounds, forms)
                if isinstance(one, list) and len(one) > 1:
                    raise UserError(
                        f"--shares: {value!r} of {name!r} stands for several numbers; give a range"
                    )
                if isinstance(one, tuple):
                    chosen = one
                else:
                    chosen = None if one[0] is None else (one[0], one[0])
            else:
                chosen = tuple(_discrete_values(name, value, encoder.categories_[key], forms))
            if chosen in own:
                raise UserError(f"--shares names {value!r} of {name!r} twice; give it once")
            own[chosen] = share
    with refusals():
        read_shares(encoder, found, conditions=read_conditions(encoder, conditions))
    return found


def _split_shares(name: str, text: str) -> list[tuple[str, float]]:
    """The values, with their shares, that a text gives."""
    found: list[tuple[str, float]] = []
    start = 0
    while start < len(text) or not found:
        part = _SHARE.match(text, start)
        if part is None:
            raise UserError(
                f"--shares '{name}={text}' is not in the form {CONDITION_FORMS['--shares']}"
            )
        value, number, percent = part.groups()
        found.append((value, float(number) / 100 if percent else float(number)))
        start = part.end()
    return found


def _asked_of_columns(
    option: str, texts: Sequence[str] | None, encoder: ModeEncoder
) -> Iterator[tuple[Any, str]]:
    """The keys of columns that texts ``COLUMN=...`` name, each once, and what is asked of them."""
    names, seen = [str(key) for key in encoder.schema_.keys], set()
    for text in texts or ():
        name, value = split_condition(option, text, names)
        if name in seen:
            raise UserError(f"{option} names {name!r} twice; join them: {CONDITION_FORMS[option]}")
        seen.add(name)
        j = names.index(name)
        if isinstance(encoder.columns_[j], IdentifierColumn):
            raise UserError(
                f"{name!r} is an identifier column, whose values are newly made; leave it out of "
                f"{option}, or name the identifier columns with --identifiers"
            )
        yield encoder.schema_.keys[j], value


# ---- discrete columns --------------------------------------------------------------------------


def _discrete_values(name: str, text: str, values: list[Any], forms: FileFormat) -> list[Any]:
    """The values of a discrete column that a text names."""
    present = [v for v in values if v is not None]
    words = dict(zip((False, True), forms.truth.get(name, ("False", "True")), strict=True))
    by_text = {words[v] if isinstance(v, bool) else str(v): v for v in present}
    named = by_text | ({"": None} if None in values else {})
    parse = _parser(present, name, forms)

    def find(part: str) -> list[Any]:
        """The values of a text, which may be written in another way: ``3`` for 3.0."""
        if part in named:
            return [named[part]]
        if present and all(isinstance(v, bool) for v in present):
            return [v for each, v in by_text.items() if each.casefold() == part.casefold()]
        try:
            return _between(present, *parse(part)) if parse else []
        except ValueError:
            return []

    if whole := find(text):
        return whole
    if parse is not None and ".." in text:
        if inside := _between(present, *_parse_range(name, text, parse)):
            return inside
        raise UserError(f"no value of {name!r} lies in {text}; {known_instead(text, named)}")
    chosen = []
    for part in text.split("|"):
        some = find(part) or find(part.strip())
        if not some:
            what = f"no value {part!r}" if part else "no missing values"
            raise UserError(f"{name!r} has {what}; {known_instead(part, by_text)}")
        chosen += some
    return list(dict.fromkeys(chosen))


def _between(values: list[Any], low: Any, high: Any) -> list[Any]:
    return [v for v in values if (low is None or low <= v) and (high is None or v <= high)]


def _parser(values: Sequence[Any], name: str, forms: FileFormat) -> Parse | None:
    """Return a function that reads a text as one of a column's values; None of plain text."""
    if values and all(isinstance(v, pd.Timestamp) for v in values):
        return partial(_parse_date, form=forms.dates.get(name), zone=values[0].tz)
    if values and all(isinstance(v, pd.Timedelta) for v in values):
        return _parse_duration
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        plain = AmountForm(forms.decimal, "", None, "{}", "-{}")
        return partial(_parse_number, form=forms.amounts.get(name, plain))
    return None


# ---- continuous columns ------------------------------------------------------------------------


def _continuous_values(
    name: str, text: str, bounds: pd.Series, forms: FileFormat
) -> list[Any] | tuple[Any, Any]:
    """The range, or the values, of a continuous column that a text names."""
    parse = _parser(bounds.tolist(), name, forms) or _parse_number
    parts = [part.strip() for part in text.split("|")]
    if ".." in text:
        if len(parts) > 1:
            raise UserError(
                f"in the condition on {name!r}: {text} is not a range; give one LOW..HIGH"
            )
        low, high = _parse_range(name, text, parse)
        _refuse_beyond(name, text, low, high, bounds, forms)
        return low, high
    values = []
    for part in parts:
        low, high = _parse_value(name, part, parse) if part else (None, None)
        _refuse_beyond(name, part, low, high, bounds, forms)
        if low != high:  # all times of a day
            if len(parts) > 1:
                raise UserError(
                    f"in the condition on {name!r}: {text} contains whole days; give a range of "
                    "days, or name the column in --discrete when the generator is trained"
                )
            return low, high
        values.append(low)
    return list(dict.fromkeys(values))


def _refuse_beyond(
    name: str, text: str, low: Any, high: Any, bounds: pd.Series, forms: FileFormat
) -> None:
    if (low is not None and low > bounds.iloc[1]) or (high is not None and high < bounds.iloc[0]):
        form = forms.dates.get(name)
        least, most = bounds if form is None else write_dates(bounds, form)
        raise UserError(f"no value of {name!r} lies in {text}; the values lie in {least}..{most}")


def _parse_range(name: str, text: str, parse: Parse) -> tuple[Any, Any]:
    first, last = (end.strip() for end in text.split("..", 1))
    if not first and not last:
        form = CONDITION_FORMS["--condition"]
        raise UserError(f"the range {text} of {name!r} has no ends; the form is {form}")
    low = _parse_value(name, first, parse)[0] if first else None
    high = _parse_value(name, last, parse)[1] if last else None
    if low is not None and high is not None and low > high:
        raise UserError(
            f"the range {text} of {name!r} is empty; give the lower end first, as in LOW..HIGH"
        )
    return low, high


def _parse_value(name: str, text: str, parse: Parse) -> tuple[Any, Any]:
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"in the condition on {name!r}: {error}") from error


def _parse_number(text: str, form: AmountForm | None = None) -> tuple[Any, Any]:
    """Read a number as the column's file writes it, or as Python does."""
    if form is not None and (read := form.read([text])) is not None:
        return read[text], read[text]
    try:
        number: int | float = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{text!r} is not a number") from None
    return number, number


def _parse_date(text: str, form: str | None, zone: Any) -> tuple[pd.Timestamp, pd.Timestamp]:
    """A moment twice, or the first and the last one of a day."""
    text = text.strip()
    moment = None
    for known in (form, form and form.split("%H")[0].rstrip(" T")):
        if known and moment is None:
            try:
                moment = datetime.datetime.strptime(text, known)
            except ValueError:
                continue
    try:
        low = pd.Timestamp(moment or datetime.datetime.fromisoformat(text))
    except ValueError:
        examples = dict.fromkeys(
            pd.Timestamp(2025, 1, 31).strftime(f) for f in (_ISO, form or _ISO)
        )
        raise ValueError(f"{text!r} is not a date; write it as {' or '.join(examples)}") from None
    of_day = not re.search(r"[T:\s]", text)
    high = low + datetime.timedelta(days=1) if of_day else low
    if low.tz is None and zone is not None:
        low, high = on_clocks(low, zone), on_clocks(high, zone)
    elif low.tz is not None and zone is None:
        low = high = low.tz_convert("UTC").tz_localize(None)
    if of_day:  # nanoseconds count these years alone
        ns = 1700 < high.year < 2200
        high -= pd.Timedelta(1, "ns") if ns else datetime.timedelta(microseconds=1)
    return low, high


def _parse_duration(text: str) -> tuple[pd.Timedelta, pd.Timedelta]:
    try:
        duration = pd.Timedelta(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a duration; write it as '2 days 03:00:00'") from None
    return duration, duration


def check_requests(
    options: RowOptions, encoder: ModeEncoder, forms: FileFormat, table: pd.DataFrame
) -> None:
    """Check --condition and --shares, and warn of conditions that no row of the table meets."""
    conditions = parse_conditions(options.condition, encoder, forms)
    parse_shares(options.shares, encoder, forms, conditions)
    meets_all = np.ones(len(table), dtype=bool)
    for name, values in conditions.items():
        column = table[name]
        if isinstance(values, tuple):
            low, high = values
            is_met = column.notna()
            is_met &= True if low is None else column.ge(low).fillna(False)
            is_met &= True if high is None else column.le(high).fillna(False)
        elif name in encoder.categories_ or values == [None]:
            is_met = column.isin([value for value in values if value is not None])
            is_met |= column.isna() if None in values else False
        else:
            continue  # numbers are met by those near to them
        meets_all &= is_met.to_numpy(dtype=bool)
    if not meets_all.any():
        warn(
            "no row of the table meets all conditions, so the generator may not find enough rows "
            "that meet them"
        )
