"""Unfitted estimators for a last training on all rows."""

from __future__ import annotations

from typing import Any

import numpy as np


def clone_for_all_rows(estimator: Any) -> Any:
    """Build an unfitted estimator like a fitted one, for training on all rows.

    Its networks train for the median of the best epochs of the fitted networks, and set no rows
    aside. A pack chooses its ensemble by cross-validation instead, so that all rows are used for
    training.

    Parameters
    ----------
    estimator : fitted classifier or regressor of this library
        It must have set rows aside for validation.

    Returns
    -------
    estimator of the same class, not fitted

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from combutab import MLPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = MLPRegressor(max_iter=5, n_iter_no_change=float("inf"), random_state=0).fit(X, y)
    >>> final = clone_for_all_rows(reg).fit(X, y)
    >>> final.max_iter <= 5, final.early_stopping
    (True, False)
    """
    parameters = estimator.get_params(deep=False)
    if hasattr(estimator, "cv"):
        return type(estimator)(**parameters | {"cv": "auto"})
    history = estimator.history_
    best_epochs = history.loc[history.groupby("member")["validation_score"].idxmax(), "epoch"]
    parameters |= {"max_iter": int(np.median(best_epochs)), "n_members": len(best_epochs)}
    parameters |= {"early_stopping": False, "validation_split": None, "n_iter_no_change": np.inf}
    parameters |= {"bagging": None} if "bagging" in parameters else {}
    return type(estimator)(**parameters)
