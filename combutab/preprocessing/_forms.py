"""Columns of dates, times and numbers whose dtype does not say what they hold, and back."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import (
    CLOCK_FORMATS,
    DATE_FORMATS,
    NUMBER_FORMATS,
    find_clock_format,
    find_date_format,
    find_number_format,
    read_clocks,
    read_dates,
    read_numbers_as_dates,
    write_clocks,
    write_dates,
    write_dates_as_numbers,
)
from combutab.core.files import choice, kind, whole
from combutab.core.rows import name_row
from combutab.core.state import declare
from combutab.preprocessing._columns import (
    MISSING_TEXTS,
    ColumnKind,
    column_kind,
    holds_times_of_day,
    means_missing,
    object_datetimes,
    refuse_objects,
)

HAS_DIGIT = re.compile(r"\d").search  # as all texts of numbers, dates and times have

FormKind = Literal[
    "date text", "clock text", "unit text", "date number", "date", "datetime", "period", "decimal"
]


@dataclass(frozen=True)
class ColumnForm:
    """How a column contains dates, times or numbers: as text, whole numbers or Python's objects.

    Attributes
    ----------
    column : int
        Position of the column in the table.
    kind : str
        One of `FormKind`; the last four are objects.
    format : str
        Format of text (of numbers with a unit, such as ``{:.1f} km``) and of dates that are whole
        numbers, the frequency of periods, or the number of decimals; empty for others.
    dtype : str
        Dtype of the column.
    """

    column: int
    kind: FormKind
    format: str = ""
    dtype: str = "object"

    @property
    def column_kind(self) -> ColumnKind:
        """The kind of the values, once they are read."""
        if self.kind == "clock text":
            return ColumnKind.TIMEDELTA
        return ColumnKind.NUMBER if self.kind in _NUMBERS else ColumnKind.DATETIME

    def read(self, column: pd.Series, label: str) -> pd.Series:
        """Read a column as datetimes, durations or floats; one that is so is returned unchanged.

        Raises ValueError if a value has another form; it names the column and the value.
        """
        is_typed = {"M": ColumnKind.DATETIME, "m": ColumnKind.TIMEDELTA}.get(column.dtype.kind)
        is_number = self.kind in _NUMBERS and types.is_numeric_dtype(column.dtype)
        if is_typed == self.column_kind or is_number:
            return column
        if self.kind == "clock text" and holds_times_of_day(column):
            return pd.to_timedelta(column.astype(object).map(str, na_action="ignore"))
        if self.kind in _NOUNS:
            return self._read_texts(column, label)
        if self.kind == "decimal":
            return column.astype("float64")
        if self.kind == "date number":
            return self._read_numbers(column, label)
        return object_datetimes(column, label)

    def _read_numbers(self, column: pd.Series, label: str) -> pd.Series:
        try:
            return read_numbers_as_dates(column, self.format)
        except (TypeError, ValueError):
            for row, value in enumerate(column):
                try:
                    read_numbers_as_dates(pd.Series([value]), self.format)
                except (TypeError, ValueError):
                    noun = "time of day" if self.format == "%H%M" else "date"
                    raise ValueError(
                        f"{label} contains a {noun} in each row, such as {self.example()}, but "
                        f"{value!r}{name_row(row)} is no {noun}; correct the value"
                    ) from None
            raise

    def _read_texts(self, column: pd.Series, label: str) -> pd.Series:
        refuse_objects(column, label)
        parse = {"date text": read_dates, "clock text": read_clocks}.get(self.kind, _read_units)
        texts = pd.Series(
            [
                None if is_missing or means_missing(value) else str(value).strip()
                for value, is_missing in zip(column.astype(object), column.isna(), strict=True)
            ],
            column.index,
            dtype=object,
            name=column.name,
        )
        try:
            return parse(texts, self.format)
        except ValueError:
            pass
        for row, text in enumerate(texts):
            try:
                parse(pd.Series([text], dtype=object), self.format)
            except ValueError:
                raise ValueError(
                    f"{label} holds {_NOUNS[self.kind]} such as {self.example()!r}, but "
                    f"{column.iloc[row]!r}{name_row(row)} could not be read as one; "
                    "correct the value, or convert the column to what it was in fit"
                ) from None
        raise AssertionError("one value cannot be read")

    def example(self) -> str:
        """A text of the format."""
        if self.kind == "date text":
            return str(write_dates(pd.Series([pd.Timestamp("2024-12-31")]), self.format)[0])
        if self.kind == "unit text":
            return self.format.format(12.5)
        if self.kind == "date number":
            return pd.Timestamp("2024-12-31 10:18:30").strftime(self.format)
        return str(write_clocks(pd.Series([pd.Timedelta("10:18:30")]), self.format)[0])

    def write(self, column: pd.Series) -> pd.Series:
        """Write datetimes, durations or floats in this form."""
        dtype: Any = self.dtype
        if self.kind == "date text":
            texts = write_dates(column, self.format).astype(object)
            return texts.where(column.notna(), None).astype(dtype)
        if self.kind == "clock text":
            return write_clocks(column, self.format).astype(dtype)
        if self.kind == "date number":
            return write_dates_as_numbers(column, self.format).astype(dtype)
        convert: Callable[[Any], Any] = {
            "date": lambda moment: moment.date(),
            "datetime": lambda moment: moment.to_pydatetime(),
            "period": lambda moment: pd.Period(moment, self.format),
            "decimal": self._as_decimal,
            "unit text": self.format.format,
        }[self.kind]
        values = np.full(len(column), None, dtype=object)
        present = column.notna().to_numpy()
        values[present] = [convert(value) for value in column[present]]
        return pd.Series(values, column.index, dtype=object, name=column.name).astype(dtype)

    def _as_decimal(self, number: float) -> decimal.Decimal:
        if self.format:
            return decimal.Decimal(f"{number:.{self.format}f}")
        return decimal.Decimal(repr(float(number)))

    def read_value(self, value: Any, label: str) -> Any:
        """Read one value; None and NaN stay as they are."""
        if value is None or (types.is_scalar(value) and pd.isna(value)):
            return value
        return self.read(pd.Series([value]), label).iloc[0]


_NOUNS = {"date text": "dates", "clock text": "times", "unit text": "numbers with a unit"}
_NUMBERS = ("decimal", "unit text")


def _read_units(texts: pd.Series, form: str) -> pd.Series:
    """Numbers before or after a unit as floats; raises ValueError if some have another form."""
    before, after = _UNIT_SLOT.split(form)
    numbers = texts.str.removeprefix(before).str.removesuffix(after)
    if (numbers.str.len() + len(before) + len(after) != texts.str.len())[texts.notna()].any():
        raise ValueError(f"numbers without the unit of {form}")
    return numbers.astype("float64")


_UNIT_SLOT = re.compile(r"\{:(?:\.\d{1,2})?[fg]\}")
_PLAIN_UNIT = re.compile(r"([^\d+\-]*)([+-]?(?:0|[1-9]\d*)(?:\.(\d+))?)([^\d.,]*)")


def _find_unit_form(texts: Collection[str]) -> str | None:
    """Find the one unit that stands before or after all of many plain numbers."""
    if len(texts) <= _MAX_FEW or not measured_example(texts):
        return None
    matches = [_PLAIN_UNIT.fullmatch(text) for text in texts]
    parts = {match.group(1, 4) for match in matches if match is not None}
    if len(parts) != 1 or None in matches:
        return None
    ((before, after),) = parts
    decimals = {len(match[3] or "") for match in matches if match}
    slot = f"{{:.{decimals.pop()}f}}" if len(decimals) == 1 else "{:g}"
    braced = any(sign in before + after for sign in "{}")
    return None if braced else f"{before}{slot}{after}"


# ---- Measurements as text: numbers with units, times, dates, and amounts -------------------------

_MEASURED_NUMBER = r"(?:\d{1,3}(?:[.,\u00a0\u202f' ]\d{2,3})+|\d+)(?:[.,]\d+)?"
_UNIT_WORD = r"[^\W\d_°²³]{1,8}(?:/[^\W\d_]{1,5})?[²³23]?"
_UNITS = re.compile(
    rf"\W*{_MEASURED_NUMBER}\)?[ \u00a0]?(?P<first>°?{_UNIT_WORD}|[°'\"])"
    rf"(?:\W{{0,2}}{_MEASURED_NUMBER}[ \u00a0]?(?P<second>°?{_UNIT_WORD}|[°'\"]))?\W*"
)
_GROUPED = re.compile(r"\W*\d{1,3}(?:,\d{2})*,\d{3}(?:\.\d+)?\W*")  # 1,23,456 of India
_MOMENT = re.compile(
    r"(?:[a-z]{3,9},? )?(?:\d{1,4}[-/. ]+MONTH|MONTH \d{1,2},?)[-/., ]+\d{2,4}(?:[T ,].*)?".replace(
        "MONTH", r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
    )
    + r"|\d{1,4}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[ap]m)?",
    re.IGNORECASE,
)
_MAX_UNITS = 4  # units of a column, such as K and M
_MIN_MEASURED = 0.9  # share of the values


def measured_example(texts: Collection[str]) -> str:
    """An example of the values of a column that are measured, "" if they are names.

    Measured are numbers with a unit (of at most four units), with separators as in 1,23,456, times
    of day, and dates with names of months.

    >>> measured_example(["1697.6 km", "23 km"]), measured_example(["10:18:00", "9:05:00"])
    ('1697.6 km', '10:18:00')
    >>> measured_example(["AB-1", "AB-2"]), measured_example(["0012A", "0013A"])
    ('', '')
    """
    matches = [_UNITS.fullmatch(text) for text in texts]
    with_units = [match for match in matches if match is not None]
    units = {(match["first"], match["second"]) for match in with_units}
    padded = sum(text.lstrip("+-")[:2].isdigit() and text.lstrip("+-")[0] == "0" for text in texts)
    if len(with_units) >= _MIN_MEASURED * len(texts) and len(units) <= _MAX_UNITS and not padded:
        return with_units[0].string
    other_examples = [text for text in texts if _GROUPED.fullmatch(text) or _MOMENT.fullmatch(text)]
    return (
        other_examples[0]
        if other_examples and len(other_examples) >= _MIN_MEASURED * len(texts)
        else ""
    )


def find_text_form(column: pd.Series, position: int) -> ColumnForm | None:
    """Find the one format of a column of dates or times as text; None if it is another column."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = pd.Series(column.cat.categories)
    if column_kind(column) != ColumnKind.TEXT:
        return None
    texts = column.dropna().unique()
    stripped = [text for text in map(str.strip, texts) if text.lower() not in MISSING_TEXTS]
    if len(set(stripped)) < 2 or not HAS_DIGIT("".join(stripped)):
        return None
    if (form := find_date_format(stripped)) is not None:
        return ColumnForm(position, "date text", form)
    if (form := find_clock_format(stripped)) is not None:
        return ColumnForm(position, "clock text", form)
    if (form := _find_unit_form(stripped)) is not None:
        return ColumnForm(position, "unit text", form)
    return None


