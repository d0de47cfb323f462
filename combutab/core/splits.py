"""Splits of rows as the user says: a splitter, pairs of rows, a mask or fold numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv
from sklearn.utils.validation import _num_samples

from combutab.core.world import broadcast


def validation_splits(
    given: Any, name: str, X: Any, y: Any, groups: Any, weight: Any = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and validation rows of each split that the parameter ``name`` gives.

    ``given`` is a splitter, an iterable of (train, test), or an array: a mask of the validation
    rows, their positions, or a fold for each row. Rows of ``weight`` 0 are left out and not
    counted.

    Raises ValueError if a split lacks rows, or has one on both sides.
    """
    n_rows = _num_samples(X)
    shown = repr(given) if hasattr(given, "split") else name
    try:
        splits = [
            [np.arange(n_rows)[np.asarray(side)] for side in sides]
            for sides in check_cv(_as_cv(given, name, n_rows)).split(X, y, groups)
        ]
    except (ValueError, TypeError, IndexError) as error:
        way_out = "; give groups to fit" if groups is None and "groups" in str(error) else ""
        raise ValueError(f"{name} cannot split these {n_rows} rows: {error}{way_out}") from error
    kept = np.ones(n_rows, dtype=bool) if np.ndim(weight) == 0 else np.asarray(weight) > 0
    positions = np.cumsum(kept) - 1  # rows of weight 0 are gone
    if not splits:
        raise ValueError(f"{shown} sets no row aside")
    found = []
    for rows in splits:
        train, val = (positions[side[kept[side]]] for side in rows)
        n_both = len(np.intersect1d(train, val))
        if n_both or not len(train) or not len(val):
            raise ValueError(
                f"{shown} has a split of {len(train)} training and {len(val)} validation rows, "
                f"{n_both} of them in both; each part needs rows, and no row may be in both"
            )
        found.append((np.sort(train), np.sort(val)))
    return broadcast(found)  # a splitter may draw


def validation_parts(
    y: np.ndarray, n_parts: int, groups: np.ndarray | None = None, *, in_order: bool = False
) -> np.ndarray:
    """Divide validation rows into parts, of which each is scored by what the others choose.

    Parts have equal shares of the classes, or similar targets ``y``. Rows of one of the ``groups``
    are in the same part. With ``in_order``, as for rows in order of time, parts are blocks of
    neighbouring rows.

    Returns
    -------
    ndarray of shape (n_rows,)
        Numbers of the parts, from 0: ``n_parts`` of them, or fewer where there are few rows or
        groups.
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
    shuffled = np.random.default_rng(0).permutation(len(units))
    first = y.reshape(n_rows, -1)[:, 0].astype(np.float64)
    means = np.bincount(unit_of_row, first) / np.bincount(unit_of_row)
    order = shuffled[np.argsort(means[shuffled], kind="stable")]
    part_of_unit = np.empty(len(units), dtype=np.int64)
    part_of_unit[order] = np.arange(len(units)) % n_parts
    return part_of_unit[unit_of_row]


_FEWEST_BLOCKS = 10


def neighbour_blocks(n_rows: int) -> np.ndarray:
    """Number blocks of neighbouring rows, whose scores may depend on one another: (n_rows,).

    A block has about as many rows as there are blocks, but there are at least ten.

    >>> neighbour_blocks(12).tolist()
    [0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    """
    n_blocks = max(_FEWEST_BLOCKS, round(n_rows**0.5))
    return np.arange(n_rows) * n_blocks // max(n_rows, 1)


def _as_cv(given: Any, name: str, n_rows: int) -> Any:
    """What ``check_cv`` takes, of what may be an array."""
    if hasattr(given, "split"):
        return given
    if not hasattr(given, "__array__"):
        given = list(given)
        if given and not np.isscalar(given[0]):  # pairs of training and validation rows
            return given
    values = np.asarray(np.asarray(given).tolist())  # pandas' own booleans as numpy's
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
    chosen = np.full(n_rows, -1)
    chosen[values] = 0
    return PredefinedSplit(chosen)
