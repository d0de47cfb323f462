"""Real rows that synthetic rows repeat, in all columns or all but a few, compared with chance."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom, hypergeom

ALPHA = 0.005  # significance level of each of eight families of tests; see `find_copies`
EXPLAINED = 0.05  # p-value from which on a difference between the two real tables is chance
FEWEST_COPIES = 3  # repeated rows that are a clear sign where no real rows come near to being equal
_CERTAIN, _MANY = 0.001, 3  # p-value and ratio from which rows of both tables are copied
_MOST_KEYS = 20_000_000  # rows times pairs of columns up to which pairs are left out in turn
_SHUFFLES = 5  # of the columns of the synthetic table
_MULTIPLICITY = 2  # times that equal synthetic rows count at most

# ---- How often rows occur in each table ----------------------------------------------------------


class Counts(NamedTuple):
    """How often each distinct row occurs in a real, a synthetic and another real table."""

    real: np.ndarray
    synthetic: np.ndarray
    other: np.ndarray

    @property
    def n_repeated(self) -> int:
        """Number of synthetic rows that equal a real row that occurs once."""
        return int(np.minimum(self.synthetic[self.real == 1], _MULTIPLICITY).sum())

    @property
    def n_by_chance(self) -> int:
        """Number of real rows that equal another one, which then occurs once.

        Of two equal rows of one table only one is counted, because they are one event.
        """
        return int((self.real == 2).sum() + self.other[self.real == 1].sum())

    @property
    def n_alike(self) -> int:
        """Number of real rows that equal any other real row."""
        return int(self.real[self.real > 1].sum() + self.other[self.real > 0].sum())

    @property
    def side_pvalue(self) -> tuple[float, bool]:
        """The p-value of the repeated rows' table, and whether rows of the other are repeated.

        The real rows that occur once in both tables together fall on either side at random. If the
        synthetic rows depend on neither table, so do those that are repeated (Fisher's exact test).
        """
        is_repeated = self.synthetic > 0
        only_in_real, only_in_other = (
            (self.real == 1) & (self.other == 0),
            (self.real == 0) & (self.other == 1),
        )
        n_here, n_there = (
            int((only_in_real & is_repeated).sum()),
            int((only_in_other & is_repeated).sum()),
        )
        n_rows = int(only_in_real.sum()), int(only_in_other.sum())
        return _upper_tail(n_here, sum(n_rows), n_rows[0], n_here + n_there), n_there > 0


def _upper_tail(n: int, n_all: int, n_marked: int, n_drawn: int) -> float:
    return float(hypergeom.sf(n - 1, n_all, n_marked, n_drawn)) if n else 1.0


class RowKeys:
    """A random number for each value of aligned tables: rows are equal if their sums are."""

    def __init__(
        self, real: pd.DataFrame, synthetic: pd.DataFrame, other_real: pd.DataFrame | None = None
    ) -> None:
        rng = np.random.default_rng(0)
        tables = [real, synthetic, real[:0] if other_real is None else other_real]
        self.ends = np.cumsum([len(table) for table in tables])
        self.columns = real.columns.tolist()
        self.values = np.empty((len(self.columns), self.ends[-1]), dtype=np.uint64)
        for j in range(len(self.columns)):
            values = np.concatenate([_float_values(table.iloc[:, j]) for table in tables])
            codes, distinct = pd.factorize(values)  # -1, the last number, where missing
            numbers = rng.integers(2**64, size=len(distinct) + 1, dtype=np.uint64)
            self.values[j] = numbers[codes]
        self.total = self.values.sum(axis=0, dtype=np.uint64)

    def without(self, left_out: tuple[int, ...]) -> np.ndarray:
        """One number for each row, which the columns at these positions do not change."""
        return self.total - self.values[list(left_out)].sum(axis=0, dtype=np.uint64)

    def counts(self, keys: np.ndarray, *, only: np.ndarray | None = None) -> Counts:
        """Count the distinct keys in each table, those of all rows or of ``only`` some."""
        distinct, codes = np.unique(keys, return_inverse=True)
        parts = np.split(np.arange(len(keys)), self.ends[:-1])
        if only is not None:
            parts = [part[only[part]] for part in parts]
        return Counts(*(np.bincount(codes[part], minlength=len(distinct)) for part in parts))

    def isolated(self) -> np.ndarray:
        """Say for each row whether no real row is equal to it in exactly all columns but one."""
        is_real = np.ones(len(self.total), dtype=bool)
        is_real[self.ends[0] : self.ends[1]] = False

        def n_equal(keys: np.ndarray) -> np.ndarray:
            distinct, codes = np.unique(keys, return_inverse=True)
            return np.bincount(codes[is_real], minlength=len(distinct))[codes]

        n_in_all = n_equal(self.total)
        isolated = np.ones(len(self.total), dtype=bool)
        for j in range(len(self.columns)):
            isolated &= n_equal(self.without((j,))) == n_in_all
        return isolated

    def n_varying(self, columns: list[int]) -> int:
        """Number of these columns in which the synthetic rows have more than one value."""
        values = self.values[columns, self.ends[0] : self.ends[1]]
        return int((values != values[:, :1]).any(axis=1).sum())

    def n_repeated_by_shuffled(self, left_out: tuple[int, ...], real_keys: np.ndarray) -> int:
        """Count what several synthetic tables repeat whose columns are in random order."""
        rng = np.random.default_rng(0)
        n_repeated = 0
        for _ in range(_SHUFFLES):
            keys = np.zeros(self.ends[1] - self.ends[0], dtype=np.uint64)
            for j in range(len(self.columns)):
                if j not in left_out:
                    keys += rng.permutation(self.values[j, self.ends[0] : self.ends[1]])
            distinct, counts = np.unique(keys, return_counts=True)
            counts = np.minimum(counts[np.isin(distinct, real_keys)], _MULTIPLICITY)
            n_repeated += int(counts.sum())
        return n_repeated


def _float_values(column: pd.Series) -> np.ndarray:
    """Floats or codes of a column, -0.0 as 0.0; NaN where missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(np.float64)
        return np.where(codes < 0, np.nan, codes)
    values = column.to_numpy()
    if values.dtype.kind == "M":
        return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(np.float64))
    return values.astype(np.float64) + 0.0


