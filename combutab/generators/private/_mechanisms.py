"""The mechanisms that read private rows, and the ledger that each of them charges.

All noise is OpenDP's: integers, from the operating system's source of randomness. The unit of
privacy is a person, who has at most ``max_rows`` rows: two tables are neighbours if one has all
rows of one more person. Each step charges the ledger before it draws.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

_UNIT = 1024  # scores are whole numbers of this part of a row
_SLACK = 1e-9  # by which scales are larger, so that no rounding exceeds a budget


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError("PrivateSynthesizer needs OpenDP: pip install opendp") from error
    dp.enable_features("contrib")
    return dp


# ---- The budget ----------------------------------------------------------------------------------


def epsilon_of(rho: float, delta: float) -> float:
    """Convert zero-concentrated differential privacy to the epsilon that holds at a delta.

    Parameters
    ----------
    rho : float
        Of zero-concentrated differential privacy (Bun and Steinke, 2016).
    delta : float

    Returns
    -------
    float

    Examples
    --------
    >>> round(epsilon_of(1 / 18, delta=1e-6), 3)
    1.558
    """
    if rho <= 0:
        return 0.0
    dp = _opendp()
    gaussian = dp.m.make_gaussian(*_vectors(dp), scale=math.sqrt(0.5 / rho))
    return float(dp.c.make_zCDP_to_approxDP(gaussian).map(1).epsilon(delta))


@functools.cache
def rho_of(epsilon: float, delta: float) -> float:
    """Find the largest rho, nearly, whose epsilon at a delta is not more than the one given.

    Examples
    --------
    >>> rho = rho_of(1.0, delta=1e-6)
    >>> 0.999 < epsilon_of(rho, delta=1e-6) <= 1.0
    True
    """
    low, high = 0.0, epsilon
    while epsilon_of(high, delta) <= epsilon:  # of a large delta
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def _vectors(dp: Any) -> tuple[Any, Any]:
    return dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")


class Ledger:
    """The spending of a privacy budget, step by step.

    Budgets of zero-concentrated differential privacy add up; so do the deltas of thresholds
    (Bun and Steinke, 2016). A step that exceeds the budget is refused before it draws.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    threshold_delta : float, default=0.0
        The part of delta for thresholds, which release categories. The rest is for the conversion
        from rho to epsilon.
    """

    def __init__(self, epsilon: float, delta: float, threshold_delta: float = 0.0) -> None:
        self.epsilon, self.delta, self.threshold_delta = epsilon, delta, threshold_delta
        self.rho = rho_of(epsilon, delta - threshold_delta)
        self.steps: list[dict[str, Any]] = []

    @property
    def rho_left(self) -> float:
        """The budget that is left for further steps."""
        return max(0.0, self.rho - sum(step["rho"] for step in self.steps))

    def charge(
        self,
        step: str,
        columns: Sequence[Any],
        mechanism: str,
        sensitivity: float,
        scale: float,
        rho: float,
        delta: float = 0.0,
    ) -> None:
        """Enter a step.

        Raises
        ------
        RuntimeError
            If it exceeds the budget: an error of the program, not of its user.
        """
        if not (0 < rho < math.inf and delta >= 0):
            raise RuntimeError(f"{step} costs {rho=}, {delta=}: there is no such step")
        entry = {
            "step": step,
            "columns": tuple(columns),
            "mechanism": mechanism,
            "sensitivity": sensitivity,
            "scale": scale,
            "rho": rho,
            "delta": delta,
        }
        steps = [*self.steps, entry]
        spent = math.fsum(s["rho"] for s in steps)
        spent_delta = math.fsum(s["delta"] for s in steps)
        if spent > self.rho or spent_delta > self.threshold_delta:
            raise RuntimeError(
                f"{step} costs {rho=} and {delta=}, which with the steps before is {spent} and "
                f"{spent_delta}; the budget is {self.rho} and {self.threshold_delta}"
            )
        self.steps.append(entry)

    def spent(self) -> tuple[float, float]:
        """Return the epsilon and delta that all steps together have spent."""
        rho = math.fsum(step["rho"] for step in self.steps)
        return epsilon_of(rho, self.delta - self.threshold_delta), self.delta

    def to_frame(self) -> pd.DataFrame:
        """Make a table of the steps, each with the epsilon of all steps up to it, at ``delta``."""
        frame = pd.DataFrame(
            self.steps,
            columns=["step", "columns", "mechanism", "sensitivity", "scale", "rho", "delta"],
        )
        delta = self.delta - self.threshold_delta
        frame["epsilon"] = [epsilon_of(rho, delta) for rho in frame["rho"].cumsum()]
        return frame


# ---- The mechanisms: functions of rows or of exact counts, and of a budget -----------------------


def bound_rows(persons: np.ndarray, max_rows: int) -> np.ndarray:
    """Keep at most ``max_rows`` rows of each person, drawn at random.

    The rows of one person do not depend on those of others.

    Parameters
    ----------
    persons : ndarray of int, (n,)
        Which person each row belongs to.
    max_rows : int

    Returns
    -------
    ndarray of int
        The positions of the rows that are kept, in order.
    """
    draws = np.frombuffer(os.urandom(8 * len(persons)), dtype=np.uint64)
    order = np.lexsort((draws, persons))
    grouped = persons[order]
    first = np.r_[True, grouped[1:] != grouped[:-1]] if len(order) else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    positions: np.ndarray = np.sort(order[rank < max_rows])
    return positions


def exact_counts(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Count the rows of each combination of codes: not private.

    Parameters
    ----------
    codes : ndarray of int, (n, k)
        Of some columns.
    sizes : sequence of k ints
        How many codes each column has.

    Returns
    -------
    ndarray of int64, of shape ``sizes``
    """
    if codes.shape[1] != len(sizes):
        raise ValueError(f"codes have {codes.shape[1]} columns, sizes {len(sizes)}")
    cells = np.ravel_multi_index(tuple(codes.T), tuple(sizes))
    counts: np.ndarray = np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes)
    return counts


