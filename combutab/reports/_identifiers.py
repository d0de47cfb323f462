"""Columns whose values identify rows: they are left out of all scores of a synthetic table."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from scipy.stats import kstest

from combutab.preprocessing import find_identifiers

_FEWEST, _FEWEST_TEXTS = 50, 20  # values; fewer may be distinct by chance
_EXACT = 2.0**53  # floats below it are exact integers
_SPAN = 2**62  # range of integers that no measurement has
_UNIQUE = 0.95  # share of distinct values of new identifiers
_INSIDE = 0.05  # share of new identifiers within the real range
_UNIFORM = 0.15  # Kolmogorov-Smirnov statistic of identifiers against a uniform distribution


def replaced_columns(generator: Any) -> list[Hashable]:
    """Columns for which a fitted generator makes new identifiers."""
    encoder = getattr(generator, "encoder_", None)
    if encoder is None:
        return []
    columns = zip(encoder.schema_.keys, encoder.columns_, strict=True)
    return [name for name, column in columns if column.is_identifier]


def identifies_rows(raw: pd.Series, real: pd.Series, synthetic: pd.Series) -> bool:
    """Say whether a column identifies rows, by its values in the real and the synthetic table.

    ``raw`` has the real values as given, ``real`` and ``synthetic`` as aligned. Floats do not hold
    integers of 64 bits exactly.

    >>> raw = pd.Series(range(1000, 1500))
    >>> aligned = raw.astype(float)
    >>> identifies_rows(raw, aligned, aligned)
    True
    """
    if types.is_integer_dtype(raw.dtype) and not raw.dropna().duplicated().any():
        values = raw.dropna()
        if len(values) >= _FEWEST and int(values.max()) - int(values.min()) >= _SPAN:
            return True
        # Numbers that start at 0 leave room for new ones above them.
        raw = raw - (values.min() if len(values) else 0)
    return find_identifiers(raw) is not None or is_identifier(real) or _are_new(real, synthetic)


def is_identifier(column: pd.Series) -> bool:
    """Say whether an aligned column is identifiers, or text that differs in most rows.

    >>> is_identifier(pd.Series(range(1000, 1500), dtype=float))
    True
    >>> is_identifier(pd.Series(np.linspace(0.0, 1.0, 500)))
    False
    """
    values = column.dropna()
    kind = column.dtype.kind
    if kind == "f" and (values.abs() < _EXACT).all() and (values == values.round()).all():
        values = values.astype(np.int64)
    if find_identifiers(values) is not None:
        return True
    # Text that differs in most rows is associated with every column.
    many = len(values) >= _FEWEST_TEXTS and values.nunique() > 0.5 * len(values)
    return kind not in "fM" and many


def _are_new(real: pd.Series, synthetic: pd.Series) -> bool:
    """Say whether integers that never repeat, spread evenly, have synthetic ones outside them.

    A generator does not make measurements beyond the real ones, and these are rarely spread evenly.
    """
    if real.dtype.kind != "f" or synthetic.dtype.kind != "f":
        return False
    real_values, synthetic_values = real.dropna().to_numpy(), synthetic.dropna().to_numpy()
    if min(len(real_values), len(synthetic_values)) < _FEWEST:
        return False
    if (real_values != np.rint(real_values)).any() or (
        synthetic_values != np.rint(synthetic_values)
    ).any():
        return False
    low, high = real_values.min(), real_values.max()
    is_unique = len(np.unique(real_values)) >= _UNIQUE * len(real_values)
    is_new = len(np.unique(synthetic_values)) >= _UNIQUE * len(synthetic_values)
    if (
        not (is_unique and is_new)
        or ((synthetic_values >= low) & (synthetic_values <= high)).mean() > _INSIDE
    ):
        return False
    return bool(kstest((real_values - low) / (high - low), "uniform").statistic <= _UNIFORM)


def check_identifiers(
    identifiers: Collection[Hashable],
    columns: Collection[Hashable],
    target: Hashable | None,
    *,
    name: str = "identifiers",
) -> list[Hashable]:
    """Return the identifiers that are named, or raise ValueError if they are no columns.

    ``name`` is the parameter that names them.
    """
    if isinstance(identifiers, str):
        raise ValueError(f"{name} must be a list of column names, got {identifiers!r}")
    names = list(dict.fromkeys(identifiers))
    if unknown := [column for column in names if column not in columns]:
        raise ValueError(f"{name}: there is no column {unknown}; the columns are {columns}")
    if target is not None and target in names:
        raise ValueError(f"the target {target!r} is listed in {name}; remove it there")
    if len(names) == len(columns):
        raise ValueError(f"{name} lists all columns; at least one other column is needed")
    return names
