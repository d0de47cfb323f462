"""Which rows each member trains on, and which it is scored on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils.validation import _num_samples

from combutab._random import Purpose, derive
from combutab.estimators._base import BaseMLP
from combutab.estimators.fitting import Prepared

_MIN_ROWS = 50  # of fewer, a part would tell next to nothing of the networks
_Splits = Iterable[tuple[np.ndarray, np.ndarray]]


class HoldsOut(BaseMLP):
    """How the estimator that encodes a pack's table sets rows aside."""

    def _stops_early(self, n_rows: int) -> bool:
        return n_rows >= _MIN_ROWS

    def _stratify(self, target: np.ndarray) -> np.ndarray | None:
        labels = super()._stratify(target)
        n_held_out = np.ceil(self.validation_fraction * len(target))
        if labels is None or len(np.unique(labels)) > min(n_held_out, len(target) - n_held_out):
            return None
        return labels


def split_folds(prepared: Prepared, cv: int, seed: int, estimator: BaseMLP) -> list[Prepared]:
    """Split all rows into folds, stratified for classes: each sets one aside.

    Raises ValueError if there are too few rows, or of a class.
    """
    n_rows = prepared.n_train
    if cv > n_rows:
        raise ValueError(f"cv={cv} needs as many rows, got n_samples={n_rows}; use cv=None")
    target = prepared.rows.y.numpy()
    labels = estimator._stratify(target)
    splitter: Any = KFold
    if labels is not None:
        labels = labels.reshape(-1)
        numbers, counts = np.unique(labels, return_counts=True)
        if counts.min() < cv:
            rarest = estimator._decode_target(numbers[[counts.argmin()]]).tolist()[0]
            raise ValueError(
                f"cv={cv} needs as many rows of each class, y has {counts.min()} of {rarest!r}; "
                "use a smaller cv, or cv=None"
            )
        splitter = StratifiedKFold
    random_state = derive(seed, Purpose.SPLIT) % (1 << 32)
    splits = splitter(cv, shuffle=True, random_state=random_state).split(target, labels)
    return _folds(prepared, splits)


def given_folds(prepared: Prepared, cv: Any, X: Any, y: Any, sample_weight: Any) -> list[Prepared]:
    """The folds of a splitter, or of an iterable of (training rows, rows set aside).

    Raises ValueError if a fold lacks rows, or has one on both sides.
    """
    weights = np.ones(_num_samples(X)) if np.ndim(sample_weight) == 0 else np.asarray(sample_weight)
    kept = weights > 0
    positions = np.cumsum(kept) - 1  # rows of weight 0 are gone
    splits = []
    for sides in check_cv(cv).split(X, y):
        train, held_out = (positions[np.asarray(s)[kept[np.asarray(s)]]] for s in sides)
        n_both = len(np.intersect1d(train, held_out))
        if n_both or not len(train) or not len(held_out):
            raise ValueError(
                f"cv={cv!r} has a fold of {len(train)} rows that train and {len(held_out)} that "
                f"are set aside, {n_both} of them both; each row may have one part, and each part "
                "needs rows"
            )
        splits.append((train, held_out))
    return _folds(prepared, splits)


def _folds(prepared: Prepared, splits: _Splits) -> list[Prepared]:
    return [
        Prepared(prepared.rows, torch.from_numpy(train), torch.from_numpy(held_out))
        for train, held_out in splits
    ]
