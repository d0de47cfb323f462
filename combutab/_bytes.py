"""Sizes of memory as bytes or text."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

_UNITS = {"": 1, **{p: 1000 ** (i + 1) for i, p in enumerate("kmgt")}}
_UNITS |= {f"{p}i": 1024 ** (i + 1) for i, p in enumerate("kmgt")}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?|)b\s*", re.IGNORECASE)


def parse_bytes(limit: Any) -> int:
    """A number of bytes, or text such as "500MB" or "1.5 GiB", as bytes.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (500000000, 1610612736, 4096)
    """
    if isinstance(limit, str):
        match = _PATTERN.fullmatch(limit)
        if match is not None:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    elif isinstance(limit, Integral) and not isinstance(limit, bool) and int(limit) > 0:
        return int(limit)
    raise ValueError(
        "memory_limit must be a positive number of bytes or text such as '500MB', '2GB' or "
        f"'1.5GiB', got {limit!r}"
    )
