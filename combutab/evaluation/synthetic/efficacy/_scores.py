"""Train a learner on one table, and score it on another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from combutab.evaluation.synthetic.efficacy._learners import Task, takes_tables
from combutab.evaluation.synthetic.efficacy._tables import encode, no_word_of_names, with_text_names

CLASS_METRICS = ("accuracy", "f1_macro", "f1_binary", "roc_auc", "log_loss")
REGRESSION_METRICS = ("r2", "mae", "mse")
GREATER_IS_BETTER = {
    name: name not in ("mae", "mse", "log_loss") for name in CLASS_METRICS + REGRESSION_METRICS
}

_HELD_OUT = 0.1  # share of the rows that early stopping holds out

Scores = dict[str, float]


@dataclass(frozen=True)
class Problem:
    """A prediction problem on aligned tables.

    Attributes
    ----------
    task : {"classification", "regression"}
    target : name of the column
    classes : tuple
        Of all tables; empty for a regression.
    positive : int or None
        The number of the class that the binary F1 is of.
    scale : float
        Unit of the errors of a regression, in the target's own.
    """

    task: Task
    target: Any
    classes: tuple[Any, ...]
    positive: int | None
    scale: float

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores."""
        if self.task == "regression":
            return REGRESSION_METRICS
        return tuple(m for m in CLASS_METRICS if m != "f1_binary" or self.positive is not None)

    def side(self, table: pd.DataFrame) -> Side:
        """Features and target of the rows that have one."""
        known = table[table[self.target].notna()]
        y = known[self.target]
        values = y.cat.codes if self.task == "classification" else y
        dtype = np.intp if self.task == "classification" else np.float64
        return Side(
            with_text_names(known.drop(columns=self.target)).reset_index(drop=True),
            values.to_numpy(dtype=dtype),
            len(table) - len(known),
        )


@dataclass(frozen=True)
class Side:
    """Rows to learn from or to score on; ``y`` holds numbers of classes, or quantities."""

    X: pd.DataFrame
    y: np.ndarray
    n_left_out: int


class Split:
    """The rows to train on and to test on; encoded once for all learners that need it.

    ``resamples`` are places of test rows drawn again, of shape (n_resamples, n), if there are any.
    """

    def __init__(self, train: Side, test: Side, resamples: np.ndarray | None = None) -> None:
        self.train, self.test, self.resamples = train, test, resamples

    def features(self, learner: Any) -> tuple[Any, Any]:
        """Return the features of the training and of the test rows, as the learner takes them."""
        return (self.train.X, self.test.X) if takes_tables(learner) else self._arrays

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        train, test = encode(self.train.X, self.test.X)
        return train, test


def score_learner(
    learner: Any, split: Split, problem: Problem
) -> tuple[Scores, list[str], dict[str, np.ndarray]]:
    """Scores of a learner on the test rows, what is to be known of them, and some on resamples."""
    notes: list[str] = []
    if split.train.n_left_out:
        notes.append(f"{split.train.n_left_out} rows without a target are left out")
    values = split.train.y
    if (values == values[0]).all():
        what = "class" if problem.task == "classification" else "target value"
        notes.append(f"one {what} to learn from: the prediction is constant")
        fitted = None
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = _fit(clone(learner), split, problem, notes)
        for each in caught:
            if issubclass(each.category, ConvergenceWarning):
                notes.append("the training did not converge")
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    score = _score_classes if problem.task == "classification" else _score_quantities
    scores, again = score(fitted, split, problem, notes)
    return scores, list(dict.fromkeys(notes)), again


@dataclass(frozen=True)
class _Fitted:
    """A learner that was trained on numbers from 0, or on a scaled target, and the way back."""

    estimator: Any
    classes: np.ndarray
    mean: float = 0.0
    std: float = 1.0


def _fit(learner: Any, split: Split, problem: Problem, notes: list[str]) -> _Fitted:
    y = split.train.y
    X, _ = split.features(learner)
    if problem.task == "classification":
        classes, local, counts = np.unique(y, return_inverse=True, return_counts=True)
        too_few = counts.min() < 2 or len(y) * _HELD_OUT < len(classes)
        if too_few and getattr(learner, "early_stopping", False):
            # which holds out rows of each class, and refuses where it cannot
            learner.set_params(early_stopping=False)
            notes.append("no early stopping: a class has too few rows")
        with no_word_of_names():
            return _Fitted(learner.fit(X, local), classes)
    mean, std = float(y.mean()), float(y.std())
    with no_word_of_names():
        return _Fitted(learner.fit(X, (y - mean) / std), np.empty(0), mean, std)


