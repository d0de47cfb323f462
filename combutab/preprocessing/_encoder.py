"""TableEncoder: a table to the float32 arrays of a network."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from combutab._ranks import Ranks, current
from combutab._sklearn_callbacks import CallbackSupport, fit_task
from combutab.preprocessing._blocks import Block
from combutab.preprocessing._categories import (
    CategoryCounts,
    CategoryMap,
    Factors,
    count_categories,
    fewest_rows,
)
from combutab.preprocessing._kinds import ColumnKind
from combutab.preprocessing._learner import TableLearner
from combutab.preprocessing._moments import missing_mask
from combutab.preprocessing._numeric import NumericScaler, apply_numeric, fit_numeric
from combutab.preprocessing._selection import categorical_mask
from combutab.preprocessing._state import decoder_state, encoder_state
from combutab.preprocessing._table import FrameTable, Table, read_table

SpanKind = Literal["numeric", "indicator", "onehot", "code"]


@dataclass(frozen=True)
class Span:
    """The place of an input column: `slice` of `dense`, or of `codes` where kind is "code"."""

    column: int
    kind: SpanKind
    slice: builtins.slice


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table as a network takes it.

    Attributes
    ----------
    dense : ndarray of shape (n_rows, n_dense), float32
        Scaled numbers, then missing-value indicators, then one-hot columns; all finite.
    codes : ndarray of shape (n_rows, n_codes), int64
        One column a categorical column of many categories, for embeddings.
    """

    dense: np.ndarray
    codes: np.ndarray


