"""Generators of synthetic tables, with any activation: TabFlow, CTGAN and TVAE."""

from combutab.generators._contract import find_generators
from combutab.generators._errors import ShortfallError
from combutab.generators._imputer import TabFlowImputer
from combutab.generators._patch import patch_ctgan
from combutab.generators.flow import TabFlow
from combutab.generators.gan import CTGAN
from combutab.generators.sampling import check_conditions
from combutab.generators.training import fit_stack
from combutab.generators.vae import TVAE

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
