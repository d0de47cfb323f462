"""Nearest rows of another table, exactly, by blocks of matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._privacy_points import Points

# A block of squared distances is computed in float32, and only the minimum of each group of rows
# is kept. The distances to the groups that may hold the nearest row are then computed in float64.
_ROWS, _COLUMNS, _GROUP = 512, 2048, 32
_FAR = np.float32(1e30)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Distances between two tables, a and b.

    Attributes
    ----------
    to_b : float64 of shape (len(a), 2)
        From each row of a to the nearest and the second nearest of b; inf where there is none.
    to_a : float64 of shape (len(b),)
        From each row of b to the nearest of a.
    """

    to_b: np.ndarray
    to_a: np.ndarray


def find_neighbours(a: Points, b: Points, *, n_jobs: int | None = None) -> Neighbours:
    """The nearest rows in both directions; memory grows with the rows, not with their product."""
    from joblib import Parallel, delayed, effective_n_jobs
    from threadpoolctl import threadpool_limits

    left, right = _padded(a.left, 0), _padded(b.right, 1)
    n_jobs = min(effective_n_jobs(n_jobs), -(-len(left) // _ROWS))
    rare = [b.rare[i : i + _COLUMNS].T.tocsr() for i in range(0, len(right), _COLUMNS)]
    starts = np.array_split(np.arange(0, len(left), _ROWS), n_jobs)
    # of products of this size, several at once are faster than each by several threads
    with threadpool_limits(limits=1, user_api="blas"):
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(_scan)(a, b, left, right, rare, each.tolist()) for each in starts
        )
    minima, groups = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    best = np.argsort(minima, axis=0)[:2]
    groups = np.take_along_axis(groups, best, axis=0).T  # (len(b), 2)
    members = groups[:, :, None] * _GROUP + np.arange(_GROUP)
    to_a = _nearest(b, np.arange(len(b)), a, members.reshape(len(b), -1), 1)[:, 0]
    return Neighbours(np.concatenate([part[0] for part in parts]), to_a)


def _padded(features: np.ndarray, added: int) -> np.ndarray:
    """With rows that are far from all others, up to whole groups."""
    n_rows = -(-len(features) // _GROUP) * _GROUP
    padded = np.zeros((n_rows, features.shape[1]), dtype=np.float32)
    padded[: len(features)] = features
    padded[len(features) :, added] = _FAR
    return padded


def _scan(
    a: Points,
    b: Points,
    left: np.ndarray,
    right: np.ndarray,
    rare: list[Any],
    starts: list[int],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some blocks of rows of a, against all of b.

    Returns
    -------
    to_b : of shape (n_rows, 2)
    minima, groups : of shape (2, len(b))
        The least squared distances of each row of b to two of the groups of 32 rows of a, and
        which groups these are.
    """
    n_a, n_b = len(a), len(b)
    to_b = []
    minima = np.full((2, n_b), np.inf, dtype=np.float32)
    groups = np.zeros((2, n_b), dtype=np.int64)
    for start in starts:
        block, rare_here = left[start : start + _ROWS], a.rare[start : start + _ROWS]
        least = np.empty((len(block), len(right) // _GROUP), dtype=np.float32)
        for first in range(0, len(right), _COLUMNS):
            columns = slice(first, first + _COLUMNS)
            squared = block @ right[columns].T
            if rare_here.nnz:
                _take_rare(squared, rare_here, rare[first // _COLUMNS])
            width = squared.shape[1] // _GROUP
            # a group is every width-th row of b: minima of whole vectors
            here = slice(first // _GROUP, first // _GROUP + width)
            least[:, here] = _least_of_groups(squared.reshape(len(block), _GROUP, width))
            of_b = slice(first, min(first + _COLUMNS, n_b))
            by_group = _least_of_groups(squared.reshape(-1, _GROUP, squared.shape[1]))
            _keep_two(minima[:, of_b], groups[:, of_b], by_group, start // _GROUP)
        rows = np.arange(start, min(start + _ROWS, n_a))
        to_b.append(_nearest(a, rows, b, _candidates(least[: len(rows)], len(right)), 2))
    return np.concatenate(to_b), minima, groups


def _least_of_groups(squared: np.ndarray) -> np.ndarray:
    """The minimum over the middle axis, by halves: ``min`` takes three times as long."""
    while squared.shape[1] > 1:
        half = squared.shape[1] // 2
        squared = np.minimum(squared[:, :half], squared[:, half:])
    return squared[:, 0]


def _take_rare(squared: np.ndarray, a: Any, b: Any) -> None:
    """Take 1 for each rare category that a row and a column share."""
    equal = (a @ b).tocoo()
    squared[equal.coords] -= equal.data


def _keep_two(minima: np.ndarray, groups: np.ndarray, by_group: np.ndarray, first: int) -> None:
    """The least two minima so far, in place."""
    by_group = by_group[:, : minima.shape[1]]
    which = by_group.argmin(axis=0)
    least = np.take_along_axis(by_group, which[None], axis=0)[0]
    which = which + first
    second = least < minima[1]
    minima[1][second], groups[1][second] = least[second], which[second]
    swap = minima[1] < minima[0]
    minima[:, swap], groups[:, swap] = minima[::-1, swap], groups[::-1, swap]


def _candidates(least: np.ndarray, n_right: int) -> np.ndarray:
    """The rows of b in the three groups of least distance, of shape (n_rows, 96 or fewer).

    The nearest two are in two of them; the third is for what rounding leaves in the dark.
    """
    k = min(3, least.shape[1])
    group = np.argpartition(least, k - 1, axis=1)[:, :k]
    blocks, place = np.divmod(group, _COLUMNS // _GROUP)
    first = blocks * _COLUMNS
    width = np.minimum(_COLUMNS, n_right - first) // _GROUP
    members = (first + place)[:, :, None] + np.arange(_GROUP) * width[:, :, None]
    return members.reshape(len(least), -1)


def _nearest(a: Points, rows: np.ndarray, b: Points, candidates: np.ndarray, k: int) -> np.ndarray:
    """Distances of rows of a to the k nearest of their candidates in b; inf where there are fewer.

    Parameters
    ----------
    candidates : of shape (len(rows), n_candidates)
        Positions; those of b's length and more are no rows.
    """
    nearest = np.empty((len(rows), k))
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        i, j = rows[part, None], candidates[part]
        real, j = j < len(b), np.minimum(j, len(b) - 1)
        off = a.numbers[i] - b.numbers[j]  # (rows, candidates, numbers)
        one_missing = np.isnan(a.numbers[i]) != np.isnan(b.numbers[j])
        squared = (np.where(np.isnan(off), one_missing, off) ** 2).sum(axis=2)
        squared += (a.codes[i] != b.codes[j]).sum(axis=2)
        squared[~real] = np.inf
        nearest[part] = np.sort(squared, axis=1)[:, :k]
    return np.sqrt(nearest / a.n_columns)
