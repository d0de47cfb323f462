"""Estimators of other libraries as candidates of a pack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from combutab.activations import ACTIVATIONS
from combutab.estimators._targets import Target


@dataclass(frozen=True)
class GivenRows:
    """The table as it was passed to ``fit``, which outside estimators are fitted to.

    Positions are those of encoded rows: ``rows`` are their positions in ``X``, and later ones are
    rows of ``X_val``.
    """

    X: Any
    rows: np.ndarray  # (n,)
    X_val: Any = None

    def select(self, positions: Tensor) -> Any:
        """The table of these encoded rows, all of X or all of X_val."""
        index = positions.numpy()
        if index[0] >= len(self.rows):
            return _safe_indexing(self.X_val, index - len(self.rows))
        return _safe_indexing(self.X, self.rows[index])


@dataclass(frozen=True)
class OutsideModel:
    """A fitted estimator of another library, which predicts what networks do."""

    name: str
    estimator: Any
    target: Target

    def predict(self, X: Any) -> Tensor:
        """Raw outputs whose answer is the prediction of the estimator: (n, n_raw_outputs)."""
        if not hasattr(self.estimator, "classes_"):
            return self.target.raw_outputs(np.asarray(self.estimator.predict(X), dtype=np.float64))
        probabilities = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
        labels = self.target.attributes()["classes_"]
        columns = np.searchsorted(labels, np.asarray(self.estimator.classes_).reshape(-1))
        of_labels = np.zeros((len(probabilities), len(labels)))
        of_labels[:, columns] = probabilities
        return self.target.raw_outputs(of_labels)


def fit_outside(
    name: str,
    estimator: Any,
    X: Any,
    y: np.ndarray,
    weight: np.ndarray | None,
    target: Target,
    seed: int,
) -> OutsideModel:
    """Fit a copy of an outside estimator; its errors get a note with its name."""
    model = clone(estimator)
    if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
        model.set_params(random_state=seed % (1 << 31))
    weights = {} if weight is None else {"sample_weight": weight}
    try:
        model.fit(X, y, **weights)
    except Exception as error:
        error.add_note(f"It was raised by {name!r}, one of the pack's estimators.")
        raise
    return OutsideModel(name, model, target)


def check_estimators(
    estimators: Sequence[Any], *, classifies: bool, weighted: bool, reserved: Sequence[str]
) -> Mapping[str, BaseEstimator]:
    """Outside estimators by name; raises ValueError, before any work, if one cannot be used.

    ``weighted``: whether rows or classes have weights, which the estimators must take.
    """
    by_name: dict[str, BaseEstimator] = {}
    method = "predict_proba" if classifies else "predict"
    for pair in estimators:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(
                "estimators must be pairs (name, estimator), such as ('forest', "
                f"ExtraTreesRegressor()), got {pair!r}"[:300]
            )
        name, estimator = pair
        if name in by_name or name in reserved or name in ACTIVATIONS:
            raise ValueError(
                f"estimators has the name {name!r}, which is taken; choose another name"
            )
        missing = [m for m in ("fit", "get_params", method) if not hasattr(estimator, m)]
        if missing:
            raise ValueError(
                f"estimators: {name!r} has no method {missing[0]}, which a pack needs; "
                "set probability=True of an SVC, or use CalibratedClassifierCV"
                if missing[0] == "predict_proba"
                else f"estimators: {name!r} must be an unfitted estimator with the methods of "
                f"scikit-learn, but has no {missing[0]}"
            )
        if weighted and not has_fit_parameter(estimator, "sample_weight"):
            raise ValueError(
                f"estimators: {name!r} takes no sample_weight in fit, but the rows or classes have "
                "weights; leave it out, or fit without weights"
            )
        by_name[name] = estimator
    return by_name
