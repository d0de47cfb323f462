"""Split rows into training and validation rows, and count rows that are in both."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
    train_test_split,
)
from sklearn.utils.validation import _num_samples

from combutab.core.world import broadcast

Split = tuple[np.ndarray, np.ndarray]
"""Positions of the training rows and of the validation rows."""

# ---- Groups of rows ------------------------------------------------------------------------------


def group_codes(groups: Any, n_rows: int) -> np.ndarray | None:
    """Read the group of each row as a number, (n_rows,); None without groups.

    Raises ValueError if the number of values is not ``n_rows``, or a value is missing.
    """
    if groups is None:
        return None
    groups = groups.to_pandas() if hasattr(groups, "to_pandas") else groups
    values = pd.Series(np.asarray(groups, dtype=object).ravel().tolist())
    if len(values) != n_rows:
        raise ValueError(f"groups has {len(values)} values for {n_rows} rows")
    codes = pd.factorize(values)[0]
    if (codes < 0).any():
        raise ValueError(
            f"groups has {(codes < 0).sum()} missing values; give those rows groups, or drop them"
        )
    return codes


# ---- Folds and hold-outs, drawn from a seed ------------------------------------------------------


def check_folds(
    name: str, n_folds: int, labels: np.ndarray | None, groups: np.ndarray | None
) -> None:
    """Check that there are at least as many groups, or without groups rows per label, as folds.

    Raises ValueError with a message that begins with the ``name`` of the parameter.
    """
    if groups is not None:
        n_groups = len(pd.unique(groups))
        if n_groups < n_folds:
            raise ValueError(
                f"{name} needs a group for each of {n_folds} folds, and groups has {n_groups} "
                f"different value{'s' * (n_groups != 1)} in {len(groups)} rows"
            )
    elif labels is not None:
        classes, counts = np.unique(labels, return_counts=True)
        if counts.min() < n_folds:
            raise ValueError(
                f"{name} needs a row of each class in every fold, and class "
                f"{classes[counts.argmin()]} has {counts.min()} row(s); use fewer folds, or leave "
                "that class out"
            )


def shuffled_folds(
    n_folds: int,
    n_rows: int,
    labels: np.ndarray | None,
    groups: np.ndarray | None,
    random_state: int,
) -> list[Split]:
    """Split all rows into folds at random, with similar shares of each label.

    Rows of a group are in the same fold.
    """
    if groups is None:
        splitter = KFold if labels is None else StratifiedKFold
    else:
        splitter = GroupKFold if labels is None else StratifiedGroupKFold
    folds = splitter(n_folds, shuffle=True, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some folds lack a rare label
        return list(folds.split(np.empty(n_rows), labels, groups))


def merge_rare_labels(labels: np.ndarray, n_folds: int) -> np.ndarray:
    """Give labels with fewer rows than folds one common label, so that folds can be stratified."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    merged_labels = np.where(counts[codes] < n_folds, "", labels.astype(str))
    is_merged = merged_labels == ""
    if is_merged.sum() < n_folds:
        merged_labels[is_merged] = "" if is_merged.all() else merged_labels[~is_merged][0]
    return merged_labels


def random_hold_out(
    rows: np.ndarray, labels: np.ndarray | None, n_val: int, random_state: int
) -> Split:
    """Set ``n_val`` of the rows aside at random, and return both parts in increasing order.

    ``labels`` are those of the rows. Both parts have similar shares of each label if they can have
    all labels. The only row of a label is a training row if enough others are left.
    """
    single_rows = np.arange(0)
    if labels is not None:
        _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        is_single, n_repeated = counts[codes] == 1, (counts > 1).sum()
        if (~is_single).sum() > n_val:
            single_rows, rows, labels = rows[is_single], rows[~is_single], labels[~is_single]
        if len(single_rows) < is_single.sum() or n_repeated > min(n_val, len(rows) - n_val):
            labels = None
    train, val = train_test_split(rows, test_size=n_val, random_state=random_state, stratify=labels)
    return np.sort(np.concatenate([train, single_rows])), np.sort(val)


