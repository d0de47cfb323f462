"""Measures of a synthetic table beside the real one: efficacy, fidelity, privacy, detection.

Uses preprocessing and, for learners, the estimators; reports and the command use it.
"""

from combutab.evaluation.synthetic._alignment import AlignedTables, align_tables
from combutab.evaluation.synthetic._detection import DetectionScorer, detection

__all__ = ["AlignedTables", "DetectionScorer", "align_tables", "detection"]
