"""Table, the one reader of tables in any container, and conversions from and to containers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from combutab.core.memory import available_memory
from combutab.core.text import no_column
from combutab.preprocessing._columns import (
    ColumnKind,
    Factors,
    Key,
    encoded_kind,
    factorize,
    large_numbers,
    narrow,
    raise_complex,
    refuse_objects,
    time_unit,
    to_float,
)
from combutab.preprocessing._forms import ColumnForm

# ---- Arrays of other libraries, as numpy would hold them -----------------------------------------


def as_numpy(X: Any, name: str = "X") -> Any:
    """Convert a torch tensor, or an array of the array API standard, to numpy.

    Other objects are returned unchanged. Tensors can be on any device and require gradients.

    Raises
    ------
    TypeError
        If numpy cannot read it, such as a sparse tensor or a GPU array of another library.

    Examples
    --------
    >>> import torch
    >>> as_numpy(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    array([1., 2.], dtype=float32)
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.Tensor):
        if X.layout != torch.strided:
            raise TypeError(
                f"{name} is a sparse tensor of torch ({X.layout}); pass {name}.to_dense(), or a "
                "sparse matrix of scipy"
            )
        X = X.detach().cpu()
        return (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    if isinstance(X, np.ndarray) or not hasattr(X, "__array_namespace__"):
        return X
    try:
        return np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} is an array of {type(X).__module__.partition('.')[0]} that numpy cannot read "
            f"({error}); move it to the CPU, or pass a numpy array"
        ) from error


# ---- Frames of polars and of pyarrow, as pandas would hold them ----------------------------------


def as_pandas(X: Any, name: str = "X") -> Any:
    """Convert a DataFrame or Series of polars to pandas, without pyarrow.

    Other objects are returned unchanged.

    Raises
    ------
    TypeError
        If it is a LazyFrame.
    """
    if is_polars(X, name):
        if not hasattr(X, "height"):
            return polars_column(X)
        return pd.DataFrame({column.name: polars_column(column) for column in X}, copy=False)
    if not isinstance(X, np.ndarray | pd.DataFrame | pd.Series) and hasattr(X, "to_pandas"):
        return X.to_pandas()
    return X


def is_polars(X: Any, name: str = "X") -> bool:
    """Return whether X is a polars DataFrame or Series; raises TypeError for a LazyFrame."""
    if not type(X).__module__.startswith("polars"):
        return False
    if hasattr(X, "collect"):
        raise TypeError(
            f"{name} is a lazy polars frame ({type(X).__name__}); call .collect() on it"
        )
    return True


def polars_column(series: Any) -> pd.Series:
    """Bring a polars column to pandas, not copied where its storage allows."""
    import polars as pl

    dtype = series.dtype
    if dtype in (getattr(pl, "Int128", None), getattr(pl, "UInt128", None)):
        integers = series.cast(pl.Int64, strict=False)
        series = (
            integers if integers.null_count() == series.null_count() else series.cast(pl.Float64)
        )
        dtype = series.dtype
    if dtype == pl.Null:
        return pd.Series(np.full(len(series), None), dtype=object)
    if dtype.is_decimal():
        integers = series.cast(pl.Int64, strict=False)  # which floats would round
        exact = not dtype.scale and integers.null_count() == series.null_count()
        series = integers if exact else series.cast(pl.Float64)
    elif dtype == pl.Date:
        series = series.cast(pl.Datetime("us"))
    elif dtype == pl.Time:
        series = series.cast(pl.Duration("ns"))
    elif dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    elif dtype == pl.Datetime and dtype.time_zone is not None:
        utc = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return pd.Series(utc.to_numpy()).dt.tz_localize("UTC").dt.tz_convert(dtype.time_zone)
    if series.dtype == pl.Boolean and series.null_count():
        values = series.fill_null(False).to_numpy()
        return pd.Series(pd.arrays.BooleanArray(values, series.is_null().to_numpy()))
    if series.dtype.is_integer() and series.null_count():
        values = series.fill_null(0).to_numpy()
        return pd.Series(pd.arrays.IntegerArray(values.copy(), series.is_null().to_numpy()))
    if series.dtype.is_numeric() or series.dtype.is_temporal() or series.dtype == pl.Boolean:
        return pd.Series(series.to_numpy())
    values = np.empty(len(series), dtype=object)  # which numpy would take lists apart for
    values[:] = series.to_list()
    return pd.Series(values, dtype=object)


