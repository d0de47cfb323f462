"""TableEncoder: a table to the float32 arrays of a network, and its state as arrays and JSON."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from combutab.core.files import (
    check_parameters,
    choice,
    kind,
    nullable,
    number,
    optional,
    several,
    whole,
)
from combutab.core.parameters import table_tags
from combutab.core.rows import rows_of_table
from combutab.core.state import declare, pack, unpack_all, with_lists
from combutab.core.tasks import CallbackSupport, fit_task
from combutab.core.text import list_names, user_stacklevel
from combutab.core.world import ONE_PROCESS, World, current
from combutab.preprocessing._columns import (
    LARGEST,
    CategoryCounts,
    CategoryMap,
    ColumnKind,
    Factors,
    Key,
    column_kind,
    refuse_equal,
    rows_needed,
    time_zone,
)
from combutab.preprocessing._features import (
    DATE_PARTS,
    TEXT_SAMPLE,
    Calendar,
    DateCounts,
    TextMap,
    check_date_features,
    ignored_text,
    is_free_text,
    learn_text,
)
from combutab.preprocessing._forms import ColumnForm, find_text_form
from combutab.preprocessing._inference import (
    OddColumnWarning,
    UnlearnedWarning,
    odd_categories,
    unlearned,
)
from combutab.preprocessing._numeric import (
    Method,
    Moments,
    NumericScaler,
    RunningMoments,
    apply_numeric,
    make_scaler,
    missing_mask,
)
from combutab.preprocessing._tables import (
    Block,
    Table,
    categorical_mask,
    validate_table,
)

# ---- Scales and categories of a table that comes in parts, in one pass and bounded memory --------

_MAX_LARGE = 10_000  # large numbers of a column that are held
_MAX_LATER = 0.02  # of the range of the dates in fit, by which later rows may lie after it
_later_rows_expected = ContextVar("later_rows_expected", default=False)


@contextmanager
def expecting_later_rows() -> Iterator[None]:
    """Do not warn of later dates than in training, for rows that were set aside by time."""
    token = _later_rows_expected.set(True)
    try:
        yield
    finally:
        _later_rows_expected.reset(token)


class RowSample:
    """A uniform sample of rows that come in parts: those of the smallest random numbers.

    It depends on the seed and on the order of the rows, not on how they are parted. All are kept
    while there are no more than ``n_rows``.
    """

    def __init__(self, n_rows: int, seed: int) -> None:
        self._n_rows = n_rows
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0

    def add(self, rows: np.ndarray, weight: np.ndarray | None) -> None:
        """Take rows, (n, n_columns), and their weights, (n,)."""
        order = self._random.random(len(rows))
        share = np.ones(len(rows)) if weight is None else weight
        self._parts.append((order, rows.copy(), share))
        self._held += len(rows)
        if self._held > 2 * self._n_rows:
            self._cut()

    def _cut(self) -> None:
        order, rows, share = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        if len(order) > self._n_rows:
            selected = np.sort(np.argpartition(order, self._n_rows - 1)[: self._n_rows])
            order, rows, share = order[selected], rows[selected], share[selected]
        self._parts, self._held = [(order, rows, share)], len(order)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows, (n, n_columns), and their weights, (n,)."""
        self._cut()
        return self._parts[0][1:]


