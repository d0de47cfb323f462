"""MLPClassifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _check_partial_fit_first_call
from torch import Tensor

from combutab._model_files import loadable
from combutab.estimators._docs import document
from combutab.estimators._fitted import warn_of_one_class
from combutab.estimators._jobs import Job
from combutab.estimators._streaming import StreamedMLP
from combutab.estimators._targets import (
    ClassTarget,
    LabelCounts,
    Target,
    check_class_weight,
    checked_labels,
)
from combutab.nn import ActivationSpec
from combutab.training import Loss, MemberResult


class ClassPredictions(ClassifierMixin):
    """Predictions of a ``ClassTarget``."""

    target_: ClassTarget
    _raw: Callable[[Any], Tensor]  # a table -> raw outputs, (n_networks, n_samples, n_outputs)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over networks.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; for multi-label targets the probability of each
            label.
        """
        raw = self._raw(X)
        return self.target_.probabilities(raw)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``, (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):  # log(0) is -inf, as in scikit-learn
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted labels: (n_samples,), or a 0/1 matrix for multi-label targets."""
        raw = self._raw(X)
        return self.target_.predict(raw)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@loadable
@document
@dataclass(eq=False, repr=False)
class MLPClassifier(ClassPredictions, StreamedMLP):
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
    _target_class = ClassTarget
    _data_parameters = (*StreamedMLP._data_parameters, "class_weight")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_class_weight(self.class_weight)

    def _checked_target(self, y: Any, name: str, owner: BaseEstimator) -> np.ndarray:
        return checked_labels(y, owner)

    def _learn_target(
        self, y: np.ndarray, weight: np.ndarray | None, classes: np.ndarray | None
    ) -> ClassTarget:
        return ClassTarget.learn(y, classes)

    def _target_learner(self) -> LabelCounts:
        return LabelCounts(self.class_weight)

    def _weigh(
        self, target: Target, encoded: np.ndarray, weight: np.ndarray | None
    ) -> np.ndarray | None:
        assert isinstance(target, ClassTarget)
        return target.weigh(self.class_weight, encoded, weight)

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
        return self._partial_fit(X, y, sample_weight, self.classes_)
