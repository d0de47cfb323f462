"""Activation functions as torch modules."""

from combutab.activations._combu import CombU, ComplexCombU
from combutab.activations._layeract import LAHardSiLU, LASiLU, LayerAct
from combutab.activations._parallel_norm import PLN, PLS
from combutab.activations._proxy_norm import ProxyNorm
from combutab.activations._registry import ACTIVATIONS, Blend, make_activation
from combutab.activations._unitwise import PELU, Derf, DyT, NLReLU, PReLU, Rational, Snake, Swish

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
