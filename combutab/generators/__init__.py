"""Generators of synthetic tables, with any activation: TabFlow, CTGAN and TVAE."""

from combutab.generators._base import find_generators, fit_stack
from combutab.generators._ctgan import CTGAN
from combutab.generators._imputer import TabFlowImputer
from combutab.generators._patch import patch_ctgan
from combutab.generators._suggestions import Suggestions, suggest_constraints
from combutab.generators._tabflow import TabFlow
from combutab.generators._tvae import TVAE
from combutab.generators.completion import ShortfallError
from combutab.generators.conditions import check_conditions
from combutab.generators.constraints import (
    Constraint,
    Coordinates,
    FixedCombinations,
    Formula,
    Inequality,
    Null,
    OneOf,
    Sum,
    Unique,
    read_constraints,
    write_constraints,
)
from combutab.generators.private import PrivateSynthesizer
from combutab.generators.tables import TabFlowTables

__all__ = [
    "CTGAN",
    "TVAE",
    "Constraint",
    "Coordinates",
    "FixedCombinations",
    "Formula",
    "Inequality",
    "Null",
    "OneOf",
    "PrivateSynthesizer",
    "ShortfallError",
    "Suggestions",
    "Sum",
    "TabFlow",
    "TabFlowImputer",
    "TabFlowTables",
    "Unique",
    "check_conditions",
    "find_generators",
    "fit_stack",
    "patch_ctgan",
    "read_constraints",
    "suggest_constraints",
    "write_constraints",
]
