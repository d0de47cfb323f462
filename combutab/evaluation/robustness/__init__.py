"""How well estimators do on tables that have gone wrong, and the ways to make them go wrong.

For any estimator of scikit-learn's kind; imports no other part of evaluation.
"""

from combutab.evaluation.robustness._corruptions import CORRUPTIONS, Corruption, corrupt
from combutab.evaluation.robustness._robustness import Robustness, robustness

__all__ = ["CORRUPTIONS", "Corruption", "Robustness", "corrupt", "robustness"]