def release_counts(
    counts: np.ndarray,
    rho: float,
    ledger: Ledger,
    *,
    max_rows: int,
    step: str,
    columns: Sequence[Any],
) -> tuple[np.ndarray, float]:
    """Add discrete Gaussian noise to counts of rows.

    Each row must be counted once. A person has ``max_rows`` rows, which may all be in one cell:
    that is the sensitivity in the L2 norm.

    Parameters
    ----------
    counts : ndarray of int
    rho : float
        The budget to spend.
    ledger : Ledger
    max_rows : int
    step, columns
        The entries of the ledger.

    Returns
    -------
    counts : ndarray of int64, same shape
        They may be negative.
    scale : float
        The standard deviation of the noise.

    References
    ----------
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".
    """
    dp = _opendp()
    scale = max_rows / math.sqrt(2 * rho) * (1 + _SLACK)
    gaussian = dp.m.make_gaussian(*_vectors(dp), scale=scale)
    ledger.charge(step, columns, "discrete Gaussian", max_rows, scale, gaussian.map(max_rows))
    noisy = gaussian(np.ravel(counts).astype(np.int64).tolist())
    return np.array(noisy, dtype=np.int64).reshape(np.shape(counts)), scale


def release_choice(
    counts: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    rho: float,
    ledger: Ledger,
    *,
    max_rows: int,
    step: str,
    columns: Sequence[Any],
    weights: Sequence[int] | None = None,
    penalties: Sequence[float] | None = None,
) -> int:
    """Choose the counts that lie furthest from the expected ones, by the exponential mechanism.

    The score of a candidate is its weight times (the L1 distance of its counts from the expected
    ones, minus its penalty). Another row changes a distance by 1 at most.

    Parameters
    ----------
    counts, expected : sequences of ndarray
        For each candidate the exact counts, and those that public knowledge predicts.
    rho : float
        The budget to spend.
    ledger : Ledger
    max_rows : int
    step, columns
        The entries of the ledger.
    weights : sequence of int, optional
        At least 1; by default all 1.
    penalties : sequence of float, optional
        In rows; by default 0.

    Returns
    -------
    int
        The position of the chosen one.

    References
    ----------
    McSherry and Talwar (2007), "Mechanism design via differential privacy", drawn by Gumbel noise;
    Cesar and Rogers (2021), "Bounding, concentrating, and truncating", for its rho; McKenna et al.
    (2022), "AIM", Eq. (1), for the score.
    """
    dp = _opendp()
    own_weights = [1] * len(counts) if weights is None else [int(w) for w in weights]
    own_penalties = [0.0] * len(counts) if penalties is None else penalties
    # whole numbers, all public but the counts: so the sensitivity is exact
    scores = [
        w
        * (
            int(np.abs(_UNIT * c.astype(np.int64) - np.rint(_UNIT * e).astype(np.int64)).sum())
            - round(_UNIT * p)
        )
        for c, e, w, p in zip(counts, expected, own_weights, own_penalties, strict=True)
    ]
    sensitivity = _UNIT * max(own_weights) * max_rows
    scale = sensitivity / math.sqrt(2 * rho) * (1 + _SLACK)
    choice = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.linf_distance(T="i64"),
        dp.zero_concentrated_divergence(),
        scale=scale,
    )
    spent = choice.map(sensitivity)
    ledger.charge(step, columns, "exponential", sensitivity / _UNIT, scale / _UNIT, spent)
    return int(choice(scores))


