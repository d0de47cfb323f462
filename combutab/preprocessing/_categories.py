"""Categorical columns: values to stable keys, keys to codes."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._columns import narrow, raise_complex
from combutab.preprocessing._moments import raise_infinity

# A category's key: a plain Python value, the same whatever dtype the column came in.
Key = bool | int | float | str | bytes | pd.Timestamp | pd.Timedelta


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
    """

    column: int
    keys: tuple[Key, ...]
    missing: bool
    onehot: bool
    rare: bool = False  # a one-hot span has a column of the rare ones
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

    def encode(self, factors: Factors) -> np.ndarray:
        """Codes of shape (n,), int64; in a one-hot column -1 is a row of zeros."""
        first = 0 if self.onehot else 1
        unseen, missing = self._others()
        keys = factors.keys
        if _are_numbers(self.keys) and keys and all(isinstance(key, str) for key in keys):
            keys = [_number_or_text(str(key)) for key in keys]
        # One look-up a distinct value, then a gather a row.
        table = np.empty(len(keys) + 1, dtype=np.int64)
        table[:-1] = [self._position.get(key, unseen - first) for key in keys]
        table[:-1] += first
        table[-1] = missing  # gathered by code -1
        return table[factors.codes]


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

    def learn(self, column: int, max_onehot: int, fewest: int) -> CategoryMap:
        """The column's categories, sorted so that the order of the rows does not matter.

        Those that fewer than `fewest` rows have are not kept. In a column of codes they share the
        slot of the unseen ones, and a category seen once does so in any case: an embedding cannot
        be learned from one row, and so that slot is trained at all.
        """
        keys = [key for key, n in self.seen.items() if n >= fewest]
        rare = len(keys) < len(self.seen)
        onehot = bool(len(keys) + rare <= max_onehot)  # max_onehot may be numpy's integer
        if not onehot:
            keys, rare = [key for key in keys if self.seen[key] > 1], False
        return CategoryMap(
            column, tuple(sorted(keys, key=_order)), bool(self.n_missing), onehot, rare
        )


def count_categories(factors: Factors) -> CategoryCounts:
    """Count the categories of a column of which all rows are here."""
    counts = CategoryCounts()
    counts.add(factors)
    return counts


def fewest_rows(min_frequency: float, n_rows: int) -> int:
    """Find how many rows a value must have to be kept, from a number or a share of all rows.

    >>> fewest_rows(5, 300), fewest_rows(0.1, 30), fewest_rows(0.1, 31)
    (5, 3, 4)
    """
    if isinstance(min_frequency, numbers.Integral):
        return int(min_frequency)
    return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little more than 3


def factorize(column: pd.Series, label: str) -> Factors:
    """Codes and distinct keys of a column of any dtype.

    Raises ValueError or TypeError if a value cannot be a category; it names the column by `label`.

    >>> import pandas as pd
    >>> factors = factorize(pd.Series([1, "1", None, 1.0], dtype=object), "column 0")
    >>> factors.codes.tolist(), factors.keys
    ([0, 1, -1, 0], [1, '1'])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(np.int64)
        used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:])
        position = np.full(len(dtype.categories) + 1, -1)
        position[used] = np.arange(len(used))
        return _canonical(position[codes], dtype.categories[used], label)
    if isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
        column = pd.Series(narrow(column.to_numpy()))
    try:
        codes, uniques = pd.factorize(column, use_na_sentinel=True)
    except (TypeError, NotImplementedError):  # unhashable values; the second is pyarrow's
        keys = [_key(v, label) if types.is_hashable(v) else repr(v) for v in column]
        codes, uniques = pd.factorize(pd.Series(keys, dtype=object), use_na_sentinel=True)
    return _canonical(codes, uniques, label)


def _canonical(codes: np.ndarray, uniques: Any, label: str) -> Factors:
    if uniques.dtype.kind == "c":
        raise_complex(label)
    if uniques.dtype.kind == "f" and np.isinf(uniques.to_numpy(np.float64)).any():
        raise_infinity([label])
    values = uniques.astype(object).tolist()
    if types.infer_dtype(values, skipna=False) in ("string", "integer"):
        return Factors(codes, values)
    keys: list[Any] = [
        None if types.is_scalar(v) and pd.isna(v) else _key(v, label) for v in values
    ]
    if None in keys:  # NaN inside a nullable column, which pandas keeps apart from NA
        position = np.arange(len(keys) + 1)
        position[[i for i, key in enumerate(keys) if key is None] + [len(keys)]] = -1
        codes, keys = position[codes], [0 if key is None else key for key in keys]
    return Factors(codes, keys)


def _key(value: Any, label: str) -> Any:
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
        return int(number) if number.is_integer() else number
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


def _are_numbers(keys: Sequence[Key]) -> bool:
    return len(keys) > 0 and all(type(key) in (int, float) for key in keys)


def _number_or_text(text: str) -> Key:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def _order(key: Key) -> tuple[int, Any]:
    """Numbers, then text, then the rest; each by value."""
    if isinstance(key, pd.Timestamp):
        return (3, key) if key.tzinfo is None else (4, key)
    if isinstance(key, pd.Timedelta):
        return 5, key
    if isinstance(key, bytes):
        return 2, key
    return (1, key) if isinstance(key, str) else (0, key)
