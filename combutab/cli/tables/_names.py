"""Names of columns on the command line."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

from combutab._suggestions import no_column
from combutab.cli._console import UserError


def find_columns(option: str, texts: Sequence[str], columns: Iterable[Any]) -> list[Any]:
    """Find the columns that an option names: one, or several separated by commas, each time.

    A name may be a pattern, as of files: ``*`` for all, ``street_*`` for some.

    Raises UserError if a name is none of a column.

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
                raise UserError(f"{option}: {no_column(name, by_text)}")
            found += [by_text[each] for each in matching]
    return list(dict.fromkeys(found))
