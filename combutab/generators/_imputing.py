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
from combutab.core.text import list_names
from combutab.generators._relations import Columns, PartialRows
from combutab.generators._rules import Rules
from combutab.generators.completion import Completion, DrawnRows, report_shortfall
from combutab.generators.conditions import write_column
from combutab.generators.constraints import refuse_broken
from combutab.generators.sampling import (
    FREE,
    DirectSampler,
    Encoded,
    Sampler,
    check_arguments,
    invert,
    join,
)
from combutab.preprocessing import (
    IncompleteTable,
    ModeEncoder,
    Table,
    as_pandas,
    fill_polars,
    is_polars,
    missing_codes,
    put_cells,
)

_MAX_TRIES = 20  # candidates for each row that has to meet constraints


class MissingCells:
    """The rows of a table with missing cells, and how they are filled under constraints.

    ``draw`` is (values, codes, known, key, attempt) -> values and codes of complete rows.
    """

    def __init__(self, rules: Rules, X: Any, draw: Callable[..., Encoded], key: int) -> None:
        self.rules, self._X, self._draw, self._key = rules, X, draw, key
        encoder = rules.encoder
        extended = rules.learned.extend(X)
        self.table = IncompleteTable(encoder, extended)
        encoded, self.is_known = self.table.encode(fold_in(key, Stream.KNOWN))
        self.values, self.codes = encoded.values, encoded.codes
        if not rules:
            return
        columns, rows = Table(extended).columns_by_name(), self.table.rows
        refuse_broken(rules.constraints, rules.names, [columns], "the table", partial=True)
        complete_rows = np.setdiff1d(np.arange(len(self.table.missing)), rows)
        self._complete_rows = {n: column.iloc[complete_rows] for n, column in columns.items()}
        self._cells = {name: column.iloc[rows] for name, column in columns.items()}
        self._fixed = dict(zip(encoder.schema_.keys, ~self.table.missing[rows].T, strict=True))

    def fill(self, drawn: Encoded, decoded: Any = None) -> Any:
        """Fill the table with the cells of drawn rows, or of ``decoded`` ones instead of these.

        Rows that break a constraint are drawn again.

        Raises ShortfallError if no drawn row meets the constraints.
        """
        rules, encoder = self.rules, self.rules.encoder
        if decoded is None:
            decoded = encoder.decode(*drawn)
        if not rules or not len(self.table.rows):
            return rules.learned.drop(self.table.fill(decoded))
        columns = self._complete_under_constraints(drawn, decoded)
        filled = rules.learned.drop(self.table.fill(pd.DataFrame(columns)))
        return fill_polars(self._X, filled) if is_polars(self._X) else filled

    def _complete_under_constraints(self, drawn: Encoded, decoded: Any) -> dict[Any, pd.Series]:
        """The columns of the rows; rows are drawn again until they meet the constraints."""
        completion = Completion(self.rules, compares_identifiers=True)
        completion.use_columns(self._complete_rows)
        n = len(self.table.rows)
        positions, is_redrawn, may_exceed = np.arange(n), np.zeros(n, bool), np.zeros(n, bool)
        columns = self._complete(positions, decoded, drawn[1], may_exceed)
        reserved = completion.reserve(columns, self._fixed)

        def draw(rows: np.ndarray, key: int, attempt: int) -> DrawnRows:
            table_rows = positions[rows]
            is_redrawn[table_rows] = True
            is_known = self.is_known[table_rows]
            fixed_codes = self.codes[table_rows]
            values, codes = self._draw(self.values[table_rows], fixed_codes, is_known, key, attempt)
            codes = self.rules.combine(np.where(is_known, fixed_codes, codes), is_known, key)
            return DrawnRows(values, codes, np.zeros(len(rows), dtype=bool))

        def finish(rows: np.ndarray, candidates: DrawnRows) -> tuple[Columns, np.ndarray]:
            table_rows, codes = positions[rows], candidates.codes
            if not is_redrawn.any():  # the first rows are complete
                return columns, self._checked_codes(table_rows, codes)
            table = self.rules.encoder.decode(candidates.values, codes)
            completed = self._complete(table_rows, table, codes, may_exceed)
            return completed, self._checked_codes(table_rows, codes)

        first = DrawnRows(*drawn, np.zeros(n, dtype=bool))
        rows = completion.complete(first, draw, finish, self._key, _MAX_TRIES, reserved)
        if rows.missed.any():  # known cells may require values beyond the bounds of columns
            positions = np.flatnonzero(rows.missed)
            may_exceed[positions] = True
            again = replace(rows[positions], missed=np.zeros(len(positions), dtype=bool))
            reserved = reserved[positions]
            again = completion.complete(again, draw, finish, self._key, 1, reserved)
            rows.values[positions], rows.codes[positions] = again.values, again.codes
            rows.missed[positions] = again.missed
        if rows.missed.any():
            missed = self.table.rows[rows.missed]
            report_shortfall(
                f"{len(missed)} rows could not be filled so that they meet the constraints, the "
                f"first at {missed[0]} (the first row is 0)",
                completion,
                "correct their known cells, or leave the constraint out",
            )
        if is_redrawn.any():
            table = self.rules.encoder.decode(rows.values, rows.codes)
            new = self._complete(np.arange(n), table, rows.codes, may_exceed)
            for name, column in columns.items():
                columns[name] = put_cells(column, is_redrawn, new[name][is_redrawn])
        return columns

    def _complete(
        self, rows: np.ndarray, decoded: Any, codes: np.ndarray, may_exceed: np.ndarray
    ) -> dict[Any, pd.Series]:
        """Put the fixed cells into decoded rows, and compute the cells that follow from them."""
        columns, fixed = self.rules.columns_of(decoded), {}
        for name, column in columns.items():
            fixed[name] = is_fixed = self._fixed[name][rows]
            if is_fixed.any():
                cells = self._cells[name].iloc[rows[is_fixed]]
                columns[name] = put_cells(column, is_fixed, cells)
            if self.rules.coders[name].is_identifier:
                columns[name] = columns[name].mask(~is_fixed)  # made when all rows are complete
        picks = pd.util.hash_pandas_object(pd.DataFrame(codes), index=False).to_numpy() % 2**32
        coders = self.rules.coders
        return self.rules.complete(
            PartialRows(columns, coders, fixed, picks=picks, may_exceed=may_exceed[rows])
        )

    def _checked_codes(self, rows: np.ndarray, drawn_codes: np.ndarray) -> np.ndarray:
        """Codes of the rows; -1 for a fixed cell whose value has no code."""
        codes = np.where(self.is_known[rows], self.codes[rows], drawn_codes)
        for i, span in enumerate(self.rules.encoder.layout_.spans):
            name = self.rules.encoder.schema_.keys[span.column]
            codes[self._fixed[name][rows] & ~self.is_known[rows, i], i] = -1
        return codes


