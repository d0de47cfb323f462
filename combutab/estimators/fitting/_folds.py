"""bagging="cv": each member of an ensemble validates on a fold of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold
from torch import Tensor

from combutab._random import Purpose, derive


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
    state = derive(seed, Purpose.SPLIT) % (1 << 32)
    if labels is None:
        folds = KFold(n_members, shuffle=True, random_state=state).split(kept)
    else:
        names, counts = np.unique(labels, return_counts=True)
        if counts.min() < n_members:
            rarest = names[counts.argmin()]
            raise ValueError(
                f"bagging='cv' needs a row of each class in every fold: {n_members=} is too many "
                f"for class {rarest}, which has {counts.min()} row(s); lower n_members, or leave "
                "that class out"
            )
        stratified = StratifiedKFold(n_members, shuffle=True, random_state=state)
        folds = stratified.split(kept, labels)
    return Folds(tuple(torch.from_numpy(np.sort(fold)) for _, fold in folds), kept, n_given)
