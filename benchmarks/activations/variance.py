"""Components of the variance of a balanced design: how much is the activation's?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from combutab.evaluation import Interval

REST = "rest"


def variance_components(
    values: np.ndarray, factors: Sequence[str], nested: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Estimate the components of variance by the analysis of variance, all factors random.

    Parameters
    ----------
    values : ndarray, an axis a factor
        One value a cell.
    factors : sequence of str
        Names of the axes.
    nested : mapping of str to str, optional
        Factors whose levels are others within each level of a second one, as splits in a table.

    Returns
    -------
    dict
        By the factors that interact, such as "table x split"; the last, of all factors, has the
        noise too. What chance has made negative stays so.

    References
    ----------
    Searle, Casella and McCulloch (1992), "Variance components", chapter 4.

    Examples
    --------
    >>> variance_components(np.array([[0.0, 2.0], [10.0, 12.0]]), ("table", "activation"))
    {'table': 50.0, 'activation': 2.0, 'table x activation': 0.0}
    """
    axes = range(values.ndim)
    parent = {factors.index(own): factors.index(of) for own, of in (nested or {}).items()}
    squares: dict[tuple[int, ...], float] = {}
    degrees: dict[tuple[int, ...], int] = {}
    for n in range(1, values.ndim + 1):
        for kept in combinations(axes, n):
            # an effect that leaves out what its factor is nested in is one of both
            term = tuple(sorted({*kept, *(parent[a] for a in kept if a in parent)}))
            squares[term] = squares.get(term, 0.0) + _square(values, kept)
            free = int(np.prod([values.shape[a] - 1 for a in kept]))
            degrees[term] = degrees.get(term, 0) + free
    found: dict[tuple[int, ...], float] = {}
    for term in sorted(squares, key=len, reverse=True):
        if not degrees[term]:
            found[term] = 0.0
            continue
        # E[MS] of a term: its own component and those of all that contain it
        mean = squares[term] / degrees[term]
        inner = {other: values.size / _levels(values, other) for other in found}
        mean -= sum(inner[other] * found[other] for other in found if {*term} < {*other})
        found[term] = mean / (values.size / _levels(values, term))
    return {" x ".join(factors[a] for a in term): found[term] for term in squares}


def _levels(values: np.ndarray, term: Sequence[int]) -> int:
    return int(np.prod([values.shape[a] for a in term]))


def _square(values: np.ndarray, kept: Sequence[int]) -> float:
    """Sum of squares of an interaction, over all cells."""
    others = tuple(a for a in range(values.ndim) if a not in kept)
    effect = values.mean(axis=others, keepdims=True)
    for axis in kept:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    return float((effect**2).sum()) * values.size / effect.size


def variance_shares(
    values: np.ndarray, factors: Sequence[str], nested: Mapping[str, str], n_resamples: int = 500
) -> dict[str, Interval]:
    """Shares of the variance within tables, with bootstrap intervals over tables, the first axis.

    Components that are negative count as 0. The levels of tables themselves are left out: errors
    of two tables have nothing in common.
    """
    rng = np.random.default_rng(0)
    drawn = [
        _shares(values[rng.integers(len(values), size=len(values))], factors, nested)
        for _ in range(n_resamples)
    ]
    low, high = pd.DataFrame(drawn).quantile([0.025, 0.975]).to_numpy()
    whole = _shares(values, factors, nested)
    return {
        name: Interval(share, float(low[i]), float(high[i]))
        for i, (name, share) in enumerate(whole.items())
    }


def _shares(
    values: np.ndarray, factors: Sequence[str], nested: Mapping[str, str]
) -> dict[str, float]:
    found = variance_components(values, factors, nested)
    parts = {name: max(0.0, part) for name, part in found.items() if name != factors[0]}
    parts[REST] = parts.pop(" x ".join(factors))
    total = sum(parts.values())
    return {name: part / total if total else 0.0 for name, part in parts.items()}
