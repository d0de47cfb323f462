"""The target of a comparison, its folds and its metric, checked before any training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from combutab.core.metrics import METRICS
from combutab.core.scores import check_defined
from combutab.core.splits import Split, shuffled_folds, validation_splits
from combutab.core.text import list_names, one_line
from combutab.preprocessing import infer_task, plain_labels, read_numbers

Task = Literal["classification", "regression"]

_UNEVEN = 2 / 3  # share of the most frequent class above which accuracy is not the default


class ComparisonError(ValueError):
    """Raised if the data or a setting does not allow the comparison; its message is one line."""


@contextmanager
def comparison_errors(prefix: str = "") -> Iterator[None]:
    """Raise errors about the data and settings in this context as a ComparisonError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ComparisonError(prefix + one_line(error)) from error


def read_target(y: Any, n_rows: int) -> pd.Series:
    """Check a target: the number of rows, no missing values, and at least two values."""
    if hasattr(y, "to_pandas"):
        y = y.to_pandas()
    values = y if isinstance(y, pd.Series) else np.asarray(y)
    if values.ndim != 1:
        raise ComparisonError(f"y must have one dimension, got shape {values.shape}")
    series = pd.Series(values).reset_index(drop=True)
    if len(series) != n_rows:
        raise ComparisonError(f"X has {n_rows} rows and y has {len(series)}")
    if series.isna().any():
        raise ComparisonError(
            f"y has {int(series.isna().sum())} missing value(s); drop these rows or fill them in"
        )
    if series.nunique() < 2:
        raise ComparisonError("y has fewer than two different values, so there is nothing to learn")
    return series


def find_task(y: pd.Series, task: str) -> Task:
    """Check the task, or infer it from the target."""
    if task == "auto":
        with comparison_errors():
            return infer_task(y)
    check_choice("task", task, ("auto", *METRICS))
    return cast(Task, task)


def classification_target(y: pd.Series) -> np.ndarray:
    """Classes as integers, booleans or text."""
    if not pd.api.types.is_numeric_dtype(y.dtype):
        labels = plain_labels(y.to_numpy(dtype=object))
        if labels.dtype.kind not in "biuf" or (labels % 1 != 0).any():
            return np.array([str(value) for value in y])
        y = pd.Series(labels)
    if pd.api.types.is_bool_dtype(y.dtype):
        return y.to_numpy(dtype=bool)
    numbers = y.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.round(numbers)).any():
        raise ComparisonError(
            "the target has fractions, so its values are not classes: use task regression, or "
            "bin it"
        )
    return y.to_numpy(dtype=np.int64)


def regression_target(y: pd.Series) -> np.ndarray:
    """Targets of a regression as float64."""
    with comparison_errors("regression needs a target of numbers: "):
        numbers = read_numbers(y).to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ComparisonError("the target has infinite values; drop these rows")
    return numbers


def make_splits(y: np.ndarray, task: Task, folds: int, random_state: int) -> tuple[Split, ...]:
    """Split the rows into folds: stratified by class, or shuffled for a regression."""
    if folds > len(y):
        raise ComparisonError(f"{folds} folds are more than the {len(y)} rows; use fewer folds")
    if task == "regression":
        if len(y) < 2 * folds:
            raise ComparisonError(
                f"{len(y)} rows are too few for {folds} folds, each of which needs 2 test rows; "
                "use fewer folds"
            )
        return tuple(shuffled_folds(folds, len(y), None, None, random_state))
    classes, counts = np.unique(y, return_counts=True)
    _check_class_sizes(classes, counts, folds)
    return tuple(shuffled_folds(folds, len(y), y, None, random_state))


