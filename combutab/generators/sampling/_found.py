"""Rows that meet conditions, taken from more rows that a network makes."""

from __future__ import annotations

import numpy as np

_ENOUGH = 200.0  # rows expected of plain rejection, for the greatest probability to be known


class Found:
    """Rows that meet conditions: those made so far that are to be kept, in their order.

    Whatever a network makes a row of (noise, and what it is asked for) gives codes that meet the
    conditions with a probability that is known, its `mass`. Plain rejection keeps the row with that
    probability. Any other factor of it gives the same distribution, as long as no row is kept with
    a probability above 1; so once plain rejection would have found enough rows for the greatest
    mass to be known, the factor is its inverse. Of rows that are rare because no noise makes them
    probable, many times as many are found, each of noise of its own.

    See Caffo, Booth and Davis (2002), "Empirical supremum rejection sampling".
    """

    def __init__(self, n_values: int, n_spans: int) -> None:
        self._values = np.empty((0, n_values), dtype=np.float32)
        self._codes = np.empty((0, n_spans), dtype=np.int64)
        self._ratios = np.empty(0)
        self._expected = self._greatest = 0.0

    def add(
        self, values: np.ndarray, codes: np.ndarray, mass: np.ndarray, uniform: np.ndarray
    ) -> None:
        """Take in n rows, whose codes were drawn among those that meet the conditions.

        ``mass`` is how probable such codes were, 0 for a row that does not meet other conditions,
        and ``uniform`` has draws on [0, 1); both are (n,).
        """
        self._expected += float(mass.sum())
        self._greatest = max(self._greatest, float(mass.max(initial=0.0)))
        ratios = np.concatenate([self._ratios, mass / (1 - uniform)])
        kept = ratios >= self._greatest if self._greatest else np.zeros(len(ratios), dtype=bool)
        self._ratios = ratios[kept]
        self._values = np.concatenate([self._values, values])[kept]
        self._codes = np.concatenate([self._codes, codes])[kept]

    def __len__(self) -> int:
        return int(self._counted().sum())

    def first(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of n rows, or of as many as there are."""
        counted = np.flatnonzero(self._counted())[:n]
        return self._values[counted], self._codes[counted]

    def _counted(self) -> np.ndarray:
        bar = self._greatest if self._expected >= _ENOUGH else 1.0
        counted: np.ndarray = self._ratios >= bar
        return counted
