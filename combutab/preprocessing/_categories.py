"""Categorical columns: values to stable keys, keys to codes."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import re
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._columns import narrow, raise_complex, raise_infinity

# A category's key: a plain Python value, the same whatever dtype the column came in.
Key = bool | int | float | str | bytes | pd.Timestamp | pd.Timedelta

_PLAIN_TYPES = {"string": str, "integer": int}
_MAX_LENGTH = 40  # characters: no number, and no date
# Python's float takes more than what a table has for a number; a leading zero is of a name
_PLAIN_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE
)
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9].*)?")
_DURATION_TEXT = re.compile(r"(-?[0-9]+ days?,? ?[+-]?)?([0-9]{1,2}:[0-9]{2}:[0-9.]+)?|-?P[0-9].*")
_MIN_EXPECTED = 10  # rows, of which hardly any category is known, that are worth a warning
_MIN_KNOWN = 0.1


@dataclass(frozen=True, eq=False)
class Factors:
    """A column as codes into its distinct keys; -1 is missing."""

    codes: np.ndarray  # (n,) integers
    keys: list[Key]


@dataclass(frozen=True)
class CategoryMap:
    """The categories of one column, as an encoder keeps them.

    One-hot: key i is 1 in column i of the span, the rare ones, if the fit saw any, in the column
    after them, missing, if the fit saw it, in the last one. An unseen value counts as a rare one,
    or is nowhere. Codes: 0 is unseen and rare, key i is i + 1, missing, if seen, the last.

    A value of another type that means the same as one key is that key: 1, "1" and "true", b"a" and
    "a", a date and its ISO 8601 text. Where two keys mean the same, only equal values are theirs.
    """

    column: int
    keys: tuple[Key, ...]
    missing: bool
    onehot: bool
    rare: bool = False  # a one-hot span has a column of the rare ones
    share: float = 1.0  # of new rows with a value, that have a key at least, to two digits
    _position: dict[Key, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_position", {key: i for i, key in enumerate(self.keys)})

    @property
    def width(self) -> int:
        """Columns of a one-hot span, or the cardinality of a code column."""
        return len(self.keys) + self.missing + (self.rare or not self.onehot)

    def codes(self) -> tuple[dict[Key, int], int, int]:
        """The code of each category, that of unseen values, and that of missing ones.

        >>> CategoryMap(0, ("a", "b"), missing=True, onehot=True).codes()
        ({'a': 0, 'b': 1}, -1, 2)
        """
        first = 0 if self.onehot else 1
        return {key: first + i for key, i in self._position.items()}, *self._others()

    def _others(self) -> tuple[int, int]:
        """The codes of unseen and of missing values."""
        unseen = len(self.keys) if self.rare else -1 if self.onehot else 0
        return unseen, self.width - 1 if self.missing else unseen

    def encode(self, factors: Factors, label: str | None = None) -> np.ndarray:
        """Codes of shape (n,), int64; in a one-hot column -1 is a row of zeros.

        With a ``label``, the column's name, there is a warning if hardly a row has a category that
        is known here, and a ValueError if none can have one: of dates where fit saw text, say.
        """
        first = 0 if self.onehot else 1
        unseen, missing = self._others()
        places = [self._position.get(key) for key in factors.keys]
        if None in places:
            both = zip(factors.keys, places, strict=True)
            places = [self._equivalent(key) if place is None else place for key, place in both]
        if label is not None and None in places:
            self._compare(factors, places, label)
        # One look-up a distinct value, then a gather a row.
        table = np.empty(len(places) + 1, dtype=np.int64)
        table[:-1] = [unseen if place is None else first + place for place in places]
        table[-1] = missing  # gathered by code -1
        return table[factors.codes]

    @cached_property
    def _places_by_meaning(self) -> dict[tuple[str, Any], int | None]:
        """What the keys mean -> the place of the key; None where several mean it."""
        found: dict[tuple[str, Any], int | None] = {}
        for key, i in self._position.items():
            for reading in _meanings(key):
                found[reading] = i if found.get(reading, i) == i else None
        return found

    @cached_property
    def _is_text(self) -> bool:
        return all(isinstance(key, str) for key in self.keys)

    def _equivalent(self, key: Key) -> int | None:
        """The place of the one key that means the same as this value, which equals none."""
        of_text = isinstance(key, str | bytes)
        if isinstance(key, str) and self._is_text:
            return None
        found = set()
        for kind, value in _meanings(key):
            if (kind, value) not in self._places_by_meaning:
                continue
            place = self._places_by_meaning[kind, value]
            # of two texts, "1" and "1.0", each stands for itself
            if (
                kind == "text"
                or place is None
                or not (of_text and isinstance(self.keys[place], str | bytes))
            ):
                found.add(place)
        return found.pop() if len(found) == 1 else None

    def _compare(self, factors: Factors, places: list[int | None], label: str) -> None:
        """Warn of a column that has hardly a known category; refuse one that can have none."""
        unknown = [key for key, place in zip(factors.keys, places, strict=True) if place is None]
        if not self.keys:
            return
        if len(unknown) == len(places) and not self._may_mean(unknown):
            raise ValueError(
                f"{label} has values such as {_quoted(unknown[:1])}, but fit has seen categories "
                f"such as {_quoted(self.keys[:1])}; convert it to what it was in fit"
            )
        counts = np.bincount(factors.codes + 1, minlength=len(places) + 1)[1:]
        known = np.array([place is not None for place in places])
        expected = self.share * counts.sum()
        if expected >= _MIN_EXPECTED and counts[known].sum() < _MIN_KNOWN * expected:
            warnings.warn(
                f"hardly a row of {label} has a category that fit kept: it has {_quoted(unknown)}, "
                f"and fit kept {_quoted(self.keys)}; all others count as unseen. If they mean the "
                "same, convert the column to what it was in fit",
                stacklevel=2,
            )

    def _may_mean(self, keys: list[Key]) -> bool:
        """Tell whether values of such types could ever be known here: no dates among words."""
        if any(isinstance(key, str | bytes) for key in keys):
            return True
        kinds = {kind for key in keys for kind, _ in _meanings(key)}
        own = {kind for kind, _ in self._places_by_meaning}
        of_time = {"date", "duration"}
        return bool(kinds & own) or not (kinds & of_time or (own and own <= of_time))


class CategoryCounts:
    """Count the categories of a column over the parts that are added."""

    def __init__(self) -> None:
        self.seen: dict[Key, int] = {}
        self.n_missing = 0

    def add(self, factors: Factors) -> None:
        """Count the rows of one part."""
        counts = np.bincount(factors.codes + 1, minlength=len(factors.keys) + 1).tolist()
        self.n_missing += counts[0]
        for key, count in zip(factors.keys, counts[1:], strict=True):
            if count:
                self.seen[key] = self.seen.get(key, 0) + count

    def learn(self, column: int, max_onehot: int, min_count: int) -> CategoryMap:
        """The column's categories, sorted so that the order of the rows does not matter.

        Those of fewer than `min_count` rows are not kept. In a column of codes they share the
        slot of the unseen ones, and a category seen once does so in any case: an embedding cannot
        be learned from one row, and so that slot is trained at all.
        """
        keys = [key for key, n in self.seen.items() if n >= min_count]
        rare, n_rows = len(keys) < len(self.seen), sum(self.seen.values())
        onehot = bool(len(keys) + rare <= max_onehot)  # max_onehot may be numpy's integer
        if not onehot:
            keys, rare = [key for key in keys if self.seen[key] > 1], False
        # two standard deviations below what was counted: a category of few rows promises none
        counts = np.array([self.seen[key] for key in keys], dtype=np.float64)
        expected = np.maximum(counts - 2 * np.sqrt(counts), 0).sum()
        share = round(float(expected) / max(n_rows, 1), 2)
        return CategoryMap(
            column, tuple(sorted(keys, key=_sort_key)), bool(self.n_missing), onehot, rare, share
        )


def rows_needed(min_frequency: float, n_rows: int) -> int:
    """Find how many rows a value must have to be kept, from a number or a share of all rows.

    >>> rows_needed(5, 300), rows_needed(0.1, 30), rows_needed(0.1, 31)
    (5, 3, 4)
    """
    if isinstance(min_frequency, numbers.Integral):
        return int(min_frequency)
    return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little more than 3


def distinct_values(column: pd.Series, label: str) -> tuple[np.ndarray, list[Any]]:
    """Codes of a column of any dtype, (n,), -1 for missing, and the values that they count.

    Those are Python's objects; values that Python calls equal (1, 1.0 and True) are one.

    Raises
    ------
    TypeError, NotImplementedError
        If a value is not hashable; the second is pyarrow's.
    ValueError
        If the column is complex.

    >>> import pandas as pd
    >>> distinct_values(pd.Series(["b", None, "a"]), "column 0")
    (array([ 0, -1,  1]), ['b', 'a'])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(np.intp)
        used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:])
        place = np.full(len(dtype.categories) + 1, -1)
        place[used] = np.arange(len(used))
        codes, uniques = place[codes], dtype.categories[used]
    else:
        if isinstance(dtype, pd.SparseDtype):
            column = column.astype(dtype.subtype)
        if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
            column = pd.Series(narrow(column.to_numpy()))
        codes, uniques = pd.factorize(column, use_na_sentinel=True)
    if uniques.dtype.kind == "c":
        raise_complex(label)
    values = uniques.astype(object)
    absent = np.asarray(pd.isna(values))
    if absent.any():  # NaN inside a nullable column, which pandas keeps apart from NA
        codes = np.append(np.where(absent, -1, np.cumsum(~absent) - 1), -1)[codes]
    return codes, values[~absent].tolist()


