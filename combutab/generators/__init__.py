"""Generators of synthetic tables, with any activation: TabFlow, CTGAN and TVAE."""

from combutab.generators._base import find_generators, fit_stack
from combutab.generators._ctgan import CTGAN
from combutab.generators._imputer import TabFlowImputer
from combutab.generators._patch import patch_ctgan
from combutab.generators._tabflow import TabFlow
from combutab.generators._tvae import TVAE
from combutab.generators.conditions import check_conditions
from combutab.generators.sampling import ShortfallError

__all__ = [
    "CTGAN",
    "TVAE",
    "ShortfallError",
    "TabFlow",
    "TabFlowImputer",
    "check_conditions",
    "find_generators",
    "fit_stack",
    "patch_ctgan",
]
