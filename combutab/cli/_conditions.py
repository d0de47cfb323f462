"""Parse --condition and --shares, such as ``age=30..50`` and ``city=A:0.3|B:0.7``."""

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
from combutab.cli._options import CONDITION_FORMS, RowOptions, split_condition
from combutab.core.dates import write_dates
from combutab.core.text import known_instead
from combutab.datasets.formats import FileFormat
from combutab.generators import check_conditions
from combutab.generators.conditions import on_clocks, read_conditions
from combutab.generators.shares import read_shares
from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.amounts import Form as AmountForm

# a value may contain "|" and ":"
_SHARE = re.compile(r"(.*?):\s*(\d*\.?\d+)\s*(%?)\s*(?:\||$)")
_ISO = "%Y-%m-%d"
Parse = Callable[[str], tuple[Any, Any]]  # maps a text to the first and the last value it means


def parse_conditions(
    texts: Sequence[str] | None, encoder: ModeEncoder, forms: FileFormat
) -> dict[Any, list[Any] | tuple[Any, Any]]:
    """Parse conditions for a generator's ``sample``; those that all rows meet are left out.

    A condition is ``COLUMN=VALUE``, ``COLUMN=ONE|OTHER`` (an empty value means a missing one) or
    ``COLUMN=LOW..HIGH`` (numbers and dates; both ends are included, and either may be omitted). A
    day means all times of that day. ``forms`` is the format of the file's dates and booleans.

    Raises UserError if a condition has another form, or if its column or value does not exist.

    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> parse_conditions(["age=35..", "city=b"], encoder, FileFormat())
    {'age': (35, None), 'city': ['b']}
    """
    conditions: dict[Any, list[Any] | tuple[Any, Any]] = {}
    for key, value in _split_requests("--condition", texts, encoder):
        name, column = str(key), encoder.columns_[encoder.schema_.position(key)]
        if column.is_continuous:
            conditions[key] = _continuous_values(name, value, column.bounds, forms)
            continue
        values = _discrete_values(name, value, encoder.categories_[key], forms)
        if len(encoder.categories_[key]) > 1:
            conditions[key] = values
    with refusals():
        check_conditions(encoder, conditions)
    return conditions


def parse_shares(
    texts: Sequence[str] | None,
    encoder: ModeEncoder,
    forms: FileFormat,
    conditions: Mapping[Any, Any],
) -> dict[Any, dict[Any, float]]:
    """Parse the shares of values for a generator's ``sample``.

    The form is ``COLUMN=VALUE:SHARE|VALUE:SHARE``, with values as in conditions, and shares such as
    ``0.3`` or ``30%``.

    Raises UserError if shares have another form or cannot be met, or if the column or a value does
    not exist.

    >>> encoder = ModeEncoder().fit(pd.DataFrame({"age": [30, 40, 50], "city": list("aab")}))
    >>> parse_shares(["age=..35:0.2|40..:0.8", "city=b:30%"], encoder, FileFormat(), {})
    {'age': {(None, 35): 0.2, (40, None): 0.8}, 'city': {('b',): 0.3}}
    """
    shares: dict[Any, dict[Any, float]] = {}
    for key, text in _split_requests("--shares", texts, encoder):
        name, column = str(key), encoder.columns_[encoder.schema_.position(key)]
        shares[key] = column_shares = {}
        for value, share in _split_shares(name, text):
            value_key: tuple[Any, ...] | None
            if column.is_continuous:
                parsed_value = _continuous_values(name, value, column.bounds, forms)
                if isinstance(parsed_value, list) and len(parsed_value) > 1:
                    raise UserError(
                        f"--shares: {value!r} of {name!r} stands for several numbers; give a range"
                    )
                if isinstance(parsed_value, tuple):
                    value_key = parsed_value
                else:
                    value_key = (
                        None if parsed_value[0] is None else (parsed_value[0], parsed_value[0])
                    )
            else:
                value_key = tuple(_discrete_values(name, value, encoder.categories_[key], forms))
            if value_key in column_shares:
                raise UserError(f"--shares names {value!r} of {name!r} twice; give it once")
            column_shares[value_key] = share
    with refusals():
        read_shares(encoder, shares, conditions=read_conditions(encoder, conditions))
    return shares


def _split_shares(name: str, text: str) -> list[tuple[str, float]]:
    """Split a text into values and their shares."""
    shares: list[tuple[str, float]] = []
    start = 0
    while start < len(text) or not shares:
        match = _SHARE.match(text, start)
        if match is None:
            raise UserError(
                f"--shares '{name}={text}' is not in the form {CONDITION_FORMS['--shares']}"
            )
        value, number, percent = match.groups()
        shares.append((value, float(number) / 100 if percent else float(number)))
        start = match.end()
    return shares


def _split_requests(
    option: str, texts: Sequence[str] | None, encoder: ModeEncoder
) -> Iterator[tuple[Any, str]]:
    """Split texts ``COLUMN=...`` into the key of the column and its condition or shares.

    Raises UserError if a column is named twice.
    """
    names, named_columns = [str(key) for key in encoder.schema_.keys], set()
    for text in texts or ():
        name, value = split_condition(option, text, names)
        if name in named_columns:
            raise UserError(f"{option} names {name!r} twice; join them: {CONDITION_FORMS[option]}")
        named_columns.add(name)
        j = names.index(name)
        if encoder.columns_[j].is_identifier:
            raise UserError(
                f"{name!r} is an identifier column, whose values are newly made; leave it out of "
                f"{option}, or name the identifier columns with --identifiers"
            )
        yield encoder.schema_.keys[j], value


