"""Early stopping of generators by a statistic of rows held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from combutab.generators._records import NetworkT, TableRows
from combutab.generators.sampling import Sampler
from combutab.nn import StackedNetwork

MAX_ROWS = 1000  # held out


class Validation:
    """A statistic of each member by epoch, the less the better, and its best weights.

    ``name`` is the statistic's among a training's curves, and ``measure`` gives it, (M,). A member
    is finished after ``patience`` epochs without a lower one.
    """

    def __init__(
        self,
        name: str,
        measure: Callable[[], np.ndarray],
        network: StackedNetwork,
        patience: float,
    ) -> None:
        self.name, self.measure, self.network, self.patience = name, measure, network, patience
        self.best = np.full(network.n_members, np.inf)
        self.best_states: list[dict[str, Tensor]] = [{} for _ in self.best]
        self.n_iter_no_improvement = np.zeros(len(self.best), dtype=int)
        self.n_epochs = np.zeros(len(self.best), dtype=int)

    @property
    def finished(self) -> np.ndarray:
        """Find the members that have not become better for too long."""
        return self.n_iter_no_improvement >= self.patience

    def observe(self, values: np.ndarray) -> None:
        """Take in an epoch's statistics, and keep the weights of members that became better."""
        for m in np.flatnonzero(self._count(values)):
            self.best_states[m] = self.network.member_state(int(m))

    def restore(self, curve: Sequence[np.ndarray], states: list[dict[str, Tensor]]) -> None:
        """Stand where these epochs' statistics, and the best weights among them, lead."""
        for values in curve:
            self._count(values)
        self.best_states = states

    def _count(self, values: np.ndarray) -> np.ndarray:
        going = ~self.finished
        better = going & (values < self.best)
        self.best[better] = values[better]
        self.n_iter_no_improvement[going] += 1
        self.n_iter_no_improvement[better] = 0
        self.n_epochs[going] += 1
        return better


class EnergyDistance:
    """The energy distance of each member's rows to rows held out, (M,) a call.

    The sampler is about the network in training. There is a key a member, for the same noise each
    time, so that the distances differ by the weights.
    """

    def __init__(self, rows: TableRows, sampler: Sampler[NetworkT], keys: Sequence[int]) -> None:
        self.rows, self.sampler, self.keys = rows, sampler, list(keys)
        self._within = _mean_distance(rows.values, rows.codes)

    def __call__(self) -> np.ndarray:
        assert self.sampler.network is not None
        self.sampler.network.eval()
        values, codes = self.sampler.generate_stack(self.keys, len(self.rows))
        return np.array([self._one(v, c) for v, c in zip(values, codes, strict=True)])

    def _one(self, values: Tensor, codes: Tensor) -> float:
        # Székely and Rizzo (2013): 0 where the distributions are equal, else positive
        between = _distances(values, codes, self.rows.values, self.rows.codes).mean()
        return float(2 * between - _mean_distance(values, codes) - self._within)


def _distances(values: Tensor, codes: Tensor, values_2: Tensor, codes_2: Tensor) -> Tensor:
    """Euclidean distances (n, m) of encoded rows, their codes as one-hot vectors."""
    squares = torch.cdist(values.double(), values_2.double()).square_()
    unequal = torch.cdist(codes.double(), codes_2.double(), p=0)
    return squares.add_(unequal, alpha=2).sqrt_()


def _mean_distance(values: Tensor, codes: Tensor) -> float:
    """Return the mean distance of two different rows."""
    n = len(codes)
    return float(_distances(values, codes, values, codes).sum()) / (n * (n - 1))
