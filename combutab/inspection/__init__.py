"""Explanations of a fitted model: importances, partial dependence, attributions."""

from combutab.inspection._attributions import Attributions, TableMasker, attributions
from combutab.inspection._columns import (
    PartialDependence,
    PermutationImportance,
    partial_dependence,
    permutation_importance,
)
from combutab.inspection._leakage import leaking_columns

__all__ = [
    "Attributions",
    "PartialDependence",
    "PermutationImportance",
    "TableMasker",
    "attributions",
    "leaking_columns",
    "partial_dependence",
    "permutation_importance",
]
