"""The columns of a table as a generator's network has them: categories, or values within modes."""

from __future__ import annotations

import decimal
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.preprocessing._columns import narrow
from combutab.preprocessing._mixtures import Mixture
from combutab.preprocessing._mode_numbers import Format


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """A discrete column, or one that is constant.

    Attributes
    ----------
    values : Series of shape (size,)
        The distinct values, of the column's dtype; a missing one is the last.
    missing : bool
        Whether there is a missing one.
    counts : ndarray of shape (size,), int64
        The rows of the fitted table that have each.
    """

    values: pd.Series
    missing: bool
    counts: np.ndarray

    @property
    def size(self) -> int:
        return len(self.values)

    @cached_property
    def keys(self) -> list[Any]:
        """The values as Python's objects, without the missing one."""
        present = self.values.iloc[: self.size - self.missing]
        return present.astype(object).tolist()

    @cached_property
    def codes(self) -> dict[Any, int]:
        return {key: code for code, key in enumerate(self.keys)}

    def encode(self, column: pd.Series, label: str) -> np.ndarray:
        """The code of each row's value, (n,) int32.

        Raises
        ------
        ValueError
            If fit has not seen a value.
        """
        codes, keys = factorize(column, label)
        table = np.empty(len(keys) + 1, dtype=np.int32)
        table[:-1] = [self.codes.get(key, -1) for key in keys]
        table[-1] = self.size - 1 if self.missing else -1  # gathered by code -1
        encoded = table[codes]
        unseen = encoded < 0
        if unseen.any():
            value = column.iloc[int(unseen.argmax())]
            raise ValueError(f"{label} has the value {value!r}, which fit has not seen")
        return encoded

    def decode(self, codes: np.ndarray) -> pd.Series:
        """The value of each code, as the fitted column had it."""
        values = self.values
        # Series.take, and a Series of an object array without its dtype, look at every value first
        held: Any = values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array
        return pd.Series(held.take(codes), dtype=values.dtype, name=values.name, copy=False)

    def code(self, value: Any, label: str) -> int:
        """The code of one value; None or NaN for the missing one.

        Raises
        ------
        ValueError
            If fit has not seen it; the error has some that it has seen.
        """
        if _is_missing(value):
            if not self.missing:
                raise ValueError(f"{label} had no missing value in fit; it has {self._some()}")
            return self.size - 1
        if isinstance(value, np.datetime64 | np.timedelta64):
            value = pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
        elif isinstance(value, np.generic):
            value = value.item()
        code = self.codes.get(value) if isinstance(value, Hashable) else None
        if code is None:
            raise ValueError(f"{label} had no value {value!r} in fit; it has {self._some()}")
        return code

    def _some(self) -> str:
        listed = ", ".join(map(repr, self.keys[:5]))
        return listed + (f" and {len(self.keys) - 5} more" if len(self.keys) > 5 else "")


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A continuous column: its numbers' format, their modes, and whether some are missing.

    A missing one has a code of its own, the last, and the value 0.
    """

    format: Format
    mixture: Mixture
    missing: bool

    @property
    def size(self) -> int:
        return len(self.mixture.weights) + self.missing

    @property
    def bounds(self) -> pd.Series:
        """The least and the greatest number, as the fitted column has them."""
        return self.format.write(np.array([0.0, np.inf]), np.zeros(2, dtype=bool))

    def encode(
        self, column: pd.Series, label: str, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values, (n,) float32, and modes drawn from their posterior, (n,) int32.

        Raises
        ------
        ValueError
            If a number is infinite, of another kind than fit has seen, or missing as none was.
        """
        x, missing = self.format.read(_as_fitted(column, self.format.dtype, label), label)
        if missing.any() and not self.missing:
            raise ValueError(f"{label} has missing values, but fit has seen none there")
        uniforms = rng.random(len(x))
        x = np.where(missing, 0.0, x)
        codes = self.mixture.draw(x, uniforms)
        values = self.mixture.scale(x, codes).astype(np.float32)
        values[missing] = 0.0
        codes[missing] = len(self.mixture.weights)
        return values, codes

    def decode(self, values: np.ndarray, codes: np.ndarray) -> pd.Series:
        """The numbers of values within modes, as the fitted column had them."""
        missing = codes == len(self.mixture.weights)
        modes = np.where(missing, 0, codes)
        return self.format.write(self.mixture.unscale(values, modes), missing)


