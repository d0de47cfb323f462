"""One reading of every kind of table: counted, named, and given out by column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from combutab.preprocessing._arrays import as_numpy
from combutab.preprocessing._blocks import ArrayBlock, Block, ColumnsBlock, SparseBlock
from combutab.preprocessing._categories import Factors, factorize
from combutab.preprocessing._columns import encoded_kind, narrow, raise_complex, to_float
from combutab.preprocessing._frames import as_pandas, is_polars, polars_column
from combutab.preprocessing._kinds import ColumnKind


class Table(ABC):
    """A table read by columns; the input itself is never changed."""

    def __init__(self, n_rows: int, names: Sequence[Any] | None, n_columns: int) -> None:
        self.n_rows = n_rows
        self.names = names
        self.n_columns = n_columns

    def label(self, j: int) -> str:
        """Name column j as errors do."""
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    @abstractmethod
    def column(self, j: int) -> pd.Series:
        """Column j, not copied where its storage allows."""

    def kind(self, j: int, categorical: bool | None) -> ColumnKind:
        """Decide which kind column j is encoded as; see `encoded_kind`."""
        return encoded_kind(self.column(j), categorical, self.label(j))

    def block(self, columns: Sequence[int], kinds: Sequence[ColumnKind]) -> Block:
        """The named columns as numbers."""
        arrays = [to_float(self.column(j), kinds[j], self.label(j)) for j in columns]
        return ColumnsBlock(arrays, self.n_rows, self._labels(columns))

    def factors(self, j: int) -> Factors:
        """Codes and distinct keys of column j."""
        return factorize(self.column(j), self.label(j))

    def _labels(self, columns: Sequence[int]) -> Callable[[int], str]:
        return lambda i: self.label(columns[i])


class FrameTable(Table):
    """A pandas DataFrame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        super().__init__(len(frame), list(frame.columns), frame.shape[1])
        self._columns = [column for _, column in frame.items()]  # a third of the time of iloc

    def column(self, j: int) -> pd.Series:
        return self._columns[j]


class PolarsTable(Table):
    """A polars DataFrame; each column is handed over as pandas would hold it."""

    def __init__(self, frame: Any) -> None:
        super().__init__(frame.height, list(frame.columns), frame.width)
        self.frame = frame

    def column(self, j: int) -> pd.Series:
        return polars_column(self.frame.to_series(j))


class ArrayTable(Table):
    """A 2-D numpy array of any dtype."""

    def __init__(self, array: np.ndarray, names: Sequence[Any] | None = None) -> None:
        if array.dtype.kind == "c":
            raise_complex("X")
        super().__init__(array.shape[0], names, array.shape[1])
        self.array = narrow(array)

    @property
    def numeric(self) -> bool:
        return self.array.dtype.kind in "biuf"

    def column(self, j: int) -> pd.Series:
        values = self.array[:, j]
        if values.dtype.kind in "OUS":
            return pd.Series(values.astype(object), dtype=object)
        return pd.Series(values, copy=False)

    def kind(self, j: int, categorical: bool | None) -> ColumnKind:
        if self.numeric and not categorical:
            return ColumnKind.BOOL if self.array.dtype.kind == "b" else ColumnKind.NUMBER
        return super().kind(j, categorical)

    def block(self, columns: Sequence[int], kinds: Sequence[ColumnKind]) -> Block:
        if not self.numeric or any(kinds[j] not in ("number", "bool") for j in columns):
            return super().block(columns, kinds)
        whole = len(columns) == self.n_columns
        return ArrayBlock(
            self.array if whole else self.array[:, list(columns)], self._labels(columns)
        )


