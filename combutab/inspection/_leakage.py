"""Target leakage: columns that predict the target nearly perfectly by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from combutab.core.rng import RandomState, as_generator
from combutab.inspection._columns import sampled_rows
from combutab.preprocessing import Table, plain_labels

_FOLDS = 3
_NEARLY_PERFECT = 0.9  # accuracy or R2


def leaking_columns(
    X: Any,
    y: Any,
    *,
    task: str,
    y_pred: Any = None,
    threshold: float = 0.995,
    max_rows: int = 2000,
    random_state: RandomState = 0,
) -> pd.Series:
    """Find the columns that predict the target nearly perfectly by themselves.

    These columns often contain the target in another form, or are known only after it. A decision
    tree per column is scored by cross-validation.

    Parameters
    ----------
    X : table of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Classes or numbers, without missing values.
    task : {"classification", "regression"}
    y_pred : array-like of shape (n_samples,), optional
        Predictions of a model for these rows. If their accuracy or R2 is below 0.9, no column is
        tried, because a model of all columns is at least as good as one column.
    threshold : float, default=0.995
        Score above which a column is returned: ROC AUC (mean of one class against the others), or
        R2.
    max_rows : int, default=2000
        Number of rows to use; a random sample of larger tables.
    random_state : int, RandomState, Generator or None, default=0
        Random seed for the sample of rows and the folds.

    Returns
    -------
    Series
        Scores, by column, in descending order. It is empty if a class or the table has too few rows
        for three folds.

    Raises
    ------
    ValueError
        If ``task`` is unknown, y has two dimensions, or the numbers of rows differ.

    Examples
    --------
    >>> price = np.linspace(1, 9, 90)
    >>> table = pd.DataFrame({"price_with_tax": 1.2 * price, "color": ["red", "blue"] * 45})
    >>> leaking_columns(table, price, task="regression").index.tolist()
    ['price_with_tax']
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression', got {task!r}")
    frame, target = Table(X).frame(), np.asarray(y)
    if target.ndim != 1:
        raise ValueError(f"y must have one dimension, got shape {target.shape}; pass one target")
    if len(frame) != len(target):
        raise ValueError(f"X and y have different numbers of rows: {len(frame)} and {len(target)}")
    is_classification = task == "classification"
    measure = accuracy_score if is_classification else r2_score
    target = plain_labels(target) if is_classification else target.astype(np.float64)
    if y_pred is not None:
        y_pred = np.asarray(y_pred)
        y_pred = plain_labels(y_pred) if is_classification else y_pred.astype(np.float64)
        if measure(target, y_pred) < _NEARLY_PERFECT:
            return pd.Series(dtype=np.float64)
    rng = as_generator(random_state)
    rows = sampled_rows(len(frame), max_rows, rng)
    frame, target = frame.iloc[rows], target[rows]
    seed = int(rng.integers(2**31))
    target = np.unique(target, return_inverse=True)[1] if is_classification else _scale(target)
    n_least = np.bincount(target).min() if is_classification else len(target)
    if n_least < _FOLDS or np.all(target == target[0]):
        return pd.Series(dtype=np.float64)
    folds = (StratifiedKFold if is_classification else KFold)(
        _FOLDS, shuffle=True, random_state=seed
    )
    tree_class = DecisionTreeClassifier if is_classification else DecisionTreeRegressor
    scoring = "roc_auc_ovr" if is_classification else "r2"
    scores = {}
    for name, column in frame.items():
        model = tree_class(random_state=seed)
        values = _as_numbers(column)[:, None]
        score = cross_val_score(model, values, target, cv=folds, scoring=scoring).mean()
        if score > threshold:
            scores[name] = score
    return pd.Series(scores, dtype=np.float64).sort_values(ascending=False)


def _as_numbers(column: pd.Series) -> np.ndarray:
    """Scale numbers and dates to 0 to 1, and give other values codes, rare ones the same code."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _scale(column.astype("int64").where(column.notna()).to_numpy(dtype=np.float64))
    if pd.api.types.is_numeric_dtype(column.dtype):
        return _scale(column.to_numpy(dtype=np.float64, na_value=np.nan))
    codes = pd.factorize(column.astype(str))[0]
    is_rare = np.bincount(codes)[codes] < _FOLDS
    return np.where(is_rare, -1.0, codes)


def _scale(values: np.ndarray) -> np.ndarray:
    """Scale finite numbers to 0 to 1, as trees compute in float32; the others become missing."""
    is_finite = np.isfinite(values)
    if not is_finite.any():
        return np.zeros(len(values))
    values = np.where(is_finite, values, np.nan) / (np.abs(values[is_finite]).max() or 1.0)
    values -= np.nanmin(values)
    return values / (np.nanmax(values) or 1.0)
