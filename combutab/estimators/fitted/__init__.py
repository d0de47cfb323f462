"""Fitted estimators: the network that predicts, the attributes, and the file.

Used by the estimators alone.
"""

from combutab.estimators.fitted._fitted import Fitted, float_dtype
from combutab.estimators.fitted._held_out import held_out_outputs
from combutab.estimators.fitted._one_class import warn_of_one_class
from combutab.estimators.fitted._outcome import learned, warn_unfinished

__all__ = [
    "Fitted",
    "float_dtype",
    "held_out_outputs",
    "learned",
    "warn_of_one_class",
    "warn_unfinished",
]
