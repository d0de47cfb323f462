"""Nearest rows of another table, exactly, by blocks of matrix products.

scikit-learn's NearestNeighbors has no distance for missing values beside numbers, and takes the
categories as one-hot columns: thousands of them, where a column holds names, are several times the
work here, dense or sparse; dense, they are also rows x categories of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from combutab.evaluation.synthetic.privacy._points import Points

# Of a block of squared distances only the minimum of each group of rows is kept. Products round
# what is near 0, so the distances to the groups that may hold the nearest row are computed anew.
_ROWS, _COLUMNS, _GROUP = 256, 1024, 32
_FAR = 1e30


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

    n_blocks = -(-len(a) // _ROWS)
    n_jobs = min(effective_n_jobs(n_jobs), n_blocks)
    shares = np.array_split(np.arange(n_blocks) * _ROWS, n_jobs)
    columns = _blocks(b)
    # of products of this size, several at once are faster than each by several threads
    with threadpool_limits(limits=1, user_api="blas"):
        parts = Parallel(n_jobs=n_jobs, backend="threading")(
            delayed(_scan)(a, b, columns, starts.tolist()) for starts in shares
        )
    minima, groups = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
    best = np.argsort(minima, axis=0)[:2]
    groups = np.take_along_axis(groups, best, axis=0).T  # (len(b), 2)
    members = groups[:, :, None] * _GROUP + np.arange(_GROUP)
    to_a = _nearest(b, np.arange(len(b)), a, members.reshape(len(b), -1), 1)[:, 0]
    return Neighbours(np.concatenate([part[0] for part in parts]), to_a)


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of b, transposed, of whole groups: those that are added are far from all others."""

    first: int
    right: np.ndarray  # (width, n)
    dense: np.ndarray  # (n_dense, n)
    rare: Any  # (n_rare, n or fewer)


def _blocks(b: Points) -> list[_Block]:
    blocks = []
    for first in range(0, len(b), _COLUMNS):
        rows = slice(first, first + _COLUMNS)
        right, dense = _whole_groups(b.right[rows]), _whole_groups(b.dense[rows])
        right[len(b) - first :, 1] = _FAR
        blocks.append(_Block(first, right.T, dense.T, b.rare[rows].T.tocsr()))
    return blocks


def _whole_groups(rows: np.ndarray) -> np.ndarray:
    added = np.zeros((-len(rows) % _GROUP, rows.shape[1]), dtype=rows.dtype)
    return np.concatenate([rows, added])


def _scan(
    a: Points, b: Points, blocks: list[_Block], starts: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the nearest rows of b for some blocks of rows of a, and the other way round.

    Returns (n_rows, 2), and twice (2, len(b)): the least squared distances of each row of b to two
    of the groups of 32 rows of a, and which groups these are.
    """
    to_b = []
    minima = np.full((2, len(b)), np.inf)
    groups = np.zeros((2, len(b)), dtype=np.int64)
    for start in starts:
        rows = slice(start, min(start + _ROWS, len(a)))
        left, dense, rare = _whole_groups(a.left[rows]), _whole_groups(a.dense[rows]), a.rare[rows]
        left[len(a) - start :, 0] = _FAR
        least = []
        for block in blocks:
            squared = left @ block.right
            if dense.shape[1]:
                squared -= _shared(dense, rare, block)
            # a group is every width-th row of the block: minima of whole vectors
            width = squared.shape[1] // _GROUP
            least.append(_least_of_groups(squared.reshape(len(left), _GROUP, width)))
            by_group = _least_of_groups(squared.reshape(-1, _GROUP, squared.shape[1]))
            of_b = slice(block.first, block.first + _COLUMNS)
            _keep_two(minima[:, of_b], groups[:, of_b], by_group, start // _GROUP)
        positions = np.arange(rows.start, rows.stop)
        nearest = _candidates(np.hstack(least)[: len(positions)], blocks)
        to_b.append(_nearest(a, positions, b, nearest, 2))
    return np.concatenate(to_b), minima, groups


def _shared(dense: np.ndarray, rare: Any, block: _Block) -> np.ndarray:
    """Count the categories that each row shares with each row of the block."""
    shared = dense @ block.dense
    if rare.nnz:
        both = (rare @ block.rare).tocoo()
        shared[both.coords] += both.data
    return shared


def _least_of_groups(squared: np.ndarray) -> np.ndarray:
    """The minimum over the middle axis, by halves: ``min`` takes three times as long."""
    while squared.shape[1] > 1:
        half = squared.shape[1] // 2
        squared = np.minimum(squared[:, :half], squared[:, half:])
    return squared[:, 0]


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


def _candidates(least: np.ndarray, blocks: list[_Block]) -> np.ndarray:
    """The rows of b in the three groups of least distance, of shape (n_rows, 96 or fewer).

    The nearest two are in two of them; the third is for what rounding leaves open.
    """
    k = min(3, least.shape[1])
    group = np.argpartition(least, k - 1, axis=1)[:, :k]
    block, place = np.divmod(group, _COLUMNS // _GROUP)
    widths = np.array([each.right.shape[1] // _GROUP for each in blocks])
    members = (block * _COLUMNS + place)[:, :, None] + np.arange(_GROUP) * widths[block][:, :, None]
    return members.reshape(len(least), -1)


def _nearest(a: Points, rows: np.ndarray, b: Points, candidates: np.ndarray, k: int) -> np.ndarray:
    """Distances of rows of a to the k nearest of their candidates in b; inf where there are fewer.

    Candidates are positions, (len(rows), n_candidates); those of b's length and more are no rows.
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
