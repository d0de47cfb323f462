"""What columns seem to hold: numbers read as text, codes for missing values, classes or numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from combutab.core.dates import find_number_format, split_dates
from combutab.core.rows import name_row
from combutab.core.text import counted, list_names
from combutab.preprocessing._columns import (
    ColumnKind,
    column_kind,
    dtype_kind,
    factorize,
    object_datetimes,
)
from combutab.preprocessing._features import is_free_text
from combutab.preprocessing._forms import HAS_DIGIT, find_text_form, measured_example
from combutab.preprocessing._tables import as_pandas
from combutab.preprocessing.amounts import UNIT, Amounts
from combutab.preprocessing.modes import find_identifiers

_MIN_SHARE_ALIKE = 0.9  # of the values are numbers, or dates
_MIN_SHARE_WITH_MARK = 0.5  # are numbers, if all other values are equal
_MAX_LETTERS = 40  # letters: no number, and no date
_DECIMALS = r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
_DECIMAL_NUMBER = re.compile(rf"[+-]?{_DECIMALS}", re.IGNORECASE)
# Numbers that are names, such as zip codes and phone numbers
_ZEROS = re.compile(r"[+-]?0\d+|\+\d{7,}")
_GAPS = " \u00a0\u202f'’"  # between thousands
_COMMA = re.compile(rf"[+-]?(\d*|\d{{1,3}}([.{_GAPS}]\d{{3}})+),\d+")
_THOUSANDS = re.compile(rf"[+-]?[1-9]\d{{0,2}}([,{_GAPS}]\d{{3}})+(\.\d*)?")
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3}){2,}")
_HOST = re.compile(r"[12]?\d?\d(\.[12]?\d?\d){3}")  # an internet address, not thousands
_SIGNS = r"[$€£¥₹₽₩¢%‰]"
_SIGNED = re.compile(rf"([+-]?{_SIGNS}\s*[+-]?|[+-])?[\d.,{_GAPS}]*\d[\d.,]*\s*{_SIGNS}?")
_NEGATIVE = re.compile(  # as accountants write negative numbers
    rf"\((.+)\)|(.+)-|\(([\d.,{_GAPS}]+)\)\s*{_SIGNS}|{_SIGNS}\s*\(([\d.,{_GAPS}]+)\)"
)
_MISSING_MARKS = {*"?-.*–—", "--", "---", "??", "n.a.", "na", "n/a.", "#value!", "#ref!", "#div/0!"}
_CODES = [sign * (10**k - 1) for k in range(2, 8) for sign in (1, -1)]  # 99, -99, 999, ...
_MIN_OTHERS = 10  # different values, without the code for missing values
_MIN_CODE_ROWS, _MIN_CODE_SHARE = 5, 0.01  # rows that have the code
_MIN_SPIKE = 3  # times as frequent as any other value is the only negative one
_LAST_DAY = int(np.datetime64("9999-12-31", "s").astype(np.int64))
_MIN_GAP = 1.0  # ranges of the other values between them and the code
_CODE = "although one value may stand for missing values"
_BOOLEAN_WORDS = [
    {"true", "false"},
    {"yes", "no"},
    {"y", "n"},
    {"t", "f"},
    {"on", "off"},
    {"0", "1"},
]
_MONTHS = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE_FORMS = {  # order of year, month and day -> form
    "year first": re.compile(r"\d{4}([-/.])(?P<m>\d{1,2})\1(?P<d>\d{1,2})([T ]+\d.*)?"),
    "": re.compile(r"(?P<a>\d{1,2})([-/.])(?P<b>\d{1,2})\2(\d{4}|(?<=[-/])\d{2})([T ]+\d.*)?"),
    "day first": re.compile(rf"\d{{1,2}}[- ]{_MONTHS}[-, ]+\d{{2,4}}", re.IGNORECASE),
    "month first": re.compile(rf"{_MONTHS}[- ]\d{{1,2}},? +\d{{4}}", re.IGNORECASE),
}

OddKind = Literal[
    "header",
    "empty",
    "row numbers",
    "identifier",
    "missing code",
    "missing mark",
    "decimal comma",
    "thousands",
    "sign",
    "few texts",
    "text numbers",
    "dates",
    "unclear dates",
    "mixed dates",
    "clock numbers",
    "unit",
    "truth values",
]


_QUOTED = re.compile(r"(?<!\w)(?:'([^']+)'|\"([^\"]+)\")")


@dataclass(frozen=True)
class OddColumn:
    """A column that may have been read wrongly. ``str()`` describes it in one line.

    Attributes
    ----------
    column : Any
        Name of the column.
    kind : str
        Kind of the finding: "decimal comma", "missing code", "row numbers", ...
    taken : str
        How the column is treated.
    why : str
        Why this may be wrong.
    example : str
        An example from the column, or ``""``.
    """

    column: Any
    kind: OddKind
    taken: str
    why: str
    example: str = ""

    def __str__(self) -> str:
        example = f" ({self.example})" if self.example else ""
        return f"{self.column!r} is treated as {self.taken}, {self.why}{example}"

    def marks(self, column: pd.Series) -> list[str]:
        """Find the thousands separators, or the marks of missing values, of a column of text.

        >>> column = pd.Series(["1,000", "2,500", "1,250,000"], name="price")
        >>> [odd.marks(column) for odd in odd_columns(column.to_frame())]
        [[',']]
        """
        texts = column.dropna().astype(str).str.strip()
        if self.kind == "thousands":
            values = Amounts.split(texts.drop_duplicates())
            decimals = {",": ".", ".": ","}
            pairs = {m: values and values.choose(decimals.get(m, ""), m) for m in ",. '"}
            return [mark for mark, pair in pairs.items() if pair and pair[1]]
        if self.kind not in ("missing mark", "few texts"):
            return []
        marks = [first or second for first, second in _QUOTED.findall(self.example)]
        if self.kind == "few texts" and (len(marks) != 1 or (texts == marks[0]).sum() < 2):
            return []  # typing errors, not marks for missing values
        return marks


def odd_columns(table: pd.DataFrame) -> list[OddColumn]:
    """Find columns that were probably read with the wrong type, and other problems of a table.

    It finds numbers that are text because of a decimal comma, thousands separators, a currency or
    percent sign, a few words, or a mark for missing values; dates that are text; mixed words for
    true and false; codes and marks for missing values; columns that are empty, number the rows, or
    identify them; and a first row that was read as column names. The table is not changed.

    Parameters
    ----------
    table : DataFrame
        The table to check.

    Returns
    -------
    list of OddColumn
        At most one finding per column, in the order of the columns.

    Examples
    --------
    >>> table = pd.DataFrame({"price": ["0,125", "2,5", "10"], "age": [30, 40, 50]})
    >>> [str(odd) for odd in odd_columns(table)]
    ["'price' is treated as categories, although the values have a decimal comma ('0,125')"]
    """
    names = list(table.columns)
    no_names = set(_no_names(names))
    odd = []
    for j, name in enumerate(names):
        column = table.iloc[:, j]
        if j in no_names:
            why = "although it may be a value of the first row"
            odd.append(OddColumn(name, "header", "the name of a column", why))
        else:
            odd += itertools.islice(_odd(name, column), 1)
    return odd


class UnlearnedWarning(UserWarning):
    """Warning about columns without a frequent category, which the model cannot use.

    ``problem`` describes the reason, and ``remedy`` what to do besides leaving out ``columns``.
    """

    def __init__(self, problem: str, remedy: str, columns: tuple[str, ...]) -> None:
        self.problem, self.remedy, self.columns = problem, remedy, columns
        super().__init__(problem, remedy, columns)

    def __str__(self) -> str:
        it = "it" if len(self.columns) == 1 else "them"
        return f"{self.problem}; {self.remedy + ', or ' if self.remedy else ''}leave {it} out"


class OddColumnWarning(UserWarning):
    """Warning about dates or numbers as text, read as such or encoded as categories."""


_COERCE = "pandas.to_numeric with errors='coerce' reads the numbers, and the others become missing"
_WAYS = {  # how to read the column
    "dates": "pandas.to_datetime reads them",
    "unclear dates": "pandas.to_datetime reads them, with dayfirst=True where the day is first",
    "mixed dates": "bring them into one order, and pandas.to_datetime reads them",
    "decimal comma": "write a point for the comma, and pandas.to_numeric reads them",
    "thousands": "remove what stands between thousands, and pandas.to_numeric reads them",
    "sign": "remove the sign, and pandas.to_numeric reads them",
    "few texts": _COERCE,
    "missing mark": _COERCE,
    "text numbers": "pandas.to_numeric reads them",
    "unit": "write them as numbers",
}
_OF_AMOUNTS = ("decimal comma", "thousands", "sign")
_OF_CODES = ("few texts", "missing mark", "text numbers")  # which whole numbers may well be
_N_LOOKED_AT = 2_000  # categories of a column


def odd_categories(columns: Mapping[str, Mapping[Any, int]]) -> Iterator[str]:
    """Describe columns of text that look like dates or amounts, in one sentence or two for each.

    ``columns`` has the values of each column with their numbers of rows. Whole numbers may be codes
    of categories and give no warning.
    """
    for name, value_counts in columns.items():
        texts = dict(itertools.islice(value_counts.items(), _N_LOOKED_AT))
        if not all(isinstance(value, str) for value in texts) or not HAS_DIGIT("".join(texts)):
            continue
        rows: dict[str, int] = {}
        for value, count in texts.items():
            rows[value.strip()] = rows.get(value.strip(), 0) + count
        n = sum(rows.values())
        finding = _number_texts(rows, n) or dates_in(rows, n) or _many_measured(rows, n)
        if finding is None:
            continue
        kind, why, example = finding
        numbers = [value for value in rows if _DECIMAL_NUMBER.fullmatch(value)]
        if kind in _OF_CODES and (
            len(numbers) <= _MAX_CLASSES or all("." not in value for value in numbers)
        ):
            continue
        other_texts = split_dates(rows)[1] if kind == "dates" else []
        if other_texts:
            n_others = sum(rows[text] for text in other_texts)
            why = f"although all but {n_others:,} of {n:,} values are dates"
            example = _some_quoted(other_texts)
        way = "correct these values, and it is read as dates" if other_texts else _WAYS[kind]
        values = Amounts.split(rows) if kind in _OF_AMOUNTS else None
        if values is not None and values.marks:
            way = "combutab.preprocessing.read_amounts reads them"
            way += "" if values.choose("", "") else ", if told the decimal mark (decimal=)"
        yield (
            f"{name} is encoded as categories, {why} ({example}): {way}. To keep categories "
            "without this warning, convert the column to the dtype 'category'."
        )


def unlearned(
    columns: Mapping[str, Mapping[Any, int]], min_count: int
) -> Iterator[UnlearnedWarning]:
    """Warn about columns in which no category has ``min_count`` rows.

    ``columns`` has the values of each, and how many rows have them.
    """
    looks: dict[tuple[str, str], list[str]] = {}
    for name, value_counts in columns.items():
        looks.setdefault(_look(value_counts, min_count), []).append(name)
    for (look, remedy), names in looks.items():
        problem = f"nothing is learned from {list_names(names, write=str)}: {look}"
        yield UnlearnedWarning(problem, remedy, tuple(names))


def _look(seen: Mapping[Any, int], min_count: int) -> tuple[str, str]:
    n = sum(seen.values())
    if all(isinstance(value, str) for value in seen):
        rows: dict[str, int] = {}
        for value, count in seen.items():
            rows[value.strip()] = rows.get(value.strip(), 0) + count
        if _number_texts(rows, n) is not None or dates_in(rows, n) is not None:
            what = "dates" if dates_in(rows, n) is not None else "numbers"
            return f"its values look like {what}, but were read as text", f"convert to {what}"
        if (measured := _measured(rows, n)) is not None:
            _, why, example = measured
            problem = f"its values were read as text, {why} ({example})"
            return problem, "write them as numbers"
    if len(seen) > n / 2:
        return "nearly every row has a value of its own, as identifiers have", ""
    remedy = "set min_frequency=2 to keep those that 2 rows have"
    return f"fewer than {min_count} rows have each of its categories", remedy


def _no_names(names: list[Any]) -> list[int]:
    """Positions of names that are numbers, if it seems that the first row was taken for names."""
    texts = [str(name) for name in names if isinstance(name, str)]
    numbers = [float(text) for text in texts if _DECIMAL_NUMBER.fullmatch(text)]
    rising = all(low < high for low, high in itertools.pairwise(numbers))
    if len(texts) < len(names) or len(numbers) < max(2, len(names) / 2) or rising:
        return []
    return [j for j, text in enumerate(texts) if _DECIMAL_NUMBER.fullmatch(text)]


def _odd(name: Any, column: pd.Series) -> Iterator[OddColumn]:
    present = column.dropna()
    if present.empty:
        yield OddColumn(name, "empty", "empty", "because no row has a value")
        return
    if dtype_kind(column.dtype) == ColumnKind.NUMBER:
        yield from _odd_numbers(name, present, len(column))
    elif is_text(column):
        yield from _odd_text(name, column)
    elif column_kind(column) == ColumnKind.DATETIME:
        yield from _odd_dates(name, present)
    if find_identifiers(column) is not None and not _is_free_text(column):
        why = "although the values seem to identify the rows"
        yield OddColumn(name, "identifier", "a feature", why)


def _is_free_text(column: pd.Series) -> bool:
    return is_text(column) and is_free_text(factorize(column, str(column.name)))


def is_text(column: pd.Series) -> bool:
    """Tell whether a column is of text, or of text and numbers."""
    kind = column_kind(column)
    if kind == ColumnKind.CATEGORY and column.dtype == object:  # as an Excel file may have it
        return all(type(value) in (str, int, float) for value in column.dropna())
    return kind == ColumnKind.TEXT


# ---- Odd numbers -------------------------------------------------------------------------------


def _odd_numbers(name: Any, present: pd.Series, n_rows: int) -> Iterator[OddColumn]:
    x = present.to_numpy(dtype=np.float64)
    unnamed = not str(name).strip() or re.fullmatch(r"Unnamed: \d+", str(name)) is not None
    if unnamed and len(x) == n_rows and x[0] in (0, 1) and (np.diff(x) == 1).all():
        yield OddColumn(name, "row numbers", "a feature", "although it counts the rows")
    values, counts = np.unique(x[np.isfinite(x)], return_counts=True)
    for code in _CODES:
        index = int(np.searchsorted(values, code))
        if index < len(values) and values[index] == code:
            other_values = np.delete(values, index)
            if _stands_apart(code, other_values) and counts[index] >= (1 if abs(code) > 100 else 2):
                example = f"{code}, {counted(int(counts[index]), 'row')}"
                yield OddColumn(name, "missing code", "numbers", _CODE, example)
                return
    form = find_number_format(values, str(name))
    if form is not None:
        kind: OddKind = "clock numbers" if form == "%H%M" else "dates"
        nouns = "times of day" if form == "%H%M" else "dates"
        why = f"although the values are {nouns} written as whole numbers"
        yield OddColumn(name, kind, "numbers", why, f"{values[len(values) // 2]:.0f}")
        return
    extreme = _shared_extreme(values, counts)
    if extreme is not None:
        example = f"{values[extreme]:.15g}, {counted(int(counts[extreme]), 'row')}"
        yield OddColumn(name, "missing code", "numbers", _CODE, example)


def _shared_extreme(values: np.ndarray, counts: np.ndarray) -> int | None:
    """Find the index of a frequent value far below or above all others, or None.

    ``values`` ascend. Its distance from the others is larger than their range, and a hundredth of
    the rows have it, at least five; or it is the only negative number, and three times as frequent
    as any other.
    """
    if len(values) < _MIN_OTHERS + 1:
        return None
    for index, other_values in ((0, values[1:]), (len(values) - 1, values[:-1])):
        gap = max(other_values[0] - values[index], values[index] - other_values[-1])
        is_rare = counts[index] < max(_MIN_CODE_ROWS, _MIN_CODE_SHARE * counts.sum())
        if (
            not is_rare
            and gap > _MIN_GAP * (other_values[-1] - other_values[0])
            and values[index] != 0
        ):
            return index
    other_values = counts[1:]
    is_spike = counts[0] >= max(_MIN_CODE_ROWS, _MIN_SPIKE * other_values.max())
    return 0 if is_spike and values[0] < 0 <= values[1] else None


def _odd_dates(name: Any, present: pd.Series) -> Iterator[OddColumn]:
    """Find a date far from all others, such as 9999-12-31, which stands for missing ones."""
    moments = object_datetimes(present, f"column {name!r}")
    if isinstance(moments.dtype, pd.DatetimeTZDtype):
        moments = moments.dt.tz_convert("UTC").dt.tz_localize(None)
    seconds = moments.to_numpy().astype("datetime64[s]").astype(np.int64)
    values, counts = np.unique(seconds, return_counts=True)
    index = _shared_extreme(values, counts)
    if index is None and values[-1] >= _LAST_DAY and len(values) > 1:
        index = len(values) - 1
    if index is not None:
        day = str(np.datetime64(int(values[index]), "s")).removesuffix("T00:00:00")
        example = f"{day}, {counted(int(counts[index]), 'row')}"
        yield OddColumn(name, "missing code", "dates", _CODE, example)


def _stands_apart(code: int, other_values: np.ndarray) -> bool:
    """Tell whether a number lies far from the others: below zero alone, or beyond their range."""
    if len(other_values) < 2:
        return False
    if code < -100 and other_values[0] >= 0:
        return True
    gap = other_values[0] - code if code < 0 else code - other_values[-1]
    return bool(gap > other_values[-1] - other_values[0])


# ---- Texts --------------------------------------------------------------------------------------


def _odd_text(name: Any, column: pd.Series) -> Iterator[OddColumn]:
    present = column.dropna()
    counts = present.astype(str).str.strip().value_counts(sort=False)
    rows = {str(value): int(n) for value, n in counts.items() if value}
    n = sum(rows.values())
    if not n:
        yield OddColumn(name, "empty", "empty", "because no row has a value")
        return
    if (form := find_text_form(present, 0)) is not None:
        if form.column_kind == ColumnKind.DATETIME:
            yield from _odd_dates(name, form.read(present, str(name)).dropna())
        return
    texts = column.astype(str).str.strip().where(column.notna())
    odd_cells = partial(_odd_cells, texts)
    for test in (_truths, odd_cells, _number_texts, dates_in, _many_measured, _marks):
        finding = test(rows, n)
        if finding is not None:
            kind, why, example = finding
            yield OddColumn(name, kind, "categories", why, example)
            return


Finding = tuple[OddKind, str, str] | None  # and why, and an example
Counts = Mapping[str, int]  # the values of a column, stripped, and how many rows have each


def _truths(rows: Counts, n: int) -> Finding:
    words = {value.casefold() for value in rows}
    used = [pair for pair in _BOOLEAN_WORDS if pair & words]
    if not words <= set().union(*_BOOLEAN_WORDS) or (len(used) == 1 and len(words) == len(rows)):
        return None
    if len(rows) < 3:
        return None
    return (
        "truth values",
        "although the values seem to mean true and false",
        _some_quoted(list(rows)),
    )


def _odd_cells(texts: pd.Series, rows: Counts, n: int) -> Finding:
    """Find the few cells of a column that are not dates or amounts like the others."""
    for noun, other_texts in (
        ("dates", split_dates(rows)[1]),
        ("amounts", _others_than_amounts(rows)),
    ):
        n_other_rows = sum(rows[text] for text in other_texts)
        max_share = 1 - (_MIN_SHARE_WITH_MARK if len(other_texts) == 1 else _MIN_SHARE_ALIKE)
        if 0 < n_other_rows <= max_share * n and len(rows) - len(other_texts) > 1:
            kind: OddKind = "missing mark" if all(map(is_mark, other_texts)) else "few texts"
            why = f"although all but {n_other_rows:,} of {n:,} values are {noun}"
            return kind, why, _named_cells(texts, other_texts)
    return None


def _others_than_amounts(rows: Counts) -> list[str]:
    """List the texts that are not amounts; all texts if no number has a unit or separators."""
    forms = {text: number_form(text) for text in rows}
    if not {*forms.values()} & {"comma", "gap", "sign", "negative"}:
        return list(rows)
    return [text for text, form in forms.items() if not form]


def _measured(rows: Counts, n: int) -> Finding:
    """Numbers with a unit, and times and dates in several formats."""
    example = measured_example(list(rows)[:_N_LOOKED_AT]) if len(rows) > 1 else ""
    if not example:
        return None
    return (
        "unit",
        "although the values are numbers with a unit or separators, or times",
        quoted(example),
    )


def _many_measured(rows: Counts, n: int) -> Finding:
    """As `_measured`, for columns with more values than categories such as sizes have."""
    return _measured(rows, n) if len(rows) > _MAX_CLASSES else None


def _number_texts(rows: Counts, n: int) -> Finding:
    """Find numbers in a form that is not read, or mixed with a few other texts."""
    names = ("plain", "comma", "gap", "sign", "negative", "")
    forms: dict[str, dict[str, int]] = {name: {} for name in names}
    for value, count in rows.items():
        forms[number_form(value)][value] = count
    non_numbers = forms.pop("")
    share = 1 - sum(non_numbers.values()) / n
    if sum(map(len, forms.values())) < 2 or share < (
        _MIN_SHARE_WITH_MARK if len(non_numbers) == 1 else _MIN_SHARE_ALIKE
    ):
        return None
    if forms["sign"]:
        return (
            "sign",
            "although the values are numbers with a currency or percent sign",
            _first_value(forms["sign"]),
        )
    if forms["negative"]:
        why = "although the values are numbers, negative ones in parentheses or with a minus behind"
        return "sign", why, _first_value(forms["negative"])
    commas = [value for value in forms["gap"] if "," in value]
    if forms["comma"] and not any("." in value for value in (*commas, *forms["plain"])):
        why = "although the values have a decimal comma"
        return "decimal comma", why, _first_value(forms["comma"])
    if forms["gap"] or forms["comma"]:
        why = "although the values are numbers with thousands separators"
        return "thousands", why, _first_value(forms["gap"] or forms["comma"])
    if any(map(_ZEROS.fullmatch, forms["plain"])):
        return None
    if not non_numbers:
        return "text numbers", "although all values are numbers", _first_value(forms["plain"])
    if all(is_mark(value) for value in non_numbers):
        return "missing mark", _CODE, _of_marks(non_numbers)
    example = f"{_some_quoted(list(non_numbers))}, {sum(non_numbers.values()):,} of {n:,} values"
    return "few texts", "because some values are not numbers", example


def number_form(value: str) -> str:
    """Return how a text writes a number, such as "plain" or "comma", or ``""`` for other texts."""
    if len(value) > _MAX_LETTERS:
        return ""
    if _DECIMAL_NUMBER.fullmatch(value):
        return "plain"
    negative = _NEGATIVE.fullmatch(value)
    if negative is not None:
        inner = number_form(negative[negative.lastindex or 0].strip())
        return "negative" if inner not in ("", "negative") else ""
    if _THOUSANDS.fullmatch(value):
        return "gap"
    if _POINT_GROUPS.fullmatch(value) and not _HOST.fullmatch(value):
        return "gap"
    if _COMMA.fullmatch(value):
        return "comma"
    return "sign" if _SIGNED.fullmatch(value) and re.search(_SIGNS, value) else ""


def dates_in(rows: Counts, n: int) -> Finding:
    """Find dates that are text."""
    orders: dict[str, int] = {}
    n_dates = 0
    for value, count in rows.items():
        order = _date_order(value)
        if order is not None:
            orders[order] = orders.get(order, 0) + count
            n_dates += count
    if n_dates < _MIN_SHARE_ALIKE * n or len(rows) < 2:
        return None
    example = next(quoted(value) for value in rows if _date_order(value) is not None)
    certain = [order for order in orders if order]
    if len(certain) > 1:
        return (
            "mixed dates",
            "although the values are dates, with day and month in different orders",
            _one_of_each(rows, certain),
        )
    if not certain:
        return (
            "unclear dates",
            "although the values are dates, whose day and month are ambiguous",
            example,
        )
    return "dates", "although the values are dates", example


def _date_order(value: str) -> str | None:
    """Tell which of day, month and year a date begins with; "" if it may be two, None if none."""
    for order, form in _DATE_FORMS.items() if len(value) <= _MAX_LETTERS else ():
        match = form.fullmatch(value)
        if match is None:
            continue
        if order == "year first":
            return order if 1 <= int(match["m"]) <= 12 and 1 <= int(match["d"]) <= 31 else None
        if order:
            return order
        first, second = int(match["a"]), int(match["b"])
        if not (1 <= min(first, second) <= 12 and max(first, second) <= 31):
            return None
        return "" if max(first, second) <= 12 else "day first" if first > 12 else "month first"
    return None


def _one_of_each(rows: Counts, orders: list[str]) -> str:
    return _some_quoted([next(v for v in rows if _date_order(v) == order) for order in orders])


def is_mark(value: str) -> bool:
    """Tell whether a text is one of those that stand for missing values."""
    return value.casefold() in _MISSING_MARKS


def _marks(rows: Counts, n: int) -> Finding:
    """Marks for missing values among words."""
    marks = {value: count for value, count in rows.items() if is_mark(value)}
    words = [value for value in rows if value not in marks]
    marks = {mark: count for mark, count in marks.items() if not _is_code_like(mark, words)}
    if not marks or len(words) < 2 or not all(any(map(str.isalnum, value)) for value in words):
        return None
    return "missing mark", _CODE, _of_marks(marks)


def _is_code_like(mark: str, words: list[str]) -> bool:
    """Tell whether a mark has the form of all words, such as NA among the codes DE and ZA."""
    form = re.compile(rf"[A-Z]{{{len(mark)}}}")
    return all(form.fullmatch(value) for value in (mark, *words))


def _of_marks(marks: Counts) -> str:
    return f"{_some_quoted(list(marks))}, {counted(sum(marks.values()), 'row')}"


def _first_value(rows: Counts) -> str:
    return quoted(next(iter(rows)))


def _some_quoted(values: list[str]) -> str:
    return list_names(values, 3, quoted)


def quoted(value: str, n: int = 24) -> str:
    """Quote a value, or the beginning of a long one."""
    return repr(value if len(value) <= n else f"{value[: n - 1]}…")


# ---- Targets: classes, numbers, or cells that are neither ---------------------------------------

_MAX_CLASSES = 20
_MAX_SHARE = 0.05
_MIN_MIXED = 0.5  # of them are, of many different values
_MIN_LABEL_SHARE = 0.01  # of the rows: a text among numbers that is no class
_N_SHOWN = 3  # values that an error names
_MAX = int(np.finfo(np.float64).max)

_MEASURED = re.compile(  # such as 12.5 kg, $56.7M, Rs. 12 lakhs, - 23 or 2h 5m
    rf"[-+−(]{{0,2}}\s*{UNIT}\s*[-+−]?\s*(\d[\d.,{_GAPS}]*\s?\D{{0,10}}"
    r"|(\d+\s?(d|h|min|m|s)\s?){2,4}|\d+(:\d\d){1,2})"
)

Task = Literal["classification", "regression"]
TargetFault = Literal["cells", "decimal comma", "form", "text", "names", "dates", "empty"]

_TARGET_REMEDIES: dict[TargetFault, str] = {
    "cells": "correct these values or remove their rows",
    "decimal comma": "convert them to numbers (read_table has decimal=',')",
    "form": "convert them to plain numbers",
    "text": "convert them to numbers (pandas.to_numeric)",
    "names": "take another target",
    "dates": "convert them to numbers, for example days, first",
}
_FORM_NAMES = {
    "comma": "numbers with a decimal comma",
    "gap": "numbers with separators between thousands",
    "sign": "numbers with a sign of currency or percent",
    "negative": "numbers in parentheses or with a minus behind",
}


class TargetError(ValueError):
    """Error about a target whose values are neither numbers nor class labels.

    ``problem`` describes them, in words that follow the name of the target. ``fault`` is the kind
    of the problem.
    """

    def __init__(self, problem: str, fault: TargetFault, name: str = "y") -> None:
        self.problem, self.fault = problem, fault
        super().__init__(problem, fault, name)

    def __str__(self) -> str:
        problem, fault, name = self.args
        remedy = _TARGET_REMEDIES.get(fault)
        ways = f"; {remedy}, or give task='classification' if they are classes" if remedy else ""
        return f"{name} {problem}{ways}"


def infer_task(y: Any, *, name: str = "y") -> Task:
    """Infer from the values of a target whether it is a classification or a regression.

    Text, booleans, pandas categories and other objects are classes. Text that cannot be class
    labels raises an error: text that is nearly all numbers or dates ("1,5", "$1,020", or 400
    numbers and one "n.a!"), and more than 20 texts that occur on average in fewer than two rows
    each. A few numbers as text are classes. Numbers with fractions are a regression. Integers are
    classes if there are exactly two distinct ones, if all are 0 or all are 1 (as in a label of a
    multi-label target), or if they look like codes of classes:

    - at most 20 distinct values, and at most one per 20 rows;
    - the smallest is -1, 0 or 1;
    - at least half of the integers between the smallest and the largest occur.

    Other integers are a regression. The last two rules separate class codes from scores and counts:
    wine quality with scores from 3 to 9 is a regression, as in most papers, and so are the numbers
    of cylinders of cars (3, 4, 5, 6, 8). The rules can be wrong: ratings from 1 to 5 look like
    codes and become classes, and classes coded 10, 20, 30 become a regression. Pass the task
    explicitly where it matters, or convert the target to text for a classification.

    Missing values are ignored. Several target columns are a regression if one of them is.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, n_outputs)
        Values of the target.
    name : str, default="y"
        Name of the target in error messages.

    Returns
    -------
    "classification" or "regression"

    Raises
    ------
    TargetError
        If y has no values, holds dates, or holds text that cannot be class labels. It is a
        ValueError.

    Examples
    --------
    >>> infer_task(["yes", "no", "yes"])
    'classification'
    >>> infer_task([0, 1, 1, 0])
    'classification'
    >>> infer_task([21.5, 18.0, 30.2])
    'regression'
    """
    y = as_pandas(y, "y")
    if isinstance(y, pd.DataFrame):
        columns = [y.iloc[:, j] for j in range(y.shape[1])]
    elif isinstance(y, pd.Series | pd.Index):
        columns = [pd.Series(y)]
    else:
        array = np.asarray(y)
        if array.ndim not in (1, 2):
            raise ValueError(f"y must have one or two dimensions, got shape {array.shape}")
        columns = [pd.Series(column) for column in np.atleast_2d(array.T)]
    tasks = {_column_task(column, name) for column in columns}
    return "regression" if "regression" in tasks else "classification"


def read_numbers(y: pd.Series, *, name: str = "y") -> pd.Series:
    """Convert a target to numbers, also from text.

    Parameters
    ----------
    y : Series of shape (n,)
        Values of the target.
    name : str, default="y"
        Name of the target in error messages.

    Raises
    ------
    TargetError
        If cells are not numbers; the message names them.
    """
    if pd.api.types.is_numeric_dtype(y.dtype) and y.dtype.kind != "c":
        return y
    objects = y.astype(object)
    is_unreadable = objects.map(
        lambda v: isinstance(v, complex) or (isinstance(v, int) and abs(v) > _MAX)
    )
    parsed: pd.Series = pd.to_numeric(objects.mask(is_unreadable.astype(bool)), errors="coerce")
    if (parsed.notna() | y.isna()).all():
        return parsed
    texts = objects.astype(str).str.strip()
    counts = texts[y.notna()].value_counts(sort=False)
    rows = {str(value): int(count) for value, count in counts.items()}
    raise TargetError(*_problem(texts.where(y.notna()), rows), name)


def _column_task(column: pd.Series, name: str) -> Task:
    present = column.dropna()
    if len(present) == 0:
        raise TargetError("has no values to infer a task from; give the task", "empty", name)
    kind = column_kind(present)
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA):
        raise TargetError("holds dates or times", "dates", name)
    if kind != ColumnKind.NUMBER:
        if is_text(present):
            _check_labels(column, name)
        return "classification"
    return _task_of_numbers(*np.unique(present.to_numpy(dtype=np.float64), return_counts=True))


def _task_of_numbers(values: np.ndarray, counts: np.ndarray) -> Task:
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return "regression"
    if len(values) == 2 or values.tolist() in ([0], [1]):
        return "classification"
    few = len(values) <= min(_MAX_CLASSES, _MAX_SHARE * counts.sum())
    code_like = values[0] in (-1, 0, 1) and values[-1] - values[0] < 2 * len(values)
    return "classification" if few and code_like else "regression"


# ---- Texts --------------------------------------------------------------------------------------


def _check_labels(column: pd.Series, name: str) -> None:
    """Raise a TargetError if text is no class label."""
    texts = column.astype(str).str.strip().where(column.notna())
    rows = {str(value): int(count) for value, count in texts.value_counts(sort=False).items()}
    n = sum(rows.values())
    numbers = {value: count for value, count in rows.items() if number_form(value)}
    share = sum(numbers.values()) / n
    if share >= _MIN_SHARE_ALIKE or (share >= _MIN_MIXED and len(numbers) > _MAX_CLASSES):
        if not _are_codes(rows, numbers, n):
            raise TargetError(*_problem(texts, rows), name)
    elif dates_in(rows, n):
        example = next(iter(rows))
        raise TargetError(f"holds dates as text, such as {quoted(example)}", "dates", name)
    elif len(rows) > _MAX_CLASSES:
        measured = {value: count for value, count in rows.items() if _MEASURED.fullmatch(value)}
        n_values = n - sum(count for value, count in rows.items() if is_mark(value))
        if sum(measured.values()) >= _MIN_SHARE_ALIKE * n_values:
            example = quoted(
                next((v for v in measured if not number_form(v)), next(iter(measured)))
            )
            unmeasured = [value for value in rows if value not in measured]
            also = f", and {_named_cells(texts, unmeasured)}" if unmeasured else ""
            problem = f"has {sum(measured.values()):,} numbers with a unit or other text, such as "
            raise TargetError(f"{problem}{example}{also}", "form", name)
        if len(rows) > n / 2:
            raise TargetError(*_different_texts(rows, n), name)


def _are_codes(rows: Mapping[str, int], numbers: Mapping[str, int], n: int) -> bool:
    """Tell whether texts that are nearly all numbers may be class labels: few, and repeated."""
    if len(rows) > max(2, min(_MAX_CLASSES, n / 2)):
        return False
    forms = {number_form(value) for value in numbers}
    non_numbers = {value: count for value, count in rows.items() if value not in numbers}
    if "comma" in forms or len(forms) > 1:
        return False
    if not non_numbers:
        return True
    if forms != {"plain"} or any(
        is_mark(v) or c < max(2, _MIN_LABEL_SHARE * n) for v, c in non_numbers.items()
    ):
        return False
    values = np.array([float(value) for value in numbers])
    order = values.argsort()
    return _task_of_numbers(values[order], np.array([*numbers.values()])[order]) != "regression"


def _different_texts(rows: Mapping[str, int], n: int) -> tuple[str, TargetFault]:
    some = ", ".join(quoted(value) for value in list(rows)[:_N_SHOWN])
    return f"has {len(rows):,} different texts in {n:,} rows ({some}, ...)", "names"


def _problem(texts: pd.Series, rows: Mapping[str, int]) -> tuple[str, TargetFault]:
    """Describe why texts are not read as numbers: the form of most of them, or some cells."""
    n = sum(rows.values())
    forms = {value: number_form(value) for value in rows}
    with_points = any("." in value and form in ("plain", "gap") for value, form in forms.items())
    if (
        "comma" in forms.values() and not with_points
    ):  # 1,5 shows that the comma of 1,020 is decimal
        forms = {v: "comma" if form in ("plain", "gap") else form for v, form in forms.items()}
    counts = dict.fromkeys(("plain", "comma", "gap", "sign", "negative", ""), 0)
    for value, form in forms.items():
        counts[form] += rows[value]
    main_form = max(counts, key=counts.__getitem__)
    if not main_form:
        return (
            _different_texts(rows, n)
            if len(rows) > _MAX_CLASSES
            else (
                f"has text that is not numbers: {_named_cells(texts, list(rows))}",
                "cells",
            )
        )
    other_texts = [value for value, form in forms.items() if form != main_form]
    also = f", and {_named_cells(texts, other_texts)}" if other_texts else ""
    if main_form != "plain":
        example = next(
            v for v, form in forms.items() if form == main_form and number_form(v) == main_form
        )
        alike = [value for value, form in forms.items() if form == "comma"]
        readable = all(re.fullmatch(r"[+-]?\d*(,\d+)?", value) for value in alike)
        fault: TargetFault = "decimal comma" if main_form == "comma" and readable else "form"
        what = f"{counts[main_form]:,} {_FORM_NAMES[main_form]}"
        return f"has {what}, such as {quoted(example)}{also}", fault
    if other_texts:
        return f"has {counts['plain']:,} numbers{also}", "cells"
    zeros = [value for value in rows if value.lstrip("+-").startswith("0") and len(value) > 1]
    return f"has numbers as text, such as {quoted((zeros or list(rows))[0])}", "text"


def _named_cells(texts: pd.Series, values: list[str]) -> str:
    """Name values, each with the number of its rows and the first of them."""
    said = []
    for value in values[:_N_SHOWN]:
        same = (texts == value).to_numpy(bool, na_value=False)
        count = int(same.sum())
        where = name_row(int(same.argmax()), "" if count == 1 else f"{count:,} rows, first ")
        said.append(f"{quoted(value) if value else 'a blank'}{where}")
    more = len(values) - _N_SHOWN
    return ", ".join(said) + (f" and {more:,} more value{'s' * (more > 1)}" if more > 0 else "")
