"""Bounds of numbers that are no single row's: shared by enough rows, or rounded outward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_FURTHER = 3  # times as far as the outermost rows reach, the last may lie beyond them
_PARTS = 20  # of the spread: a bound is rounded to one of them at least
_ULPS = 128  # of a float: multiples of less might be the float itself


def find_bounds(x: np.ndarray, fewest: int) -> tuple[Any, Any]:
    """The least and the greatest number, or what stands for those that are single rows'.

    A bound that at least `fewest` rows share stays as it is. Another one is moved outward to the
    next multiple of 1, 2 or 5 times a power of ten, of about a twentieth of the spread; none
    crosses zero. What lies far from all other rows is no bound: the `fewest`-th number from the
    outside is then taken, and three times as far beyond it as the next `fewest` reach within.
    Integers, (n,) of at least one, give integers, computed exactly.

    >>> find_bounds(np.r_[0, 0, 0, np.arange(73, 913)], 3)
    (0, 920)
    >>> find_bounds(np.r_[np.arange(1.37, 9.0, 0.01), 1e6], 5)
    (1.2, 9.2)
    """
    ordered = np.sort(x)
    least, most = ordered[0].item(), ordered[-1].item()
    if fewest <= 1:
        return least, most
    k = min(fewest, (len(x) + 1) // 2)
    m = min(2 * k, len(x))
    inner, outer = ordered[k - 1].item(), ordered[-k].item()
    low = max(least, inner - _FURTHER * (ordered[m - 1].item() - inner))
    high = min(most, outer + _FURTHER * (outer - ordered[-m].item()))
    shared = [np.count_nonzero(ordered == each) >= fewest for each in (low, high)]
    # halves: the spread itself might overflow
    part = (high / 2 - low / 2 or abs(high) / 2) / (_PARTS / 2)
    return (
        low if shared[0] else _beyond(low, least, part),
        high if shared[1] else -_beyond(-high, -most, part),
    )


def _beyond(value: Any, extreme: Any, part: float) -> Any:
    """A round number below a value, and not the extreme, which may lie there by chance."""
    rounded = _below(value, part)
    return _below(rounded, part) if rounded == extreme else rounded


def _below(value: Any, part: float) -> Any:
    """The next lower multiple of a round number as large as a part; above zero if the value is."""
    if value == 0:
        return value
    whole = isinstance(value, int)
    digit, power = _round(part if whole else max(part, _ULPS * math.ulp(value)))
    if whole:
        unit = digit * 10 ** max(power, 0)
        rounded: Any = (value - 1) // unit * unit
    else:
        n = math.ceil(_parts(value, digit, power)) - 1
        n -= _multiple(n, digit, power) >= value  # by a rounding
        rounded = _multiple(n, digit, power)
    if value > 0 and rounded <= 0:
        digit, power = _round(value)
        if digit * 10**power == value:
            digit, power = {1: (5, power - 1), 2: (1, power), 5: (2, power)}[digit]
        positive = max(1, int(digit * 10.0**power)) if whole else digit * 10.0**power
        rounded = positive if positive <= value else 0.0  # among the smallest floats there is none
    return rounded


def _parts(value: float, digit: int, power: int) -> float:
    """How many times a round number it is."""
    return value / (digit * 10.0**power) if power >= 0 else value * 10.0**-power / digit


def _multiple(n: int, digit: int, power: int) -> float:
    """n times a round number; divided by a power of ten, which is exact, it is the nearest one."""
    return n * (digit * 10.0**power) if power >= 0 else n * digit / 10.0**-power


def _round(part: float) -> tuple[int, int]:
    """1, 2 or 5, and a power of ten: of all such products the next below."""
    power = max(-300, math.floor(math.log10(part))) if part > 0 else 0
    digit = part / 10.0**power
    return (5 if digit >= 5 else 2 if digit >= 2 else 1), power
