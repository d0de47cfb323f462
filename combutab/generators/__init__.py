"""Generators of synthetic tables: CTGAN and TVAE with any activation."""

from combutab.generators._ctgan import CTGAN
from combutab.generators._tvae import TVAE

__all__ = ["CTGAN", "TVAE"]
