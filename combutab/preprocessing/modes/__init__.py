"""ModeEncoder: a table to the rows of a generator's network, and back.

Uses the readers of tables in preprocessing; the generators use it.
"""

from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    IdentifierColumn,
    Identifiers,
    NumberColumn,
    find_identifiers,
)
from combutab.preprocessing.modes._encoder import ModeEncoder, ModeTable, RowLayout, RowSpan
from combutab.preprocessing.modes._incomplete import (
    IncompleteTable,
    append_cells,
    missing_codes,
    put_cells,
)

__all__ = [
    "CategoryColumn",
    "IdentifierColumn",
    "Identifiers",
    "IncompleteTable",
    "ModeEncoder",
    "ModeTable",
    "NumberColumn",
    "RowLayout",
    "RowSpan",
    "append_cells",
    "find_identifiers",
    "missing_codes",
    "put_cells",
]
