"""CTGAN: the estimator, its networks' training, and the draws of its steps.

Written against generators._contract; nothing but generators imports it.
"""

from combutab.generators.gan._ctgan import CTGAN

__all__ = ["CTGAN"]
