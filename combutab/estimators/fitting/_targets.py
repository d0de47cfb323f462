"""Targets of a regression as float64: what numbers they hold, and whether it can hold them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

_EXACT = 1 << 53  # integers up to here are float64's own
# Beyond, a prediction a few standard deviations away could not be written down
_LARGEST = 1e300


def as_numbers(y: Any, where: str = "") -> np.ndarray:
    """Targets, (n,) or (n, n_targets) of numbers, as float64; ``where`` ends what is said of inf.

    Raises ValueError if float64 takes some that differ for one another, or they are as large as it
    goes.
    """
    values = np.asarray(y)
    if values.dtype.kind in "mM":
        raise ValueError(
            f"y holds {values.dtype}, not numbers; subtract a date and divide by a unit, such as "
            "np.timedelta64(1, 'D')"
        )
    numbers = values.astype(np.float64)
    for column, exact in zip(numbers.reshape(len(values), -1).T, _exact(values), strict=True):
        size = np.abs(column).max(initial=0.0)
        if np.isinf(size):
            raise ValueError(
                "Input y contains infinity or a value too large for dtype('float64')"
                f"{where and f' in {where}'}."
            )
        if size > _LARGEST:
            raise ValueError(
                f"y has values up to {size:.3g}, which leaves no room in float64 for predictions "
                f"beyond them; divide y by {size:.0e}"
            )
        if exact is not None and size >= _EXACT:
            different = len(set(exact.tolist()))
            if len(np.unique(column)) < different:
                raise ValueError(
                    f"y has {different} different integers up to {size:.3g}, some of which are "
                    f"equal as float64 (exact to 2**53); subtract {min(exact.tolist())} first"
                )
    return numbers


def _exact(values: np.ndarray) -> list[np.ndarray | None]:
    """The columns that hold integers."""
    columns = list(values.reshape(len(values), -1).T)
    if values.dtype.kind in "iu":
        return [*columns]
    if values.dtype.kind == "O":
        return [c if all(isinstance(v, Integral) for v in c) else None for c in columns]
    return [None] * len(columns)
