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
    read_columns,
)
from combutab.generators.expressions import as_operand, count_decimals, equal_numbers
from combutab.preprocessing import find_identifiers

_MIN_BROKEN = 20  # rows that would break a constraint, were its columns independent
_MAX_COLUMNS = 100  # of numbers whose sums and products are looked through
_SAMPLE = 10_000  # rows that chance is estimated by
_PROBES = 16  # rows by which most sums are ruled out
_MIN_VALUES = 10  # of a column that is computed: few would agree by chance
_FINE = 20  # times that a column's spread exceeds what its rounding leaves open
_MAX_VALUES = 20  # of a column that says where another is missing
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
        return "\n".join([*lines, *(f"{n:>{max(width, 7)},}  {each!r}" for n, each in pairs)])


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
    columns = read_columns(X)
    columns = {
        name: column
        for name, column in columns.items()
        if column.notna().any() and find_identifiers(column.rename(name)) is None
    }
    found: dict[Constraint, int] = {}
    finder = _Finder(columns, min_support)
    for kind in (finder.sums, finder.formulas, finder.inequalities, finder.combinations):
        for constraint, support in kind(list(found)):
            found[constraint] = support
    for kind in (finder.one_hot, finder.nulls, finder.unique):
        for constraint, support in kind(list(found)):
            found[constraint] = support
    whole = read_columns(X)
    kept = {each: n for each, n in found.items() if each.holds(whole).all()}
    return Suggestions(kept, kept.values())


