"""MLPClassifier, and the target of class labels."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from scipy.stats import entropy
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, get_scorer, roc_auc_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import (
    _check_partial_fit_first_call,
    check_classification_targets,
)
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import one_hot

from combutab._model_files import loadable
from combutab.core.files import kind
from combutab.core.parameters import SHARE, parameter
from combutab.core.scorers import class_scorer, scorer_name
from combutab.estimators._fitted import scored_outputs
from combutab.estimators._jobs import Job
from combutab.estimators._parameters import document
from combutab.estimators._streaming import StreamedMLP
from combutab.estimators._targets import (
    ConformalScores,
    Target,
    TargetLearner,
    check_weights,
    checked_labels,
    thresholds,
)
from combutab.nn import ActivationSpec, TableNetwork
from combutab.preprocessing import ColumnKind, plain_labels
from combutab.training import BinaryCrossEntropy, CrossEntropy, Loss, MemberResult

_SMALLEST_PROBABILITY = 1e-7  # of outside estimators: their mistakes have a finite loss

# ---- Classes -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassTarget(Target):
    """Class labels: one for each row, or with ``multilabel`` a 0/1 column for each label."""

    classes: np.ndarray
    multilabel: bool

    score_name = "accuracy"
    held_out_name = "oof_decision_function_"
    fields = {"classes": kind(np.ndarray), "multilabel": kind(bool)}

    @classmethod
    def learn(cls, y: np.ndarray, classes: np.ndarray | None = None) -> Self:
        """Learn of checked labels; ``classes`` are all that there are, if that is known."""
        multilabel = y.ndim == 2
        if classes is None:
            classes = np.arange(y.shape[1]) if multilabel else np.unique(y)
        return cls(classes, multilabel)

    @property
    def out_activation(self) -> str:
        return "logistic" if self.multilabel or len(self.classes) <= 2 else "softmax"

    def attributes(self) -> dict[str, Any]:
        return {**super().attributes(), "classes_": self.classes}

    @property
    def n_outputs(self) -> int:
        n_classes = len(self.classes)
        return n_classes if self.multilabel or n_classes > 2 else 1

    def loss(self, label_smoothing: float) -> Loss:
        """The loss of these classes."""
        if self.out_activation == "softmax":
            return CrossEntropy(label_smoothing=label_smoothing)
        return BinaryCrossEntropy(label_smoothing=label_smoothing)

    def encode(self, y: np.ndarray, precision: str, *, complete: bool = False) -> np.ndarray:
        if (y.ndim == 2) != self.multilabel:
            kinds = ("single-label", "multilabel")
            raise ValueError(
                f"y is {kinds[y.ndim == 2]}, but the estimator was fitted on "
                f"{kinds[self.multilabel]} targets"
            )
        if self.multilabel:
            if y.shape[1] != self.n_outputs:
                raise ValueError(f"y has {y.shape[1]} labels, fit saw {self.n_outputs}")
            if not np.isin(y[~pd.isna(y)], (0, 1)).all():
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
        numbers = np.searchsorted(self.classes, y)
        if self.out_activation == "softmax":
            return numbers.astype(np.int64)
        return numbers.astype(np.float64)[:, None]

    def encode_columns(self, y: pd.DataFrame, precision: str) -> np.ndarray:
        codes, labels = pd.factorize(y.iloc[:, 0])
        return self.encode(plain_labels(np.asarray(labels)), precision)[codes]

    def decode(self, target: np.ndarray) -> np.ndarray:
        if self.multilabel:
            return target.astype(np.int64)
        return self.classes[target.reshape(-1).astype(np.int64)]

    def weigh(
        self,
        class_weight: Any,
        target: np.ndarray,
        weight: np.ndarray | None,
        n_train: int,
        counts: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """Weights of rows of these encoded targets times those of their classes.

        The training rows of each class have the total weights ``counts``, by default those of the
        first ``n_train`` rows.
        """
        if class_weight is None:
            return weight
        if self.multilabel and np.isnan(target).any():
            raise ValueError(
                "class_weight needs all labels, and some are missing (NaN); set class_weight=None, "
                "or pass sample_weight to fit"
            )
        if self.multilabel and class_weight != "balanced":
            by_row = compute_sample_weight(class_weight, target.astype(np.int64))
            return by_row if weight is None else weight * by_row
        by_row = np.ones(len(target))
        classes = np.arange(2) if self.multilabel else self.classes
        train_weight = None if weight is None else weight[:n_train]
        for numbers in target.reshape(len(target), -1).astype(np.int64).T:
            if counts is None:
                totals = np.bincount(numbers[:n_train], train_weight, minlength=len(classes))
            else:
                totals = counts
            by_row *= weights_of_classes(class_weight, classes, totals)[numbers]
        return by_row if weight is None else weight * by_row

    def scorer(self, scoring: str, target: np.ndarray) -> Callable[..., float]:
        if self.multilabel:
            scorer: Callable[..., float] = get_scorer(scorer_name(scoring, "classification", 3))
            return scorer
        name = scorer_name(scoring, "classification", len(self.classes))
        numbers = target.reshape(-1).astype(np.int64)
        return class_scorer(name, self.classes, np.bincount(numbers, minlength=len(self.classes)))

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.n_outputs), np.ones(self.n_outputs)

    def answer(self, raw: Tensor, **numbers: Tensor) -> Tensor:
        """Class probabilities, averaged over networks.

        >>> ClassTarget(np.array(["a", "b"]), False).answer(torch.zeros(3, 5, 1)).shape
        torch.Size([5, 2])
        """
        if self.out_activation == "softmax":
            return torch.softmax(raw, -1).mean(0)
        positive = torch.sigmoid(raw).mean(0)
        if self.multilabel:
            return positive
        if len(self.classes) == 1:
            return torch.ones_like(positive)
        return torch.cat([1 - positive, positive], -1)

    def predict(self, raw: Tensor) -> np.ndarray:
        probabilities = self.held_out(raw)
        if self.multilabel:
            return (probabilities > 0.5).astype(np.int64)
        return self.classes[probabilities.argmax(1)]

    def raw_outputs(self, answer: np.ndarray) -> Tensor:
        if self.multilabel:
            raise ValueError(
                "estimators are for one label per row, and the targets are multi-label; leave "
                "estimators out, or fit one pack per label"
            )
        logs = torch.from_numpy(np.log(np.maximum(answer, _SMALLEST_PROBABILITY)))
        return logs if self.out_activation == "softmax" else logs[:, -1:] - logs[:, :1]

    def nonconformity(self, raw: Tensor, y: Tensor) -> Tensor:
        if self.multilabel:
            return torch.zeros(len(y), 0)
        return _surprise(self.answer(raw)).gather(1, y.reshape(-1, 1).long())

    def score_groups(self, y: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """All rows, and the rows of each class; none with multi-label targets."""
        if self.multilabel:
            return []
        labels = y.reshape(-1).astype(np.int64)
        ends = np.cumsum(np.bincount(labels, minlength=len(self.classes)))[:-1]
        by_class = np.split(np.argsort(labels, kind="stable"), ends)
        return [(0, np.arange(len(y))), *((0, rows) for rows in by_class)]

    def region(self, raw: Tensor, thresholds: Tensor, **numbers: Tensor) -> Tensor:
        """Sets of labels, (n, n_classes) boolean, with the most probable one in any case."""
        probabilities = self.answer(raw)
        likeliest = one_hot(probabilities.argmax(1), len(self.classes))
        return (_surprise(probabilities) <= thresholds) | (likeliest > 0)

    def held_out(self, raw: Tensor) -> np.ndarray:
        probabilities: np.ndarray = self.answer(raw).numpy()
        return probabilities

    def _check(self) -> None:
        labels = self.classes.tolist()
        if self.classes.ndim != 1 or not all(type(v) in (bool, int, float, str) for v in labels):
            raise ValueError("classes must be a list of labels")
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"classes must differ, got {str(labels)[:100]}")


def _surprise(probabilities: Tensor) -> Tensor:
    return -torch.log(probabilities.clamp_min(torch.finfo(torch.float64).tiny))


class LabelCounts(TargetLearner):
    """Learns the classes of a column, and how many training rows each has."""

    kinds = (ColumnKind.BOOL, ColumnKind.NUMBER, ColumnKind.CATEGORY)
    single = True

    def __init__(self, class_weight: Any) -> None:
        self.class_weight = class_weight
        self._counts = defaultdict[Any, float](float)  # total weights of the training rows
        self._target: ClassTarget | None = None

    def add(self, y: pd.DataFrame, weight: np.ndarray | None, trains: np.ndarray) -> None:
        codes, uniques = pd.factorize(y.iloc[:, 0])
        labels = plain_labels(np.asarray(uniques))
        check_classification_targets(labels)
        train_weight = None if weight is None else weight[trains]
        counts = np.bincount(codes[trains], train_weight, minlength=len(labels))
        for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
            self._counts[label] += count

    def finish(self, names: list[str]) -> ClassTarget:
        labels = np.unique(np.array(list(self._counts)))
        if labels.dtype.kind in "US":  # as those of a column of a DataFrame
            labels = labels.astype(object)
        if len(labels) < 2:
            raise ValueError(
                f"the target {names[0]!r} is {labels[0]!r} in all rows: one class, nothing to learn"
            )
        self._target = ClassTarget(labels, multilabel=False)
        return self._target

    def weigh(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Weights times those of the classes."""
        assert self._target is not None
        counts = np.array([self._counts[label] for label in self._target.classes.tolist()])
        return self._target.weigh(self.class_weight, target, weight, 0, counts)


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
    """Weight of each class, (n_classes,), given the total weight of its rows.

    Classes that are not named weigh 1, with ``"balanced"`` those without rows.

    Raises ValueError if a name is no class while a class has no weight, as scikit-learn, or for a
    list.
    """
    if class_weight == "balanced":
        present = counts > 0
        balanced: np.ndarray = counts.sum() / (present.sum() * np.where(present, counts, 1))
        return np.where(present, balanced, 1.0)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "class_weight is a list, which only multi-label targets have; here it must be a "
            f"dict class -> weight, got {class_weight!r}"
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    unnamed = [label for label in labels if label not in class_weight]
    if unknown and unnamed:
        raise ValueError(
            f"class_weight names {unknown}, which are not classes of y, and the classes {unnamed} "
            "are not in class_weight: use the labels of y themselves"
        )
    if unknown:  # a class that these rows lack, in a fold say
        warnings.warn(
            f"class_weight names {unknown}, which are not classes of y; they have no effect",
            stacklevel=6,
        )
    weights = np.array([float(class_weight.get(label, 1.0)) for label in labels])
    if not weights.any():
        raise ValueError(
            f"class_weight={class_weight} is 0 for every class: nothing is left to fit"
        )
    return weights