def warn_of_empty_columns(encoder: ModeEncoder) -> None:
    """Warn of columns that had no value in fit, whose cells stay missing."""
    empty = [
        name
        for name, coder in zip(encoder.schema_.keys, encoder.columns_, strict=True)
        if coder.categories is not None and not coder.keys and not coder.rare
    ]
    if empty:
        warnings.warn(
            f"{list_names(empty)} had no value in any row of the fitted table, and stays missing; "
            "leave the column out",
            stacklevel=3,
        )


class Imputing:
    """A generator that fills the missing cells of tables."""

    encoder_: ModeEncoder
    rules_: Rules
    _sample_key: Callable[[Any], int]
    _sampler: Callable[[], Sampler[Any]]

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
        cells, draws = self._draw_cells(X, n_draws, random_state)
        filled = [self.rules_.forms.fill(as_pandas(table), cells.fill(drawn)) for drawn in draws]
        return filled[0] if n_draws == 1 else filled

    def _draw_cells(
        self, X: Any, n_draws: int, random_state: Any
    ) -> tuple[MissingCells, list[Encoded]]:
        """Draw the rows of a table with missing cells, ``n_draws`` times."""
        check_is_fitted(self)
        key = self._sample_key(random_state)
        cells = MissingCells(self.rules_, X, self._draw_missing, key)
        values, codes, is_known = cells.values, cells.codes, cells.is_known
        if is_known.all():  # only constant columns have missing cells, if any
            return cells, [(values, codes)] * n_draws
        return cells, [
            self._draw_missing(values, codes, is_known, fold_in(key, Stream.DRAW, d))
            for d in range(n_draws)
        ]

    def _draw_missing(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        is_known: np.ndarray,
        key: int,
        attempt: int = 0,
    ) -> Encoded:
        """Complete encoded rows with some known spans, (n, n_spans) bool.

        Returns values (n, n_values) and codes (n, n_spans), whose unknown spans are not missing if
        the column has values. The known ones need not be kept. Later attempts use more donors.
        """
        sampler = self._sampler()
        if isinstance(sampler, DirectSampler):
            return draw_conditionally(sampler, values, codes, is_known, key)
        n_neighbors = _NEIGHBORS * 2 ** min(attempt, 20)
        return draw_nearest(sampler, values, codes, is_known, key, n_neighbors)


