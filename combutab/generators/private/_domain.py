"""Public facts about the columns of a table: bounds, categories and bins, and codes by these."""

from __future__ import annotations

import datetime
import math
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.text import no_column
from combutab.generators.private._mechanisms import (
    Ledger,
    exact_counts,
    release_categories,
    release_counts,
)
from combutab.preprocessing import (
    CategoryColumn,
    ColumnForm,
    ColumnKind,
    IdentifierColumn,
    NumberColumn,
    TableSchema,
    dtype_kind,
    given_categories,
    given_identifiers,
    given_numbers,
    join_bins,
    may_miss,
    merge_bins,
    occupied,
)

_FINE = 256  # bins that a column of numbers is measured in first
_LEAST_POWER, _MOST_POWER = -24, 60  # of two, of bounds that are learned
_MOST_DECIMALS = 22  # the powers of ten that floats are exact up to
SURE = 4.0  # standard deviations of the noise that counts lie above it, to be taken for some
_SURE_OF_BOUNDS = 6.0  # one false count of 172 would widen the bounds without limit
_FEW = 0.05  # share of the rows outside of learned bounds that is worth no warning

_DATES = (datetime.date, np.datetime64)

Coder = CategoryColumn | NumberColumn | IdentifierColumn


@dataclass(frozen=True)
class PublicFacts:
    """Facts about columns that the user gives: by name, or by position in an array."""

    bounds: Mapping[Any, Sequence[Any]]
    categories: Mapping[Any, Sequence[Any]]
    decimals: Mapping[Any, int]
    identifiers: Sequence[Any]
    discrete: Sequence[Any]

    def check(self, schema: TableSchema) -> None:
        """Refuse columns that the table lacks, or that are said to be two things."""
        names_by_parameter = {
            "bounds": self.bounds,
            "categories": self.categories,
            "decimals": self.decimals,
            "identifiers": self.identifiers,
            "discrete_columns": self.discrete,
        }
        for what, names in names_by_parameter.items():
            for name in names:
                if name not in schema.keys:
                    raise ValueError(f"{what}: {no_column(name, schema.keys)}")
        for name in self.bounds:
            for what in ("categories", "identifiers", "discrete_columns"):
                if name in names_by_parameter[what]:
                    raise ValueError(f"{name!r} is in bounds and in {what}; leave it out of one")
        for name, decimals in self.decimals.items():
            if not isinstance(decimals, Integral) or abs(decimals) > _MOST_DECIMALS:
                raise ValueError(
                    f"decimals of {name!r} must be a whole number from "
                    f"{-_MOST_DECIMALS} to {_MOST_DECIMALS}, got {decimals!r}"
                )


def parse_dates(
    schema: TableSchema, columns: Sequence[pd.Series], facts: PublicFacts
) -> tuple[list[pd.Series], list[ColumnForm]]:
    """Convert columns of dates as Python's objects that have bounds; returns their forms, too.

    The dtype follows from the bounds only: microseconds, in UTC if the bounds have a time zone.
    """
    parsed, forms = list(columns), []
    for j, name in enumerate(schema.keys):
        edges = facts.bounds.get(name, ())
        has_dates = types.is_list_like(edges) and any(isinstance(e, datetime.date) for e in edges)
        if columns[j].dtype == object and has_dates:
            has_times = any(isinstance(edge, datetime.datetime) for edge in edges)
            form, label = ColumnForm(j, "datetime" if has_times else "date"), schema.label(j)
            zone = _check_dates(columns[j], label, edges)
            dtype: Any = f"datetime64[us{zone}]"
            parsed[j] = form.read(columns[j], label).astype(dtype)
            forms.append(form)
    return parsed, forms


