"""What a fit leaves: the network that predicts, its attributes, and its file.

Used by the estimators alone.
"""

from combutab.estimators.fitted._fitted import Fitted
from combutab.estimators.fitted._outcome import learned, warn_unfinished

__all__ = ["Fitted", "learned", "warn_unfinished"]
