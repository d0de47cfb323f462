"""Missing cells of a table, filled by a generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab.core.rng import Stream, fold_in
from combutab.generators._contract import Generator
from combutab.generators._records import NetworkT
from combutab.preprocessing import IncompleteTable, ModeEncoder, NumberColumn

Encoded = tuple[np.ndarray, np.ndarray]  # values and codes of rows


class Imputing(Generator[NetworkT]):
    """A generator that fills the missing cells of tables."""

    def impute(self, X: Any, *, n_draws: int = 1, random_state: Any = None) -> Any:
        """Fill the missing cells of a table by draws from what they are where the others are given.

        Cells that are there stay exactly as they are, and those whose values the generator cannot
        know (categories that it has not seen, numbers beyond the fitted ones) tell it nothing of
        their row. Identifiers are filled with new ones, as ``sample`` makes them. A column that
        the generator has seen no value of stays missing.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            With the columns of the fitted table; it may be that table.
        n_draws : int, default=1
            Tables; what differs between them is what the known cells leave open (multiple
            imputation).
        random_state : int, RandomState, Generator or None
            None goes on with the fit's own random numbers, as in ``sample``.

        Returns
        -------
        DataFrame, of pandas or polars as X, or array; a list where ``n_draws`` is more than 1
            A column keeps its dtype, unless that cannot hold what is filled in.

        Raises
        ------
        ValueError
            If X has other columns, a column of another kind, or infinite values.

        References
        ----------
        Rubin (1987), "Multiple imputation for nonresponse in surveys".

        Examples
        --------
        >>> from combutab import TVAE
        >>> X = pd.DataFrame({"x": np.arange(100) % 7.5, "kind": ["a", "b"] * 50})
        >>> model = TVAE(epochs=1, random_state=0).fit(X)
        >>> holes = pd.DataFrame({"x": [1.0, np.nan], "kind": [None, "b"]})
        >>> filled = model.impute(holes)
        >>> float(filled["x"][0]), filled["kind"][1], bool(filled.isna().any(axis=None))
        (1.0, 'b', False)
        >>> len(model.impute(holes, n_draws=3))
        3
        """
        table, drawn = self._draw_cells(X, n_draws, random_state)
        filled = [table.fill(self.encoder_.decode(*each)) for each in drawn]
        return filled[0] if n_draws == 1 else filled

    def impute_mean(self, X: Any, n_draws: int, random_state: Any) -> Any:
        """Fill missing cells by the mean of several draws, or their most frequent category."""
        table, drawn = self._draw_cells(X, n_draws, random_state)
        encoder = self.encoder_
        values, codes = drawn[0][0], drawn[0][1].copy()
        means: dict[int, np.ndarray] = {}
        for i, span in enumerate(encoder.layout_.spans if n_draws > 1 else ()):
            coder = encoder.columns_[span.column]
            if isinstance(coder, NumberColumn):
                columns = [coder.decode(v[:, span.value_index], c[:, i]) for v, c in drawn]
                numbers, missing = zip(*(coder.format.read(c, "") for c in columns), strict=True)
                means[i] = np.where(np.any(missing, axis=0), np.nan, np.mean(numbers, axis=0))
            else:
                codes[:, i] = _most_frequent([c[:, i] for _, c in drawn])
        return table.fill(decode_numbers(encoder, values, codes, means))

    def _draw_cells(
        self, X: Any, n_draws: int, random_state: Any
    ) -> tuple[IncompleteTable, list[Encoded]]:
        """Draw the rows of a table that miss cells, each time complete."""
        check_is_fitted(self)
        if not isinstance(n_draws, Integral) or isinstance(n_draws, bool) or n_draws < 1:
            raise ValueError(f"n_draws must be a whole number of at least 1, got {n_draws!r}")
        table = IncompleteTable(self.encoder_, X)
        key = self.sample_key(random_state)
        encoded, known = table.encode(fold_in(key, Stream.KNOWN))
        values, codes = encoded.values, encoded.codes
        if known.all():  # no row misses a cell, or of constant columns alone
            return table, [(values, codes)] * int(n_draws)
        return table, [
            self._draw_missing(values, codes, known, fold_in(key, Stream.DRAW, d))
            for d in range(int(n_draws))
        ]


def decode_numbers(
    encoder: ModeEncoder, values: np.ndarray, codes: np.ndarray, numbers: Mapping[int, np.ndarray]
) -> Any:
    """Decode rows of which some spans are these numbers, as their formats count them.

    NaN is a missing one. They are rounded only where their column is not of floats.
    """
    made = encoder.decode(values, codes)
    for i, own in numbers.items():
        j = encoder.layout_.spans[i].column
        exact: Any = encoder.columns_[j].format  # type: ignore[union-attr]
        if hasattr(exact, "decimals"):
            exact = replace(exact, decimals=None)
        missing = np.isnan(own)
        column = exact.write(np.where(missing, 0.0, own), missing)
        if isinstance(made, pd.DataFrame):
            made[encoder.schema_.keys[j]] = column
        else:
            made[:, encoder.schema_.keys[j]] = column
    return made


def _most_frequent(draws: Sequence[np.ndarray]) -> np.ndarray:
    """The most frequent of the draws of each row, the first drawn of several: (n,)."""
    rows = np.stack(draws, axis=1)
    counts = np.stack([(rows == each[:, None]).sum(axis=1) for each in draws], axis=1)
    most: np.ndarray = rows[np.arange(len(rows)), counts.argmax(axis=1)]
    return most
