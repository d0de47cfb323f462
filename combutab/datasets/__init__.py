"""Tables to train on: from files, from formulas, and the AI Feynman equations."""

from ._expressions import parse_formula
from ._feynman import list_feynman, load_feynman
from ._files import TableError, read_table, split_target
from ._formulas import FORMULAS, make_formula

__all__ = [
    "FORMULAS",
    "TableError",
    "list_feynman",
    "load_feynman",
    "make_formula",
    "parse_formula",
    "read_table",
    "split_target",
]
