"""Generators of synthetic tables: CTGAN and TVAE with any activation."""

from combutab.generators._conditions import check_conditions
from combutab.generators._contract import find_generators
from combutab.generators._ctgan import CTGAN
from combutab.generators._errors import ShortfallError
from combutab.generators._fitting import fit_stack
from combutab.generators._patch import patch_ctgan
from combutab.generators._tvae import TVAE

__all__ = [
    "CTGAN",
    "TVAE",
    "ShortfallError",
    "check_conditions",
    "find_generators",
    "fit_stack",
    "patch_ctgan",
]