def _check_dates(column: pd.Series, label: str, edges: Sequence[Any]) -> str:
    """Refuse values that are no dates, or unlike the bounds; returns the zone of the dtype."""
    has_zone = any(getattr(edge, "tzinfo", None) is not None for edge in edges)
    for row, value in enumerate(column):
        if isinstance(value, _DATES):
            if has_zone != (getattr(value, "tzinfo", None) is not None):
                raise ValueError(
                    f"{label} and its bounds must all have a time zone, or all have none, but "
                    f"{value!r} (data row {row + 1:,}) does not match the bounds"
                )
        elif not pd.isna(value):
            raise ValueError(
                f"{label} has bounds that are dates, but {value!r} (data row {row + 1:,}) is no "
                "date; correct the value, or convert the column with pandas.to_datetime"
            )
    return ", UTC" if has_zone else ""


def plan_columns(
    schema: TableSchema, columns: Sequence[pd.Series], facts: PublicFacts, n_fine: int = _FINE
) -> list[Coder | None]:
    """The coder of each column, as far as it is public; None where it has to be learned.

    Only names and dtypes are looked at.
    """
    facts.check(schema)
    return [
        _public_coder(schema.label(j), name, columns[j].dtype, facts, n_fine)
        for j, name in enumerate(schema.keys)
    ]


def _public_coder(
    label: str, name: Any, dtype: Any, facts: PublicFacts, n_fine: int
) -> Coder | None:
    if name in facts.identifiers:
        return given_identifiers(dtype)
    if name in facts.bounds:
        edges = facts.bounds[name]
        if isinstance(edges, str) or not types.is_list_like(edges) or len(edges) < 2:
            raise ValueError(
                f"bounds of {name!r} must be (low, high), or the edges of bins, got {edges!r}"
            )
        if isinstance(dtype, pd.CategoricalDtype):
            raise ValueError(
                f"{label} is categorical, which has no bounds; give its categories, or convert it "
                "to numbers"
            )
        if types.is_string_dtype(dtype) and not types.is_object_dtype(dtype):
            raise ValueError(
                f"{label} has text, which has no bounds; give its categories, or convert it to "
                "numbers"
            )
        if _is_time(dtype) and any(isinstance(edge, Real) for edge in edges):
            raise ValueError(
                f"bounds of {name!r} must be dates or durations as the column has, got {edges!r}"
            )
        return given_numbers(dtype, label, list(edges), n_fine, facts.decimals.get(name))
    if name in facts.categories:
        values = facts.categories[name]
        if isinstance(values, str) or not types.is_list_like(values) or not len(values):
            raise ValueError(f"categories of {name!r} must be a list of values, got {values!r}")
        return given_categories(dtype, label, list(values), True)
    if isinstance(dtype, pd.CategoricalDtype) and len(dtype.categories):
        return given_categories(dtype, label, None, False)
    if types.is_bool_dtype(dtype):
        return given_categories(dtype, label, None, False)
    return None


def refuse_unlearnable(
    schema: TableSchema,
    columns: Sequence[pd.Series],
    coders: Sequence[Coder | None],
    facts: PublicFacts,
    learn: bool,
) -> None:
    """Refuse columns whose bounds or categories are neither public nor learned."""
    unknown = [j for j, coder in enumerate(coders) if coder is None]
    timed = [j for j in unknown if _is_time(columns[j].dtype)]
    timed += [
        j
        for j in unknown
        if columns[j].dtype == object
        and schema.keys[j] not in facts.discrete
        and any(isinstance(value, _DATES) for value in columns[j])
    ]
    if timed:
        names = [schema.keys[j] for j in timed]
        raise ValueError(
            f"the bounds of dates and durations are not learned: give bounds of {names}, such as "
            "bounds={column: (datetime.date(2000, 1, 1), datetime.date(2030, 1, 1))}, or leave "
            "them out"
        )
    if unknown and not learn:
        names = [schema.keys[j] for j in unknown]
        raise ValueError(
            f"{names} have neither bounds nor categories, and learn_domain=0 leaves no budget to "
            "learn them: give bounds={column: (low, high)} or categories={column: [...]} from "
            "what is public, or set learn_domain=0.1"
        )


