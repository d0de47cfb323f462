"""Tables to train on: from files, from formulas, and the AI Feynman equations."""

from ._files import TableError, read_table, split_target
from ._formulas import FORMULAS, make_formula

__all__ = ["FORMULAS", "TableError", "make_formula", "read_table", "split_target"]