def release_categories(
    counts: Mapping[Hashable, int],
    rho: float,
    delta: float,
    ledger: Ledger,
    *,
    max_rows: int,
    step: str,
    columns: Sequence[Any],
) -> list[Any]:
    """Name the categories whose count is above a threshold, after discrete Gaussian noise.

    A category that only one person has is named with a probability of ``delta`` at most.

    Parameters
    ----------
    counts : mapping
        Category -> rows.
    rho, delta : float
        The budget to spend.
    ledger : Ledger
    max_rows : int
    step, columns
        The entries of the ledger.

    Returns
    -------
    list of categories, sorted where they can be compared

    References
    ----------
    Korolova et al. (2009), "Releasing search queries and clicks privately"; Rogers (2023),
    "A unifying privacy analysis framework for unknown domain algorithms".
    """
    dp = _opendp()
    scale = max_rows / math.sqrt(2 * rho) * (1 + _SLACK)
    space = (
        dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64")),
        dp.l02inf_distance(dp.absolute_distance(T="i64")),
    )
    # how many categories a person's rows may have, and how far they change their counts
    person = (max_rows, max_rows, max_rows)

    def make(threshold: int) -> Any:
        return dp.m.make_gaussian_threshold(*space, scale=scale, threshold=threshold)

    low, high = max_rows, max_rows + 1
    while make(high).map(person)[1] > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if make(middle).map(person)[1] <= delta else (middle, high)
    release = make(high)
    spent, spent_delta = release.map(person)
    mechanism = f"discrete Gaussian, threshold {high}"
    ledger.charge(step, columns, mechanism, max_rows, scale, spent, spent_delta)
    # the noise of a category does not depend on its name: numbers stand for those of any type
    names = list(counts)
    released = release({str(i): int(counts[name]) for i, name in enumerate(names)})
    chosen = [names[int(i)] for i in released]
    try:
        return sorted(chosen)
    except TypeError:
        return sorted(chosen, key=lambda name: (type(name).__name__, str(name)))


class PrivateRows:
    """Encoded rows that only mechanisms read.

    Parameters
    ----------
    codes : ndarray of int, (n, n_columns)
        The rows of all persons, bounded to ``max_rows`` each.
    sizes : sequence of int
        How many codes each column has, whether there are rows of them or not.
    names : sequence
        Of the columns, for the ledger.
    max_rows : int
        The most rows of one person.
    ledger : Ledger
    """

    def __init__(
        self,
        codes: np.ndarray,
        sizes: Sequence[int],
        names: Sequence[Any],
        max_rows: int,
        ledger: Ledger,
    ) -> None:
        self._codes, self.sizes, self.names = codes, list(sizes), list(names)
        self.max_rows, self.ledger = max_rows, ledger
        self._counts: dict[tuple[int, ...], np.ndarray] = {}

    def _exact(self, columns: tuple[int, ...]) -> np.ndarray:
        if columns not in self._counts:
            sizes = [self.sizes[j] for j in columns]
            self._counts[columns] = exact_counts(self._codes[:, columns], sizes)
        return self._counts[columns]

    def measure(self, columns: Sequence[int], rho: float, step: str) -> tuple[np.ndarray, float]:
        """Release the counts of some columns' combinations; see `release_counts`."""
        return release_counts(
            self._exact(tuple(columns)),
            rho,
            self.ledger,
            max_rows=self.max_rows,
            step=step,
            columns=[self.names[j] for j in columns],
        )

    def choose(
        self,
        candidates: Sequence[Sequence[int]],
        expected: Sequence[np.ndarray],
        rho: float,
        step: str,
        weights: Sequence[int] | None = None,
        penalties: Sequence[float] | None = None,
    ) -> int:
        """Choose the columns whose counts lie furthest from the expected; see `release_choice`."""
        return release_choice(
            [self._exact(tuple(columns)) for columns in candidates],
            expected,
            rho,
            self.ledger,
            max_rows=self.max_rows,
            step=step,
            columns=[f"{len(candidates)} candidates"],
            weights=weights,
            penalties=penalties,
        )
