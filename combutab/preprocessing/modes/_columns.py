"""The columns of a table as a generator's network has them: categories, numbers, identifiers."""

from __future__ import annotations

import decimal
import itertools
import re
import uuid
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.text import list_names, no_column
from combutab.preprocessing._columns import (
    ColumnKind,
    column_kind,
    distinct_values,
    rows_needed,
)
from combutab.preprocessing._forms import measured_example
from combutab.preprocessing._tables import Table, chosen_mask
from combutab.preprocessing.modes._fakes import Fakes
from combutab.preprocessing.modes._numbers import (
    Format,
    Mixture,
    RoundingSteps,
    fit_format,
    from_integers,
    refuse_infinite,
)

# ---- Columns that name rows (row ids, e-mail addresses, UUIDs): found, and filled with new names

_MIN_IDENTIFIERS = 50  # fewer values may be different by chance
_MIN_DENSITY = 0.5  # of the whole numbers of a count are there, at least
_MIN_RARE_SHARE = 0.95  # of the rows have a value that few rows have, at least
_MIN_FREE = 10**9  # numbers that are free above the real ones
_MAX_EXACT = 2**53  # floats beyond it are no whole numbers for certain
_N_MATCHED = 1000  # values that a pattern is looked for in
_MIN_MATCHING = 0.9  # of them show it

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# decimals with any sign of money, or points or commas between thousands; dates
_QUANTITY = re.compile(
    r"\W*(\d+[.,]\d+|\d{1,3}([.,]\d{3})+([.,]\d+)?)(e[-+]?\d+)?\W*"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?",
    re.IGNORECASE,
)
_ID_WORD = re.compile(
    "barcode|guid|iban|ids?|imei|isbn|key|mobile|passport|phone|pk|ssn|telephone|uid|uuid"
)
_NUMBER_WORD = re.compile("code|no|nr|num|number")
_OWNER_WORD = re.compile(
    "account|card|case|client|customer|employee|invoice|member|order|passport|patient|phone|policy"
    "|security|serial|student|tax"
)

IdentifierKind = Literal["integer", "text", "email", "uuid", "uuid object"]


@dataclass(frozen=True)
class Identifiers:
    """New identifiers that replace those of a column: numbers from `start` on, or text with them.

    They differ from each other within a call, and from the identifiers of the fitted column.

    Examples
    --------
    >>> Identifiers("integer", 1200).make(3)
    [1200, 1201, 1202]
    >>> Identifiers("text", 1, "id-", "@example.invalid").make(1)
    ['id-000001@example.invalid']
    """

    kind: IdentifierKind
    start: int = 1
    prefix: str = ""
    suffix: str = ""

    def make(self, n: int, before: int = 0) -> list[Any]:
        """Make n identifiers, after those that were made before."""
        first = self.start + before
        numbers = range(first, first + n)
        if self.kind == "integer":
            return list(numbers)
        digits = 12 if self.kind.startswith("uuid") else 6
        texts = [f"{self.prefix}{i:0{digits}d}{self.suffix}" for i in numbers]
        return [uuid.UUID(text) for text in texts] if self.kind == "uuid object" else texts


def find_identifiers(column: pd.Series, *, min_frequency: float = 5) -> Identifiers | None:
    """Detect whether a column contains identifiers, and return new ones; None if it does not.

    A column with at least 50 values contains identifiers if it has

    - integers that never repeat, and either at least half of the integers between the smallest and
      the largest, or a name such as ``id``, ``customer_id`` or ``phone number``; floats only with
      such a name;
    - or text, where at least 95 % of the rows have a value that fewer rows than `min_frequency`
      have, except decimal numbers, amounts, numbers with a unit, dates and times as text.

    Measurements are not identifiers, even if all differ. Missing values are ignored.

    Parameters
    ----------
    column : Series
        The column, with its name.
    min_frequency : int or float, default=5
        Number of rows, or share of the rows.

    Examples
    --------
    >>> find_identifiers(pd.Series(range(1, 301), name="row"))
    Identifiers(kind='integer', start=310, prefix='', suffix='')
    >>> find_identifiers(pd.Series([f"user{i}@mail.org" for i in range(100)])).make(1)
    ['id-000001@example.invalid']
    >>> find_identifiers(pd.Series(range(0, 30_000, 100), name="population")) is None
    True
    """
    kind = _identifier_kind(column)
    if kind is None or column.notna().sum() < _MIN_IDENTIFIERS:
        return None
    if kind == "text":
        counts = column.value_counts(dropna=True)
        min_count = max(2, rows_needed(min_frequency, len(column)))
        values = [str(value) for value in counts.index[counts > 0]]
        is_rare = counts[counts < min_count].sum() >= _MIN_RARE_SHARE * counts.sum()
        if not is_rare or _match_mostly(_QUANTITY, values):
            return None
        if measured_example([value.strip() for value in values[:_N_MATCHED]]):
            return None
        return _text_identifiers(values, column)
    x = _whole_numbers(column, kind)
    if x is None:
        return None
    ordered = np.sort(x)  # by half the memory of np.unique
    if (ordered[1:] == ordered[:-1]).any():
        return None
    is_count = kind == "integer" and len(x) >= _MIN_DENSITY * (int(x.max()) - int(x.min()) + 1)
    return _numbers_above(x, column.dtype) if is_count or _is_named_id(column.name) else None


