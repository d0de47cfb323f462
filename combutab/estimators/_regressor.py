"""MLPRegressor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import StrOptions
from torch import Tensor

from combutab._model_files import loadable
from combutab.estimators._docs import document
from combutab.estimators._streaming import StreamedMLP
from combutab.estimators._targets import (
    LOSSES,
    NumberTarget,
    TargetMoments,
    check_quantiles,
    checked_numbers,
    refuse_text,
)
from combutab.nn import ActivationSpec
from combutab.preprocessing import RunningMoments, binary_unit
from combutab.training import Loss


class NumberPredictions(RegressorMixin):
    """Predictions of a ``NumberTarget``."""

    target_: NumberTarget
    _raw: Callable[[Any], Tensor]  # a table -> raw outputs, (n_networks, n_samples, n_outputs)

    def predict(
        self, X: Any, quantiles: Sequence[float] | None = None, return_std: bool = False
    ) -> Any:
        """Predicted targets, averaged over networks.

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
        raw = self._raw(X)
        if quantiles is not None and return_std:
            raise ValueError("ask for quantiles or for return_std, not for both")
        if quantiles is not None:
            return self.target_.predicted_quantiles(raw, quantiles)
        return self.target_.mean_and_std(raw) if return_std else self.target_.predict(raw)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of ``predict(X)``."""
        refuse_text(y, "y")
        predicted, y = self.predict(X), np.asarray(y)
        if y.dtype.kind in "iuf":  # squares of the largest and smallest numbers would be lost
            y = y.astype(np.float64)
            unit = binary_unit(np.maximum(np.abs(y).max(), np.abs(predicted).max()))
            y, predicted = y / unit, predicted / unit
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPRegressor(NumberPredictions, StreamedMLP):
    """Multilayer perceptron regressor for tables, a drop-in for scikit-learn's.

    Takes a DataFrame as it is: numeric, boolean, text, category and date columns, with missing
    values. One or several targets, which are standardised inside and given back in their units.

    Parameters
    ----------
    loss : str, default="squared_error"
        ``"squared_error"``, ``"absolute_error"``, ``"huber"`` (linear beyond one standard
        deviation of the target), ``"poisson"`` (log link, y >= 0), ``"quantile"`` (the pinball
        loss of ``quantiles``) or ``"gaussian_nll"`` (a mean and a standard deviation a row).
    {parameters}
    quantiles : sequence of float, default=(0.05, 0.5, 0.95)
        What ``loss="quantile"`` learns, each in (0, 1). ``predict`` answers with the one nearest
        0.5, of two as near with the lower. Raw outputs may cross, and the training loss takes them
        as they are; each network's are sorted before they are averaged, predicted and scored.
    scale_target : bool, default=True
        Standardise y for training. Losses in ``loss_curve_`` are then in these units.
    clip_predictions : bool, default=True
        Predict nothing beyond the targets seen, in ``partial_fit`` and warm starts in any call. The
        fitted estimator and its files then hold each target's smallest and largest value, rounded
        outwards to a 64th of its deviation.

    Attributes
    ----------
    oof_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        With ``bagging="cv"``: of each row the prediction by the member that has not trained on it,
        NaN for rows of weight 0. Files do not hold it.
    {attributes}

    Examples
    --------
    >>> from combutab import MLPRegressor
    >>> from combutab.datasets import make_formula
    >>> X, y = make_formula("ar", n_samples=600, random_state=0)
    >>> reg = MLPRegressor(loss="quantile", max_iter=30, n_iter_no_change=float("inf"),
    ...                    random_state=0).fit(X, y)
    >>> reg.predict(X[:5], quantiles=[0.05, 0.95]).shape
    (5, 2)
    """

    loss: str = "squared_error"
    hidden_layer_sizes: Any = "auto"
    activation: ActivationSpec = "combu"
    _: KW_ONLY
    quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    scale_target: bool = True
    clip_predictions: bool = True
    learning_rate_init: float = 0.004

    _parameter_constraints = {
        **StreamedMLP._parameter_constraints,
        "loss": [StrOptions(set(LOSSES))],
        "quantiles": ["array-like"],
        "scale_target": ["boolean"],
        "clip_predictions": ["boolean"],
    }
    _target_class = NumberTarget
    _data_parameters = (
        *StreamedMLP._data_parameters,
        *("loss", "quantiles", "scale_target", "clip_predictions"),
    )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss == "quantile":
            check_quantiles(self.quantiles)

    @property
    def _learned_quantiles(self) -> tuple[float, ...]:
        return tuple(float(q) for q in self.quantiles) if self.loss == "quantile" else ()

    def _settled_parameters(self) -> dict[str, Any]:
        return {**super()._settled_parameters(), "quantiles": self._learned_quantiles}

    def _target_settings(self) -> dict[str, Any]:
        return {
            "loss_name": self.loss,
            "quantiles": self._learned_quantiles,
            "scale_target": self.scale_target,
            "clip": self.clip_predictions,
            "precision": self.precision,
        }

    def _checked_target(self, y: Any, name: str, owner: BaseEstimator) -> np.ndarray:
        return checked_numbers(y, name, owner)

    def _learn_target(
        self, y: np.ndarray, weight: np.ndarray | None, classes: np.ndarray | None
    ) -> NumberTarget:
        rows = y.reshape(len(y), -1)
        running = RunningMoments(rows.shape[1])
        running.add(rows.copy(), weight)
        return NumberTarget.learn(
            running.result(), one_dimensional=y.ndim == 1, **self._target_settings()
        )

    def _target_learner(self) -> TargetMoments:
        return TargetMoments(self._target_settings())

    def _loss(self) -> Loss:
        return self.target_.loss
