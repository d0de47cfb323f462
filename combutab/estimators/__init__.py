"""scikit-learn estimators: perceptrons, and TabM's ensembles of them."""

from combutab.estimators._base import BaseMLP
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._tabm import TabMClassifier, TabMRegressor
from combutab.estimators._together import FitTask, fit_stacked
from combutab.estimators.fitting import FitHandout, FitOutcome, TrainedFit

__all__ = [
    "BaseMLP",
    "FitHandout",
    "FitOutcome",
    "FitTask",
    "MLPClassifier",
    "MLPRegressor",
    "TabMClassifier",
    "TabMRegressor",
    "TrainedFit",
    "fit_stacked",
]
