"""Targets that come in parts: classes and their counts, or means and deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets

from combutab.estimators.fitting import as_numbers, check_weights, weights_of_classes
from combutab.preprocessing import ColumnKind, RunningMoments

if TYPE_CHECKING:
    from combutab.estimators._classifier import MLPClassifier
    from combutab.estimators._regressor import MLPRegressor


class TargetLearner(Protocol):
    """Takes a target part by part; then the estimator can encode it."""

    kinds: tuple[ColumnKind, ...]
    """The kinds of column that a target may be; text is a category."""
    single: bool
    """True where there can be one target only."""

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, n_targets), their weights, and which rows train."""

    def finish(self, names: list[str]) -> None:
        """Set what the estimator learns of its target."""

    def encode(self, y: pd.DataFrame) -> np.ndarray:
        """Targets -> what the loss takes."""

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights of training rows of these encoded targets."""


def _factor(y: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Distinct labels, not all of which need occur, and each row's code, its place among them."""
    if isinstance(y.dtype, pd.CategoricalDtype):
        return np.asarray(y.cat.categories), y.cat.codes.to_numpy(np.int64)
    labels, codes = np.unique(y.to_numpy(), return_inverse=True)
    return labels, codes


class LabelCounts:
    """The classes of a classifier's column, and how many training rows each has."""

    kinds: tuple[ColumnKind, ...] = (ColumnKind.BOOL, ColumnKind.NUMBER, ColumnKind.CATEGORY)
    single = True

    def __init__(self, estimator: MLPClassifier) -> None:
        self._estimator = estimator
        self._counts: dict[Any, int] = {}
        self._by_class: np.ndarray | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        """Take complete targets, (n, 1), and which rows train."""
        labels, codes = _factor(y.iloc[:, 0])
        check_classification_targets(labels)
        occurs = np.bincount(codes, minlength=len(labels)) > 0
        counts = np.bincount(codes[trains], minlength=len(labels))
        for label, count in zip(labels[occurs].tolist(), counts[occurs].tolist(), strict=True):
            self._counts[label] = self._counts.get(label, 0) + count

    def finish(self, names: list[str]) -> None:
        """Set the estimator's classes."""
        estimator = self._estimator
        labels = np.unique(np.array(list(self._counts)))
        if labels.dtype.kind in "US":  # as those of a column of a DataFrame
            labels = labels.astype(object)
        if len(labels) < 2:
            raise ValueError(
                f"the target {names[0]!r} is {labels[0]!r} in all rows: one class, nothing to learn"
            )
        # repeated, since scikit-learn doubts targets that are all different
        estimator._encode_target(np.repeat(labels, 3), None, reset=True)
        counts = np.array([self._counts[label] for label in labels.tolist()])
        if estimator.class_weight == "balanced":
            present = counts > 0
            self._by_class = counts.sum() / (present.sum() * np.where(present, counts, 1))
        elif estimator.class_weight is not None:
            self._by_class = weights_of_classes(estimator.class_weight, estimator.classes_)

    def encode(self, y: pd.DataFrame) -> np.ndarray:
        """Labels -> (n,) class numbers, or (n, 1) floats for two classes."""
        labels, codes = _factor(y.iloc[:, 0])
        classes = self._estimator.classes_
        known = np.isin(labels, classes)
        numbers = np.searchsorted(classes, labels[known])
        table = np.zeros(len(labels), dtype=np.int64)  # labels of no row stay 0
        table[known] = numbers
        target = table[codes]
        return target if len(classes) > 2 else target.astype(np.float64)[:, None]

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Weights times those of the classes."""
        if self._by_class is None:
            return weight
        by_row = self._by_class[target.reshape(-1).astype(np.int64)]
        if weight is None:
            return by_row
        check_weights(by_row * weight, "class_weight times sample_weight")
        return by_row * weight


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
    return np.column_stack([as_numbers(y[name].to_numpy(), f"column {name!r}") for name in y])
