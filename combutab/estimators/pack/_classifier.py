"""PackClassifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from combutab._model_files import loadable
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._docs import fill
from combutab.estimators.pack._base import BasePack
from combutab.estimators.pack._docs import ATTRIBUTES, PARAMETERS
from combutab.estimators.pack._folds import HoldsOut
from combutab.estimators.pack._members import CLASSIFIER


class _Encoding(HoldsOut, MLPClassifier):
    """Encodes the table of a pack."""


_Encoding.__name__ = "PackClassifier"  # whose errors it has


@loadable
@partial(fill, parameters=PARAMETERS.format(member="MLPClassifier"), attributes=ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class PackClassifier(ClassifierMixin, BasePack):
    """Ensemble classifier of the best snapshots of many random networks, trained together.

    Each member is a perceptron with its own activation, depth, dropout, weight decay, learning rate
    and embedding of numbers. Networks of one shape train as one batched program. The ensemble is
    picked from their best epochs, greedily and with replacement, so as to have the smallest log
    loss on rows that they did not train on.

    Takes a DataFrame as it is: numeric, boolean, text, category and date columns, with missing
    values. Binary, multi-class and multi-label targets.

    Parameters
    ----------
    {parameters}
    class_weight : dict, list of dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn's classifiers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    {attributes}

    References
    ----------
    TabPack, arXiv 2607.05380; the selection is that of Caruana et al., "Ensemble selection from
    libraries of models", ICML 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from combutab import PackClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> pack = PackClassifier(n_members=4, max_iter=10, random_state=0).fit(X, y)
    >>> pack.predict_proba(X[:5]).shape, pack.validation_loss_ <= pack.best_member_validation_loss_
    ((5, 3), True)
    """

    class_weight: Any = None

    _parameter_constraints = {
        **BasePack._parameter_constraints,
        "class_weight": MLPClassifier._parameter_constraints["class_weight"],
    }
    _recipe = CLASSIFIER
    _member_class = MLPClassifier
    _encoding_class = _Encoding
    _passed_on = ("class_weight",)
    _learned = (*BasePack._learned, "classes_")

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over the ensemble.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``; for multi-label targets the probability of each
            label.
        """
        return self._answering(X).predict_proba(X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``, (n_samples, n_classes)."""
        return self._answering(X).predict_log_proba(X)

    def predict(self, X: Any) -> np.ndarray:
        """Predicted labels: (n_samples,), or a 0/1 matrix for multi-label targets."""
        return self._answering(X).predict(X)