class LatestRows:
    """Splitter that sets the latest fifth of rows in the order of time aside."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        rows = np.arange(_num_samples(X))
        n_train = len(rows) - max(1, len(rows) // 5)
        yield rows[:n_train], rows[n_train:]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1

    def __repr__(self) -> str:
        return "LatestRows()"


# ---- Splits that a user gives: a splitter, pairs of rows, a mask or fold numbers -----------------


def validation_splits(
    cv: Any, name: str, X: Any, y: Any, groups: Any, weight: Any = None
) -> list[Split]:
    """Find the training and validation rows of each split of ``cv``, the parameter ``name``.

    ``cv`` is a splitter, an iterable of (train, test), or an array: a mask of the validation
    rows, their positions, or a fold for each row. Rows of ``weight`` 0 are left out and not
    counted.

    Raises ValueError if a part of a split has no rows, or a row is in both parts.
    """
    n_rows = _num_samples(X)
    label = repr(cv) if hasattr(cv, "split") else name
    try:
        splits = [
            [np.arange(n_rows)[np.asarray(part)] for part in parts]
            for parts in check_cv(_as_cv(cv, name, n_rows)).split(X, y, groups)
        ]
    except (ValueError, TypeError, IndexError) as error:
        hint = "; give groups to fit" if groups is None and "groups" in str(error) else ""
        raise ValueError(f"{name} cannot split these {n_rows} rows: {error}{hint}") from error
    has_weight = np.ones(n_rows, dtype=bool) if np.ndim(weight) == 0 else np.asarray(weight) > 0
    positions = np.cumsum(has_weight) - 1
    if not splits:
        raise ValueError(f"{label} sets no row aside")
    checked_splits = []
    for parts in splits:
        train, val = (positions[part[has_weight[part]]] for part in parts)
        n_both = len(np.intersect1d(train, val))
        if n_both or not len(train) or not len(val):
            raise ValueError(
                f"{label} has a split of {len(train)} training and {len(val)} validation rows, "
                f"{n_both} of them in both; each part needs rows, and no row may be in both"
            )
        checked_splits.append((np.sort(train), np.sort(val)))
    return broadcast(checked_splits)  # a splitter without a seed differs between ranks


def _as_cv(cv: Any, name: str, n_rows: int) -> Any:
    """Convert an array to a splitter of scikit-learn; leave other values as they are."""
    if hasattr(cv, "split"):
        return cv
    if not hasattr(cv, "__array__"):
        cv = list(cv)
        if cv and not np.isscalar(cv[0]):  # pairs of training and validation rows
            return cv
    values = np.asarray(np.asarray(cv).tolist())  # nullable booleans of pandas become numpy's
    if values.ndim != 1 or values.dtype.kind not in "biu" or not values.size:
        raise ValueError(
            f"an array must have one boolean or integer per row, or the positions of rows, got "
            f"{values.dtype} of shape {values.shape}"
        )
    if len(values) == n_rows:
        return PredefinedSplit(np.where(values, 0, -1) if values.dtype.kind == "b" else values)
    if values.dtype.kind == "b":
        raise ValueError(
            f"a mask needs one boolean per row, got {len(values)}; in cross-validation and "
            "searches, whose tables are parts, give a splitter"
        )
    if not ((values >= 0) & (values < n_rows)).all():
        raise ValueError(f"positions go from {values.min()} to {values.max()}")
    folds = np.full(n_rows, -1)
    folds[values] = 0
    return PredefinedSplit(folds)


# ---- Training rows first, and parts of the validation rows ---------------------------------------


@dataclass(frozen=True)
class RowOrder:
    """An order of rows in which the training rows of all splits come first.

    ``order`` has the positions of the rows, (n,). ``splits`` has positions in this order.
    """

    order: np.ndarray
    n_train: int
    splits: Sequence[Split]

    @classmethod
    def of_splits(cls, splits: Sequence[Split], n_rows: int) -> RowOrder:
        """Order the rows by splits. Without splits all rows are training rows."""
        if not splits:
            return cls(np.arange(n_rows), n_rows, ())
        is_train, is_val = np.zeros(n_rows, dtype=bool), np.zeros(n_rows, dtype=bool)
        for train, val in splits:
            is_train[train], is_val[val] = True, True
        train_rows = np.flatnonzero(is_train)
        order = np.concatenate([train_rows, np.flatnonzero(is_val & ~is_train)])
        positions = np.empty(n_rows, dtype=np.int64)
        positions[order] = np.arange(len(order))
        reordered_splits = [(positions[train], positions[val]) for train, val in splits]
        return cls(order, len(train_rows), reordered_splits)


def validation_parts(
    y: np.ndarray, n_parts: int, groups: np.ndarray | None = None, *, in_order: bool = False
) -> np.ndarray:
    """Divide validation rows into parts; choices for each part are made on the other parts.

    Parts have equal shares of the classes, or similar targets ``y``. Rows of a group are in the
    same part. With ``in_order``, as for rows in order of time, parts are blocks of neighbouring
    rows.

    Returns
    -------
    ndarray of shape (n_rows,)
        Numbers of the parts, from 0 to ``n_parts`` - 1, or to a smaller number if there are few
        rows or groups.
    """
    n_rows = len(y)
    units, unit_of_row = np.arange(n_rows), np.arange(n_rows)
    if groups is not None:
        units, unit_of_row = np.unique(groups, return_inverse=True)
    n_parts = min(n_parts, max(2, len(units) // 2))
    if len(units) < 2:
        return np.zeros(n_rows, dtype=np.int64)
    if in_order and groups is None:
        return np.arange(n_rows) * n_parts // n_rows
    shuffled_units = np.random.default_rng(0).permutation(len(units))
    first_target = np.nan_to_num(y.reshape(n_rows, -1)[:, 0].astype(np.float64))
    means = np.bincount(unit_of_row, first_target) / np.bincount(unit_of_row)
    order = shuffled_units[np.argsort(means[shuffled_units], kind="stable")]
    part_of_unit = np.empty(len(units), dtype=np.int64)
    part_of_unit[order] = np.arange(len(units)) % n_parts
    return part_of_unit[unit_of_row]


_MIN_BLOCKS = 10


class PeriodSplit(TimeSeriesSplit):
    """Test folds of consecutive periods; rows of the same time are not in training and test folds.

    Parameters
    ----------
    n_splits : int
    times : ndarray of shape (n_rows,), in ascending order
    name : str
        What describes the folds in results.
    """

    def __init__(self, n_splits: int, times: np.ndarray, name: str) -> None:
        super().__init__(n_splits)
        self.times, self.name = times, name

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """Yield the positions of the training rows and of the test rows of each fold."""
        for train, test in super().split(X):
            yield train[self.times[train] < self.times[test[0]]], test


def latest_rows(times: pd.Series, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Find the latest rows by a column of times, and their blocks of neighbouring times.

    Rows of the same time are all among the latest rows, or all outside.

    Returns
    -------
    latest : ndarray of shape (n_rows,), bool
        About this ``fraction`` of the rows.
    blocks : ndarray of shape (n_rows,), int
        See `neighbour_blocks`; 0 for the other rows.
    """
    ranks = times.rank(method="min").to_numpy()
    first_rank = np.sort(ranks)[-max(1, round(fraction * len(ranks)))]
    latest = ranks >= first_rank if first_rank > 1 else ranks > first_rank
    blocks = np.zeros(len(ranks), dtype=np.int64)
    order = np.argsort(times[latest].to_numpy(), kind="stable")
    blocks[np.flatnonzero(latest)[order]] = neighbour_blocks(len(order))
    return latest, blocks


