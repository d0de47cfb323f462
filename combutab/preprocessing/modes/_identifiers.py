"""Columns that name rows (row ids, e-mail addresses, UUIDs): found, and filled with new names."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._categories import fewest_rows

_MIN_ROWS = 50  # fewer values may be different by chance
_DENSE = 0.5  # of the whole numbers of a count are there, at least
_RARE = 0.95  # of the rows have a value that few rows have, at least
_ROOM = 10**9  # numbers that are free above the real ones
_EXACT = 2**53  # floats beyond it are no whole numbers for certain
_SAMPLE = 1000  # values that a pattern is looked for in
_MOST = 0.9  # of them show it

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# decimals with any sign of money, or points or commas between thousands; dates
_QUANTITY = re.compile(
    r"\W*(\d+[.,]\d+|\d{1,3}([.,]\d{3})+([.,]\d+)?)(e[-+]?\d+)?\W*"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?",
    re.IGNORECASE,
)
_IDS = {"id", "ids", "uid", "uuid", "guid", "pk", "key", "ssn", "iban", "isbn", "imei", "phone"}
_IDS |= {"telephone", "mobile", "barcode", "passport"}
_NUMBERS = {"number", "no", "nr", "num", "code"}
_OF = {"account", "card", "case", "client", "customer", "employee", "invoice", "member", "order"}
_OF |= {"passport", "patient", "phone", "policy", "security", "serial", "student", "tax"}

Kind = Literal["integer", "text", "email", "uuid", "uuid object"]


@dataclass(frozen=True)
class Identifiers:
    """New identifiers in the place of a column's own: a count from `start`, alone or within text.

    None is an identifier of the column that it was made for, and those of one call differ.

    Examples
    --------
    >>> Identifiers("integer", 1200).make(3)
    [1200, 1201, 1202]
    >>> Identifiers("text", 1, "id-", "@example.invalid").make(1)
    ['id-000001@example.invalid']
    """

    kind: Kind
    start: int = 1
    prefix: str = ""
    suffix: str = ""

    def make(self, n: int, before: int = 0) -> list[Any]:
        """N of them, after those that were made before."""
        first = self.start + before
        numbers = range(first, first + n)
        if self.kind == "integer":
            return list(numbers)
        digits = 12 if self.kind.startswith("uuid") else 6
        made = [f"{self.prefix}{i:0{digits}d}{self.suffix}" for i in numbers]
        return [uuid.UUID(each) for each in made] if self.kind == "uuid object" else made


def find_identifiers(column: pd.Series, *, min_frequency: float = 5) -> Identifiers | None:
    """Find what may replace a column's identifiers; None where its values are none.

    Identifiers are, in at least 50 rows,

    - whole numbers of which none is there twice, if they are a count (half of the numbers between
      the least and the greatest are there, or more) or the column's name says so (``id``,
      ``customer_id``, ``phone number``); floats only by the name;
    - text, where 95 % of the rows have a value that fewer rows than `min_frequency` have; unless
      it holds decimals or dates that have not been read as such.

    Measurements are none, however different they are. Missing values do not count.

    Parameters
    ----------
    column : Series
        Its name is read too.
    min_frequency : int or float, default=5
        Rows, or a share of them.

    Examples
    --------
    >>> find_identifiers(pd.Series(range(1, 301), name="row"))
    Identifiers(kind='integer', start=310, prefix='', suffix='')
    >>> find_identifiers(pd.Series([f"user{i}@mail.org" for i in range(100)])).make(1)
    ['id-000001@example.invalid']
    >>> find_identifiers(pd.Series(range(0, 30_000, 100), name="population")) is None
    True
    """
    kind = _kind(column)
    if kind is None or column.notna().sum() < _MIN_ROWS:
        return None
    if kind == "text":
        counts = column.value_counts(dropna=True)
        fewest = max(2, fewest_rows(min_frequency, len(column)))
        values = [str(value) for value in counts.index[counts > 0]]
        if counts[counts < fewest].sum() < _RARE * counts.sum() or _show(_QUANTITY, values):
            return None
        return _in_text(values, column)
    x = _whole_numbers(column, kind)
    if x is None or len(np.unique(x)) < len(x):
        return None
    is_count = kind == "integer" and len(x) >= _DENSE * (int(x.max()) - int(x.min()) + 1)
    return _above(x, column.dtype) if is_count or _says_id(column.name) else None


def new_identifiers(column: pd.Series, label: str) -> Identifiers:
    """Find what replaces the values of a column that is known to hold identifiers.

    Raises ValueError if they are neither text nor whole numbers, or no numbers are free above them.
    """
    kind, found = _kind(column), None
    if kind == "text":
        found = _in_text([str(value) for value in column.dropna().unique()], column)
    elif kind is not None:
        x = _whole_numbers(column, kind)
        found = None if x is None or not len(x) else _above(x, column.dtype)
    if found is None:
        raise ValueError(
            f"{label} is listed in identifiers, but new ones are made of text and of whole numbers "
            f"with numbers free above them, got {column.dtype}; convert the column to text, or "
            "leave it out"
        )
    return found


def _kind(column: pd.Series) -> Literal["integer", "float", "text"] | None:
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        column = pd.Series(dtype.categories)
        dtype = column.dtype
        if types.infer_dtype(column, skipna=True) not in ("string", "empty"):
            return None
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.SparseDtype):
        return None
    if types.is_integer_dtype(dtype):
        return "integer"
    if types.is_float_dtype(dtype):
        return "float"
    inferred = types.infer_dtype(column, skipna=True)
    if inferred == "integer":
        return "integer"
    return "text" if inferred == "string" or _of_uuids(column) else None


def _of_uuids(column: pd.Series) -> bool:
    return column.dtype == object and all(isinstance(v, uuid.UUID) for v in column.dropna())


def _whole_numbers(column: pd.Series, kind: str) -> np.ndarray | None:
    """The numbers that are there, as integers; None where some are no certain ones."""
    present = column.dropna()
    if kind == "integer":
        if present.dtype == object:
            return np.array(present.tolist(), dtype=object)
        return present.to_numpy(dtype=np.uint64 if str(present.dtype)[0] in "uU" else np.int64)
    x = present.to_numpy(dtype=np.float64)
    certain = np.abs(x) < _EXACT
    return x.astype(np.int64) if (certain & (x == np.rint(x))).all() else None


def _above(x: np.ndarray, dtype: Any) -> Identifiers | None:
    """Numbers above all of these, and above the digits that would tell the greatest one."""
    high = int(x.max())
    unit = 10 ** max(1, len(str(abs(high))) - 2)
    start = (high // unit + 1) * unit
    return Identifiers("integer", start) if start + _ROOM <= _greatest(dtype) else None


def _greatest(dtype: Any) -> int:
    if types.is_float_dtype(dtype):
        return _EXACT
    dtype = getattr(dtype, "numpy_dtype", dtype)
    return int(np.iinfo(np.int64 if dtype.kind == "O" else dtype).max)


def _in_text(values: Collection[str], column: pd.Series) -> Identifiers:
    """Text that shows that it was made, and that none of these values is."""
    values = [value.casefold() for value in values]
    kind: Kind = "text"
    if _show(_UUID, values):
        kind = "uuid object" if _of_uuids(column) else "uuid"
    elif _show(_EMAIL, values):
        kind = "email"
    suffix = "@example.invalid" if kind == "email" else ""  # of no one, by RFC 2606
    for k in itertools.count(1):
        prefix = f"00000000-0000-4000-8{k - 1:03x}-" if "uuid" in kind else f"id{k}-"
        prefix = "id-" if prefix == "id1-" else prefix
        if not any(value.startswith(prefix) for value in values):
            return Identifiers(kind, 1, prefix, suffix)
    raise AssertionError("values are finite")


def _show(pattern: re.Pattern[str], values: Collection[str]) -> bool:
    some = list(itertools.islice(values, _SAMPLE))
    return sum(pattern.fullmatch(value.strip()) is not None for value in some) >= _MOST * max(
        1, len(some)
    )


def _says_id(name: Any) -> bool:
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))]
    if not words:
        return False
    numbered = words[-1] in _NUMBERS and bool(_OF & set(words))
    return words[-1] in _IDS or words[0] in ("id", "uuid") or numbered
