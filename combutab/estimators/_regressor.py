"""MLPRegressor, and the target of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import get_scorer, r2_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
from torch import Tensor

from combutab._model_files import loadable
from combutab.core.files import kind, nullable, number, several, text
from combutab.core.parameters import parameter
from combutab.core.rng import seed_from
from combutab.core.scorers import scorer_name
from combutab.estimators._parameters import document
from combutab.estimators._streaming import StreamedMLP
from combutab.estimators._targets import (
    ConformalScores,
    Target,
    TargetLearner,
    checked_numbers,
    refuse_text,
    target_numbers,
    thresholds,
)
from combutab.nn import ActivationSpec
from combutab.preprocessing import ColumnKind, Moments, RunningMoments, binary_unit, refuse_large
from combutab.training import (
    REGRESSION_LOSSES,
    GaussianNLL,
    Loss,
    Pinball,
    make_regression_loss,
)

# ---- Numbers, and distributions of them by their quantiles or their mean and deviation -----------

LOSSES = tuple(REGRESSION_LOSSES)
_OF_THE_TARGET = {n for n, loss in REGRESSION_LOSSES.items() if loss.point is Loss.point}
"""Losses whose raw output is the scaled target."""
_CRPS_LEVELS = 400  # of quantiles, over which CRPS is integrated
_SMALLEST_WIDTH = 1e-3  # of expected residuals, in units of the target's scale
_SMALLEST = np.finfo(np.float64).smallest_subnormal


@dataclass(frozen=True, eq=False)
class NumberTarget(Target):
    """One or several numbers a row, scaled for training; (n,) where ``one_dimensional``.

    ``quantiles`` are those of ``loss_name="quantile"``; ``bounds``, (2, n_targets), is where
    predictions are clipped.
    """

    loss_name: str
    quantiles: tuple[float, ...]
    shift: np.ndarray
    scale: np.ndarray
    bounds: np.ndarray | None
    one_dimensional: bool

    score_name = "r2"
    held_out_name = "oof_prediction_"
    fields = {
        "loss_name": text(100),
        "quantiles": several(number()),
        "shift": kind(np.ndarray),
        "scale": kind(np.ndarray),
        "bounds": nullable(kind(np.ndarray)),
        "one_dimensional": kind(bool),
    }

    @classmethod
    def learn(
        cls,
        stats: Moments,
        *,
        one_dimensional: bool,
        loss_name: str,
        quantiles: Sequence[float],
        scale_target: bool,
        clip: bool,
        precision: str,
    ) -> Self:
        """Learn from the mean, the standard deviation and the range of each target.

        Raises ValueError if the loss cannot learn such targets in that precision.
        """
        check_range(loss_name, stats.low.min())
        mean = np.clip(stats.mean, stats.low, stats.high)  # a constant's is not rounded
        shift, scale = np.zeros_like(mean), np.ones_like(mean)
        std = np.maximum(stats.std, _SMALLEST)
        if scale_target and make_regression_loss(loss_name, quantiles).scaling == "mean":
            scale = np.where(mean > 0, mean, 1.0)
        elif scale_target:
            constant = np.where(mean == 0, 1.0, np.minimum(np.abs(mean), 1.0))  # is only shifted
            shift, scale = mean, np.where(stats.high > stats.low, std, constant)
        target = cls(loss_name, tuple(quantiles), shift, scale, None, one_dimensional)
        ends = np.abs(target.encode(np.array([stats.low, stats.high]), precision)).max(0)
        step = np.spacing(ends.astype(_dtype(precision))) * scale
        rounded = np.flatnonzero((step > std) & (stats.low < stats.high))
        if len(rounded):
            k = rounded[0]
            way_out = "scale_target=True" if not scale_target else "another loss"
            raise ValueError(
                f"y goes from {float(stats.low[k])!r} to {float(stats.high[k])!r} with a standard "
                f"deviation of {std[k]:.3g}, and loss={loss_name!r} with scale_target="
                f"{scale_target} trains in precision={precision!r}, which rounds such "
                f"numbers to steps of {step[k]:.3g}; use {way_out}, or precision='float64', or "
                "subtract or multiply by a number first"
            )
        bounds = target._rounded_range(stats.low, stats.high) if clip else None
        return replace(target, bounds=bounds)

    @property
    def out_activation(self) -> str:
        return "exp" if self.loss_name == "poisson" else "identity"

    @property
    def n_outputs(self) -> int:
        return len(self.shift)

    @property
    def n_raw_outputs(self) -> int:
        return self.n_outputs * self.loss.n_per_target

    @property
    def loss(self) -> Loss:
        """The loss that it was learned for."""
        return make_regression_loss(self.loss_name, self.quantiles)

    def encode(self, y: np.ndarray, precision: str, *, complete: bool = False) -> np.ndarray:
        check_range(self.loss_name, np.nanmin(y))
        y = y.reshape(len(y), -1)
        if y.shape[1] != self.n_outputs:
            raise ValueError(f"y has {y.shape[1]} targets, fit saw {self.n_outputs}")
        with np.errstate(over="ignore"):  # of targets far beyond those of fit
            target = y - self.shift
            target /= self.scale
        largest = np.nanmax(np.abs(target), initial=0.0)
        if not largest < np.sqrt(np.finfo(_dtype(precision)).max):
            way_out = "scale_target=True, or " * bool((self.scale == 1).all())
            raise ValueError(
                f"y lies up to {largest:.3g} units from the middle of the target that was learned "
                f"(of scale {self.scale.max():.3g}), and precision={precision!r} cannot "
                f"hold the square; use {way_out}precision='float64', or fit to smaller numbers"
            )
        return target

    def encode_columns(self, y: pd.DataFrame, precision: str) -> np.ndarray:
        return self.encode(_columns_of_numbers(y), precision)

    def decode(self, target: np.ndarray) -> np.ndarray:
        return self._shaped(target.astype(np.float64) * self.scale + self.shift)

    def widened(self, y: np.ndarray) -> Self:
        if self.bounds is None:
            return self
        smallest, largest = np.nanmin(y, axis=0), np.nanmax(y, axis=0)
        low, high = self._rounded_range(np.atleast_1d(smallest), np.atleast_1d(largest))
        low, high = np.minimum(low, self.bounds[0]), np.maximum(high, self.bounds[1])
        return replace(self, bounds=np.array([low, high]))

    def _rounded_range(self, smallest: np.ndarray, largest: np.ndarray) -> np.ndarray:
        """Round the range of each target outwards, so that no row's value is kept."""
        unit = self.scale / 64
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            wide = np.array([np.floor(smallest / unit), np.ceil(largest / unit)]) * unit
        return np.where(np.isfinite(wide), wide, [smallest, largest])

    def scorer(self, scoring: str, target: np.ndarray) -> Callable[..., float]:
        scorer: Callable[..., float] = get_scorer(scorer_name(scoring, "regression"))
        return scorer

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        if self.loss_name not in _OF_THE_TARGET:
            raise ValueError(
                "init=network needs a loss whose raw output is the target: 'squared_error', "
                f"'absolute_error' or 'huber', got {self.loss_name!r}"
            )
        return self.shift, self.scale

    def numbers(self) -> dict[str, np.ndarray]:
        numbers = {"shift": self.shift, "scale": self.scale}
        return numbers if self.bounds is None else {**numbers, "bounds": self.bounds}

    def answer(self, raw: Tensor, **numbers: Tensor) -> Tensor:
        values = self.loss.point(raw).mean(0) * numbers["scale"] + numbers["shift"]
        if "bounds" in numbers:
            low, high = numbers["bounds"]
            values = torch.minimum(torch.maximum(values, low), high)
        return values[:, 0] if self.one_dimensional else values

    def predict(self, raw: Tensor) -> np.ndarray:
        predictions: np.ndarray = self.answer(raw, **self.constants()).numpy()
        return predictions

    def mean_and_std(self, raw: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Predicted targets and their standard deviations, of ``loss="gaussian_nll"``."""
        loss = self.loss
        if not isinstance(loss, GaussianNLL):
            raise ValueError(
                "return_std=True needs loss='gaussian_nll', the estimator has "
                f"loss={self.loss_name!r}"
            )
        mean, std = (moment.numpy() for moment in loss.mixture(raw))
        values = mean * self.scale + self.shift
        values = values if self.bounds is None else np.clip(values, *self.bounds)
        return self._shaped(values), self._shaped(std * self.scale)

    def predicted_quantiles(self, raw: Tensor, quantiles: Sequence[float]) -> np.ndarray:
        """Quantiles of each target, (n, n_quantiles) or (n, n_targets, n_quantiles)."""
        levels, loss = np.atleast_1d(np.asarray(quantiles, dtype=np.float64)), self.loss
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles must lie in (0, 1), got {quantiles}")
        if isinstance(loss, Pinball):
            is_learned = np.isclose(levels[:, None], loss.quantiles, rtol=0, atol=1e-9).any(1)
            if not is_learned.all():
                raise ValueError(
                    f"quantiles={list(levels)} were not learned, only {list(loss.quantiles)}; "
                    "name them in the constructor's quantiles, or use loss='gaussian_nll'"
                )
        return self._shaped(self._quantiles_at(raw, levels, "quantiles="))

    def sample(self, raw: Tensor, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draw targets, (n, n_samples) or (n, n_targets, n_samples)."""
        levels = rng.random((raw.shape[1], self.n_outputs, n_samples))
        return self._shaped(self._quantiles_at(raw, levels, "sample_y"))

    def cdf(self, raw: Tensor, values: np.ndarray) -> np.ndarray:
        """Probability of at most each value, (n, n_values) or (n, n_targets, n_values)."""
        scaled = (values - self.shift[:, None]) / self.scale[:, None]
        loss = self._distribution_loss("predict_cdf")
        if isinstance(loss, GaussianNLL):
            mean, std = (moment.numpy()[..., None] for moment in loss.mixture(raw))
            shares = norm.cdf((scaled - mean) / std)
        else:
            learned = loss.rearranged(raw).mean(0).double().numpy()
            shares = _interpolate(scaled, learned, np.array(loss.quantiles))
            shares = np.where(scaled < learned[..., :1], 0.0, shares)
            shares = np.where(scaled >= learned[..., -1:], 1.0, shares)
        if self.bounds is not None:
            low, high = self.bounds[..., None]
            shares = np.where(values < low, 0.0, np.where(values >= high, 1.0, shares))
        return self._shaped(shares)

    def crps(self, raw: Tensor, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score of each row and target, (n, n_targets)."""
        loss, y = self._distribution_loss("crps"), y.reshape(-1, self.n_outputs)
        if isinstance(loss, GaussianNLL):
            mean, std = (moment.numpy() for moment in loss.mixture(raw))
            z = ((y - self.shift) / self.scale - mean) / std
            scaled = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
            return np.asarray(scaled * self.scale)
        scores = np.zeros(y.shape)  # twice the integral of the pinball loss over the levels
        for levels in np.split((np.arange(_CRPS_LEVELS) + 0.5) / _CRPS_LEVELS, 20):
            residual = y[..., None] - self._quantiles_at(raw, levels, "crps")
            scores += np.maximum(levels * residual, (levels - 1) * residual).sum(-1)
        return 2 * scores / _CRPS_LEVELS

    def _distribution_loss(self, purpose: str) -> GaussianNLL | Pinball:
        loss = self.loss
        if not isinstance(loss, GaussianNLL | Pinball):
            raise ValueError(
                f"{purpose} needs loss='quantile' or loss='gaussian_nll', the estimator has "
                f"loss={self.loss_name!r}"
            )
        return loss

    def _quantiles_at(self, raw: Tensor, levels: np.ndarray, purpose: str) -> np.ndarray:
        """Quantiles at levels (k,) or (n, n_targets, k), in the target's units: (n, n_targets, k).

        Quantiles between two learned ones are interpolated; beyond the outermost they are these.
        """
        loss = self._distribution_loss(purpose)
        if isinstance(loss, GaussianNLL):
            mean, std = (moment.numpy()[..., None] for moment in loss.mixture(raw))
            values = mean + std * norm.ppf(levels)
        else:
            learned = loss.rearranged(raw).mean(0).double().numpy()
            values = _interpolate(levels, np.array(loss.quantiles), learned)
        values = values * self.scale[:, None] + self.shift[:, None]
        return values if self.bounds is None else np.clip(values, *self.bounds[..., None])

    def raw_outputs(self, answer: np.ndarray) -> Tensor:
        if self.loss_name not in (*_OF_THE_TARGET, "poisson"):
            raise ValueError(
                f"estimators predict numbers, and loss={self.loss_name!r} needs more than a number "
                "for each target; use 'squared_error', 'absolute_error', 'huber' or 'poisson', or "
                "leave estimators out"
            )
        scaled = (answer.reshape(len(answer), -1) - self.shift) / self.scale
        if self.loss_name == "poisson":
            scaled = np.log(np.maximum(scaled, _SMALLEST_WIDTH))
        return torch.from_numpy(scaled)

    def _centre_and_widths(self, raw: Tensor, **numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions, and expected sizes of residuals below and above, each (n, n_targets)."""
        centre = self.answer(raw, **numbers).reshape(-1, self.n_outputs)
        below, above = self.loss.widths(raw)
        scale = numbers["scale"]
        smallest = _SMALLEST_WIDTH
        return centre, below.clamp_min(smallest) * scale, above.clamp_min(smallest) * scale

    def nonconformity(self, raw: Tensor, y: Tensor) -> Tensor:
        numbers = self.constants()
        centre, below, above = self._centre_and_widths(raw, **numbers)
        residual = y.double() * numbers["scale"] + numbers["shift"] - centre
        return torch.where(residual < 0, -residual / below, residual / above)

    def score_groups(self, y: np.ndarray) -> list[tuple[int, np.ndarray]]:
        is_known = ~np.isnan(y.reshape(-1, self.n_outputs))
        return [(j, np.flatnonzero(is_known[:, j])) for j in range(is_known.shape[1])]

    def region(self, raw: Tensor, thresholds: Tensor, **numbers: Tensor) -> Tensor:
        """Intervals, (n, 2) or (n, n_targets, 2), with a threshold for each target."""
        centre, below, above = self._centre_and_widths(raw, **numbers)
        low, high = centre - thresholds * below, centre + thresholds * above
        if self.loss_name == "poisson":
            low = low.clamp_min(0.0)
        intervals = torch.stack([low, high], -1)
        return intervals[:, 0] if self.one_dimensional else intervals

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.one_dimensional else values

    def _check(self) -> None:
        shift, scale, n = self.shift, self.scale, len(self.shift)
        arrays = [shift, scale, *([] if self.bounds is None else self.bounds)]
        if any(a.shape != (n,) or a.dtype.kind != "f" or not np.isfinite(a).all() for a in arrays):
            raise ValueError("shift, scale and bounds must have a finite number for each target")
        if not n or not (scale > 0).all():
            raise ValueError("there must be a target, and scales must be positive")
        if self.bounds is not None and not (
            self.bounds.shape == (2, n) and (self.bounds[0] <= self.bounds[1]).all()
        ):
            raise ValueError("bounds must hold each target's smallest and largest value")
        if self.one_dimensional and n > 1:
            raise ValueError(f"one_dimensional is True, and there are {n} targets")
        if self.loss_name not in LOSSES:
            raise ValueError(f"loss_name must be one of {LOSSES}, got {self.loss_name!r}"[:200])
        if (self.loss_name == "quantile") != bool(self.quantiles):
            raise ValueError("quantiles are those of loss_name='quantile'")
        if self.quantiles:
            check_quantiles(self.quantiles)


class TargetMoments(TargetLearner):
    """Learns means, standard deviations and ranges of columns of numbers.

    ``settings`` are those of ``NumberTarget.learn``.
    """

    kinds = (ColumnKind.BOOL, ColumnKind.NUMBER)
    single = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._running: RunningMoments | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        if self._running is None:
            names = list(y.columns)
            self._running = RunningMoments(y.shape[1], lambda j: f"column {names[j]!r}", "y")
        numbers = _columns_of_numbers(y)[trains]
        if len(numbers):
            self._running.add(numbers, None if weight is None else weight[trains])

    def finish(self, names: list[str]) -> NumberTarget:
        assert self._running is not None
        stats = self._running.result()
        return NumberTarget.learn(stats, one_dimensional=len(names) == 1, **self.settings)


def check_range(loss_name: str, smallest: float) -> None:
    """Refuse targets that the loss is not defined for."""
    if loss_name == "poisson" and smallest < 0:
        raise ValueError(
            f"Some value(s) of y are out of the valid range of the loss 'poisson': it needs "
            f"y >= 0, got {smallest}"
        )


def check_quantiles(quantiles: Sequence[float]) -> None:
    """Refuse invalid quantiles, and quantiles that are not in order."""
    if not len(quantiles) or any(not isinstance(q, Real) or not 0 < q < 1 for q in quantiles):
        raise ValueError(f"quantiles must lie in (0, 1), got {quantiles}"[:200])
    if sorted(set(quantiles)) != list(quantiles):
        raise ValueError(f"quantiles must increase, got {quantiles}"[:200])


def _interpolate(x: np.ndarray, x_knots: np.ndarray, y_knots: np.ndarray) -> np.ndarray:
    """``np.interp`` along the last axis, with knots that may differ from row to row.

    Of knots at the same position, the last one counts.
    """
    shape = np.broadcast_shapes(x.shape[:-1], x_knots.shape[:-1], y_knots.shape[:-1])
    x, x_knots, y_knots = (np.broadcast_to(a, (*shape, a.shape[-1])) for a in (x, x_knots, y_knots))
    n_before = (x[..., None, :] >= x_knots[..., None]).sum(-2)  # number of knots up to x
    ends = (n_before - 1).clip(0), n_before.clip(None, x_knots.shape[-1] - 1)
    x0, x1 = (np.take_along_axis(x_knots, end, -1) for end in ends)
    y0, y1 = (np.take_along_axis(y_knots, end, -1) for end in ends)
    share = (x - x0) / np.where(x1 > x0, x1 - x0, 1.0)
    return np.asarray(y0 + share.clip(0.0, 1.0) * (y1 - y0))


def _dtype(precision: str) -> type[np.floating]:
    return np.float64 if precision == "float64" else np.float32


def _columns_of_numbers(y: pd.DataFrame) -> np.ndarray:
    """A copy, (n, n_targets)."""
    return np.column_stack([target_numbers(y[name], f"column {name!r}") for name in y])


# ---- The estimator -----------------------------------------------------------------------------


class NumberPredictions(RegressorMixin):
    """Predictions of a ``NumberTarget``."""

    target_: NumberTarget
    n_outputs_: int
    _raw: Callable[[Any], Tensor]  # a table -> raw outputs, (n_networks, n_samples, n_outputs)
    _conformal: Sequence[ConformalScores] = ()  # of each target

    def __call__(self, X: Any) -> np.ndarray:
        """``predict``, for libraries that take a function, such as ``shap.Explainer``."""
        predictions: np.ndarray = self.predict(X)
        return predictions

    def predict(
        self, X: Any, quantiles: Sequence[float] | None = None, return_std: bool = False
    ) -> Any:
        """Predict targets, averaged over networks.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows to predict.
        quantiles : sequence of float, optional
            Predict these quantiles instead: the ones that ``loss="quantile"`` learned, or any with
            ``loss="gaussian_nll"``.
        return_std : bool, default=False
            Also return the predicted standard deviation (``loss="gaussian_nll"``).

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions. With ``quantiles`` there is an additional last axis with the quantiles, in
            non-decreasing order. With ``return_std`` it is a pair of arrays.

        Raises
        ------
        ValueError
            If the fitted loss does not support the requested quantiles or standard deviation.
        """
        raw = self._raw(X)
        if quantiles is not None and return_std:
            raise ValueError("ask for quantiles or for return_std, not for both")
        if quantiles is not None:
            return self.target_.predicted_quantiles(raw, quantiles)
        return self.target_.mean_and_std(raw) if return_std else self.target_.predict(raw)

    def predict_cdf(self, X: Any, values: float | Sequence[float]) -> np.ndarray:
        """Predict the probability that a target is at most each of some values.

        The distribution is that of ``loss="gaussian_nll"``, a normal distribution, or of
        ``loss="quantile"``: linear between two learned quantiles. Beyond the outermost quantiles
        nothing is learned: all of the probability there lies at these quantiles.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows to predict.
        values : float or array-like of shape (n_values,)
            Values in the unit of the targets.

        Returns
        -------
        ndarray of shape (n_samples, n_values) or (n_samples, n_outputs, n_values)
            Probabilities.

        Raises
        ------
        ValueError
            If the loss is another one, or a value is NaN.
        """
        check_is_fitted(self)
        points = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if points.ndim != 1 or np.isnan(points).any():
            raise ValueError(f"values must be numbers in one dimension, got {values!r}"[:200])
        return self.target_.cdf(self._raw(X), points)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets from the predicted distribution of each row, as `predict_cdf` has it.

        Parameters
        ----------
        X : table of shape (n_samples_X, n_features)
            Rows to predict.
        n_samples : int, default=1
            Number of draws for each row.
        random_state : int, RandomState, Generator or None, default=0
            Seed of the draws, which are independent, also between several targets of a row.

        Returns
        -------
        ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)

        Raises
        ------
        ValueError
            If the loss is neither ``"gaussian_nll"`` nor ``"quantile"``.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}")
        rng = np.random.default_rng(seed_from(random_state))
        return self.target_.sample(self._raw(X), int(n_samples), rng)

    def crps(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Continuous ranked probability score of the predicted distributions; smaller is better.

        It is in the unit of the targets, and for a distribution at one value it is the absolute
        error (Gneiting and Raftery, 2007, "Strictly proper scoring rules, prediction, and
        estimation"). With ``loss="gaussian_nll"`` the normal distribution is not clipped.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows to predict.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets. Missing cells of several targets have no part in the mean.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            Mean over rows, and then over targets.

        Raises
        ------
        ValueError
            If the loss is neither ``"gaussian_nll"`` nor ``"quantile"``, or ``y`` has another
            number of targets or cannot be scored.
        """
        refuse_text(y, "y")
        raw = self._raw(X)
        y = check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan")
        y = y[:, None] if y.ndim == 1 else y
        check_consistent_length(raw[0], y, sample_weight)
        if y.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {y.shape[1]} targets, fit saw {self.n_outputs_}")
        if np.isnan(y).all(0).any() or (y.shape[1] == 1 and np.isnan(y).any()):
            raise ValueError("y has missing targets; only some cells of several may be missing")
        scores = np.ma.masked_array(self.target_.crps(raw, y), np.isnan(y))
        return float(np.ma.average(scores, axis=0, weights=sample_weight).mean())

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict an interval for each row that contains its target with a chosen probability.

        The intervals are conformal: they are as wide as the errors of networks for rows that
        ``fit`` set aside from their training, in folds or as validation rows. With
        ``loss="quantile"`` and ``"gaussian_nll"``, the width of each interval is proportional to
        the distance of the predicted quantiles, or to the predicted standard deviation. With
        ``"poisson"`` it is proportional to the square root of the prediction. With other losses all
        intervals have the same width.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Smallest share of the targets that the intervals should contain, between 0 and 1. With
            several targets, it holds for each of them.

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper bounds.

        Raises
        ------
        ValueError
            If ``fit`` set no rows aside, or too few: a coverage of 0.9 needs 9 rows, 0.99 needs 99.

        Notes
        -----
        The coverage is an average over new rows, not that of each kind of row. It assumes that new
        rows come from the same distribution as the rows set aside, independently of them. The
        assumption fails for later rows of a table in time order, and for new rows of known groups.
        Two deviations from split conformal prediction, whose coverage is exact, act in opposite
        directions. Each row set aside is predicted by some of the networks, and ``predict``
        averages all of them, which makes intervals too wide. The weights of each network are those
        of the epoch that is best for these rows; scores are computed with epochs that were chosen
        without the row, but the choices share most rows.

        References
        ----------
        Romano, Patterson and Candès (2019), "Conformalized quantile regression" (arXiv 1905.03222);
        Lei et al. (2018), "Distribution-free predictive inference for regression" (arXiv
        1604.04173).
        """
        check_is_fitted(self)
        limits = self._thresholds(coverage)
        return self.target_.region(self._raw(X), limits, **self.target_.constants()).numpy()

    def _thresholds(self, coverage: float) -> Tensor:
        rows = ["rows"] * len(self._conformal)
        return thresholds(self, coverage, rows, self._conformal)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of ``predict(X)``; missing targets have no part in it."""
        refuse_text(y, "y")
        predicted, y = self.predict(X), np.asarray(y)
        if y.dtype.kind in "iuf":  # squares of the largest and smallest numbers would be lost
            y = y.astype(np.float64)
            refuse_large(float(np.nanmax(np.abs(y), initial=0.0)), "y")
            unit = binary_unit(np.maximum(np.nanmax(np.abs(y)), np.abs(predicted).max()))
            y, predicted = y / unit, predicted / unit
            if y.ndim == 2 and np.isnan(y).any():
                return self._score_of_known(predicted, y, sample_weight)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _score_of_known(self, predicted: np.ndarray, y: np.ndarray, sample_weight: Any) -> float:
        """Mean R2 of the targets, each of the rows in which it is known."""
        scores = []
        for column, y_true in zip(predicted.T, y.T, strict=True):
            is_known = ~np.isnan(y_true)
            if not is_known.any():
                continue
            weight = None if sample_weight is None else np.asarray(sample_weight)[is_known]
            scores.append(r2_score(y_true[is_known], column[is_known], sample_weight=weight))
        return float(np.mean(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPRegressor(NumberPredictions, StreamedMLP):
    """Neural network regressor (multilayer perceptron) for tables.

    A drop-in replacement for `sklearn.neural_network.MLPRegressor` that accepts a DataFrame without
    preprocessing: numeric, boolean, text, category and date columns, with missing values. It learns
    one or several targets. They are standardized for the training; predictions are in the original
    units.

    Parameters
    ----------
    loss : str, default="squared_error"
        Training loss: ``"squared_error"``, ``"absolute_error"``, ``"huber"`` (linear for residuals
        of more than one standard deviation of the target), ``"poisson"`` (log link, for y >= 0),
        ``"quantile"`` (pinball loss of ``quantiles``) or ``"gaussian_nll"`` (a mean and a standard
        deviation per row).
    {parameters}
    quantiles : sequence of float, default=(0.05, 0.5, 0.95)
        Quantiles that ``loss="quantile"`` learns, each in (0, 1). ``predict`` returns the one
        nearest to 0.5 (the lower of two that are equally near), or those passed to it. The raw
        outputs of a network can cross, and the training loss uses them unchanged. They are sorted
        before networks are averaged, predictions returned and scores computed.
    scale_target : bool, default=True
        Whether to standardize y for the training. Losses in ``loss_curve_`` are then in
        standardized units.
    clip_predictions : bool, default=True
        Whether to clip predictions to the range of the targets seen in training (with
        ``partial_fit`` and warm starts, in all calls). The fitted estimator and its files then
        contain the smallest and the largest value of each target, rounded outwards to 1/64 of its
        standard deviation.

    Attributes
    ----------
    oof_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Out-of-fold predictions for the rows that ``fit`` set aside, by networks that were not
        trained on them, and epochs that were chosen without them. NaN for other rows and rows of
        weight 0. Files do not contain it.
    oof_folds_ : ndarray of shape (n_samples,)
        Number of the fold that each row was set aside in; -1 for other rows, and -2 for rows of
        weight 0. Files do not contain it.
    oof_groups_ : ndarray of shape (n_samples,)
        Number of each row's group, or of its block of neighbouring rows if the rows set aside come
        after all others: whole groups are drawn for intervals of scores. It exists only in these
        cases.
    oof_n_repeated_ : int
        Number of rows set aside that are also training rows, with the same features and target.
        `evaluate_held_out` warns of them. Files do not contain it.
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

    loss: str = parameter("squared_error", StrOptions(set(LOSSES)), concerns="target")
    hidden_layer_sizes: Any = "auto"
    activation: ActivationSpec = "combu"
    _: KW_ONLY
    quantiles: Sequence[float] = parameter((0.05, 0.5, 0.95), "array-like", concerns="target")
    scale_target: bool = parameter(True, "boolean", concerns="target")
    clip_predictions: bool = parameter(True, "boolean", concerns="target")
    learning_rate_init: float = 0.008

    _target_class = NumberTarget

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss == "quantile":
            check_quantiles(self.quantiles)

    @property
    def _learned_quantiles(self) -> tuple[float, ...]:
        return tuple(float(q) for q in self.quantiles) if self.loss == "quantile" else ()

    def _architecture_parameters(self) -> dict[str, Any]:
        return {**super()._architecture_parameters(), "quantiles": self._learned_quantiles}

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
        self,
        y: np.ndarray,
        weight: np.ndarray | None,
        train_rows: np.ndarray,
        classes: np.ndarray | None,
    ) -> NumberTarget:
        numbers = y.reshape(len(y), -1)[train_rows]
        running = RunningMoments(numbers.shape[1])
        running.add(numbers, None if weight is None else weight[train_rows])
        return NumberTarget.learn(
            running.result(), one_dimensional=y.ndim == 1, **self._target_settings()
        )

    def _target_learner(self) -> TargetMoments:
        return TargetMoments(self._target_settings())

    def _loss(self) -> Loss:
        return self.target_.loss