def new_identifiers(column: pd.Series, label: str) -> Identifiers:
    """Find what replaces the values of a column that is known to hold identifiers.

    Raises ValueError if they are neither text nor whole numbers, or no numbers are free above them.
    """
    kind, identifiers = _identifier_kind(column), None
    if kind == "text":
        identifiers = _text_identifiers([str(value) for value in column.dropna().unique()], column)
    elif kind is not None:
        x = _whole_numbers(column, kind)
        identifiers = None if x is None or not len(x) else _numbers_above(x, column.dtype)
    if identifiers is None:
        raise ValueError(
            f"{label} is listed in identifiers, but new ones can only be text, or integers above "
            f"the present ones, got {column.dtype}; convert the column to text, or "
            "leave it out"
        )
    return identifiers


def _identifier_kind(column: pd.Series) -> Literal["integer", "float", "text"] | None:
    if isinstance(column.dtype, pd.SparseDtype):
        return None
    if types.is_float_dtype(column.dtype):
        return "float"
    if types.is_integer_dtype(column.dtype) or types.infer_dtype(column) == "integer":
        return "integer"
    kind = column_kind(column, of_categories=True)
    return "text" if kind == ColumnKind.TEXT or _of_uuids(column) else None


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
    certain = np.abs(x) < _MAX_EXACT
    return x.astype(np.int64) if (certain & (x == np.rint(x))).all() else None


def _numbers_above(x: np.ndarray, dtype: Any) -> Identifiers | None:
    """Numbers above all of these, and above the digits that would tell the greatest one."""
    high = int(x.max())
    unit = 10 ** max(1, len(str(abs(high))) - 2)
    start = max(0, (high // unit + 1) * unit)
    return Identifiers("integer", start) if start + _MIN_FREE <= _greatest(dtype) else None


def _greatest(dtype: Any) -> int:
    if types.is_float_dtype(dtype):
        return _MAX_EXACT
    dtype = getattr(dtype, "numpy_dtype", dtype)
    return int(np.iinfo(np.int64 if dtype.kind == "O" else dtype).max)


def _text_identifiers(values: Collection[str], column: pd.Series) -> Identifiers:
    """Text that shows that it was made, and that none of these values is."""
    values = [value.casefold() for value in values]
    kind: IdentifierKind = "text"
    if _match_mostly(_UUID, values):
        kind = "uuid object" if _of_uuids(column) else "uuid"
    elif _match_mostly(_EMAIL, values):
        kind = "email"
    suffix = "@example.invalid" if kind == "email" else ""  # of no one, by RFC 2606
    for k in itertools.count(1):
        prefix = f"00000000-0000-4000-8{k - 1:03x}-" if "uuid" in kind else f"id{k}-"
        prefix = "id-" if prefix == "id1-" else prefix
        if not any(value.startswith(prefix) for value in values):
            return Identifiers(kind, 1, prefix, suffix)
    raise AssertionError("values are finite")


def _match_mostly(pattern: re.Pattern[str], values: Collection[str]) -> bool:
    some = list(itertools.islice(values, _N_MATCHED))
    return sum(
        pattern.fullmatch(value.strip()) is not None for value in some
    ) >= _MIN_MATCHING * max(1, len(some))


def _is_named_id(name: Any) -> bool:
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))]
    if not words:
        return False
    numbered = _NUMBER_WORD.fullmatch(words[-1]) and any(map(_OWNER_WORD.fullmatch, words))
    return bool(_ID_WORD.fullmatch(words[-1]) or words[0] in ("id", "uuid") or numbered)


