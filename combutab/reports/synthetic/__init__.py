"""The report on a synthetic table: what is known of it, its verdict, and its page.

Uses evaluation and reports.charts.
"""

from combutab.reports.synthetic._page import synthetic_page
from combutab.reports.synthetic._report import SyntheticEvaluation, evaluate_synthetic
from combutab.reports.synthetic._verdict import Finding

__all__ = ["Finding", "SyntheticEvaluation", "evaluate_synthetic", "synthetic_page"]
