"""Kernels: an activation's forward and backward pass in memory given, and which module has one.

The activations' modules own kernels; nn.engine runs them. Needs torch alone.
"""

from combutab.activations.kernels._kernel import (
    HALF,
    Activation,
    Gradients,
    Identity,
    Kernel,
    Maybe,
    Memory,
    Pointwise,
    ReLU,
    Torch,
    Vectors,
    above_zero,
    along,
    into,
    kernel_of,
    sum_to,
    where_above,
)
from combutab.activations.kernels._known import is_itself, is_known, is_observed, known, observer
from combutab.activations.kernels._several import Affine, Scattered, Slices
from combutab.activations.kernels._standardize import Standardize

__all__ = [
    "HALF",
    "Activation",
    "Affine",
    "Gradients",
    "Identity",
    "Kernel",
    "Maybe",
    "Memory",
    "Pointwise",
    "ReLU",
    "Scattered",
    "Slices",
    "Standardize",
    "Torch",
    "Vectors",
    "above_zero",
    "along",
    "into",
    "is_itself",
    "is_known",
    "is_observed",
    "kernel_of",
    "known",
    "observer",
    "sum_to",
    "where_above",
]