def factorize(column: pd.Series, label: str) -> Factors:
    """Codes and distinct keys of a column of any dtype.

    Raises ValueError or TypeError if a value cannot be a category; it names the column by `label`.

    >>> import pandas as pd
    >>> factors = factorize(pd.Series([1, "1", None, 1.0], dtype=object), "column 0")
    >>> factors.codes.tolist(), factors.keys
    ([0, 1, -1, 0], [1, '1'])
    """
    try:
        codes, values = distinct_values(column, label)
    except (TypeError, NotImplementedError):
        keys = [_canonical_key(v, label) if types.is_hashable(v) else repr(v) for v in column]
        codes, values = distinct_values(pd.Series(keys, dtype=object), label)
    plain: type | None = _PLAIN_TYPES.get(types.infer_dtype(values, skipna=False))
    if plain is not None:
        return Factors(codes, list(map(plain, values)))  # some are numpy's
    return Factors(codes, [_canonical_key(value, label) for value in values])


def _canonical_key(value: Any, label: str) -> Any:
    """The plain value that stands for a category; equal categories have equal keys."""
    if value is None or isinstance(value, str | bytes | pd.Timestamp | pd.Timedelta):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real | decimal.Decimal):
        number = float(value)
        if np.isinf(number):
            raise_infinity([label])
        whole = math.trunc(value)  # of a decimal, which float would round
        return whole if value == whole else number
    if isinstance(value, numbers.Complex):
        raise_complex(label)
    if isinstance(value, datetime.date | np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return pd.Timedelta(value)
    if isinstance(value, pd.Interval | pd.Period | datetime.time):
        return str(value)
    if type(value).__repr__ is object.__repr__:
        raise TypeError(
            f"{label}: a category must be a number, text, a date or a value with a stable repr, "
            f"got a {type(value).__name__}; convert the column to strings"
        )
    return repr(value)


def _meanings(key: Key) -> list[tuple[str, Any]]:
    """What a category means, as pairs of a kind and a value; most texts mean themselves alone.

    >>> _meanings("1.0"), _meanings("true"), _meanings(True)
    ([('text', '1.0'), ('number', 1)], [('text', 'true'), ('number', 1)], [('number', 1)])
    """
    if isinstance(key, int):
        return [("number", int(key))]
    if isinstance(key, float):
        return [("number", key), *_short_decimals(key)]
    if isinstance(key, pd.Timestamp):
        return [("date", _in_utc(key))]
    if isinstance(key, pd.Timedelta):
        return [("duration", key)]
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return []
    return [("text", key), *_meanings_of_text(key.strip())]


def _meanings_of_text(text: str) -> list[tuple[str, Any]]:
    if len(text) > _MAX_LENGTH:
        return []
    if text.casefold() in ("true", "false"):
        return [("number", int(text.casefold() == "true"))]
    try:
        if _PLAIN_NUMBER.fullmatch(text):
            number = float(text)
            whole, _, rest = text.partition(".")
            if not rest.strip("0") and "e" not in text.lower():
                return [("number", int(whole))]  # of any size
            return [("number", number)] if math.isfinite(number) else []
        if _ISO_DATE.fullmatch(text):
            return [("date", _in_utc(pd.Timestamp(text)))]
        if text and _DURATION_TEXT.fullmatch(text):
            return [("duration", pd.Timedelta(text))]
    except (ValueError, OverflowError):  # a 13th month
        pass
    return []


def _short_decimals(number: float) -> list[tuple[str, Any]]:
    """The decimals that a number in half or single precision stands for."""
    with np.errstate(over="ignore"):
        held = [kind(number) for kind in (np.float16, np.float32)]
    return [("number", float(str(each))) for each in held if float(each) == number]


def _in_utc(moment: pd.Timestamp) -> pd.Timestamp:
    """A moment in UTC, as which one without a time zone counts."""
    return moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")


def _quoted(keys: list[Key] | tuple[Key, ...], n: int = 3) -> str:
    texts = [
        repr(str(key) if isinstance(key, pd.Timestamp | pd.Timedelta) else key) for key in keys[:n]
    ]
    shown = [text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..." for text in texts]
    return ", ".join(shown) + (", ..." if len(keys) > n else "")


def _sort_key(key: Key) -> tuple[int, Any]:
    """Numbers, then text, then the rest; each by value."""
    if isinstance(key, pd.Timestamp):
        return (3, key) if key.tzinfo is None else (4, key)
    if isinstance(key, pd.Timedelta):
        return 5, key
    if isinstance(key, bytes):
        return 2, key
    return (1, key) if isinstance(key, str) else (0, key)
