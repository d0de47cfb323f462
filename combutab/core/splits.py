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
