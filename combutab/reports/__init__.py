"""Reports: what was found, as a page that a person reads."""

from ._synthetic import SyntheticEvaluation, evaluate_synthetic
from ._verdict import Finding
from ._write import render_report, write_report

__all__ = [
    "Finding",
    "SyntheticEvaluation",
    "evaluate_synthetic",
    "render_report",
    "write_report",
]
