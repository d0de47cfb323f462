"""Constraints that all rows of a table meet, found by looking for them."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.generators._relations import Columns
from combutab.generators.constraints import (
    Constraint,
    FixedCombinations,
    Formula,
    Inequality,
    Null,
    OneOf,
    Sum,
    Unique,
)
from combutab.generators.expressions import as_operand, count_decimals, equal_numbers
from combutab.preprocessing import Table, find_identifiers

_MIN_BROKEN = 20  # rows that would break a constraint, were its columns independent
_MAX_COLUMNS = 100  # of numbers whose sums and products are looked through
_SAMPLE = 10_000  # rows that chance is estimated by
_PROBES = 16  # rows by which most sums are ruled out
_MIN_VALUES = 10  # of a column that is computed: few would agree by chance
_FINE = 20  # times that a column's spread exceeds what its rounding leaves open
_MAX_VALUES = 20  # of a column that says where another is missing
_MIN_ROWS = 5  # with a value that a constraint names, as by the default of min_frequency
_DAY = pd.Timedelta(1, "D")


class Suggestions(list[Constraint]):
    """List of suggested constraints with their support, for ``constraints`` of a generator.

    Attributes
    ----------
    support : list of int
        Number of rows that support each constraint: rows without a missing cell in its columns; for
        `Null` rows that meet its condition.
    """

    def __init__(self, constraints: Iterable[Constraint] = (), support: Iterable[int] = ()) -> None:
        super().__init__(constraints)
        self.support = list(support)

    def __repr__(self) -> str:
        if not self:
            return "[]"
        width = max(len(f"{n:,}") for n in [*self.support, 10**4])
        lines = [f"{'support':>{width}}  constraint"]
        pairs = zip(self.support, self, strict=False)
        lines += [f"{n:>{max(width, 7)},}  {constraint!r}" for n, constraint in pairs]
        return "\n".join(lines)


def suggest_constraints(X: Any, *, min_support: int = 30) -> Suggestions:
    """Find constraints that all rows of a table meet.

    Constraints that are likely by chance are left out, such as inequalities of columns whose ranges
    do not overlap, and combinations of values if all expected combinations occur. Check the
    suggestions: a constraint that holds in all rows of a table need not be a rule.

    Parameters
    ----------
    X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
    min_support : int, default=30
        Minimum number of rows that support a constraint.

    Returns
    -------
    Suggestions
        A list of `Inequality`, `Sum`, `Formula` (products of two columns, days between dates),
        `FixedCombinations`, `OneOf`, `Null` and `Unique` (of two columns). It prints as a table
        with the support.

    Raises
    ------
    ValueError
        If X is not a table, or ``min_support`` is less than 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"net": rng.integers(1, 500, 200), "tax": rng.integers(1, 90, 200)})
    >>> table["total"] = table["net"] + table["tax"]
    >>> suggest_constraints(table)
    support  constraint
        200  Sum(['net', 'tax'], 'total')
    """
    if min_support < 1:
        raise ValueError(f"min_support must be at least 1, got {min_support}")
    columns = Table(X).columns_by_name()
    columns = {
        name: column
        for name, column in columns.items()
        if column.notna().any() and find_identifiers(column.rename(name)) is None
    }
    candidates: dict[Constraint, int] = {}
    finder = _Finder(columns, min_support)
    for kind in (finder.sums, finder.formulas, finder.inequalities, finder.combinations):
        for constraint, n_rows in kind(list(candidates)):
            candidates[constraint] = n_rows
    for kind in (finder.one_hot, finder.nulls, finder.unique):
        for constraint, n_rows in kind(list(candidates)):
            candidates[constraint] = n_rows
    all_columns = Table(X).columns_by_name()
    valid = {c: n for c, n in candidates.items() if c.holds(all_columns).all()}
    return Suggestions(valid, valid.values())


class _Finder:
    """Finds constraints on the columns of a table; each method gives constraints and support."""

    def __init__(self, columns: Columns, min_support: int) -> None:
        self.columns, self.min_support = columns, min_support
        self._opens: dict[Any, float] = {}
        self.numbers: dict[Any, np.ndarray] = {}
        self.moments: dict[Any, pd.Series] = {}
        self.discrete: dict[Any, np.ndarray] = {}
        for name, column in columns.items():
            if types.is_datetime64_any_dtype(column.dtype):
                self.moments[name] = column
            elif types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype):
                x = as_operand(column).to_numpy(dtype=np.float64)
                if np.isinf(x).any():
                    continue
                self.numbers[name] = x
            else:
                self._add_codes(name, column)

    def _add_codes(self, name: Any, column: pd.Series) -> None:
        try:
            codes, values = pd.factorize(column)
        except TypeError:  # values without an order or a hash
            return
        if len(values) > 1:
            self.discrete[name] = codes

    def sums(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are the sum of two others, or of more."""
        totals = set()
        for total, first, second in self._triples(np.add):
            totals.add(total)
            yield Sum((first, second), total), self._support(total, first, second)
        yield from self._longer_sums(totals)

    def _longer_sums(self, totals: set[Any]) -> Iterator[tuple[Constraint, int]]:
        from scipy.optimize import nnls

        names = [name for name in list(self.numbers)[:_MAX_COLUMNS] if self._varies(name)]
        if len(names) < 4:
            return
        x = np.column_stack([self.numbers[name] for name in names])
        x = x[~np.isnan(x).any(axis=1)][: 10 * _MAX_COLUMNS]
        if len(x) < max(self.min_support, 2 * len(names)):
            return
        scale = np.abs(x).max(axis=0)
        for k, total in enumerate(names):
            if total in totals or not self._is_fine(total):
                continue
            candidates = [j for j in range(len(names)) if j != k]
            weights, _ = nnls(x[:, candidates] / scale[k], x[:, k] / scale[k])
            parts = [names[j] for j, w in zip(candidates, weights, strict=True) if w > 0.5]
            if len(parts) < 3 or np.abs(weights - (weights > 0.5)).max() > 1e-4:
                continue
            expected = np.sum([self.numbers[name] for name in parts], axis=0)
            if self._equals(total, expected) and all(map(self._is_used, parts)):
                yield Sum(tuple(parts), total), self._support(total, *parts)

    def formulas(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are the product of two others, or the days between dates."""
        for target, first, second in self._triples(np.multiply):
            if (text := _expression("{} * {}", first, second)) is not None:
                yield Formula(target, text), self._support(target, first, second)
        for low, high in itertools.permutations(self.moments, 2):
            try:
                spans: Any = self.moments[high] - self.moments[low]
                days = (spans / _DAY).to_numpy(dtype=np.float64)
            except TypeError:  # with and without a time zone
                continue
            for target in self.numbers:
                text = _expression("({} - {}) / '1 day'", high, low)
                if text is None or not self._is_fine(target) or not self._equals(target, days):
                    continue
                yield Formula(target, text), self._support(target, low, high)

    def _triples(self, join: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Columns that two others give together: the one that is computed, and these."""
        names = [name for name in list(self.numbers)[:_MAX_COLUMNS] if self._varies(name)]
        targets = [name for name in names if self._is_fine(name)]
        if len(names) < 3 or not targets:
            return
        x = np.column_stack([self.numbers[name] for name in names])
        complete_rows = np.flatnonzero(~np.isnan(x).any(axis=1))
        probes = complete_rows
        if len(probes):
            probes = complete_rows[np.linspace(0, len(probes) - 1, _PROBES).astype(int)]
        positions = {name: j for j, name in enumerate(names)}
        for i, first in enumerate(names):
            joined = join(x[:, [i]][probes], x[probes, i + 1 :])  # (n_probes, others)
            for target in targets:
                if target == first:
                    continue
                y = x[probes, positions[target]][:, None]
                near = np.abs(joined - y) <= self._open(target) + 1e-9 * np.abs(y)
                for j in np.flatnonzero(near.all(axis=0)):
                    second = names[i + 1 + j]
                    if second == target or not (self._is_used(first) and self._is_used(second)):
                        continue
                    if self._equals(target, join(self.numbers[first], self.numbers[second])):
                        yield target, first, second

    def inequalities(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are less than another in all rows, though their ranges overlap."""
        computed = [set(constraint.find_columns(self.columns)) for constraint in constraints]
        kinds: list[dict[Any, np.ndarray]] = [
            {name: x for name, x in self.numbers.items() if len(np.unique(x)) > 2},
            {
                name: column.to_numpy(dtype="datetime64[ns]")
                for name, column in self.moments.items()
                if getattr(column.dtype, "tz", None) is None
            },
        ]
        for kind in kinds:
            below: dict[tuple[Any, Any], bool] = {}
            for low, high in itertools.permutations(kind, 2):
                if any({low, high} <= names for names in computed):
                    continue
                is_present = ~(pd.isna(kind[low]) | pd.isna(kind[high]))
                x, y = kind[low][is_present], kind[high][is_present]
                if len(x) < self.min_support or not (x <= y).all() or (x == y).all():
                    continue
                if self._n_above(x, y) >= max(_MIN_BROKEN, len(x) / 100):
                    below[low, high] = bool((x < y).all())
            for (low, high), strict in below.items():
                if any((low, mid) in below and (mid, high) in below for mid in kind):
                    continue  # follows from two others
                sign = "<" if strict else "<="
                yield Inequality(low, sign, high), self._support(low, high)

    def _n_above(self, x: np.ndarray, y: np.ndarray) -> float:
        """How many rows would have x above y, were they independent."""
        step = max(1, len(x) // _SAMPLE)
        ordered = np.sort(y[::step])
        return float(np.searchsorted(ordered, x[::step], "left").mean() / len(ordered) * len(x))

    def combinations(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Pairs of discrete columns in which the value of one determines that of the other."""
        decides = set()
        for first, second in itertools.permutations(self.discrete, 2):
            a, b = self.discrete[first], self.discrete[second]
            is_present = (a >= 0) & (b >= 0)
            pairs = pd.MultiIndex.from_arrays([a[is_present], b[is_present]]).unique()
            n_a, n_b = len(np.unique(a[is_present])), len(np.unique(b[is_present]))
            if n_a < 2 or n_b < 2 or len(pairs) > n_a:
                continue
            if is_present.sum() >= max(self.min_support, _MIN_BROKEN + 5 * n_a):
                decides.add((first, second))
        determined = set()
        for first, second in decides:
            between = (mid for mid in self.discrete if mid not in (first, second))
            if any(
                (first, mid) in decides and (mid, second) in decides and (mid, first) not in decides
                for mid in between
            ):
                continue  # follows from two others
            determined.add(frozenset((first, second)))
        names = list(self.discrete)
        for pair in sorted(determined, key=lambda pair: sorted(map(names.index, pair))):
            first, second = sorted(pair, key=names.index)
            yield FixedCombinations(first, second), self._support(first, second)

    def one_hot(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Neighbouring columns in which exactly one is set."""
        masks = []
        for name, column in self.columns.items():
            x = as_operand(column)
            if column.isna().any():
                masks.append((name, column.notna().to_numpy(dtype=bool), "missing"))
            elif types.is_bool_dtype(x.dtype) or (
                types.is_numeric_dtype(x.dtype) and x.isin([0, 1]).all()
            ):
                masks.append((name, x.to_numpy(dtype=bool), "set"))
            else:
                masks.append((name, np.empty(0, dtype=bool), ""))
        start = 0
        while start < len(masks):
            group, covered, kind = [], None, masks[start][2]
            for name, mask, mask_kind in masks[start:]:
                if not kind or mask_kind != kind or mask.sum() < 5:
                    break
                if covered is not None and (covered & mask).any():
                    break
                covered = mask.copy() if covered is None else covered | mask
                group.append(name)
            if len(group) > 1 and covered is not None and covered.all():
                if len(covered) >= self.min_support:
                    yield OneOf(*group), len(covered)
                start += len(group)
            else:
                start += 1

    def nulls(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are missing for some values of another."""
        for name, column in self.columns.items():
            absent = column.isna().to_numpy(dtype=bool)
            if not absent.any() or absent.all():
                continue
            for condition_name, codes in self.discrete.items():
                values = self._values(condition_name, codes)
                if condition_name == name or len(values) > _MAX_VALUES or (codes < 0).any():
                    continue
                rows_of = [codes == c for c in range(len(values))]
                always = [
                    c
                    for c, rows in enumerate(rows_of)
                    if rows.sum() >= _MIN_ROWS and absent[rows].all()
                ]
                rows = np.isin(codes, always)
                support = int(rows.sum())
                chance = support * np.log(max(absent.mean(), 1e-300))  # that all are by chance
                if not always or support < self.min_support or chance > -_MIN_BROKEN:
                    continue
                listed = ", ".join(repr(values[c]) for c in always)
                if (column_name := _expression("{}", condition_name)) is not None:
                    among = f"== {listed}" if len(always) == 1 else f"in ({listed})"
                    yield Null(name, when=f"{column_name} {among}"), support

    def unique(self, constraints: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Two columns whose values are never the same together, though each repeats."""
        codes = dict(self.discrete)
        for name, x in self.numbers.items():
            present = x[~np.isnan(x)]
            if (present == np.rint(present)).all():
                codes[name] = pd.factorize(x)[0]
        for first, second in itertools.combinations(codes, 2):
            a, b = codes[first], codes[second]
            is_present = (a >= 0) & (b >= 0)
            n = int(is_present.sum())
            if n < self.min_support:
                continue
            shares = [np.bincount(x[is_present]) / n for x in (a, b)]
            if any(len(share) > n / 2 for share in shares):
                continue
            alike = n * (n - 1) / 2 * float(np.prod([(share**2).sum() for share in shares]))
            labels = a[is_present].astype(np.int64) * (int(b.max()) + 1) + b[is_present]
            if alike >= _MIN_BROKEN and len(np.unique(labels)) == n:
                yield Unique(first, second), n

    def _values(self, name: Any, codes: np.ndarray) -> list[Any]:
        """The values that codes count, as an expression has them; none if it cannot."""
        column = self.columns[name]
        first = [column.iloc[int(np.argmax(codes == c))] for c in range(codes.max() + 1)]
        values = [value.item() if isinstance(value, np.generic) else value for value in first]
        return values if all(isinstance(value, str | bool) for value in values) else [None] * 99

    def _support(self, *names: Any) -> int:
        masks = [self.columns[name].notna().to_numpy(dtype=bool) for name in names]
        return int(np.all(masks, axis=0).sum())

    def _varies(self, name: Any) -> bool:
        x = self.numbers[name]
        return len(x) > 0 and np.nanmin(x) < np.nanmax(x)

    def _is_used(self, name: Any) -> bool:
        """Whether a column is more than a few numbers that are not 0."""
        x = self.numbers[name]
        return int((np.nan_to_num(x) != 0).sum()) >= self.min_support / 2

    def _is_fine(self, name: Any) -> bool:
        """Whether a column has too many values for a formula to hold by chance."""
        x = self.numbers[name][~np.isnan(self.numbers[name])]
        spread = float(x.std()) if len(x) else 0.0
        return len(np.unique(x)) >= _MIN_VALUES and spread > _FINE * self._open(name)

    def _open(self, name: Any) -> float:
        """The largest rounding error of a column: half of its last decimal."""
        if name not in self._opens:
            decimals = count_decimals(self.numbers[name], self.columns[name].dtype)
            self._opens[name] = 0.0 if decimals is None else (0.5 + 1e-6) * 10.0**-decimals
        return self._opens[name]

    def _equals(self, name: Any, expected: np.ndarray) -> bool:
        x = self.numbers[name]
        is_present = ~(np.isnan(x) | np.isnan(expected))
        if is_present.sum() < self.min_support:
            return False
        dtype, scale = self.columns[name].dtype, np.abs(x[is_present]).max()
        numbers = pd.Series(x[is_present]), pd.Series(expected[is_present])
        return bool(equal_numbers(*numbers, dtype, scale=scale).all())


def _expression(form: str, *names: Any) -> str | None:
    """An expression of columns; None where a name cannot be written."""
    words = []
    for name in map(str, names):
        if "`" in name:
            return None
        plain = name.isidentifier() and not keyword.iskeyword(name)
        words.append(name if plain else f"`{name}`")
    return form.format(*words)
