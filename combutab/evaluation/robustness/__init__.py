"""Robustness of estimators to corrupted tables, and the corruptions.

For any estimator of scikit-learn's kind; imports no other part of evaluation.
"""

from combutab.evaluation.robustness._corruptions import CORRUPTIONS, Corruption, corrupt
from combutab.evaluation.robustness._robustness import Robustness, robustness

__all__ = ["CORRUPTIONS", "Corruption", "Robustness", "corrupt", "robustness"]
