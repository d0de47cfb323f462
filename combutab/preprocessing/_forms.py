"""Columns of dates, times and numbers whose dtype does not say what they hold, and back."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import (
    CLOCK_FORMATS,
    DATE_FORMATS,
    find_clock_format,
    find_date_format,
    read_clocks,
    read_dates,
    write_clocks,
    write_dates,
)
from combutab.core.files import choice, kind, whole
from combutab.core.state import declare
from combutab.preprocessing._columns import (
    MISSING_TEXTS,
    ColumnKind,
    column_kind,
    object_datetimes,
    refuse_objects,
)

FormKind = Literal["date text", "clock text", "date", "datetime", "period", "decimal"]


@dataclass(frozen=True)
class ColumnForm:
    """How a column holds dates, times or numbers: as text of a format, or as Python's objects.

    Attributes
    ----------
    column : int
        Position of the column in the table.
    kind : {"date text", "clock text", "date", "datetime", "period", "decimal"}
        What the column holds; the last four are objects.
    format : str
        Format of text, or the frequency of periods; empty for other objects.
    """

    column: int
    kind: FormKind
    format: str = ""

    @property
    def column_kind(self) -> ColumnKind:
        """The kind of the values, once they are read."""
        if self.kind == "clock text":
            return ColumnKind.TIMEDELTA
        return ColumnKind.NUMBER if self.kind == "decimal" else ColumnKind.DATETIME

    def read(self, column: pd.Series, label: str) -> pd.Series:
        """Read a column as datetimes, durations or floats; one that is so is returned unchanged.

        Raises ValueError if a value has another form; it names the column and the value.
        """
        is_typed = {"M": ColumnKind.DATETIME, "m": ColumnKind.TIMEDELTA}.get(column.dtype.kind)
        if is_typed == self.column_kind:
            return column
        if self.kind in ("date text", "clock text"):
            return self._read_texts(column, label)
        if self.kind == "decimal":
            return column.astype("float64")
        return object_datetimes(column, label)

    def _read_texts(self, column: pd.Series, label: str) -> pd.Series:
        refuse_objects(column, label)
        parse = read_dates if self.kind == "date text" else read_clocks
        present = column.astype(object)
        texts = present.where(present.notna()).map(str, na_action="ignore").str.strip()
        texts = texts.mask(texts.str.lower().isin(MISSING_TEXTS))
        if isinstance(column.dtype, pd.CategoricalDtype):
            texts = texts.astype(object)
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
                    f"{column.iloc[row]!r} (data row {row + 1:,}) could not be read as one; "
                    "correct the value, or convert the column to what it was in fit"
                ) from None
        raise AssertionError("one value cannot be read")

    def example(self) -> str:
        """A text of the format."""
        if self.kind == "date text":
            return str(write_dates(pd.Series([pd.Timestamp("2024-12-31")]), self.format)[0])
        return str(write_clocks(pd.Series([pd.Timedelta("10:18:30")]), self.format)[0])

    def write(self, column: pd.Series, dtype: Any = object) -> pd.Series:
        """Write datetimes, durations or floats in this form, with the fitted column's dtype."""
        if self.kind == "date text":
            return write_dates(column, self.format).astype(dtype)
        if self.kind == "clock text":
            return write_clocks(column, self.format).astype(dtype)
        convert: Callable[[Any], Any] = {
            "date": lambda moment: moment.date(),
            "datetime": lambda moment: moment.to_pydatetime(),
            "period": lambda moment: pd.Period(moment, self.format),
            "decimal": lambda number: decimal.Decimal(repr(float(number))),
        }[self.kind]
        values = np.full(len(column), None, dtype=object)
        present = column.notna().to_numpy()
        values[present] = [convert(value) for value in column[present]]
        return pd.Series(values, column.index, dtype=object, name=column.name).astype(dtype)


_NOUNS = {"date text": "dates", "clock text": "times"}


# ---- Measurements as text: numbers with units, times, dates, and amounts -------------------------

_MEASURED_NUMBER = r"(?:\d{1,3}(?:[.,\u00a0\u202f' ]\d{2,3})+|\d+)(?:[.,]\d+)?"
_UNIT_WORD = r"[^\W\d_°²³]{1,8}(?:/[^\W\d_]{1,5})?[²³23]?"
_UNITS = re.compile(
    rf"\W*{_MEASURED_NUMBER}[ \u00a0]?(?P<first>°?{_UNIT_WORD}|[°'\"])"
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
    others = [text for text in texts if _GROUPED.fullmatch(text) or _MOMENT.fullmatch(text)]
    return others[0] if others and len(others) >= _MIN_MEASURED * len(texts) else ""


def find_text_form(column: pd.Series, position: int) -> ColumnForm | None:
    """Find the one format of a column of dates or times as text; None if it is another column."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = pd.Series(column.cat.categories)
    if column_kind(column) != ColumnKind.TEXT:
        return None
    texts = column.dropna().unique()
    stripped = [text for text in map(str.strip, texts) if text.lower() not in MISSING_TEXTS]
    if len(set(stripped)) < 2:
        return None
    if (form := find_date_format(stripped)) is not None:
        return ColumnForm(position, "date text", form)
    if (form := find_clock_format(stripped)) is not None:
        return ColumnForm(position, "clock text", form)
    return None


def find_form(column: pd.Series, position: int) -> ColumnForm | None:
    """Find how a column holds dates, times or numbers, if its dtype does not say it.

    >>> find_form(pd.Series(["22-Jun-2024", "01-May-2023"]), 0)
    ColumnForm(column=0, kind='date text', format='%d-%b-%Y')
    >>> find_form(pd.Series([datetime.date(2024, 6, 22)]), 1)
    ColumnForm(column=1, kind='date', format='')
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return ColumnForm(position, "period", str(dtype.freq.freqstr))
    if isinstance(dtype, pd.CategoricalDtype):
        return None
    if dtype.kind != "O":
        return find_text_form(column, position)
    inferred = types.infer_dtype(column, skipna=True)
    if inferred == "period":
        frequencies = {value.freqstr for value in column.dropna()}
        return ColumnForm(position, "period", frequencies.pop()) if len(frequencies) == 1 else None
    objects = {"date": "date", "datetime": "datetime", "decimal": "decimal"}
    if inferred in objects:
        return ColumnForm(position, objects[inferred])  # type: ignore[arg-type]
    return find_text_form(column, position)


def _check_form(form: ColumnForm) -> None:
    formats = {"date text": DATE_FORMATS, "clock text": CLOCK_FORMATS}.get(form.kind)
    if formats is not None and form.format not in formats:
        raise ValueError(f"the encoder's state has a format that is not known: {form.format!r:.60}")
    if form.kind == "period":
        pd.Period("2024-01-01", form.format)


declare(
    ColumnForm,
    {"column": whole(), "kind": choice(*get_args(FormKind)), "format": kind(str)},
    _check_form,
)
