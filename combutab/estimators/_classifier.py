"""MLPClassifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import (
    _check_partial_fit_first_call,
    check_classification_targets,
    type_of_target,
)
from sklearn.utils.validation import _check_y, check_is_fitted, column_or_1d

from combutab._model_files import loadable
from combutab.core.fields import kind
from combutab.estimators._data import check_class_weight, check_weights, weights_of_classes
from combutab.estimators._docs import document
from combutab.estimators._export import ClassAnswer
from combutab.estimators._fitted import warn_of_one_class
from combutab.estimators._jobs import Job, answering
from combutab.estimators._streaming import StreamedMLP, TargetLearner
from combutab.nn import ActivationSpec
from combutab.preprocessing import ColumnKind
from combutab.training import BinaryCrossEntropy, CrossEntropy, Loss, MemberResult


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


# ---- MLPClassifier -------------------------------------------------------------------------------


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPClassifier(ClassifierMixin, StreamedMLP):
    """Multilayer perceptron classifier for tables, a drop-in for scikit-learn's.

    Takes a DataFrame as it is: numeric, boolean, text, category and date columns, with missing
    values. Binary, multi-class and multi-label targets. ``fit`` gives a ``ConvergenceWarning`` if
    the network answers one class to all rows that it is scored on (validation rows, or training
    rows where there are none) with probabilities hardly better than the classes' shares; not in
    ``partial_fit``, fits that ask for fewer than 20 epochs and have them, and warm starts that
    reach ``max_iter``, which is said already.

    Parameters
    ----------
    {parameters}
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn's classifiers.
    label_smoothing : float, default=0.1
        Share of each target's mass that is spread over all classes, in [0, 1).
    calibration : "temperature" or None, default="temperature"
        Where rows are set aside, divide the network's raw outputs by the temperature that makes
        those rows most probable, at the end and before each epoch is scored. Probabilities are
        then neither too sure, as of a network that overfits, nor too unsure, as after label
        smoothing; the predicted classes stay the same.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    oof_decision_function_ : ndarray of shape (n_samples, n_classes)
        With ``bagging="cv"``: of each row the probabilities by the member that has not trained on
        it, NaN for rows of weight 0. Files do not hold it.
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
    class_weight: Any = None
    label_smoothing: float = 0.1
    calibration: str | None = "temperature"

    _parameter_constraints = {
        **StreamedMLP._parameter_constraints,
        "class_weight": [dict, list, StrOptions({"balanced"}), None],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "calibration": [StrOptions({"temperature"}), None],
    }
    _fitted_fields = {"classes_": kind(np.ndarray), "_multilabel": kind(bool)}
    _score_name = "accuracy"
    _held_out_answer = ("oof_decision_function_", "predict_proba")
    _data_parameters = (*StreamedMLP._data_parameters, "class_weight")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_class_weight(self.class_weight)

    def _encode_target(
        self, y: Any, weight: np.ndarray | None, *, reset: bool, validation: bool = False
    ) -> np.ndarray:
        y = _check_y(y, multi_output=True, estimator=self)
        if hasattr(y, "toarray"):
            y = y.toarray()
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        target_kind = type_of_target(y)
        if target_kind == "multiclass-multioutput":
            raise ValueError(
                "Multioutput target data is not supported: y has several columns of more than two "
                "values. Fit one classifier a column (sklearn.multioutput.MultiOutputClassifier)."
            )
        multilabel = target_kind == "multilabel-indicator"
        if reset:
            self._multilabel = multilabel
            if not self._in_partial_fit:  # whose first call is told them
                self.classes_ = np.arange(y.shape[1]) if multilabel else np.unique(y)
            n_classes = len(self.classes_)
            self.n_outputs_ = n_classes if multilabel or n_classes > 2 else 1
            binary_head = multilabel or n_classes <= 2
            self.out_activation_ = "logistic" if binary_head else "softmax"
        if multilabel != self._multilabel:
            raise ValueError(
                f"y is {target_kind}, but the estimator was fitted on "
                f"{'multilabel' if self._multilabel else 'single-label'} targets"
            )
        if multilabel:
            if y.shape[1] != self.n_outputs_:
                raise ValueError(f"y has {y.shape[1]} labels, fit saw {self.n_outputs_}")
            if not np.isin(y, (0, 1)).all():
                raise ValueError(f"multi-label y must hold 0 and 1, got {np.unique(y).tolist()}")
            return y.astype(np.float64)
        numbers = self._class_numbers(y, continued=not (reset or validation))
        if self.out_activation_ == "softmax":
            return numbers
        return numbers.astype(np.float64)[:, None]

    def _decode_target(self, target: np.ndarray) -> np.ndarray:
        if self._multilabel:
            return target.astype(np.int64)
        return self.classes_[target.reshape(-1).astype(np.int64)]

    def _class_numbers(self, y: np.ndarray, *, continued: bool) -> np.ndarray:
        present = np.unique(y)
        unknown = np.setdiff1d(present, self.classes_)
        same = len(present) == len(self.classes_) and not len(unknown)
        if continued and not self._in_partial_fit and not same:
            raise ValueError(
                "warm_start can only be used where `y` has the same classes as in the previous "
                f"call to fit. Previously got {self.classes_}, `y` has {present}"
            )
        if len(unknown):
            raise ValueError(
                f"`y` has classes not in `self.classes_`: {unknown[:5].tolist()}. "
                f"`self.classes_` has {self.classes_}."
            )
        return np.searchsorted(self.classes_, y).astype(np.int64)

    _in_partial_fit = False

    def _total_weight(self, target: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        if self.class_weight is None:
            return weight
        if self._multilabel:
            labels = target.astype(np.int64)
        else:
            numbers = target.reshape(-1).astype(np.int64)
            labels = self.classes_[numbers]
        if not (self._multilabel or self.class_weight == "balanced"):
            # by all classes, of which partial_fit's rows may lack some
            by_class = weights_of_classes(self.class_weight, self.classes_)[numbers]
        else:
            by_class = compute_sample_weight(self.class_weight, labels)
        return by_class if weight is None else weight * by_class

    def _calibrates(self) -> bool:
        return self.calibration == "temperature"

    def _loss(self) -> Loss:
        if self.out_activation_ == "softmax":
            return CrossEntropy(label_smoothing=self.label_smoothing)
        return BinaryCrossEntropy(label_smoothing=self.label_smoothing)

    def _n_raw_outputs(self) -> int:
        return self.n_outputs_

    def _answer(self) -> ClassAnswer:
        return ClassAnswer(self.out_activation_, len(self.classes_), multilabel=self._multilabel)

    def _target_learner(self) -> TargetLearner:
        return LabelCounts(self)

    def _check_loaded(self) -> dict[str, tuple[object, object]]:
        labels = self.classes_.tolist()
        if self.classes_.ndim != 1 or not all(type(v) in (bool, int, float, str) for v in labels):
            raise ValueError("classes_ must be a list of labels")
        n = len(labels)
        return {
            "classes_": (len(set(labels)), max(n, 1)),
            "n_outputs_": (self.n_outputs_, n if self._multilabel or n > 2 else 1),
            "n_outputs": (self._spec.n_outputs, self.n_outputs_),
            "out_activation_": (
                self.out_activation_,
                "logistic" if self._multilabel or n <= 2 else "softmax",
            ),
        }

    def _stratify(self, target: np.ndarray) -> np.ndarray | None:
        return None if self._multilabel else target

    def _check_answers(self, job: Job, results: Sequence[MemberResult]) -> None:
        if self._multilabel or len(self.classes_) < 2:
            return

        def probabilities(raw: torch.Tensor) -> np.ndarray:
            found: np.ndarray = answering(self, raw).predict_proba(None)
            return found

        warn_of_one_class(
            job, results, self._network, probabilities, self.classes_, goes_on=self.warm_start
        )

    @available_if(lambda self: self._supports_partial_fit())
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train one epoch on the given rows; the encoding is learned at the first call.

        That call also settles what the network is made of: parameters that shape it cannot be
        changed afterwards; those of the training can (another solver begins without momentum).
        ``max_iter``, ``max_fun``, ``warm_start``, ``validation_fraction``, ``calibration`` and
        ``early_stopping_scoring`` have no part in an epoch, ``tol`` and ``n_iter_no_change`` in
        that of ``learning_rate="adaptive"`` alone. ``regularization_schedule`` and the schedules
        of ``learning_rate`` that go over ``max_iter`` epochs have no end to go by: dropout, decay
        and rate are constant here. ``early_stopping="auto"`` sets no rows aside; True is refused.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array of shape (n_classes,), optional
            All labels that will ever occur; required at the first call.

        Returns
        -------
        self

        Notes
        -----
        There is none with ``solver="lbfgs"``, nor with ``bagging="cv"``.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once, which partial_fit does not have; "
                "compute the weights first (sklearn.utils.class_weight) and pass them as a dict"
            )
        _check_partial_fit_first_call(self, classes)
        self._in_partial_fit = True
        try:
            self._partial_fit(X, y, sample_weight)
        finally:
            del self._in_partial_fit
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over members.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; for multi-label targets the probability of each
            label.
        """
        raw = self._raw(X)
        probabilities: np.ndarray = self._answer()(raw).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``, (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):  # log(0) is -inf, as in scikit-learn
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted labels: (n_samples,), or a 0/1 matrix for multi-label targets."""
        check_is_fitted(self)
        probabilities = self.predict_proba(X)
        if self._multilabel:
            return (probabilities > 0.5).astype(np.int64)
        return self.classes_[probabilities.argmax(1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
