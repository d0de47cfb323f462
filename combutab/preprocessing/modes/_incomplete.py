"""Tables with missing cells: encoded as far as they are known, and filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.utils.validation import check_is_fitted

from combutab.preprocessing._tables import Table, fill_polars, is_polars
from combutab.preprocessing.modes._encoder import ModeEncoder, ModeTable


class IncompleteTable:
    """A table with missing cells, with the columns that an encoder was fitted on.

    A cell is known if it is not missing and the encoder has a code for its value. There is no code
    for categories that did not occur in ``fit`` or were rare, for numbers beyond the fitted bounds,
    and for fractions in a column of integers.

    Parameters
    ----------
    encoder : ModeEncoder
        Fitted encoder.
    X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        The table.

    Attributes
    ----------
    missing : ndarray of shape (n_rows, n_columns), bool
        Missing cells, with the columns in the order of the encoder.
    rows : ndarray of int
        Positions of the rows with missing cells.

    Raises
    ------
    ValueError
        If X has other columns than the encoder, infinite values, or a column of another kind than
        in ``fit``, such as text instead of numbers.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [30.0, 31.0, 75.0, 76.0], "city": list("abba")})
    >>> encoder = ModeEncoder(random_state=0).fit(X)
    >>> holes = pd.DataFrame({"age": [30.0, np.nan, np.nan], "city": ["b", "new", "a"]})
    >>> table = IncompleteTable(encoder, holes)
    >>> encoded, known = table.encode(0)
    >>> table.rows, known.tolist()  # of age and of city
    (array([1, 2]), [[False, False], [False, True]])
    >>> table.fill(X[:2])["age"].tolist()
    [30.0, 30.0, 31.0]
    """

    def __init__(self, encoder: ModeEncoder, X: Any) -> None:
        check_is_fitted(encoder)
        self.encoder = encoder
        self._given = X
        table = Table(X)
        self._columns = encoder.schema_.match(table)
        for j, (column, coder) in enumerate(zip(self._columns, encoder.columns_, strict=True)):
            coder.refuse_other_values(column, encoder.schema_.label(j))
        self._table = table.data
        self.missing = np.stack([c.isna().to_numpy(dtype=bool) for c in self._columns], axis=1)
        self.rows = np.flatnonzero(self.missing.any(axis=1))

    def encode(self, seed: int, rows: np.ndarray | None = None) -> tuple[ModeTable, np.ndarray]:
        """Encode the known cells of rows.

        Parameters
        ----------
        seed : int
            Seed for drawing the modes of numbers.
        rows : ndarray of int, optional
            Positions of the rows; by default those with missing cells.

        Returns
        -------
        ModeTable
            The encoded rows, with 0 for cells that are not known.
        known : ndarray of shape (len(rows), n_spans), bool
            Whether the cell of each span is known.
        """
        layout = self.encoder.layout_
        rows = self.rows if rows is None else rows
        values = np.zeros((len(rows), layout.n_values), dtype=np.float32)
        codes = np.zeros((len(rows), len(layout.spans)), dtype=np.int64)
        is_known = np.zeros(codes.shape, dtype=bool)
        for i, span in enumerate(layout.spans):
            filled_rows = np.flatnonzero(~self.missing[rows, span.column])
            if not len(filled_rows):
                continue
            coder, label = self.encoder.columns_[span.column], self._label(span.column)
            cells = self._columns[span.column].iloc[rows[filled_rows]].reset_index(drop=True)
            rng = np.random.default_rng([seed, span.column])
            cell_values, cell_codes = coder.encode_known(cells, label, rng)
            is_known[filled_rows, i] = cell_codes >= 0
            codes[filled_rows, i] = np.maximum(cell_codes, 0)
            if span.value_index is not None:
                values[filled_rows, span.value_index] = cell_values
        return ModeTable(values, codes), is_known

    def fill(self, sampled: Any) -> Any:
        """Fill the missing cells with those of other rows; known cells are not changed.

        Missing identifiers are filled with new ones that are not in the table.

        Parameters
        ----------
        made : DataFrame or array, as from ``decode`` of the encoder
            One row for each of ``rows``.

        Returns
        -------
        DataFrame of pandas or polars as the table, or array
            A column keeps its dtype, unless the dtype cannot hold the new cells.
        """
        filled = self._table.copy()
        for j, name in enumerate(self.encoder.schema_.keys):
            absent = self.missing[:, j]
            coder = self.encoder.columns_[j]
            column = (
                sampled[name] if isinstance(sampled, pd.DataFrame) else pd.Series(sampled[:, j])
            )
            cells = column[absent[self.rows]]
            if coder.is_identifier and len(cells):
                cells = coder.make_for_missing(self._columns[j])
            if cells.isna().all():
                continue
            if isinstance(filled, pd.DataFrame):
                filled[name] = put_cells(filled[name], absent, cells)
                continue
            try:
                filled[absent, j] = cells.to_numpy(filled.dtype)
            except (TypeError, ValueError):  # text in an array of numbers
                filled = filled.astype(object)
                filled[absent, j] = cells.to_numpy(object)
        return fill_polars(self._given, filled) if is_polars(self._given) else filled

    def _label(self, j: int) -> str:
        return self.encoder.schema_.label(j)


def missing_codes(encoder: ModeEncoder) -> np.ndarray:
    """Return the code of missing values in each span of an encoder, (n_spans,); -1 for none.

    >>> encoder = ModeEncoder(random_state=0).fit(np.array([[1.0, 3.0], [2.0, np.nan], [4.0, 3.5]]))
    >>> missing_codes(encoder).tolist(), encoder.layout_.sizes
    ([-1, 1], (1, 2))
    """
    missing_codes = [encoder.columns_[span.column].missing_code for span in encoder.layout_.spans]
    return np.array(missing_codes, dtype=np.int64)


def append_cells(column: pd.Series, cells: pd.Series) -> pd.Series:
    """Append cells to a column, in the dtype of the column if it can hold them.

    New categories are added to those of the column.

    >>> append_cells(pd.Series(["b"], dtype="category"), pd.Series(["a", "b"])).tolist()
    ['b', 'a', 'b']
    >>> append_cells(pd.Series([0.5]), pd.Series([1, 2])).dtype
    dtype('float64')
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dense = append_cells(_dense(column), cells)
        return dense.astype(pd.SparseDtype(dense.dtype, dtype.fill_value))
    if isinstance(dtype, pd.CategoricalDtype):
        cells = cells.astype(object)
        present = dict.fromkeys(cells.dropna())
        new = [value for value in present if value not in dtype.categories]
        if new:
            categories = [*dtype.categories.astype(object), *new]
            column = column.astype(pd.CategoricalDtype(categories, dtype.ordered))
        return pd.concat([column, cells.astype(column.dtype)], ignore_index=True)
    return pd.concat([column, _to_dtype(cells, dtype)], ignore_index=True)


def put_cells(column: pd.Series, absent: np.ndarray, cells: pd.Series) -> pd.Series:
    """Replace the cells where ``absent``, (n,) bool, with dtypes as in `append_cells`."""
    dtype: Any = column.dtype
    if absent.all() and not isinstance(dtype, pd.CategoricalDtype | pd.SparseDtype):
        return _to_dtype(cells, dtype).set_axis(column.index)
    position = np.arange(len(column))
    position[absent] = len(column) + np.arange(len(cells))
    return append_cells(column, cells).take(position).set_axis(column.index)


def _to_dtype(cells: pd.Series, dtype: Any) -> pd.Series:
    """Cells as a dtype holds them, or as they are if it cannot."""
    cells = _dense(cells)
    try:
        converted = cells.astype(dtype)
        same = (converted == cells) | cells.isna()
    except (TypeError, ValueError, OverflowError):
        return cells
    rounded = types.is_float_dtype(dtype) and types.is_numeric_dtype(cells.dtype)
    return converted if rounded or same.all() else cells


def _dense(column: pd.Series) -> pd.Series:
    dtype: Any = column.dtype
    return column.astype(dtype.subtype) if isinstance(dtype, pd.SparseDtype) else column