def refuse_unreadable(
    schema: TableSchema,
    columns: Sequence[pd.Series],
    coders: Sequence[Coder | None],
    facts: PublicFacts,
) -> None:
    """Refuse values that have no code, or that nothing can be learned of, before any is counted."""
    for j, (coder, column) in enumerate(zip(coders, columns, strict=True)):
        label = schema.label(j)
        if coder is not None and coder.is_continuous and types.is_object_dtype(column.dtype):
            text = next((value for value in column if isinstance(value, str)), None)
            if text is not None:
                raise ValueError(
                    f"{label} has bounds, but holds text such as {text!r}; convert it to numbers, "
                    "or give its categories"
                )
        if coder is not None:
            try:
                row_codes(coder, column, label)
            except TypeError as error:
                raise TypeError(
                    f"{label} holds values that cannot be read ({error}); convert it to numbers, "
                    "dates or text"
                ) from error
        elif is_discrete(column, schema.keys[j], facts):
            try:
                set(column.dropna().astype(object))
            except TypeError as error:
                raise TypeError(f"{label} holds values that are not hashable; convert") from error
        elif np.isinf(_numbers(column)).any():
            raise ValueError(
                f"{label} has infinite values; replace them by missing ones or by a bound"
            )


def _numbers(column: pd.Series) -> np.ndarray:
    return pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)


def _is_time(dtype: Any) -> bool:
    return types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype)


def is_discrete(column: pd.Series, name: Any, facts: PublicFacts) -> bool:
    """Tell whether a column's categories are learned, not its bounds."""
    if name in facts.discrete:
        return True
    return dtype_kind(column.dtype) != ColumnKind.NUMBER


def learn_bounds(
    column: pd.Series,
    label: str,
    name: Any,
    rho: float,
    ledger: Ledger,
    max_rows: int,
    n_rows: tuple[float, float],
) -> tuple[Any, Any]:
    """Learn bounds of a column of numbers: powers of two, between which nearly all numbers are.

    The numbers are counted between powers of two, with noise. ``n_rows`` is the noisy number of
    rows and the standard deviation of its noise. A warning tells how many numbers lie outside, if
    that is more than noise.
    """
    x = _numbers(column)
    powers = 2.0 ** np.arange(_LEAST_POWER, _MOST_POWER + 1)
    edges = np.r_[-powers[::-1], 0.0, powers]
    codes = np.searchsorted(edges, x, side="right")  # the last is of missing ones
    codes = np.where(np.isnan(x), len(edges) + 1, codes)
    noisy, scale = release_counts(
        exact_counts(codes[:, None], [len(edges) + 2]),
        rho,
        ledger,
        max_rows=max_rows,
        step="bounds",
        columns=[name],
    )
    cells = occupied(noisy[:-1], _SURE_OF_BOUNDS * scale)
    sure = cells is not None
    if cells is None:
        largest = int(noisy[:-1].argmax())
        cells = slice(largest, largest + 1)
    first, last = np.clip([cells.start, cells.stop - 1], 1, len(edges) - 1)
    low, high = float(edges[first - 1]), float(edges[last])
    dtype: Any = column.dtype
    if types.is_integer_dtype(dtype):
        limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
        low, high = max(int(np.floor(low)), limits.min), min(int(np.ceil(high)), limits.max)
        low, high = int(low), int(max(high, low + 1))
    outside = n_rows[0] - noisy[cells].sum() - noisy[-1]
    noise = math.sqrt(n_rows[1] ** 2 + scale**2 * (cells.stop - cells.start + 1))
    if not sure:
        warnings.warn(
            f"the noise hides all numbers of {label}: ({low:g}, {high:g}), its bounds learned "
            "within the budget, are a guess; give its bounds, or leave the column out",
            stacklevel=5,
        )
    elif outside > max(SURE * noise, _FEW * n_rows[0]):
        warnings.warn(
            f"about {outside / n_rows[0]:.0%} of the rows have numbers of {label} outside of "
            f"({low:g}, {high:g}), its bounds learned within the budget, and are clipped to them: "
            "give its bounds",
            stacklevel=5,
        )
    return low, high


