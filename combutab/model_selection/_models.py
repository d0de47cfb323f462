"""Models that a comparison trains by name, models on encoded columns, and scores of all of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from combutab.core.device import limit_openmp, tree_threads
from combutab.core.scorers import positive_class, score_predictions
from combutab.core.scores import as_positive, class_positions
from combutab.core.splits import LatestRows
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
from combutab.preprocessing import TableEncoder, binary_unit

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


# ---- Scores of fitted models ---------------------------------------------------------------------

_CONSTANT = 1e-3  # of the target's standard deviation: predictions that differ less are equal


def score_classifier(estimator: BaseMLP, X: Any, y: np.ndarray) -> dict[str, float]:
    """Score a fitted classifier on held-out rows.

    Parameters
    ----------
    estimator : MLPClassifier
    X : table of n_samples rows
    y : ndarray of shape (n_samples,)

    Returns
    -------
    dict
        roc_auc, log_loss, accuracy, balanced_accuracy, average_precision, f1 and f1_macro. ROC AUC
        and average precision are NaN if ``y`` lacks a class. For two classes, average precision and
        f1 are those of 1 or True, or else of the rarer class of ``y``. For more classes, these two
        and ROC AUC are unweighted means over the classes, each against the rest.

    Raises
    ------
    ValueError
        If a prediction is not finite, or ``y`` has a class that is not in ``classes_``.
    """
    positions = class_positions(np.asarray(y), estimator.classes_, "y")
    counts = np.bincount(positions, minlength=len(estimator.classes_))
    positive = positive_class(estimator.classes_, counts) if len(counts) == 2 else 1
    return score_probabilities(estimator.predict_proba(X), estimator.classes_, y, positive)


def score_regressor(
    estimator: BaseMLP, X: Any, y: np.ndarray, target_std: float
) -> dict[str, float]:
    """Score a fitted regressor on held-out rows.

    Parameters
    ----------
    estimator : MLPRegressor
    X : table of n_samples rows
    y : ndarray of shape (n_samples,)
    target_std : float
        Unit of the errors, such as the standard deviation of all targets, in units of ``y``.

    Returns
    -------
    dict
        r2; mae and rmse in units of ``target_std``; mse in units of its square; mape as a share of
        the target (0.1 is 10 %), NaN if a target is 0.

    Raises
    ------
    ValueError
        If a prediction is not finite.
    """
    return score_numbers(estimator.predict(X), y, target_std)


def score_estimator(
    estimator: Any, X: Any, y: np.ndarray, task: str, target_std: float, positive: int
) -> tuple[dict[str, float], bool]:
    """Score an estimator, and tell whether its predictions are constant though the targets differ.

    Constant predictions are the same class, or numbers that differ by less than a thousandth of
    ``target_std``.
    """
    differ = len(np.unique(y)) > 1
    if task == "regression":
        predicted = estimator.predict(X)
        constant = differ and np.ptp(predicted) < _CONSTANT * target_std
        return score_numbers(predicted, y, target_std), bool(constant)
    probabilities = estimator.predict_proba(X)
    scores = score_probabilities(probabilities, estimator.classes_, y, positive)
    return scores, differ and len(np.unique(probabilities.argmax(axis=1))) == 1


def score_probabilities(
    probabilities: np.ndarray, classes: np.ndarray, y: np.ndarray, positive: int
) -> dict[str, float]:
    """Score probabilities of classes, (n_samples, n_classes).

    ``positive`` is the index of the positive one of two classes.
    """
    probabilities = probabilities.astype(np.float64)
    _check_finite(probabilities)
    probabilities /= probabilities.sum(axis=1, keepdims=True)  # float32's sums are not quite 1
    positions = class_positions(np.asarray(y), classes, "y")
    predictions = as_positive(positive, positions, probabilities.argmax(axis=1), probabilities)
    scores = score_predictions("classification", *predictions)
    if len(np.unique(positions)) < len(classes):
        scores |= {"roc_auc": np.nan, "average_precision": np.nan}
    return scores


def score_numbers(predicted: np.ndarray, y: np.ndarray, target_std: float) -> dict[str, float]:
    """Score predicted numbers, (n_samples,), with errors in units of ``target_std``."""
    _check_finite(predicted)
    unit = float(binary_unit(np.asarray(target_std)))  # squares of huge and tiny numbers are lost
    predicted, y = (values / unit / (target_std / unit) for values in (predicted, y))
    return score_predictions("regression", y, predicted, predicted)


def _check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ValueError("the network's predictions are not finite: it diverged")
