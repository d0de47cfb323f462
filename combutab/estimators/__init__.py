"""scikit-learn estimators: MLPClassifier and MLPRegressor."""

from combutab.estimators._classifier import MLPClassifier
from combutab.estimators._jobs import Job, train_jobs
from combutab.estimators._regressor import MLPRegressor
from combutab.estimators._saving import load

__all__ = ["Job", "MLPClassifier", "MLPRegressor", "load", "train_jobs"]
