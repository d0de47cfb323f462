"""Amounts that are text, such as "1.507,67 €", "$1,200", "12 %" and "(3.50)", and their form.

A column is of amounts if all its values have one form: at most one unit (a currency or percent),
one decimal mark and one mark between thousands. "1.234" may be 1.234 or 1234; other values of the
column tell which, or other columns of the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pandas as pd

from combutab.preprocessing._columns import ColumnKind, column_kind
from combutab.preprocessing._tables import as_pandas

_MARKS = ".,"
_ALIKE = (" \u00a0\u202f", "'’")  # spaces, apostrophes
_GAPS = "".join(_ALIKE)  # between thousands
_ALL_MARKS = _MARKS + _GAPS
_NAMES = "AED AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF ILS INR ISK JPY KRW MXN NOK NZD PLN"
_NAMES += " RON RUB SAR SEK SGD THB TRY UAH USD ZAR kr Kr zł Kč Ft Fr SFr Rs"
UNIT = rf"(?:(?:US|A|C|R)?[$¢-¥\u20a0-\u20cf]|[%‰]|(?:{'|'.join(_NAMES.split())})(?![^\W\d_])\.?)?"
_SPACE = r"[ \u00a0\u202f]?"
_NUMBER = rf"([.,]?\d(?:[\d.,{_GAPS}]*\d)?)"
_SIGN = "([-+\u2212]?)"
_AMOUNT = re.compile(
    rf"(\(?){_SIGN}{_SPACE}({UNIT}){_SPACE}{_SIGN}{_SPACE}(\(?){_NUMBER}(\)?)"
    rf"{_SPACE}({UNIT}){_SPACE}(-?){_SPACE}({UNIT})(\)?)"
)
_MOST = 40  # characters of an amount
_MIN_ID = 7  # digits of identifiers in groups, at least
_MAX_DIGITS = 15  # that a float keeps


@dataclass(frozen=True)
class Form:
    """How a column's numbers are written.

    ``decimal`` and ``thousands`` are the marks, or ``""``; ``digits`` is the number of decimals, or
    None if it varies; ``positive`` and ``negative`` are templates such as ``"{} €"`` and
    ``"({} €)"``.
    """

    decimal: str
    thousands: str
    digits: int | None
    positive: str
    negative: str

    @classmethod
    def from_json(cls, value: Any) -> Form:
        """Read a form of a stranger's file; raises ValueError if no column has it."""
        form = cls(**value) if isinstance(value, dict) else None
        if (
            form is None
            or form.decimal not in ("", *_MARKS)
            or form.thousands not in ("", *_MARKS, *_GAPS)
            or not (form.digits is None or (type(form.digits) is int and 0 <= form.digits <= 30))
        ):
            raise ValueError(f"not a form of amounts: {value!r:.100}")
        for template, sign in ((form.positive, 1), (form.negative, -1)):
            amount = _Amount.split(template.replace("{}", "1"))
            if amount is None or amount.negative != (sign < 0):
                raise ValueError(f"not a form of amounts: {template!r:.100}")
        return form

    @property
    def unit(self) -> str:
        """The currency or percent sign, or ``""``."""
        return _unit_of(self.positive)

    @property
    def plain(self) -> bool:
        """Whether the numbers have no unit, and at most a minus sign in front."""
        return (self.positive, self.negative) == ("{}", "-{}")

    def write(self, value: float) -> str:
        """Write a number in this form."""
        size = Decimal(f"{abs(value):.{_MAX_DIGITS}g}" if isinstance(value, float) else abs(value))
        plain = format(size, ",f" if self.digits is None else f",.{self.digits}f")
        around = self.negative if value < 0 and plain.strip("0.,") else self.positive
        return around.format(plain.translate({ord("."): self.decimal, ord(","): self.thousands}))

    def read(self, texts: Iterable[str]) -> dict[str, float] | None:
        """Read values that have the marks of this form; returns None if some have another form."""
        amounts = Amounts.split(texts)
        marks = (self.decimal, self.thousands)
        if amounts is None or not any(
            amounts.readable(*pair) for pair in (marks, (self.decimal, ""))
        ):
            return None
        return amounts.numbers(*marks) if amounts.units <= {"", self.unit} else None


