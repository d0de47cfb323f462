"""Privacy: distances that tell if a synthetic table gives away rows of the training table.

Used by evaluation.synthetic.
"""

from combutab.evaluation.synthetic.privacy._privacy import privacy

__all__ = ["privacy"]
