"""The loop that trains any generator, alone or stacked: checkpoints, early stopping, memory.

Knows generators by their contract alone.
"""

from combutab.generators.training._fitting import fit_generators, fit_stack
from combutab.generators.training._parquet import ParquetSource

__all__ = ["ParquetSource", "fit_generators", "fit_stack"]
