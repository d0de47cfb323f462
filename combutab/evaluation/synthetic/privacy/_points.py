"""Rows as points that a distance between mixed columns is taken of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from combutab.evaluation.synthetic._alignment import AlignedTables
from combutab.evaluation.synthetic.fidelity import codes_of, numbers_of

_DENSE = 16  # categories of a column, the most frequent, that are compared by matrix products


@dataclass(frozen=True, eq=False)
class Points:
    """Rows of one table.

    Attributes
    ----------
    numbers : float64 of shape (n, n_numbers)
        NaN where missing.
    codes : int64 of shape (n, n_categories)
        0 where missing.
    left, right : float64 of shape (n, width)
        ``a.left[i] @ b.right[j]`` is n_columns times the squared distance of a row of one table
        and a row of another, and 1 more for each category that they share. The first of ``left``
        and the second of ``right`` are added to all distances of a row.
    dense, rare : float32 of shape (n, n_dense), sparse float32 of shape (n, n_rare)
        Which of the frequent categories a row has, and which of the rare ones. Products of these
        are counts, which single precision has exactly, in half the time.
    """

    numbers: np.ndarray
    codes: np.ndarray
    left: np.ndarray
    right: np.ndarray
    dense: np.ndarray
    rare: Any

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_columns(self) -> int:
        return self.numbers.shape[1] + self.codes.shape[1]


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

    def points(self, table: pd.DataFrame) -> Points:
        """The rows of an aligned table."""
        n_rows = len(table)
        numbers = np.empty((n_rows, len(self.places)))
        for j, (column, places) in enumerate(self.places.items()):
            numbers[:, j] = places(numbers_of(table[column]))
        codes = np.empty((n_rows, len(self.codes)), dtype=np.int64)
        for j, (column, rank) in enumerate(self.codes.items()):
            codes[:, j] = rank[codes_of(table[column]) + 1]
        left, right = self._features(numbers)
        onehot = [codes[:, [j]] == each for j, each in enumerate(self.dense)]
        dense = np.hstack([np.empty((n_rows, 0)), *onehot]).astype(np.float32)
        return Points(numbers, codes, left, right, dense, self._rare(codes))

    def _features(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # (x - y)^2 = x^2 + y^2 - 2xy of places; with p and q for "is there", and places 0 where
        # they are not: x^2 q - 2xy + p (y^2 + 1 - q) + (1 - p) q, which is 1 if one is missing
        x, y = numbers[:, ~self.holes] - 0.5, numbers[:, self.holes] - 0.5
        there = ~np.isnan(y)
        y = np.where(there, y, 0.0)
        one = np.ones((len(numbers), 1))
        square = (x**2).sum(axis=1, keepdims=True)
        left = [square, one, x, y**2, y, there, ~there]
        right = [one, square + len(self.codes), -2.0 * x, there, -2.0 * y, y**2 + ~there, there]
        return np.hstack(left), np.hstack(right)

    def _rare(self, codes: np.ndarray) -> Any:
        starts = np.cumsum([0] + [max(len(rank) - _DENSE, 0) for rank in self.codes.values()])
        rows, columns = np.nonzero(codes >= _DENSE)
        places = codes[rows, columns] - _DENSE + starts[columns]
        entries = (np.ones(len(rows), dtype=np.float32), (rows, places))
        return scipy.sparse.csr_array(entries, shape=(len(codes), int(starts[-1])))


class _Places:
    """A number's place in a column: the share of the column's values that are less, from 0 to 1.

    It does not depend on the unit or on a logarithm taken, and no outlier makes all other
    differences small. Equal values have the middle of theirs; others are interpolated. A value
    outside the range is as far outside of 0 or 1 as it is in ranges, at most 1.
    """

    def __init__(self, column: np.ndarray) -> None:
        known = column[~np.isnan(column)]
        self.values, counts = np.unique(known if len(known) else np.zeros(1), return_counts=True)
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


def row_keys(table: pd.DataFrame, categories: list[Hashable]) -> np.ndarray:
    """A number for each row of an aligned table, equal for equal rows."""
    chosen = set(categories)
    columns = {
        j: codes_of(column) if name in chosen else numbers_of(column) + 0.0  # no -0
        for j, (name, column) in enumerate(table.items())
    }
    return pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()
