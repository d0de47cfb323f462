"""Explanations of a fitted model: importances, partial dependence, attributions."""

from combutab.inspection._attributions import Attributions, TableMasker, attributions
from combutab.inspection._columns import (
    PartialDependence,
    PermutationImportance,
    leaking_columns,
    partial_dependence,
    permutation_importance,
)

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
