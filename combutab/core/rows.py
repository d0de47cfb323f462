"""Row numbers in error messages: those of the user's table, also while a part of it is read."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

_ALL: Sequence[int] = range(sys.maxsize)
_rows: ContextVar[Sequence[int] | np.ndarray | None] = ContextVar("rows", default=_ALL)


@contextmanager
def rows_of_table(rows: Sequence[int] | np.ndarray | None) -> Iterator[None]:
    """Name rows in errors by their positions in the user's table; None if these are unknown."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


def name_row(i: int, prefix: str = "") -> str:
    """Name a row in parentheses, after a space; "" if its position is unknown.

    >>> with rows_of_table([5, 8]):
    ...     name_row(1)
    ' (data row 9)'
    """
    rows = _rows.get()
    return "" if rows is None else f" ({prefix}data row {int(rows[i]) + 1:,})"
