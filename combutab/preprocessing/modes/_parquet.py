"""Columns of Parquet files, each as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from combutab.preprocessing._parquet import ParquetTable


class WholeColumns(Sequence[pd.Series]):
    """The columns of Parquet files, read whole when they are asked for; the last one is held."""

    def __init__(self, table: ParquetTable, names: Sequence[str]) -> None:
        self._table, self._names = table, list(names)
        self._held: tuple[int, pd.Series] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, j: Any) -> Any:
        if not 0 <= j < len(self):
            raise IndexError(j)
        if self._held is None or self._held[0] != j:
            self._held = None  # not two at a time
            self._held = j, self._table.column(self._names[j])
        return self._held[1]
