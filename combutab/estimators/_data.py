"""From the arguments of ``fit`` to encoded rows: checks, weights, validation split, encoding."""

from __future__ import annotations

from dataclasses import dataclass
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

from combutab._device import Precision, mind_forks
from combutab._random import Purpose, derive, seed_from
from combutab.estimators._class_weights import check_weights
from combutab.preprocessing import EncodedTable, TableEncoder
from combutab.training import Rows, RowStream


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


def prepare(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    X_val: Any,
    y_val: Any,
    *,
    fresh: bool,
) -> Prepared:
    """Check and encode the data of a fit; sets ``encoder_`` and what the target teaches.

    The encoding is learned (``fresh``) on the training rows alone.
    """
    mind_forks()
    if (X_val is None) != (y_val is None):
        given = "X_val" if y_val is None else "y_val"
        raise ValueError(f"X_val and y_val go together, got only {given}")
    if X_val is not None and estimator.solver == "lbfgs":
        raise ValueError("solver='lbfgs' takes no X_val and y_val: it does not stop early")
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target "
            "y is None."
        )
    X, X_val = _indexable(X), _indexable(X_val)
    check_consistent_length(X, y)
    _check_no_missing(y)
    weight = None
    if sample_weight is not None:
        X, y, weight = _weighted_rows(X, y, sample_weight)
    target = estimator._encode_target(y, weight, reset=fresh)
    target_val = weight_val = None
    if X_val is not None:
        check_consistent_length(X_val, y_val)
        _check_no_missing(y_val)
        target_val = estimator._encode_target(y_val, None, reset=False, validation=True)
    elif estimator.early_stopping and estimator.solver != "lbfgs":  # as in scikit-learn
        train, val = _split(estimator, target)
        X, X_val = _safe_indexing(X, train), _safe_indexing(X, val)
        target, target_val = target[train], target[val]
        if weight is not None:
            weight, weight_val = weight[train], weight[val]
    total = estimator._total_weight(target, weight)
    if total is not None:
        check_weights(total, "class_weight times sample_weight")
        if not total.any():
            raise ValueError("class_weight leaves every row with weight 0: nothing is left to fit")
    if fresh:
        estimator.encoder_ = TableEncoder(
            categorical_features=estimator.categorical_features,
            numeric=estimator.numeric_encoding,
            max_onehot=estimator.max_onehot,
            min_frequency=estimator.min_frequency,
        )
        table = estimator.encoder_.fit_encode(X, weight, owner=estimator)
    else:
        table = estimator.encoder_.encode(X, owner=estimator)
    dtype = Precision(estimator.precision).dtype
    rows = _rows(table, target, total, dtype)
    train_rows = torch.arange(len(target))
    if target_val is None:
        return Prepared(rows, train_rows, None)
    val_table = estimator.encoder_.encode(X_val, owner=estimator)
    rows = _append(rows, _rows(val_table, target_val, weight_val, dtype))
    return Prepared(rows, train_rows, torch.arange(len(target), len(rows.dense)))


def _indexable(X: Any) -> Any:
    """Sparse formats and pyarrow tables whose rows cannot be picked, as ones that can."""
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


def _weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray]:
    """Leave out rows of weight 0, which must not shape the encoding either."""
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


def _split(estimator: Any, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training and of the validation rows, increasing."""
    if np.ceil(estimator.validation_fraction * len(target)) < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or the size of your "
            f"dataset: validation_fraction={estimator.validation_fraction} of {len(target)} rows."
        )
    seed = derive(seed_from(estimator.random_state), Purpose.SPLIT) % (1 << 32)
    train, val = train_test_split(
        np.arange(len(target)),
        test_size=estimator.validation_fraction,
        random_state=seed,
        stratify=estimator._stratify(target),
    )
    return np.sort(train), np.sort(val)


def _rows(
    table: EncodedTable, target: np.ndarray, weight: np.ndarray | None, dtype: torch.dtype
) -> Rows:
    y = torch.from_numpy(np.ascontiguousarray(target))
    return Rows(
        torch.from_numpy(table.dense).to(dtype),
        y if y.dtype == torch.int64 else y.to(dtype),
        torch.from_numpy(table.codes) if table.codes.shape[1] else None,
        None if weight is None else torch.from_numpy(weight).to(dtype),
    )


def _append(rows: Rows, more: Rows) -> Rows:
    codes = weight = None
    if rows.codes is not None and more.codes is not None:
        codes = torch.cat([rows.codes, more.codes])
    if rows.weight is not None or more.weight is not None:
        weight = torch.cat(
            [torch.ones_like(r.dense[:, 0]) if r.weight is None else r.weight for r in (rows, more)]
        )
    return Rows(torch.cat([rows.dense, more.dense]), torch.cat([rows.y, more.y]), codes, weight)
