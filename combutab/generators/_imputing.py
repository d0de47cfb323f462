"""Missing cells of a table, filled by a generator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from combutab.core.rng import Stream, fold_in, random_uniform
from combutab.generators._relations import Columns, PartialRows
from combutab.generators._rules import Rules
from combutab.generators.completion import DrawnRows, Search
from combutab.generators.conditions import write_column
from combutab.generators.constraints import read_columns, refuse_broken
from combutab.generators.sampling import (
    FREE,
    DirectSampler,
    Encoded,
    Sampler,
    ShortfallError,
    check_arguments,
    invert,
    join,
)
from combutab.preprocessing import (
    CategoryColumn,
    IdentifierColumn,
    IncompleteTable,
    ModeEncoder,
    NumberColumn,
    as_pandas,
    fill_polars,
    is_polars,
    missing_codes,
    put_cells,
)

_MAX_TRIES = 20  # rows drawn for each that is to meet constraints


class Cells:
    """The rows of a table that miss cells, and how they are filled under constraints.

    ``draw`` is (values, codes, known, key, attempt) -> values and codes of complete rows.
    """

    def __init__(self, rules: Rules, X: Any, draw: Callable[..., Encoded], key: int) -> None:
        self.rules, self._given, self._draw, self._key = rules, X, draw, key
        encoder = rules.encoder
        widened = rules.learned.extend(X)
        self.table = IncompleteTable(encoder, widened)
        encoded, self.known = self.table.encode(fold_in(key, Stream.KNOWN))
        self.values, self.codes = encoded.values, encoded.codes
        if not rules:
            return
        columns, rows = read_columns(widened), self.table.rows
        refuse_broken(rules.constraints, rules.names, [columns], "the table", partial=True)
        whole = np.setdiff1d(np.arange(len(self.table.missing)), rows)
        self._whole = {name: column.iloc[whole] for name, column in columns.items()}
        self._cells = {name: column.iloc[rows] for name, column in columns.items()}
        there = ~self.table.missing[rows]
        self._there = dict(zip(encoder.schema_.keys, there.T, strict=True))

    def fill(self, drawn: Encoded, better: Any = None) -> Any:
        """The table with cells of rows as they are drawn, or of ``better`` decoded ones.

        Rows that break a constraint are drawn anew.

        Raises ShortfallError if there is none that meets them.
        """
        rules, encoder = self.rules, self.rules.encoder
        made = encoder.decode(*drawn) if better is None else better
        if not rules or not len(self.table.rows):
            return rules.learned.drop(self.table.fill(made))
        search = Search(rules, kept=True)
        search.take_columns(self._whole)
        every = positions = np.arange(len(self.table.rows))
        self._beyond, is_redrawn = np.zeros((2, len(every)), dtype=bool)
        first = DrawnRows(*drawn, np.zeros(len(every), dtype=bool))
        columns = self._complete(every, made, drawn[1])
        reserved = search.reserve(columns, self._there)
        first_columns = [columns]

        def draw(rows: np.ndarray, key: int, attempt: int) -> DrawnRows:
            at = positions[rows]
            is_redrawn[at] = True
            known = self.values[at], self.codes[at], self.known[at]
            values, codes = self._draw(*known, key, attempt)
            codes = np.where(self.known[at], self.codes[at], codes)
            codes = rules.combine(codes, self.known[at], key)
            return DrawnRows(values, codes, np.zeros(len(at), dtype=bool))

        def complete(rows: np.ndarray, made: DrawnRows) -> tuple[Columns, np.ndarray]:
            at = positions[rows]
            if first_columns:
                return first_columns.pop(), self._judged(at, made)
            table = encoder.decode(made.values, made.codes)
            return self._complete(at, table, made.codes), self._judged(at, made)

        found = search.redraw(first, draw, complete, self._key, _MAX_TRIES, reserved)
        if found.missed.any():  # given cells may ask for more than the columns had
            positions = np.flatnonzero(found.missed)
            self._beyond[positions] = True
            again = replace(found[positions], missed=np.zeros(len(positions), dtype=bool))
            last = search.redraw(again, draw, complete, self._key, 1, reserved[positions])
            found.values[positions], found.codes[positions] = last.values, last.codes
            found.missed[positions] = last.missed
        if found.missed.any():
            at = self.table.rows[found.missed]
            raise ShortfallError(
                f"{len(at)} rows could not be filled so that they meet the constraints, the "
                f"first at {at[0]} (the first row is 0): {search.explain()}; correct their "
                "known cells, or leave the constraint out"
            )
        if is_redrawn.any():
            new = self._complete(every, encoder.decode(found.values, found.codes), found.codes)
            for name, column in columns.items():
                columns[name] = put_cells(column, is_redrawn, new[name][is_redrawn])
        filled = rules.learned.drop(self.table.fill(pd.DataFrame(columns)))
        return fill_polars(self._given, filled) if is_polars(self._given) else filled

    def _complete(self, rows: np.ndarray, made: Any, codes: np.ndarray) -> dict[Any, pd.Series]:
        """The columns of decoded rows with the cells that are given, and what follows from them."""
        columns, given = self.rules.columns_of(made), {}
        for name, column in columns.items():
            given[name] = there = self._there[name][rows]
            if there.any():
                cells = self._cells[name].iloc[rows[there]]
                columns[name] = put_cells(column, there, cells)
            if isinstance(self.rules.coders[name], IdentifierColumn):
                columns[name] = columns[name].mask(~there)  # they are made when all are known
        picks = pd.util.hash_pandas_object(pd.DataFrame(codes), index=False).to_numpy()
        partial = PartialRows(
            columns, self.rules.coders, given, None, picks % 2**32, self._beyond[rows]
        )
        return self.rules.complete(partial)

    def _judged(self, rows: np.ndarray, made: DrawnRows) -> np.ndarray:
        """Codes of the rows, -1 of a cell that is given and has none."""
        codes = np.where(self.known[rows], self.codes[rows], made.codes)
        for i, span in enumerate(self.rules.encoder.layout_.spans):
            name = self.rules.encoder.schema_.keys[span.column]
            codes[self._there[name][rows] & ~self.known[rows, i], i] = -1
        return codes


def warn_of_empty_columns(encoder: ModeEncoder) -> None:
    """Warn of columns that had no value in fit, whose cells stay missing."""
    empty = [
        name
        for name, coder in zip(encoder.schema_.keys, encoder.columns_, strict=True)
        if isinstance(coder, CategoryColumn) and not coder.keys and not coder.rare
    ]
    if empty:
        listed = ", ".join(map(repr, empty[:_N_LISTED])) + ", ..." * (len(empty) > _N_LISTED)
        warnings.warn(
            f"{listed} had no value in any row of the fitted table, and stays missing; leave the "
            "column out",
            stacklevel=3,
        )


_N_LISTED = 5  # columns that a warning names


class Imputing:
    """A generator that fills the missing cells of tables."""

    encoder_: ModeEncoder
    rules_: Rules
    sample_key: Callable[[Any], int]
    sampler: Callable[[], Sampler[Any]]

    def impute(self, X: Any, *, n_draws: int = 1, random_state: Any = None) -> Any:
        """Impute the missing cells of a table by sampling, given the other cells of the row.

        Known cells are not changed. Values that the generator has not seen in ``fit`` (new
        categories, numbers beyond the fitted range) are kept, but not used as conditions. Rows meet
        the constraints: cells that follow from known cells are computed, and a cell that must be
        missing stays missing. Identifiers are filled with new ones, as in ``sample``. A column that
        was empty in ``fit`` stays missing.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            A table with the columns of the fitted table, or the fitted table itself.
        n_draws : int, default=1
            Number of imputed tables (multiple imputation). The differences between them show the
            uncertainty of the imputed cells.
        random_state : int, RandomState, Generator or None
            Seed. None continues the random numbers of the fit, as in ``sample``.

        Returns
        -------
        DataFrame of pandas or polars as X, or array; with ``n_draws`` above 1 a list of these
            A column keeps its dtype, unless the dtype cannot hold the imputed values.

        Raises
        ------
        ValueError
            If X has other columns, a column of another kind, or infinite values, or if the known
            cells of a row violate a constraint.
        ShortfallError
            If cells cannot be filled so that the row meets the constraints.

        References
        ----------
        Rubin (1987), "Multiple imputation for nonresponse in surveys".

        Examples
        --------
        >>> import numpy as np, pandas as pd
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
        check_arguments(self, "impute", n_draws=n_draws)
        table, X = X, self.rules_.forms.read(as_pandas(X)) if self.rules_.forms.forms else X
        cells, drawn = self._draw_cells(X, n_draws, random_state)
        filled = [self.rules_.forms.fill(as_pandas(table), cells.fill(each)) for each in drawn]
        return filled[0] if n_draws == 1 else filled

    def impute_mean(self, X: Any, n_draws: int, random_state: Any) -> Any:
        """Fill missing cells by the mean of several draws, or their most frequent category.

        Dates and times of X are those that `Rules.read_forms` gives.
        """
        cells, drawn = self._draw_cells(X, n_draws, random_state)
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
        return cells.fill(drawn[0], decode_numbers(encoder, values, codes, means))

    def fill_by(self, X: Any, made: Any, random_state: Any) -> Any:
        """The table with cells of decoded rows, or draws where these break a constraint."""
        cells, drawn = self._draw_cells(X, 1, random_state)
        return cells.fill(drawn[0], made)

    def _draw_cells(self, X: Any, n_draws: int, random_state: Any) -> tuple[Cells, list[Encoded]]:
        """Draw the rows of a table that miss cells, each time complete."""
        check_is_fitted(self)
        key = self.sample_key(random_state)
        cells = Cells(self.rules_, X, self._draw_missing, key)
        values, codes, known = cells.values, cells.codes, cells.known
        if known.all():  # no row misses a cell, or of constant columns alone
            return cells, [(values, codes)] * n_draws
        return cells, [
            self._draw_missing(values, codes, known, fold_in(key, Stream.DRAW, d))
            for d in range(n_draws)
        ]

    def _draw_missing(
        self, values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int, attempt: int = 0
    ) -> Encoded:
        """Complete encoded rows of which some spans are known, (n, n_spans) bool.

        Returns values (n, n_values) and codes (n, n_spans), whose unknown spans have a value that
        is not missing wherever the column has one. The known ones need not be kept. A later
        ``attempt`` looks further.
        """
        n_neighbors = _NEIGHBORS * 2 ** min(attempt, 20)
        return draw_nearest(self.sampler(), values, codes, known, key, n_neighbors)


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
        write_column(made, encoder.schema_.keys[j], column)
    return made


