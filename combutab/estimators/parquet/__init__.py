"""Fits to Parquet files that are larger than memory, and predictions on them.

Used by the estimators alone.
"""

from combutab.estimators.parquet._fitting import StreamedMLP
from combutab.estimators.parquet._targets import LabelCounts, TargetLearner, TargetMoments

__all__ = ["LabelCounts", "StreamedMLP", "TargetLearner", "TargetMoments"]
