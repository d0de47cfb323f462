"""The known names that look most like a misspelt one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: object, known: Iterable[object], n: int = 3) -> list[str]:
    """Return up to ``n`` of the known names, the nearest first; case does not count.

    >>> nearest("medv", ["MEDV", "CRIM", "MEDIAN"])
    ['MEDV', 'MEDIAN']
    """
    by_folded: dict[str, list[str]] = {}
    for candidate in map(str, known):
        by_folded.setdefault(candidate.casefold(), []).append(candidate)
    matches = difflib.get_close_matches(str(name).casefold(), by_folded, n=n, cutoff=0.5)
    return [candidate for match in matches for candidate in by_folded[match]][:n]