def _most_frequent(draws: Sequence[np.ndarray]) -> np.ndarray:
    """The most frequent of the draws of each row, the first drawn of several: (n,)."""
    rows = np.stack(draws, axis=1)
    counts = np.stack([(rows == each[:, None]).sum(axis=1) for each in draws], axis=1)
    most: np.ndarray = rows[np.arange(len(rows)), counts.argmax(axis=1)]
    return most


# ---- Missing cells from synthetic rows that are near to a row's known cells: a hot deck ----------

_FEWEST, _MOST = 5000, 10_000  # donors
_NEIGHBORS = 5
_DISTANCES = 2**22  # held at a time
_FAR = 4.0  # standard deviations: no number is further away; unequal categories are at one
_JITTER = 1e-4  # decides between donors that are equally near


@dataclass(frozen=True, eq=False)
class Donors:
    """Synthetic rows: values (n, n_values), codes (n, n_spans), and which spans are missing."""

    encoder: ModeEncoder
    values: np.ndarray
    codes: np.ndarray
    missing: np.ndarray

    @classmethod
    def make(cls, sampler: Sampler[Any], n: int, key: int) -> Donors:
        """Generate n rows, without missing values where the network can do without."""
        present = present_codes(sampler.encoder)
        parts = []
        for made in range(0, n, sampler.chunk):
            size = min(sampler.chunk, n - made)
            free = np.full(size, FREE)
            chunk_key = fold_in(key, Stream.CHUNK, made)
            parts.append(sampler.generate_allowed(size, free, free, chunk_key, present)[:2])
        values, codes = join(parts)
        if sampler.rules:  # what follows from others does so in donors, too
            values, codes = sampler.rules.consistent(values, codes, key)
        return cls(sampler.encoder, values, codes, codes == missing_codes(sampler.encoder))

    def choose(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        known: np.ndarray,
        key: int,
        n_neighbors: int = _NEIGHBORS,
    ) -> np.ndarray:
        """Draw a donor for each row among the nearest, (n,)."""
        n, n_donors = len(codes), len(self.codes)
        spans = range(known.shape[1])
        numbers = {i: x for i in spans if (x := self._standardised(i, values, codes))}
        shift, pick = (
            random_uniform([fold_in(key, Stream.DONORS, 0)], 2 * n)[0].numpy().reshape(2, n)
        )
        tie = random_uniform([fold_in(key, Stream.DONORS, 1)], n_donors)[0].numpy()
        tie = np.tile((tie * _JITTER).astype(np.float32), 2)
        shift = (shift * n_donors).astype(int)
        lacks = np.float32((_FAR + 1) * len(spans)) * self.missing.T.astype(np.float32)
        chosen = np.empty(n, dtype=np.intp)
        step = max(1, _DISTANCES // n_donors)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            # each row has an order of its own of those that are equally near
            away = np.stack([tie[s : s + n_donors] for s in shift[rows]])
            away += (~known[rows]).astype(np.float32) @ lacks
            for i in spans:
                if not known[rows, i].any():
                    continue
                if i in numbers:
                    asked, had = numbers[i]
                    distance = np.minimum(np.abs(asked[rows, None] - had), np.float32(_FAR))
                    distance[:, self.missing[:, i]] = 1.0
                else:
                    distance = (codes[rows, i, None] != self.codes[:, i]).astype(np.float32)
                distance *= known[rows, i, None]
                away += distance
            k = min(n_neighbors, n_donors)
            nearest = np.argpartition(away, k - 1, axis=1)[:, :k]
            chosen[rows] = nearest[np.arange(len(away)), (pick[rows] * k).astype(int)]
        return chosen

    def _standardised(
        self, i: int, values: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers of rows and donors in the donors' standard deviations; None for categories."""
        span = self.encoder.layout_.spans[i]
        coder = self.encoder.columns_[span.column]
        if not isinstance(coder, NumberColumn):
            return None
        asked, had = (
            coder.format.read(coder.decode(v[:, span.value_index], c[:, i]), "")[0]
            for v, c in ((values, codes), (self.values, self.codes))
        )
        some = had[~self.missing[:, i]]
        centre, sd = (some.mean(), some.std()) if len(some) else (0.0, 0.0)
        asked, had = ((np.asarray(x) - centre) / (sd or 1.0) for x in (asked, had))
        return asked.astype(np.float32), had.astype(np.float32)


def present_codes(encoder: ModeEncoder) -> dict[int, tuple[int, ...]]:
    """The codes that a missing cell may get, of spans of which it may not get all."""
    layout, found = encoder.layout_, {}
    for i, missing in enumerate(missing_codes(encoder).tolist()):
        others = set(range(layout.sizes[i])) - {missing}
        others -= {code for span, code in layout.suppressed if span == i}
        if missing >= 0 and others:
            found[i] = tuple(sorted(others))
    return found


def draw_nearest(
    sampler: Sampler[Any],
    values: np.ndarray,
    codes: np.ndarray,
    known: np.ndarray,
    key: int,
    n_neighbors: int = _NEIGHBORS,
) -> Encoded:
    """Complete encoded rows by the cells of synthetic rows.

    The donor of a row is one of the ``n_neighbors`` synthetic rows nearest by its known cells:
    by the number of unequal categories and the numbers' distances in standard deviations. Rows
    that have a value in all cells that are wanted come first.

    Parameters
    ----------
    sampler : Sampler
    values, codes : ndarray of shapes (n, n_values) and (n, n_spans)
    known : ndarray of shape (n, n_spans), bool
    key, n_neighbors : int

    Returns
    -------
    values, codes : the same for known spans; a missing value in others only where the column has
        no values
    """
    encoder = sampler.encoder
    donors = Donors.make(sampler, min(max(_FEWEST, 2 * len(codes)), _MOST), key)
    chosen = donors.choose(values, codes, known, key, n_neighbors)
    drawn, drawn_values = np.where(known, codes, donors.codes[chosen]), values.copy()
    present = present_codes(encoder)
    for i, span in enumerate(encoder.layout_.spans):
        wanted = ~known[:, i]
        if span.value_index is not None:
            here = donors.values[chosen[wanted], span.value_index]
            drawn_values[wanted, span.value_index] = here
        lacking = np.flatnonzero(wanted & donors.missing[chosen, i])
        if len(lacking) and i in present:
            uniform = random_uniform([fold_in(key, Stream.CODES, i)], len(lacking))[0].numpy()
            own, coder = np.array(present[i]), encoder.columns_[span.column]
            modes = coder.mixture.weights if isinstance(coder, NumberColumn) else None
            counts = encoder.category_counts_[i] if modes is None else modes
            drawn[lacking, i] = own[invert(counts[own], uniform)]
            if span.value_index is not None:
                drawn_values[lacking, span.value_index] = 0.0  # the middle of a mode
    return drawn_values, drawn


def draw_beside(
    sampler: Sampler[Any], values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int
) -> Encoded:
    """Complete encoded rows by a network that draws columns beside others; as `draw_nearest`."""
    present = present_codes(sampler.encoder)
    assert isinstance(sampler, DirectSampler)
    allowed = {i: own for i, own in present.items() if not known[:, i].all()}
    given = np.full(values.shape, np.nan, dtype=np.float32)
    for i, span in enumerate(sampler.encoder.layout_.spans):
        if span.value_index is not None:
            own = known[:, i]
            given[own, span.value_index] = values[own, span.value_index]
    return sampler.complete(np.where(known, codes, FREE), given, key, allowed)
