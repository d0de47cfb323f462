"""Data of a fit, from arguments to encoded rows: checks, weights, validation split, targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
)
from torch import Tensor

from combutab._random import Purpose, derive
from combutab.estimators.fitting._class_weights import check_weights
from combutab.preprocessing import EncodedTable
from combutab.training import Rows, RowStream

_EXACT = 1 << 53  # integers up to here are float64's own
# Beyond, a prediction a few standard deviations away could not be written down
_LARGEST = 1e300


@dataclass(frozen=True)
class Prepared:
    """Encoded data of one fit: all rows, and which of them train and which validate.

    With a stream, its rows train, and ``rows`` are the validation rows alone.
    """

    rows: Rows
    train: Tensor
    val: Tensor | None
    stream: RowStream | None = None

    @property
    def n_train(self) -> int:
        """Training rows."""
        return len(self.train) if self.stream is None else self.stream.n_rows


def check_given(
    X: Any, y: Any, X_val: Any, y_val: Any, *, solver: str, name: str
) -> tuple[Any, Any]:
    """Refuse arguments of ``fit`` that do not go together; return both tables, indexable."""
    if (X_val is None) != (y_val is None):
        given = "X_val" if y_val is None else "y_val"
        raise ValueError(f"X_val and y_val go together, got only {given}")
    if X_val is not None and solver == "lbfgs":
        raise ValueError("solver='lbfgs' takes no X_val and y_val: it does not stop early")
    if y is None:
        raise ValueError(
            f"This {name} estimator requires y to be passed, but the target y is None."
        )
    X, X_val = _indexable(X), _indexable(X_val)
    check_consistent_length(X, y)
    _check_no_missing(y)
    if X_val is not None:
        check_consistent_length(X_val, y_val)
        _check_no_missing(y_val)
    return X, X_val


def _indexable(X: Any) -> Any:
    """Formats whose rows cannot be picked, some sparse ones among them, as ones that can."""
    if X is not None and not hasattr(X, "__getitem__") and hasattr(X, "__array__"):
        return np.asarray(X)
    if scipy.sparse.issparse(X):
        return X.tocsr()
    return X.to_pandas() if type(X).__module__.startswith("pyarrow") else X


def _check_no_missing(y: Any) -> None:
    """Missing text labels, which scikit-learn's checks pass over."""
    if scipy.sparse.issparse(y):
        return
    labels = np.asarray(y)
    if labels.ndim and labels.dtype.kind in "OT" and pd.isna(labels).any():
        raise ValueError("Input y contains NaN (missing values); drop those rows first")


def weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray]:
    """Leave out rows of weight 0, which must not shape the encoding either.

    Raises ValueError if nothing is left, or a weight is none.
    """
    n_rows = _num_samples(X)
    weight = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64, ensure_non_negative=True
    )
    check_weights(weight, "sample_weight")
    kept = np.flatnonzero(weight)
    if not len(kept):
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    if len(kept) == n_rows:
        return X, y, weight
    return _safe_indexing(X, kept), _safe_indexing(y, kept), weight[kept]


def split_rows(
    n_rows: int, fraction: float, seed: int, stratify: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training and of the validation rows, increasing.

    Raises ValueError if there would be fewer than two of the latter.
    """
    if np.ceil(fraction * n_rows) < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or the size of your "
            f"dataset: validation_fraction={fraction} of {n_rows} rows."
        )
    train, val = train_test_split(
        np.arange(n_rows),
        test_size=fraction,
        random_state=derive(seed, Purpose.SPLIT) % (1 << 32),
        stratify=stratify,
    )
    return np.sort(train), np.sort(val)


def encoded_rows(
    table: EncodedTable, target: np.ndarray, weight: np.ndarray | None, dtype: torch.dtype
) -> Rows:
    """Encode rows as the tensors that a network takes."""
    y = torch.from_numpy(np.ascontiguousarray(target))
    return Rows(
        torch.from_numpy(table.dense).to(dtype),
        y if y.dtype == torch.int64 else y.to(dtype),
        torch.from_numpy(table.codes) if table.codes.shape[1] else None,
        None if weight is None else torch.from_numpy(weight).to(dtype),
    )


def concatenated(tables: Sequence[Rows]) -> Rows:
    """All of them, one below the other; where some have weights, rows of others weigh 1."""
    if len(tables) == 1:
        return tables[0]

    def cat(tensors: Iterable[Tensor | None]) -> Tensor | None:
        present = [t for t in tensors if t is not None]
        return torch.cat(present) if present else None

    weight = None
    if any(t.weight is not None for t in tables):
        weight = torch.cat(
            [torch.ones_like(t.dense[:, 0]) if t.weight is None else t.weight for t in tables]
        )
    return Rows(
        torch.cat([t.dense for t in tables]),
        torch.cat([t.y for t in tables]),
        cat(t.codes for t in tables),
        weight,
    )


def as_numbers(y: Any, where: str = "") -> np.ndarray:
    """Targets, (n,) or (n, n_targets) of numbers, as float64; ``where`` ends what is said of inf.

    Raises ValueError if float64 takes some that differ for one another, or they are as large as it
    goes.
    """
    values = np.asarray(y)
    if values.dtype.kind in "mM":
        raise ValueError(
            f"y holds {values.dtype}, not numbers; subtract a date and divide by a unit, such as "
            "np.timedelta64(1, 'D')"
        )
    numbers = values.astype(np.float64)
    for column, exact in zip(numbers.reshape(len(values), -1).T, _exact(values), strict=True):
        size = np.abs(column).max(initial=0.0)
        if np.isinf(size):
            raise ValueError(
                "Input y contains infinity or a value too large for dtype('float64')"
                f"{where and f' in {where}'}."
            )
        if size > _LARGEST:
            raise ValueError(
                f"y has values up to {size:.3g}, which leaves no room in float64 for predictions "
                f"beyond them; divide y by {size:.0e}"
            )
        if exact is not None and size >= _EXACT:
            different = len(set(exact.tolist()))
            if len(np.unique(column)) < different:
                raise ValueError(
                    f"y has {different} different integers up to {size:.3g}, some of which are "
                    f"equal as float64 (exact to 2**53); subtract {min(exact.tolist())} first"
                )
    return numbers


def _exact(values: np.ndarray) -> list[np.ndarray | None]:
    """The columns that hold integers."""
    columns = list(values.reshape(len(values), -1).T)
    if values.dtype.kind in "iu":
        return [*columns]
    if values.dtype.kind == "O":
        return [c if all(isinstance(v, Integral) for v in c) else None for c in columns]
    return [None] * len(columns)
