"""Errors that who catches the ``ctgan`` package's errors catches too."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


def data_error(error: ValueError) -> ValueError:
    """What says that a table cannot be learned.

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
