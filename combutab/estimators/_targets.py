"""Targets: what is learned of y, and what a network's raw outputs say in its terms."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_y, column_or_1d
from torch import Tensor, nn

from combutab.core.fields import Field, check_fields, kind, nullable, number, several, text
from combutab.preprocessing import (
    ColumnKind,
    Moments,
    RunningMoments,
    TargetError,
    as_pandas,
    read_numbers,
)
from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    GaussianNLL,
    Loss,
    Pinball,
    make_regression_loss,
)


class Target(ABC):
    """What was learned of y: its way to what the loss takes, and back from raw outputs."""

    score_name: ClassVar[str]
    """What early stopping goes by where nothing else is asked for: "accuracy" or "r2"."""
    held_out_name: ClassVar[str]
    """The attribute that has ``held_out`` with ``bagging="cv"``."""
    fields: ClassVar[Mapping[str, Field]]
    """What a file may say of it: the dataclass's fields."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Output units, as scikit-learn counts them."""

    @property
    @abstractmethod
    def n_raw_outputs(self) -> int:
        """Width of the network's last layer."""

    @property
    @abstractmethod
    def out_activation(self) -> str:
        """Name of the output activation, as scikit-learn has it."""

    @abstractmethod
    def encode(self, y: np.ndarray, precision: str, *, complete: bool = False) -> np.ndarray:
        """Checked targets -> what the loss takes: (n,) int64 or (n, n_targets) float.

        ``complete``: classifiers raise an error where a class is missing, as warm starts do.
        """

    @abstractmethod
    def encode_columns(self, y: pd.DataFrame, precision: str) -> np.ndarray:
        """``encode``, for columns of a file."""

    @abstractmethod
    def decode(self, target: np.ndarray) -> np.ndarray:
        """Invert ``encode``: targets as they were given."""

    def widened(self, y: np.ndarray) -> Self:
        """The target after more rows, which training goes on with."""
        return self

    def strata(self, target: np.ndarray) -> np.ndarray | None:
        """Labels of which training and validation rows are to have equal shares, if any."""
        return None

    @abstractmethod
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of the raw outputs, for networks that are given in y's units."""

    @abstractmethod
    def answer(self) -> nn.Module:
        """The module that makes predictions of raw outputs (n_networks, n, n_raw_outputs)."""

    @abstractmethod
    def predict(self, raw: Tensor) -> np.ndarray:
        """Raw outputs (n_networks, n, n_raw_outputs) -> predicted targets."""

    def held_out(self, raw: Tensor) -> np.ndarray:
        """What is kept of predictions for rows that a network has not trained on."""
        return self.predict(raw)

    def to_state(self) -> dict[str, Any]:
        """The fields, for a file."""
        return {name: getattr(self, name) for name in self.fields}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Invert ``to_state``; raises ValueError if the fields do not belong together."""
        check_fields(state, cls.fields, "the target")
        target = cls(**state)
        target._check()
        return target

    @abstractmethod
    def _check(self) -> None:
        """Refuse fields that do not belong together."""


# ---- Classes -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassTarget(Target):
    """Class labels: one a row, or with ``multilabel`` a 0/1 matrix of a column a label."""

    classes: np.ndarray
    multilabel: bool

    score_name = "accuracy"
    held_out_name = "oof_decision_function_"
    fields = {"classes": kind(np.ndarray), "multilabel": kind(bool)}

    @classmethod
    def learn(cls, y: np.ndarray, classes: np.ndarray | None = None) -> Self:
        """Learn of checked labels; ``classes`` are all that there are, if that is known."""
        multilabel = type_of_target(y) == "multilabel-indicator"
        if classes is None:
            classes = np.arange(y.shape[1]) if multilabel else np.unique(y)
        return cls(classes, multilabel)

    @property
    def out_activation(self) -> str:
        return "logistic" if self.multilabel or len(self.classes) <= 2 else "softmax"

    @property
    def n_outputs(self) -> int:
        n_classes = len(self.classes)
        return n_classes if self.multilabel or n_classes > 2 else 1

    @property
    def n_raw_outputs(self) -> int:
        return self.n_outputs

    def loss(self, label_smoothing: float) -> Loss:
        """The loss of these classes."""
        if self.out_activation == "softmax":
            return CrossEntropy(label_smoothing=label_smoothing)
        return BinaryCrossEntropy(label_smoothing=label_smoothing)

    def encode(self, y: np.ndarray, precision: str, *, complete: bool = False) -> np.ndarray:
        target_kind = type_of_target(y)
        if (target_kind == "multilabel-indicator") != self.multilabel:
            raise ValueError(
                f"y is {target_kind}, but the estimator was fitted on "
                f"{'multilabel' if self.multilabel else 'single-label'} targets"
            )
        if self.multilabel:
            if y.shape[1] != self.n_outputs:
                raise ValueError(f"y has {y.shape[1]} labels, fit saw {self.n_outputs}")
            if not np.isin(y, (0, 1)).all():
                raise ValueError(f"multi-label y must hold 0 and 1, got {np.unique(y).tolist()}")
            return y.astype(np.float64)
        present = np.unique(y)
        unknown = np.setdiff1d(present, self.classes)
        if complete and (len(unknown) or len(present) != len(self.classes)):
            raise ValueError(
                "warm_start can only be used where `y` has the same classes as in the previous "
                f"call to fit. Previously got {self.classes}, `y` has {present}"
            )
        if len(unknown):
            raise ValueError(
                f"`y` has classes not in `self.classes_`: {unknown[:5].tolist()}. "
                f"`self.classes_` has {self.classes}."
            )
        return self._as_target(np.searchsorted(self.classes, y))

    def _as_target(self, numbers: np.ndarray) -> np.ndarray:
        """Class numbers as the loss takes them."""
        if self.out_activation == "softmax":
            return numbers.astype(np.int64)
        return numbers.astype(np.float64)[:, None]

    def encode_columns(self, y: pd.DataFrame, precision: str) -> np.ndarray:
        labels, codes = factorized(y.iloc[:, 0])
        known = np.isin(labels, self.classes)  # a category need not occur
        numbers = np.zeros(len(labels), dtype=np.int64)
        numbers[known] = np.searchsorted(self.classes, labels[known])
        return self._as_target(numbers[codes])

    def decode(self, target: np.ndarray) -> np.ndarray:
        if self.multilabel:
            return target.astype(np.int64)
        return self.classes[target.reshape(-1).astype(np.int64)]

    def strata(self, target: np.ndarray) -> np.ndarray | None:
        return None if self.multilabel else target

    def weigh(
        self, class_weight: Any, target: np.ndarray, weight: np.ndarray | None
    ) -> np.ndarray | None:
        """Weights of rows of these encoded targets times those of their classes."""
        if class_weight is None:
            return weight
        if self.multilabel:
            by_row = compute_sample_weight(class_weight, target.astype(np.int64))
        else:
            numbers = target.reshape(-1).astype(np.int64)
            counts = np.bincount(numbers, minlength=len(self.classes))
            by_row = weights_of_classes(class_weight, self.classes, counts)[numbers]
        return by_row if weight is None else weight * by_row

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.n_outputs), np.ones(self.n_outputs)

    def answer(self) -> ClassAnswer:
        return ClassAnswer(self)

    def probabilities(self, raw: Tensor) -> np.ndarray:
        """Raw outputs (n_networks, n, n_outputs) -> class probabilities (n, n_classes)."""
        found: np.ndarray = self.answer()(raw).numpy()
        return found

    def predict(self, raw: Tensor) -> np.ndarray:
        probabilities = self.probabilities(raw)
        if self.multilabel:
            return (probabilities > 0.5).astype(np.int64)
        return self.classes[probabilities.argmax(1)]

    def held_out(self, raw: Tensor) -> np.ndarray:
        return self.probabilities(raw)

    def _check(self) -> None:
        labels = self.classes.tolist()
        if self.classes.ndim != 1 or not all(type(v) in (bool, int, float, str) for v in labels):
            raise ValueError("classes must be a list of labels")
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"classes must differ, got {str(labels)[:100]}")


class ClassAnswer(nn.Module):
    """Class probabilities, averaged over networks.

    Shape
    -----
    (n_networks, n, n_outputs) -> (n, n_classes)

    >>> ClassAnswer(ClassTarget(np.array(["a", "b"]), False))(torch.zeros(3, 5, 1)).shape
    torch.Size([5, 2])
    """

    def __init__(self, target: ClassTarget) -> None:
        super().__init__()
        self.softmax, self.n_classes = target.out_activation == "softmax", len(target.classes)
        self.multilabel = target.multilabel

    def forward(self, raw: Tensor) -> Tensor:
        if self.softmax:
            return torch.softmax(raw, -1).mean(0)
        positive = torch.sigmoid(raw).mean(0)
        if self.multilabel:
            return positive
        if self.n_classes == 1:
            return torch.ones_like(positive)
        return torch.cat([1 - positive, positive], -1)


def checked_labels(y: Any, estimator: BaseEstimator) -> np.ndarray:
    """Labels as an array, (n,) or 0/1 (n, n_labels); raises ValueError if they cannot be that."""
    y = _check_y(y, multi_output=True, estimator=estimator)
    if hasattr(y, "toarray"):
        y = y.toarray()
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    if type_of_target(y) == "multiclass-multioutput":
        raise ValueError(
            "Multioutput target data is not supported: y has several columns of more than two "
            "values. Fit one classifier a column (sklearn.multioutput.MultiOutputClassifier)."
        )
    labels: np.ndarray = y
    return labels


def factorized(y: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Distinct labels, not all of which need occur, and each row's code, its place among them."""
    if isinstance(y.dtype, pd.CategoricalDtype):
        return np.asarray(y.cat.categories), y.cat.codes.to_numpy(np.int64)
    labels, codes = np.unique(y.to_numpy(), return_inverse=True)
    return labels, codes