def _frequency(dtype: Any) -> str:
    """The frequency of a dtype such as period[M]."""
    return str(dtype).removeprefix("period[").removesuffix("]")


def find_form(column: pd.Series, position: int) -> ColumnForm | None:
    """Find how a column holds dates, times or numbers, if its dtype does not say it.

    >>> find_form(pd.Series(["22-Jun-2024", "01-May-2023"]), 0)
    ColumnForm(column=0, kind='date text', format='%d-%b-%Y', dtype='object')
    >>> find_form(pd.Series([pd.Timestamp("2024-06-22").date()]), 1)
    ColumnForm(column=1, kind='date', format='', dtype='object')
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return ColumnForm(position, "period", _frequency(dtype), str(dtype))
    if isinstance(dtype, pd.CategoricalDtype):
        return None
    inferred = types.infer_dtype(column, skipna=True) if dtype.kind == "O" else ""
    if inferred == "period":
        frequencies = {_frequency(pd.Series([value]).dtype) for value in column.dropna()}
        return ColumnForm(position, "period", frequencies.pop()) if len(frequencies) == 1 else None
    if inferred == "decimal":
        n_decimals = {-value.as_tuple().exponent for value in column.dropna() if value.is_finite()}
        one = len(n_decimals) == 1 and min(n_decimals) >= 0
        return ColumnForm(position, "decimal", str(n_decimals.pop()) if one else "")
    if inferred == "date":
        return ColumnForm(position, "date")
    if inferred == "datetime" and dtype == np.dtype(object):
        return ColumnForm(position, "datetime")
    form = find_text_form(column, position)
    return None if form is None else replace(form, dtype=str(dtype))


def _find_number_form(column: pd.Series, position: int) -> ColumnForm | None:
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    form = find_number_format(numbers, str(column.name))
    return None if form is None else ColumnForm(position, "date number", form, str(column.dtype))


class NamedColumns(Protocol):
    """Columns with their names, such as a DataFrame."""

    def items(self) -> Iterable[tuple[Any, pd.Series]]:
        """Return the names and the columns."""


def find_forms(table: NamedColumns, excluded: Collection[Any] = ()) -> tuple[ColumnForm, ...]:
    """Find the columns of dates, times and decimals that a generator learns as continuous.

    Those that are ``excluded`` by name, and those with few values that are repeated, are not.
    """
    forms = []
    for position, (name, column) in enumerate(table.items()):
        if name in excluded or column.dtype.kind in "bcmM":
            continue
        find = _find_number_form if column.dtype.kind in "iuf" else find_form
        form = find(column, position)
        n_values = 0 if form is None else column.nunique()
        is_few = n_values <= min(_MAX_FEW, len(column) / _MAX_FEW)
        if form is not None and not is_few:
            forms.append(form)
    return tuple(forms)


_MAX_FEW = 20  # values of a column that stay categories, each in as many rows on average


def _check_form(form: ColumnForm) -> None:
    formats = {
        "date text": DATE_FORMATS,
        "clock text": CLOCK_FORMATS,
        "date number": NUMBER_FORMATS,
    }.get(form.kind)
    around = _UNIT_SLOT.split(form.format)
    if form.kind == "unit text" and (len(around) != 2 or re.search("[{}]", "".join(around))):
        raise ValueError(f"the encoder's state has a unit that is none: {form.format!r:.60}")
    if formats is not None and form.format not in formats:
        raise ValueError(f"the encoder's state has a format that is not known: {form.format!r:.60}")
    if form.kind == "period":
        pd.Period("2024-01-01", form.format)
    if form.kind == "decimal" and form.format and not 0 <= int(form.format) <= 30:
        raise ValueError(f"the encoder's state has {form.format} decimals")
    pd.api.types.pandas_dtype(form.dtype)


declare(
    ColumnForm,
    {
        "column": whole(),
        "kind": choice(*get_args(FormKind)),
        "format": kind(str),
        "dtype": kind(str),
    },
    _check_form,
)
