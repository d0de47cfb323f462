"""Errors of generators; who catches the ``ctgan`` package's errors catches ours too."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any


def data_error(error: ValueError) -> ValueError:
    """Make the error that says why a table cannot be learned.

    Where the ``ctgan`` package is loaded it is that package's ``InvalidDataError`` too. Whoever
    catches that has loaded it, so it is not imported for this.
    """
    theirs = sys.modules.get("ctgan.errors")
    return error if theirs is None else _joint(theirs.InvalidDataError)(str(error))


@cache
def _joint(theirs: Any) -> Any:
    def __reduce__(self: Any) -> tuple[Any, ...]:
        return data_error, (ValueError(*self.args),)

    return type(
        "InvalidDataError", (ValueError, theirs), {"__module__": __name__, "__reduce__": __reduce__}
    )


class ShortfallError(ValueError):
    """Fewer rows than were asked for met their conditions.

    Attributes
    ----------
    rows : DataFrame or array
        Those that were found, as ``sample`` would have returned them.
    """

    def __init__(self, message: str, rows: Any = None) -> None:
        super().__init__(message)
        self.rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rows)


def fall_short(what: str, rows: Any, on_shortfall: str, instead: str) -> None:
    """Tell of rows that were not found, and hand on those that were."""
    if on_shortfall == "return":
        warnings.warn(what, stacklevel=3)
        return
    kept = "; the rows found are the error's .rows, and on_shortfall='return' returns them"
    raise ShortfallError(what + (kept if len(rows) else "") + instead, rows)
