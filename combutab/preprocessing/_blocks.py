"""The numeric columns of a table, read in pieces of rows so that no float64 copy is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

# Values a piece holds: 1 MB of float64, so that the passes over it stay in the cache.
_PIECE = 2**17


class Block(Protocol):
    """Numeric columns of one table, all of ``n_rows`` rows."""

    n_rows: int
    n_columns: int
    tolerance: np.ndarray
    """(n_columns,) relative range under which a column counts as constant."""
    centred: bool
    """True if scaling may subtract a centre (not for sparse input, whose zeros stay zeros)."""
    label: Callable[[int], str]
    """Name column j as errors do."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows as a new float64 array of shape (stop - start, n_columns)."""

    def column(self, j: int) -> np.ndarray:
        """Column j as a new float64 array of shape (n_rows,)."""


def pieces(block: Block) -> Iterator[slice]:
    """Slices of rows that cover a block, each about a megabyte."""
    step = max(1, _PIECE // max(1, block.n_columns))
    for start in range(0, block.n_rows, step):
        yield slice(start, min(start + step, block.n_rows))


def _tolerance(dtype: np.dtype) -> float:
    # A constant that went through a few roundings; integers and halves are held exactly enough.
    single = dtype == np.float32
    return float(4 * np.finfo(np.float32).eps if single else 16 * np.finfo(np.float64).eps)


class ArrayBlock:
    """A 2-D numeric array."""

    centred = True

    def __init__(self, array: np.ndarray, label: Callable[[int], str] = "column {}".format) -> None:
        self.array, self.label = array, label
        self.n_rows, self.n_columns = array.shape
        self.tolerance = np.full(self.n_columns, _tolerance(array.dtype))

    def rows(self, start: int, stop: int) -> np.ndarray:
        return np.array(self.array[start:stop], dtype=np.float64, order="C")

    def column(self, j: int) -> np.ndarray:
        return np.array(self.array[:, j], dtype=np.float64)


class ColumnsBlock:
    """A sequence of 1-D numeric arrays, each of its own dtype."""

    centred = True

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        n_rows: int,
        label: Callable[[int], str] = "column {}".format,
    ) -> None:
        self.columns, self.label = list(columns), label
        self.n_rows, self.n_columns = n_rows, len(self.columns)
        self.tolerance = np.array([_tolerance(column.dtype) for column in self.columns])

    def rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, self.n_columns))
        for j, column in enumerate(self.columns):
            rows[:, j] = column[start:stop]
        return rows

    def column(self, j: int) -> np.ndarray:
        return np.array(self.columns[j], dtype=np.float64)


class SparseBlock:
    """A scipy sparse matrix, densified piece by piece."""

    centred = False

    def __init__(self, matrix: Any, label: Callable[[int], str] = "column {}".format) -> None:
        self.matrix, self.label = matrix, label
        self.n_rows, self.n_columns = matrix.shape
        self.tolerance = np.full(self.n_columns, _tolerance(matrix.dtype))

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self.matrix[start:stop].toarray().astype(np.float64, order="C", copy=False)

    def column(self, j: int) -> np.ndarray:
        return self.matrix[:, [j]].toarray().ravel().astype(np.float64, copy=False)
