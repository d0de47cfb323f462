"""Frames of polars and of pyarrow, as pandas would hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def as_pandas(X: Any, name: str = "X") -> Any:
    """Bring a frame or a column of another library to pandas; anything else is given back.

    polars needs no pyarrow for it.

    Raises
    ------
    TypeError
        If it is a lazy frame.
    """
    if is_polars(X, name):
        if not hasattr(X, "height"):
            return polars_column(X)
        return pd.DataFrame({each.name: polars_column(each) for each in X}, copy=False)
    if not isinstance(X, np.ndarray | pd.DataFrame | pd.Series) and hasattr(X, "to_pandas"):
        return X.to_pandas()
    return X


def is_polars(X: Any, name: str = "X") -> bool:
    """Tell whether a table or a column is one of polars; a lazy one is refused."""
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
    if dtype == pl.Null:
        return pd.Series(np.full(len(series), None), dtype=object)
    if dtype.is_decimal():
        series = series.cast(pl.Float64)
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


def fill_polars(frame: Any, made: pd.DataFrame) -> Any:
    """A polars frame with cells of a pandas one, of the same rows and columns, where it has none.

    A column keeps its dtype, unless that cannot hold the cells.
    """
    columns = []
    for each in frame:
        lost = polars_column(each).isna().to_numpy()
        cells = made[each.name][lost]
        if not cells.isna().all():  # nor where there is none
            new = polars_cells(cells, each.dtype)
            each = each.cast(new.dtype).scatter(np.flatnonzero(lost), new)
        columns.append(each)
    return frame.with_columns(columns)


def polars_cells(cells: pd.Series, dtype: Any) -> Any:
    """Cells of a pandas column as a polars column, of this dtype if it can hold them."""
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
