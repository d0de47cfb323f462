"""Early stopping of generators by how far their rows are from rows held out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from combutab.generators._records import TableRows
from combutab.generators._sampling import Sampler

DISTANCE = "validation_distance"  # its name among a training's curves
MAX_ROWS = 1000  # held out: the distance is of all pairs of rows


class Validation:
    """The distance of each member's rows to held-out ones by epoch, and its best weights.

    Parameters
    ----------
    rows : TableRows
        Held out of the training.
    sampler : Sampler
        About the network in training.
    keys : sequence of int
        One a member. The same noise each epoch, so that the distances differ by the weights.
    patience : float
        Epochs without a shorter distance after which a member is finished.
    """

    def __init__(
        self, rows: TableRows, sampler: Sampler, keys: Sequence[int], patience: float
    ) -> None:
        assert sampler.network is not None
        self.network = sampler.network
        self.rows, self.sampler, self.keys, self.patience = rows, sampler, list(keys), patience
        self._within = _mean_distance(rows.values, rows.codes)
        self.best = np.full(len(self.keys), np.inf)
        self.best_states: list[dict[str, Tensor]] = [{} for _ in self.keys]
        self.n_idle = np.zeros(len(self.keys), dtype=int)
        self.n_epochs = np.zeros(len(self.keys), dtype=int)

    @property
    def finished(self) -> np.ndarray:
        """Which members have not come closer for too long."""
        return self.n_idle >= self.patience

    def measure(self) -> np.ndarray:
        """The energy distance of each member's rows to those held out, (M,)."""
        self.network.eval()
        values, codes = self.sampler.generate_stack(self.keys, len(self.rows))
        return np.array([self._distance(v, c) for v, c in zip(values, codes, strict=True)])

    def _distance(self, values: Tensor, codes: Tensor) -> float:
        # Székely and Rizzo (2013): 0 where the distributions are equal, else positive
        between = _distances(values, codes, self.rows.values, self.rows.codes).mean()
        return float(2 * between - _mean_distance(values, codes) - self._within)

    def observe(self, distances: np.ndarray) -> None:
        """Take in an epoch's distances, and keep the weights of members that came closer."""
        closer = self._count(distances)
        for m in np.flatnonzero(closer):
            self.best_states[m] = self.network.member_state(int(m))

    def restore(self, curve: Sequence[np.ndarray], states: list[dict[str, Tensor]]) -> None:
        """Stand where these epochs' distances, and the best weights among them, lead."""
        for distances in curve:
            self._count(distances)
        self.best_states = states

    def _count(self, distances: np.ndarray) -> np.ndarray:
        going = ~self.finished
        closer = going & (distances < self.best)
        self.best[closer] = distances[closer]
        self.n_idle[going] += 1
        self.n_idle[closer] = 0
        self.n_epochs[going] += 1
        return closer


def _distances(values: Tensor, codes: Tensor, values_2: Tensor, codes_2: Tensor) -> Tensor:
    """Euclidean distances (n, m) of encoded rows, their codes as one-hot vectors."""
    squares = torch.cdist(values.double(), values_2.double()).square_()
    unequal = torch.cdist(codes.double(), codes_2.double(), p=0)
    return squares.add_(unequal, alpha=2).sqrt_()


def _mean_distance(values: Tensor, codes: Tensor) -> float:
    """Between two different rows."""
    n = len(codes)
    return float(_distances(values, codes, values, codes).sum()) / (n * (n - 1))
