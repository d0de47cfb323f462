"""Whether a synthetic table gives away the rows that its generator learned from.

Used by evaluation.synthetic.
"""

from combutab.evaluation.synthetic.privacy._privacy import privacy

__all__ = ["privacy"]
