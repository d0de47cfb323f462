"""Models that a comparison trains by name, and a linear model and boosting on encoded columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from combutab.core.splits import LatestRows
from combutab.core.threads import limit_openmp, tree_threads
from combutab.estimators import (
    BaseMLP,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    PackRegressor,
    TabMClassifier,
    TabMRegressor,
)
from combutab.model_selection._target import ComparisonError, Task
from combutab.preprocessing import TableEncoder

_ESTIMATORS: dict[str, dict[Task, Any]] = {
    "mlp": {"classification": MLPClassifier, "regression": MLPRegressor},
    "tabm": {"classification": TabMClassifier, "regression": TabMRegressor},
    "pack": {"classification": PackClassifier, "regression": PackRegressor},
}
DEFAULT_MODELS = ("mlp", "pack", "boosting", "linear")
"""Models that `compare_models` compares by default."""
SIMPLEST_FIRST = ("linear", "boosting", "mlp", "tabm", "pack")
"""All models that `compare_models` knows by name."""

_MAX_CATEGORIES = 255  # of boosted trees: a column of more is taken for a number


class EncodedModel(BaseEstimator):
    """A linear model or boosted trees on the columns that the networks are trained on.

    Parameters
    ----------
    model : {"linear", "boosting"}
    task : {"classification", "regression"}
    encoder : TableEncoder
    target_unit : float, default=1.0
        Divisor of the targets of a regression, whose squares may overflow.
    random_state : int, optional
    """

    def __init__(
        self,
        model: str,
        task: Task,
        encoder: TableEncoder,
        target_unit: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.encoder = encoder
        self.target_unit = target_unit
        self.random_state = random_state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        name = {"linear": "Linear model", "boosting": "HistGradientBoosting"}[self.model]
        return f"{name} on the columns that the networks are trained on"

    def fit(self, X: Any, y: np.ndarray) -> Self:
        """Encode the table, and fit the model to it."""
        self.encoder_ = clone(self.encoder)
        rows = _as_matrix(self.encoder_.fit_encode(X))
        n_dense, cardinalities = self.encoder_.n_dense_, self.encoder_.cardinalities_
        if self.model == "linear":
            self.model_ = _linear_model(self.task, n_dense, cardinalities)
        else:
            self.model_ = _boosting(self.task, n_dense, cardinalities, self.random_state)
        target = y / self.target_unit if self.task == "regression" else y
        with warnings.catch_warnings(), limit_openmp(tree_threads(rows.size)):
            for category in (ConvergenceWarning, LinAlgWarning):
                warnings.simplefilter("ignore", category)
            self.model_.fit(rows, target)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The classes of a classification."""
        classes: np.ndarray = self.model_.classes_
        return classes

    def predict(self, X: Any) -> np.ndarray:
        """Predict classes or numbers."""
        predictions: np.ndarray = self._predict("predict", X)
        return predictions * self.target_unit if self.task == "regression" else predictions

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict probabilities of the classes."""
        return self._predict("predict_proba", X)

    def _predict(self, method: str, X: Any) -> np.ndarray:
        rows = _as_matrix(self.encoder_.encode(X, fitted=True))
        with limit_openmp(tree_threads(rows.size)):
            predictions: np.ndarray = getattr(self.model_, method)(rows)
        return predictions


def _as_matrix(table: Any) -> np.ndarray:
    return np.hstack([table.dense, table.codes]).astype(np.float64)


def _linear_model(task: Task, n_dense: int, cardinalities: Sequence[int]) -> Any:
    """Logistic or ridge regression; columns of many categories are one-hot, too."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    model = LogisticRegression(max_iter=1000) if task == "classification" else Ridge()
    if not cardinalities:
        return model
    encoder = make_column_transformer(
        ("passthrough", slice(n_dense)),
        (OneHotEncoder(handle_unknown="ignore"), slice(n_dense, None)),
        sparse_threshold=1.0,
    )
    return make_pipeline(encoder, model)


def _boosting(task: Task, n_dense: int, cardinalities: Sequence[int], seed: int | None) -> Any:
    from sklearn import ensemble

    few = [size <= _MAX_CATEGORIES for size in cardinalities]
    name = "Classifier" if task == "classification" else "Regressor"
    return getattr(ensemble, f"HistGradientBoosting{name}")(
        categorical_features=np.array([False] * n_dense + few), random_state=seed
    )


# ---- Candidates of a comparison of models --------------------------------------------------------


def make_models(
    models: Sequence[str] | Mapping[str, Any],
    task: Task,
    device: str,
    target_unit: float,
    by_time: bool,
) -> dict[str, Any]:
    """Make the unfitted estimators of a comparison: those of known names, and the user's.

    With ``by_time``, networks and packs choose their epochs by the latest training rows.
    """
    if isinstance(models, str):
        models = [models]
    if not isinstance(models, Mapping):
        if len(set(map(str, models))) < len(models):
            raise ComparisonError("models names one model twice")
        models = {str(name): name for name in models}
    if not models:
        raise ComparisonError("models must name at least one model, got none")
    candidates = {}
    for name, model in models.items():
        if isinstance(model, str):
            model = _make_model(model, task, device, target_unit, by_time)
        _check_model(str(name), model, task)
        candidates[str(name)] = model
    return candidates


def _make_model(name: str, task: Task, device: str, target_unit: float, by_time: bool) -> Any:
    if name not in SIMPLEST_FIRST:
        raise ComparisonError(
            f"models must be of {', '.join(SIMPLEST_FIRST)}, or a dict of names and estimators, "
            f"got {name!r}"
        )
    if name not in _ESTIMATORS:
        encoder = _ESTIMATORS["mlp"][task]().make_encoder()
        return EncodedModel(name, task, encoder, target_unit)
    estimator = _ESTIMATORS[name][task](device=device)
    if by_time and name == "pack":
        estimator.set_params(cv=LatestRows())
    elif by_time:
        estimator.set_params(validation_split=LatestRows())
    return estimator


def _check_model(name: str, model: Any, task: Task) -> None:
    needed = "predict_proba" if task == "classification" else "predict"
    for method in ("fit", "get_params", needed):
        if not hasattr(model, method):
            raise ComparisonError(
                f"model {name!r} must be an estimator with {method}, got {model!r}"
                + "; wrap it in CalibratedClassifierCV" * (method == "predict_proba")
            )


def clone_with_seed(model: Any, seed: int) -> Any:
    """Clone an estimator, with the seed in all its parameters ``random_state``."""
    copy = clone(model)
    names = copy.get_params(deep=True)
    seeds = {name: seed for name in names if f"__{name}".endswith("__random_state")}
    return copy.set_params(**seeds)


def is_network(model: Any) -> bool:
    """Tell whether a model is trained in stacks with others."""
    return isinstance(model, BaseMLP)
