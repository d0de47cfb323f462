"""One column at a time: its shape, its range, its missing values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from combutab.evaluation.synthetic._alignment import AlignedTables, Kind


@dataclass(frozen=True)
class Measured:
    """One value of one table."""

    measure: str
    value: float
    column: Hashable = None
    other_column: Hashable = None
    note: str = ""


def numbers_of(column: pd.Series) -> np.ndarray:
    """Numbers, or microseconds of datetimes, as float64; NaN where missing."""
    values = column.to_numpy()
    if values.dtype.kind == "M":
        return np.where(np.isnat(values), np.nan, values.astype("datetime64[us]").astype(np.int64))
    return values


def codes_of(column: pd.Series) -> np.ndarray:
    """Return the codes of the categories, int64; -1 where missing."""
    return column.cat.codes.to_numpy(np.int64)


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the total variation distance of the frequencies of two arrays of codes from 0.

    >>> total_variation(np.array([0, 0, 1, 1]), np.array([0, 2]))
    0.5
    """
    n = max(a.max(), b.max()) + 1
    if n > 4 * (len(a) + len(b)):  # far more codes than values
        _, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b = codes[: len(a)], codes[len(a) :]
        n = codes.max() + 1
    p, q = np.bincount(a, minlength=n) / len(a), np.bincount(b, minlength=n) / len(b)
    return min(float(np.abs(p - q).sum() / 2), 1.0)


def spread(values: np.ndarray) -> float:
    """The standard deviation; 1 for a constant, which so has its own unit.

    >>> spread(np.array([1.0, 3.0])), spread(np.array([5.0]))
    (1.0, 1.0)
    """
    if not len(values) or not _varies(values):
        return 1.0
    off = values - values[0]
    largest = np.abs(off).max()  # taken out, so that no square overflows
    return float(largest * (off / largest).std())


def shapes(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Score each column by the distance of its two distributions."""
    for column, kind, a, b in _values(tables, name):
        if kind == "category":
            yield _score("tv", column, a, b, lambda a, b: 1.0 - total_variation(a, b))
        else:
            yield _score("ks", column, a, b, _ks_complement)
            yield _score("wasserstein", column, a, b, _wasserstein, worst=np.nan)


def coverage(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Score each column by the share of its real range that is covered, and kept to."""
    for column, kind, a, b in _values(tables, name):
        if kind == "category":
            yield _score("category_coverage", column, a, b, _category_coverage)
            yield _score("category_adherence", column, a, b, _category_adherence)
        else:
            yield _score("range_coverage", column, a, b, _range_coverage)
            yield _score("range_adherence", column, a, b, _range_adherence)


def missing_values(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Score the shares and the patterns of missing values, if any of the tables has some."""
    holes = np.any([table.isna().any() for table in tables.tables.values()], axis=0)
    columns = [column for column, has in zip(tables.kinds, holes, strict=True) if has]
    if not columns:
        return
    real, synthetic = tables["real"][columns].isna(), tables[name][columns].isna()
    for column in columns:
        yield Measured(
            "missing_share", 1.0 - abs(real[column].mean() - synthetic[column].mean()), column
        )
    both = np.packbits(np.concatenate([real, synthetic]), axis=1)
    _, patterns = np.unique(both, axis=0, return_inverse=True)
    patterns = patterns.ravel()  # numpy 2.0 has it as a column
    variation = total_variation(patterns[: len(real)], patterns[len(real) :])
    yield Measured("missing_pattern", 1.0 - variation)


def _values(
    tables: AlignedTables, name: str
) -> Iterator[tuple[Hashable, Kind, np.ndarray, np.ndarray]]:
    """Yield each column with its present values in the real table and in the other."""
    for column, kind in tables.kinds.items():
        real, synthetic = (_present(tables[each][column], kind) for each in ("real", name))
        yield column, kind, real, synthetic


def _present(column: pd.Series, kind: Kind) -> np.ndarray:
    known = column.dropna()
    return codes_of(known) if kind == "category" else numbers_of(known)


def _score(
    measure: str,
    column: Hashable,
    real: np.ndarray,
    synthetic: np.ndarray,
    compare: Callable[[np.ndarray, np.ndarray], float],
    worst: float = 0.0,
) -> Measured:
    if not len(real):
        return Measured(measure, np.nan, column, note="no real values")
    if not len(synthetic):
        return Measured(measure, worst, column, note="no synthetic values")
    return Measured(measure, compare(real, synthetic), column)


def _ks_complement(a: np.ndarray, b: np.ndarray) -> float:
    a, b = np.sort(a), np.sort(b)
    every = np.concatenate([a, b])
    p = np.searchsorted(a, every, side="right") / len(a)
    q = np.searchsorted(b, every, side="right") / len(b)
    return 1.0 - float(np.abs(p - q).max())


def _wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import wasserstein_distance

    unit = spread(a)
    # of large numbers, as dates are, the differences keep their digits
    return float(wasserstein_distance((a - a[0]) / unit, (b - a[0]) / unit))


def _varies(values: np.ndarray) -> bool:
    return bool(values.min() < values.max())


def _range_coverage(a: np.ndarray, b: np.ndarray) -> float:
    low, high = a.min(), a.max()
    inside = min(high, b.max()) - max(low, b.min())
    if not _varies(a):
        return float(inside == 0)
    return float(max(inside, 0.0) / (high - low))


def _range_adherence(a: np.ndarray, b: np.ndarray) -> float:
    return _share((b >= a.min()) & (b <= a.max()))


def _category_coverage(a: np.ndarray, b: np.ndarray) -> float:
    return _share(np.isin(np.unique(a), b))


def _category_adherence(a: np.ndarray, b: np.ndarray) -> float:
    return _share(np.isin(b, np.unique(a)))


def _share(mask: np.ndarray) -> float:
    return float(mask.mean())