def fill_polars(frame: Any, filled: pd.DataFrame) -> Any:
    """Fill the missing cells of a polars DataFrame with those of a pandas DataFrame.

    Both have the same rows and columns. A column keeps its dtype, unless the dtype cannot hold the
    cells.
    """
    columns = []
    for column in frame:
        is_missing = polars_column(column).isna().to_numpy()
        cells = filled[column.name][is_missing]
        if not cells.isna().all():
            new = polars_cells(cells, column.dtype)
            column = column.cast(new.dtype).scatter(np.flatnonzero(is_missing), new)
        columns.append(column)
    return frame.with_columns(columns)


def polars_cells(cells: pd.Series, dtype: Any) -> Any:
    """Convert cells of a pandas Series to polars, with this dtype if it can hold them."""
    import polars as pl

    values = [None if missing else v for v, missing in zip(cells, cells.isna(), strict=True)]
    column = pl.Series(str(cells.name), values, strict=False)
    if dtype == pl.Null:
        return column
    if dtype == pl.Time and column.dtype == pl.Duration:  # since midnight, as polars_column has it
        return (column.dt.total_microseconds() * 1000).cast(pl.Time)
    try:
        return column.cast(dtype)
    except pl.exceptions.PolarsError:
        return column


# ---- The columns that the user calls categorical -------------------------------------------------


def categorical_mask(
    categorical_features: Any, names: Sequence[Any] | None, n_columns: int
) -> np.ndarray | None:
    """The parameter `categorical_features` as a mask, (n_columns,); None for "from_dtype".

    It is that, None, or a mask, positions or names, as in HistGradientBoostingClassifier.

    >>> categorical_mask(["b"], ["a", "b"], 2)
    array([False,  True])
    >>> categorical_mask([-1], None, 3)
    array([False, False,  True])
    """
    if isinstance(categorical_features, str):  # "from_dtype": the only one that is valid
        return None
    if categorical_features is None or len(categorical_features) == 0:
        return np.zeros(n_columns, dtype=bool)
    chosen = np.asarray(categorical_features)
    if chosen.dtype.kind in "UOT":
        if names is None:
            raise ValueError(
                f"categorical_features={list(categorical_features)!r} are names, but X has none; "
                "pass a DataFrame, or positions"
            )
        return chosen_mask(list(categorical_features), "categorical_features", names, n_columns)
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(
            "categorical_features must be a mask, positions or column names, got "
            f"{categorical_features!r}"
        )
    if chosen.dtype.kind == "b":
        if len(chosen) != n_columns:
            raise ValueError(
                f"categorical_features is a mask of length {len(chosen)}, but X has {n_columns} "
                "columns; give one boolean per column"
            )
        return chosen.copy()
    return chosen_mask(chosen.tolist(), "categorical_features", None, n_columns)


def chosen_mask(
    chosen: list[Any], parameter: str, names: Sequence[Any] | None, n_columns: int
) -> np.ndarray:
    """A mask, (n_columns,), of columns chosen by name, or by position where there are no names."""
    if names is not None:
        position = {name: j for j, name in enumerate(names)}
        unknown = [name for name in chosen if name not in position]
        if unknown:
            raise ValueError(f"{parameter}: {no_column(unknown[0], names)}")
        chosen = [position[name] for name in chosen]
    outside = [j for j in chosen if not -n_columns <= j < n_columns]
    if outside:
        raise ValueError(
            f"{parameter} has the position {outside[0]}, but X has {n_columns} columns; "
            f"positions lie in 0 to {n_columns - 1}"
        )
    mask = np.zeros(n_columns, dtype=bool)
    mask[np.asarray(chosen, dtype=np.intp)] = True
    return mask


# ---- The numeric columns of a table, read in pieces of rows so that no float64 copy is held ------

# Values a piece holds: 1 MB of float64, so that the passes over it stay in the cache.
_PIECE = 2**17


