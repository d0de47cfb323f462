"""Activation functions, each usable alone in any torch model."""

from combutab.activations._combu import CombU
from combutab.activations._complex_combu import ComplexCombU
from combutab.activations._dynamic import Derf, DyT
from combutab.activations._elementwise import PELU, NLReLU, PReLU, Swish
from combutab.activations._layeract import LAHardSiLU, LASiLU, LayerAct
from combutab.activations._parallel_norm import PLN, PLS
from combutab.activations._proxy_norm import ProxyNorm
from combutab.activations._registry import ACTIVATIONS, make_activation
from combutab.activations._trainable import Blend, Rational, Snake

__all__ = [
    "ACTIVATIONS",
    "PELU",
    "PLN",
    "PLS",
    "Blend",
    "CombU",
    "ComplexCombU",
    "Derf",
    "DyT",
    "LAHardSiLU",
    "LASiLU",
    "LayerAct",
    "NLReLU",
    "PReLU",
    "ProxyNorm",
    "Rational",
    "Snake",
    "Swish",
    "make_activation",
]
