"""TVAE: the estimator and its networks' training.

Written against generators._contract; nothing but generators imports it.
"""

from combutab.generators.vae._tvae import TVAE

__all__ = ["TVAE"]
