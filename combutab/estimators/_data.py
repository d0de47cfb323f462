"""The rows of a fit: checked, weighted, split, and encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
)
from torch import Tensor

from combutab.core.rng import Stream, fold_in
from combutab.estimators._targets import Target, check_weights
from combutab.preprocessing import EncodedTable, TableEncoder
from combutab.training import Rows, RowStream

# ---- bagging="cv": each member of an ensemble validates on a fold of its own ---------------------


@dataclass(frozen=True)
class Folds:
    """Validation rows of each member; together they are all rows, each once."""

    positions: tuple[Tensor, ...]  # among the encoded rows, increasing
    kept: np.ndarray  # (n,) where the encoded rows are in the table that fit was given
    n_given: int  # rows of that table
    scored_from: int = 0  # where a copy of the rows begins that weigh what they do in scores

    def split(self, i: int) -> tuple[Tensor, Tensor]:
        """Training and validation rows of member i."""
        trains = torch.ones(len(self.kept), dtype=torch.bool)
        trains[self.positions[i]] = False
        return trains.nonzero()[:, 0], self.positions[i] + self.scored_from

    @property
    def n_train(self) -> int:
        """Training rows of the member that has the fewest."""
        return len(self.kept) - max(map(len, self.positions))

    def in_given_order(self, values: np.ndarray) -> np.ndarray:
        """(n, ...) of the encoded rows -> (n_given, ...), NaN for rows that were left out."""
        if len(self.kept) == self.n_given:
            return values
        full = np.full((self.n_given, *values.shape[1:]), np.nan, dtype=values.dtype)
        full[self.kept] = values
        return full


def check_bagging(parameters: Mapping[str, Any]) -> None:
    """Refuse what does not go with a fold a member, before the data are seen."""
    if parameters["bagging"] is None:
        return
    n_members = parameters["n_members"]
    if n_members < 2:
        raise ValueError(
            f"bagging='cv' gives each member a fold of its own: it needs n_members of at least 2 "
            f"(5, say), got {n_members=}"
        )
    if parameters["solver"] == "lbfgs":
        raise ValueError(
            "bagging='cv' has each member keep its best epoch on its fold, and solver='lbfgs' has "
            "no epochs; use 'adam', 'adamw' or 'sgd', or bagging=None"
        )
    if parameters["warm_start"]:
        raise ValueError(
            "bagging='cv' with warm_start=True might validate members on rows that they have "
            "trained on; set warm_start=False, or bagging=None to go on from the fitted members"
        )


def member_folds(
    n_members: int, seed: int, labels: np.ndarray | None, kept: np.ndarray, n_given: int
) -> Folds:
    """As many folds as members, shuffled, with equal shares of each of the labels.

    Raises ValueError if there are too few rows, or of a label.
    """
    n_rows = len(kept)
    if n_rows < 2 * n_members:
        raise ValueError(
            f"bagging='cv' needs two rows a member at least: {n_members=} is too many for "
            f"n_samples={n_rows}"
        )
    splits = shuffled_folds(f"bagging='cv', {n_members=}", n_members, n_rows, seed, labels)
    return Folds(tuple(torch.from_numpy(np.sort(fold)) for _, fold in splits), kept, n_given)


def shuffled_folds(
    asked: str, n_folds: int, n_rows: int, seed: int, labels: np.ndarray | None
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Training and validation rows of each fold, with equal shares of each of the labels.

    Raises ValueError, beginning with what was ``asked``, if a label has too few rows.
    """
    state = fold_in(seed, Stream.SPLIT) % (1 << 32)
    if labels is None:
        return KFold(n_folds, shuffle=True, random_state=state).split(np.empty(n_rows))
    names, counts = np.unique(labels, return_counts=True)
    if counts.min() < n_folds:
        rarest = names[counts.argmin()]
        raise ValueError(
            f"{asked} needs a row of each class in every fold, and class {rarest} has "
            f"{counts.min()} row(s); use fewer folds, or leave that class out"
        )
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=state)
    return folds.split(np.empty(n_rows), labels)


