"""Which rows each member trains on, and which it is scored on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold

from combutab._random import Purpose, derive
from combutab.estimators._base import BaseMLP
from combutab.estimators.fitting import Prepared

_MIN_ROWS = 50  # of fewer, a part would tell next to nothing of the networks


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


def split_folds(prepared: Prepared, cv: int, seed: int, estimator: Any) -> list[Prepared]:
    """Split all rows into folds, stratified for classes: each sets one aside.

    Raises ValueError if there are too few rows, or of a class.
    """
    n_rows = prepared.n_train
    if cv > n_rows:
        raise ValueError(f"cv={cv} needs as many rows, got n_samples={n_rows}; use cv=None")
    target = prepared.rows.y.numpy()
    labels = estimator._stratify(target)  # a plain one's: whatever a hold-out could have
    splitter: Any = KFold
    if labels is not None:
        labels = labels.reshape(-1)
        numbers, counts = np.unique(labels, return_counts=True)
        if counts.min() < cv:
            rarest = estimator._decode_target(numbers[[counts.argmin()]])[0]
            raise ValueError(
                f"cv={cv} needs as many rows of each class, y has {counts.min()} of {rarest!r}; "
                "use a smaller cv, or cv=None"
            )
        splitter = StratifiedKFold
    random_state = derive(seed, Purpose.SPLIT) % (1 << 32)
    splits = splitter(cv, shuffle=True, random_state=random_state).split(target, labels)
    return [
        Prepared(prepared.rows, torch.from_numpy(train), torch.from_numpy(held_out))
        for train, held_out in splits
    ]
