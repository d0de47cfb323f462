"""The activations that act on every unit alone, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from combutab.activations._dynamic import Derf, DyT
from combutab.activations._elementwise import PELU, NLReLU, PReLU, Swish
from combutab.activations._trainable import Blend, Rational, Snake


def _plain(module: Callable[[], nn.Module]) -> Callable[..., nn.Module]:
    def factory(width: int, *, dim: int = -1) -> nn.Module:
        return module()

    return factory


UNITWISE: dict[str, Callable[..., nn.Module]] = {
    "relu": _plain(nn.ReLU),
    "leaky_relu": _plain(nn.LeakyReLU),
    "prelu": PReLU,
    "elu": _plain(nn.ELU),
    "selu": _plain(nn.SELU),
    "celu": _plain(nn.CELU),
    "pelu": PELU,
    "silu": _plain(Swish),
    "swish": _plain(Swish),
    "gelu": _plain(nn.GELU),
    "mish": _plain(nn.Mish),
    "tanh": _plain(nn.Tanh),
    "sigmoid": _plain(nn.Sigmoid),
    "logistic": _plain(nn.Sigmoid),
    "hardsilu": _plain(nn.Hardswish),
    "softplus": _plain(nn.Softplus),
    "nlrelu": _plain(NLReLU),
    "identity": _plain(nn.Identity),
    "dyt": DyT,
    "derf": Derf,
    "snake": Snake,
    "rational": Rational,
    "blend": Blend,
}
