"""PackRegressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.base import RegressorMixin

from combutab._model_files import loadable
from combutab.estimators._docs import fill
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators.pack._base import BasePack
from combutab.estimators.pack._docs import ATTRIBUTES, PARAMETERS
from combutab.estimators.pack._folds import HoldsOut
from combutab.estimators.pack._members import REGRESSOR


class _Encoding(HoldsOut, MLPRegressor):
    """Encodes the table of a pack."""


_Encoding.__name__ = "PackRegressor"  # whose errors it has


@loadable
@partial(fill, parameters=PARAMETERS.format(member="MLPRegressor"), attributes=ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class PackRegressor(RegressorMixin, BasePack):
    """Ensemble regressor of the best snapshots of many random networks, trained together.

    Each member is a perceptron with its own activation, depth, dropout, weight decay, learning rate
    and embedding of numbers. Networks of one shape train as one batched program. The ensemble is
    picked from their best epochs, greedily and with replacement, so as to have the smallest loss on
    rows that they did not train on.

    Takes a DataFrame as it is: numeric, boolean, text, category and date columns, with missing
    values. One or several targets, which are standardised inside and given back in their units.

    Parameters
    ----------
    loss : str, default="squared_error"
        As in MLPRegressor: ``"squared_error"``, ``"absolute_error"``, ``"huber"``, ``"poisson"``,
        ``"quantile"`` or ``"gaussian_nll"``.
    {parameters}
    quantiles : sequence of float, default=(0.05, 0.5, 0.95)
        What ``loss="quantile"`` learns, each in (0, 1).

    Attributes
    ----------
    {attributes}

    References
    ----------
    TabPack, arXiv 2607.05380; the selection is that of Caruana et al., "Ensemble selection from
    libraries of models", ICML 2004.

    Examples
    --------
    >>> from combutab import PackRegressor
    >>> from combutab.datasets import make_formula
    >>> X, y = make_formula("ar", n_samples=300, random_state=0)
    >>> pack = PackRegressor(n_members=4, max_iter=10, random_state=0).fit(X, y)
    >>> pack.predict(X[:5]).shape, pack.validation_loss_ <= pack.best_member_validation_loss_
    ((5,), True)
    """

    loss: str = "squared_error"
    quantiles: Sequence[float] = (0.05, 0.5, 0.95)

    _parameter_constraints = {
        **BasePack._parameter_constraints,
        "loss": MLPRegressor._parameter_constraints["loss"],
        "quantiles": MLPRegressor._parameter_constraints["quantiles"],
    }
    _recipe = REGRESSOR
    _member_class = MLPRegressor
    _encoding_class = _Encoding
    _passed_on = ("loss", "quantiles")

    def predict(
        self, X: Any, quantiles: Sequence[float] | None = None, return_std: bool = False
    ) -> Any:
        """Predicted targets, averaged over the ensemble.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
        quantiles : sequence of float, optional
            Predict these quantiles instead: the ones that ``loss="quantile"`` learned, or any with
            ``loss="gaussian_nll"``.
        return_std : bool, default=False
            Also return the predicted standard deviation (``loss="gaussian_nll"``).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            With ``quantiles``, one more axis of that length at the end; never crossing. With
            ``return_std``, a pair of arrays.

        Raises
        ------
        ValueError
            If the fitted loss cannot give what is asked for.
        """
        return self._answering(X).predict(X, quantiles, return_std)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of ``predict(X)``."""
        return self._answering(X).score(X, y, sample_weight)
