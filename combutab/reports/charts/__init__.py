"""Charts of columns for a page: coordinates, axes, labels, and which values may be shown.

Used by the pages of reports.
"""

from combutab.reports.charts._charts import (
    Bars,
    Histogram,
    category_bars,
    histogram,
    shortened,
    text_width,
)
from combutab.reports.charts._shown import is_identifier, least_rows

__all__ = [
    "Bars",
    "Histogram",
    "category_bars",
    "histogram",
    "is_identifier",
    "least_rows",
    "shortened",
    "text_width",
]