# ---- The columns of a table as a generator's network has them: categories, or values within
# modes. All classes have the same methods, so that callers do not ask for the class.


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """A fitted discrete or constant column: its values, their codes and counts.

    Attributes
    ----------
    values : Series
        The distinct values that are kept, in the dtype of the column; missing is the last.
    missing : bool
        Whether one of the values is missing.
    counts : ndarray of shape (size,), int64
        Number of rows of the fitted table with each value.
    rare : bool
        Whether there is one more code, the last, for all values that too few rows had. These values
        are not stored.
    """

    values: pd.Series
    missing: bool
    counts: np.ndarray
    rare: bool = False
    is_continuous: ClassVar[Literal[False]] = False
    is_identifier: ClassVar[Literal[False]] = False

    @property
    def size(self) -> int:
        return len(self.values) + self.rare

    @property
    def missing_code(self) -> int:
        """The code of missing values, or -1."""
        return len(self.values) - 1 if self.missing else -1

    @property
    def code_weights(self) -> np.ndarray:
        """Number of rows with each code that can be sampled, (size,); 0 for the rare values."""
        return np.where(np.arange(self.size) == self.suppressed, 0, self.counts)

    @property
    def examples(self) -> pd.Series:
        """Values in the dtype of the column."""
        return self.values

    @property
    def categories(self) -> list[Any]:
        """The values as Python objects, None for the missing one."""
        return [*self.keys, *([None] if self.missing else [])]

    @property
    def suppressed(self) -> int | None:
        """The code that no sampled row has."""
        return self.size - 1 if self.rare else None

    @cached_property
    def keys(self) -> list[Any]:
        """The values as Python's objects, without the missing one."""
        present = self.values.iloc[: len(self.values) - self.missing]
        return present.astype(object).tolist()

    @cached_property
    def codes(self) -> dict[Any, int]:
        return {key: code for code, key in enumerate(self.keys)}

    def encode(
        self, column: pd.Series, label: str, rng: np.random.Generator | None = None
    ) -> tuple[None, np.ndarray]:
        """Encode each value as its code, (n,) int32; there are no values within the codes.

        Raises
        ------
        ValueError
            If a value did not occur in ``fit``.
        """
        codes, keys = factorize_values(column, label)
        default_code = -1 if self.suppressed is None else self.suppressed
        table = np.empty(len(keys) + 1, dtype=np.int32)
        table[:-1] = [self.codes.get(key, default_code) for key in keys]
        table[-1] = len(self.values) - 1 if self.missing else default_code  # gathered by code -1
        encoded = table[codes]
        unseen = encoded < 0
        if unseen.any():
            value = column.iloc[int(unseen.argmax())]
            raise ValueError(f"{label} has the value {value!r}, which fit has not seen")
        return None, encoded

    def encode_known(
        self, cells: pd.Series, label: str, rng: np.random.Generator
    ) -> tuple[None, np.ndarray]:
        """Encode cells that are not missing; the code is -1 for a value that has none."""
        codes, keys = factorize_values(cells, label)
        code_of_key = np.array([self.codes.get(key, -1) for key in keys], dtype=np.int64)
        return None, code_of_key[codes]

    def refuse_other_values(self, column: pd.Series, label: str) -> None:
        """Raise ValueError if a column has neither fitted values nor fitted types."""
        _, keys = factorize_values(column.dropna(), label)
        known_types, key_types = ({type(key) for key in some} for some in (self.keys, keys))
        if not keys or not known_types or known_types & key_types:
            return
        if not any(key in self.codes for key in keys):
            raise ValueError(
                f"{label} has values such as {keys[0]!r}, but fit has seen {self.keys[0]!r}; "
                "convert it with astype"
            )

    def decode(self, codes: np.ndarray, values: Any = None, n_before: int = 0) -> pd.Series:
        """Decode each code to its value, in the dtype of the fitted column.

        Raises
        ------
        ValueError
            If a code is that of the rare values.
        """
        fitted = self.values
        if self.rare and (codes == self.suppressed).any():
            raise ValueError(
                f"the code {self.suppressed} is that of all values that fewer rows than "
                "min_frequency had, which are not stored"
            )
        # Series.take, and a Series of an object array without its dtype, look at every value first
        array: Any = fitted.to_numpy() if isinstance(fitted.dtype, np.dtype) else fitted.array
        return pd.Series(array.take(codes), dtype=fitted.dtype, name=fitted.name, copy=False)

    def code(self, value: Any, label: str) -> int:
        """Return the code of one value; None or NaN for missing.

        Raises
        ------
        ValueError
            If the value did not occur in ``fit``; the message lists some that did.
        """
        if _is_na(value):
            if not self.missing:
                raise ValueError(self._lacks(label, "missing value"))
            return len(self.values) - 1
        if isinstance(value, np.datetime64 | np.timedelta64):
            value = pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
        elif isinstance(value, np.generic):
            value = value.item()
        code = self.codes.get(value) if isinstance(value, Hashable) else None
        if code is None:
            raise ValueError(self._lacks(label, f"value {value!r}"))
        return code

    def _lacks(self, label: str, what: str) -> str:
        if not self.rare:
            return f"{label} had no {what} in fit; it has {self._examples()}"
        return (
            f"{label} has no {what} in any row that is made: fewer rows than min_frequency had it "
            "in fit, or with differential privacy it was neither given nor learned; it has "
            f"{self._examples()}"
        )

    def _examples(self) -> str:
        return list_names(self.keys) or "none at all"


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """A fitted continuous column: the format of its numbers, and their modes.

    Missing values have their own code, the last, and the value 0. If too few values are missing
    (``rare``), no sampled row has this code. ``rounding_steps`` are those of sampled numbers.
    """

    format: Format
    mixture: Mixture
    missing: bool
    rare: bool = False
    rounding_steps: RoundingSteps | None = None
    is_continuous: ClassVar[Literal[True]] = True
    is_identifier: ClassVar[Literal[False]] = False
    categories: ClassVar[None] = None

    @property
    def size(self) -> int:
        return len(self.mixture.weights) + self.missing

    @property
    def missing_code(self) -> int:
        """The code of missing values, or -1."""
        return len(self.mixture.weights) if self.missing else -1

    @property
    def code_weights(self) -> np.ndarray:
        """Shares of the modes, (n_modes,)."""
        return self.mixture.weights

    @property
    def examples(self) -> pd.Series:
        """Values in the dtype of the column."""
        return self.bounds

    @property
    def suppressed(self) -> int | None:
        """The code that no sampled row has."""
        return self.size - 1 if self.rare else None

    @cached_property
    def bounds(self) -> pd.Series:
        """The least and the greatest number, as the fitted column has them."""
        return self.format.write(np.array([0.0, np.inf]), np.zeros(2, dtype=bool))

    def code(self, value: Any, label: str) -> int:
        """Raise an error, because numbers have no codes."""
        raise ValueError(
            f"{label} is continuous, so that {value!r} has no code; use a range, or list the "
            "column in discrete_columns"
        )

    def encode(
        self, column: pd.Series, label: str, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode numbers as values, (n,) float32, and modes drawn from their posterior, (n,) int32.

        Raises
        ------
        ValueError
            If a number is infinite, has another kind than in ``fit``, or is missing although none
            was in ``fit``.
        """
        x, missing = self.format.read(_with_dtype(column, self.format.dtype, label), label)
        if missing.any() and not self.missing:
            raise ValueError(f"{label} has missing values, but fit has seen none there")
        uniforms = rng.random(len(x))
        x = np.where(missing, 0.0, x)
        codes = self.mixture.draw(x, uniforms)
        # not at the ends of a point's step, which single precision might cross
        values = self.mixture.scale(x, codes, 0.01 + 0.98 * uniforms).astype(np.float32)
        values[missing] = 0.0
        codes[missing] = len(self.mixture.weights)
        return values, codes

    def encode_known(
        self, cells: pd.Series, label: str, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode cells that are not missing; the code is -1 for a number that has none."""
        cells = cells.infer_objects()  # without missing cells, objects can be integers
        dtype: Any = cells.dtype
        inside = self._are_within_bounds(cells, label)
        if self.format.is_integer and dtype.kind == "f":
            inside &= cells == cells.round()
        is_known = inside.to_numpy(dtype=bool)
        cells = cells[is_known]
        if dtype.kind in "iuf":
            if self.format.dtype.kind == "O":
                cells = cells.astype("int64" if self.format.is_integer else "float64")
            cells = cells.astype(self.format.dtype)
        values = np.zeros(len(is_known), dtype=np.float32)
        codes = np.full(len(is_known), -1, dtype=np.int64)
        if len(cells):
            values[is_known], codes[is_known] = self.encode(cells, label, rng)
        return values, codes

    def refuse_other_values(self, column: pd.Series, label: str) -> None:
        """Raise ValueError if a column has values of another kind than the fitted one."""
        present = column.dropna()
        if len(present):
            self._are_within_bounds(present.infer_objects(), label)

    def _are_within_bounds(self, cells: pd.Series, label: str) -> pd.Series:
        """Compare cells with the bounds; raises ValueError if they are of another kind."""
        dtype: Any = cells.dtype
        if getattr(dtype, "kind", "O") == "f":
            refuse_infinite(cells, label)
        low, high = self.bounds
        try:
            if types.is_bool_dtype(dtype):
                raise TypeError
            return cells.ge(low) & cells.le(high)
        except TypeError:
            raise ValueError(
                f"{label} has the dtype {dtype}, but fit has seen {self.format.dtype}; convert it "
                "with astype"
            ) from None

    def decode(self, codes: np.ndarray, values: Any, n_before: int = 0) -> pd.Series:
        """Decode values within modes to numbers in the format of the fitted column."""
        missing = codes == len(self.mixture.weights)
        modes = np.where(missing, 0, codes)
        x, format = self.mixture.unscale(values, modes), self.format
        if self.rounding_steps is None or format.decimals is not None:
            return format.write(x, missing)
        low, high = map(format.numbers, self.mixture.ends(modes))
        return format.hold(self.rounding_steps.restore(format.numbers(x), high - low), missing)

    def round_to_steps(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        uniforms: np.ndarray,
        within: Sequence[float] = (-np.inf, np.inf),
    ) -> np.ndarray:
        """Round values within modes, (n,) float32, to as many decimals as the fitted numbers have.

        ``uniforms``, (n,) in [0, 1), draw the number of decimals of each. Numbers in the range
        ``within``, in the units of `read`, stay in it.
        """
        if self.rounding_steps is None:
            return values
        rounded = values.copy()
        rows = np.flatnonzero(codes < len(self.mixture.weights))
        x = self.mixture.unscale(values[rows], codes[rows])
        is_sampled = ~self.mixture.is_kept(x)
        rows, x = rows[is_sampled], x[is_sampled]
        modes = codes[rows]
        low, high = self.mixture.ends(modes)
        numbers, lowest, highest = map(self.format.numbers, (x, low, high))
        first, last = self.format.numbers(np.array(within))
        inside = (first <= numbers) & (numbers <= last)
        lowest = np.where(inside, np.maximum(lowest, first), lowest)
        highest = np.where(inside, np.minimum(highest, last), highest)
        placed = self.format.above(
            self.rounding_steps.put(numbers, uniforms[rows], lowest, highest)
        )
        rounded[rows] = self.mixture.scale(placed, modes)
        return rounded


@dataclass(frozen=True, eq=False)
class IdentifierColumn:
    """A fitted column of identifiers. Only whether a value is missing is learned; none is stored.

    Attributes
    ----------
    dtype : dtype
        Dtype of the column; for a pandas category without the categories.
    made : Identifiers or Fakes
        The new values of sampled rows.
    missing : bool
        Whether missing identifiers have the code 1.
    counts : ndarray of shape (size,), int64
        Number of rows of the fitted table with each code.
    """

    dtype: Any
    made: Identifiers | Fakes
    missing: bool
    counts: np.ndarray
    is_continuous: ClassVar[Literal[False]] = False
    is_identifier: ClassVar[Literal[True]] = True
    suppressed: ClassVar[None] = None
    categories: ClassVar[None] = None

    @property
    def size(self) -> int:
        return 1 + self.missing

    @property
    def missing_code(self) -> int:
        """The code of missing values, or -1."""
        return 1 if self.missing else -1

    @property
    def code_weights(self) -> np.ndarray:
        """Number of rows with each code, (size,)."""
        return self.counts

    @property
    def examples(self) -> pd.Series:
        """Values in the dtype of the column."""
        return self.decode(np.zeros(1, dtype=np.intp))

    def encode(
        self, column: pd.Series, label: str, rng: np.random.Generator | None = None
    ) -> tuple[None, np.ndarray]:
        """Encode identifiers: 1 if missing, else 0, (n,) int32."""
        return None, (column.isna().to_numpy(dtype=bool) & self.missing).astype(np.int32)

    def encode_known(
        self, cells: pd.Series, label: str, rng: np.random.Generator
    ) -> tuple[None, np.ndarray]:
        """Encode cells that are not missing: 0."""
        return None, np.zeros(len(cells), dtype=np.int64)

    def refuse_other_values(self, column: pd.Series, label: str) -> None:
        """Raise ValueError if a number is infinite."""
        if getattr(column.dtype, "kind", "O") == "f":
            refuse_infinite(column, label)

    def decode(self, codes: np.ndarray, values: Any = None, n_before: int = 0) -> pd.Series:
        """Make new identifiers in the format of the fitted column.

        They follow those of the ``n_before`` rows that were made before.
        """
        missing = codes == 1
        new_values = self.made.make(len(codes), n_before)
        if self.made.kind == "integer":
            return from_integers(np.array(new_values, np.uint64), missing, self.dtype)
        text = np.array([*new_values, None], dtype=object)[:-1]  # also of UUIDs
        text[missing] = None
        if isinstance(self.dtype, pd.CategoricalDtype):
            categories = dict.fromkeys(text[~missing])
            return pd.Series(pd.Categorical(text, list(categories), ordered=self.dtype.ordered))
        return pd.Series(text, dtype=self.dtype)

    def make_for_missing(self, column: pd.Series) -> pd.Series:
        """Make new identifiers for the missing cells of a column, (n_missing,)."""
        present, n_missing = column.dropna(), int(column.isna().sum())
        new_values = self.decode(np.zeros(n_missing + present.nunique(), dtype=np.int64))
        return new_values[~new_values.isin(present)][:n_missing]

    def code(self, value: Any, label: str) -> int:
        """Raise an error, because identifiers cannot be conditions."""
        raise ValueError(
            f"{label} holds identifiers, which are not stored and get new values; leave the "
            "condition out"
        )


ModeColumn = CategoryColumn | NumberColumn | IdentifierColumn


def fit_identifiers(
    column: pd.Series, identifiers: Identifiers | Fakes, min_count: int
) -> IdentifierColumn:
    """Remember that a column holds identifiers, and how many are missing."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = pd.CategoricalDtype(dtype.categories[:0], dtype.ordered)
    n_missing = int(column.isna().sum())
    missing = n_missing >= max(1, min_count)
    counts = [len(column) - n_missing, n_missing] if missing else [len(column)]
    return IdentifierColumn(dtype, identifiers, missing, np.array(counts))


def fit_categories(column: pd.Series, label: str, min_count: int = 1) -> CategoryColumn:
    """Learn the distinct values that enough rows have; the order of the rows does not matter."""
    codes, keys = factorize_values(column, label)
    missing = bool((codes < 0).any())
    size = len(keys) + missing
    codes = np.where(codes < 0, size - 1, codes)
    first = np.empty(size, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal ones the last stays: the first row
    counts = np.bincount(codes, minlength=size)
    is_frequent = counts >= min_count
    values = column.iloc[first[is_frequent]].reset_index(drop=True)
    values.attrs = {}  # those of the table, which may be anything
    if min_count > 1 and isinstance(values.dtype, pd.CategoricalDtype):
        values = values.cat.remove_unused_categories()  # the dtype holds the others too
    elif hasattr(getattr(values.dtype, "pyarrow_dtype", None), "index_type"):
        # the dictionary holds the others too
        values = pd.Series(values.tolist(), dtype=values.dtype, name=values.name)
    if is_frequent.all():
        return CategoryColumn(values, missing, counts)
    counts = np.append(counts[is_frequent], counts[~is_frequent].sum())
    return CategoryColumn(values, missing and bool(is_frequent[-1]), counts, rare=True)


def factorize_values(column: pd.Series, label: str) -> tuple[np.ndarray, list[Any]]:
    """Codes of shape (n,), -1 for missing, and the distinct values that they count, in order.

    Values that Python calls equal (1, 1.0 and True) are one.

    Raises TypeError if a value is not hashable; ValueError if a number is infinite.

    >>> factorize_values(pd.Series(["b", None, "a"]), "column 0")
    (array([ 1, -1,  0]), ['a', 'b'])
    """
    codes, values = distinct_values(column, label)
    refuse_infinite([value for value in values if isinstance(value, float)], label)
    if isinstance(column.dtype, pd.CategoricalDtype):  # in its own order
        return codes, values
    order = _value_order(values)
    rank = np.full(len(values) + 1, -1)  # the last is gathered by code -1
    rank[order] = np.arange(len(order))
    return rank[codes], [values[i] for i in order]


def _value_order(values: Sequence[Any]) -> list[int]:
    positions = range(len(values))
    try:
        return sorted(positions, key=values.__getitem__)
    except TypeError:  # of kinds that do not compare
        return sorted(positions, key=lambda i: _value_rank(values[i]))


def _value_rank(value: Any) -> tuple[str, Any, str]:
    """Numbers by value, whichever of 1, 1.0 and True it is; then the rest, kind by kind."""
    if isinstance(value, int | float | decimal.Decimal):
        return "", value, ""
    return type(value).__name__, 0, repr(value)


def _is_na(value: Any) -> bool:
    return bool(types.is_scalar(value) and pd.isna(value))


def _with_dtype(column: pd.Series, dtype: Any, label: str) -> pd.Series:
    """A later column brought to the dtype of the fitted one."""
    column_dtype: Any = column.dtype
    if column_dtype == dtype:
        return column
    kinds = (column_dtype.kind, dtype.kind)
    same = kinds[0] == kinds[1] or (kinds[0] in "iu" and kinds[1] in "iuf")
    if not same or "O" in kinds:
        raise ValueError(
            f"{label} has the dtype {column_dtype}, but fit has seen {dtype}; convert it with "
            "astype"
        )
    return column.astype(dtype)


# ---- Tables that come back as they were: read by columns, and put together again -----------------

_IDENTIFIER = 40  # characters of those that are made, at most


@dataclass(frozen=True, eq=False)
class TableSchema:
    """The column names of a table, and the dtype if it is an array.

    Attributes
    ----------
    names : Index
        Names of the columns; for an array their positions.
    array_dtype : dtype or None
        Dtype of the array; None for a DataFrame.
    """

    names: pd.Index
    array_dtype: np.dtype | None

    @classmethod
    def of(cls, table: Table) -> TableSchema:
        """Return the schema of a table; raises ValueError if it is empty."""
        table.refuse_empty()
        if table.names is None:
            return cls(pd.RangeIndex(table.n_columns), table.data.dtype)
        return cls(table.data.columns, None)

    @cached_property
    def keys(self) -> list[Any]:
        """The names as Python's objects."""
        return self.names.tolist()

    def label(self, j: int) -> str:
        """Return the name of column j for error messages."""
        return f"column {self.keys[j]!r}"

    def position(self, name: Any) -> int:
        """Return the position of a column.

        Raises ValueError if there is no such column; the message has similar names.
        """
        position = {key: j for j, key in enumerate(self.keys)}
        try:
            return position[name]
        except (KeyError, TypeError):
            raise ValueError(no_column(name, self.keys)) from None

    def wide_enough(self, generated: Collection[Any]) -> TableSchema:
        """Return the schema with text in arrays long enough for new identifiers."""
        dtype = self.array_dtype
        if dtype is None or dtype.kind != "U" or not generated:
            return self
        return TableSchema(
            self.names,
            max(dtype, np.dtype(f"U{_IDENTIFIER}"), key=lambda name_dtype: name_dtype.itemsize),
        )

    def match(self, table: Table) -> list[pd.Series]:
        """Return the columns of another table in the order of the fitted table.

        Raises ValueError if the columns are not those of the fitted table.
        """
        if (self.array_dtype is None) != (table.names is not None):
            fitted = "a DataFrame" if self.array_dtype is None else "an array"
            raise ValueError(
                f"the encoder was fitted on {fitted}, got a {type(table.data).__name__}"
            )
        names = TableSchema.of(table).keys
        position = {name: j for j, name in enumerate(names)}
        absent = [name for name in self.keys if name not in position]
        expected = set(self.keys)
        added = [name for name in names if name not in expected]
        if absent or added:
            raise ValueError(
                "the columns are not those of the fitted table: "
                + "; ".join(
                    f"{what} {these}"
                    for what, these in (("missing are", absent), ("unknown are", added))
                    if these
                )
            )
        return [table.column(position[name]) for name in self.keys]

    def assemble(self, columns: Sequence[pd.Series], n_rows: int) -> Any:
        """Join columns to a DataFrame, or to an array if the fitted table was one."""
        if self.array_dtype is None:
            index = pd.RangeIndex(n_rows)
            frame = pd.DataFrame(dict(enumerate(columns)), index=index)
            frame.columns = self.names
            return frame
        array = np.empty((n_rows, len(columns)), dtype=self.array_dtype)
        for j, column in enumerate(columns):
            array[:, j] = column.to_numpy()
        return array


def discrete_mask(
    discrete_columns: Any, schema: TableSchema, parameter: str = "discrete_columns"
) -> np.ndarray | None:
    """The parameter `discrete_columns` as a mask, (n_columns,) of bool; None for "auto".

    >>> discrete_mask(["b"], TableSchema(pd.Index(["a", "b"]), None))
    array([False,  True])
    """
    if isinstance(discrete_columns, str) and discrete_columns == "auto":
        return None
    if isinstance(discrete_columns, str) or not isinstance(discrete_columns, Iterable):
        raise ValueError(
            f"{parameter} must be 'auto' or a list of columns, such as "
            f"[{discrete_columns!r}]; got {discrete_columns!r}"
        )
    chosen, names = list(discrete_columns), schema.keys if schema.array_dtype is None else None
    for j in chosen if names is None else ():
        if not isinstance(j, int | np.integer) or isinstance(j, bool):
            raise ValueError(
                f"{parameter} of an array are positions, got {j!r}; pass integers, or a DataFrame"
            )
    return chosen_mask(chosen, parameter, names, len(schema.names))


# ---- The columns that are numbers, categories or identifiers to a ModeEncoder --------------------


def choose_identifiers(
    listed: Any,
    schema: TableSchema,
    columns: Sequence[pd.Series],
    min_count: int,
    fakes: Mapping[int, Fakes],
) -> dict[int, Identifiers | Fakes]:
    """Choose the columns of identifiers, and what replaces them, by position.

    ``fakes`` are what replaces some columns in any case.

    Raises ValueError if a column is listed that there is not, or that none can be made for.
    """
    mask = discrete_mask(() if listed is None else listed, schema, "identifiers")
    if mask is not None:
        chosen = [j for j in np.flatnonzero(mask).tolist() if j not in fakes]
        return {**fakes, **{j: new_identifiers(columns[j], schema.label(j)) for j in chosen}}
    chosen_identifiers: dict[int, Identifiers | Fakes] = {**fakes}
    for j, column in enumerate(columns):
        identifiers = find_identifiers(column, min_frequency=min_count)
        if identifiers is not None:
            chosen_identifiers.setdefault(j, identifiers)
    return chosen_identifiers


def choose_formats(
    discrete_columns: Any,
    schema: TableSchema,
    columns: Sequence[pd.Series],
    min_count: int,
    identifiers: Container[int],
) -> list[Format | None]:
    """Choose the number format of each continuous column, None for those that become categories.

    Raises ValueError if a column is not of numbers, and not listed either.
    """
    mask = discrete_mask(discrete_columns, schema)
    is_frame = schema.array_dtype is None
    formats: list[Format | None] = []
    unlisted = []
    for j, column in enumerate(columns):
        by_dtype = mask is None and is_frame and column.dtype == object
        listed = j in identifiers or (mask is not None and bool(mask[j]))
        format = None if listed or by_dtype else fit_format(column, schema.label(j), min_count)
        few = column.notna().sum() < min_count
        is_constant = format is not None and format.low == format.high and not column.hasnans
        if format is not None and (few or is_constant):
            format = None
        elif format is None and mask is not None and not listed and not _is_free(column):
            unlisted.append(schema.keys[j])
        formats.append(format)
    if unlisted:
        raise ValueError(
            f"the columns {unlisted} do not hold numbers or dates and are not in "
            "discrete_columns; add them there, or use discrete_columns='auto'"
        )
    return formats


def _is_free(column: pd.Series) -> bool:
    """Tell whether a column is discrete without being listed: of truth values, or without any."""
    is_bool = column_kind(column, of_categories=True) == ColumnKind.BOOL
    return is_bool or bool(column.isna().all())
