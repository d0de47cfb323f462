"""Suggestions in errors: the known names that an unknown one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object], n: int = 3) -> str:
    """Ask whether one of up to ``n`` known names was meant; say nothing if none is near.

    >>> did_you_mean("medv", ["MEDV", "CRIM", "MEDIAN"])
    "did you mean 'MEDV' or 'MEDIAN'?"
    >>> did_you_mean("x", ["MEDV"])
    ''
    """
    texts: dict[str, list[str]] = {}
    for each in known:
        texts.setdefault(str(each).casefold(), []).append(repr(each))
    near = difflib.get_close_matches(str(name).casefold(), texts, n=n, cutoff=0.6)
    found = [text for match in near for text in texts[match]][:n]
    return f"did you mean {' or '.join(found)}?" if found else ""


def known_instead(name: object, known: Iterable[object], n: int = 8) -> str:
    """Ask as `did_you_mean`, or else name the first ``n`` of those that there are.

    >>> known_instead("Pariss", ["Paris", "Rome"])
    "did you mean 'Paris'?"
    >>> known_instead("x", ["Paris", "Rome"])
    "there are 'Paris', 'Rome'"
    """
    known = list(known)
    more = f" and {len(known) - n:,} more" if len(known) > n else ""
    listed = ", ".join(map(repr, known[:n])) + more
    verb = "is only" if len(known) == 1 else "are"
    return did_you_mean(name, known) or f"there {verb} {listed}"


def no_column(name: object, columns: Iterable[object]) -> str:
    """Say that a table has no such column, and which may have been meant.

    >>> no_column("Age", ["age", "sex"])
    "there is no column 'Age'; did you mean 'age'?"
    """
    return f"there is no column {name!r}; {known_instead(name, columns)}"