def _score_classes(
    fitted: _Fitted | None, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    from sklearn.metrics import f1_score, roc_auc_score

    truth = split.test.y
    present = np.unique(truth)
    unknown = np.setdiff1d(present, split.train.y)
    if len(unknown):
        # not by name: a class of one test row is that row's own
        some = "a class" if len(unknown) == 1 else f"{len(unknown)} classes"
        notes.append(f"no rows to learn {some} of the test rows from")
    if fitted is None:
        predicted = np.full(len(truth), split.train.y[0])
        chances = np.eye(len(problem.classes))[predicted]
    else:
        predicted, chances = _predict_classes(fitted, split, len(problem.classes), notes)
    area = np.nan
    if len(present) > 1:
        # one class against the rest, the mean over classes; those never learned score 0.5
        area = float(np.mean([roc_auc_score(truth == c, chances[:, c]) for c in present]))
    else:
        notes.append("one class in the test rows: no ROC AUC")
    log_loss = np.nan
    if fitted is None or hasattr(fitted.estimator, "predict_proba"):
        given = chances[np.arange(len(truth)), truth]  # 0 of a class that was never learned
        log_loss = -float(np.log(np.maximum(given, np.finfo(np.float64).eps)).mean())
    scores = {
        "accuracy": float((predicted == truth).mean()),
        "f1_macro": float(
            f1_score(truth, predicted, labels=present, average="macro", zero_division=0)
        ),
        "roc_auc": area,
        "log_loss": log_loss,
    }
    if problem.positive is not None:
        hits = (truth == problem.positive, predicted == problem.positive)
        scores["f1_binary"] = float(f1_score(*hits, zero_division=0))
    again = {}
    if split.resamples is not None:
        again["accuracy"] = (predicted == truth)[split.resamples].mean(axis=1)
        again["roc_auc"] = _areas(truth, chances, present, split.resamples)
    return scores, again


def _areas(
    truth: np.ndarray, chances: np.ndarray, classes: np.ndarray, resamples: np.ndarray
) -> np.ndarray:
    """The mean area under the ROC curve over the classes that a resample has; NaN of one alone."""
    from scipy.stats import rankdata

    areas = np.full((len(classes), len(resamples)), np.nan)
    for area, code in zip(areas, classes, strict=True):
        hit = (truth == code)[resamples]
        n = hit.sum(axis=1)
        m = hit.shape[1] - n
        ranks = np.where(hit, rankdata(chances[:, code][resamples], axis=1), 0.0).sum(axis=1)
        known = (n > 0) & (m > 0)
        area[known] = ((ranks - n * (n + 1) / 2)[known]) / (n * m)[known]
    there = ~np.isnan(areas)
    total = np.where(there, areas, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _predict_classes(
    fitted: _Fitted, split: Split, n_classes: int, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the predicted classes, and a column of scores for each class."""
    estimator = fitted.estimator
    _, X = split.features(estimator)
    own = np.asarray(estimator.predict(X)).ravel().astype(np.intp)
    predicted = fitted.classes[own]
    chances = np.zeros((len(predicted), n_classes))
    learned = fitted.classes[np.asarray(estimator.classes_, dtype=np.intp)]
    if hasattr(estimator, "predict_proba"):
        chances[:, learned] = estimator.predict_proba(X)
    elif hasattr(estimator, "decision_function"):
        distance = np.asarray(estimator.decision_function(X))
        if distance.ndim == 1:
            distance = np.column_stack([-distance, distance])
        chances[:, learned] = distance
    else:
        chances[np.arange(len(predicted)), predicted] = 1.0
        notes.append("ROC AUC of the predicted labels: the learner gives no probabilities")
    return predicted, chances


def _score_quantities(
    fitted: _Fitted | None, split: Split, problem: Problem, notes: list[str]
) -> tuple[Scores, dict[str, np.ndarray]]:
    truth = split.test.y
    if fitted is None:
        predicted = np.full(len(truth), split.train.y[0])
    else:
        _, X = split.features(fitted.estimator)
        own = np.asarray(fitted.estimator.predict(X), dtype=np.float64).ravel()
        predicted = fitted.mean + fitted.std * own
    error = (predicted - truth) / problem.scale
    if not np.isfinite(error).all():
        raise ValueError("predictions are not finite")
    mse, varies = float((error**2).mean()), np.ptp(truth) > 0
    if not varies:
        notes.append("one target value in the test rows: no R2")
    scores = {
        "r2": 1.0 - mse / float((truth / problem.scale).var()) if varies else np.nan,
        "mae": float(np.abs(error).mean()),
        "mse": mse,
    }
    again = {}
    if split.resamples is not None:
        errors = (error**2)[split.resamples].mean(axis=1)
        variances = (truth / problem.scale)[split.resamples].var(axis=1)
        differ = variances > 0
        again["r2"] = np.where(differ, 1.0 - errors / np.where(differ, variances, 1.0), np.nan)
    return scores, again
