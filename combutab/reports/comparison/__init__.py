"""The page of a comparison of activations.

Uses model_selection's results and reports.charts.
"""

from combutab.reports.comparison._page import comparison_page

__all__ = ["comparison_page"]