def impute_mean(model: Imputing, X: Any, n_draws: int, random_state: Any) -> Any:
    """Fill missing cells by the mean of several draws, or their most frequent category.

    Dates and times of X are in the dtypes that the generator has learned.
    """
    cells, draws = model._draw_cells(X, n_draws, random_state)
    encoder = model.encoder_
    values, codes = draws[0][0], draws[0][1].copy()
    means: dict[int, np.ndarray] = {}
    for i, span in enumerate(encoder.layout_.spans if n_draws > 1 else ()):
        coder = encoder.columns_[span.column]
        if coder.is_continuous:
            columns = [coder.decode(c[:, i], v[:, span.value_index]) for v, c in draws]
            numbers, missing = zip(*(coder.format.read(c, "") for c in columns), strict=True)
            means[i] = np.where(np.any(missing, axis=0), np.nan, np.mean(numbers, axis=0))
        else:
            codes[:, i] = _most_frequent([c[:, i] for _, c in draws])
    return cells.fill(draws[0], decode_numbers(encoder, values, codes, means))


def fill_by(model: Imputing, X: Any, decoded: Any, random_state: Any) -> Any:
    """Fill missing cells with those of decoded rows, or draw rows that break a constraint."""
    cells, draws = model._draw_cells(X, 1, random_state)
    return cells.fill(draws[0], decoded)


def decode_numbers(
    encoder: ModeEncoder, values: np.ndarray, codes: np.ndarray, numbers: Mapping[int, np.ndarray]
) -> Any:
    """Decode rows with other numbers in some spans, in the units of their formats.

    NaN is a missing number. Numbers are rounded only in columns that are not of floats.
    """
    table = encoder.decode(values, codes)
    for i, span_numbers in numbers.items():
        j = encoder.layout_.spans[i].column
        format: Any = encoder.columns_[j].format  # type: ignore[union-attr]
        missing = np.isnan(span_numbers)
        column = format.with_decimals(None).write(np.where(missing, 0.0, span_numbers), missing)
        write_column(table, encoder.schema_.keys[j], column)
    return table


def _most_frequent(draws: Sequence[np.ndarray]) -> np.ndarray:
    """The most frequent draw of each row, or the first of several: (n,)."""
    rows = np.stack(draws, axis=1)
    counts = np.stack([(rows == draw[:, None]).sum(axis=1) for draw in draws], axis=1)
    most_frequent: np.ndarray = rows[np.arange(len(rows)), counts.argmax(axis=1)]
    return most_frequent


# ---- Missing cells from similar synthetic rows: hot-deck imputation ------------------------------

_MIN_DONORS, _MAX_DONORS = 5000, 10_000
_NEIGHBORS = 5
_DISTANCES = 2**22  # in memory together
_MAX_DISTANCE = 4.0  # of two numbers, in standard deviations; that of unequal categories is 1
_JITTER = 1e-4  # decides between equally near donors