# ---- Synthetic rows that equal real rows, and controls -------------------------------------------


@dataclass(frozen=True)
class Repeated:
    """Synthetic rows that equal a real row that occurs once, in some columns, and the controls.

    Attributes
    ----------
    left_out : tuple of column names
        Columns in which the rows need not be equal.
    rows : int
        Number of these synthetic rows. Of rows that are equal to each other, two are counted.
    expected : float
        This number for other real rows.
    is_upper_bound : bool
        Equal real rows may have been removed: no two real rows are equal in all columns, and
        `expected` is an upper bound.
    pvalue : float
        Probability of so many, or more, among other real rows, by J. Przyborowski and H. Wilenski's
        test of two Poisson counts ("Homogeneity of results in testing samples from Poisson series",
        Biometrika 31, 1940).
    side_pvalue : float
        Probability that so many of the repeated rows of both real tables are in this table if the
        synthetic rows depend on neither; 1 without another real table.
    is_even : bool
        Rows of the other real table are repeated too, and `side_pvalue` is not small.
    is_alone : bool
        No real rows are alike to this degree, so that a few repeated rows are a clear sign.
    shuffled_pvalue : float
        Probability of so many if each synthetic column were in random order.
    alpha : float
        Significance level.
    """

    left_out: tuple[Hashable, ...]
    rows: int
    expected: float
    pvalue: float
    is_upper_bound: bool = False
    side_pvalue: float = 1.0
    is_even: bool = False
    is_alone: bool = False
    shuffled_pvalue: float = 0.0
    alpha: float = ALPHA

    @property
    def beyond_real_rows(self) -> bool:
        """Say whether neither other real rows nor the other real table explain the rows."""
        is_rare = self.pvalue < self.alpha or (self.is_alone and self.rows >= FEWEST_COPIES)
        return self.side_pvalue < self.alpha or (is_rare and not self.is_even)

    @property
    def beyond_chance(self) -> bool:
        """Say whether no control explains the rows."""
        return self.beyond_real_rows and self.shuffled_pvalue < self.alpha


@dataclass(frozen=True)
class Copies:
    """What a synthetic table repeats of one real table.

    Attributes
    ----------
    rows : int
        Number of synthetic rows that equal a row of the real table in every column.
    exact : Repeated
        Those that equal a row that occurs once.
    signs : tuple of Repeated
        Repeated rows beyond chance: in all columns, or in all but one or two.
    is_unlike : bool
        No two real rows are equal in all columns but one. A single copy is then a weak sign.
    """

    rows: int
    exact: Repeated
    signs: tuple[Repeated, ...] = ()
    is_unlike: bool = False

    @property
    def clearest(self) -> Repeated | None:
        """The sign with most rows beyond the expected number; copies in all columns come first."""
        exact = [sign for sign in self.signs if not sign.left_out]
        return max(exact or self.signs, key=lambda sign: sign.rows - sign.expected, default=None)

    @property
    def is_weak_sign(self) -> bool:
        """Say whether there are copies although no real rows are nearly equal."""
        return self.exact.rows > 0 and self.is_unlike and not self.exact.is_even


