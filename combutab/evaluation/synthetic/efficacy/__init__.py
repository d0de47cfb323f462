"""Efficacy: how well learners that are trained on a synthetic table predict real rows.

Used by evaluation.synthetic.
"""

from combutab.evaluation.synthetic.efficacy._efficacy import EfficacyScorer, ml_efficacy
from combutab.evaluation.synthetic.efficacy._learners import Learners, make_learners, takes_tables
from combutab.evaluation.synthetic.efficacy._tables import (
    REAL,
    Tables,
    encode,
    label_tables,
    ordered,
    with_text_names,
)

__all__ = [
    "REAL",
    "EfficacyScorer",
    "Learners",
    "Tables",
    "encode",
    "label_tables",
    "make_learners",
    "ml_efficacy",
    "ordered",
    "takes_tables",
    "with_text_names",
]
