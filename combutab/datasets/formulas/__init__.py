"""Tables made of formulas: those of the CombU paper, the AI Feynman equations, and the parser.

Used by datasets and constructions; needs the extra formulas.
"""

from combutab.datasets.formulas._expressions import parse_formula
from combutab.datasets.formulas._feynman import DATA_HOME_VARIABLE, list_feynman, load_feynman
from combutab.datasets.formulas._formulas import FORMULAS, make_formula

__all__ = [
    "DATA_HOME_VARIABLE",
    "FORMULAS",
    "list_feynman",
    "load_feynman",
    "make_formula",
    "parse_formula",
]
