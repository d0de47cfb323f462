"""Classifiers and regressors: multilayer perceptrons, packs and TabM."""

from combutab.estimators._base import BaseMLP, FitTask
from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._export import TableModule
from combutab.estimators._fitted import clone_for_all_rows
from combutab.estimators._pack import PackClassifier, PackRegressor
from combutab.estimators._parameters import paper_recipe, validate_parameters
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._tabm import TabMClassifier, TabMRegressor
from combutab.estimators._targets import refuse_text
from combutab.estimators._together import FitOutcome, fit_stacked

__all__ = [
    "BaseMLP",
    "FitOutcome",
    "FitTask",
    "MLPClassifier",
    "MLPRegressor",
    "PackClassifier",
    "PackRegressor",
    "TabMClassifier",
    "TabMRegressor",
    "TableModule",
    "clone_for_all_rows",
    "fit_stacked",
    "paper_recipe",
    "refuse_text",
    "validate_parameters",
]
