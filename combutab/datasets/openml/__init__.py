"""Data sets of OpenML: from its server, its client's cache or a folder of CSV files.

Used by datasets; needs the extra openml for what is not in a folder.
"""

from combutab.datasets.openml._dataset import Dataset, load_openml
from combutab.datasets.openml._registry import list_openml

__all__ = ["Dataset", "list_openml", "load_openml"]