Column = CategoryColumn | NumberColumn


def fit_categories(column: pd.Series, label: str) -> CategoryColumn:
    """Learn the distinct values of a column; the order of its rows does not matter."""
    codes, keys = factorize(column, label)
    missing = bool((codes < 0).any())
    size = len(keys) + missing
    codes = np.where(codes < 0, size - 1, codes)
    first = np.empty(size, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal ones the last stays: the first row
    values = column.iloc[first].reset_index(drop=True)
    return CategoryColumn(values, missing, np.bincount(codes, minlength=size))


def factorize(column: pd.Series, label: str) -> tuple[np.ndarray, list[Any]]:
    """Codes of shape (n,), -1 for missing, and the distinct values that they count, in order.

    Values that Python calls equal (1, 1.0 and True) are one.

    Raises
    ------
    TypeError
        If a value is not hashable.
    ValueError
        If a number is infinite.

    Examples
    --------
    >>> factorize(pd.Series(["b", None, "a"]), "column 0")
    (array([ 1, -1,  0]), ['a', 'b'])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(np.intp)
        used = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:])
        values, order = dtype.categories[used].astype(object).tolist(), list(range(len(used)))
        place = np.full(len(dtype.categories) + 1, -1)
        place[used] = order
        codes = place[codes]
    else:
        if isinstance(dtype, pd.SparseDtype):
            column = column.astype(dtype.subtype)
        if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f":
            column = pd.Series(narrow(column.to_numpy()))
        try:
            codes, uniques = pd.factorize(column, use_na_sentinel=True)
        except (TypeError, NotImplementedError):  # the second is pyarrow's
            bad = next((v for v in column if not types.is_hashable(v)), None)
            raise TypeError(
                f"{label} holds values that are not hashable, such as {bad!r}; convert them to "
                "text or tuples"
            ) from None
        values = uniques.astype(object).tolist()
        order = _order(values)
    # NaN inside a nullable column is kept apart from NA by pandas
    order = [i for i in order if not _is_missing(values[i])]
    if any(isinstance(values[i], float) and np.isinf(values[i]) for i in order):
        raise ValueError(f"{label} has infinite values; replace them by missing ones or by a bound")
    rank = np.full(len(values) + 1, -1)  # the last is gathered by code -1
    rank[order] = np.arange(len(order))
    return rank[codes], [values[i] for i in order]


def _order(values: Sequence[Any]) -> list[int]:
    places = range(len(values))
    try:
        return sorted(places, key=values.__getitem__)
    except TypeError:  # of kinds that do not compare
        return sorted(places, key=lambda i: _rank(values[i]))


def _rank(value: Any) -> tuple[str, Any, str]:
    """Numbers by value, whichever of 1, 1.0 and True it is; then the rest, kind by kind."""
    if isinstance(value, int | float | decimal.Decimal):
        return "", value, ""
    return type(value).__name__, 0, repr(value)


def _is_missing(value: Any) -> bool:
    return bool(types.is_scalar(value) and pd.isna(value))


def _as_fitted(column: pd.Series, dtype: Any, label: str) -> pd.Series:
    """A later column brought to the dtype of the fitted one."""
    given: Any = column.dtype
    if given == dtype:
        return column
    kinds = (given.kind, dtype.kind)
    same = given.kind == dtype.kind or (given.kind in "iu" and dtype.kind in "iuf")
    if not same or "O" in kinds:
        raise ValueError(
            f"{label} has the dtype {given}, but fit has seen {dtype}; convert it with astype"
        )
    return column.astype(dtype)