# ---- The warning of a classifier that predicts the same class for every row ---------------------

_TRIAL = 20  # epochs: a fit that is to run fewer is a trial, which nobody takes for finished
# Of the log loss that the classes' shares have. Below it the columns say something: of a rare
# class every row may have less than a half, and the ranks of the rows may still be good.
_LEARNED = 0.95
# Standard deviation of a class's log odds below which they hardly vary: calibrated ones of normal
# distribution then have a ROC AUC below 0.56.
_FLAT = 0.2
_TINY = 1e-12


def warn_of_one_class(
    job: Job,
    results: Sequence[MemberResult],
    network: Callable[[], TableNetwork],
    target: ClassTarget,
    *,
    goes_on: bool,
) -> None:
    """Warn of a classifier that predicts one class and learned nothing from the columns.

    It predicts one class for all rows, its loss is hardly smaller than that of the class
    frequencies, and its probabilities hardly vary or rank the rows no better than chance does. For
    rare classes, the loss of a model that ranks rows well can be near that of the frequencies.

    Parameters
    ----------
    job, results
    network : callable
        Gives the fitted network.
    target : ClassTarget
        One label a row, at least two classes.
    goes_on : bool
        Whether another call may train on, and is expected to where ``max_iter`` was reached.
    """
    classes, reasons = target.classes, {result.reason for result in results}
    unfinished = "max_iter" in reasons and (goes_on or job.config.max_epochs < _TRIAL)
    if unfinished or reasons - {"max_iter", "no_improvement"} or not len(job.rows.dense):
        return
    trained, counted = _labels_and_weights(job, job.plans[0].rows)
    if len(np.unique(trained[counted > 0])) == 1 or not _any_column_varies(job):
        return
    raw, rows = scored_outputs(network(), job)
    p = target.held_out(raw.double())
    y, weight = _labels_and_weights(job, rows)
    answers = p.argmax(1)
    shares = np.bincount(y, weight, len(classes)) / weight.sum()
    true_class = p[np.arange(len(y)), y].clip(np.finfo(p.dtype).tiny)
    loss = float(-(weight * np.log(true_class)).sum() / weight.sum())
    # rows of a single class cannot show a failure
    if (answers != answers[0]).any() or not loss > _LEARNED * entropy(shares) > 0:
        return
    flaw = _flaw_of_ranking(y, p)
    if not flaw:
        return
    what = "training" if job.config.score is None else "validation"
    by_loss = "early_stopping_scoring='loss', " * (job.config.score not in (None, "loss"))
    label, share = classes.tolist()[answers[0]], (y == answers[0]).mean()
    weighted = "weighted " * bool(np.ptp(weight))
    warnings.warn(
        f"The classifier predicts class {label!r} for all {len(y)} {what} rows, {share:.1%} of "
        f"which have this class. Its {weighted}log loss {loss:.3g} is hardly better than that of "
        f"the {weighted}class frequencies, {entropy(shares):.3g}, and {flaw}: it has learned "
        "nothing from the columns. Try a "
        f"learning_rate_init other than {job.plans[0].learning_rate:g}, or {by_loss}more epochs "
        f"(max_iter={job.config.max_epochs}, n_iter_no_change={job.config.n_iter_no_change}).",
        ConvergenceWarning,
        stacklevel=6,
    )