# ---- discrete columns --------------------------------------------------------------------------


def _discrete_values(name: str, text: str, values: list[Any], forms: FileFormat) -> list[Any]:
    """Find the values of a discrete column that a text names."""
    present_values = [v for v in values if v is not None]
    words = dict(zip((False, True), forms.truth.get(name, ("False", "True")), strict=True))
    by_text = {words[v] if isinstance(v, bool) else str(v): v for v in present_values}
    all_by_text = by_text | ({"": None} if None in values else {})
    parse = _parser(present_values, name, forms)

    def find(part: str) -> list[Any]:
        """Find the values for a text, which may be written differently, such as ``3`` for 3.0."""
        if part in all_by_text:
            return [all_by_text[part]]
        if present_values and all(isinstance(v, bool) for v in present_values):
            return [
                v for known_text, v in by_text.items() if known_text.casefold() == part.casefold()
            ]
        try:
            return _between(present_values, *parse(part)) if parse else []
        except ValueError:
            return []

    if exact_matches := find(text):
        return exact_matches
    if parse is not None and ".." in text:
        if matches := _between(present_values, *_parse_range(name, text, parse)):
            return matches
        raise UserError(f"no value of {name!r} lies in {text}; {known_instead(text, all_by_text)}")
    selected = []
    for part in text.split("|"):
        part_matches = find(part) or find(part.strip())
        if not part_matches:
            problem = f"no value {part!r}" if part else "no missing values"
            raise UserError(f"{name!r} has {problem}; {known_instead(part, by_text)}")
        selected += part_matches
    return list(dict.fromkeys(selected))


def _between(values: list[Any], low: Any, high: Any) -> list[Any]:
    return [v for v in values if (low is None or low <= v) and (high is None or v <= high)]


def _parser(values: Sequence[Any], name: str, forms: FileFormat) -> Parse | None:
    """Return a function that parses a text as a value of a column, or None for text columns."""
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
    """Parse a text as a range or a list of values of a continuous column."""
    parse = _parser(bounds.tolist(), name, forms) or _parse_number
    parts = [part.strip() for part in text.split("|")]
    if ".." in text:
        if len(parts) > 1:
            raise UserError(
                f"in the condition on {name!r}: {text} is not a range; give one LOW..HIGH"
            )
        low, high = _parse_range(name, text, parse)
        _check_bounds(name, text, low, high, bounds, forms)
        return low, high
    values = []
    for part in parts:
        low, high = _parse_value(name, part, parse) if part else (None, None)
        _check_bounds(name, part, low, high, bounds, forms)
        if low != high:  # all times of a day
            if len(parts) > 1:
                raise UserError(
                    f"in the condition on {name!r}: {text} contains whole days; give a range of "
                    "days, or name the column in --discrete when the generator is trained"
                )
            return low, high
        values.append(low)
    return list(dict.fromkeys(values))


def _check_bounds(
    name: str, text: str, low: Any, high: Any, bounds: pd.Series, forms: FileFormat
) -> None:
    if (low is not None and low > bounds.iloc[1]) or (high is not None and high < bounds.iloc[0]):
        form = forms.dates.get(name)
        lowest, highest = bounds if form is None else write_dates(bounds, form)
        raise UserError(
            f"no value of {name!r} lies in {text}; the values lie in {lowest}..{highest}"
        )


def _parse_range(name: str, text: str, parse: Parse) -> tuple[Any, Any]:
    low_text, high_text = (end.strip() for end in text.split("..", 1))
    if not low_text and not high_text:
        form = CONDITION_FORMS["--condition"]
        raise UserError(f"the range {text} of {name!r} has no ends; the form is {form}")
    low = _parse_value(name, low_text, parse)[0] if low_text else None
    high = _parse_value(name, high_text, parse)[1] if high_text else None
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
    """Parse a number in the format of the column's file, or as Python writes it."""
    if form is not None and (numbers := form.read([text])) is not None:
        return numbers[text], numbers[text]
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
    """Parse a date: a time is returned twice, a day as its first and its last moment."""
    text = text.strip()
    moment = None
    for pattern in (form, form and form.split("%H")[0].rstrip(" T")):
        if pattern and moment is None:
            try:
                moment = datetime.datetime.strptime(text, pattern)
            except ValueError:
                continue
    try:
        low = pd.Timestamp(moment or datetime.datetime.fromisoformat(text))
    except ValueError:
        examples = dict.fromkeys(
            pd.Timestamp(2025, 1, 31).strftime(f) for f in (_ISO, form or _ISO)
        )
        raise ValueError(f"{text!r} is not a date; write it as {' or '.join(examples)}") from None
    is_day = not re.search(r"[T:\s]", text)
    high = low + datetime.timedelta(days=1) if is_day else low
    if low.tz is None and zone is not None:
        low, high = on_clocks(low, zone), on_clocks(high, zone)
    elif low.tz is not None and zone is None:
        low = high = low.tz_convert("UTC").tz_localize(None)
    if is_day:  # nanoseconds exist only for these years
        has_nanoseconds = 1700 < high.year < 2200
        high -= pd.Timedelta(1, "ns") if has_nanoseconds else datetime.timedelta(microseconds=1)
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
            continue  # sampled numbers need only be close to those of the condition
        meets_all &= is_met.to_numpy(dtype=bool)
    if not meets_all.any():
        warn(
            "no row of the table meets all conditions, so the generator may not find enough rows "
            "that meet them"
        )