class Block:
    """Numeric columns of one table: a 2-D array, a sparse matrix, or a 1-D array for each column.

    Attributes
    ----------
    n_rows, n_columns : int
    tolerance : ndarray of shape (n_columns,)
        Relative range under which a column counts as constant.
    centred : bool
        Whether scaling may subtract a centre (not for sparse input, whose zeros stay zeros).
    label : callable
        Names column j as errors do.
    """

    def __init__(
        self, source: Any, n_rows: int, label: Callable[[int], str] = "column {}".format
    ) -> None:
        self._source, self.n_rows, self.label = source, n_rows, label
        self._separate = isinstance(source, list)
        self.n_columns = len(source) if self._separate else source.shape[1]
        dtypes = [array.dtype for array in (source if self._separate else [source])]
        self.tolerance = np.resize([_tolerance(dtype) for dtype in dtypes], self.n_columns)
        self.centred = not scipy.sparse.issparse(source)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows as a new float64 array of shape (stop - start, n_columns)."""
        if not self.centred:
            dense = self._source[start:stop].toarray()
            return dense.astype(np.float64, order="C", copy=False)
        if not self._separate:
            return np.array(self._source[start:stop], dtype=np.float64, order="C")
        rows = np.empty((stop - start, self.n_columns))
        for j, column in enumerate(self._source):
            rows[:, j] = column[start:stop]
        return rows

    def column(self, j: int) -> np.ndarray:
        """Column j as a new float64 array of shape (n_rows,)."""
        if not self.centred:
            return self._source[:, [j]].toarray().ravel().astype(np.float64, copy=False)
        return np.array(self._source[j] if self._separate else self._source[:, j], np.float64)

    def pieces(self) -> Iterator[slice]:
        """Slices of rows that cover the block, each about a megabyte."""
        step = max(1, _PIECE // max(1, self.n_columns))
        for start in range(0, self.n_rows, step):
            yield slice(start, min(start + step, self.n_rows))


def _tolerance(dtype: np.dtype) -> float:
    # A constant that went through a few roundings; integers and halves are held exactly enough.
    single = dtype == np.float32
    return float(4 * np.finfo(np.float32).eps if single else 16 * np.finfo(np.float64).eps)


# ---- The one reader of tables --------------------------------------------------------------------


class Table:
    """A table in any container, read by columns; the container is never changed.

    Parameters
    ----------
    X : DataFrame of pandas, polars or pyarrow, 2-D array, sparse matrix, or list of rows
        An array can be of NumPy, torch, or the array API standard.
    name : str, default="X"
        Name of the table in error messages.
    accept_sparse : bool, default=False
        Whether X can be a sparse matrix.

    Attributes
    ----------
    data : DataFrame, ndarray or sparse matrix
        The table in pandas, NumPy or scipy.
    n_rows, n_columns : int
    names : list or None
        Names of the columns; None if X is an array.

    Raises
    ------
    TypeError
        If X is not a table, is a lazy frame or a masked array without numbers, or is sparse and
        this is not accepted.
    ValueError
        If X does not have two dimensions, has duplicate column names or complex numbers, or is a
        structured array.

    Examples
    --------
    >>> table = Table([["Rome", 1], ["Oslo", 2]])
    >>> table.n_rows, table.names, table.column(0).tolist()
    (2, None, ['Rome', 'Oslo'])
    """

    def __init__(self, X: Any, name: str = "X", *, accept_sparse: bool = False) -> None:
        data, columns, names = as_table(X, name), [], None
        if isinstance(data, pd.DataFrame):
            names = list(data.columns)
            columns = [column for _, column in data.items()]  # a third of the time of iloc
        elif scipy.sparse.issparse(data):
            if not accept_sparse:
                raise TypeError(f"{name} is a sparse matrix; pass {name}.toarray(), or a DataFrame")
            _refuse_too_large(*data.shape)
        else:
            data = _check_array(data, name)
            if data.dtype.kind not in "biuf":
                native = _native(data)
                columns = [object_column(native[:, j]) for j in range(data.shape[1])]
        self.data, self.names, self._name = data, names, name
        self.n_rows, self.n_columns = data.shape
        self._columns: dict[int, pd.Series] = dict(enumerate(columns))
        self._factors: dict[int, Factors] = {}

    @cached_property
    def _numbers(self) -> Any:
        """The table as one array or sparse matrix of numbers or booleans; None for other tables."""
        if not isinstance(self.data, pd.DataFrame):
            is_sparse = scipy.sparse.issparse(self.data)
            if is_sparse or self.data.dtype.kind not in "biuf":
                return self.data if is_sparse else None
            return narrow(self.data)
        dtypes = list(set(self.data.dtypes))
        is_uniform = len(dtypes) == 1 and isinstance(dtypes[0], np.dtype)
        # an array with names, without a step for each column
        return narrow(self.data.to_numpy()) if is_uniform and dtypes[0].kind in "biuf" else None

    def refuse_empty(self) -> None:
        """Raise ValueError if there are no rows or no columns."""
        for count, what in zip(self.data.shape, ("sample(s)", "feature(s)"), strict=True):
            if count == 0:  # the words are scikit-learn's
                prefix = "" if self._name == "X" else f"{self._name}: "
                raise ValueError(
                    f"{prefix}Found array with 0 {what} (shape={self.data.shape}) while a minimum "
                    "of 1 is required."
                )

    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame; the columns of an array are numbered."""
        if isinstance(self.data, pd.DataFrame):
            return self.data
        is_sparse = scipy.sparse.issparse(self.data)
        return pd.DataFrame(self.data.toarray() if is_sparse else self.data)

    def columns(self) -> list[pd.Series]:
        """All columns."""
        return [self.column(j) for j in range(self.n_columns)]

    def columns_by_name(self) -> dict[Any, pd.Series]:
        """All columns by name, or by position in an array, with rows that are counted from 0.

        Objects of an array that are numbers, booleans or dates have the dtype of these.
        """
        if self.names is None:
            return {j: self.column(j).infer_objects() for j in range(self.n_columns)}
        columns = zip(self.names, self.columns(), strict=True)
        return {name: column.reset_index(drop=True) for name, column in columns}

    def label(self, j: int) -> str:
        """Name column j as errors do."""
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def column(self, j: int) -> pd.Series:
        """Column j, not copied where its storage allows."""
        if j in self._columns:
            return self._columns[j]
        if scipy.sparse.issparse(self.data):
            return pd.Series(self.data[:, [j]].toarray().ravel())
        return pd.Series(_native(self.data[:, j]), copy=False)

    def kind(self, j: int, categorical: bool | None) -> ColumnKind:
        """Decide which kind column j is encoded as; see `encoded_kind`."""
        if self._numbers is not None and not categorical:
            return ColumnKind.BOOL if self._numbers.dtype.kind == "b" else ColumnKind.NUMBER
        return encoded_kind(self.column(j), categorical, self.label(j))

    def is_numeric(self, j: int) -> bool:
        """Whether the dtype of column j is one of numbers or booleans."""
        return self._numbers is not None or self.column(j).dtype.kind in "biuf"

    def block(self, columns: Sequence[int], kinds: Sequence[ColumnKind]) -> Block:
        """The named columns as numbers."""
        source: Any
        if self._numbers is not None and all(kinds[j] in ("number", "bool") for j in columns):
            takes_all = len(columns) == self.n_columns
            source = self._numbers if takes_all else self._numbers[:, list(columns)]
        else:
            source = [to_float(self.column(j), kinds[j], self.label(j)) for j in columns]
        return Block(source, self.n_rows, lambda i: self.label(columns[i]))

    def units(self, kinds: Sequence[ColumnKind]) -> tuple[str, ...]:
        """Units in which the columns of dates and durations count, "" for other columns."""
        return tuple(
            time_unit(self.column(j), kind, self.label(j))
            if kind in (ColumnKind.DATETIME, ColumnKind.TIMEDELTA)
            else ""
            for j, kind in enumerate(kinds)
        )

    def large_numbers(
        self, block: Block, columns: Sequence[int], kinds: Sequence[ColumnKind]
    ) -> dict[int, list[Fraction]]:
        """Of the columns of a block some numbers that may be too large for it, exactly."""
        dtype = None if self._numbers is None else self._numbers.dtype
        if dtype is not None and (dtype.kind not in "iu" or dtype.itemsize < 8):
            return {}
        large = {
            j: large_numbers(self.column(j), block.column(i), kinds[j])
            for i, j in enumerate(columns)
            if kinds[j] != "bool"
        }
        return {j: numbers for j, numbers in large.items() if numbers}

    def read_as(self, forms: Sequence[ColumnForm]) -> None:
        """Read columns of dates and times as text by their forms."""
        for form in forms:
            j = form.column
            self._columns[j] = form.read(self.column(j), self.label(j))
            self._numbers = None
            self._factors.pop(j, None)

    def factors(self, j: int) -> Factors:
        """Codes and distinct keys of column j."""
        if j not in self._factors:
            self._factors[j] = factorize(self.column(j), self.label(j))
        return self._factors[j]

    def order(self, j: int) -> list[Key] | None:
        """All categories of column j in their order; None if its dtype has no ordered ones."""
        dtype = self.column(j).dtype
        if not isinstance(dtype, pd.CategoricalDtype) or not dtype.ordered:
            return None
        return factorize(pd.Series(dtype.categories), self.label(j)).keys