@dataclass(frozen=True)
class _Amount:
    """A value, split into the digits with their marks and a template of the text around them."""

    digits: str
    around: str
    negative: bool
    plus: bool

    @classmethod
    def split(cls, text: str) -> _Amount | None:
        match = _AMOUNT.fullmatch(text) if len(text) <= _MOST else None
        if match is None:
            return None
        opened, closed = match[1] + match[5], match[7] + match[11]
        signs = "".join(match[j] for j in (2, 4, 9))
        units = [match[j] for j in (3, 8, 10) if match[j]]
        if len(opened) != len(closed) or len(signs) + len(opened) > 1 or len(units) > 1:
            return None
        around = f"{text[: match.start(6)]}{{}}{text[match.end(6) :]}"
        return cls(match[6], around, bool(opened) or signs in ("-", "\u2212"), signs == "+")


@dataclass(frozen=True)
class Amounts:
    """The values of a column whose texts may all be amounts, by their texts.

    >>> columns = ["1.507,67 €"], ["1.234", "1.5"], ["1.234"], ["$1.234"], ["1.2.3"], ["$5"]
    >>> [Amounts.split(texts).marks for texts in columns]
    [[(',', '.')], [('.', '')], [('.', ''), (',', '.')], [(',', '.')], [], [('', '')]]
    """

    parts: Mapping[str, _Amount]

    @classmethod
    def split(cls, texts: Iterable[str]) -> Amounts | None:
        """Split values that may be amounts in one unit; returns None if some are not."""
        parts = {}
        for text in texts:
            part = _Amount.split(text)
            if part is None:
                return None
            parts[text] = part
        amounts = cls(parts)
        return amounts if parts and len(amounts.units) == 1 else None

    @cached_property
    def units(self) -> set[str]:
        """Units of the values; ``""`` for values without a unit."""
        return {_unit_of(part.around) for part in self._parts}

    @property
    def has_unit(self) -> bool:
        """Whether the values have a unit."""
        return self.units != {""}

    @cached_property
    def marks(self) -> list[tuple[str, str]]:
        """The decimal and thousands marks by which all values are numbers: up to two pairs."""
        return [pair for pair in self._pairs if not self._is_name(*pair)]

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        seen = {sign for part in self._parts for sign in part.digits if not sign.isdigit()}
        gaps = "".join(sorted(seen & set(_GAPS)))
        inner = sorted(seen & set(_MARKS))
        if gaps:
            pairs = [(mark, gaps) for mark in inner or [""]]
        elif len(inner) == 1:
            pairs = [(inner[0], ""), (_MARKS.replace(inner[0], ""), inner[0])]
        else:
            pairs = [(".", ","), (",", ".")] if inner else [("", "")]
        readable = [pair for pair in pairs if self.readable(*pair)]
        # prices have no three decimals
        return (
            readable[1:]
            if len(readable) == 2 and self.units.isdisjoint({"", "%", "‰"})
            else readable
        )

    def choose(self, decimal: str, thousands: str) -> tuple[str, str] | None:
        """Choose the marks, given those of the file or ``""``; returns None if they are ambiguous.

        A given thousands mark is one even if all values have the same number of digits.
        """
        alike = set(next((gaps for gaps in _ALIKE if thousands and thousands in gaps), thousands))
        pairs = [
            pair
            for pair in self._pairs
            if not self._is_name(*pair, as_long=not alike & set(pair[1]))
            and (not decimal or pair[0] in ("", decimal))
            and (not thousands or not pair[1] or alike & set(pair[1]))
        ]
        return pairs[0] if len(pairs) == 1 else None

    @property
    def decimal(self) -> str:
        """The file's decimal mark, if the values tell it."""
        return self.marks[0][0] if len(self.marks) == 1 else ""

    def is_list(self, sep: str) -> bool:
        """Tell whether values may be lists, such as "1,2" in a file with commas as separators.

        They are amounts if all have the same number of decimals, or a zero after the comma.
        """
        if sep != "," or self.has_unit or self.marks != [(",", "")]:
            return False
        decimals = [part.digits.partition(",")[2] for part in self._parts if "," in part.digits]
        cents = len({*map(len, decimals)}) == 1 and len(decimals) > 1 and len(decimals[0]) > 1
        return not cents and not any(re.match("0.", digits) for digits in decimals)

    def readable(self, decimal: str, thousands: str) -> bool:
        """Tell whether all values are numbers with these marks."""
        integer = r"(?:0|[1-9]\d*)"
        if thousands:
            integer = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:[{re.escape(thousands)}]\d{{3}})+)"
        fraction = rf"{re.escape(decimal)}\d+" if decimal else "(?!)"
        number = re.compile(rf"{integer}(?:{fraction})?|{fraction}")
        return all(
            number.fullmatch(part.digits) and sum(map(str.isdigit, part.digits)) <= _MAX_DIGITS
            for part in self._parts
        )

    def _is_name(self, decimal: str, thousands: str, *, as_long: bool = True) -> bool:
        """Tell whether groups of digits are identifiers, such as phone numbers, not amounts.

        With ``as_long``, values that all have the same number of digits are identifiers.
        """
        numbers = [part.digits for part in self._parts]
        if self.has_unit or any(decimal in number for number in numbers if decimal):
            return False
        if not thousands:  # a plain number is one if some are negative as accountants write it
            negative = [part.around for part in self._parts if part.negative]
            is_signed = any("(" in around or around.endswith("-") for around in negative)
            return not decimal and not (is_signed and len(negative) < len(numbers))
        groups = [re.split(f"[{re.escape(thousands)}]", number) for number in numbers]
        if any(part.plus for part in self._parts):
            return True
        if all(len(number) == 4 and max(map(int, number)) < 256 for number in groups):
            return True
        if 2 * sum(number.endswith("00") for number in numbers) >= len(
            numbers
        ):  # names are not round
            return False
        lengths = {sum(map(len, number)) for number in groups}
        min_digits = 1 if set(thousands) & set(_GAPS) else _MIN_ID
        return as_long and len(numbers) > 1 and len(lengths) == 1 and lengths.pop() >= min_digits

    def numbers(self, decimal: str, thousands: str) -> dict[str, float]:
        """Read the values: integers if none has a decimal mark."""
        kind: Any = float if any(decimal in p.digits for p in self._parts if decimal) else int
        drop = {ord(mark): None for mark in thousands} | ({ord(decimal): "."} if decimal else {})
        magnitudes = {text: kind(part.digits.translate(drop)) for text, part in self.parts.items()}
        return {text: -n if self.parts[text].negative else n for text, n in magnitudes.items()}

    @property
    def _parts(self) -> Collection[_Amount]:
        return self.parts.values()

    def form(self, decimal: str, thousands: str) -> Form:
        """Find the form of the values; it has their most frequent way to write signs and spaces."""
        numbers = [part.digits for part in self._parts]
        n_decimals = {len(number.partition(decimal)[2]) if decimal else 0 for number in numbers}
        minus = Counter(part.around for part in self._parts if part.negative)
        plain = Counter(part.around for part in self._parts if not part.negative and not part.plus)
        if not plain:
            plain = Counter(re.sub("[-+\u2212()]", "", part.around) for part in self._parts)
        ((positive, _),) = plain.most_common(1)
        negative = minus.most_common(1)[0][0] if minus else f"-{positive}"
        gap = max(thousands, key="".join(numbers).count) if thousands else ""
        digits = n_decimals.pop() if len(n_decimals) == 1 else None
        return Form(decimal, gap, digits, positive, negative)


