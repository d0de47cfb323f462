"""Pairs of columns: correlations and joint frequencies."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from combutab.evaluation.synthetic._alignment import AlignedTables
from combutab.evaluation.synthetic.fidelity._columns import (
    Measured,
    codes_of,
    numbers_of,
    total_variation,
)

Numbers = dict[Hashable, np.ndarray]


def pair_trends(tables: AlignedTables, name: str, *, n_bins: int) -> Iterator[Measured]:
    """Score each pair of columns by how alike its dependence is in the two tables."""
    numeric = set(tables.columns("number", "datetime"))
    real, synthetic = (_numbers(tables[each], numeric) for each in ("real", name))
    real_codes, made_codes = (_codes(tables, each, real, n_bins) for each in ("real", name))
    for pair in combinations(tables.kinds, 2):
        if numeric.issuperset(pair):
            value, note = _correlation_similarity(
                *(of[c] for of in (real, synthetic) for c in pair)
            )
            yield Measured("correlation", value, *pair, note)
        else:
            a, b = (_joint(*(of[c] for c in pair)) for of in (real_codes, made_codes))
            yield Measured("contingency", 1.0 - total_variation(a, b), *pair)


def _numbers(table: pd.DataFrame, columns: set[Hashable]) -> Numbers:
    return {column: numbers_of(table[column]) for column in table.columns if column in columns}


def _codes(tables: AlignedTables, name: str, real: Numbers, n_bins: int) -> Numbers:
    """Every column as numbers from 0, a missing value being 0."""
    codes = {}
    for column, kind in tables.kinds.items():
        values = tables[name][column]
        if kind == "category":
            codes[column] = codes_of(values) + 1
        else:
            codes[column] = _binned(numbers_of(values), real[column], n_bins)
    return codes


def _binned(values: np.ndarray, real: np.ndarray, n_bins: int) -> np.ndarray:
    """Bins of equal counts of the real values, the first and the last without end."""
    known = real[~np.isnan(real)]
    if not len(known):
        return (~np.isnan(values)).astype(np.int64)
    edges = np.unique(np.quantile(known, np.arange(1, n_bins) / n_bins, method="inverted_cdf"))
    bins = np.searchsorted(edges, values, side="left") + 1  # an edge is the last of its bin
    return np.where(np.isnan(values), 0, bins)


def _joint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a * (1 << 31) + b


def _correlation_similarity(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> tuple[float, str]:
    real, synthetic = _correlation(a, b), _correlation(c, d)
    if np.isnan(real):
        return np.nan, "no real correlation"
    if np.isnan(synthetic):
        return 1.0 - abs(real) / 2, "no synthetic correlation: taken as 0"
    return 1.0 - abs(real - synthetic) / 2, ""


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, of the rows that have both; NaN where one is constant or there is no row."""
    both = ~(np.isnan(a) | np.isnan(b))
    if not both.all():
        a, b = a[both], b[both]
    if not len(a) or a.min() == a.max() or b.min() == b.max():
        return np.nan
    a, b = _unit(a), _unit(b)
    return float(np.clip(a @ b, -1.0, 1.0))


def _unit(values: np.ndarray) -> np.ndarray:
    """Centred, of length 1; scaled before it is squared, so that no size overflows."""
    centred = values - values[0]
    centred = centred / np.abs(centred).max()
    centred = centred - centred.mean()
    return centred / np.linalg.norm(centred)