def refuse_cells(X: Any) -> None:
    """Raise TypeError if cells of a table hold lists or other objects.

    Arguments that are not tables are ignored.

    Raises
    ------
    TypeError
        The message names the first such cell of a column.

    Examples
    --------
    >>> refuse_cells(pd.DataFrame({"tags": ["a", ["b", "c"]]}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: column 'tags', data row 2, holds a list: ['b', 'c']; a cell must be one number, ...
    """
    columns: list[tuple[Any, pd.Series]] = []
    if isinstance(X, pd.DataFrame):
        columns = [(repr(name), column) for name, column in X.items()]
    elif isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2:
        columns = [(str(j), pd.Series(column)) for j, column in enumerate(X.T)]
    elif hasattr(X, "height") and is_polars(X):
        nested = [column for column in X if column.dtype.is_nested()]
        columns = [(repr(column.name), polars_column(column)) for column in nested]
    for name, column in columns:
        opaque = column.dtype.kind == "O" and not isinstance(column.dtype, pd.CategoricalDtype)
        if opaque and not pd.api.types.infer_dtype(column, skipna=True).startswith("str"):
            refuse_objects(column, f"column {name}")


def object_column(values: np.ndarray) -> pd.Series:
    """A column of an array: its text as Python's, which pandas might make its own dtype of."""
    if values.dtype.kind in "OUS":
        return pd.Series(values.astype(object), dtype=object)
    return pd.Series(values, copy=False)


