"""TabFlowImputer: a generator as scikit-learn's transformer that fills missing cells."""

from __future__ import annotations

from contextlib import nullcontext
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from combutab._random import Purpose, derive
from combutab._random_state import seed_from
from combutab._sklearn_callbacks import CallbackSupport, fit_task
from combutab.generators._guessing import Guesser
from combutab.generators._imputing import impute_mean
from combutab.generators._resampling import rows_as_array
from combutab.preprocessing import as_numpy, as_pandas

_DRAWS = 20  # that stand for a best guess


class TabFlowImputer(CallbackSupport, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fill missing cells by what a generator of the table has learned.

    The generator is fitted on the table as it is, missing cells too, and draws them from what they
    are where the other cells of their row are given. Tables may have columns of text, categories,
    dates and numbers.

    Parameters
    ----------
    generator : TabFlow, TVAE, CTGAN or None, default=None
        What learns the table, unfitted; None is ``TabFlow(random_state=random_state)``.
    n_draws : int, optional
        None puts in the best guess: numbers as they are expected (rounded only where their column
        is not of floats), by the generator and by ridge regressions on the other numbers and on
        what it expects, and the most probable categories. Of CTGAN and TVAE, which tell no
        probabilities, it is as 20. A number of draws puts in their mean, or the most frequent
        category; 1 keeps the variance that the cells have.
    random_state : int, RandomState, Generator or None, default=None
        Draws the cells.

    Attributes
    ----------
    generator_ : the generator, fitted
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only where all names are strings.

    See Also
    --------
    combutab.TVAE.impute : the same of a fitted generator, with several tables.

    Examples
    --------
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
            As the generator's ``fit`` does.
        """
        X = self._read(X, reset=True)
        generator = self.generator
        if generator is None:
            from combutab.generators import TabFlow

            generator = TabFlow(random_state=self.random_state)
        self._seed = seed_from(self.random_state)
        generator = clone(generator)
        with fit_task(self, X, y, n_parts=1) as task:
            with nullcontext() if task is None else task.part_of("fit-generator", generator):
                generator.fit(X)
            self._keep(generator, X)
        return self

    def _keep(self, generator: Any, X: Any) -> None:
        self.generator_, self._guesser = generator, None
        if self.n_draws is None and hasattr(generator, "_code_shares"):
            self._guesser = Guesser(generator, X, derive(self._seed, Purpose.KNOWN))

    def transform(self, X: Any) -> Any:
        """Fill the missing cells of a table; the same ones the same way each time.

        Parameters
        ----------
        X : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
            With the columns of the fitted table, in its order.

        Returns
        -------
        DataFrame of pandas, or array
            Cells that were there are as they were.

        Raises
        ------
        ValueError
            As ``impute`` of the generator does.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        if self.n_draws is None and self._guesser is not None:
            return self._guesser.fill(X, derive(self._seed, Purpose.KNOWN))
        n_draws = _DRAWS if self.n_draws is None else self.n_draws
        return impute_mean(self.generator_, X, n_draws, derive(self._seed, Purpose.DRAW))

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Check the columns' names and number as scikit-learn does; cells are for the generator."""
        X = as_numpy(as_pandas(X))
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return X
        if isinstance(X, list | tuple):
            X = rows_as_array(X)
        return validate_data(self, X, dtype=None, ensure_all_finite=False, reset=reset)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "generator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
