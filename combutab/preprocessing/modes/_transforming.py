"""ModeEncoder as a transformer of scikit-learn: one array, its columns' names, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from combutab.preprocessing.modes._layout import ModeTable, RowLayout


class ModeTransformer(TransformerMixin):
    """``transform`` and ``inverse_transform`` of an encoder that has ``encode`` and ``decode``."""

    layout_: RowLayout

    def encode(self, X: Any) -> ModeTable:
        """Encode a table."""
        raise NotImplementedError

    def decode(self, values: Any, codes: Any) -> Any:
        """Decode rows."""
        raise NotImplementedError

    def transform(self, X: Any) -> np.ndarray:
        """Encode to one array: `encode`'s values, then its codes, as numbers.

        Returns
        -------
        ndarray of shape (n_rows, n_values + n_spans), float64

        Raises
        ------
        ValueError
            As `encode` does.
        """
        table = self.encode(X)
        return np.hstack([table.values, table.codes])

    def inverse_transform(self, X: Any) -> Any:
        """Decode what `transform` gives: a DataFrame, or an array if the encoder was fitted on one.

        Parameters
        ----------
        X : DataFrame or array of shape (n_rows, n_values + n_spans)

        Raises
        ------
        ValueError
            As `decode` does, and if a code is no whole number.
        """
        check_is_fitted(self)
        rows, n_values = np.asarray(X, dtype=np.float64), self.layout_.n_values
        width = n_values + len(self.layout_.spans)
        if rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"X must have the shape (n_rows, {width}), got {rows.shape}")
        codes = rows[:, n_values:]
        if not (codes == np.rint(codes)).all():
            raise ValueError(f"the last {width - n_values} columns are codes: whole numbers")
        return self.decode(rows[:, :n_values], codes.astype(np.int64))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`: ``age_value``, ..., then ``age_mode``, ``city``."""
        check_is_fitted(self)
        inputs, spans = _check_feature_names_in(self, input_features), self.layout_.spans
        values = sorted(
            (span.value_index, inputs[span.column])
            for span in spans
            if span.value_index is not None
        )
        names = [f"{name}_value" for _, name in values]
        names += [
            f"{inputs[s.column]}_mode" if s.kind == "mode" else inputs[s.column] for s in spans
        ]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags
