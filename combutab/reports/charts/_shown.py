"""Choose the values of a table that a page may show: those that enough rows have."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

import numpy as np
import pandas as pd

from combutab.preprocessing import find_identifiers

_EXACT = 2**53  # floats beyond it are no whole numbers for certain
_FEWEST = 20  # of so few rows all may well be different


def least_rows(min_frequency: float, n_rows: int) -> int:
    """Return the rows that a value needs to be shown: so many, or such a share of ``n_rows``.

    >>> least_rows(5, 1000), least_rows(0.01, 1050), least_rows(0.1, 30)
    (5, 11, 3)
    """
    whole = isinstance(min_frequency, numbers.Integral) and not isinstance(min_frequency, bool)
    if whole and min_frequency >= 1:
        return int(min_frequency)
    if isinstance(min_frequency, float) and 0.0 < min_frequency < 1.0:
        return max(1, math.ceil(min_frequency * n_rows - 1e-9))  # 0.1 * 30 is a little above 3
    raise ValueError(
        "min_frequency must be an integer of at least 1, or a share between 0 and 1, got "
        f"{min_frequency!r}"
    )


def shown_values(real: Sequence[pd.Series], synthetic: pd.Series, least: int) -> pd.Index:
    """Return the values that ``least`` real rows have, or as many synthetic ones if no real row."""
    known = pd.concat([column.dropna().astype(object) for column in real]).value_counts()
    invented = synthetic.dropna().astype(object).value_counts()
    invented = invented[~invented.index.isin(known.index)]
    return pd.Index([*known.index[known >= least], *invented.index[invented >= least]])


def is_identifier(column: pd.Series) -> bool:
    """Tell whether a real column's values name its rows, or nearly all differ though no numbers.

    The column is as aligned.

    >>> is_identifier(pd.Series(range(1000, 1500), dtype=float))
    True
    >>> is_identifier(pd.Series(np.linspace(0.0, 1.0, 500)))
    False
    """
    known = column.dropna()
    kind = column.dtype.kind
    if kind == "f" and (known.abs() < _EXACT).all() and (known == known.round()).all():
        known = known.astype(np.int64)
    if find_identifiers(known) is not None:
        return True
    # of few rows, or of decimals as text: they go with every column all the same
    many = len(known) >= _FEWEST and known.nunique() > 0.5 * len(known)
    return kind not in "fM" and many