class LabelCounts:
    """Learns the classes of a column, and how many training rows each has."""

    kinds = (ColumnKind.BOOL, ColumnKind.NUMBER, ColumnKind.CATEGORY)  # that columns may be
    single = True  # there can be one column only

    def __init__(self, class_weight: Any) -> None:
        self.class_weight = class_weight
        self._counts: dict[Any, int] = {}
        self._by_class: np.ndarray | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, 1), and which rows train."""
        labels, codes = factorized(y.iloc[:, 0])
        check_classification_targets(labels)
        occurs = np.bincount(codes, minlength=len(labels)) > 0
        counts = np.bincount(codes[trains], minlength=len(labels))
        for label, count in zip(labels[occurs].tolist(), counts[occurs].tolist(), strict=True):
            self._counts[label] = self._counts.get(label, 0) + count

    def finish(self, names: list[str]) -> ClassTarget:
        """The classes of the column."""
        labels = np.unique(np.array(list(self._counts)))
        if labels.dtype.kind in "US":  # as those of a column of a DataFrame
            labels = labels.astype(object)
        if len(labels) < 2:
            raise ValueError(
                f"the target {names[0]!r} is {labels[0]!r} in all rows: one class, nothing to learn"
            )
        counts = np.array([self._counts[label] for label in labels.tolist()])
        if self.class_weight is not None:
            self._by_class = weights_of_classes(self.class_weight, labels, counts)
        return ClassTarget(labels, multilabel=False)

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Weights times those of the classes."""
        if self._by_class is None:
            return weight
        by_row = self._by_class[target.reshape(-1).astype(np.int64)]
        if weight is None:
            return by_row
        check_weights(by_row * weight, "class_weight times sample_weight")
        return by_row * weight