def find_copies(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame | None = None
) -> Copies:
    """Find the rows of ``train`` that ``synthetic`` repeats; ``test`` has other real rows.

    The tables are as `align_tables` gives them; missing values equal each other. Only rows that
    occur once in a real table are counted, because others may be met by chance. They are compared
    with three controls:

    - Other real rows: those of the other real table, and of the same table without the row (I. J.
      Good, "The population frequencies of species and the estimation of population parameters",
      Biometrika 40, 1953).
    - The other real table: a synthetic table that depends on neither repeats rows of both as often.
      This holds where equal real rows were removed, and for rows of any distribution.
    - The synthetic table with each column in random order: independent columns repeat rows too.

    There are four families of tests, each at the level `ALPHA`, divided by the number of its tests:
    equality in all columns; the same of isolated rows, which no real row equals in all columns but
    one; in all columns but one; in all but two.

    >>> train = pd.DataFrame({"a": [1.0, 2.0, 2.0, None]})
    >>> copies = find_copies(train, pd.DataFrame({"a": [1.0, 2.0, 3.0, None, None]}))
    >>> copies.rows, copies.exact.rows
    (4, 3)
    """
    keys = RowKeys(train, synthetic, test)
    n_columns = len(keys.columns)
    sets: list[tuple[int, ...]] = [()]
    sets += [(j,) for j in range(n_columns)] if n_columns > 2 else []
    pairs = list(combinations(range(n_columns), 2)) if n_columns > 4 else []
    sets += pairs if len(pairs) * len(keys.total) <= _MOST_KEYS else []
    by_set = {left_out: keys.counts(keys.without(left_out)) for left_out in sets}
    by_value = [keys.counts(values) for values in keys.values]
    isolated = keys.counts(keys.total, only=keys.isolated())
    return RowComparison(keys, by_set, by_value, isolated).copies()


@dataclass(frozen=True, eq=False)
class RowComparison:
    """The rows of a synthetic table and of one real table, equal in several sets of columns.

    Attributes
    ----------
    keys : RowKeys
    by_set : dict of tuple of int to Counts
        Rows without the columns at these positions.
    by_value : list of Counts
        Values of each column.
    isolated : Counts
        Rows that no real row equals in all columns but one.
    """

    keys: RowKeys
    by_set: dict[tuple[int, ...], Counts]
    by_value: list[Counts]
    isolated: Counts

    def copies(self) -> Copies:
        """The copies, and the comparisons that are beyond chance."""
        tests = {left_out: self._in_set(left_out) for left_out in self.by_set}
        checked = [
            self._beside_shuffled(left_out, test, self.by_set[left_out])
            for left_out, test in tests.items()
        ]
        if len(self.by_set) > 1:
            n_by_chance = self.isolated.n_by_chance
            test = self.compare((), self.isolated, n_by_chance, n_by_chance == 0)
            checked.append(self._beside_shuffled((), test, self.isolated))
        all_counts, exact = self.by_set[()], tests[()]
        signs = [test for test in checked if test.beyond_chance]
        is_unlike = self._none_nearly_alike(())
        # one real row that is repeated many times counts as two rows in the tests
        n_copies = int(all_counts.synthetic[all_counts.real == 1].sum())
        if not signs and is_unlike and not exact.is_even and n_copies >= FEWEST_COPIES:
            signs = [replace(exact, rows=n_copies)]
        return Copies(
            rows=int(all_counts.synthetic[all_counts.real > 0].sum()),
            exact=exact,
            signs=tuple(signs),
            is_unlike=is_unlike,
        )

    def _none_nearly_alike(self, left_out: tuple[int, ...]) -> bool:
        """Say whether no two real rows are equal if one more column is left out."""
        wider = [
            counts.n_alike
            for columns, counts in self.by_set.items()
            if len(columns) == len(left_out) + 1 and set(left_out) <= set(columns)
        ]
        if not left_out and not wider:  # one or two columns
            return self.by_set[()].n_alike == 0
        return bool(wider) and sum(wider) == 0

    def _in_set(self, left_out: tuple[int, ...]) -> Repeated:
        counts = self.by_set[left_out]
        n_alike = [counts.n_alike for j, counts in enumerate(self.by_value) if j not in left_out]
        n_by_chance = counts.n_by_chance
        is_upper_bound = not left_out and counts.n_alike == 0
        if is_upper_bound:  # there were no more equal rows than equal values
            n_by_chance = min(n_alike)
        is_alone = min(n_alike) == 0 or self._none_nearly_alike(left_out)
        test = self.compare(left_out, counts, n_by_chance, is_alone)
        test = replace(test, is_upper_bound=is_upper_bound)
        if test.pvalue < _CERTAIN and test.rows > _MANY * test.expected:
            # Real rows are too different for rows of both tables to be met by chance.
            return replace(test, is_even=False)
        return test

    def compare(
        self, left_out: tuple[int, ...], counts: Counts, n_by_chance: int, is_alone: bool
    ) -> Repeated:
        all_counts = self.by_set[()]
        n_synthetic = all_counts.synthetic.sum()
        n_real = all_counts.real.sum() / 2 + all_counts.other.sum()
        rows = counts.n_repeated
        side_pvalue, is_other_repeated = counts.side_pvalue
        return Repeated(
            left_out=tuple(self.keys.columns[j] for j in left_out),
            rows=rows,
            expected=float(n_synthetic * n_by_chance / n_real),
            pvalue=_pvalue(rows, n_by_chance, n_synthetic / (n_synthetic + n_real)),
            side_pvalue=side_pvalue,
            is_even=is_other_repeated and side_pvalue >= EXPLAINED,
            is_alone=is_alone,
            alpha=ALPHA / sum(len(columns) == len(left_out) for columns in self.by_set),
        )

    def _beside_shuffled(
        self, left_out: tuple[int, ...], test: Repeated, counts: Counts
    ) -> Repeated:
        """The comparison, with what shuffled columns repeat if all else does not explain it."""
        columns = [j for j in range(len(self.keys.columns)) if j not in left_out]
        if not test.beyond_real_rows or self.keys.n_varying(columns) < 2:
            return test
        distinct = np.unique(self.keys.without(left_out))  # as the counts are ordered
        n_shuffled = self.keys.n_repeated_by_shuffled(left_out, distinct[counts.real == 1])
        return replace(test, shuffled_pvalue=_pvalue(test.rows, n_shuffled, 1 / (1 + _SHUFFLES)))