# ---- Data of a fit, from arguments to encoded rows: checks, weights, validation split, targets


@dataclass(frozen=True)
class Prepared:
    """Encoded data of one fit: all rows, which of them train and which validate, and what encodes.

    With a stream, its rows train, and ``rows`` are the validation rows alone. With folds, each
    member trains on the rows of the others' folds.
    """

    rows: Rows
    train: Tensor
    val: Tensor | None
    encoder: TableEncoder
    target: Target
    stream: RowStream | None = None
    folds: Folds | None = None

    @property
    def n_train(self) -> int:
        """Training rows."""
        if self.folds is not None:
            return self.folds.n_train
        return len(self.train) if self.stream is None else self.stream.n_rows

    def splits(self, n_members: int) -> list[tuple[Tensor, Tensor | None]]:
        """Training and validation rows of each member."""
        if self.folds is None:
            return [(self.train, self.val)] * n_members
        return [self.folds.split(i) for i in range(n_members)]


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
    """Sparse formats, pyarrow tables and others whose rows cannot be picked, as ones that can."""
    if scipy.sparse.issparse(X):
        return X.tocsr()
    if type(X).__module__.startswith("pyarrow"):
        return X.to_pandas()
    if X is None or hasattr(X, "__getitem__") or hasattr(X, "iloc"):
        return X
    return np.asarray(X)


def _check_no_missing(y: Any) -> None:
    """Missing text labels, which scikit-learn's checks pass over."""
    if scipy.sparse.issparse(y):
        return
    labels = np.asarray(y)
    if labels.ndim and labels.dtype.kind in "OT" and pd.isna(labels).any():
        raise ValueError("Input y contains NaN (missing values); drop those rows first")


def weighted_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Leave out rows of weight 0, which must not shape the encoding either.

    The last of what is returned are the positions of the rows that are left.

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
        return X, y, weight, kept
    return _safe_indexing(X, kept), _safe_indexing(y, kept), weight[kept], kept


def split_rows(
    n_rows: int, fraction: float, seed: int, stratify: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training and of the validation rows, increasing.

    Raises ValueError if there would be fewer than two of the latter, or a label has one row.
    """
    if stratify is not None:
        _check_no_single(stratify)
    if np.ceil(fraction * n_rows) < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or the size of your "
            f"dataset: validation_fraction={fraction} of {n_rows} rows."
        )
    train, val = train_test_split(
        np.arange(n_rows),
        test_size=fraction,
        random_state=fold_in(seed, Stream.SPLIT) % (1 << 32),
        stratify=stratify,
    )
    return np.sort(train), np.sort(val)


def can_stratify(labels: np.ndarray, fraction: float) -> bool:
    """Tell whether both sides of a split can have rows of each label."""
    counts = np.unique(labels, return_counts=True)[1]
    n_val = int(np.ceil(fraction * len(labels)))
    return bool(counts.min() > 1 and len(counts) <= min(n_val, len(labels) - n_val))


def _check_no_single(labels: np.ndarray) -> None:
    """Refuse a class of one row, in scikit-learn's words."""
    names, counts = np.unique(labels, return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            "The least populated classes in y have only 1 member, which is too few. The minimum "
            "number of groups for any class cannot be less than 2. Classes with too few members "
            f"are: {[str(name) for name in names[counts < 2]]}; leave them out, or use "
            "early_stopping='auto', which then does not stratify, or early_stopping=False"
        )


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
    if any(t.weight is not None for t in tables):
        tables = [
            replace(t, weight=torch.ones_like(t.dense[:, 0])) if t.weight is None else t
            for t in tables
        ]

    def joined(tensors: Iterable[Tensor | None]) -> Tensor | None:
        present = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(present) if present else None

    return Rows(
        torch.cat([t.dense for t in tables]),
        torch.cat([t.y for t in tables]),
        joined(t.codes for t in tables),
        joined(t.weight for t in tables),
    )
