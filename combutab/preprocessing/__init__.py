"""Encoders of tables: to the arrays of a network, and back."""

from combutab.preprocessing._encoder import EncodedTable, Span, TableEncoder
from combutab.preprocessing._frames import as_pandas
from combutab.preprocessing._kinds import ColumnKind, column_kind
from combutab.preprocessing._moments import Moments, RunningMoments, binary_unit
from combutab.preprocessing._odd_columns import OddColumn, odd_columns
from combutab.preprocessing._parquet import ParquetTable, RowGroup
from combutab.preprocessing._task import infer_task
from combutab.preprocessing.modes import (
    CategoryColumn,
    IdentifierColumn,
    Identifiers,
    IncompleteTable,
    ModeEncoder,
    ModeTable,
    NumberColumn,
    RowLayout,
    RowSpan,
    append_cells,
    find_identifiers,
    missing_codes,
)

__all__ = [
    "CategoryColumn",
    "ColumnKind",
    "EncodedTable",
    "IdentifierColumn",
    "Identifiers",
    "IncompleteTable",
    "ModeEncoder",
    "ModeTable",
    "Moments",
    "NumberColumn",
    "OddColumn",
    "ParquetTable",
    "RowGroup",
    "RowLayout",
    "RowSpan",
    "RunningMoments",
    "Span",
    "TableEncoder",
    "append_cells",
    "as_pandas",
    "binary_unit",
    "column_kind",
    "find_identifiers",
    "infer_task",
    "missing_codes",
    "odd_columns",
]
