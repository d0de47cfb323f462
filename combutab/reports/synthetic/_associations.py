"""Associations of a table's columns, whatever they hold."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd


def associations(
    table: pd.DataFrame, columns: Sequence[Hashable], kinds: Mapping[Hashable, str]
) -> np.ndarray:
    """Measure the association of each column with each other, (n_columns, n_columns).

    Of two columns of numbers or datetimes Pearson's correlation, from -1 to 1; of one of them and
    categories the correlation ratio (R. A. Fisher, "Statistical methods for research workers",
    1925, section 45), from 0 to 1; of two of categories Cramér's V (H. Cramér, "Mathematical
    methods of statistics", 1946, 21.9), from 0 to 1. Each is of the rows where both columns have a
    value, and NaN where these do not vary. The table is as aligned.

    >>> table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "g": pd.Categorical(list("aabb"))})
    >>> associations(table, ["x", "g"], {"x": "number", "g": "category"}).round(2)
    array([[1.  , 0.89],
           [0.89, 1.  ]])
    """
    values = [_values(table[name], kinds[name]) for name in columns]
    discrete = [kinds[name] == "category" for name in columns]
    found = np.full((len(columns), len(columns)), np.nan)
    for i in range(len(columns)):
        for j in range(i + 1):
            a, b = values[i], values[j]
            both = ~(np.isnan(a) | np.isnan(b))
            a, b = a[both], b[both]
            if discrete[i] and discrete[j]:
                strength = _cramers_v(a, b)
            elif discrete[i] or discrete[j]:
                strength = _correlation_ratio(*((a, b) if discrete[i] else (b, a)))
            else:
                strength = _correlation(a, b)
            found[i, j] = found[j, i] = strength
    return found


def _values(column: pd.Series, kind: str) -> np.ndarray:
    """Floats, with NaN for missing; of categories, their codes."""
    if kind == "category":
        codes = column.cat.codes.to_numpy().astype(float)
        return np.where(codes < 0, np.nan, codes)
    if kind == "datetime":
        whole = column.to_numpy().astype("datetime64[us]")
        return np.where(np.isnat(whole), np.nan, whole.astype(np.int64).astype(float))
    return column.to_numpy(dtype=float)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if _constant(a) or _constant(b):
        return np.nan
    # ratios first: the squares of microseconds would lose the digits
    a, b = ((each - each.mean()) / np.abs(each - each.mean()).max() for each in (a, b))
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _correlation_ratio(groups: np.ndarray, numbers: np.ndarray) -> float:
    if _constant(groups) or _constant(numbers):
        return np.nan
    codes = np.unique(groups, return_inverse=True)[1]
    counts = np.bincount(codes)
    centred = (numbers - numbers.mean()) / np.abs(numbers - numbers.mean()).max()
    means = np.bincount(codes, centred) / counts
    between = float(counts @ means**2) / float(centred @ centred)
    return float(np.sqrt(np.clip(between, 0.0, 1.0)))


def _cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    if _constant(a) or _constant(b):
        return np.nan
    rows, columns = (np.unique(each, return_inverse=True)[1] for each in (a, b))
    n_rows, n_columns = int(rows.max()) + 1, int(columns.max()) + 1
    # only cells that hold a row count; of 100,000 categories all of them would not fit
    cells, counts = np.unique(rows * n_columns + columns, return_counts=True)
    p, q = np.bincount(rows) / len(a), np.bincount(columns) / len(a)
    joint = counts / len(a)
    chi2 = float((joint**2 / (p[cells // n_columns] * q[cells % n_columns])).sum()) - 1.0
    return float(np.sqrt(np.clip(chi2 / (min(n_rows, n_columns) - 1), 0.0, 1.0)))


def _constant(values: np.ndarray) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())
