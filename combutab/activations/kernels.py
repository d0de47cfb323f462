"""What an engine needs to know of activations: which have kernels, and what these are."""

from combutab.activations._kernels import (
    Activation,
    Gradients,
    Identity,
    Kernel,
    ReLU,
    Room,
    Vectors,
    kernel_of,
)
from combutab.activations._known import is_itself, is_known, observer
from combutab.activations._standardize import Standardize

__all__ = [
    "Activation",
    "Gradients",
    "Identity",
    "Kernel",
    "ReLU",
    "Room",
    "Standardize",
    "Vectors",
    "is_itself",
    "is_known",
    "kernel_of",
    "observer",
]