def neighbour_blocks(n_rows: int) -> np.ndarray:
    """Number blocks of neighbouring rows, whose scores may depend on one another: (n_rows,).

    The number of blocks is about the square root of that of the rows, but at least ten.

    >>> neighbour_blocks(12).tolist()
    [0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    """
    n_blocks = max(_MIN_BLOCKS, round(n_rows**0.5))
    return np.arange(n_rows) * n_blocks // max(n_rows, 1)


# ---- Test rows that are also training rows -------------------------------------------------------

_MIN_SHARE = 0.02  # minimum share of repeated rows among the test rows
_MIN_ROWS = 5


def warn_repeated_rows(X: Any, y: Any, splits: Sequence[Split], stacklevel: int = 3) -> None:
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


def count_repeated_rows(X: Any, y: Any, splits: Sequence[Split]) -> tuple[int, int]:
    """Count the test rows that are also among the training rows, and all test rows of the splits.

    The first number is 0 if rows that are equal in all features and the target may be different
    cases. This is so if rows of independent columns would repeat at least half as often, or if more
    than a tenth of the rows that are equal in half of the columns differ in the others. Features
    are a DataFrame, an array or a sparse matrix; targets can be a sparse matrix, too.
    """
    X, y = (data.toarray() if scipy.sparse.issparse(data) else data for data in (X, y))
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


def _n_in_both(columns: Iterable[np.ndarray], splits: Sequence[Split]) -> int:
    """Count the test rows that equal a training row in these columns, over all splits."""
    rng = np.random.default_rng(1)
    rows: Any = np.uint64(0)
    for values in columns:
        rows = rows + values * (2 * rng.integers(2**63, dtype=np.uint64) + np.uint64(1))
    return sum(int(np.isin(rows[test], rows[train]).sum()) for train, test in splits)
