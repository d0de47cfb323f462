"""The target of a comparison and its folds, checked before any training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, StratifiedKFold

from combutab.model_selection._scores import METRICS, Task
from combutab.preprocessing import infer_task

Split = tuple[np.ndarray, np.ndarray]


class ComparisonError(ValueError):
    """The data or a setting does not allow the comparison; one line for a user to read."""


def read_target(y: Any, n_rows: int) -> pd.Series:
    """Read a target of so many rows, complete and not constant."""
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
        raise ComparisonError("y has fewer than two different values: nothing to learn")
    return series


def find_task(y: pd.Series, task: str) -> Task:
    """Check the task, or infer it from the target."""
    if task == "auto":
        try:
            return infer_task(y)
        except ValueError as error:
            raise ComparisonError(str(error)) from error
    if task not in METRICS:
        raise ComparisonError(f"task must be one of auto, {', '.join(METRICS)}, got {task!r}")
    return task


def find_metric(task: Task, metric: str | None) -> str:
    """Check the metric; by default the task's first."""
    known = METRICS[task]
    if metric is None:
        return next(iter(known))
    if metric not in known:
        raise ComparisonError(
            f"metric must be one of {', '.join(known)} for {task}, got {metric!r}"
        )
    return metric


def as_labels(y: pd.Series) -> np.ndarray:
    """Classes as integers, truth values or text."""
    if pd.api.types.is_bool_dtype(y.dtype):
        return y.to_numpy(dtype=bool)
    if not pd.api.types.is_numeric_dtype(y.dtype):
        return np.array([str(value) for value in y])
    numbers = y.to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers != np.round(numbers)).any():
        raise ComparisonError(
            "the target has fractions, which are no classes: use task regression, or bin it first"
        )
    return y.to_numpy(dtype=np.int64)


def as_numbers(y: pd.Series) -> np.ndarray:
    """Targets of a regression as float64."""
    try:
        numbers = pd.to_numeric(y).to_numpy(dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ComparisonError(
            f"regression needs a target of numbers: {' '.join(str(error).split())}"
        ) from error
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
                f"{len(y)} rows are too few for {folds} folds: each needs 2 rows to be tested on"
            )
        return tuple(KFold(folds, shuffle=True, random_state=random_state).split(y))
    classes, counts = np.unique(y, return_counts=True)
    _check_class_sizes(classes, counts, folds)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rare classes: said above, with their names
        return tuple(splitter.split(y, y))


def _check_class_sizes(classes: np.ndarray, counts: np.ndarray, folds: int) -> None:
    # A class spreads its rows over as many test folds. With two rows or more, each training set
    # has some of it, and the comparison is sound; a single row is never trained on when tested.
    single = classes[counts == 1]
    if len(single):
        raise ComparisonError(
            f"{_named(single)} a single row, and to be both learned and tested a class needs 2; "
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
            f"{_named(rare)} fewer rows than there are folds ({folds}): not every test fold "
            "has such a class",
            stacklevel=4,
        )


def _named(classes: np.ndarray) -> str:
    first = ", ".join(repr(value) for value in classes[:3].tolist())
    if len(classes) == 1:
        return f"class {first} has"
    more = f" and {len(classes) - 3} more" if len(classes) > 3 else ""
    return f"classes {first}{more} have"


def check_every_class_tested(y: np.ndarray, splits: Sequence[Split]) -> None:
    """Refuse folds that lack a class in a test fold, which ROC AUC needs."""
    n_classes = len(np.unique(y))
    for fold, (_, test) in enumerate(splits):
        if len(np.unique(y[test])) < n_classes:
            raise ComparisonError(
                f"roc_auc needs every class in every test fold, and fold {fold} lacks one; "
                "use fewer folds or another metric"
            )
