"""Which values of a table a page may show: those that enough rows have."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

_ROW_NUMBERS = 2.0  # whole numbers that are all different, in a range of so many rows, number them
_LONG = 1e8  # or are so long: accounts, telephones
_FEWEST = 20  # of so few rows all may well be different


def least_rows(min_frequency: float, n_rows: int) -> int:
    """How many rows a value needs to be shown.

    Parameters
    ----------
    min_frequency : int or float
        A number of rows, or a share of them.
    n_rows : int
        Real rows.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> least_rows(5, 1000), least_rows(0.01, 1050)
    (5, 11)
    """
    whole = isinstance(min_frequency, numbers.Integral) and not isinstance(min_frequency, bool)
    if whole and min_frequency >= 1:
        return int(min_frequency)
    if isinstance(min_frequency, float) and 0.0 < min_frequency < 1.0:
        return max(1, math.ceil(min_frequency * n_rows))
    raise ValueError(
        "min_frequency must be an integer of at least 1, or a share between 0 and 1, got "
        f"{min_frequency!r}"
    )


def shown_values(real: Sequence[pd.Series], made: pd.Series, least: int) -> pd.Index:
    """The values that are no one's own.

    Parameters
    ----------
    real : sequence of Series
        A column of all real tables.
    made : Series
        Of the synthetic one.
    least : int
        Real rows that must have a value. One that no real row has needs as many synthetic rows.
    """
    known = pd.concat([column.dropna().astype(object) for column in real]).value_counts()
    invented = made.dropna().astype(object).value_counts()
    invented = invented[~invented.index.isin(known.index)]
    return pd.Index([*known.index[known >= least], *invented.index[invented >= least]])


def is_identifier(column: pd.Series) -> bool:
    """Whether the values of a real column name its rows: nearly all differ.

    Examples
    --------
    >>> is_identifier(pd.Series(range(1000, 1500), dtype=float))
    True
    >>> is_identifier(pd.Series(np.linspace(0.0, 1.0, 500)))
    False
    """
    known = column.dropna()
    if len(known) < _FEWEST or column.dtype.kind == "M":
        return False
    n_different = known.nunique()
    if column.dtype.kind != "f":
        return bool(n_different > 0.5 * len(known))
    values: Any = known.to_numpy()
    if n_different < len(values) or (values != np.round(values)).any():
        return False
    dense = values.max() - values.min() < _ROW_NUMBERS * len(values)
    return bool(dense or values.min() >= _LONG)