def _refuse_too_large(n_rows: int, n_columns: int) -> None:
    needed, available = 4 * n_rows * n_columns, available_memory()
    if needed > available:
        raise MemoryError(
            f"a dense float32 table of {n_rows} x {n_columns} needs {needed / 1e9:.1f} GB, of "
            f"which {available / 1e9:.1f} GB are available; reduce the columns first, for example "
            "with sklearn.decomposition.TruncatedSVD"
        )


def validate_table(
    estimator: BaseEstimator, X: Any, *, reset: bool, accept_sparse: bool = True
) -> Table:
    """Check a table's shape and names as scikit-learn does, and wrap it.

    With ``reset=True`` the estimator's ``n_features_in_`` and ``feature_names_in_`` are set, else
    X is checked against them. Values are not looked at here.
    """
    X = as_table(X)
    if isinstance(X, pd.DataFrame):
        table = Table(X)
        table.refuse_empty()
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        return table
    options: dict[str, Any] = {"dtype": None, "ensure_all_finite": False}
    X = validate_data(estimator, X, reset=reset, accept_sparse=accept_sparse, **options)
    return Table(X, accept_sparse=True)


def as_table(X: Any, name: str = "X") -> Any:
    """Convert any container of a table to a DataFrame, an array or a sparse matrix, not copied.

    The rows of all of them can be selected. Other objects, such as numbers, are returned unchanged.

    Raises
    ------
    ValueError
        If a frame has duplicate names; if X is a structured array.
    TypeError
        If X is a lazy frame, or a masked array that does not hold numbers.
    """
    X = as_pandas(as_numpy(X, name), name)
    if isinstance(X, pd.DataFrame):
        if not X.columns.is_unique:
            repeated = list(dict.fromkeys(X.columns[X.columns.duplicated()]))
            raise ValueError(
                f"{name} has duplicate column names: {repeated}; rename or drop the copies"
            )
    elif isinstance(X, list | tuple):
        array = np.asarray(X)
        # numpy would turn the numbers of a row that holds text into text
        return np.array(X, dtype=object) if array.dtype.kind in "US" else array
    elif scipy.sparse.issparse(X):
        return X.tocsr()
    elif isinstance(X, np.ma.MaskedArray):
        if X.dtype.kind not in "biuf":
            raise TypeError(f"masked arrays must hold numbers, got {X.dtype}; use a DataFrame")
        return np.where(np.ma.getmaskarray(X), np.nan, X.data)
    elif getattr(getattr(X, "dtype", None), "names", None) is not None:
        raise ValueError(
            f"{name} is a structured array, whose columns are fields; pass "
            f"pandas.DataFrame({name}) instead"
        )
    elif hasattr(X, "__array__") and not hasattr(X, "__getitem__"):
        return np.asarray(X)
    return X


def _check_array(data: Any, name: str) -> np.ndarray:
    """Return an object as a two-dimensional array; refuses objects that are no tables."""
    if isinstance(data, pd.Series):
        raise ValueError(
            f"{name} is a single column; pass a DataFrame, for example {name}.to_frame()"
        )
    if not hasattr(data, "__array__"):
        raise TypeError(
            f"{name} must be a DataFrame of pandas or polars, an array or a list of rows, got a "
            f"{type(data).__name__}; convert it to one of those"
        )
    array = np.asarray(data)
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have the shape (n_rows, n_columns), got an array of shape {array.shape}; "
            "reshape it"
        )
    if array.dtype.kind == "c":
        raise_complex(name)
    return array


def _native(array: np.ndarray) -> np.ndarray:
    """An array in the byte order of this machine, which pandas needs."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
