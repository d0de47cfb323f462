"""Packs: many random networks trained together, and an ensemble of the best of their snapshots.

Used through ``PackClassifier`` and ``PackRegressor`` alone.
"""

from combutab.estimators.pack._classifier import PackClassifier
from combutab.estimators.pack._regressor import PackRegressor

__all__ = ["PackClassifier", "PackRegressor"]