def given_splits(X: Any, y: np.ndarray, task: Task, cv: Any, groups: Any) -> tuple[Split, ...]:
    """Split the rows as a splitter of scikit-learn's, pairs, or a fold for each row says."""
    if isinstance(cv, Integral | str):
        raise ComparisonError(
            f"cv must be a splitter or pairs of training and test rows, got {cv!r}; for a number "
            "of folds use folds="
        )
    with comparison_errors():
        splits = tuple(validation_splits(cv, "cv", X, y, groups))
    if len(splits) < 2:
        raise ComparisonError(f"cv must give at least 2 folds, got {len(splits)}")
    for fold, (train, test) in enumerate(splits):
        where, learned, tested = f"fold {fold} of {len(splits)}", y[train], y[test]
        if len(np.unique(learned)) < 2 or len(test) < 2:
            raise ComparisonError(
                f"{where} has {len(train)} training rows with {len(np.unique(learned))} different "
                f"target(s), and {len(test)} test rows; it needs at least 2 of each: use "
                "fewer folds"
            )
        unknown = np.setdiff1d(tested, learned)
        if task == "classification" and len(unknown):
            raise ComparisonError(
                f"{where} has test rows of class {unknown.tolist()[0]!r}, but no training rows of "
                "it; use fewer folds, or leave this class out"
            )
    return splits


def group_folds(
    y: np.ndarray, task: Task, folds: int, groups: np.ndarray, random_state: int
) -> list[Split]:
    """Split the rows into folds with whole groups, and similar shares of each class."""
    n_groups = len(np.unique(groups))
    if n_groups < folds:
        raise ComparisonError(f"{folds} folds are more than the {n_groups} groups; use fewer folds")
    labels = y if task == "classification" else None
    return shuffled_folds(folds, len(y), labels, groups, random_state)


def _check_class_sizes(classes: np.ndarray, counts: np.ndarray, folds: int) -> None:
    # The rows of a class are in different test folds. With two rows or more, each training set has
    # some of them, and the comparison is sound; a single row is never trained on when tested.
    single = classes[counts == 1]
    if len(single):
        raise ComparisonError(
            f"{_class_words(single)} a single row, but a class needs rows to train and to test on; "
            "drop these rows, merge them into another class, or use task regression for quantities"
        )
    if counts.max() < folds:
        raise ComparisonError(
            f"{folds} folds are more than the rows of any class ({counts.max()} at most); "
            "use fewer folds"
        )
    rare = classes[counts < folds]
    if len(rare):
        warnings.warn(
            f"{_class_words(rare)} fewer rows than there are folds ({folds}): not every test fold "
            "has such a class",
            stacklevel=5,
        )


def _class_words(classes: np.ndarray) -> str:
    names = list_names(classes.tolist(), 3)
    return f"class {names} has" if len(classes) == 1 else f"classes {names} have"


def default_metric(y: np.ndarray, task: Task, splits: Sequence[Split]) -> str:
    """Return the default metric.

    R2 for a regression. For a classification accuracy, unless one class has more than two thirds
    of the rows: then ROC AUC, or log loss where a test fold lacks a class.
    """
    if task == "regression":
        return "r2"
    counts = np.unique(y, return_counts=True)[1]
    if counts.max() <= _UNEVEN * len(y):
        return "accuracy"
    return "roc_auc" if fold_without_a_class(y, splits) is None else "log_loss"


def check_metric(metric: str, y: np.ndarray, splits: Sequence[Split]) -> None:
    """Refuse a metric that is not defined for these targets."""
    if metric in ("roc_auc", "average_precision"):
        fold = fold_without_a_class(y, splits)
        if fold is not None:
            raise ComparisonError(
                f"{metric} needs every class in every test fold, and fold {fold} lacks one; "
                "use fewer folds or another metric"
            )
    with comparison_errors():
        check_defined(metric, y)


def fold_without_a_class(y: np.ndarray, splits: Sequence[Split]) -> int | None:
    n_classes = len(np.unique(y))
    lacking = (i for i, (_, test) in enumerate(splits) if len(np.unique(y[test])) < n_classes)
    return next(lacking, None)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ComparisonError if a value is none of the choices."""
    if value not in choices:
        raise ComparisonError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
