"""Groups of models of which no two can be told apart."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

Clique = tuple[Hashable, ...]


def maximal_cliques(alike: pd.DataFrame) -> tuple[Clique, ...]:
    """Return all groups of two or more that are alike pair by pair and cannot be enlarged.

    Parameters
    ----------
    alike : DataFrame of bool, shape (n, n), symmetric
        The diagonal does not matter.

    Returns
    -------
    tuple of tuples of labels, members and groups in the order of the labels

    References
    ----------
    C. Bron and J. Kerbosch, "Algorithm 457: finding all cliques of an undirected graph",
    Communications of the ACM 16, 1973.
    """
    neighbours = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(alike.to_numpy())]
    found: list[list[int]] = []

    def grow(clique: set[int], candidates: set[int], seen: set[int]) -> None:
        if not candidates and not seen:
            found.append(sorted(clique))
            return
        # Of a pivot and its neighbours, a group without the pivot holds a stranger to it
        pivot = max(candidates | seen, key=lambda i: len(neighbours[i] & candidates))
        for i in sorted(candidates - neighbours[pivot]):
            grow(clique | {i}, candidates & neighbours[i], seen & neighbours[i])
            candidates, seen = candidates - {i}, seen | {i}

    grow(set(), set(range(len(alike))), set())
    labels = list(alike.index)
    return tuple(tuple(labels[i] for i in clique) for clique in sorted(found) if len(clique) > 1)