@dataclass(frozen=True, eq=False)
class Donors:
    """Synthetic rows: values (n, n_values), codes (n, n_spans), and which spans are missing."""

    encoder: ModeEncoder
    values: np.ndarray
    codes: np.ndarray
    missing: np.ndarray

    @classmethod
    def draw(cls, sampler: Sampler[Any], n: int, key: int) -> Donors:
        """Draw n rows, without missing values if the network can do that."""
        present = present_codes(sampler.encoder)
        parts = []
        for start in range(0, n, sampler.chunk):
            size = min(sampler.chunk, n - start)
            free = np.full(size, FREE)
            chunk_key = fold_in(key, Stream.CHUNK, start)
            parts.append(sampler.generate_allowed(size, free, free, chunk_key, present)[:2])
        values, codes = join(parts)
        if sampler.rules:
            values, codes = sampler.rules.consistent(values, codes, key)
        return cls(sampler.encoder, values, codes, codes == missing_codes(sampler.encoder))

    def choose(
        self,
        values: np.ndarray,
        codes: np.ndarray,
        is_known: np.ndarray,
        key: int,
        n_neighbors: int = _NEIGHBORS,
    ) -> np.ndarray:
        """Draw a donor for each row among the nearest, (n,)."""
        n, n_donors, n_spans = len(codes), len(self.codes), is_known.shape[1]
        numbers = {i: self._standardize(i, values, codes) for i in range(n_spans)}
        draws = random_uniform([fold_in(key, Stream.DONORS, 0)], 2 * n)[0].numpy()
        shift, pick = (draws[:n] * n_donors).astype(int), draws[n:]
        jitter = random_uniform([fold_in(key, Stream.DONORS, 1)], n_donors)[0].numpy()
        jitter = np.tile((jitter * _JITTER).astype(np.float32), 2)
        penalty = np.float32((_MAX_DISTANCE + 1) * n_spans) * self.missing.T.astype(np.float32)
        donors = np.empty(n, dtype=np.intp)
        step = max(1, _DISTANCES // n_donors)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            # the order of equally near donors differs between rows
            distances = np.stack([jitter[s : s + n_donors] for s in shift[rows]])
            distances += (~is_known[rows]).astype(np.float32) @ penalty
            for i in range(n_spans):
                if not is_known[rows, i].any():
                    continue
                if (pair := numbers[i]) is not None:
                    distance = np.abs(pair[0][rows, None] - pair[1])
                    distance = np.minimum(distance, np.float32(_MAX_DISTANCE))
                    distance[:, self.missing[:, i]] = 1.0
                else:
                    distance = (codes[rows, i, None] != self.codes[:, i]).astype(np.float32)
                distances += distance * is_known[rows, i, None]
            k = min(n_neighbors, n_donors)
            nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
            donors[rows] = nearest[np.arange(len(distances)), (pick[rows] * k).astype(int)]
        return donors

    def _standardize(
        self, i: int, values: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Numbers of rows and donors in the donors' standard deviations; None for categories."""
        span = self.encoder.layout_.spans[i]
        coder = self.encoder.columns_[span.column]
        if not coder.is_continuous:
            return None
        row_numbers, donor_numbers = (
            coder.format.read(coder.decode(c[:, i], v[:, span.value_index]), "")[0]
            for v, c in ((values, codes), (self.values, self.codes))
        )
        present = donor_numbers[~self.missing[:, i]]
        mean, scale = (present.mean(), present.std() or 1.0) if len(present) else (0.0, 1.0)
        row_numbers, donor_numbers = (
            ((np.asarray(x) - mean) / scale).astype(np.float32)
            for x in (row_numbers, donor_numbers)
        )
        return row_numbers, donor_numbers


def present_codes(encoder: ModeEncoder) -> dict[int, tuple[int, ...]]:
    """The codes that a missing cell may get, by span; spans with all codes allowed are left out."""
    layout, allowed = encoder.layout_, {}
    for i, missing in enumerate(missing_codes(encoder).tolist()):
        codes = set(range(layout.sizes[i])) - {missing}
        codes -= {code for span, code in layout.suppressed if span == i}
        if missing >= 0 and codes:
            allowed[i] = tuple(sorted(codes))
    return allowed


def draw_nearest(
    sampler: Sampler[Any],
    values: np.ndarray,
    codes: np.ndarray,
    is_known: np.ndarray,
    key: int,
    n_neighbors: int = _NEIGHBORS,
) -> Encoded:
    """Complete encoded rows with the cells of synthetic rows.

    The donor of a row is one of the ``n_neighbors`` synthetic rows nearest by its known cells:
    by the number of unequal categories and the numbers' distances in standard deviations. Rows
    with a value in all missing cells come first.

    Parameters
    ----------
    sampler : Sampler
    values, codes : ndarray of shapes (n, n_values) and (n, n_spans)
    is_known : ndarray of shape (n, n_spans), bool
    key, n_neighbors : int

    Returns
    -------
    values, codes : the same for known spans; a missing value in others only where the column has
        no values
    """
    encoder = sampler.encoder
    n_donors = min(max(_MIN_DONORS, 2 * len(codes)), _MAX_DONORS)
    donors = Donors.draw(sampler, n_donors, key)
    choice = donors.choose(values, codes, is_known, key, n_neighbors)
    drawn, drawn_values = np.where(is_known, codes, donors.codes[choice]), values.copy()
    present = present_codes(encoder)
    for i, span in enumerate(encoder.layout_.spans):
        unknown, index = ~is_known[:, i], span.value_index
        if index is not None:
            drawn_values[unknown, index] = donors.values[choice[unknown], index]
        rows = np.flatnonzero(unknown & donors.missing[choice, i])
        if len(rows) and i in present:
            uniform = random_uniform([fold_in(key, Stream.CODES, i)], len(rows))[0].numpy()
            allowed = np.array(present[i])
            weights = encoder.columns_[span.column].code_weights
            drawn[rows, i] = allowed[invert(weights[allowed], uniform)]
            if index is not None:
                drawn_values[rows, index] = 0.0  # the middle of a mode
    return drawn_values, drawn


def draw_conditionally(
    sampler: DirectSampler[Any],
    values: np.ndarray,
    codes: np.ndarray,
    is_known: np.ndarray,
    key: int,
) -> Encoded:
    """Complete encoded rows by a network that draws columns given others; see `draw_nearest`."""
    present = present_codes(sampler.encoder)
    allowed = {i: present[i] for i in present if not is_known[:, i].all()}
    fixed = np.full(values.shape, np.nan, dtype=np.float32)
    for i, span in enumerate(sampler.encoder.layout_.spans):
        if span.value_index is not None:
            rows = is_known[:, i]
            fixed[rows, span.value_index] = values[rows, span.value_index]
    return sampler.complete(np.where(is_known, codes, FREE), fixed, key, allowed)
