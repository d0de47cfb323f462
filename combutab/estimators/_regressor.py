"""MLPRegressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_y, column_or_1d

from combutab._model_files import loadable
from combutab.core.fields import kind, nullable, number, optional, pair, several, text
from combutab.estimators._data import as_numbers, refuse_text
from combutab.estimators._docs import document
from combutab.estimators._export import RegressionAnswer
from combutab.estimators._streaming import StreamedMLP, TargetLearner
from combutab.nn import ActivationSpec
from combutab.preprocessing import ColumnKind, Moments, RunningMoments, binary_unit
from combutab.training import GaussianNLL, Loss, Pinball, make_regression_loss


class TargetMoments:
    """Means and standard deviations of a regressor's targets."""

    kinds: tuple[ColumnKind, ...] = (ColumnKind.BOOL, ColumnKind.NUMBER)
    single = False

    def __init__(self, estimator: MLPRegressor) -> None:
        self._estimator = estimator
        self._running: RunningMoments | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, n_targets), and their weights."""
        if self._running is None:
            names = list(y.columns)
            self._running = RunningMoments(y.shape[1], lambda j: f"column {names[j]!r}", "y")
        self._running.add(_targets(y), weight)

    def finish(self, names: list[str]) -> None:
        """Set the estimator's shift and scale."""
        assert self._running is not None
        stats = self._running.result()
        self._estimator._check_range(stats.low.min())
        self._estimator._learn_target(len(names) == 1, stats)

    def encode(self, y: pd.DataFrame) -> np.ndarray:
        """Targets -> (n, n_targets), scaled."""
        return self._estimator._scale_target(_targets(y))

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights as they are."""
        return weight


def _targets(y: pd.DataFrame) -> np.ndarray:
    """A copy, (n, n_targets)."""
    return np.column_stack([as_numbers(y[name], f"column {name!r}") for name in y])


# ---- MLPRegressor --------------------------------------------------------------------------------

_LOSSES = {"squared_error", "absolute_error", "huber", "poisson", "quantile", "gaussian_nll"}


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPRegressor(RegressorMixin, StreamedMLP):
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
        "loss": [StrOptions(_LOSSES)],
        "quantiles": ["array-like"],
        "scale_target": ["boolean"],
        "clip_predictions": ["boolean"],
    }
    _fitted_fields = {
        "_one_dimensional": kind(bool),
        "_trained_loss": pair(text(100), several(number())),
        "_y_mean": kind(np.ndarray),
        "_y_scale": kind(np.ndarray),
        "_y_range": optional(nullable(kind(np.ndarray))),
    }
    _y_range = cast("np.ndarray | None", None)  # (2, n_outputs), where predictions are clipped
    _score_name = "r2"
    _data_parameters = (
        *StreamedMLP._data_parameters,
        *("loss", "quantiles", "scale_target", "clip_predictions"),
    )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._loss()

    def _encode_target(
        self, y: Any, weight: np.ndarray | None, *, reset: bool, validation: bool = False
    ) -> np.ndarray:
        refuse_text(y, "y_val" if validation else "y")
        with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers
            given, y = y, _check_y(y, multi_output=True, y_numeric=True, estimator=self)
        if hasattr(y, "toarray"):
            given = y = y.toarray()
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        targets = as_numbers(given)
        self._check_range(targets.min())
        if reset:
            running = RunningMoments(targets.shape[1])
            running.add(targets.copy(), weight)
            self._learn_target(y.ndim == 1, running.result())
        if targets.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {targets.shape[1]} targets, fit saw {self.n_outputs_}")
        if self._y_range is not None and not (reset or validation):  # goes on with other rows
            low, high = self._rounded_range(targets.min(0), targets.max(0))
            known = self._y_range
            self._y_range = np.array([np.minimum(low, known[0]), np.maximum(high, known[1])])
        return self._scale_target(targets)

    def _scale_target(self, targets: np.ndarray) -> np.ndarray:
        """(n, T) in the target's units -> in training units; overwritten."""
        unit = np.where(self._y_scale > 1e290, 2.0**-10, 1.0)  # differences may leave float64
        with np.errstate(over="ignore"):
            targets *= unit
            targets -= self._y_mean * unit
            targets /= self._y_scale * unit
        largest = np.abs(targets).max(initial=0.0)
        if not largest < np.sqrt(np.finfo(self._dtype).max):
            way_out = "scale_target=True, or " * (not self.scale_target)
            raise ValueError(
                f"y lies up to {largest:.3g} units from the middle of the target that was learned "
                f"(of scale {self._y_scale.max():.3g}), and precision={self.precision!r} cannot "
                f"hold the square; use {way_out}precision='float64', or fit to smaller numbers"
            )
        return targets

    @property
    def _dtype(self) -> type[np.floating]:
        return np.float64 if self.precision == "float64" else np.float32

    def _check_range(self, smallest: float) -> None:
        if self.loss == "poisson" and smallest < 0:
            raise ValueError(
                f"Some value(s) of y are out of the valid range of the loss 'poisson': it needs "
                f"y >= 0, got {smallest}"
            )

    def _learn_target(self, one_dimensional: bool, stats: Moments) -> None:
        """Set what follows from each target's mean, standard deviation and range."""
        self._trained_loss = self._loss_parameters()
        self._one_dimensional = one_dimensional
        self.n_outputs_ = len(stats.mean)
        self.out_activation_ = "exp" if self.loss == "poisson" else "identity"
        self._y_mean, self._y_scale = self._target_scaling(stats)
        self._y_range = (
            self._rounded_range(stats.low, stats.high) if self.clip_predictions else None
        )
        ends = np.abs(self._scale_target(np.array([stats.low, stats.high]))).max(0)
        step = np.spacing(ends.astype(self._dtype)) * self._y_scale
        std = np.maximum(stats.std, np.finfo(np.float64).smallest_subnormal)
        lost = np.flatnonzero((step > std) & (stats.low < stats.high))
        if len(lost):
            k = lost[0]
            way_out = "scale_target=True" if not self.scale_target else "another loss"
            raise ValueError(
                f"y goes from {float(stats.low[k])!r} to {float(stats.high[k])!r} with a standard "
                f"deviation of {std[k]:.3g}, and loss={self.loss!r} with scale_target="
                f"{self.scale_target} trains in precision={self.precision!r}, which rounds such "
                f"numbers to steps of {step[k]:.3g}; use {way_out}, or precision='float64', or "
                "subtract or multiply by a number first"
            )

    def _rounded_range(self, smallest: np.ndarray, largest: np.ndarray) -> np.ndarray:
        """Round the range of each target outwards, so that no row's value is kept."""
        unit = self._y_scale / 64
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            wide = np.array([np.floor(smallest / unit), np.ceil(largest / unit)]) * unit
        return np.where(np.isfinite(wide), wide, [smallest, largest])

    def _target_scaling(self, stats: Moments) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of each target."""
        mean = np.clip(stats.mean, stats.low, stats.high)  # a constant's is not rounded
        if not self.scale_target:
            return np.zeros_like(mean), np.ones_like(mean)
        if self._loss().scaling == "mean":
            return np.zeros_like(mean), np.where(mean > 0, mean, 1.0)
        scale = np.maximum(stats.std, np.finfo(np.float64).smallest_subnormal)
        constant = np.where(mean == 0, 1.0, np.minimum(np.abs(mean), 1.0))  # is only shifted
        return mean, np.where(stats.high > stats.low, scale, constant)

    def _target_learner(self) -> TargetLearner:
        return TargetMoments(self)

    def _check_loaded(self) -> dict[str, tuple[object, object]]:
        name, quantiles = self._trained_loss
        loss = make_regression_loss(name, quantiles)
        mean, scale = self._y_mean, self._y_scale
        whole_line = mean.dtype.kind == scale.dtype.kind == "f" and np.isfinite([mean, scale]).all()
        if not whole_line or not (scale > 0).all():
            raise ValueError("_y_mean and _y_scale must be finite numbers, and scales positive")
        if self._y_range is not None and not (self._y_range[:1] <= self._y_range[1:]).all():
            raise ValueError("_y_range must hold each target's smallest and largest value")
        if any(not 0 < q < 1 for q in quantiles) or list(quantiles) != sorted(set(quantiles)):
            raise ValueError(f"quantiles must lie in (0, 1) and increase, got {quantiles}"[:200])
        return {
            "_y_mean": (mean.shape, (self.n_outputs_,)),
            "_y_scale": (scale.shape, (self.n_outputs_,)),
            "n_outputs": (self._spec.n_outputs, self.n_outputs_ * loss.n_per_target),
            "out_activation_": (self.out_activation_, "exp" if name == "poisson" else "identity"),
            "_one_dimensional": (self._one_dimensional and self.n_outputs_ > 1, False),
            "_y_range": (
                np.shape(self._y_range) if self._y_range is not None else (2, self.n_outputs_),
                (2, self.n_outputs_),
            ),
        }

    def _loss(self) -> Loss:
        if self.loss == "quantile":
            quantiles = list(self.quantiles)
            numbers = all(isinstance(q, Real) for q in quantiles)
            if not quantiles or not numbers or any(not 0 < q < 1 for q in quantiles):
                raise ValueError(f"quantiles must lie in (0, 1), got {self.quantiles}")
            if sorted(set(quantiles)) != quantiles:
                raise ValueError(f"quantiles must increase, got {self.quantiles}")
        return make_regression_loss(self.loss, self.quantiles)

    def _loss_parameters(self) -> tuple[str, tuple[float, ...]]:
        quantiles = self.quantiles if self.loss == "quantile" else ()
        return self.loss, tuple(float(q) for q in quantiles)

    def _settled_parameters(self) -> dict[str, Any]:
        return {**super()._settled_parameters(), "quantiles": self._loss_parameters()[1]}

    def _n_raw_outputs(self) -> int:
        return self.n_outputs_ * self._loss().n_per_target

    def _output_units(self) -> tuple[np.ndarray, np.ndarray]:
        if self.loss not in ("squared_error", "absolute_error", "huber"):
            raise ValueError(
                "init=network needs a loss whose raw output is the target: 'squared_error', "
                f"'absolute_error' or 'huber', got {self.loss!r}"
            )
        return self._y_mean, self._y_scale

    def _answer(self) -> RegressionAnswer:
        return RegressionAnswer(
            make_regression_loss(*self._trained_loss),
            self._y_mean,
            self._y_scale,
            self._y_range,
            one_dimensional=self._one_dimensional,
        )

    def predict(
        self, X: Any, quantiles: Sequence[float] | None = None, return_std: bool = False
    ) -> Any:
        """Predicted targets, averaged over members.

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
        loss = make_regression_loss(*self._trained_loss)  # whatever the parameters are by now
        if quantiles is not None and return_std:
            raise ValueError("ask for quantiles or for return_std, not for both")
        if quantiles is not None:
            return self._quantiles(raw, loss, quantiles)
        if return_std:
            if not isinstance(loss, GaussianNLL):
                raise ValueError(
                    f"return_std=True needs loss='gaussian_nll', the estimator has "
                    f"loss={self._trained_loss[0]!r}"
                )
            mean, std = _mixture(*loss.moments(raw))
            return self._decode(mean), self._shaped(std * self._y_scale)
        return self._decode(loss.point(raw).mean(0).numpy())

    def _decode(self, scaled: np.ndarray) -> np.ndarray:
        """(n, T) in training units -> in the target's units."""
        values = scaled * self._y_scale + self._y_mean
        return self._shaped(values if self._y_range is None else np.clip(values, *self._y_range))

    def _decode_target(self, target: np.ndarray) -> np.ndarray:
        return self._shaped(target.astype(np.float64) * self._y_scale + self._y_mean)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._one_dimensional else values

    def _quantiles(self, raw: torch.Tensor, loss: Loss, quantiles: Sequence[float]) -> np.ndarray:
        wanted = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(f"quantiles must lie in (0, 1), got {quantiles}")
        if isinstance(loss, GaussianNLL):
            mean, std = _mixture(*loss.moments(raw))
            values = mean[..., None] + std[..., None] * norm.ppf(wanted)
        elif isinstance(loss, Pinball):
            known = np.asarray(loss.quantiles)
            places = [int(np.abs(known - q).argmin()) for q in wanted]
            if not np.allclose(known[places], wanted, rtol=0, atol=1e-9):
                raise ValueError(
                    f"quantiles={list(wanted)} were not learned, only {list(loss.quantiles)}; "
                    "name them in the constructor's quantiles, or use loss='gaussian_nll'"
                )
            values = loss.rearranged(raw).mean(0).numpy()[..., places]
        else:
            raise ValueError(
                f"quantiles need loss='quantile' or loss='gaussian_nll', the estimator has "
                f"loss={self._trained_loss[0]!r}"
            )
        values = values * self._y_scale[:, None] + self._y_mean[:, None]
        if self._y_range is not None:
            values = np.clip(values, *self._y_range[..., None])
        return self._shaped(values)

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


def _mixture(mean: torch.Tensor, log_variance: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the equal mixture of the members' normals, each (n, T)."""
    centre = mean.mean(0)
    variance = (torch.exp(log_variance) + (mean - centre).square()).mean(0)
    return centre.numpy(), variance.sqrt().numpy()
