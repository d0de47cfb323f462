"""Reports of models, comparisons and synthetic tables as HTML pages."""

from combutab.core.requirements import RequirementError
from combutab.reports._evaluate import evaluate_synthetic
from combutab.reports._findings import Finding
from combutab.reports._model import ModelReport, report_model
from combutab.reports._synthetic import SyntheticEvaluation
from combutab.reports._tables import ComparedTable, PersonPrivacy, TablesEvaluation
from combutab.reports._terminal import comparison_table
from combutab.reports._write import render_report, write_report

__all__ = [
    "ComparedTable",
    "Finding",
    "ModelReport",
    "PersonPrivacy",
    "RequirementError",
    "SyntheticEvaluation",
    "TablesEvaluation",
    "comparison_table",
    "evaluate_synthetic",
    "render_report",
    "report_model",
    "write_report",
]
