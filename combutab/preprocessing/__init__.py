"""Encoders of tables: to the arrays of a network, and back."""

from combutab.preprocessing._columns import (
    ColumnKind,
    column_kind,
    refuse_large,
    rows_needed,
)
from combutab.preprocessing._encoder import EncodedTable, Span, TableEncoder
from combutab.preprocessing._features import calendar_phases, check_date_features
from combutab.preprocessing._inference import (
    OddColumn,
    OddColumnWarning,
    TargetError,
    UnlearnedWarning,
    infer_task,
    odd_columns,
    read_numbers,
)
from combutab.preprocessing._numeric import Moments, RunningMoments, binary_unit
from combutab.preprocessing._parquet import (
    ParquetParts,
    ParquetTable,
    Paths,
    RowGroup,
    parquet_parts,
)
from combutab.preprocessing._tables import (
    as_numpy,
    as_pandas,
    fill_polars,
    is_polars,
    polars_cells,
    refuse_cells,
)
from combutab.preprocessing.amounts import read_amounts
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
    "OddColumnWarning",
    "ParquetParts",
    "ParquetTable",
    "Paths",
    "RowGroup",
    "RowLayout",
    "RowSpan",
    "RunningMoments",
    "Span",
    "TableEncoder",
    "TargetError",
    "UnlearnedWarning",
    "append_cells",
    "as_numpy",
    "as_pandas",
    "binary_unit",
    "calendar_phases",
    "check_date_features",
    "column_kind",
    "fill_polars",
    "find_identifiers",
    "infer_task",
    "is_polars",
    "missing_codes",
    "odd_columns",
    "parquet_parts",
    "polars_cells",
    "put_cells",
    "read_amounts",
    "read_numbers",
    "refuse_cells",
    "refuse_large",
    "rows_needed",
]