class TableEncoder(CallbackSupport, TransformerMixin, BaseEstimator):
    """Encode a table of numbers, categories, dates and missing values for a neural network.

    Accepted are pandas and polars DataFrames, numpy arrays, lists of rows and scipy sparse
    matrices. What happens to a column depends on what it holds:

    - numbers, and datetimes and timedeltas in seconds, are scaled as `numeric` says; columns
      constant in fit become 0; missing values become the mean ("quantile" and "robust": the
      median), and a column that had some in fit gets an indicator column beside it;
    - truth values stay 0 and 1;
    - categories are one-hot encoded, one column a category seen in fit (also where there are two
      only), those of fewer rows than `min_frequency` sharing one, a missing value being one more
      if fit saw it; an unseen category counts as a rare one, or is all zeros if there were none;
    - a column of more than `max_onehot` categories (the rare ones count as one) becomes integer
      codes: 0 for unseen and rare categories and those that fit saw once, then the others in
      order, then missing if fit saw it.

    Categories keep their type: 1 and "1" are two categories, but 1, 1.0 and True are one, as in
    Python. Sparse input is scaled without centering.

    The fitted encoder holds no value that fewer than `min_frequency` rows have: rare categories
    are counted and forgotten, the quantiles of "quantile" and "robust" and the edges of bins lie
    between means of `min_frequency` neighbouring rows, and no column's smallest or largest value is
    kept. It holds
    the columns' names, the other categories, and means and standard deviations of numbers (of
    fewer rows than `min_frequency`: rounded to two digits).

    Parameters
    ----------
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Which columns hold categories. "from_dtype": those of category, string and object dtype
        (an object column of numbers or dates only is not a category). None: no column. Or a mask,
        positions, or column names. A column that is not categorical but holds text is parsed.
    numeric : {"standard", "quantile", "robust", "none"}, default="standard"
        "standard": to mean 0 and standard deviation 1. "quantile": to a normal distribution by
        rank, equal values at the middle of their ranks. "robust": by median and interquartile
        range, then bent by ``x / sqrt(1 + (x/3)**2)`` as RealMLP does. "none": as is.
    max_onehot : int, default=32
        Columns with more categories than this become codes.
    min_frequency : int or float, default=5
        How many rows, or which share of them, must have a value for it to be kept. Of a column of
        which no category is kept a UserWarning tells. 1 keeps all, and quantiles exact.
    n_bins : int or None, default=None
        Also learn, in ``numeric_scaler_.edges``, the edges of so many bins of each numeric column,
        of equally many rows each, for the piecewise-linear embeddings of a network. `transform`
        makes no use of them.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only where all names are strings.
    kinds_ : tuple of str
        What each column holds: "number", "bool", "datetime", "timedelta" or "category".
    spans_ : tuple of Span
    n_dense_ : int
    cardinalities_ : tuple of int
        Of each code column: codes lie in ``range(cardinality)``.
    categories_ : dict of int to list
        Of each categorical column (by position): the categories that have a column or code of
        their own, in order; None stands for missing. Rare ones are not among them.
    numeric_scaler_ : NumericScaler
    category_maps_ : tuple of CategoryMap

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "numeric": [StrOptions({"standard", "quantile", "robust", "none"})],
        "max_onehot": [Interval(Integral, 0, None, closed="left")],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "n_bins": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        *,
        categorical_features: Any = "from_dtype",
        numeric: Literal["standard", "quantile", "robust", "none"] = "standard",
        max_onehot: int = 32,
        min_frequency: float = 5,
        n_bins: int | None = None,
    ) -> None:
        self.categorical_features = categorical_features
        self.numeric = numeric
        self.max_onehot = max_onehot
        self.min_frequency = min_frequency
        self.n_bins = n_bins

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn the scales and categories of a table; `y` is ignored."""
        with fit_task(self, X, y):
            self._learn(read_table(self, X, reset=True))
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_encode(
        self, X: Any, sample_weight: np.ndarray | None = None, *, owner: BaseEstimator | None = None
    ) -> EncodedTable:
        """Fit to X and encode it, reading and factorising each column once.

        Positive `sample_weight`, (n_rows,), counts in means, standard deviations and quantiles
        (but not in which categories are rare). An `owner` is the estimator that errors about the
        columns speak of; it learns their names too. Where ranks share its fit, each finds the
        quantiles of a part of the columns.
        """
        with fit_task(self, X, None, sample_weight):
            table = read_table(self if owner is None else owner, X, reset=True)
            self._take_names(self if owner is None else owner)
            ranks = None if owner is None else current()
            learned = self._learn(table, sample_weight, ranks)
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
        """Fit to a table that comes in parts, in one pass that holds one part at a time.

        What is learned is what `fit` learns from all rows at once: means, standard deviations,
        categories and indicators to rounding; the quantiles of "quantile" and "robust" from a
        sample, where there are more rows than it holds.

        Parameters
        ----------
        batches : iterable of (X, weight)
            Parts of a table, of the same columns, and the positive weights of their rows or None.
        header : DataFrame, optional
            Its dtypes say what the columns hold; it needs no rows. By default the first part.
        n_sample : int, default=100_000
            Rows of that sample.
        max_distinct : int, optional
            Distinct categories, over all columns, that memory may hold.
        seed : int, default=0
            Of the sample.
        owner : BaseEstimator, optional
            As in `fit_encode`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no part, a value is infinite, or categories exceed `max_distinct`.

        Examples
        --------
        >>> import pandas as pd
        >>> parts = [pd.DataFrame({"x": [1.0, None]}), pd.DataFrame({"x": [3.0]})]
        >>> encoder = TableEncoder().fit_batches((part, None) for part in parts)
        >>> encoder.numeric_scaler_.centre, encoder.numeric_scaler_.scale
        (array([2.]), array([1.]))
        """
        reader, learner = self if owner is None else owner, None
        kinds: tuple[ColumnKind, ...] = ()
        for X, weight in batches:
            table = read_table(reader, X, reset=learner is None)
            if learner is None:
                kinds = self._kinds(table if header is None else FrameTable(header))
                labels = [table.label(j) for j in range(table.n_columns)]
                learner = TableLearner(
                    labels, kinds, self.numeric, n_sample, max_distinct, seed, self.n_bins
                )
            learner.add(table, weight)
        if learner is None:
            raise ValueError("there is no part of a table to fit to: batches are empty")
        self._take_names(reader)
        maps = self._learn_maps(learner.counts, labels.__getitem__, learner.n_rows)
        self._remember(kinds, learner.scaler(self.min_frequency), maps)
        return self

    def encode(self, X: Any, *, owner: BaseEstimator | None = None) -> EncodedTable:
        """Encode a table with the columns that were fitted; `owner` as in `fit_encode`.

        Raises
        ------
        ValueError
            If columns are missing, added or in another order, a value is infinite, or a numeric
            column holds text that is no number.
        """
        check_is_fitted(self)
        table = read_table(self if owner is None else owner, X, reset=False)
        factors = [table.factors(each.column) for each in self.category_maps_]
        return self._assemble(table.block(self._numeric_columns(), self.kinds_), factors)

    def read(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Read a table with the columns that were fitted as numbers and codes, not yet scaled.

        Returns
        -------
        numbers : ndarray of shape (n_rows, n_numeric), float64
            The columns that are no categories, NaN where missing.
        codes : ndarray of shape (n_rows, n_categorical), int64
            The others, as the `CategoryMap` of each gives them: where they become one-hot columns
            which of these is 1, or -1 for none.

        Raises
        ------
        ValueError
            As `encode`.
        """
        check_is_fitted(self)
        table = read_table(self, X, reset=False)
        block = table.block(self._numeric_columns(), self.kinds_)
        numbers = block.rows(0, block.n_rows)
        missing_mask(numbers, block.label)
        codes = [each.encode(table.factors(each.column)) for each in self.category_maps_]
        return numbers, np.stack(codes, 1) if codes else np.empty((table.n_rows, 0), np.int64)

    def transform(self, X: Any) -> np.ndarray:
        """Encode to one float32 array of shape (n_rows, n_dense + n_codes): dense, then codes."""
        return _as_array(self.encode(X))

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit to X and transform it in one pass; `y` is ignored."""
        return _as_array(self.fit_encode(X))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`: ``age``, ``age_missing``, ``city_Rome``."""
        check_is_fitted(self)
        inputs = _check_feature_names_in(self, input_features)
        suffixes = {each.column: _suffixes(each) for each in self.category_maps_ if each.onehot}
        names: list[str] = []
        for span in self.spans_:
            stem = inputs[span.column]
            if span.kind == "onehot":
                names.extend(f"{stem}_{suffix}" for suffix in suffixes[span.column])
            else:
                names.append(f"{stem}_missing" if span.kind == "indicator" else stem)
        return np.asarray(_distinct(names), dtype=object)

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The fitted encoder as numeric arrays and a dict that JSON can hold.

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
        return encoder_state(self)

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> TableEncoder:
        """The encoder that `to_state` described; a ValueError says what of it cannot be."""
        state = decoder_state(arrays, meta)
        encoder = cls(**state.parameters)
        encoder._validate_params()
        encoder.n_features_in_ = len(state.kinds)
        if state.feature_names is not None:
            encoder.feature_names_in_ = np.array(state.feature_names, dtype=object)
        encoder._remember(state.kinds, state.scaler, state.category_maps)
        return encoder

    def _take_names(self, owner: Any) -> None:
        self.n_features_in_ = owner.n_features_in_
        if hasattr(owner, "feature_names_in_"):
            self.feature_names_in_ = owner.feature_names_in_

    def _kinds(self, table: Table) -> tuple[ColumnKind, ...]:
        mask = categorical_mask(self.categorical_features, table.names, table.n_columns)
        return tuple(
            table.kind(j, None if mask is None else bool(mask[j])) for j in range(table.n_columns)
        )

    def _learn(
        self, table: Table, weight: np.ndarray | None = None, ranks: Ranks | None = None
    ) -> tuple[Block, list[Factors]]:
        kinds = self._kinds(table)
        numeric = [j for j, kind in enumerate(kinds) if kind != "category"]
        categorical = [j for j, kind in enumerate(kinds) if kind == "category"]
        block = table.block(numeric, kinds)
        truths = np.array([kinds[j] == "bool" for j in numeric], bool)
        scaler = fit_numeric(
            block, self.numeric, truths, weight, self.min_frequency, self.n_bins, ranks
        )
        factors = {j: table.factors(j) for j in categorical}
        counts = {j: count_categories(each) for j, each in factors.items()}
        self._remember(kinds, scaler, self._learn_maps(counts, table.label, table.n_rows))
        return block, list(factors.values())

    def _learn_maps(
        self, counts: dict[int, CategoryCounts], label: Callable[[int], str], n_rows: int
    ) -> tuple[CategoryMap, ...]:
        """The categories that are kept; a warning names the columns of which none is."""
        fewest = fewest_rows(self.min_frequency, n_rows)
        maps = tuple(each.learn(j, self.max_onehot, fewest) for j, each in counts.items())
        lost = {m.column: counts[m.column].seen for m in maps if not m.keys}
        lost = {j: seen for j, seen in lost.items() if len(seen) > 1}
        if lost:
            n = max((len(seen) for seen in lost.values() if max(seen.values()) == 1), default=0)
            wider = f" and max_onehot={n}" if n > self.max_onehot else ""
            warnings.warn(
                f"fewer than {max(fewest, 2)} rows have each category of "
                f"{', '.join(label(j) for j in lost)}, so that none is kept (min_frequency="
                f"{self.min_frequency}) and nothing is learned from it; leave it out, or set "
                f"min_frequency=1{wider}",
                stacklevel=2,
            )
        return maps

    def _remember(
        self, kinds: Sequence[ColumnKind], scaler: NumericScaler, maps: tuple[CategoryMap, ...]
    ) -> None:
        self.kinds_ = tuple(kinds)
        self.numeric_scaler_ = scaler
        self.category_maps_ = maps
        self.spans_ = _lay_out(self._numeric_columns(), scaler.missing, maps)
        self.n_dense_ = max((s.slice.stop for s in self.spans_ if s.kind != "code"), default=0)
        self.cardinalities_ = tuple(each.width for each in maps if not each.onehot)
        self.categories_ = {m.column: [*m.keys, *([None] if m.missing else [])] for m in maps}

    def _numeric_columns(self) -> list[int]:
        return [j for j, kind in enumerate(self.kinds_) if kind != "category"]

    def _assemble(self, block: Block, factors: Sequence[Factors]) -> EncodedTable:
        scaler = self.numeric_scaler_
        dense = np.empty((block.n_rows, self.n_dense_), dtype=np.float32)
        codes = np.empty((block.n_rows, len(self.cardinalities_)), dtype=np.int64)
        apply_numeric(scaler, block, dense)
        dense[:, scaler.n_dense :] = 0.0
        spans = {span.column: span for span in self.spans_ if span.kind in ("onehot", "code")}
        for each, factored in zip(self.category_maps_, factors, strict=True):
            encoded, span = each.encode(factored), spans[each.column]
            if each.onehot:
                rows = np.flatnonzero(encoded >= 0)
                dense[rows, span.slice.start + encoded[rows]] = 1.0
            else:
                codes[:, span.slice.start] = encoded
        return EncodedTable(dense, codes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _lay_out(
    numeric: Sequence[int], missing: np.ndarray, maps: Sequence[CategoryMap]
) -> tuple[Span, ...]:
    indicated = [j for j, had_missing in zip(numeric, missing, strict=True) if had_missing]
    widths: list[tuple[int, SpanKind, int]] = [(j, "numeric", 1) for j in numeric]
    widths += [(j, "indicator", 1) for j in indicated]
    widths += [(each.column, "onehot", each.width) for each in maps if each.onehot]
    ends = np.cumsum([width for _, _, width in widths], dtype=int).tolist()
    spans = [
        Span(column, kind, slice(end - width, end))
        for (column, kind, width), end in zip(widths, ends, strict=True)
    ]
    coded = [each.column for each in maps if not each.onehot]
    return (*spans, *(Span(column, "code", slice(i, i + 1)) for i, column in enumerate(coded)))


def _as_array(encoded: EncodedTable) -> np.ndarray:
    if not encoded.codes.shape[1]:
        return encoded.dense
    return np.hstack([encoded.dense, encoded.codes.astype(np.float32)])


def _suffixes(each: CategoryMap) -> list[str]:
    return [str(key) for key in each.keys] + ["rare"] * each.rare + ["nan"] * each.missing


def _distinct(names: Sequence[str]) -> list[str]:
    """Names made distinct: 1 and "1" are two categories that would share one."""
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, n = name, 2
        while candidate in seen or (candidate is not name and candidate in taken):
            candidate, n = f"{name}_{n}", n + 1
        seen.add(candidate)
        result.append(candidate)
    return result
