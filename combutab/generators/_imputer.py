"""TabFlowImputer: a generator as scikit-learn's transformer that fills missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.linear_model import BayesianRidge
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted

from combutab.core.parameters import table_tags
from combutab.core.rng import Stream, fold_in, seed_from
from combutab.core.tasks import CallbackSupport, fit_task
from combutab.generators._imputing import (
    decode_numbers,
    fill_by,
    impute_mean,
    warn_of_empty_columns,
)
from combutab.generators._tabflow import TabFlow, code_probabilities
from combutab.preprocessing import IncompleteTable, ModeTable, validate_table

# ---- Conditional means of missing cells: a generator's, corrected by linear regressions ----------

_MOST_ROWS = 5000  # to which regressions are fitted
_FEWEST_ROWS = 20
_MOST_COLUMNS = 50  # in a regression: those most correlated with the target
_ROUNDS = 5  # in which each column is predicted from the others


@dataclass(frozen=True)
class _Line:
    """A regression of a column on others and its expected values, within the column's bounds."""

    model: BayesianRidge
    near: np.ndarray
    low: float
    high: float

    def correct(
        self, k: int, is_missing: np.ndarray, filled: np.ndarray, expected: np.ndarray
    ) -> None:
        """Put predictions into the missing cells of column k."""
        rows = is_missing[:, k]
        if rows.any():
            predictions = self.model.predict(_beside(filled[rows], expected[rows], k, self.near))
            filled[rows, k] = np.clip(predictions, self.low, self.high)


def _fit_line(
    x: np.ndarray, filled: np.ndarray, expected: np.ndarray, k: int, bounds: np.ndarray
) -> _Line | None:
    """Fit a line to the known cells of column k of x; None if these are too few."""
    is_present = ~np.isnan(x[:, k])
    if is_present.sum() < _FEWEST_ROWS:
        return None
    target, near = x[is_present, k], _most_correlated(filled, k)
    model = BayesianRidge().fit(_beside(filled[is_present], expected[is_present], k, near), target)
    return _Line(model, near, *bounds.tolist())


def _beside(filled: np.ndarray, expected: np.ndarray, k: int, near: np.ndarray) -> np.ndarray:
    """The expected values of column k, and the columns near to it."""
    return np.column_stack([expected[:, k], filled[:, near]])


def _most_correlated(filled: np.ndarray, k: int) -> np.ndarray:
    """The columns of the greatest correlations with column k."""
    x = filled - filled.mean(axis=0)
    spread = np.sqrt((x**2).sum(axis=0))
    near = np.abs(x.T @ x[:, k]) / np.where(spread > 0, spread, 1.0)
    near[k] = -1.0
    order = np.argsort(-near, kind="stable")[: min(_MOST_COLUMNS, len(near) - 1)]
    return np.sort(order)


