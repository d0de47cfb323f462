"""Names on the command line: which columns they mean, and what to say where they mean none."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

from combutab.cli._console import UserError


def find_columns(option: str, texts: Sequence[str], columns: Iterable[Any]) -> list[Any]:
    """Find the columns that an option names: one, or several separated by commas, each time.

    A name may be a pattern, as of files: ``*`` for all, ``street_*`` for some.

    Raises
    ------
    UserError
        If a name is none of a column.

    >>> find_columns("--drop", ["a,b", "c,d"], ["a", "b", "c,d"])
    ['a', 'b', 'c,d']
    >>> find_columns("--drop", ["x*"], ["x1", "x2", "y"])
    ['x1', 'x2']
    """
    by_text = {str(column): column for column in columns}
    found = []
    for text in texts:
        for name in [text] if text in by_text else text.split(","):
            name = name if name in by_text else name.strip()
            matching = [name] if name in by_text else fnmatch.filter(by_text, name)
            if not matching:
                raise UserError(f"{option}: there is no column {name!r}; {instead(name, by_text)}")
            found += [by_text[each] for each in matching]
    return list(dict.fromkeys(found))


def instead(name: str, known: Iterable[object], n: int = 8) -> str:
    """Suggest the names that the user may have meant, or some of those that there are.

    >>> instead("Pariss", ["Paris", "Rome"])
    "did you mean 'Paris'?"
    >>> instead("x", ["Paris", "Rome"])
    "there are 'Paris', 'Rome'"
    """
    texts = [str(each) for each in known]
    folded = {text.casefold(): text for text in texts}
    near = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(folded[each]) for each in near) + "?"
    more = f" and {len(texts) - n:,} more" if len(texts) > n else ""
    return f"there {'is only' if len(texts) == 1 else 'are'} " + (
        ", ".join(map(repr, texts[:n])) + more
    )
