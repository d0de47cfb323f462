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
    ModeEncoder,
    ModeTable,
    NumberColumn,
    RowLayout,
    RowSpan,
    find_identifiers,
)

__all__ = [
    "CategoryColumn",
    "ColumnKind",
    "EncodedTable",
    "IdentifierColumn",
    "Identifiers",
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
    "as_pandas",
    "binary_unit",
    "column_kind",
    "find_identifiers",
    "infer_task",
    "odd_columns",
]