# Beyond these, products with losses and penalties leave float32, in which networks train.
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 1e-18, 1e18


def check_weights(weights: np.ndarray, what: str) -> None:
    """Refuse weights with which training could not compute, and weights that leave no row."""
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(f"{what} must be at least 0 and finite, got {weights[wrong][0]}")
    odd = (weights > 0) & ((weights < _SMALLEST_WEIGHT) | (weights > _LARGEST_WEIGHT))
    if odd.any():
        raise ValueError(
            f"{what} must be 0, or between {_SMALLEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}, got "
            f"{weights[odd][0]:g}; divide the weights by their mean, and set those that count for "
            "nothing to 0"
        )


def check_class_weight(class_weight: Any) -> None:
    """Check the parameter as far as that goes before the data are seen.

    Raises ValueError if a weight is no number, or none that `check_weights` accepts.
    """
    tables = [class_weight] if isinstance(class_weight, Mapping) else class_weight
    if class_weight is None or isinstance(class_weight, str):
        return
    for table in tables:
        if not isinstance(table, Mapping):
            raise ValueError(
                "class_weight must be a dict class -> weight (for multi-label targets a list of "
                f"them, one a label), 'balanced' or None, got {class_weight!r}"
            )
        for label, weight in table.items():
            if not isinstance(weight, Real):
                raise ValueError(
                    f"class_weight of class {label!r} must be a number, got {weight!r}"
                )
            check_weights(np.array([float(weight)]), f"class_weight of class {label!r}")


