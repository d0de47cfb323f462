"""Means, standard deviations and ranges of columns that come piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Moments:
    """Statistics of each column over its non-missing values; arrays of shape (n_columns,)."""

    missing: np.ndarray  # bool: some are missing
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_known: np.ndarray  # int: rows that have a value


def raise_infinity(labels: Iterable[str], what: str = "X", n: int = 5) -> None:
    """Raise scikit-learn's error for infinite input, with the columns that have it."""
    names = list(labels)
    more = f" and {len(names) - n} more" if len(names) > n else ""
    raise ValueError(
        f"Input {what} contains infinity or a value too large for dtype('float64') in "
        f"{', '.join(names[:n])}{more}; replace it by NaN or by a bound"
    )


def binary_unit(size: np.ndarray) -> np.ndarray:
    """A power of two near each size whose square float64 cannot hold, or that vanishes; else 1."""
    odd = (size > 1e140) | ((size < 1e-140) & (size > 0))
    exponent = np.frexp(np.where(odd, size, 0.5))[1]
    return np.where(odd, np.exp2(exponent - 1.0), 1.0)


def missing_mask(
    rows: np.ndarray, label: Callable[[int], str], what: str = "X"
) -> np.ndarray | None:
    """Find where rows are NaN, None if nowhere; inf is an error that names columns by `label`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):  # one cheap pass settles almost every piece
            return None
    infinite = np.isinf(rows).any(axis=0)
    if infinite.any():
        raise_infinity(map(label, np.flatnonzero(infinite).tolist()), what)
    missing = np.isnan(rows)
    return missing if missing.any() else None


class RunningMoments:
    """Mean, standard deviation (weighted) and range of each column in one pass.

    Each piece's mean and squared deviations are taken while it is in the cache and merged by
    Chan's update, which is as accurate as two passes. Infinity is an error, which names its columns
    by `label` and calls the table `what`.

    Examples
    --------
    >>> running = RunningMoments(1)
    >>> running.add(np.array([[1.0], [np.nan]]))
    >>> running.add(np.array([[3.0]]))
    >>> running.result()  # doctest: +ELLIPSIS
    Moments(missing=array([ True]), mean=array([2.]), std=array([1.]), ...)
    """

    def __init__(
        self,
        n_columns: int,
        label: Callable[[int], str] = "column {}".format,
        what: str = "X",
    ) -> None:
        self._label, self._what = label, what
        self._missing = np.zeros(n_columns, dtype=bool)
        self._n_known = np.zeros(n_columns, dtype=np.int64)
        self._count = np.zeros(n_columns)
        self._mean = np.zeros(n_columns)  # in units
        self._squares = np.zeros(n_columns)
        self._unit = np.ones(n_columns)
        self._low = np.full(n_columns, np.nan)
        self._high = np.full(n_columns, np.nan)

    def add(self, rows: np.ndarray, weight: np.ndarray | None = None) -> None:
        """Take rows, (n, n_columns) float64, which are overwritten, and their weights, (n,)."""
        missing = missing_mask(rows, self._label, self._what)
        self._n_known += len(rows) if missing is None else (~missing).sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            self._low = np.fmin(self._low, np.fmin.reduce(rows, axis=0))
            self._high = np.fmax(self._high, np.fmax.reduce(rows, axis=0))
            self._choose_units()
            if (self._unit != 1).any():
                rows /= self._unit
            total = float(len(rows)) if weight is None else weight.sum()
            here = np.full(len(self._count), total)
            if missing is not None:
                rows[missing] = 0.0
                self._missing |= missing.any(axis=0)
                here -= missing.sum(axis=0) if weight is None else weight @ missing
            sums = rows.sum(axis=0) if weight is None else weight @ rows
            mean = sums / np.where(here > 0, here, 1)
            rows -= mean
            if missing is not None:
                rows[missing] = 0.0
            after = np.where(self._count + here > 0, self._count + here, 1)
            delta = mean - self._mean
            self._mean += delta * (here / after)
            if weight is None:
                self._squares += np.einsum("ij,ij->j", rows, rows)
            else:
                self._squares += np.einsum("i,ij,ij->j", weight, rows, rows)
            self._squares += delta**2 * (self._count * here / after)
            self._count += here

    def _choose_units(self) -> None:
        # Squares of values beyond about 1e154 overflow and those under 1e-154 vanish: such columns
        # are measured in a power of two near their largest value so far.
        unit = binary_unit(np.fmax(np.abs(self._low), np.abs(self._high)))
        if (unit == 1).all() and (self._unit == 1).all():
            return
        ratio = np.where(self._mean != 0, self._unit / unit, 1.0)
        self._mean *= ratio
        self._squares *= np.where(self._squares > 0, ratio**2, 1.0)
        self._unit = unit

    def result(self) -> Moments:
        """The statistics of all rows so far."""
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(self._squares / np.where(self._count > 0, self._count, 1))
            mean, std = self._mean * self._unit, std * self._unit
        low, high = self._low.copy(), self._high.copy()
        return Moments(self._missing.copy(), mean, std, low, high, self._n_known.copy())