def _flaw_of_ranking(y: np.ndarray, p: np.ndarray) -> str:
    """Say why probabilities do not separate the classes; "" if they do."""
    odds = np.log(p.clip(_TINY, 1 - _TINY)) - np.log1p(-p.clip(_TINY, 1 - _TINY))
    if (odds.std(0) < _FLAT).all():
        return "its probabilities hardly differ from row to row"
    largest = 0.0
    for k in np.unique(y):
        is_class = y == k
        auc = float(roc_auc_score(is_class, p[:, k]))
        # two standard errors of the ROC AUC of random ranks
        margin = 2 * np.sqrt((len(y) + 1) / (12 * is_class.sum() * (~is_class).sum()))
        if auc > 0.5 + margin:
            return ""
        largest = max(largest, auc)
    return f"its ROC AUC {largest:.2f} is not clearly better than chance"


def _any_column_varies(job: Job) -> bool:
    """Tell whether any column varies."""
    tables = (job.rows.dense, job.rows.codes)
    return any(bool((table != table[:1]).any()) for table in tables if table is not None)


def _labels_and_weights(job: Job, rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    labels, weight = job.rows.y[rows].reshape(-1).to(torch.int64).numpy(), job.rows.weight
    return labels, np.ones(len(rows)) if weight is None else weight[rows].double().numpy()


# ---- The estimator -----------------------------------------------------------------------------


CLASS_WEIGHT = (dict, list, StrOptions({"balanced"}), None)


class ClassPredictions(ClassifierMixin):
    """Predictions of a ``ClassTarget``."""

    classes_: np.ndarray
    target_: ClassTarget
    _raw: Callable[[Any], Tensor]  # a table -> raw outputs, (n_networks, n_samples, n_outputs)
    _conformal: Sequence[ConformalScores] = ()  # of all rows, and of those of each class

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict class probabilities, averaged over networks.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; for multi-label targets the probability of each
            label.
        """
        raw = self._raw(X)
        return self.target_.held_out(raw)

    def __call__(self, X: Any) -> np.ndarray:
        """``predict_proba``, for libraries that take a function, such as ``shap.Explainer``."""
        return self.predict_proba(X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict logarithms of the class probabilities, (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):  # log(0) is -inf, as in scikit-learn
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Predict labels, (n_samples,), or a 0/1 matrix for multi-label targets."""
        raw = self._raw(X)
        return self.target_.predict(raw)

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False) -> np.ndarray:
        """Predict a set of labels for each row that contains its label with a chosen probability.

        The sets are conformal: they contain the most probable label, and all labels with a
        probability above a threshold. The threshold is chosen by the predictions of networks for
        rows that ``fit`` set aside from their training, in folds or as validation rows.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Smallest share of the sets that should contain the label of their row, between 0 and 1.
            If the classifier is more accurate than that, most sets have one label.
        per_class : bool, default=False
            Whether the coverage holds for the rows of each class. Otherwise it holds for all rows
            together, and can be smaller for rare classes. Sets are larger with True.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Booleans, in the order of ``classes_``: whether the set contains the label.

        Raises
        ------
        ValueError
            If ``fit`` set no rows aside, or too few (of a class): a coverage of 0.9 needs 9 rows,
            0.99 needs 99. If targets are multi-label.

        Notes
        -----
        The coverage is an average over new rows. It assumes that new rows come from the same
        distribution as the rows set aside, independently of them; see
        `MLPRegressor.predict_interval`. With ``class_weight`` or ``sample_weight``, it is that of
        the weighted table.

        References
        ----------
        Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued classifiers with bounded
        error levels" (arXiv 1609.00451).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from combutab import MLPClassifier
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> clf = MLPClassifier(early_stopping=True, random_state=0).fit(X, y)
        >>> [clf.classes_[labels].tolist() for labels in clf.predict_set(X[:2], coverage=0.9)]
        [[0], [0]]
        """
        check_is_fitted(self)
        limits = self._thresholds(coverage, per_class)
        return self.target_.region(self._raw(X), limits).numpy()

    def _thresholds(self, coverage: float, per_class: bool = False) -> Tensor:
        if self.target_.multilabel:
            raise ValueError(
                "sets of labels need one label per row, and the targets are multi-label; use "
                "predict_proba, or fit one classifier per label"
            )
        rows = ["rows", *(f"rows of class {label!r}" for label in self.classes_.tolist())]
        chosen = slice(1, None) if per_class else slice(1)
        return thresholds(self, coverage, rows[chosen], self._conformal[chosen])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, the share of rows whose predicted labels are right.

        Parameters
        ----------
        X : table of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            True labels. Missing cells of multi-label targets (NaN) count as right.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        labels = y if scipy.sparse.issparse(y) else plain_labels(np.asarray(y))
        if self.target_.multilabel and not scipy.sparse.issparse(y) and pd.isna(labels).any():
            predicted = self.predict(X)
            labels = np.where(pd.isna(labels), predicted, labels).astype(np.int64)
            return float(accuracy_score(labels, predicted, sample_weight=sample_weight))
        return float(super().score(X, labels, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPClassifier(ClassPredictions, StreamedMLP):
    """Neural network classifier (multilayer perceptron) for tables.

    A drop-in replacement for `sklearn.neural_network.MLPClassifier` that accepts a DataFrame
    without preprocessing: numeric, boolean, text, category and date columns, with missing values.
    Targets can be binary, multi-class or multi-label. ``fit`` emits a ``ConvergenceWarning`` if the
    network predicts the same class for all validation rows (training rows if there are none), with
    probabilities that are hardly better than the class frequencies and do not rank the rows better
    than chance. It does not do so in
    ``partial_fit``, in fits with ``max_iter`` below 20 that reach it, and in warm starts that reach
    ``max_iter``, which have a ``ConvergenceWarning`` already.

    Parameters
    ----------
    {parameters}
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn's classifiers. ``"balanced"`` gives all classes
        the same total weight, including ``sample_weight``. The weights count in training and in the
        scores of the validation rows. Probabilities are then those of a table in which the classes
        have the weighted frequencies.
    label_smoothing : float, default=0.1
        Share of each target's probability that is distributed over all classes, in [0, 1).
    calibration : "temperature" or None, default="temperature"
        Temperature scaling: the network's raw outputs are divided by the temperature with the
        smallest log loss on the validation rows, at the end of the fit and before each epoch is
        scored. It corrects probabilities that are too extreme because of overfitting, or not
        extreme enough because of label smoothing. It does not change the predicted classes, and
        needs validation rows. With ``class_weight``, the log loss is weighted, and the
        probabilities match the weighted class frequencies.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    oof_decision_function_ : ndarray of shape (n_samples, n_classes)
        Out-of-fold probabilities of the rows that ``fit`` set aside, by networks that were not
        trained on them, and epochs and temperatures that were chosen without them. NaN for other
        rows and rows of weight 0. Files do not contain it.
    oof_folds_ : ndarray of shape (n_samples,)
        Number of the fold that each row was set aside in; -1 for other rows, and -2 for rows of
        weight 0. Files do not contain it.
    oof_groups_ : ndarray of shape (n_samples,)
        Number of each row's group, or of its block of neighbouring rows if the rows set aside come
        after all others: whole groups are drawn for intervals of scores. It exists only in these
        cases.
    oof_n_repeated_ : int
        Number of rows set aside that are also training rows, with the same features and target.
        `evaluate_held_out` warns of them. Files do not contain it.
    {attributes}

    Examples
    --------
    >>> import pandas as pd
    >>> from combutab import MLPClassifier
    >>> X = pd.DataFrame({{"size": [1.0, 2.0, None, 9.0] * 10, "kind": ["a", "a", "b", "b"] * 10}})
    >>> y = ["small", "small", "big", "big"] * 10
    >>> clf = MLPClassifier(hidden_layer_sizes=(16,), max_iter=60, random_state=0,
    ...                     learning_rate_init=0.01, n_iter_no_change=float("inf")).fit(X, y)
    >>> clf.predict(X[:4])
    array(['small', 'small', 'big', 'big'], dtype='<U5')
    """

    hidden_layer_sizes: Any = "auto"
    activation: ActivationSpec = "combu"
    _: KW_ONLY
    class_weight: Any = parameter(None, *CLASS_WEIGHT, concerns="data")
    label_smoothing: float = parameter(0.1, SHARE, concerns="training")
    calibration: str | None = parameter(
        "temperature", StrOptions({"temperature"}), None, concerns="training"
    )

    _target_class = ClassTarget

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_class_weight(self.class_weight)

    def _checked_target(self, y: Any, name: str, owner: BaseEstimator) -> np.ndarray:
        return checked_labels(y, owner)

    def _learn_target(
        self,
        y: np.ndarray,
        weight: np.ndarray | None,
        train_rows: np.ndarray,
        classes: np.ndarray | None,
    ) -> ClassTarget:
        return ClassTarget.learn(y, classes)

    def _labels(self, y: np.ndarray) -> np.ndarray | None:
        return None if y.ndim == 2 else y

    def _target_learner(self) -> LabelCounts:
        return LabelCounts(self.class_weight)

    def _weigh(
        self, target: Target, encoded: np.ndarray, weight: np.ndarray | None, n_train: int
    ) -> np.ndarray | None:
        assert isinstance(target, ClassTarget)
        return target.weigh(self.class_weight, encoded, weight, n_train)

    def _calibrates(self) -> bool:
        return self.calibration == "temperature"

    def _loss(self) -> Loss:
        return self.target_.loss(self.label_smoothing)

    def _check_answers(self, job: Job, results: Sequence[MemberResult]) -> None:
        if not self.target_.multilabel and len(self.classes_) > 1:
            warn_of_one_class(job, results, self.network, self.target_, goes_on=self.warm_start)

    @available_if(lambda self: self._supports_partial_fit())
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train one epoch on the given rows.

        The first call learns the encoding and builds the network. Parameters that shape the network
        cannot be changed afterwards. Parameters of the training can; another solver starts without
        momentum. ``max_iter``, ``max_time``, ``max_fun``, ``warm_start``, ``validation_fraction``,
        ``validation_split``, ``calibration`` and ``early_stopping_scoring`` have no effect. ``tol``
        and ``n_iter_no_change`` only have one with ``learning_rate="adaptive"``. Schedules of
        ``learning_rate`` over ``max_iter`` epochs and ``regularization_schedule`` have no effect
        either: learning rate, dropout and weight decay are constant, because the number of epochs
        is not known. ``early_stopping="auto"`` sets no rows aside; True raises an error.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array of shape (n_classes,), optional
            All labels of the classes; required in the first call.

        Returns
        -------
        self

        Notes
        -----
        It is not available with ``solver="lbfgs"`` or ``bagging="cv"``.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once, which partial_fit does not have; "
                "compute the weights first (sklearn.utils.class_weight) and pass them as a dict"
            )
        if classes is not None:
            classes = plain_labels(np.asarray(classes))
        _check_partial_fit_first_call(self, classes)
        return self._partial_fit(X, y, sample_weight, self.classes_)
