"""Distances between rows of mixed columns, and the nearest rows of another table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from combutab.evaluation._alignment import AlignedTables
from combutab.evaluation._fidelity import codes_of, numbers_of

# ---- Rows as points that a distance between mixed columns is taken of ----------------------------

_DENSE = 16  # categories of a column, the most frequent, that are compared by matrix products


@dataclass(frozen=True, eq=False)
class RowPoints:
    """Rows of one table.

    Attributes
    ----------
    numbers : float64 of shape (n, n_numbers)
        NaN where missing.
    codes : int64 of shape (n, n_categories)
        0 where missing.
    query_features, target_features : float64 of shape (n, width)
        ``a.query_features[i] @ b.target_features[j]`` is n_columns times the squared distance of a
        row of one table and a row of another, and 1 more for each category that they share.
    dense, rare : float32 of shape (n, n_dense), sparse float32 of shape (n, n_rare)
        Which of the frequent categories a row has, and which of the rare ones. Products of these
        are counts, which single precision has exactly, in half the time.
    """

    numbers: np.ndarray
    codes: np.ndarray
    query_features: np.ndarray
    target_features: np.ndarray
    dense: np.ndarray
    rare: Any

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_columns(self) -> int:
        return self.numbers.shape[1] + self.codes.shape[1]

    def take(self, rows: np.ndarray) -> RowPoints:
        """The rows at these positions."""
        features = (self.query_features, self.target_features, self.dense, self.rare)
        parts = (self.numbers, self.codes, *features)
        return RowPoints(*(part[rows] for part in parts))

    def features(self) -> np.ndarray:
        """Numbers, NaN where missing, and codes, as a learner takes them: (n, n_columns)."""
        return np.hstack([self.numbers, self.codes])


class Space:
    """The metric space of a table's rows, scaled by the columns of some of them.

    The squared distance of two rows is the mean over the columns of a squared difference: of two
    numbers, that of their places (see `_Places`); of two categories 0 or 1. A missing value is 1
    from any other and 0 from a missing one.
    """

    def __init__(self, tables: AlignedTables, rows: pd.DataFrame) -> None:
        self.places = {
            column: _Places(numbers_of(rows[column]))
            for column in tables.columns("number", "datetime")
        }
        self.codes = {
            column: _frequent_first(rows[column]) for column in tables.columns("category")
        }
        # columns without missing values, in any of the tables, take fewer features
        holes = {
            column: any(table[column].isna().any() for table in tables.tables.values())
            for column in tables.kinds
        }
        self.holes = np.array([holes[column] for column in self.places], dtype=bool)
        self.dense = [
            np.arange(0 if holes[column] else 1, min(_DENSE, len(rank)))
            for column, rank in self.codes.items()
        ]

    def points(self, table: pd.DataFrame) -> RowPoints:
        """The rows of an aligned table."""
        n_rows = len(table)
        numbers = np.empty((n_rows, len(self.places)))
        for j, (column, category_positions) in enumerate(self.places.items()):
            numbers[:, j] = category_positions(numbers_of(table[column]))
        codes = np.empty((n_rows, len(self.codes)), dtype=np.int64)
        for j, (column, rank) in enumerate(self.codes.items()):
            codes[:, j] = rank[codes_of(table[column]) + 1]
        left_features, right = self._features(numbers)
        onehot = [codes[:, [j]] == code for j, code in enumerate(self.dense)]
        dense = np.hstack([np.empty((n_rows, 0)), *onehot]).astype(np.float32)
        return RowPoints(numbers, codes, left_features, right, dense, self._rare(codes))

    def _features(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # (x - y)^2 = x^2 + y^2 - 2xy of places; with p and q for "is there", and places 0 where
        # they are not: x^2 q - 2xy + p (y^2 + 1 - q) + (1 - p) q, which is 1 if one is missing
        x, y = numbers[:, ~self.holes] - 0.5, numbers[:, self.holes] - 0.5
        is_known = ~np.isnan(y)
        y = np.where(is_known, y, 0.0)
        one = np.ones((len(numbers), 1))
        square = (x**2).sum(axis=1, keepdims=True)
        left_columns = [square, one, x, y**2, y, is_known, ~is_known]
        right = [
            one,
            square + len(self.codes),
            -2.0 * x,
            is_known,
            -2.0 * y,
            y**2 + ~is_known,
            is_known,
        ]
        return np.hstack(left_columns), np.hstack(right)

    def _rare(self, codes: np.ndarray) -> Any:
        starts = np.cumsum([0] + [max(len(rank) - _DENSE, 0) for rank in self.codes.values()])
        rows, columns = np.nonzero(codes >= _DENSE)
        positions = codes[rows, columns] - _DENSE + starts[columns]
        entries = (np.ones(len(rows), dtype=np.float32), (rows, positions))
        return scipy.sparse.csr_array(entries, shape=(len(codes), int(starts[-1])))


class _Places:
    """A number's place in a column: the share of the column's values that are less, from 0 to 1.

    It does not depend on the unit or on a logarithm taken, and no outlier makes all other
    differences small. Equal values have the middle of theirs; others are interpolated. A value
    outside the range is as far outside of 0 or 1 as it is in ranges, at most 1.
    """

    def __init__(self, column: np.ndarray) -> None:
        values = column[~np.isnan(column)]
        self.values, counts = np.unique(values if len(values) else np.zeros(1), return_counts=True)
        self.shares = (np.cumsum(counts) - counts / 2) / counts.sum()

    def __call__(self, column: np.ndarray) -> np.ndarray:
        low, high = self.values[0], self.values[-1]
        width = high - low if high > low else np.finfo(float).tiny
        with np.errstate(over="ignore"):
            above, below = np.clip(((column - high) / width, (low - column) / width), 0.0, 1.0)
        return np.interp(column, self.values, self.shares) + above - below


def _frequent_first(column: pd.Series) -> np.ndarray:
    """New codes of shape (n_categories + 1,): missing, at -1 + 1, is 0; then by frequency."""
    counts = np.bincount(codes_of(column) + 1, minlength=len(column.cat.categories) + 1)
    rank = np.zeros(len(counts), dtype=np.int64)
    rank[1 + np.argsort(-counts[1:], kind="stable")] = np.arange(1, len(counts))
    return rank


# ---- Nearest rows of another table, exactly, by blocks of matrix products ------------------------
# scikit-learn's NearestNeighbors has no distance for missing values and numbers, and takes the
# categories as one-hot columns: thousands of them, where a column holds names, are several times
# the work here, dense or sparse; dense, they are also rows x categories of memory.

# Of a block of squared distances the least few of each row are kept. Products round small
# distances, so those to the best rows are computed again, exactly.
_ROWS, _BLOCK_COLUMNS = 256, 1024
_KEPT, _CANDIDATES = 3, 8  # of a block, of all
_DISTANCES = 1 << 23  # distances in memory at once, for counts
_EQUAL = 1e-9  # difference of squared distances up to which rows are equally close


def nearest_rows(a: RowPoints, b: RowPoints, k: int, *, n_jobs: int | None = None) -> np.ndarray:
    """Distances of each row of a to the ``k`` nearest of b, (len(a), k); inf where b has fewer.

    Memory grows with the rows, not with their product.
    """
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    blocks = [slice(i, i + _BLOCK_COLUMNS) for i in range(0, len(b), _BLOCK_COLUMNS)]
    rare = [b.rare[block].T.tocsr() for block in blocks]

    def of_rows(rows: slice) -> np.ndarray:
        nearest, candidates = [], []
        for block, block_rare in zip(blocks, rare, strict=True):
            squared = _squared_distances(a, rows, b, block, block_rare)
            for _ in range(min(_KEPT, squared.shape[1])):
                smallest = squared.argmin(axis=1)[:, None]
                nearest.append(np.take_along_axis(squared, smallest, axis=1))
                candidates.append(block.start + smallest)
                np.put_along_axis(squared, smallest, np.inf, axis=1)
        squared = np.hstack(nearest)
        n_best = min(_CANDIDATES, squared.shape[1])
        best = np.argpartition(squared, n_best - 1, axis=1)[:, :n_best]
        exact = _row_distances(a, rows, b, np.take_along_axis(np.hstack(candidates), best, axis=1))
        none = np.full((len(exact), k), np.inf)
        return np.sort(np.hstack([exact, none]), axis=1)[:, :k]

    # of products of this size, several at once are faster than each by several threads
    with threadpool_limits(limits=1, user_api="blas"):
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(of_rows)(slice(i, i + _ROWS)) for i in range(0, len(a), _ROWS)
        )
    return np.concatenate(parts)


def _squared_distances(
    a: RowPoints, rows: slice, b: RowPoints, block: slice, block_rare: Any
) -> np.ndarray:
    """Multiply features: n_columns times the squared distance of each row of a to each of b."""
    squared = a.query_features[rows] @ b.target_features[block].T
    squared -= a.dense[rows] @ b.dense[block].T  # the categories that two rows share
    rows_rare = a.rare[rows]
    if rows_rare.nnz:
        both = (rows_rare @ block_rare).tocoo()
        squared[both.coords] -= both.data
    return squared


def map_distances(
    a: RowPoints,
    b: RowPoints,
    measure: Callable[[slice, np.ndarray], np.ndarray],
    *,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Compute a value for each row of a from its squared distances to all rows of b.

    ``measure`` is called with a slice of the rows of a and their squared distances, which are
    n_columns times those of `Space`, (n_rows, len(b)). Its results are concatenated.
    """
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    b_rare = b.rare.T.tocsr()
    n_rows = max(1, min(_ROWS, _DISTANCES // len(b)))

    def measure_rows(rows: slice) -> np.ndarray:
        squared = _squared_distances(a, rows, b, slice(None), b_rare)
        squared[squared < _EQUAL] = 0.0  # equal rows, up to rounding
        return measure(rows, squared)

    with threadpool_limits(limits=1, user_api="blas"):
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(measure_rows)(slice(i, i + n_rows)) for i in range(0, len(a), n_rows)
        )
    return np.concatenate(parts)


def closest_counts(a: RowPoints, b: RowPoints, *, n_jobs: int | None = None) -> np.ndarray:
    """Count the rows of a that each row of b is the closest to, (len(b),).

    Rows of b that are equally close to a row of a share it.
    """
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    b_rare = b.rare.T.tocsr()
    n_rows = max(1, min(_ROWS, _DISTANCES // len(b)))

    def count_closest(rows: slice) -> np.ndarray:
        squared = _squared_distances(a, rows, b, slice(None), b_rare)
        is_closest = squared <= squared.min(axis=1, keepdims=True) + _EQUAL
        return (1.0 / is_closest.sum(axis=1)) @ is_closest

    with threadpool_limits(limits=1, user_api="blas"):
        counts = Parallel(n_jobs=n_jobs, backend="threading", return_as="generator")(
            delayed(count_closest)(slice(i, i + n_rows)) for i in range(0, len(a), n_rows)
        )
        return sum(counts, start=np.zeros(len(b)))


def _row_distances(a: RowPoints, rows: slice, b: RowPoints, other_rows: np.ndarray) -> np.ndarray:
    """Distances of some rows of a to rows of b at these positions, (n_rows, n_others)."""
    numbers, codes = a.numbers[rows, None], a.codes[rows, None]
    off = numbers - b.numbers[other_rows]  # (rows, others, numbers)
    one_missing = np.isnan(numbers) != np.isnan(b.numbers[other_rows])
    squared = (np.where(np.isnan(off), one_missing, off) ** 2).sum(axis=2)
    squared += (codes != b.codes[other_rows]).sum(axis=2)
    return np.sqrt(squared / a.n_columns)
