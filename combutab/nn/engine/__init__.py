"""The chain of layers, forward and backward, in memory of its own.

Runs the kernels of activations and of nn's layers; nn.networks is made of it.
"""

from combutab.nn.engine._chain import Chain
from combutab.nn.engine._memory import Scratch
from combutab.nn.engine._penalty_pass import PenaltyPass

__all__ = ["Chain", "PenaltyPass", "Scratch"]