def weights_of_classes(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The weight of each class, (n_classes,), of which there are so many rows.

    Classes that are not named weigh 1. Raises ValueError if a name is no class while a class has
    no weight, as scikit-learn, or for a list.
    """
    if class_weight == "balanced":
        present = counts > 0
        balanced: np.ndarray = counts.sum() / (present.sum() * np.where(present, counts, 1))
        return balanced
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight is a list, which is for multi-label targets; for these it must be a "
            f"dict class -> weight, got {class_weight!r}"
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    unnamed = [label for label in labels if label not in class_weight]
    if unknown and unnamed:
        raise ValueError(
            f"class_weight names {unknown}, which are no classes of y, and the classes {unnamed} "
            "are not in class_weight: use the labels of y themselves"
        )
    if unknown:  # a class that these rows lack, in a fold say
        warnings.warn(
            f"class_weight names {unknown}, which are no classes of y; they change nothing",
            stacklevel=6,
        )
    weights = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    if not weights.any():
        raise ValueError(
            f"class_weight={class_weight} is 0 for every class: nothing is left to fit"
        )
    return weights


# ---- Numbers, and distributions of them by their quantiles or their mean and deviation -----------

LOSSES = ("squared_error", "absolute_error", "huber", "poisson", "quantile", "gaussian_nll")
_OF_THE_TARGET = LOSSES[:3]  # whose raw output is the scaled target
_SMALLEST = np.finfo(np.float64).smallest_subnormal
_EXACT = 1 << 53  # integers up to here are float64's own
# Beyond, a prediction a few standard deviations away could not be written down
_LARGEST = 1e300


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
        """Learn of each target's mean, standard deviation and range.

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
        lost = np.flatnonzero((step > std) & (stats.low < stats.high))
        if len(lost):
            k = lost[0]
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
        check_range(self.loss_name, y.min())
        y = y.reshape(len(y), -1)
        if y.shape[1] != self.n_outputs:
            raise ValueError(f"y has {y.shape[1]} targets, fit saw {self.n_outputs}")
        unit = np.where(self.scale > 1e290, 2.0**-10, 1.0)  # differences may leave float64
        with np.errstate(over="ignore"):
            target = y * unit
            target -= self.shift * unit
            target /= self.scale * unit
        largest = np.abs(target).max(initial=0.0)
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
        low, high = self._rounded_range(np.atleast_1d(y.min(0)), np.atleast_1d(y.max(0)))
        low, high = np.minimum(low, self.bounds[0]), np.maximum(high, self.bounds[1])
        return replace(self, bounds=np.array([low, high]))

    def _rounded_range(self, smallest: np.ndarray, largest: np.ndarray) -> np.ndarray:
        """Round the range of each target outwards, so that no row's value is kept."""
        unit = self.scale / 64
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            wide = np.array([np.floor(smallest / unit), np.ceil(largest / unit)]) * unit
        return np.where(np.isfinite(wide), wide, [smallest, largest])

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        if self.loss_name not in _OF_THE_TARGET:
            raise ValueError(
                "init=network needs a loss whose raw output is the target: 'squared_error', "
                f"'absolute_error' or 'huber', got {self.loss_name!r}"
            )
        return self.shift, self.scale

    def answer(self) -> RegressionAnswer:
        return RegressionAnswer(self)

    def predict(self, raw: Tensor) -> np.ndarray:
        found: np.ndarray = self.answer()(raw).numpy()
        return found

    def mean_and_std(self, raw: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Predicted targets and their standard deviations, of ``loss="gaussian_nll"``."""
        loss = self.loss
        if not isinstance(loss, GaussianNLL):
            raise ValueError(
                "return_std=True needs loss='gaussian_nll', the estimator has "
                f"loss={self.loss_name!r}"
            )
        mean, std = _mixture(*loss.moments(raw))
        values = mean * self.scale + self.shift
        values = values if self.bounds is None else np.clip(values, *self.bounds)
        return self._shaped(values), self._shaped(std * self.scale)

    def predicted_quantiles(self, raw: Tensor, quantiles: Sequence[float]) -> np.ndarray:
        """Quantiles of each target, (n, n_quantiles) or (n, n_targets, n_quantiles)."""
        wanted, loss = np.atleast_1d(np.asarray(quantiles, dtype=np.float64)), self.loss
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
                f"loss={self.loss_name!r}"
            )
        values = values * self.scale[:, None] + self.shift[:, None]
        if self.bounds is not None:
            values = np.clip(values, *self.bounds[..., None])
        return self._shaped(values)

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


class RegressionAnswer(nn.Module):
    """Predicted targets in their units, averaged over networks, and cut to the bounds.

    Shape
    -----
    (n_networks, n, n_outputs) float64 -> (n,) or (n, n_targets)
    """

    shift: Tensor
    scale: Tensor
    bounds: Tensor | None

    def __init__(self, target: NumberTarget) -> None:
        super().__init__()
        self.loss, self.one_dimensional = target.loss, target.one_dimensional
        for name in ("shift", "scale", "bounds"):
            values = getattr(target, name)
            self.register_buffer(name, None if values is None else torch.tensor(values))

    def forward(self, raw: Tensor) -> Tensor:
        values = self.loss.point(raw).mean(0) * self.scale + self.shift
        if self.bounds is not None:
            values = torch.minimum(torch.maximum(values, self.bounds[0]), self.bounds[1])
        return values[:, 0] if self.one_dimensional else values


class TargetMoments:
    """Learns means, standard deviations and ranges of columns of numbers.

    ``settings`` are those of ``NumberTarget.learn``.
    """

    kinds = (ColumnKind.BOOL, ColumnKind.NUMBER)
    single = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._running: RunningMoments | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, n_targets), and their weights."""
        if self._running is None:
            names = list(y.columns)
            self._running = RunningMoments(y.shape[1], lambda j: f"column {names[j]!r}", "y")
        self._running.add(_columns_of_numbers(y), weight)

    def finish(self, names: list[str]) -> NumberTarget:
        """The target of these columns."""
        assert self._running is not None
        stats = self._running.result()
        return NumberTarget.learn(stats, one_dimensional=len(names) == 1, **self.settings)

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights as they are."""
        return weight


TargetLearner = LabelCounts | TargetMoments


def checked_numbers(y: Any, name: str, estimator: BaseEstimator) -> np.ndarray:
    """Targets as float64, (n,) or (n, n_targets).

    Raises ValueError if they are no numbers, or float64 cannot tell them apart.
    """
    refuse_text(y, name)
    with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers
        given, y = y, _check_y(y, multi_output=True, y_numeric=True, estimator=estimator)
    if hasattr(y, "toarray"):
        given = y = y.toarray()
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    numbers = target_numbers(given)
    return numbers[:, 0] if y.ndim == 1 else numbers


def check_range(loss_name: str, smallest: float) -> None:
    """Refuse targets that the loss is not defined for."""
    if loss_name == "poisson" and smallest < 0:
        raise ValueError(
            f"Some value(s) of y are out of the valid range of the loss 'poisson': it needs "
            f"y >= 0, got {smallest}"
        )


def check_quantiles(quantiles: Sequence[float]) -> None:
    """Refuse quantiles that are none, or not in order."""
    if not len(quantiles) or any(not isinstance(q, Real) or not 0 < q < 1 for q in quantiles):
        raise ValueError(f"quantiles must lie in (0, 1), got {quantiles}"[:200])
    if sorted(set(quantiles)) != list(quantiles):
        raise ValueError(f"quantiles must increase, got {quantiles}"[:200])


def _dtype(precision: str) -> type[np.floating]:
    return np.float64 if precision == "float64" else np.float32


def _mixture(mean: Tensor, log_variance: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the equal mixture of the members' normals, each (n, T)."""
    centre = mean.mean(0)
    variance = (torch.exp(log_variance) + (mean - centre).square()).mean(0)
    return centre.numpy(), variance.sqrt().numpy()


def _columns_of_numbers(y: pd.DataFrame) -> np.ndarray:
    """A copy, (n, n_targets)."""
    return np.column_stack([target_numbers(y[name], f"column {name!r}") for name in y])


def refuse_text(y: Any, name: str, first_row: int = 0) -> None:
    """Refuse a regressor's targets that are not numbers, by their values.

    ``first_row`` is the row of the table that they start at.
    """
    if scipy.sparse.issparse(y):
        return
    y = as_pandas(y, name)
    if not isinstance(y, pd.DataFrame):
        values = np.asarray(y)
        if not values.size:
            return
        y = pd.DataFrame(values.reshape(len(values), -1))
    for j in range(y.shape[1]):
        if y.iloc[:, j].dtype.kind in "cmM":  # of which later checks have their own words
            continue
        try:
            read_numbers(y.iloc[:, j], first_row=first_row)
        except TargetError as error:
            it = f"column {y.columns[j]!r}" if y.shape[1] > 1 else "it"
            raise ValueError(
                f"{name} must hold numbers, but {it} {error.problem}; convert these values ('3,1' "
                "to 3.1, '3.1%' to 0.031) or drop their rows, or use MLPClassifier if they are "
                "classes"
            ) from None


def target_numbers(y: Any, where: str = "") -> np.ndarray:
    """Targets as float64, (n, n_targets); ``where`` ends what is said of inf.

    Raises ValueError if float64 takes some that differ for one another, or they are as large as it
    goes.
    """
    y = as_pandas(y, "y")
    if isinstance(y, pd.DataFrame):  # of columns that have each its own dtype
        given = [y.iloc[:, j].to_numpy() for j in range(y.shape[1])]
    else:
        values = np.asarray(y)
        given = [*values.reshape(len(values), -1).T]
    return np.column_stack([_column_numbers(column, where) for column in given])


def _column_numbers(column: np.ndarray, where: str) -> np.ndarray:
    if column.dtype.kind in "mM":
        raise ValueError(
            f"y holds {column.dtype}, not numbers; subtract a date and divide by a unit, such as "
            "np.timedelta64(1, 'D')"
        )
    numbers = column.astype(np.float64)
    size = np.abs(numbers).max(initial=0.0)
    if np.isinf(size):
        raise ValueError(
            "Input y contains infinity or a value too large for dtype('float64')"
            f"{where and f' in {where}'}."
        )
    if size > _LARGEST:
        raise ValueError(
            f"y has values up to {size:.3g}, which leaves no room in float64 for predictions "
            f"beyond them; divide y by {size:.0e}"
        )
    kind = column.dtype.kind
    whole = kind in "iu" or (kind == "O" and all(isinstance(v, Integral) for v in column))
    if whole and size >= _EXACT:
        different = len(set(column.tolist()))
        if len(np.unique(numbers)) < different:
            raise ValueError(
                f"y has {different} different integers up to {size:.3g}, some of which are "
                f"equal as float64 (exact to 2**53); subtract {min(column.tolist())} first"
            )
    return numbers
