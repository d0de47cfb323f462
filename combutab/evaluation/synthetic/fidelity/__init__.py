"""Fidelity: how alike a synthetic and a real table are, by column, pair of columns and row.

Used by evaluation.synthetic.
"""

from combutab.evaluation.synthetic.fidelity._columns import codes_of, numbers_of
from combutab.evaluation.synthetic.fidelity._fidelity import FidelityScorer, fidelity

__all__ = ["FidelityScorer", "codes_of", "fidelity", "numbers_of"]
