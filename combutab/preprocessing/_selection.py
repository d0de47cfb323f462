"""The columns that the user calls categorical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def categorical_mask(
    categorical_features: Any, names: Sequence[Any] | None, n_columns: int
) -> np.ndarray | None:
    """The parameter `categorical_features` as a mask, (n_columns,); None for "from_dtype".

    It is that, None, or a mask, positions or names, as in HistGradientBoostingClassifier.

    >>> categorical_mask(["b"], ["a", "b"], 2)
    array([False,  True])
    >>> categorical_mask([-1], None, 3)
    array([False, False,  True])
    """
    if isinstance(categorical_features, str):  # "from_dtype": the only one that is valid
        return None
    mask = np.zeros(n_columns, dtype=bool)
    if categorical_features is None or len(categorical_features) == 0:
        return mask
    chosen = np.asarray(categorical_features)
    if chosen.dtype.kind in "UOT":
        return _by_name(list(categorical_features), mask, names)
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(
            "categorical_features must be a mask, positions or column names, got "
            f"{categorical_features!r}"
        )
    if chosen.dtype.kind == "b":
        if len(chosen) != n_columns:
            raise ValueError(
                f"categorical_features is a mask of length {len(chosen)}, but X has {n_columns} "
                "columns; give one truth value a column"
            )
        return chosen.copy()
    outside = [int(j) for j in chosen if not -n_columns <= j < n_columns]
    if outside:
        raise ValueError(
            f"categorical_features has positions {outside}, but X has {n_columns} columns; "
            f"positions lie in 0 to {n_columns - 1}"
        )
    mask[chosen.astype(np.intp)] = True
    return mask


def _by_name(chosen: list[Any], mask: np.ndarray, names: Sequence[Any] | None) -> np.ndarray:
    if names is None:
        raise ValueError(
            f"categorical_features={chosen!r} are names, but X has none; pass a DataFrame, or "
            "positions"
        )
    position = {name: j for j, name in enumerate(names)}
    unknown = [name for name in chosen if name not in position]
    if unknown:
        raise ValueError(
            f"categorical_features has {unknown}, which X lacks; its columns are {list(names)}"
        )
    mask[[position[name] for name in chosen]] = True
    return mask
