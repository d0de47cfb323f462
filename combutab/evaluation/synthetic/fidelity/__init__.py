"""How much a synthetic table looks like the real one: columns, pairs of columns, rows.

Used by evaluation.synthetic.
"""

from combutab.evaluation.synthetic.fidelity._columns import codes_of, numbers_of
from combutab.evaluation.synthetic.fidelity._fidelity import FidelityScorer, fidelity

__all__ = ["FidelityScorer", "codes_of", "fidelity", "numbers_of"]
