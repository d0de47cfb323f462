"""Encoders of tables: to the arrays of a network, and back."""

from combutab.preprocessing._arrays import as_numpy
from combutab.preprocessing._encoder import EncodedTable, Span, TableEncoder
from combutab.preprocessing._frames import as_pandas, is_polars, polars_cells
from combutab.preprocessing._kinds import ColumnKind, column_kind
from combutab.preprocessing._moments import Moments, RunningMoments, binary_unit
from combutab.preprocessing._odd_columns import OddColumn, odd_columns
from combutab.preprocessing._parquet import ParquetTable, RowGroup
from combutab.preprocessing._parquet_files import Paths
from combutab.preprocessing._parquet_output import ParquetParts, parquet_parts
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
    put_cells,
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
    "ParquetParts",
    "ParquetTable",
    "Paths",
    "RowGroup",
    "RowLayout",
    "RowSpan",
    "RunningMoments",
    "Span",
    "TableEncoder",
    "append_cells",
    "as_numpy",
    "as_pandas",
    "binary_unit",
    "column_kind",
    "find_identifiers",
    "infer_task",
    "is_polars",
    "missing_codes",
    "odd_columns",
    "parquet_parts",
    "polars_cells",
    "put_cells",
]
