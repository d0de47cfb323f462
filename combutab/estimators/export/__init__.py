"""Fitted estimators as plain torch modules, and as ONNX files: encoding, networks, answers.

Used by the estimators alone.
"""

from combutab.estimators.export._answers import ClassAnswer, RegressionAnswer
from combutab.estimators.export._exports import Exports
from combutab.estimators.export._module import TableModule

__all__ = ["ClassAnswer", "Exports", "RegressionAnswer", "TableModule"]
