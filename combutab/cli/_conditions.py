"""Parse --condition and --shares, such as ``age=30..50`` and ``city=A:0.3|B:0.7``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd

from combutab.cli._console import UserError, refusals, warn
from combutab.cli._options import RowOptions
from combutab.core.dates import write_dates
from combutab.core.text import known_instead, no_column
from combutab.datasets.formats import FileFormat
from combutab.generators import check_conditions
from combutab.generators.conditions import (
    PointConditions,
    all_met,
    read_conditions,
    read_duration,
    read_moments,
    read_number,
)
from combutab.generators.shares import read_shares
from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.amounts import Form as AmountForm

_FORMS = {
    "--condition": "COLUMN=VALUE, COLUMN=ONE|OTHER or COLUMN=LOW..HIGH",
    "--shares": "COLUMN=VALUE:SHARE|VALUE:SHARE, such as city=Rome:0.3|Oslo:0.7 or "
    "age=..29:40%|30..:60%",
}
# a value may contain "|" and ":"
_SHARE = re.compile(r"(.*?):\s*(\d*\.?\d+)\s*(%?)\s*(?:\||$)")
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
    for key, column, text in _split_requests("--condition", texts, encoder, forms):
        values = column.read(text)
        if len(column.values) > 1:
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
    for key, column, text in _split_requests("--shares", texts, encoder, forms):
        shares[key] = column_shares = {}
        for value, share in _split_shares(column.name, text):
            values: Any = column.read(value)
            if not column.is_continuous:
                values = tuple(values)
            elif isinstance(values, list) and len(values) > 1:
                raise UserError(
                    f"--shares: {value!r} of {column.name!r} stands for several numbers; give a "
                    "range"
                )
            elif isinstance(values, list):
                values = None if values[0] is None else (values[0], values[0])
            if values in column_shares:
                raise UserError(f"--shares names {value!r} of {column.name!r} twice; give it once")
            column_shares[values] = share
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
            raise UserError(f"--shares '{name}={text}' is not in the form {_FORMS['--shares']}")
        value, number, percent = match.groups()
        shares.append((value, float(number) / 100 if percent else float(number)))
        start = match.end()
    return shares


def _split_requests(
    option: str, texts: Sequence[str] | None, encoder: ModeEncoder, forms: FileFormat
) -> Iterator[tuple[Any, _ValueReader, str]]:
    """Split texts ``COLUMN=...`` into the column, with its key, and the condition or shares."""
    names = [str(key) for key in encoder.schema_.keys]
    for name, value in split_names(option, texts, names):
        j = names.index(name)
        key, coder = encoder.schema_.keys[j], encoder.columns_[j]
        if coder.is_identifier:
            raise UserError(
                f"{name!r} is an identifier column, whose values are newly made; leave it out of "
                f"{option}, or name the identifier columns with --identifiers"
            )
        values = coder.bounds.tolist() if coder.is_continuous else encoder.categories_[key]
        yield key, _ValueReader(name, coder.is_continuous, values, forms), value


def split_names(
    option: str, texts: Sequence[str] | None, names: Sequence[str]
) -> list[tuple[str, str]]:
    """Split texts ``COLUMN=...`` into the name of the column and the condition or shares.

    The name of a column may contain ``=``. Raises UserError if there is no such column, or if it is
    named twice.
    """
    split: dict[str, str] = {}
    for text in texts or ():
        parts = text.split("=")
        if len(parts) == 1:
            raise UserError(f"{option} {text!r} is not in the form {_FORMS[option]}")
        starts = [("=".join(parts[:i]), "=".join(parts[i:])) for i in range(len(parts) - 1, 0, -1)]
        matches = [
            (n, value) for start, value in starts for n in (start, start.strip()) if n in names
        ]
        if not matches:
            raise UserError(f"{option} {text!r}: {no_column(parts[0].strip(), names)}")
        name, value = matches[0]
        if name in split:
            raise UserError(f"{option} names {name!r} twice; join them: {_FORMS[option]}")
        split[name] = value
    return list(split.items())


# ---- Values of a column as text ------------------------------------------------------------------


@dataclass(frozen=True)
class _ValueReader:
    """A column whose values are written as text.

    The values of a discrete column are all that it has, those of a continuous one its bounds.
    """

    name: str
    is_continuous: bool
    values: list[Any]
    forms: FileFormat

    @cached_property
    def parse(self) -> Parse | None:
        """The function that parses a text as a value, or None for text columns."""
        values, name, forms = [v for v in self.values if v is not None], self.name, self.forms
        if values and all(isinstance(v, pd.Timestamp) for v in values):
            return partial(read_moments, form=forms.dates.get(name), zone=values[0].tz)
        if values and all(isinstance(v, pd.Timedelta) for v in values):
            return read_duration
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            plain = AmountForm(forms.decimal, "", None, "{}", "-{}")
            return partial(read_number, form=forms.amounts.get(name, plain))
        return read_number if self.is_continuous else None

    def read(self, text: str) -> list[Any] | tuple[Any, Any]:
        """Read a text as values or as a range."""
        return self._read_continuous(text) if self.is_continuous else self._read_discrete(text)

    def _read_discrete(self, text: str) -> list[Any]:
        words = dict(
            zip((False, True), self.forms.truth.get(self.name, ("False", "True")), strict=True)
        )
        present = [v for v in self.values if v is not None]
        by_text = {words[v] if isinstance(v, bool) else str(v): v for v in present}
        missing = {"": None} if None in self.values else {}
        folded = {name.casefold(): v for name, v in by_text.items() if isinstance(v, bool)}

        def between(low: Any, high: Any) -> list[Any]:
            return [v for v in present if (low is None or low <= v) and (high is None or v <= high)]

        def find(part: str) -> list[Any]:
            """Find the values of a text, which may be written differently: ``3`` for 3.0."""
            if part in by_text | missing:
                return [(by_text | missing)[part]]
            if part.casefold() in folded:
                return [folded[part.casefold()]]
            with suppress(ValueError):
                return between(*self.parse(part)) if self.parse else []
            return []

        if exact_matches := find(text):
            return exact_matches
        if self.parse is not None and ".." in text:
            if matches := between(*self._read_range(text)):
                return matches
            suggestion = known_instead(text, by_text | missing)
            raise UserError(f"no value of {self.name!r} lies in {text}; {suggestion}")
        selected = []
        for part in text.split("|"):
            part_matches = find(part) or find(part.strip())
            if not part_matches:
                problem = f"no value {part!r}" if part else "no missing values"
                raise UserError(f"{self.name!r} has {problem}; {known_instead(part, by_text)}")
            selected += part_matches
        return list(dict.fromkeys(selected))

    def _read_continuous(self, text: str) -> list[Any] | tuple[Any, Any]:
        problem = f"in the condition on {self.name!r}: {text}"
        parts = [part.strip() for part in text.split("|")]
        if ".." in text and len(parts) > 1:
            raise UserError(f"{problem} is not a range; give one LOW..HIGH")
        values = []
        for part in parts:
            read = self._read_range if ".." in part else self._read_value
            low, high = read(part) if part else (None, None)
            lowest, highest = self.values
            if (low is not None and low > highest) or (high is not None and high < lowest):
                form = self.forms.dates.get(self.name)
                if form is not None:
                    lowest, highest = write_dates(pd.Series(self.values), form)
                raise UserError(
                    f"{self.name!r} is never {'in ' * ('..' in part)}{part}: its values lie in "
                    f"{lowest} to {highest}"
                )
            if ".." in part or low != high:  # all times of a day
                if len(parts) > 1:
                    raise UserError(
                        f"{problem} contains whole days; give a range of days, or name the column "
                        "in --discrete when the generator is trained"
                    )
                return low, high
            values.append(low)
        return list(dict.fromkeys(values))

    def _read_range(self, text: str) -> tuple[Any, Any]:
        low_text, high_text = (end.strip() for end in text.split("..", 1))
        if not low_text and not high_text:
            form = _FORMS["--condition"]
            raise UserError(f"the range {text} of {self.name!r} has no ends; the form is {form}")
        low = self._read_value(low_text)[0] if low_text else None
        high = self._read_value(high_text)[1] if high_text else None
        if low is not None and high is not None and low > high:
            raise UserError(
                f"the range {text} of {self.name!r} is empty; give the lower end first, as in "
                "LOW..HIGH"
            )
        return low, high

    def _read_value(self, text: str) -> tuple[Any, Any]:
        if text.startswith("="):
            raise UserError(f"'{self.name}={text}' has two equals signs; write {self.name}{text}")
        with refusals(prefix=f"in the condition on {self.name!r}: "):
            return (self.parse or read_number)(text)


def check_requests(
    options: RowOptions, encoder: ModeEncoder, forms: FileFormat, table: pd.DataFrame
) -> None:
    """Check --condition and --shares, and warn of conditions that no row of the table meets."""
    conditions = parse_conditions(options.condition, encoder, forms)
    parse_shares(options.shares, encoder, forms, conditions)
    # sampled numbers need only be close to those of a condition
    needed = [
        condition
        for condition in read_conditions(encoder, conditions)
        if not isinstance(condition, PointConditions)
    ]
    if needed and not all_met(needed, encoder.encode(table).codes, table).any():
        warn(
            "no row of the table meets all conditions, so the generator may not find enough rows "
            "that meet them"
        )
