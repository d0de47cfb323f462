"""ModeEncoder: a table to the rows of a generator's network, and back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from combutab.core.files import check_parameters
from combutab.core.state import pack, unpack_all, with_lists
from combutab.core.text import list_names
from combutab.preprocessing._columns import rows_needed
from combutab.preprocessing._parquet import ParquetTable
from combutab.preprocessing._tables import Table
from combutab.preprocessing.modes._columns import (
    Identifiers,
    ModeColumn,
    NumberColumn,
    TableSchema,
    choose_formats,
    choose_identifiers,
    fit_categories,
    fit_identifiers,
)
from combutab.preprocessing.modes._fakes import choose_fakes
from combutab.preprocessing.modes._numbers import (
    Mixture,
    Sample,
    fit_bins,
    fit_mixtures,
    take_sample,
)
from combutab.preprocessing.modes._state import STATE

# ---- The layout of a row of a generator's network: values, then one-hot spans --------------------


@dataclass(frozen=True)
class RowSpan:
    """A one-hot span of an encoded row.

    Attributes
    ----------
    column : int
        Position of its column in the table.
    kind : {"category", "mode"}
        What it encodes: the value of a discrete column, or the mode of a continuous one.
    value_index : int or None
        Index of the value within that mode among the values of the row; None for categories.
    missing : bool
        Whether the last mode is that of missing values.
    """

    column: int
    kind: Literal["category", "mode"]
    value_index: int | None = None
    missing: bool = False


@dataclass(frozen=True)
class RowLayout:
    """The layout of a row of a generator's network: values in [-1, 1], then one-hot spans.

    Attributes
    ----------
    n_values : int
        Number of values.
    sizes : tuple of int
        Size of each span, in ascending order, so that spans of equal size are neighbours.
    spans : tuple of RowSpan
        The spans.
    suppressed : tuple of (int, int)
        Span and code of what is learned but never sampled: the rare values of a column.
    """

    n_values: int
    sizes: tuple[int, ...]
    spans: tuple[RowSpan, ...]
    suppressed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class ModeTable:
    """An encoded table, with rows in the layout of a `RowLayout`.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_values), float32
        Values in [-1, 1].
    codes : ndarray of shape (n_rows, n_spans), int32
        Position of the 1 in each span.
    """

    values: np.ndarray
    codes: np.ndarray


def lay_out_rows(columns: Sequence[ModeColumn]) -> RowLayout:
    """Give every column that is not constant its span, and every continuous one a value."""
    spans: list[tuple[int, RowSpan]] = []
    n_values = 0
    for j, column in enumerate(columns):
        if column.is_continuous:
            spans.append((column.size, RowSpan(j, "mode", n_values, column.missing)))
            n_values += 1
        elif column.size > 1:
            spans.append((column.size, RowSpan(j, "category")))
    spans.sort(key=itemgetter(0))
    rare = ((i, columns[span.column].suppressed) for i, (_, span) in enumerate(spans))
    return RowLayout(
        n_values,
        tuple(size for size, _ in spans),
        tuple(span for _, span in spans),
        tuple((i, code) for i, code in rare if code is not None),
    )


# ---- Sentences on the values that a ModeEncoder does not keep, or keeps of single rows -----------

_MAX_RARE_SHARE = 0.1  # of the rows
_MAX_UNIQUE_SHARE = 0.5  # of the values


def refuse_suppressed(names: Sequence[Any], columns: Sequence[ModeColumn], min_count: int) -> None:
    """Refuse columns without a stored value, although many rows have values."""
    unknown = [
        name
        for name, column in zip(names, columns, strict=True)
        if column.categories is not None
        and column.rare
        and not column.keys
        and (not column.missing or column.counts[-1] >= min_count)
    ]
    if unknown:
        raise ValueError(
            f"no value of {list_names(unknown)} is held by {min_count} rows (min_frequency): "
            "leave the column out, convert it if it holds numbers or dates, list it in identifiers "
            "to have new ones made, or keep all values by min_frequency=1"
        )


# ---- Columns of Parquet files, each as a whole ---------------------------------------------------


class WholeColumns(Sequence[pd.Series]):
    """The columns of Parquet files, read whole when they are asked for; the last one is held.

    ``check`` is called with the memory of each column, as by `ParquetTable.column`.
    """

    def __init__(
        self, table: ParquetTable, names: Sequence[str], check: Callable[[str, int], None]
    ) -> None:
        self._table, self._names, self._check = table, list(names), check
        self._held: tuple[int, pd.Series] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, j: Any) -> Any:
        if not 0 <= j < len(self):
            raise IndexError(j)
        if self._held is None or self._held[0] != j:
            self._held = None  # not two at a time
            self._held = j, self._table.column(self._names[j], self._check)
        return self._held[1]


# ---- ModeEncoder: a table to the rows of a generator's network, and back -------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class ModeEncoder(BaseEstimator):
    """Encode a table for a generator of synthetic tables, and decode sampled rows.

    A value of a discrete column becomes its code. A continuous column is modelled as a mixture of
    normal distributions (its modes). A number becomes the code of a mode, drawn from the posterior
    of the modes, and the distance from the mean of this mode in units of four standard deviations.
    Missing is an additional value of a discrete column and an additional mode of a continuous one,
    so that a generator learns which values are missing together. Constant columns are not part of
    the encoded rows.

    `decode` returns a table with the fitted schema: names and order of the columns, dtypes, missing
    values as in the dtype, numbers within the fitted bounds and rounded as in the fitted table (to
    integers, decimals, days or seconds). It inverts `encode` with two exceptions. A number more
    than four standard deviations from every mode is decoded at four. And values are float32, so
    that a number is exact only if its rounding is not finer than about 1e-7 of four standard
    deviations of its mode. For example, a column of seconds that spans years is exact to a few
    seconds. Sampled numbers are rounded to as many decimals as the fitted ones have, with the same
    frequencies: for example, most to integers and a few to halves.

    Parameters
    ----------
    discrete_columns : "auto" or array-like, default="auto"
        "auto": columns of text, objects, categories and booleans are discrete; numbers, dates and
        durations are continuous, also in an array of objects. Otherwise the names (positions for an
        array) of the discrete columns. Boolean columns are always discrete.
    strategy : {"mixture", "quantile"}, default="mixture"
        Modes of a continuous column. "mixture": normal distributions. "quantile": values that many
        rows share, and intervals with equal numbers of rows. A number then has exactly one mode,
        and its position in the interval as its value.
    n_modes : int, default=10
        Maximum number of modes of a continuous column; with "quantile" their approximate number.
    min_weight : float, default=0.005
        Modes with at most this share of the values are left out.
    max_rows : int, default=10_000
        Maximum number of rows, sampled at random, that modes are learned from.
    n_jobs : int or None, default=None
        Number of threads that learn modes, one column each. None is one, unless in a joblib
        context.
    min_frequency : int or float, default=1
        Number of rows, or share of the rows, that a value of a discrete column must have to be
        kept. Rarer values have one common code, are not stored, and cannot be decoded. The same
        holds for missing values of any column. Bounds of continuous columns are then values that
        enough rows share, or rounded outward, and each mode has at least as many rows. 1 keeps all
        values.
    identifiers : "auto", list or None, default=None
        Columns whose values are not stored. They are decoded as new values: integers above the
        fitted ones, or text that is recognisable as synthetic. "auto" detects identifiers by
        `find_identifiers`.
    fake : dict or None, default=None
        Column of text -> provider of Faker, such as ``{"name": "name", "mail": "email:de_DE"}``.
        These values are not stored either, and are decoded as values that Faker makes.
    random_state : int, RandomState, Generator or None, default=None
        Seed for sampling rows and modes. The draws of a column do not depend on other columns.

    Attributes
    ----------
    layout_ : RowLayout
        Layout of the encoded rows.
    category_counts_ : dict of int to ndarray of shape (size,), int64
        For the span (by index) of each discrete column: number of rows with each value; 0 for the
        rare values.
    categories_ : dict of name to list
        For each discrete or constant column: its values in the order of their codes, None for
        missing.
    columns_ : tuple of CategoryColumn, NumberColumn or IdentifierColumn
        The fitted columns.
    schema_ : TableSchema
        Names of the columns.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if all are strings.

    References
    ----------
    Xu et al. (2019), "Modeling tabular data using conditional GAN", section 4.2.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": [30, 31, 30, 75, 76, 75], "city": list("abbabc")})
    >>> encoder = ModeEncoder(random_state=0).fit(X)
    >>> encoder.layout_.n_values, encoder.layout_.sizes
    (1, (1, 3))
    >>> table = encoder.encode(X)
    >>> encoder.decode(table.values, table.codes).equals(X)
    True
    >>> encoder.condition_code("city", "b")
    (1, 1)
    """

    discrete_columns: Any = "auto"
    strategy: str = "mixture"
    n_modes: int = 10
    min_weight: float = 0.005
    max_rows: int = 10_000
    n_jobs: int | None = None
    min_frequency: float = 1
    identifiers: Any = None
    fake: Mapping[Any, str] | None = None
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "discrete_columns": ["array-like", StrOptions({"auto"})],
        "strategy": [StrOptions({"mixture", "quantile"})],
        "n_modes": [Interval(Integral, 1, None, closed="left")],
        "min_weight": [Interval(Real, 0, 1, closed="left")],
        "max_rows": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "identifiers": [list, tuple, StrOptions({"auto"}), None],
        "fake": [dict, None],
        "random_state": ["random_state", np.random.Generator],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> ModeEncoder:
        """Learn the columns of a table; `y` is ignored.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)

        Raises
        ------
        ValueError
            If X is empty, has duplicate names or infinite values, or fewer rows than
            `min_frequency`; if a column has no value that as many rows have; if `discrete_columns`
            has unknown names, or lacks a column that cannot be continuous.
        """
        table = Table(X)
        return self._fit(TableSchema.of(table), table.columns(), table.n_rows)

    def fit_parquet(
        self,
        table: ParquetTable,
        columns: Sequence[str],
        check: Callable[[str, int], None] = lambda name, size: None,
    ) -> ModeEncoder:
        """Learn the columns of Parquet files, with the result of `fit` on the DataFrame.

        Memory holds one whole column at a time. Each column is read three times. Before it is
        learned, ``check`` is called with its name and the memory it takes in bytes, and can raise
        an error.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        self._validate_params()
        schema = TableSchema(pd.Index(list(columns)), None)
        return self._fit(schema, WholeColumns(table, columns, check), table.n_rows)

    def _fit(self, schema: TableSchema, columns: Sequence[pd.Series], n_rows: int) -> ModeEncoder:
        from combutab.core.rng import seed_from  # imports torch

        min_count = rows_needed(self.min_frequency, n_rows)
        seed = seed_from(self.random_state)
        names = schema.keys if schema.array_dtype is None else None
        fakes = choose_fakes(self.fake, names, columns, seed)
        identifiers = choose_identifiers(self.identifiers, schema, columns, min_count, fakes)
        formats = choose_formats(self.discrete_columns, schema, columns, min_count, identifiers)
        fitted: list[ModeColumn | None] = []
        samples: dict[int, Sample] = {}
        missing: dict[int, int] = {}
        for j, (column, format) in enumerate(zip(columns, formats, strict=True)):
            if j in identifiers:
                fitted.append(fit_identifiers(column, identifiers[j], min_count))
                continue
            if format is None:
                fitted.append(fit_categories(column, schema.label(j), min_count))
                continue
            fitted.append(None)
            x, absent = format.read(column, schema.label(j))
            missing[j] = int(absent.sum())
            generator = _generator(seed, "fit", schema.keys[j])
            samples[j] = take_sample(x[~absent], self.max_rows, generator)
        mixtures = self._fit_modes(list(samples.values()), min_count)
        for j, mixture in zip(samples, mixtures, strict=True):
            format = formats[j]
            assert format is not None
            rounding_steps = format.find_rounding_steps(
                mixture.spread(samples[j].values), min_count
            )
            fitted[j] = NumberColumn(
                format, mixture, missing[j] > 0, 0 < missing[j] < min_count, rounding_steps
            )
        if n_rows < min_count:
            raise ValueError(
                f"n_samples={n_rows} is less than min_frequency={self.min_frequency}: all "
                "values are rare; lower min_frequency (1 keeps all)"
            )
        encoded = [column for column in fitted if column is not None]
        refuse_suppressed(schema.keys, encoded, min_count)
        self._set_fitted(schema.wide_enough(identifiers), encoded)
        return self

    def _fit_modes(self, samples: Sequence[Sample], min_count: int) -> Sequence[Mixture]:
        if self.strategy == "quantile":
            return [fit_bins(sample, self.n_modes, min_count) for sample in samples]
        return fit_mixtures(
            samples,
            n_modes=self.n_modes,
            min_weight=self.min_weight,
            n_jobs=self.n_jobs,
            min_count=min_count,
        )

    def encode(self, X: Any, *, random_state: Any = None) -> ModeTable:
        """Encode a table that has the columns of the fitted one.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
        random_state : int, RandomState, Generator or None
            Seed for drawing the modes; None for that of the encoder.

        Returns
        -------
        ModeTable

        Raises
        ------
        ValueError
            If columns are missing or added, or have values that cannot be encoded: infinite
            numbers, categories that did not occur in ``fit``, or missing values if there were none
            in ``fit``. Numbers beyond the fitted bounds are clipped.
        """
        check_is_fitted(self)
        columns = self.schema_.match(Table(X))
        layout, draws = self.layout_, self._draws(random_state)
        values = np.empty((len(columns[0]), layout.n_values), dtype=np.float32)
        codes = np.empty((len(columns[0]), len(layout.spans)), dtype=np.int32)
        self._encode(columns, draws, values, codes)
        return ModeTable(values, codes)

    def encode_parquet(
        self, table: ParquetTable, n_rows: int, values: np.ndarray, codes: np.ndarray
    ) -> None:
        """Encode the rows of Parquet files into arrays, with the result of `encode`.

        Parameters
        ----------
        table : ParquetTable
            The files.
        n_rows : int
            Maximum number of rows to encode at a time.
        values : ndarray of shape (n_rows of the table, n_values), float32
            Array to write the values to.
        codes : ndarray of shape (n_rows of the table, n_spans), int32
            Array to write the codes to.
        """
        check_is_fitted(self)
        draws = self._draws(None)
        for first, frame in table.frames(self.schema_.keys, n_rows):
            rows = slice(first, first + len(frame))
            self._encode(self.schema_.match(Table(frame)), draws, values[rows], codes[rows])

    def _draws(self, random_state: Any) -> dict[int, np.random.Generator]:
        """Random numbers for the modes of each column, by its span."""
        from combutab.core.rng import seed_from  # imports torch

        seed = seed_from(self.random_state if random_state is None else random_state)
        keys = self.schema_.keys
        return {
            i: _generator(seed, "encode", keys[span.column])
            for i, span in enumerate(self.layout_.spans)
        }

    def _encode(
        self,
        columns: Sequence[pd.Series],
        draws: Mapping[int, np.random.Generator],
        values: np.ndarray,
        codes: np.ndarray,
    ) -> None:
        for i, span in enumerate(self.layout_.spans):
            coder, label = self.columns_[span.column], self.schema_.label(span.column)
            span_values, codes[:, i] = coder.encode(columns[span.column], label, draws[i])
            if span.value_index is not None:
                values[:, span.value_index] = span_values

    def decode(self, values: Any, codes: Any, *, n_before: int = 0) -> Any:
        """Decode rows to a DataFrame, or to an array if the encoder was fitted on one.

        Parameters
        ----------
        values : array of shape (n_rows, n_values)
            Values, clipped to [-1, 1].
        codes : array of integers of shape (n_rows, n_spans)
            Codes.
        n_before : int, default=0
            Number of rows that were decoded before, to decode rows in parts: the new identifiers
            follow those of these rows.

        Raises
        ------
        ValueError
            If the shapes do not match the layout, a value is not finite, a code is not in its span,
            or a code is that of the rare values.
        """
        check_is_fitted(self)
        values, codes = self._check_rows(np.asarray(values), np.asarray(codes))
        n_rows = len(codes)
        column_codes: dict[int, np.ndarray] = {}
        column_values: dict[int, np.ndarray] = {}
        for i, span in enumerate(self.layout_.spans):
            column_codes[span.column] = codes[:, i]
            if span.value_index is not None:
                column_values[span.column] = values[:, span.value_index]
        constant_codes, columns = np.zeros(n_rows, dtype=np.intp), []
        for j, coder in enumerate(self.columns_):
            column_code = column_codes.get(j, constant_codes)
            columns.append(coder.decode(column_code, column_values.get(j), n_before))
        return self.schema_.assemble(columns, n_rows)

    def condition_code(self, column: Any, value: Any) -> tuple[int, int]:
        """Return the span of a discrete column, and the code of one of its values.

        Parameters
        ----------
        column : name, or position in an array
            The column.
        value : any
            The value; None or NaN for missing.

        Raises
        ------
        ValueError
            If there is no such column or value, or the column is continuous, constant or holds
            identifiers.
        """
        check_is_fitted(self)
        j = self.schema_.position(column)
        label, coder = self.schema_.label(j), self.columns_[j]
        code = coder.code(value, label)
        if coder.size == 1:
            raise ValueError(f"{label} is always {value!r}; leave the condition out")
        return next(i for i, span in enumerate(self.layout_.spans) if span.column == j), code

    def describe_suppressed(self) -> list[str]:
        """Describe values that are not stored, and values that are stored but may be private.

        There is one sentence about each column of identifiers, each column where more than a tenth
        of the rows have values that are not stored, and each column whose values are stored
        although most of them occur once.

        Examples
        --------
        >>> X = np.array([[0.7, "a"], [0.7, "b"], [0.7, "c"], [0.7, "c"]], dtype=object)
        >>> sentences = ModeEncoder(min_frequency=2, random_state=0).fit(X).describe_suppressed()
        >>> sentences[0][:67]
        '50% of the rows of 1 have values that fewer rows than min_frequency'
        """
        check_is_fitted(self)
        identifiers, rare, copied = [], [], []
        for name, column in zip(self.schema_.keys, self.columns_, strict=True):
            if column.is_identifier:
                identifiers += [name] * isinstance(column.made, Identifiers)
            elif column.categories is not None:
                share = column.counts[-1] / column.counts.sum() if column.rare else 0.0
                present = column.counts[: len(column.keys)]
                n_unique = (present == 1).sum()
                if share > _MAX_RARE_SHARE:
                    rare.append(f"{share:.0%} of the rows of {name!r}")
                if column.size > 1 and n_unique > _MAX_UNIQUE_SHARE * max(1, present.sum()):
                    copied.append(name)
        sentences = []
        if identifiers:
            holds = "holds" if len(identifiers) == 1 else "hold"
            sentences.append(
                f"{list_names(identifiers)} {holds} identifiers: they are not learned, and new "
                "rows and filled cells get made-up ones that are not in the table; 'identifiers' "
                "says which columns hold some, if not these"
            )
        if rare:
            sentences.append(
                f"{list_names(rare, write=str)} have values that fewer rows than min_frequency "
                "have: they are not kept, and new rows and filled cells get the others; join such "
                "values into groups, or keep them by a lower min_frequency"
            )
        if copied:
            sentences.append(
                f"most values of {list_names(copied)} are there once, and new rows get them as "
                "they are: if they are private, leave the column out, or raise min_frequency"
            )
        return sentences

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the fitted encoder as numeric arrays and a dict for JSON.

        They contain no rows of the fitted table. For discrete columns they contain the distinct
        values that at least `min_frequency` rows have, with their counts; for continuous columns
        the modes (shares, means and standard deviations) and the bounds; for identifiers no values.
        A `random_state` that is a generator is left out.

        Raises
        ------
        TypeError
            If a column holds objects that only pickle could write.

        Examples
        --------
        >>> import json, numpy as np
        >>> X = np.array([[1.0, 2.0], [3.0, np.nan], [4.5, 2.0]])
        >>> arrays, meta = ModeEncoder(random_state=0).fit(X).to_state()
        >>> again = ModeEncoder.from_state(arrays, json.loads(json.dumps(meta)))
        >>> table = again.encode(X)
        >>> again.decode(table.values, table.codes).tolist()
        [[1.0, 2.0], [3.0, nan], [4.5, 2.0]]
        """
        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {}
        state = {
            "parameters": with_lists(self.get_params(deep=False)),
            "schema": self.schema_,
            "columns": list(self.columns_),
        }
        return arrays, pack(state, arrays)

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> ModeEncoder:
        """Restore the encoder from `to_state`; raises ValueError if the state is not valid."""
        state = unpack_all(meta, arrays, STATE, "the encoder's state")
        schema, columns = state["schema"], state["columns"]
        if len(schema.names) != len(columns) or not schema.names.is_unique:
            raise ValueError(
                f"the encoder's state has {len(schema.names.unique())} names for {len(columns)} "
                "columns"
            )
        encoder = cls(**state["parameters"])
        check_parameters(encoder)
        encoder._set_fitted(schema, columns)
        return encoder

    @classmethod
    def of_columns(cls, schema: TableSchema, columns: Sequence[ModeColumn]) -> ModeEncoder:
        """Make a fitted encoder of given columns, without data."""
        encoder = cls()
        encoder._set_fitted(schema, columns)
        return encoder

    def _set_fitted(self, schema: TableSchema, columns: Sequence[ModeColumn]) -> None:
        self.schema_ = schema
        self.columns_ = tuple(columns)
        self.n_features_in_ = len(columns)
        names = schema.keys
        if all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.layout_ = lay_out_rows(self.columns_)
        coders = [self.columns_[span.column] for span in self.layout_.spans]
        self.category_counts_ = {
            i: coder.code_weights for i, coder in enumerate(coders) if not coder.is_continuous
        }
        self.categories_ = {
            name: column.categories
            for name, column in zip(names, self.columns_, strict=True)
            if column.categories is not None
        }

    def _check_rows(self, values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        layout = self.layout_
        widths = (layout.n_values, len(layout.spans))
        if (values.ndim, codes.ndim) != (2, 2) or (values.shape[1], codes.shape[1]) != widths:
            raise ValueError(
                f"values and codes must have the shapes (n_rows, {widths[0]}) and (n_rows, "
                f"{widths[1]}), got {values.shape} and {codes.shape}"
            )
        if len(values) != len(codes):
            raise ValueError(f"{len(values)} rows of values do not fit {len(codes)} of codes")
        values = values.astype(np.float64, copy=False)
        if not np.isfinite(values).all():
            raise ValueError("values must be finite; a generator that makes others has diverged")
        if codes.dtype.kind not in "iu":
            raise ValueError(f"codes must be integers, got {codes.dtype}")
        for i, size in enumerate(layout.sizes):
            if len(codes) and not 0 <= codes[:, i].min() <= codes[:, i].max() < size:
                label = self.schema_.label(layout.spans[i].column)
                raise ValueError(f"codes of span {i} ({label}) must lie in 0 to {size - 1}")
        return values, codes


def _generator(seed: int, purpose: Literal["fit", "encode"], name: Any) -> np.random.Generator:
    """Random numbers of one column's own, found by its name."""
    words = [zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in (purpose, repr(name))]
    return np.random.default_rng([seed, *words])
