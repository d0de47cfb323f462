"""A span of time as users write it."""

from __future__ import annotations

import re

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_seconds(value: float | str | None) -> float:
    """Return seconds; without a limit, infinitely many.

    Raises ValueError if it is no positive number, with a unit where it is text.

    >>> parse_seconds("1.5min"), parse_seconds(10), parse_seconds(None)
    (90.0, 10.0, inf)
    """
    if value is None:
        return float("inf")
    if not isinstance(value, str):
        return float(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h)\s*", value)
    if match is None or not float(match[1]):
        raise ValueError(
            f"max_time must be a number of seconds or text such as '90s', '2min' or '1h', got "
            f"{value!r}"
        )
    return float(match[1]) * _UNITS[match[2]]
