"""ModeEncoder: a table to the rows of a generator's network, and back.

Uses the readers of tables in preprocessing; the generators use it.
"""

from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    IdentifierColumn,
    Identifiers,
    NumberColumn,
    TableSchema,
    find_identifiers,
)
from combutab.preprocessing.modes._encoder import ModeEncoder, ModeTable, RowLayout, RowSpan
from combutab.preprocessing.modes._given import (
    given_categories,
    given_identifiers,
    given_numbers,
    join_bins,
    may_miss,
    merge_bins,
    occupied,
)
from combutab.preprocessing.modes._incomplete import (
    IncompleteTable,
    append_cells,
    missing_codes,
    put_cells,
)
from combutab.preprocessing.modes._numbers import to_ticks

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
    "TableSchema",
    "append_cells",
    "find_identifiers",
    "given_categories",
    "given_identifiers",
    "given_numbers",
    "join_bins",
    "may_miss",
    "merge_bins",
    "missing_codes",
    "occupied",
    "put_cells",
    "to_ticks",
]