def read_amounts(X: Any, *, decimal: str | None = None, thousands: str | None = None) -> Any:
    """Convert columns of amounts as text, such as "1.507,67 €" and "12 %", to numbers.

    A column contains amounts if all its texts have the same format: at most one unit (a currency or
    percent), one decimal mark and one thousands separator. If the texts of a column are ambiguous,
    such as "1.234", the marks of other columns are used. Numbers in these columns are kept. Columns
    of plain numbers as text, such as codes, stay text.

    Parameters
    ----------
    X : DataFrame of shape (n_samples, n_features), or Series
    decimal, thousands : str, optional
        Decimal mark and thousands separator, such as ``","`` and ``"."``, for ambiguous texts. Pass
        them for new rows, because a few rows are often ambiguous.

    Returns
    -------
    DataFrame or Series
        A pandas copy. Columns that do not contain amounts, or whose marks are ambiguous, are not
        changed.

    Raises
    ------
    ValueError
        If a mark is not valid.

    Examples
    --------
    >>> from combutab.preprocessing import read_amounts
    >>> table = pd.DataFrame({"rent": ["1.507,67 €", "980,00 €"], "share": ["12 %", "5 %"]})
    >>> read_amounts(table).to_dict("list")
    {'rent': [1507.67, 980.0], 'share': [12, 5]}
    """
    for name, mark, allowed in (("decimal", decimal, _MARKS), ("thousands", thousands, _ALL_MARKS)):
        if mark is not None and (len(mark) != 1 or mark not in allowed):
            ways = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {ways}, got {mark!r}")
    if decimal is not None and decimal == thousands:
        raise ValueError(f"decimal and thousands are both {decimal!r}; give the one that is known")
    if decimal is None and thousands in (".", ","):
        decimal = {".": ",", ",": "."}[thousands]
    if isinstance(X, pd.Series):
        return read_amounts(X.to_frame("x"), decimal=decimal, thousands=thousands)["x"].rename(
            X.name
        )
    table = pd.DataFrame(as_pandas(X)).copy()
    amounts: dict[int, Amounts] = {}
    for j in range(table.shape[1]):
        values = amounts_in(table.iloc[:, j])
        amounts |= {} if values is None else {j: values}
    for j, (marks, values) in choose_marks(amounts, decimal or "", thousands or "").items():
        numbers: Any = as_numbers(table.iloc[:, j], values.numbers(*marks))
        table.isetitem(j, numbers)
    return table


