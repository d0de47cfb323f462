"""TabFlow: the estimator, its networks' training and its sampling.

Written against generators._contract; nothing but generators imports it.
"""

from combutab.generators.flow._tabflow import TabFlow

__all__ = ["TabFlow"]