class ConditionalMean:
    """Fills missing cells with expected numbers and the most probable categories.

    The probabilities of codes are those of a generator that draws columns given others. Numbers
    are then predicted by Bayesian ridge regressions on the other numbers and on the generator's
    expectations, fitted to the known cells. Regressions represent linear relations more exactly
    than bins. The columns are predicted one after another, in several rounds.

    Parameters
    ----------
    model : TabFlow
        Fitted.
    X : DataFrame or array
        The table that it was fitted on.
    seed : int
        Chooses among many rows.

    References
    ----------
    van Buuren and Groothuis-Oudshoorn (2011), "mice: multivariate imputation by chained equations
    in R".
    """

    def __init__(self, model: Any, X: Any, seed: int) -> None:
        self.model = model
        spans = model.encoder_.layout_.spans
        columns = [model.encoder_.columns_[span.column] for span in spans]
        self._numbers = {i: c for i, c in enumerate(columns) if c.is_continuous}
        table = IncompleteTable(model.encoder_, model.rules_.learned.extend(X))
        n_rows = len(table.missing)
        rows = np.sort(np.random.default_rng(seed).permutation(n_rows)[:_MOST_ROWS])
        encoded, is_known = table.encode(seed, rows)
        x, codes = self._read(encoded, is_known), np.where(is_known, encoded.codes, -1)
        expected = np.empty_like(x)
        for k, i in enumerate(self._numbers):
            hidden = codes.copy()
            hidden[:, i] = -1
            expected[:, k] = self._expect(hidden, [i])[1][:, k]
        filled = np.where(np.isnan(x), expected, x)
        mean, sd = filled.mean(axis=0), filled.std(axis=0)
        self._mean, self._sd = mean, np.where(sd > 0, sd, 1.0)
        x, expected, filled = (self._standardise(part) for part in (x, expected, filled))
        # the encoder's bounds, because the smallest and largest numbers are those of single rows
        bounds = [c.format.read(c.bounds, "")[0] for c in self._numbers.values()]
        ranges = self._standardise(np.reshape(bounds, (-1, 2)).T)
        is_missing = np.isnan(x)
        self._lines: dict[int, _Line] = {}
        for _ in range(_ROUNDS):
            for k in range(x.shape[1]):
                if (line := _fit_line(x, filled, expected, k, ranges[:, k])) is not None:
                    self._lines[k] = line
                    line.correct(k, is_missing, filled, expected)

    def fill(self, X: Any, seed: int) -> Any:
        """The table without missing cells; ``seed`` draws the modes that known numbers are in."""
        table = IncompleteTable(self.model.encoder_, self.model.rules_.learned.extend(X))
        encoded, is_known = table.encode(seed)
        codes, numbers = self._expect(np.where(is_known, encoded.codes, -1))
        codes = np.where(is_known, encoded.codes, codes)
        x, expected = (self._standardise(part) for part in (self._read(encoded, is_known), numbers))
        is_missing = np.isnan(x)
        filled = np.where(is_missing, expected, x)
        for _ in range(_ROUNDS if len(filled) else 0):
            for k, line in self._lines.items():
                line.correct(k, is_missing, filled, expected)
        filled = filled * self._sd + self._mean
        numbers_by_span = {i: filled[:, k] for k, i in enumerate(self._numbers)}
        decoded = decode_numbers(self.model.encoder_, encoded.values, codes, numbers_by_span)
        return fill_by(self.model, X, decoded, seed) if self.model.rules_ else table.fill(decoded)

    def _standardise(self, x: np.ndarray) -> np.ndarray:
        return (x - self._mean) / self._sd

    def _read(self, table: ModeTable, is_known: np.ndarray) -> np.ndarray:
        """Known numbers as their formats count them, NaN for others: (n, n_numbers)."""
        x = np.full((len(table.codes), len(self._numbers)), np.nan)
        for k, (i, column) in enumerate(self._numbers.items()):
            rows, index = is_known[:, i], self.model.encoder_.layout_.spans[i].value_index
            x[rows, k] = column.mixture.unscale(table.values[rows, index], table.codes[rows, i])
        return x

    def _expect(
        self, codes: np.ndarray, spans: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The most probable codes, (n, n_spans), and the expected numbers, (n, n_numbers)."""
        best = np.zeros_like(codes)
        numbers = np.zeros((len(codes), len(self._numbers)))
        positions = {i: k for k, i in enumerate(self._numbers)}
        for rows, i, shares in code_probabilities(self.model, codes, spans):
            best[rows, i] = shares.argmax(axis=1)
            if i in positions:
                means = self._numbers[i].mixture.means
                numbers[rows, positions[i]] = shares[:, : len(means)] @ means
        return best, numbers


# ---- TabFlowImputer: a generator as scikit-learn's transformer that fills missing cells ----------

_DRAWS = 20  # whose mean is a best guess


class TabFlowImputer(CallbackSupport, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Impute missing values with a generator that is trained on the table.

    The generator is fitted on the table with its missing cells. It then imputes each missing cell
    given the other cells of the row. Tables can have columns of text, categories, dates and
    numbers.

    Parameters
    ----------
    generator : TabFlow, TVAE, CTGAN or None, default=None
        The generator to fit on the table; None is ``TabFlow()``. It is cloned. The clone gets the
        ``random_state`` of the imputer if the generator's is None.
    n_draws : int or None, default=None
        Number of samples per missing cell. The imputed cell is their mean, or the most frequent
        category. 1 preserves the variance of the column. None imputes the best prediction: the most
        probable category, and the expected number (rounded only if the column does not hold
        floats) by the generator and by ridge regressions on the other numbers and on its expected
        values. CTGAN and TVAE have no probabilities; None is then the same as 20.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the generator's training and of the samples.

    Attributes
    ----------
    generator_ : CTGAN, TVAE or TabFlow
        The fitted generator.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, if all are strings.

    See Also
    --------
    combutab.TVAE.impute : Impute with a fitted generator, also several tables.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from combutab import TVAE
    >>> X = pd.DataFrame({"x": np.arange(100) % 7.5, "kind": ["a", "b"] * 50})
    >>> holes = X.mask(np.random.default_rng(0).random(X.shape) < 0.2)
    >>> imputer = TabFlowImputer(TVAE(epochs=1, random_state=0), n_draws=5, random_state=0)
    >>> filled = imputer.fit_transform(holes)
    >>> bool(filled.isna().any(axis=None)), bool((filled == X)[holes.notna()].sum().sum() > 0)
    (False, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "generator": [HasMethods(["fit", "impute"]), None],
        "n_draws": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self, generator: Any = None, *, n_draws: int | None = None, random_state: Any = None
    ) -> None:
        self.generator = generator
        self.n_draws = n_draws
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the generator on a table; ``y`` is ignored.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)

        Raises
        ------
        ValueError
            As in ``fit`` of the generator.
        """
        X = self._read(X, reset=True)
        generator = TabFlow() if self.generator is None else clone(self.generator)
        if generator.get_params(deep=False).get("random_state", 0) is None:
            generator.set_params(random_state=self.random_state)
        self._seed = seed_from(self.random_state)
        with fit_task(self, X, y, n_parts=1) as task:
            with nullcontext() if task is None else task.part_of("fit-generator", generator):
                generator.fit(X)
            self._keep(generator, X)
        return self

    def _keep(self, generator: Any, X: Any) -> None:
        if hasattr(generator, "encoder_"):
            warn_of_empty_columns(generator.encoder_)
        self.generator_, self._mean = generator, None
        if self.n_draws is None and isinstance(generator, TabFlow):
            typed = generator.rules_.forms.read(X)
            self._mean = ConditionalMean(generator, typed, fold_in(self._seed, Stream.KNOWN))

    def transform(self, X: Any) -> Any:
        """Impute the missing cells of a table. The same table gives the same result.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            A table with the columns of the fitted table, in the same order.

        Returns
        -------
        DataFrame of pandas, or array
            The table without missing cells. Known cells are not changed.

        Raises
        ------
        ValueError
            As in ``impute`` of the generator.
        """
        check_is_fitted(self)
        table = self._read(X, reset=False)
        rules = getattr(self.generator_, "rules_", None)
        typed = table if rules is None else rules.forms.read(table)
        if self.n_draws is None and self._mean is not None:
            filled = self._mean.fill(typed, fold_in(self._seed, Stream.KNOWN))
        else:
            n_draws = _DRAWS if self.n_draws is None else self.n_draws
            key = fold_in(self._seed, Stream.DRAW)
            filled = impute_mean(self.generator_, typed, n_draws, key)
        return filled if rules is None else rules.forms.fill(table, filled)

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Check the columns' names and number as scikit-learn does; cells are for the generator."""
        return validate_table(self, X, reset=reset, accept_sparse=False).data

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "generator_")

    def __sklearn_tags__(self) -> Any:
        tags = table_tags(super().__sklearn_tags__())
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
