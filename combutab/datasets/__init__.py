"""Simulated tables, tables of files, formulas, the AI Feynman equations and OpenML."""

from combutab.datasets._feynman import list_feynman, load_feynman
from combutab.datasets._files import TableError, read_cells, read_table, split_target
from combutab.datasets._flats import make_flats
from combutab.datasets._formulas import FORMULAS, make_formula, parse_formula
from combutab.datasets._openml import Dataset, list_openml, load_openml

__all__ = [
    "FORMULAS",
    "Dataset",
    "TableError",
    "list_feynman",
    "list_openml",
    "load_feynman",
    "load_openml",
    "make_flats",
    "make_formula",
    "parse_formula",
    "read_cells",
    "read_table",
    "split_target",
]