def _pvalue(n: int, n_others: int, share: float) -> float:
    """Probability that n or more of all are on a side that has this share by chance."""
    return float(binom.sf(n - 1, n + n_others, share)) if n else 1.0


# ---- Values of a column that only one real row has -----------------------------------------------

_DENSE = 20  # possible numbers for each number, up to which chance explains equal ones
# share of a column's values that occur once, from which they identify rows
_DISTINCT_TEXTS, _DISTINCT_NUMBERS = 0.5, 0.9  # a few equal numbers may be rounded ones


def find_copied_values(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame | None = None
) -> dict[Hashable, Repeated]:
    """Find the columns whose values identify rows and are repeated by the synthetic rows.

    Only columns are tested in which most values occur once: half of the texts, nine tenths of the
    numbers. The controls are those of `find_copies`, except the shuffled columns, which have the
    same values.

    >>> train = pd.DataFrame({"code": np.arange(50.0) ** 4, "size": [1.0, 2.0] * 25})
    >>> {column: found.rows for column, found in find_copied_values(train, train).items()}
    {'code': 50}
    """
    copied: dict[Hashable, Repeated] = {}
    for column in train.columns:
        frames = [
            None if table is None else table[[column]].dropna()
            for table in (train, synthetic, test)
        ]
        if frames[0] is None or frames[1] is None or not len(frames[0]) or not len(frames[1]):
            continue
        keys = RowKeys(frames[0], frames[1], frames[2])
        counts = keys.counts(keys.total)
        is_text = isinstance(train[column].dtype, pd.CategoricalDtype)
        distinct = _DISTINCT_TEXTS if is_text else _DISTINCT_NUMBERS
        if (counts.real == 1).sum() < distinct * len(frames[0]):
            continue
        if _is_dense(frames[0][column]) and (not is_text or not counts.other.sum()):
            continue  # such as days or running numbers, which rows may share by chance
        rows, n_synthetic = counts.n_repeated, len(frames[1])
        # Identifiers never repeat in one table, but another table may have the same ones.
        has_other = bool(counts.other.sum())
        n_by_chance = int(counts.other[counts.real == 1].sum()) if has_other else counts.n_by_chance
        n_real = counts.other.sum() if has_other else counts.real.sum() / 2
        side_pvalue, is_other_repeated = counts.side_pvalue
        values = Repeated(
            left_out=(),
            rows=rows,
            expected=float(n_synthetic * n_by_chance / n_real),
            pvalue=_pvalue(rows, n_by_chance, n_synthetic / (n_synthetic + n_real)),
            side_pvalue=side_pvalue,
            is_even=is_other_repeated and side_pvalue >= EXPLAINED,
            alpha=ALPHA / train.shape[1],
        )
        if values.beyond_real_rows:
            copied[column] = values
    return copied


def _is_dense(column: pd.Series) -> bool:
    """Say whether a column has a large part of all its possible numbers within its range."""
    values = column
    if isinstance(column.dtype, pd.CategoricalDtype):
        values = pd.Series(column.unique().astype(object))
        if not all(isinstance(value, int) for value in values):
            return False
    numbers = np.unique(values.to_numpy().astype("int64" if values.dtype.kind == "M" else float))
    if len(numbers) < 2:
        return True
    return bool(numbers[-1] - numbers[0] < _DENSE * len(numbers) * np.diff(numbers).min())