def learn_categories(
    column: pd.Series,
    label: str,
    name: Any,
    rho: float,
    delta: float,
    ledger: Ledger,
    max_rows: int,
) -> CategoryColumn:
    """Learn a column's frequent categories; the others are one code together, made in no row.

    Values that are equal but look different, such as 1, 1.0 and True, are counted apart, so that
    no single row decides which of them sampled rows show.
    """
    spellings = Counter(_Spelling.of(value) for value in column.dropna().astype(object))
    counts: dict[Hashable, int] = dict(sorted(spellings.items()))
    released = release_categories(
        counts, rho, delta, ledger, max_rows=max_rows, step="categories", columns=[name]
    )
    # of equal values a dict keeps the first spelling
    categories = list(dict.fromkeys(spelling.value for spelling in sorted(released)))
    with suppress(TypeError):  # of kinds that do not compare
        categories = sorted(categories)
    if not categories:
        problem = f"no value of {label} has enough rows to be learned within the budget"
        fix = "give its categories, or leave the column out"
        if not may_miss(column.dtype):
            raise ValueError(f"{problem}, and {column.dtype} has no missing value; {fix}")
        warnings.warn(f"{problem}: all values will be missing; {fix}", stacklevel=5)
    return given_categories(column.dtype, label, categories, True)


def _plain_value(value: Any) -> Any:
    """A value as Python's or pandas' own, in nanoseconds if it is a date or duration of pandas."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    elif isinstance(value, np.timedelta64):
        value = pd.Timedelta(value)
    elif isinstance(value, np.generic):
        return value.item()
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        with suppress(OverflowError, pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
            return value.as_unit("ns")
        return value.as_unit("s")
    return value


@dataclass(frozen=True, order=True)
class _Spelling:
    """A value with all that can be seen of it: its type, its text and its time zone."""

    type_name: str
    text: str
    zone: str
    value: Any = field(compare=False)

    @classmethod
    def of(cls, value: Any) -> _Spelling:
        value = _plain_value(value)
        text = value if isinstance(value, str) else repr(value)
        return cls(type(value).__name__, text, repr(getattr(value, "tzinfo", None)), value)


def row_codes(coder: Coder, column: pd.Series, label: str) -> np.ndarray:
    """The code of each row, (n,), which depends on this row and public facts only."""
    return coder.encode(column, label, np.random.default_rng(0))[1]  # nothing is drawn


def finish_column(
    coder: Coder, counts: np.ndarray, scale: float, n_bins: int, fixed: bool
) -> tuple[Coder, np.ndarray]:
    """The coder that rows are made with, and its code of each of the first one's.

    ``counts`` are noisy. Light bins are joined, and a missing value whose count is no more than
    noise is made in no row. ``fixed`` bins are kept.
    """
    codes = np.arange(len(counts))
    if coder.is_identifier:
        return coder, codes
    noise = SURE * scale
    if coder.is_continuous:
        n = len(coder.mixture.weights)
        weights = np.maximum(counts[:n], 0)
        # the count of a joined bin must exceed the noise of its parts
        max_bins = max(2, int(weights.sum() / max(noise, 1e-9)))
        groups = codes[:n]
        if not fixed:
            groups = merge_bins(coder, counts[:n], min(n_bins, max_bins), noise)
        group_counts = np.maximum(np.bincount(groups, weights), 1.0)
        is_rare = coder.missing and counts[n] <= noise
        missing_code = [int(groups.max()) + 1] * coder.missing
        joined = replace(join_bins(coder, groups, group_counts), rare=bool(is_rare))
        return joined, np.r_[groups, missing_code].astype(np.int64)
    n, n_keys = len(coder.values), len(coder.keys)
    int_counts = np.maximum(np.rint(counts), 1).astype(np.int64)
    if coder.missing and counts[n - 1] <= noise and n_keys:  # joins the codes of no row
        values = coder.values.iloc[:n_keys].reset_index(drop=True)
        other_count = max(1, int(int_counts[n_keys:].sum()))
        counts_by_code = np.r_[int_counts[:n_keys], other_count]
        return CategoryColumn(values, False, counts_by_code, rare=True), np.minimum(codes, n_keys)
    return replace(coder, counts=int_counts), codes
