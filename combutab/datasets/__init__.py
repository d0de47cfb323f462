"""Tables to train on: from files, formulas, the AI Feynman equations and OpenML."""

from ._expressions import parse_formula
from ._feynman import list_feynman, load_feynman
from ._files import TableError, read_table, split_target
from ._formulas import FORMULAS, make_formula
from ._openml import Dataset, load_openml
from ._openml_registry import list_openml

__all__ = [
    "FORMULAS",
    "Dataset",
    "TableError",
    "list_feynman",
    "list_openml",
    "load_feynman",
    "load_openml",
    "make_formula",
    "parse_formula",
    "read_table",
    "split_target",
]
