"""Reports: what was found, as a page that a person reads."""

from combutab.reports._write import render_report, write_report
from combutab.reports.synthetic import Finding, SyntheticEvaluation, evaluate_synthetic

__all__ = [
    "Finding",
    "SyntheticEvaluation",
    "evaluate_synthetic",
    "render_report",
    "write_report",
]
