"""A user's own activation modules, of every kind that torch allows."""

import inspect
from functools import partial

import numpy as np
import torch
from torch import nn

from combutab.activations import (
    ACTIVATIONS,
    CombU,
    LayerAct,
    ProxyNorm,
    make_activation,
)

WIDTH = 8
CLASSES = sorted(
    {type(make_activation(name, WIDTH)) for name in ACTIVATIONS}
    | {nn.SiLU, nn.Hardtanh, nn.ReLU6, nn.Softsign, nn.LogSigmoid, nn.Hardsigmoid, nn.Tanhshrink},
    key=lambda cls: cls.__name__,
)


def _make(cls):
    return cls(WIDTH) if "width" in inspect.signature(cls).parameters else cls()


def _subclass(cls):
    def forward(self, x):
        return 0.5 * super(mine, self).forward(x) + torch.sin(x)

    mine = type(f"My{cls.__name__}", (cls,), {"forward": forward})
    return lambda width: _make(mine)


def _hooked(cls):
    def factory(width):
        module = _make(cls)
        module.register_forward_hook(lambda module, inputs, out: out + 0.3 * inputs[0])
        return module

    return factory


def _own_forward(cls):
    def factory(width):
        module = _make(cls)
        plain = type(module).forward
        module.forward = lambda x: plain(module, x) * 0.7 + 0.1 * x
        return module

    return factory


class Normed(nn.Module):
    """Statistics of batches: those of training are kept for predictions."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return torch.tanh(self.norm(x))


class Softmax(nn.Module):
    """Over the axis that (rows, width) has as its second."""

    def forward(self, x):
        return x * torch.softmax(x, dim=1)


class Frozen(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2, width), requires_grad=False)
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x * self.scale + self.shift)


class Inner(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.b = nn.Parameter(torch.linspace(1.0, 2.0, width))

    def forward(self, x):
        return x * self.b


class TwoNames(nn.Module):
    """``a.b`` and ``a_b`` are two tensors."""

    def __init__(self, width):
        super().__init__()
        self.a = Inner(width)
        self.a_b = nn.Parameter(torch.linspace(-1.0, 0.0, width))

    def forward(self, x):
        return torch.tanh(self.a(x) + self.a_b)


class Reassigned(nn.Module):
    """A buffer that each call replaces by another tensor."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return torch.relu(x - self.mean)


class Reduced(nn.Module):
    """A parameter as wide as the layer that is reduced over the units."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.tanh(x * self.weight.mean())


class Additive(nn.Module):
    """Of one row, the gradient of the bias is the gradient of the output itself."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x) + self.bias


class Mixed(nn.Module):
    """Linear over the units: a matrix as a parameter."""

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.mix(x))


class Tied(nn.Module):
    """One parameter under two names."""

    def __init__(self, width):
        super().__init__()
        self.one = nn.Parameter(torch.rand(width))
        self.two = self.one

    def forward(self, x):
        return torch.tanh(x * self.one) * self.two


def without_width(cls):
    return lambda width: cls()


class MyScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.7))

    def forward(self, n):
        return torch.sigmoid(self.slope * n)


OWN = {
    **{f"subclass of {c.__name__}": _subclass(c) for c in CLASSES},
    **{f"hook on {c.__name__}": _hooked(c) for c in CLASSES},
    **{f"own forward of {c.__name__}": _own_forward(c) for c in CLASSES},
    "batch norm": Normed,
    "nn.BatchNorm1d": nn.BatchNorm1d,
    "nn.LayerNorm": nn.LayerNorm,
    "softmax over dim 1": without_width(Softmax),
    "frozen": Frozen,
    "a.b and a_b": TwoNames,
    "reassigned": Reassigned,
    "reduced": Reduced,
    "additive": Additive,
    "mixed": Mixed,
    "tied": Tied,
    "nn.PReLU": nn.PReLU,
    "nn.Sequential": lambda width: nn.Sequential(nn.Linear(width, width), nn.ReLU()),
    "weight norm": lambda width: nn.utils.parametrizations.weight_norm(nn.Linear(width, width)),
    "Softplus(2, 5)": lambda width: nn.Softplus(2, 5),
    "CombU with PReLU": partial(CombU, ratios={"prelu": 0.5, "relu": 0.5}),
    "LayerAct of a module": lambda width: LayerAct(MyScale()),
    "ProxyNorm of PReLU": lambda width: ProxyNorm("prelu", width),
}
CHANGED = ("subclass of", "hook on", "own forward of")
NAMED = [name for name in OWN if not name.startswith(CHANGED)]
FEWER = NAMED + [f"{CHANGED[i % 3]} {cls.__name__}" for i, cls in enumerate(CLASSES)]
"""Each class in one of three ways, in turn: whether it was changed is asked of any class alike."""


def inside(factory):
    """The module in one that the library knows nothing of."""

    class Unknown(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inner = factory(width)

        def forward(self, x):
            return self.inner(x)

    return Unknown


def table(n=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(3, 2, (n, 3))
    return X, X[:, 0] * np.abs(X[:, 1]) + rng.normal(0, 0.1, n)
