"""Rows that occur several times in a table, on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

_LEAST_SHARE = 0.02  # of the test rows
_LEAST_ROWS = 5


def count_repeated_rows(
    X: Any, y: Any, splits: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[int, int]:
    """Count the test rows that are also among the training rows, and all test rows of the splits.

    The first number is 0 where rows that are equal in all features and the target may be different
    cases: where rows of independent columns would repeat at least half as often, or where more than
    a tenth of the rows that are equal in half of the columns differ in the others. Features are a
    DataFrame, an array or a sparse matrix.
    """
    X = X.toarray() if scipy.sparse.issparse(X) else X
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    columns = [_cell_hashes(column) for _, column in frame.items()]
    columns += [_cell_hashes(pd.Series(column)) for column in np.atleast_2d(np.asarray(y).T)]
    columns.sort(key=lambda values: -len(np.unique(values)))
    n_test = sum(len(test) for _, test in splits)
    n_repeated = _n_in_both(columns, splits)
    if n_repeated < max(_LEAST_ROWS, _LEAST_SHARE * n_test):
        return 0, n_test
    rng = np.random.default_rng(0)
    by_chance = _n_in_both([rng.permutation(values) for values in columns], splits)
    in_half = min(_n_in_both(half, splits) for half in (columns[::2], columns[1::2]))
    is_natural = 2 * by_chance >= n_repeated or n_repeated < 0.9 * in_half
    return (0 if is_natural else n_repeated), n_test


def _cell_hashes(column: pd.Series) -> np.ndarray:
    try:
        return pd.util.hash_pandas_object(column, index=False).to_numpy()
    except TypeError:  # cells such as lists
        return pd.util.hash_pandas_object(column.astype(str), index=False).to_numpy()


def _n_in_both(
    columns: Sequence[np.ndarray], splits: Sequence[tuple[np.ndarray, np.ndarray]]
) -> int:
    """Number of test rows that equal a training row in these columns, over all splits."""
    factors = np.random.default_rng(1).integers(2**63, size=len(columns), dtype=np.uint64)
    rows = np.zeros(len(columns[0]), dtype=np.uint64)
    for values, factor in zip(columns, factors, strict=True):
        rows += values * (2 * factor + np.uint64(1))  # modulo 2^64
    return sum(int(np.isin(rows[test], rows[train]).sum()) for train, test in splits)
