"""Names, parameterised names, callables, and what the errors say."""

from functools import partial

import pytest
import torch
from torch import nn

from combutab.activations import ACTIVATIONS, PLN, PLS, CombU, make_activation


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_name_makes_a_module(name):
    module = make_activation(name, 12)
    assert isinstance(module, nn.Module)
    assert module(torch.randn(3, 12)).shape == (3, 12)
    assert make_activation(name, 4, dim=1)(torch.randn(2, 4, 3)).shape == (2, 4, 3)


def test_names_of_the_issue_are_there():
    names = (
        "relu leaky_relu prelu elu selu celu pelu silu swish gelu mish tanh sigmoid logistic "
        "hardsilu softplus nlrelu identity combu combu-random pln pls pln-4 pln-8 pls-2 "
        "complex-combu la-silu la-hardsilu dyt derf snake rational blend"
    )
    assert set(names.split()) == set(ACTIVATIONS)


@pytest.mark.parametrize(("name", "kind", "size"), [("pln-3", PLN, 3), ("pls-16", PLS, 16)])
def test_sizes_in_names(name, kind, size):
    module = make_activation(name, 48)
    assert type(module) is kind
    assert module.norm_size == size


def test_default_size_is_8():
    assert make_activation("pln", 16).norm_size == make_activation("pls", 16).norm_size == 8


def test_callables():
    ratios = {"relu": 0.5, "tanh": 0.5}
    assert make_activation(partial(CombU, ratios=ratios), 6).ratios == ratios
    assert make_activation(partial(CombU, ratios=ratios), 6, dim=1).dim == 1
    assert isinstance(make_activation(lambda width: nn.Tanh(), 6), nn.Tanh)


@pytest.mark.parametrize(
    ("name", "near"),
    [("rleu", "relu"), ("CombU", "combu"), ("la_silu", "la-silu"), ("nl-relu", "nlrelu")],
)
def test_unknown_name_lists_the_known_and_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown activation '{name}'") as error:
        make_activation(name, 8)
    assert f"did you mean {near!r}?" in str(error.value)
    assert all(known in str(error.value) for known in ACTIVATIONS)


def test_unknown_name_like_no_other():
    with pytest.raises(ValueError, match="unknown activation 'xyzzy'; known: relu"):
        make_activation("xyzzy", 8)


def test_size_in_a_name_is_checked():
    with pytest.raises(ValueError, match="use PLS for single units"):
        make_activation("pln-1", 8)


@pytest.mark.parametrize("spec", [nn.ReLU(), None, 3, lambda width: "relu"])
def test_not_a_spec(spec):
    with pytest.raises(TypeError, match="activation must"):
        make_activation(spec, 8)
