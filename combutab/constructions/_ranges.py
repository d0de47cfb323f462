"""Intervals that hold all values of an expression: arrays (n, 2) of lowest and highest values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

Ranges = np.ndarray  # (n, 2) float64

_UNIT = 2.0**-53
_SMALLEST_NORMAL = 2.0**-1022


def as_domain(domain: Sequence[Sequence[float]]) -> Ranges:
    """Check a domain: a pair (low, high) of finite numbers for each variable."""
    ranges = np.asarray(domain, dtype=np.float64)
    if ranges.ndim != 2 or ranges.shape[1] != 2:
        raise ValueError(f"domain must hold one pair (low, high) for each variable, got {domain!r}")
    for low, high in ranges.tolist():
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(
                f"domain must be of finite intervals with low <= high, got ({low}, {high})"
            )
    return ranges


def widened(ranges: np.ndarray, size: np.ndarray | float = 0.0) -> np.ndarray:
    """Make room for the rounding of ends, made of terms of these sizes: 8 units of them.

    Below the normal numbers a unit is the smallest normal number's.
    """
    size = np.maximum(np.abs(ranges), size)
    margin = 8 * _UNIT * np.where(size > 0, np.maximum(size, _SMALLEST_NORMAL), 0.0)
    return ranges + margin * [-1, 1]


def rounded_outward(low: float, high: float, bits: int) -> tuple[float, float]:
    """An interval about this one, its ends moved by less than 2**-bits of it, and not to zero.

    >>> rounded_outward(0.123, 99.7, 6), rounded_outward(1, 5, 6)
    ((0.1220703125, 100.0), (1.0, 5.0))
    """
    ends = np.array([low, high], dtype=np.float64)
    size = np.minimum(np.frexp(ends[1] - ends[0])[1], np.frexp(ends)[1])
    unit = np.where(ends == 0, 1.0, np.exp2(np.maximum(size - 1.0 - bits, -1074.0)))
    steps = ends / unit
    return float(np.floor(steps[0]) * unit[0]), float(np.ceil(steps[1]) * unit[1])


def combination(weight: np.ndarray, bias: np.ndarray, ranges: Ranges) -> Ranges:
    """Range of ``weight @ x + bias`` for x in ``ranges``."""
    above, below = np.maximum(weight, 0), np.minimum(weight, 0)
    swapped = ranges[:, ::-1]
    ends = above @ ranges + below @ swapped + bias[:, None]  # (n, 2)
    sizes = above @ np.abs(ranges) - below @ np.abs(swapped) + np.abs(bias)[:, None]
    exact = (np.abs(weight).sum(1) == np.abs(weight).max(1, initial=0)) & (bias == 0)
    exact &= np.isin(weight, [-1, 0, 1]).all(1)  # an input as it is, or its negative
    return np.where(exact[:, None], ends, widened(ends, weight.shape[1] * sizes))


def power(range_: np.ndarray, exponent: float) -> np.ndarray:
    """Range of x^exponent, (2,); x is positive, or the exponent a whole number."""
    ends = [_power_or_infinity(float(x), exponent) for x in range_]
    if exponent > 0 and range_[0] <= 0 <= range_[1]:
        ends.append(0.0)
    return np.array([min(ends), max(ends)])


def sine(range_: np.ndarray) -> np.ndarray:
    """Range of sin(x), (2,)."""
    return _wave(range_, math.sin, math.pi / 2)


def cosine(range_: np.ndarray) -> np.ndarray:
    """Range of cos(x), (2,)."""
    return _wave(range_, math.cos, 0.0)


def _wave(range_: np.ndarray, wave: Callable[[float], float], top: float) -> np.ndarray:
    """Range of a function of period 2 pi that is 1 at ``top`` and -1 half a period on."""
    low, high = range_.tolist()
    ends = [wave(low), wave(high)]
    for extremum, value in ((top, 1.0), (top + math.pi, -1.0)):
        first = extremum + 2 * math.pi * math.ceil((low - extremum) / (2 * math.pi))
        if first <= high + 8 * _UNIT * max(abs(low), abs(high)):
            ends.append(value)
    return np.clip(widened(np.array([min(ends), max(ends)]), 1.0), -1.0, 1.0)


def _power_or_infinity(x: float, exponent: float) -> float:
    try:
        return x**exponent
    except OverflowError:
        return math.inf if x > 0 or exponent % 2 == 0 else -math.inf


def product_range(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Range of a product, (2,)."""
    with np.errstate(invalid="ignore"):
        corners = np.nan_to_num(np.outer(first, second), nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.array([corners.min(), corners.max()])
