"""Find rows that occur several times in a table, on both sides of a split."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

_MIN_SHARE = 0.02  # minimum share of repeated rows among the test rows
_MIN_ROWS = 5

Splits = Sequence[tuple[np.ndarray, np.ndarray]]


def warn_repeated_rows(X: Any, y: Any, splits: Splits, stacklevel: int = 3) -> None:
    """Warn of test rows that are also training rows; the caller is at ``stacklevel``."""
    n_repeated, n_test = count_repeated_rows(X, y, splits)
    if n_repeated:
        warnings.warn(repeated_rows_message(n_repeated, n_test), stacklevel=stacklevel)


def repeated_rows_message(n_repeated: int, n_test: int) -> str:
    """Write the warning of test rows that are also training rows."""
    return (
        f"{n_repeated:,} of {n_test:,} test rows are also training rows, with the same features "
        "and target, so scores are too good for new rows; drop copies, or keep them together by "
        "groups (on the command line, --split group:COLUMN)"
    )


def count_repeated_rows(X: Any, y: Any, splits: Splits) -> tuple[int, int]:
    """Count the test rows that are also among the training rows, and all test rows of the splits.

    The first number is 0 if rows that are equal in all features and the target may be different
    cases. This is so if rows of independent columns would repeat at least half as often, or if more
    than a tenth of the rows that are equal in half of the columns differ in the others. Features
    are a DataFrame, an array or a sparse matrix.
    """
    X = X.toarray() if scipy.sparse.issparse(X) else X
    n_test = sum(len(test) for _, test in splits)
    n_repeated = _n_in_both(_column_hashes(X, y), splits)
    if n_repeated < max(_MIN_ROWS, _MIN_SHARE * n_test):
        return 0, n_test
    columns = sorted(_column_hashes(X, y), key=lambda values: -len(np.unique(values)))
    rng = np.random.default_rng(0)
    n_by_chance = _n_in_both([rng.permutation(values) for values in columns], splits)
    n_in_half = min(
        _n_in_both(half_columns, splits) for half_columns in (columns[::2], columns[1::2])
    )
    is_natural = 2 * n_by_chance >= n_repeated or n_repeated < 0.9 * n_in_half
    return (0 if is_natural else n_repeated), n_test


def _column_hashes(X: Any, y: Any) -> Iterator[np.ndarray]:
    """Hash the values of each column, (n,) uint64; the hashes of targets come last."""
    array = None if isinstance(X, pd.DataFrame) else np.asarray(X)
    columns = X.items() if array is None else enumerate(array.T)
    features: Iterable[Any] = (column for _, column in columns)
    for column in chain(features, np.atleast_2d(np.asarray(y).T)):
        if getattr(column.dtype, "kind", "O") in "biuf" and isinstance(column.dtype, np.dtype):
            numbers = np.asarray(column, dtype=np.float64) + 0.0  # no negative zeros
            numbers[np.isnan(numbers)] = np.nan
            hashes = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            yield hashes ^ (hashes >> np.uint64(32))
            continue
        values = pd.Series(column)
        try:
            yield pd.util.hash_pandas_object(values, index=False).to_numpy()
        except TypeError:  # cells such as lists
            yield pd.util.hash_pandas_object(values.astype(str), index=False).to_numpy()


def _n_in_both(columns: Iterable[np.ndarray], splits: Splits) -> int:
    """Count the test rows that equal a training row in these columns, over all splits."""
    rng = np.random.default_rng(1)
    rows: Any = np.uint64(0)
    for values in columns:
        rows = rows + values * (2 * rng.integers(2**63, dtype=np.uint64) + np.uint64(1))
    return sum(int(np.isin(rows[test], rows[train]).sum()) for train, test in splits)
