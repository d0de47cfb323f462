"""scikit-learn estimators: perceptrons, packs of them, and TabM."""

from combutab.estimators._base import BaseMLP
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._recipes import paper_recipe
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._tabm import TabMClassifier, TabMRegressor
from combutab.estimators._together import FitTask, fit_stacked
from combutab.estimators.export import TableModule
from combutab.estimators.fitting import FitHandout, FitOutcome, TrainedFit
from combutab.estimators.pack import PackClassifier, PackRegressor

__all__ = [
    "BaseMLP",
    "FitHandout",
    "FitOutcome",
    "FitTask",
    "MLPClassifier",
    "MLPRegressor",
    "PackClassifier",
    "PackRegressor",
    "TabMClassifier",
    "TabMRegressor",
    "TableModule",
    "TrainedFit",
    "fit_stacked",
    "paper_recipe",
]
