"""Networks with weights computed from a formula, as in the papers' theorems."""

from combutab.constructions._expression import expression_network
from combutab.constructions._laws import (
    compose,
    cos_network,
    exp_network,
    linear_combination,
    log_network,
    monomial_network,
    polynomial_network,
    product,
    sin_network,
)
from combutab.constructions._lipschitz import lipschitz_network
from combutab.constructions._network import ConstructedNetwork

__all__ = [
    "ConstructedNetwork",
    "compose",
    "cos_network",
    "exp_network",
    "expression_network",
    "linear_combination",
    "lipschitz_network",
    "log_network",
    "monomial_network",
    "polynomial_network",
    "product",
    "sin_network",
]
