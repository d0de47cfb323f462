"""Fitted estimators: the network that predicts, the attributes, and the file.

Used by the estimators alone.
"""

from combutab.estimators.fitted._fitted import Fitted, float_dtype
from combutab.estimators.fitted._outcome import learned, warn_unfinished

__all__ = ["Fitted", "float_dtype", "learned", "warn_unfinished"]