class _Finder:
    """What the columns of one table have in common; each method gives constraints and support."""

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
        except TypeError:  # of what has no order or hash
            return
        if len(values) > 1:
            self.discrete[name] = codes

    def sums(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are the sum of two others, or of more."""
        found = set()
        for total, one, other in self._triples(np.add):
            found.add(total)
            yield Sum((one, other), total), self._support(total, one, other)
        yield from self._longer_sums(found)

    def _longer_sums(self, found: set[Any]) -> Iterator[tuple[Constraint, int]]:
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
            if total in found or not self._is_fine(total):
                continue
            others = [j for j in range(len(names)) if j != k]
            weights, _ = nnls(x[:, others] / scale[k], x[:, k] / scale[k])
            parts = [names[j] for j, w in zip(others, weights, strict=True) if w > 0.5]
            if len(parts) < 3 or np.abs(weights - (weights > 0.5)).max() > 1e-4:
                continue
            wanted = np.sum([self.numbers[name] for name in parts], axis=0)
            if self._equals(total, wanted) and all(map(self._is_used, parts)):
                yield Sum(tuple(parts), total), self._support(total, *parts)

    def formulas(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are the product of two others, or the days between dates."""
        for target, one, other in self._triples(np.multiply):
            if (text := _expression("{} * {}", one, other)) is not None:
                yield Formula(target, text), self._support(target, one, other)
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
        whole = np.flatnonzero(~np.isnan(x).any(axis=1))
        probes = whole[np.linspace(0, len(whole) - 1, _PROBES).astype(int)] if len(whole) else whole
        places = {name: j for j, name in enumerate(names)}
        for i, one in enumerate(names):
            joined = join(x[:, [i]][probes], x[probes, i + 1 :])  # (n_probes, others)
            for target in targets:
                if target == one:
                    continue
                y = x[probes, places[target]][:, None]
                near = np.abs(joined - y) <= self._open(target) + 1e-9 * np.abs(y)
                for j in np.flatnonzero(near.all(axis=0)):
                    other = names[i + 1 + j]
                    if other == target or not (self._is_used(one) and self._is_used(other)):
                        continue
                    if self._equals(target, join(self.numbers[one], self.numbers[other])):
                        yield target, one, other

    def inequalities(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are less than another in all rows, though their ranges overlap."""
        computed = [set(each.find_columns(self.columns)) for each in known]
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
                there = ~(pd.isna(kind[low]) | pd.isna(kind[high]))
                x, y = kind[low][there], kind[high][there]
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

    def combinations(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Discrete columns of which one decides on the other."""
        decides = set()
        for one, other in itertools.permutations(self.discrete, 2):
            a, b = self.discrete[one], self.discrete[other]
            there = (a >= 0) & (b >= 0)
            pairs = pd.MultiIndex.from_arrays([a[there], b[there]]).unique()
            n_a, n_b = len(np.unique(a[there])), len(np.unique(b[there]))
            if n_a < 2 or n_b < 2 or len(pairs) > n_a:
                continue
            if there.sum() >= max(self.min_support, _MIN_BROKEN + 5 * n_a):
                decides.add((one, other))
        told = set()
        for one, other in decides:
            between = (mid for mid in self.discrete if mid not in (one, other))
            if any(
                (one, mid) in decides and (mid, other) in decides and (mid, one) not in decides
                for mid in between
            ):
                continue  # follows from two others
            told.add(frozenset((one, other)))
        names = list(self.discrete)
        for pair in sorted(told, key=lambda pair: sorted(map(names.index, pair))):
            one, other = sorted(pair, key=names.index)
            yield FixedCombinations(one, other), self._support(one, other)

    def one_hot(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns beside each other of which exactly one is set."""
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
            for name, mask, own in masks[start:]:
                if not kind or own != kind or mask.sum() < 5:
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

    def nulls(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Columns that are missing for some values of another."""
        for name, column in self.columns.items():
            absent = column.isna().to_numpy(dtype=bool)
            if not absent.any() or absent.all():
                continue
            for other, codes in self.discrete.items():
                values = self._values(other, codes)
                if other == name or len(values) > _MAX_VALUES or (codes < 0).any():
                    continue
                always = [c for c in range(len(values)) if absent[codes == c].all()]
                rows = np.isin(codes, always)
                support = int(rows.sum())
                chance = support * np.log(max(absent.mean(), 1e-300))  # that all are by chance
                if not always or support < self.min_support or chance > -_MIN_BROKEN:
                    continue
                listed = ", ".join(repr(values[c]) for c in always)
                if (column_name := _expression("{}", other)) is not None:
                    among = f"== {listed}" if len(always) == 1 else f"in ({listed})"
                    yield Null(name, when=f"{column_name} {among}"), support

    def unique(self, known: Sequence[Constraint]) -> Iterator[tuple[Constraint, int]]:
        """Two columns whose values are never the same together, though each repeats."""
        codes = dict(self.discrete)
        for name, x in self.numbers.items():
            there = x[~np.isnan(x)]
            if (there == np.rint(there)).all():
                codes[name] = pd.factorize(x)[0]
        for one, other in itertools.combinations(codes, 2):
            a, b = codes[one], codes[other]
            there = (a >= 0) & (b >= 0)
            n = int(there.sum())
            if n < self.min_support:
                continue
            shares = [np.bincount(each[there]) / n for each in (a, b)]
            if any(len(share) > n / 2 for share in shares):
                continue
            alike = n * (n - 1) / 2 * float(np.prod([(share**2).sum() for share in shares]))
            labels = a[there].astype(np.int64) * (int(b.max()) + 1) + b[there]
            if alike >= _MIN_BROKEN and len(np.unique(labels)) == n:
                yield Unique(one, other), n

    def _values(self, name: Any, codes: np.ndarray) -> list[Any]:
        """The values that codes count, as an expression has them; none if it cannot."""
        column = self.columns[name]
        first = [column.iloc[int(np.argmax(codes == c))] for c in range(codes.max() + 1)]
        values = [each.item() if isinstance(each, np.generic) else each for each in first]
        return values if all(isinstance(each, str | bool) for each in values) else [None] * 99

    def _support(self, *names: Any) -> int:
        there = [self.columns[name].notna().to_numpy(dtype=bool) for name in names]
        return int(np.all(there, axis=0).sum())

    def _varies(self, name: Any) -> bool:
        x = self.numbers[name]
        return len(x) > 0 and np.nanmin(x) < np.nanmax(x)

    def _is_used(self, name: Any) -> bool:
        """Whether a column is more than a few numbers that are not 0."""
        x = self.numbers[name]
        return int((np.nan_to_num(x) != 0).sum()) >= self.min_support / 2

    def _is_fine(self, name: Any) -> bool:
        """Whether a column has so many values that a formula for them is not met by chance."""
        x = self.numbers[name][~np.isnan(self.numbers[name])]
        spread = float(x.std()) if len(x) else 0.0
        return len(np.unique(x)) >= _MIN_VALUES and spread > _FINE * self._open(name)

    def _open(self, name: Any) -> float:
        """What the rounding of a column leaves open: half of its last decimal."""
        if name not in self._opens:
            decimals = count_decimals(self.numbers[name], self.columns[name].dtype)
            self._opens[name] = 0.0 if decimals is None else (0.5 + 1e-6) * 10.0**-decimals
        return self._opens[name]

    def _equals(self, name: Any, wanted: np.ndarray) -> bool:
        x = self.numbers[name]
        there = ~(np.isnan(x) | np.isnan(wanted))
        if there.sum() < self.min_support:
            return False
        dtype, scale = self.columns[name].dtype, np.abs(x[there]).max()
        numbers = pd.Series(x[there]), pd.Series(wanted[there])
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