class TableLearner:
    """Learns the scales and categories of a table that comes in one part or several.

    ``labels`` are how errors name the columns. Quantiles are taken from ``sample``, of a table that
    comes in several parts. ``max_distinct`` categories may be held, over all columns. ``zones`` are
    the time zones of the columns of dates, ``units`` those in which dates and durations count.
    ``forms`` are the columns that are read from text, ``text_columns`` those of text that become
    categories.
    """

    def __init__(
        self,
        labels: Sequence[str],
        kinds: Sequence[ColumnKind],
        sample: RowSample | None = None,
        max_distinct: int | None = None,
        zones: Mapping[int, Any] | None = None,
        units: Sequence[str] = (),
    ) -> None:
        self.labels, self.kinds, self._sample = labels, kinds, sample
        self.forms: tuple[ColumnForm, ...] = ()
        self.text_columns: Sequence[int] = ()
        self._numeric = _numeric(kinds)
        self._moments = RunningMoments(len(self._numeric), lambda i: labels[self._numeric[i]])
        self._tolerance = np.zeros(len(self._numeric))
        self._max_distinct = max_distinct
        self.units = tuple(units)
        self._large: dict[int, list[Fraction]] = {}
        self.counts = {j: CategoryCounts() for j, k in enumerate(kinds) if k == "category"}
        self.dates = {j: DateCounts(zone) for j, zone in (zones or {}).items()}
        self.texts = {j: RowSample(TEXT_SAMPLE, j) for j, k in enumerate(kinds) if k == "text"}
        self.lacking: set[int] = set()  # texts in some rows
        self.n_rows = 0

    def add(
        self, table: Table, weight: np.ndarray | None = None
    ) -> tuple[Block, dict[int, Factors]]:
        """Take one part, and the positive weights of its rows; return its columns as they are read.

        Those that are no categories or text are a block, the others factors by position.
        """
        self.n_rows += table.n_rows
        factors = {j: table.factors(j) for j in (*self.counts, *self.texts)}
        block: Block = table.block(self._numeric, self.kinds)
        self._tolerance = np.maximum(self._tolerance, block.tolerance)
        for j, numbers in table.large_numbers(block, self._numeric, self.kinds).items():
            large = [*self._large.get(j, []), *numbers]
            self._large[j] = large[:: 1 + len(large) // _MAX_LARGE]
        for piece in block.pieces():
            rows = block.rows(piece.start, piece.stop)
            share = None if weight is None else weight[piece]
            if self._sample is not None:
                self._sample.add(rows, share)
            self._moments.add(rows, share)
        for j, dates in self.dates.items():
            dates.add(block.column(self._numeric.index(j)))
        for j, counts in self.counts.items():
            counts.add(factors[j], table.order(j), self.labels[j])
        for j, sample in self.texts.items():
            codes = factors[j].codes[factors[j].codes >= 0]
            sample.add(np.array(factors[j].keys, dtype=object)[codes], None)
            self.lacking |= {j} if len(codes) < table.n_rows else set()
        self._check_distinct()
        return block, factors

    def _check_distinct(self) -> None:
        if self._max_distinct is None:
            return
        sizes = {j: len(counts.seen) for j, counts in self.counts.items()}
        if sum(sizes.values()) > self._max_distinct:
            worst = max(sizes, key=sizes.__getitem__)
            raise ValueError(
                f"{self.labels[worst]} has more than {sizes[worst]} distinct categories, "
                f"and the memory allowed holds {self._max_distinct} of all columns; leave the "
                "column out, or allow more memory"
            )

    def scaler(
        self,
        method: Method,
        min_frequency: float,
        n_bins: int | None,
        numbers_of_dates: bool,
        block: Block | None = None,
        weight: np.ndarray | None = None,
        world: World = ONE_PROCESS,
    ) -> NumericScaler:
        """Make the scaler of the numeric columns; raise ValueError for numbers beyond float64.

        Quantiles are those of the ``block``, with the weights of its rows, or of the sample.
        Without ``numbers_of_dates`` columns of dates become 0.
        """
        for j, numbers in self._large.items():
            refuse_equal(numbers, self.labels[j], self.kinds[j])
        stats = self._moments.result()
        if block is None:
            columns: list[np.ndarray] = [np.empty(0)] * len(self._numeric)
            if self._sample is not None:
                columns, weight = _filled(*self._sample.result(), stats)
            block = Block(columns, len(columns[0]) if columns else 0)
            block.tolerance = self._tolerance
        bounds = {j: counts.bounds() for j, counts in self.dates.items()}
        ends = [bounds.get(j, (-LARGEST, LARGEST)) for j in self._numeric]
        low, high = np.array(ends).reshape(-1, 2).T
        kinds = [self.kinds[j] for j in self._numeric]
        booleans = np.array([kind == "bool" for kind in kinds], dtype=bool)
        dates = [kind == "datetime" and not numbers_of_dates for kind in kinds]
        scaler = make_scaler(
            stats,
            block,
            method,
            booleans,
            np.array(dates, dtype=bool),
            weight,
            min_frequency,
            self.n_rows,
            n_bins,
            world,
        )
        if method == "quantile":  # beyond the outermost knots scores leap to 5.2
            is_varied = (high < LARGEST) & ~scaler.constant
            low = np.where(is_varied, np.maximum(low, scaler.knots[1]), low)
            high = np.where(is_varied, np.minimum(high, scaler.knots[-2]), high)
        return replace(scaler, low=low, high=high)


def _filled(
    rows: np.ndarray, weight: np.ndarray, stats: Moments
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Columns of a sample; a column without values gets two, a deviation from the mean."""
    columns = list(rows.T)
    empty = np.isnan(rows).all(axis=0) & ~np.isnan(stats.low)
    if empty.any():
        ends = np.stack([stats.mean - stats.std, stats.mean + stats.std])
        ends = np.where(empty, np.clip(ends, stats.low, stats.high), np.nan)
        columns = list(np.concatenate([rows, ends]).T)
        weight = np.append(weight, [1.0, 1.0])
    return columns, None if (weight == 1).all() else weight


# ---- TableEncoder: a table to the float32 arrays of a network ------------------------------------

SpanKind = Literal["numeric", "indicator", "cyclic", "onehot", "text", "code"]


@dataclass(frozen=True)
class Span:
    """Position of an encoded column: ``slice`` of ``dense``, or of ``codes`` if kind is "code"."""

    column: int
    kind: SpanKind
    slice: builtins.slice


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table encoded for a network.

    Attributes
    ----------
    dense : ndarray of shape (n_rows, n_dense), float32
        Scaled numbers, then missing-value indicators, sines and cosines of dates, one-hot columns,
        and columns of free text. All are finite.
    codes : ndarray of shape (n_rows, n_codes), int64
        Codes for embeddings, one column per categorical column with many categories.
    """

    dense: np.ndarray
    codes: np.ndarray


@dataclass(eq=False, repr=False, kw_only=True)
class TableEncoder(CallbackSupport, TransformerMixin, BaseEstimator):
    """Encode a table of numbers, categories, dates and missing values for a neural network.

    Tables can be pandas and polars DataFrames, numpy arrays, lists of rows and scipy sparse
    matrices. The encoding of a column depends on its kind:

    - Numbers, and dates and durations in seconds, are scaled as `numeric` says. Missing values
      become the mean ("quantile" and "robust": the median), and a column with some missing values
      in ``fit`` has an additional indicator column.
    - Dates before the first and after the last date of ``fit`` count as that date, so that trends
      are not continued, and a UserWarning says that rows are later than all rows of ``fit``.
    - Dates also have sines and cosines of their parts (`date_features`), of the local time in the
      time zone of the fitted column. Dates of later tables are converted to it; a column without a
      time zone is read as UTC. Missing dates have zeros.
    - Text that is dates or times in one format, such as ``22-Jun-2024``, ``10:18`` or ``2h 5m``, is
      read as dates or durations, and a warning names the columns. Later tables have the same
      format, or dates. In a table that is read in parts, the first part decides.
    - Times of day (``datetime.time``) are durations since midnight.
    - Booleans are 0 and 1. Later tables may have these numbers instead, but no others.
    - Numbers, dates, booleans and parts of dates that are constant in ``fit`` become 0.
    - Categories are one-hot encoded, with one column per category seen in ``fit`` (also if there
      are only two). Categories of fewer rows than `min_frequency` share one column, and missing
      values have one if there were any in ``fit``. An unseen category counts as a rare one. If
      there were none, it has the mean of each of these columns over the rows of ``fit``, and so
      have missing values if there were none.
    - A column with more than `max_onehot` categories (rare ones count as one) becomes integer
      codes: 0 for unseen and rare categories and those seen once, then the others in order, then
      missing values if there were any in ``fit``.
    - Ordered categories (``ordered=True`` in pandas) always become codes, in their order. A network
      knows the order: its embedding starts with the rank of each category.
    - Free text becomes up to 30 numbers (`text_features`), with an indicator column if there were
      missing texts in ``fit``. Missing texts have the mean, and so have texts without any n-gram
      that is known from ``fit``.

    Categories keep their type in ``fit``: 1 and "1" are two categories, but 1, 1.0 and True are
    one, as in Python. In later tables a category can have another type. If it equals no fitted
    category, it is matched with the fitted category of the same meaning, if there is exactly one.
    A number and its text ("1", "1.0" or " 1", but not "01") have the same meaning; so do 1 or True
    and "true" or "TRUE", bytes and their text in UTF-8, a date and its text in ISO 8601 (UTC if
    there is no time zone), and a duration and its text. Two different texts, such as "1" and "1.0",
    do not.

    A UserWarning names each column of a later table in which hardly any row has a known category:
    less than a tenth of the number of rows, ten or more, that the fitted frequencies predict. A
    column without any known category by its kind, such as dates instead of words, raises an error.

    ``fit`` refuses integers, dates and other exact numbers that are too close to each other for
    their size: float64, which is exact for integers up to 2**53, must have at least about 4,000
    different values in the middle half of the column. Subtract the smallest value first.

    Sparse input is scaled without centering.

    The fitted encoder contains no value that fewer than `min_frequency` rows have. Rare categories
    are counted and not stored; the quantiles of "quantile" and "robust" and the edges of bins lie
    between means of `min_frequency` neighbouring rows; the smallest and largest values are not
    stored. It contains the names of the columns, the other categories and their frequencies to two
    digits, and means and standard deviations of numbers (of fewer rows than `min_frequency`:
    rounded to two digits). For dates it also contains the time zone, and which parts vary. For
    free text it contains no text, but the number of texts with an n-gram of each hash, if
    `min_frequency` texts have one, and directions of the SVD.

    Parameters
    ----------
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns are categorical. "from_dtype" are those of category, string and object dtype,
        except for object columns that contain only numbers or dates. None means no column.
        Otherwise a boolean mask, positions or column names. Text in other columns is parsed.
    numeric : {"standard", "quantile", "robust", "none"}, default="standard"
        Scaling of numbers. "standard": to mean 0 and standard deviation 1. "quantile": to a normal
        distribution by rank; equal values have the middle of their ranks. "robust": by median and
        interquartile range, then the smooth clipping ``x / sqrt(1 + (x/3)**2)`` of RealMLP.
        "none": not scaled.
    max_onehot : int, default=32
        Largest number of categories that are one-hot encoded. Columns with more become codes, and
        ordered categories do in any case.
    min_frequency : int or float, default=5
        Number of rows, or share of them, that must have a value for it to be stored. A UserWarning
        names columns without frequent categories. 1 stores all categories, and exact quantiles.
    n_bins : int or None, default=None
        Number of bins of equal frequency per numeric column whose edges are learned, in
        ``numeric_scaler_.edges``, for the piecewise linear embeddings of a network. `transform`
        does not use them.
    date_features : "auto" or list of str, default="auto"
        Encoding of dates: "number" (the seconds, scaled), and, each as a sine and a cosine, the
        "hour" of the day (with minutes), "dayofweek", "day" of the month, "month" and "dayofyear".
        "auto" uses the number and the parts that vary. It leaves a part out if at least 99 % of the
        dates, or all but `min_frequency` of them, have the same value (such as the hour of dates
        without a time), or if the dates span less than about two of its periods. It uses the month
        for dates that are months, and the day of the year for others. Without "number" that column
        is 0. Differences of two dates are not computed; add a column for them.
    text_features : {"auto", "ignore"}, default="auto"
        Encoding of free text. A column of string or object dtype is free text if it contains only
        text, if more than half of the rows, and at least 20, have a unique text, and if texts have
        5 words on average (a word has two letters or more and no digits, so that keys
        such as "A-10293" have none and names of people too few). In a table that is read in parts,
        the first part decides. "auto" hashes n-grams of 3 and 4 characters within words, in the
        first 1,000 characters, to 8,192 numbers, weights them by tf-idf, and computes up to 30
        columns by a truncated SVD of at most 10,000 texts. They are scaled. It adds at most a
        megabyte to the fitted state. "ignore" leaves the column out.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if all are strings.
    kinds_ : tuple of str
        Kind of each column: "number", "bool", "datetime", "timedelta", "category", or "text" for
        free text. Other text is a category.
    units_ : tuple of str
        For each column of dates or durations, the unit in which its dtype counted in ``fit``: "s",
        "ms", "us" or "ns"; "" for other columns.
    spans_ : tuple of Span
        Position of each encoding in the encoded table.
    calendars_ : tuple of Calendar
        For each column of dates (position ``column``): its encoded ``parts``, and its time
        ``zone``.
    text_maps_ : tuple of TextMap
        Encoding of each column of free text.
    n_dense_ : int
        Number of columns of ``dense``.
    cardinalities_ : tuple of int
        Number of codes of each code column. Codes are in ``range(cardinality)``.
    ordered_ : tuple of int
        For each code column, the number of codes from 1 on that have an order; 0 if it has none.
    categories_ : dict of int to list
        For each categorical column (by position): the categories that have their own column or
        code, in order; None for missing. Rare categories are not included.
    text_forms_ : tuple of ColumnForm
        Format of each column of dates or times as text.
    numeric_scaler_ : NumericScaler
        Fitted scaling of the numbers.
    category_maps_ : tuple of CategoryMap
        Encoding of each categorical column.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": [30.0, None, 50.0], "city": ["Rome", "Oslo", "Rome"]})
    >>> encoder = TableEncoder(min_frequency=1).fit(X)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age_missing', 'city_Oslo', 'city_Rome']
    >>> encoder.encode(X).dense
    array([[-1.,  0.,  0.,  1.],
           [ 0.,  1.,  1.,  0.],
           [ 1.,  0.,  0.,  1.]], dtype=float32)
    >>> TableEncoder(min_frequency=2).fit(X).get_feature_names_out().tolist()
    ['age', 'age_missing', 'city_Rome', 'city_rare']
    """

    categorical_features: Any = "from_dtype"
    numeric: Literal["standard", "quantile", "robust", "none"] = "standard"
    max_onehot: int = 32
    min_frequency: float = 5
    n_bins: int | None = None
    date_features: Any = "auto"
    text_features: Literal["auto", "ignore"] = "auto"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "numeric": [StrOptions({"standard", "quantile", "robust", "none"})],
        "max_onehot": [Interval(Integral, 0, None, closed="left")],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "n_bins": [Interval(Integral, 1, None, closed="left"), None],
        "date_features": [StrOptions({"auto"}), "array-like"],
        "text_features": [StrOptions({"auto", "ignore"})],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the scales and categories of a table; `y` is ignored."""
        with fit_task(self, X, y):
            self._learn(validate_table(self, X, reset=True))
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_encode(
        self, X: Any, sample_weight: np.ndarray | None = None, *, owner: BaseEstimator | None = None
    ) -> EncodedTable:
        """Fit to X and encode it, reading each column once.

        `sample_weight`, (n_rows,), positive, weights means, standard deviations and quantiles, but
        not the frequencies of categories. `owner` is the estimator to name in errors about the
        columns; its column names are set, too. If processes share its fit, each computes the
        quantiles of some of the columns.
        """
        with fit_task(self, X, None, sample_weight):
            table = validate_table(self if owner is None else owner, X, reset=True)
            self._take_names(self if owner is None else owner)
            world = ONE_PROCESS if owner is None else current()
            learned = self._learn(table, sample_weight, world)
        return self._assemble(*learned)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_batches(
        self,
        batches: Iterable[tuple[Any, np.ndarray | None]],
        *,
        header: pd.DataFrame | None = None,
        n_sample: int = 100_000,
        max_distinct: int | None = None,
        seed: int = 0,
        owner: BaseEstimator | None = None,
    ) -> TableEncoder:
        """Fit to a table in parts, in one pass with one part in memory.

        The result is that of `fit` on all rows, up to rounding. Only the quantiles of "quantile"
        and "robust" are computed from a random sample if there are more than ``n_sample`` rows.

        Parameters
        ----------
        batches : iterable of (X, weight)
            Parts of the table with the same columns, and the positive weights of their rows or
            None.
        header : DataFrame, optional
            A DataFrame, also without rows, whose dtypes determine the kinds of the columns. By
            default the first part.
        n_sample : int, default=100_000
            Number of rows of the sample for the quantiles.
        max_distinct : int, optional
            Maximum number of distinct categories of all columns. By default there is no limit.
        seed : int, default=0
            Random seed of the sample.
        owner : BaseEstimator, optional
            As in `fit_encode`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no part, a value is infinite, or there are more than `max_distinct`
            categories.

        Examples
        --------
        >>> import pandas as pd
        >>> parts = [pd.DataFrame({"x": [1.0, None]}), pd.DataFrame({"x": [3.0]})]
        >>> encoder = TableEncoder().fit_batches((part, None) for part in parts)
        >>> encoder.numeric_scaler_.centre, encoder.numeric_scaler_.scale
        (array([2.]), array([1.]))
        """
        reader, learner = self if owner is None else owner, None
        for X, weight in batches:
            table = validate_table(reader, X, reset=learner is None)
            if learner is None:
                of_quantiles = self.numeric in ("quantile", "robust") or self.n_bins is not None
                sample = RowSample(n_sample, seed) if of_quantiles else None
                source = table if header is None else Table(header)
                learner = self._make_learner(source, table, sample, max_distinct)
            with rows_of_table(None):  # the positions of a part are unknown
                table.read_as(learner.forms)
            learner.add(table, weight)
        if learner is None:
            raise ValueError("there is no part of a table to fit to: batches are empty")
        self._take_names(reader)
        self._set_learned(learner)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit was completed: one that failed leaves the columns' names."""
        return hasattr(self, "spans_")

    def encode(
        self, X: Any, *, owner: BaseEstimator | None = None, fitted: bool = False
    ) -> EncodedTable:
        """Encode a table with the fitted columns; `owner` as in `fit_encode`.

        With ``fitted=True`` the rows are from the fitted table, and there is no warning about
        unseen categories.

        Raises
        ------
        ValueError
            If columns are missing, added or in another order, a value is infinite, a numeric
            column holds text that is not a number, a boolean column holds other numbers than 0
            and 1, or categories have a type that matches no fitted category.
        """
        check_is_fitted(self)
        table = validate_table(self if owner is None else owner, X, reset=False)
        table.read_as(self.text_forms_)
        self._check_zones(table)
        coded = [j for j, kind in enumerate(self.kinds_) if kind in ("category", "text")]
        factors = {j: table.factors(j) for j in coded}
        block = self._read_block(table)
        if not fitted:
            self._warn_of_later_rows(block)
        return self._assemble(block, factors, None if fitted else table.label)

    def _read_block(self, table: Table) -> Block:
        """The columns that are read as numbers.

        Refuses text where fit has seen no values, and other numbers than 0 and 1 as booleans.
        """
        numeric, scaler = _numeric(self.kinds_), self.numeric_scaler_
        for j in np.array(numeric, dtype=int)[scaler.constant].tolist():
            if self.kinds_[j] == "number" and not table.is_numeric(j):
                try:
                    table.block([j], self.kinds_)
                except ValueError as error:
                    example = table.column(j).dropna().iloc[0]
                    raise ValueError(
                        f"{table.label(j)} was empty or constant in fit, and holds {example!r} "
                        "now; leave the column out, or fit on a table where it has values"
                    ) from error
        block = table.block(numeric, self.kinds_)
        for i, j in enumerate(numeric):
            if self.kinds_[j] == "bool" and table.kind(j, None) != "bool":
                values = block.column(i)
                invalid = values[~(np.isnan(values) | (values == 0) | (values == 1))]
                if len(invalid):
                    raise ValueError(
                        f"{table.label(j)} held booleans in fit, and holds {invalid[0]:g} now; "
                        "correct the value, or fit on a table where it holds numbers"
                    )
        return block

    def read(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Read a table with the fitted columns as numbers and codes, without scaling.

        Returns
        -------
        numbers : ndarray of shape (n_rows, n_numeric), float64
            Columns that are not categorical, with NaN for missing.
        codes : ndarray of shape (n_rows, n_categorical), int64
            Categorical columns, as codes of their `CategoryMap`. For one-hot columns it is the
            index of the column that is 1, or -1 for none. Ignored free text is in neither.

        Raises
        ------
        ValueError
            As in `encode`; also if a column is encoded as free text.
        """
        check_is_fitted(self)
        self.refuse_text()
        table = validate_table(self, X, reset=False)
        table.read_as(self.text_forms_)
        self._check_zones(table)
        block = self._read_block(table)
        self._warn_of_later_rows(block)
        numbers = block.rows(0, block.n_rows)
        missing_mask(numbers, block.label)
        codes = [
            category_map.encode(
                table.factors(category_map.column), table.label(category_map.column)
            )
            for category_map in self.category_maps_
        ]
        return numbers, np.stack(codes, 1) if codes else np.empty((table.n_rows, 0), np.int64)

    def transform(self, X: Any) -> np.ndarray:
        """Encode to one float32 array of shape (n_rows, n_dense + n_codes): dense, then codes."""
        return _joined(self.encode(X))

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit to X and transform it in one pass; `y` is ignored."""
        return _joined(self.fit_encode(X))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of `transform`: ``age``, ``age_missing``, ``city_Rome``.

        A date gives ``sold``, ``sold_hour_sin``, ``sold_hour_cos``, ..., and free text
        ``review_svd0``, ``review_svd1``, ...
        """
        check_is_fitted(self)
        inputs = _check_feature_names_in(self, input_features)
        suffixes = {m.column: _suffixes(m) for m in self.category_maps_ if m.onehot}
        suffixes |= {calendar.column: calendar.suffixes() for calendar in self.calendars_}
        suffixes |= {text.column: text.suffixes() for text in self.text_maps_}
        names: list[str] = []
        for span in self.spans_:
            stem = inputs[span.column]
            if span.kind in ("onehot", "cyclic", "text"):
                names.extend(f"{stem}_{suffix}" for suffix in suffixes[span.column])
            else:
                names.append(f"{stem}_missing" if span.kind == "indicator" else stem)
        return np.asarray(_distinct(names), dtype=object)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the fitted encoder as numeric arrays and a dict for JSON.

        Examples
        --------
        >>> import json, numpy as np
        >>> X = np.array([[1.0, 2.0], [3.0, np.nan]])
        >>> arrays, meta = TableEncoder().fit(X).to_state()
        >>> again = TableEncoder.from_state(arrays, json.loads(json.dumps(meta)))
        >>> again.transform(X).tolist()
        [[-1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        arrays: dict[str, np.ndarray] = {}
        state = {
            "parameters": with_lists(self.get_params(deep=False)),
            "kinds": list(map(str, self.kinds_)),
            "forms": list(self.text_forms_),
            "units": list(self.units_),
            "feature_names": None if names is None else [str(name) for name in names],
            "scaler": self.numeric_scaler_,
            "categories": list(self.category_maps_),
            "calendars": list(self.calendars_),
            "texts": list(self.text_maps_),
        }
        return arrays, pack(state, arrays)

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> TableEncoder:
        """Restore the encoder from `to_state`; raises ValueError if the state is not valid."""
        state = unpack_all(meta, arrays, _STATE, "the encoder's state")
        names, kinds, maps = state["feature_names"], state["kinds"], state["categories"]
        scaler, calendars, texts = state["scaler"], state["calendars"], state["texts"]
        _check_units(kinds, state["units"])
        _check_state(names, kinds, scaler, {"category": maps, "datetime": calendars, "text": texts})
        encoder = cls(**state["parameters"])
        check_parameters(encoder)
        check_date_features(encoder.date_features)
        encoder.n_features_in_ = len(kinds)
        if names is not None:
            encoder.feature_names_in_ = np.array(names, dtype=object)
        fitted_columns = map(tuple, (maps, calendars, texts))
        encoder._set_fitted(
            list(map(ColumnKind, kinds)), tuple(state["units"]), scaler, *fitted_columns
        )
        encoder.text_forms_ = tuple(state.get("forms", ()))
        if any(
            form.column >= len(kinds) or form.column_kind != kinds[form.column]
            for form in encoder.text_forms_
        ):
            raise ValueError("the encoder's state has forms of other columns than its kinds")
        return encoder

    def _take_names(self, owner: Any) -> None:
        self.n_features_in_ = owner.n_features_in_
        if hasattr(owner, "feature_names_in_"):
            self.feature_names_in_ = owner.feature_names_in_

    def _check_zones(self, table: Table) -> None:
        for calendar in self.calendars_:
            zone, has_zone = time_zone(table.column(calendar.column))
            if has_zone and calendar.parts:
                calendar.check_zone(zone, table.label(calendar.column))

    def _warn_of_later_rows(self, block: Block) -> None:
        """Warn of dates that lie later than all those of fit by more than 2 % of their range."""
        scaler = self.numeric_scaler_
        if _later_rows_expected.get():
            return
        for i in np.flatnonzero(scaler.is_cut & ~scaler.constant).tolist():
            limit = scaler.high[i] + _MAX_LATER * (scaler.high[i] - scaler.low[i])
            if (block.column(i) > limit).any():
                last = np.datetime64(int(scaler.high[i]), "s").astype("datetime64[D]")
                warnings.warn(
                    f"{block.label(i)} has dates that are later than all of the training rows "
                    f"(about {last}): later trends are unknown, and the prediction is that of the "
                    "last date. Fit again with recent rows, and evaluate on rows later than those "
                    "that are fitted",
                    stacklevel=user_stacklevel(),
                )

    def refuse_text(self) -> None:
        """Raise ValueError if a column is encoded as free text, naming it."""
        names = getattr(self, "feature_names_in_", None)
        for text_map in self.text_maps_:
            if text_map.width:
                name = text_map.column if names is None else repr(names[text_map.column])
                raise ValueError(
                    f"column {name} is free text, which torch modules and ONNX models do not "
                    "support; fit with text_features='ignore', or without the column"
                )

    def describe_columns(self) -> dict[Any, str]:
        """Describe the encoding of each column in words.

        Returns
        -------
        dict
            Column name (position, if there are no names) -> description.

        Examples
        --------
        >>> times = pd.date_range("2024-01-01", periods=60, freq="D")
        >>> X = pd.DataFrame({"day": times, "kind": ["a", "b"] * 30, "size": range(60)})
        >>> TableEncoder().fit(X).describe_columns()
        {'day': 'date: number, dayofweek, day', 'kind': 'category: 2 columns', 'size': 'number'}
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        descriptions = dict(enumerate(map(str, self.kinds_)))
        for calendar in self.calendars_:
            number = ["number"] * self._takes_numbers()
            parts = ", ".join([*number, *calendar.parts]) or "left out"
            descriptions[calendar.column] = f"date: {parts}"
        for form in self.text_forms_:
            descriptions[form.column] += f" (from text such as {form.example()})"
        for category_map in self.category_maps_:
            encoding = (
                f"{category_map.width} columns"
                if category_map.onehot
                else f"embedding of {category_map.width} codes"
            )
            ordered = "ordered " * category_map.ordered
            descriptions[category_map.column] = f"{ordered}category: {encoding}"
        for text in self.text_maps_:
            n = len(text.components)
            encoding = f"{n} columns from hashed n-grams of characters" if n else "left out"
            descriptions[text.column] = f"free text: {encoding}"
        return {name: descriptions[j] for j, name in enumerate(names)}

    def _takes_numbers(self) -> bool:
        """Whether dates become numbers, too."""
        return isinstance(self.date_features, str) or "number" in list(self.date_features)

    def _kinds(
        self, table: Table, values: Table
    ) -> tuple[tuple[ColumnKind, ...], tuple[ColumnForm, ...]]:
        """The kinds of columns by their dtypes, and by the values of the first part.

        Columns of dates and times as text have a form, too.
        """
        check_date_features(self.date_features)
        mask = categorical_mask(self.categorical_features, table.names, table.n_columns)
        kinds = [
            table.kind(j, None if mask is None else bool(mask[j])) for j in range(table.n_columns)
        ]
        forms = []
        undeclared = self._undeclared(table)
        for j in undeclared if mask is None else np.flatnonzero(~mask).tolist():
            if kinds[j] not in ("category", "number") or values.is_numeric(j):
                continue
            form = find_text_form(values.column(j), j)
            if form is not None:
                forms.append(form)
                kinds[j] = form.column_kind
            elif j in undeclared and kinds[j] == "category" and is_free_text(values.factors(j)):
                kinds[j] = ColumnKind.TEXT
        return tuple(kinds), tuple(forms)

    def _undeclared(self, table: Table) -> list[int]:
        """Columns that neither the user nor a dtype of pandas calls categories."""
        if not isinstance(self.categorical_features, str):
            return []
        return [
            j
            for j in range(table.n_columns)
            if table.is_numeric(j) or not isinstance(table.column(j).dtype, pd.CategoricalDtype)
        ]

    def _learn(
        self, table: Table, weight: np.ndarray | None = None, world: World = ONE_PROCESS
    ) -> tuple[Block, dict[int, Factors]]:
        learner = self._make_learner(table, table)
        block, factors = learner.add(table, weight)
        self._set_learned(learner, block, weight, world)
        return block, factors

    def _make_learner(
        self,
        source: Table,
        table: Table,
        sample: RowSample | None = None,
        max_distinct: int | None = None,
    ) -> TableLearner:
        """Make the learner of a table, by the dtypes of ``source`` and the values of ``table``."""
        kinds, forms = self._kinds(source, table)
        table.read_as(forms)
        labels = [table.label(j) for j in range(table.n_columns)]
        zones = _zones(source, kinds) | _zones(table, kinds, forms)
        learner = TableLearner(labels, kinds, sample, max_distinct, zones, table.units(kinds))
        learner.forms = forms
        # texts, by the values of the first part, that become categories without a declaration
        undeclared = [j for j in self._undeclared(source) if kinds[j] == ColumnKind.CATEGORY]
        text_kinds = (ColumnKind.TEXT, ColumnKind.EMPTY)
        learner.text_columns = [j for j in undeclared if column_kind(table.column(j)) in text_kinds]
        return learner

    def _set_learned(self, learner: TableLearner, *scaler_arguments: Any) -> None:
        labels, kinds = learner.labels, learner.kinds
        maps = self._learn_maps(learner)
        numbers = self._takes_numbers()
        scaler = learner.scaler(
            self.numeric, self.min_frequency, self.n_bins, numbers, *scaler_arguments
        )
        min_count = rows_needed(self.min_frequency, learner.n_rows)
        dates = (d.learn(j, self.date_features, min_count) for j, d in learner.dates.items())
        texts = tuple(
            learn_text(j, sample.result()[0].tolist(), min_count, missing=j in learner.lacking)
            if self.text_features == "auto"
            else ignored_text(j)
            for j, sample in learner.texts.items()
        )
        empty = [labels[text.column] for text in texts if not text.width]
        if len(empty) == len(kinds):
            raise ValueError(
                f"text_features={self.text_features!r} leaves nothing to learn from: the table has "
                f"free text only ({', '.join(empty)}); give other columns"
            )
        if empty and self.text_features == "auto":
            listed = ", ".join(empty)
            problem = f"nothing is learned from {listed}: free text without n-grams in common"
            warnings.warn(UnlearnedWarning(problem, "", tuple(empty)), stacklevel=user_stacklevel())
        self._set_fitted(kinds, learner.units, scaler, maps, tuple(dates), texts)
        self._set_forms(learner.forms, labels)

    def _learn_maps(self, learner: TableLearner) -> tuple[CategoryMap, ...]:
        """Learn the categories; warn about columns without a frequent one, and odd columns."""
        counts, labels = learner.counts, learner.labels
        min_count = rows_needed(self.min_frequency, learner.n_rows)
        maps = tuple(c.learn(j, self.max_onehot, min_count) for j, c in counts.items())
        unlearned_counts = {m.column: counts[m.column].seen for m in maps if not m.keys}
        unlearned_counts = {j: seen for j, seen in unlearned_counts.items() if len(seen) > 1}
        learned_counts = {
            labels[j]: counts[j].seen
            for j in learner.text_columns
            if j in counts and j not in unlearned_counts
        }
        if odd := list(odd_categories(learned_counts)):
            warnings.warn(OddColumnWarning("\n".join(odd)), stacklevel=user_stacklevel())
        if unlearned_counts:
            by_label = {labels[j]: seen for j, seen in unlearned_counts.items()}
            for warning in unlearned(by_label, max(min_count, 2)):
                warnings.warn(warning, stacklevel=user_stacklevel())
        return maps

    def _set_fitted(
        self,
        kinds: Sequence[ColumnKind],
        units: tuple[str, ...],
        scaler: NumericScaler,
        maps: tuple[CategoryMap, ...],
        calendars: tuple[Calendar, ...],
        texts: tuple[TextMap, ...],
    ) -> None:
        self.kinds_ = tuple(kinds)
        self.units_ = units
        self.numeric_scaler_ = scaler
        self.category_maps_ = maps
        self.calendars_ = calendars
        self.text_maps_ = texts
        self.spans_ = _lay_out(_numeric(self.kinds_), scaler.missing, calendars, maps, texts)
        self.n_dense_ = max((s.slice.stop for s in self.spans_ if s.kind != "code"), default=0)
        self.cardinalities_ = tuple(m.width for m in maps if not m.onehot)
        self.ordered_ = tuple(len(m.keys) * m.ordered for m in maps if not m.onehot)
        self.categories_ = {m.column: [*m.keys, *([None] if m.missing else [])] for m in maps}

    def _set_forms(self, forms: Sequence[ColumnForm], labels: Sequence[str]) -> None:
        """Set the forms of text columns, and say which are read as dates, times or numbers."""
        self.text_forms_ = tuple(forms)
        if not forms:
            return
        listed = list_names((f"{labels[f.column]} ({f.example()})" for f in forms), write=str)
        warnings.warn(
            OddColumnWarning(
                f"text is read as dates, times or numbers: {listed}. Convert the "
                "columns (pandas.to_datetime, to_timedelta, to_numeric) to silence this warning, "
                "or to the dtype 'category' if they are categories"
            ),
            stacklevel=user_stacklevel(),
        )

    def _assemble(
        self,
        block: Block,
        factors: Mapping[int, Factors],
        label: Callable[[int], str] | None = None,
    ) -> EncodedTable:
        scaler = self.numeric_scaler_
        dense = np.empty((block.n_rows, self.n_dense_), dtype=np.float32)
        codes = np.empty((block.n_rows, len(self.cardinalities_)), dtype=np.int64)
        apply_numeric(scaler, block, dense)
        dense[:, scaler.n_dense :] = 0.0
        numeric = _numeric(self.kinds_)
        spans = {s.column: s for s in self.spans_ if s.kind not in ("numeric", "indicator")}
        for calendar in self.calendars_:
            if calendar.parts:
                seconds = block.column(numeric.index(calendar.column))
                for rows in block.pieces():
                    columns = spans[calendar.column].slice
                    dense[rows, columns] = calendar.encode(seconds[rows])
        for text in self.text_maps_:
            if text.width:
                dense[:, spans[text.column].slice] = text.encode(factors[text.column])
        for category_map in self.category_maps_:
            j, span = category_map.column, spans[category_map.column]
            encoded = category_map.encode(factors[j], None if label is None else label(j))
            if category_map.onehot:
                known_rows = np.flatnonzero(encoded >= 0)
                dense[known_rows, span.slice.start + encoded[known_rows]] = 1.0
                if len(known_rows) < len(encoded):
                    dense[encoded < 0, span.slice] = category_map.frequencies
            else:
                codes[:, span.slice.start] = encoded
        return EncodedTable(dense, codes)

    def __sklearn_tags__(self) -> Any:
        tags = table_tags(super().__sklearn_tags__(), sparse=True)
        tags.transformer_tags.preserves_dtype = []
        return tags


def _numeric(kinds: Sequence[ColumnKind]) -> list[int]:
    """Columns that are read as numbers."""
    return [j for j, kind in enumerate(kinds) if kind not in ("category", "text")]


def _zones(
    table: Table, kinds: Sequence[ColumnKind], forms: Sequence[ColumnForm] | None = None
) -> dict[int, Any]:
    """The time zones of columns of dates, by position; with ``forms`` only of those columns."""
    columns = range(len(kinds)) if forms is None else [form.column for form in forms]
    return {j: time_zone(table.column(j))[0] for j in columns if kinds[j] == "datetime"}


def _lay_out(
    numeric: Sequence[int],
    missing: np.ndarray,
    calendars: Sequence[Calendar],
    maps: Sequence[CategoryMap],
    texts: Sequence[TextMap],
) -> tuple[Span, ...]:
    indicated = [j for j, had_missing in zip(numeric, missing, strict=True) if had_missing]
    widths: list[tuple[int, SpanKind, int]] = [(j, "numeric", 1) for j in numeric]
    widths += [(j, "indicator", 1) for j in indicated]
    widths += [(c.column, "cyclic", c.width) for c in calendars if c.parts]
    widths += [(m.column, "onehot", m.width) for m in maps if m.onehot]
    widths += [(text.column, "text", text.width) for text in texts if text.width]
    ends = np.cumsum([width for _, _, width in widths], dtype=int).tolist()
    spans = [
        Span(column, kind, slice(end - width, end))
        for (column, kind, width), end in zip(widths, ends, strict=True)
    ]
    coded = [m.column for m in maps if not m.onehot]
    return (*spans, *(Span(column, "code", slice(i, i + 1)) for i, column in enumerate(coded)))


def _joined(encoded: EncodedTable) -> np.ndarray:
    if not encoded.codes.shape[1]:
        return encoded.dense
    return np.hstack([encoded.dense, encoded.codes.astype(np.float32)])


def _suffixes(category_map: CategoryMap) -> list[str]:
    return (
        [str(key) for key in category_map.keys]
        + ["rare"] * category_map.rare
        + ["nan"] * category_map.missing
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Names made distinct: 1 and "1" are two categories that would share one."""
    given_names = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, n = name, 2
        while candidate in seen or (candidate is not name and candidate in given_names):
            candidate, n = f"{name}_{n}", n + 1
        seen.add(candidate)
        result.append(candidate)
    return result


# ---- The declared fields of a fitted TableEncoder's state ---------------------------------------

_ENCODED = ("number", "bool", "datetime", "timedelta", "category", "text")
_STATE = {
    "parameters": kind(dict),
    "kinds": several(choice(*_ENCODED), 1),
    "forms": optional(several(kind(ColumnForm))),
    "units": several(choice("", "s", "ms", "us", "ns"), 1),
    "feature_names": nullable(several(kind(str))),
    "scaler": kind(NumericScaler),
    "categories": several(kind(CategoryMap)),
    "calendars": several(kind(Calendar)),
    "texts": several(kind(TextMap)),
}
_ARRAY = kind(np.ndarray)
_OWN = {"category": "categories", "datetime": "dates", "text": "texts"}  # in errors
_BOOLEAN_ARRAYS = ("constant", "unscaled", "missing")  # of the scaler's arrays
_QUANTILE_ARRAYS = ("knots", "edges")  # the others have an entry for each column
declare(
    NumericScaler,
    {
        "method": choice(*get_args(Method)),
        **{f.name: _ARRAY for f in fields(NumericScaler) if f.name != "method"},
    },
)
declare(
    CategoryMap,
    {
        "column": whole(),
        "keys": several(kind(*get_args(Key))),
        "missing": kind(bool),
        "onehot": kind(bool),
        "rare": kind(bool),
        "share": number(),
        "frequencies": several(number()),
        "ordered": optional(kind(bool)),
    },
    CategoryMap.check,
)
declare(
    Calendar,
    {
        "column": whole(),
        "parts": several(choice(*DATE_PARTS)),
        "zone": kind(str),
        "changes": _ARRAY,
        "offsets": _ARRAY,
        "varied": _ARRAY,
    },
    Calendar.check,
)
declare(
    TextMap,
    {
        "column": whole(),
        **dict.fromkeys(("weights", "components", "centre", "scale"), _ARRAY),
        "missing": kind(bool),
    },
    TextMap.check,
)


def _check_units(kinds: list[str], units: list[str]) -> None:
    has_unit = [kind in ("datetime", "timedelta") for kind in kinds]
    if has_unit != [unit != "" for unit in units]:
        raise ValueError("the encoder's state has units of other columns than dates and durations")


def _check_state(
    names: list[str] | None,
    kinds: list[str],
    scaler: NumericScaler,
    fitted_columns: Mapping[str, Sequence[Any]],
) -> None:
    """Raise ValueError if parts of a state do not fit each other, or are not finite."""
    numeric = sum(kind not in ("category", "text") for kind in kinds)
    arrays = {name: array for name, array in vars(scaler).items() if name != "method"}
    wrong = [
        name
        for name, array in arrays.items()
        if array.shape != (*array.shape[: name in _QUANTILE_ARRAYS], numeric)
        or array.dtype != (np.bool_ if name in _BOOLEAN_ARRAYS else np.float64)
        or not np.isfinite(array).all()
    ]
    if wrong or not (scaler.scale > 0).all():
        raise ValueError(
            f"the encoder's state has arrays that do not fit its {numeric} numeric columns: {wrong}"
        )
    lacks = (scaler.method == "quantile") != (len(scaler.knots) > 0)
    if lacks or any((np.diff(arrays[name], axis=0) < 0).any() for name in _QUANTILE_ARRAYS):
        raise ValueError("the encoder's state has quantiles that do not increase, or lacks them")
    for kind_name, name in _OWN.items():
        if [column.column for column in fitted_columns[kind_name]] != [
            j for j, k in enumerate(kinds) if k == kind_name
        ]:
            raise ValueError(f"the encoder's state has the {name} of other columns than its kinds")
    if any(len({*m.keys}) != len(m.keys) for m in fitted_columns["category"]):
        raise ValueError("the encoder's state has a category twice")
    if names is not None and len({*names}) != len(kinds):
        raise ValueError(f"the encoder's state has {len(names)} names for {len(kinds)} columns")
