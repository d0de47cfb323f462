"""ModeEncoder: a table to the rows of a generator's network, and back.

Uses the readers of tables in preprocessing; the generators use it.
"""

from combutab.preprocessing.modes._columns import CategoryColumn, IdentifierColumn, NumberColumn
from combutab.preprocessing.modes._encoder import ModeEncoder
from combutab.preprocessing.modes._identifiers import Identifiers, find_identifiers
from combutab.preprocessing.modes._incomplete import (
    IncompleteTable,
    append_cells,
    missing_codes,
    put_cells,
)
from combutab.preprocessing.modes._layout import ModeTable, RowLayout, RowSpan
from combutab.preprocessing.modes._values import read_duration, read_moment, read_number

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
    "read_duration",
    "read_moment",
    "read_number",
]
