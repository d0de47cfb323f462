"""Activation functions, each usable alone in any torch model."""

from combutab.activations._combu import CombU
from combutab.activations._elementwise import PELU, NLReLU, PReLU, Swish
from combutab.activations._layeract import LAHardSiLU, LASiLU, LayerAct
from combutab.activations._parallel_norm import PLN, PLS
from combutab.activations._proxy_norm import ProxyNorm
from combutab.activations._registry import ACTIVATIONS, make_activation

__all__ = [
    "ACTIVATIONS",
    "PELU",
    "PLN",
    "PLS",
    "CombU",
    "LAHardSiLU",
    "LASiLU",
    "LayerAct",
    "NLReLU",
    "PReLU",
    "ProxyNorm",
    "Swish",
    "make_activation",
]