class SparseTable(Table):
    """A scipy sparse matrix or array."""

    def __init__(self, matrix: Any) -> None:
        super().__init__(matrix.shape[0], None, matrix.shape[1])
        needed, available = 4 * self.n_rows * self.n_columns, available_memory()
        if needed > available:
            raise MemoryError(
                f"a dense float32 table of {self.n_rows} x {self.n_columns} needs "
                f"{needed / 1e9:.1f} GB, of which {available / 1e9:.1f} GB are available; reduce "
                "the columns first, for example with sklearn.decomposition.TruncatedSVD"
            )
        self.matrix = matrix.tocsr()

    def column(self, j: int) -> pd.Series:
        return pd.Series(self.matrix[:, [j]].toarray().ravel())

    def kind(self, j: int, categorical: bool | None) -> ColumnKind:
        if categorical:
            return ColumnKind.CATEGORY
        return ColumnKind.BOOL if self.matrix.dtype.kind == "b" else ColumnKind.NUMBER

    def block(self, columns: Sequence[int], kinds: Sequence[ColumnKind]) -> Block:
        if any(kinds[j] not in ("number", "bool") for j in columns):
            return super().block(columns, kinds)
        whole = len(columns) == self.n_columns
        return SparseBlock(
            self.matrix if whole else self.matrix[:, list(columns)], self._labels(columns)
        )


def available_memory() -> float:
    """Bytes of memory that a process can still get, infinity where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            sizes = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")


def read_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Table:
    """Check a table's shape and names as scikit-learn does, and wrap it.

    With ``reset=True`` the estimator's ``n_features_in_`` and ``feature_names_in_`` are set, else
    X is checked against them. Values are not looked at here.
    """
    X = _known_container(X)
    table: Table
    if isinstance(X, pd.DataFrame):
        _check_unique(X.columns)
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        table = _frame_table(X)
    elif _is_polars_frame(X):
        # Its header stands for it: which frames have names depends on scikit-learn's version.
        header = pd.DataFrame(columns=list(X.columns))
        validate_data(estimator, header, skip_check_array=True, reset=reset)
        table = PolarsTable(X)
    else:
        X = validate_data(
            estimator,
            X,
            accept_sparse=True,
            dtype=None,
            ensure_all_finite=False,
            reset=reset,
        )
        return SparseTable(X) if scipy.sparse.issparse(X) else ArrayTable(X)
    _check_not_empty(table, type(estimator).__name__)
    return table


def _frame_table(frame: pd.DataFrame) -> Table:
    # A frame of one numeric dtype is an array with names, without a step for each column.
    dtypes = set(frame.dtypes)
    if len(dtypes) == 1 and all(isinstance(d, np.dtype) and d.kind in "biuf" for d in dtypes):
        return ArrayTable(frame.to_numpy(), list(frame.columns))
    return FrameTable(frame)


def _known_container(X: Any) -> Any:
    """Bring what is neither a DataFrame, an array nor a sparse matrix to one of those."""
    X = as_numpy(X)
    if isinstance(X, pd.DataFrame | pd.Series) or scipy.sparse.issparse(X) or _is_polars_frame(X):
        return X
    if isinstance(X, list | tuple):
        array = np.asarray(X)
        # numpy would turn the numbers of a row that holds text into text
        return np.array(X, dtype=object) if array.dtype.kind in "US" else array
    if isinstance(X, np.ma.MaskedArray):
        if X.dtype.kind not in "biuf":
            raise TypeError(f"masked arrays must hold numbers, got {X.dtype}; use a DataFrame")
        return np.where(np.ma.getmaskarray(X), np.nan, X.data)
    if getattr(getattr(X, "dtype", None), "names", None) is not None:
        raise ValueError(
            "X is a structured array, whose columns are fields; pass pandas.DataFrame(X) instead"
        )
    return as_pandas(X)


def _is_polars_frame(X: Any) -> bool:
    return is_polars(X) and hasattr(X, "height")


def _check_unique(columns: pd.Index) -> None:
    if not columns.is_unique:
        twice = list(dict.fromkeys(columns[columns.duplicated()]))
        raise ValueError(f"X has duplicate column names: {twice}; rename or drop the copies")


def _check_not_empty(table: Table, name: str) -> None:
    # The words are scikit-learn's.
    shape = (table.n_rows, table.n_columns)
    for count, what in ((table.n_rows, "sample(s)"), (table.n_columns, "feature(s)")):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required by "
                f"{name}."
            )
