"""Activation functions, each usable alone in any torch model."""

from combutab.activations._combu import CombU
from combutab.activations._elementwise import PELU, NLReLU, PReLU, Swish
from combutab.activations._in_place import InPlace, in_place
from combutab.activations._in_place_groups import (
    GroupKernel,
    Memory,
    Standardize,
    in_place_group,
    standardize_of,
)
from combutab.activations._in_place_proxy import InPlaceProxyNorm
from combutab.activations._known import is_itself, is_known, observer
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
    "GroupKernel",
    "InPlace",
    "InPlaceProxyNorm",
    "LAHardSiLU",
    "LASiLU",
    "LayerAct",
    "Memory",
    "NLReLU",
    "PReLU",
    "ProxyNorm",
    "Standardize",
    "Swish",
    "in_place",
    "in_place_group",
    "is_itself",
    "is_known",
    "make_activation",
    "observer",
    "standardize_of",
]