def amounts_in(column: pd.Series) -> Amounts | None:
    """Split the texts of a column, which may also contain numbers, if all may be amounts."""
    kind = column_kind(column)
    if kind != ColumnKind.TEXT and (kind != ColumnKind.CATEGORY or column.dtype != object):
        return None
    present = column.dropna().drop_duplicates()
    texts = [value for value in present if isinstance(value, str)]
    non_texts = (value for value in present if not isinstance(value, str))
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in non_texts):
        return None
    return Amounts.split(text.strip() for text in texts)


def choose_marks(
    amounts: Mapping[Any, Amounts], decimal: str, thousands: str
) -> dict[Any, tuple[tuple[str, str], Amounts]]:
    """Find the marks of columns, with their values; ambiguous columns are left out.

    An ambiguous column has the decimal mark of the other columns, if these have only one.
    """
    decimal_marks = {column.decimal for column in amounts.values()} - {""}
    if len(decimal_marks) == 1 and not decimal and thousands not in decimal_marks:
        decimal = decimal_marks.pop()
    known_marks = {}
    for name, values in amounts.items():
        marks = values.choose("", thousands) or values.choose(decimal, thousands)
        if marks is not None:
            known_marks[name] = marks, values
    return known_marks


def as_numbers(column: pd.Series, numbers: Mapping[str, float]) -> pd.Series:
    """Replace the texts of a column by numbers: integers if all are, otherwise floats."""
    values = [numbers[v.strip()] if isinstance(v, str) else v for v in column.astype(object)]
    numeric: pd.Series = pd.Series(values, column.index, dtype=object, name=column.name)
    if all(isinstance(value, int) for value in numeric.dropna()):
        return numeric.astype("Int64" if numeric.isna().any() else "int64")
    return numeric.astype("float64")


def _unit_of(around: str) -> str:
    return re.sub(r"[-+\u2212(){}\s.]", "", around)
