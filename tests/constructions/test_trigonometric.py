"""Sines, cosines and arcs as networks of complex units: exact to rounding, and as starts."""

import math

import numpy as np
import pytest
import torch

from combutab import MLPRegressor, load
from combutab.activations import CombU, ComplexCombU
from combutab.constructions import (
    ConstructedNetwork,
    compose,
    cos_network,
    expression_network,
    sin_network,
)
from combutab.datasets import parse_formula
from tests.constructions.test_expression import check, sample

ANGLES = torch.linspace(-40, 40, 161, dtype=torch.float64)[:, None]


@torch.no_grad()
def test_sine_and_cosine_are_exact_to_rounding():
    for make, function in ((sin_network, torch.sin), (cos_network, torch.cos)):
        network = make((-40, 40))
        assert network.hidden_layer_sizes == (2,)
        assert isinstance(network.layers[1], ComplexCombU)
        assert (network(ANGLES) - function(ANGLES)).abs().max() < 1e-12
        assert network.rounding_error(ANGLES).max() < 1e-12
        assert network(1000 + ANGLES).allclose(function(1000 + ANGLES), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("domain", "sine", "cosine"),
    [
        ((0, 1), (0, math.sin(1)), (math.cos(1), 1)),
        ((1, 2), (math.sin(1), 1), (math.cos(2), math.cos(1))),
        ((3, 5), (-1, math.sin(3)), (-1, math.cos(5))),
        ((-2, -1), (-1, math.sin(-1)), (math.cos(-2), math.cos(-1))),
        ((10, 17), (-1, 1), (-1, 1)),
        ((-0.5, 0.5), (-math.sin(0.5), math.sin(0.5)), (math.cos(0.5), 1)),
    ],
)
def test_ranges_are_those_of_the_functions(domain, sine, cosine):
    np.testing.assert_allclose(sin_network(domain).output_range[0], sine, atol=1e-14)
    np.testing.assert_allclose(cos_network(domain).output_range[0], cosine, atol=1e-14)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("q*(Ef + B*v*sin(t))", {"q": (1, 5), "Ef": (1, 5), "B": (1, 5), "v": (1, 5), "t": (1, 5)}),
        ("I*sin(n*t/2)**2/sin(t/2)**2", {"I": (1, 5), "t": (1, 5), "n": (1, 5)}),
        ("sin(x)**2 + cos(x)**2 + sin(x)*cos(y)", {"x": (-9, 9), "y": (0, 50)}),
        ("tan(x)*arctan(30*x)", {"x": (-1, 1.2)}),
        ("arcsin(x) + 2*arccos(y*x)", {"x": (-0.9, 0.8), "y": (-1, 1)}),
        ("exp(-x/2)*cos(8*x + 1)*abs(y)", {"x": (0, 6), "y": (-2, 3)}),
        # aberration of light, test_10, whose arccos of a quotient no bound of its parts allows
        ("2*arctan(sqrt((1+v/c)/(1-v/c))*tan(t/2))", {"c": (4, 6), "v": (1, 3), "t": (1, 3)}),
    ],
)
def test_laws_with_angles(text, domain):
    network = expression_network(text, domain)
    largest = check(network, parse_formula(text, domain), domain, sample(domain, 12))
    assert largest < 1e-9
    activations = [layer for layer in network.layers if not isinstance(layer, torch.nn.Linear)]
    assert {type(layer) for layer in activations} == {ComplexCombU}


def test_a_sine_and_a_cosine_of_one_angle_share_a_pair():
    domain = {"x": (0, 9)}
    both = expression_network("sin(2*x) + 3*cos(2*x)", domain)
    assert both.hidden_layer_sizes == (2,)
    assert expression_network("sin(2*x) + 3*cos(x)", domain).hidden_layer_sizes == (4,)
    assert isinstance(expression_network("exp(-x)", domain).layers[1], CombU), "real as before"


@torch.no_grad()
def test_laws_of_networks_and_their_states():
    wave = compose(sin_network((0, 1)), [sin_network((0, 3))])
    x = torch.linspace(0, 3, 31, dtype=torch.float64)[:, None]
    assert (wave(x) - x.sin().sin()).abs().max() < 1e-12
    again = ConstructedNetwork.from_state(wave.to_state())
    assert torch.equal(again(x), wave(x))


def test_an_estimator_starts_from_a_wave(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (120, 2))
    y = X[:, 1] * np.sin(2 * X[:, 0]) + 3
    init = expression_network("x1*sin(2*x0) + 3", {"x0": (0, 6), "x1": (0, 6)})
    settings = {"dropout": 0, "numeric_encoding": "standard", "numeric_embedding": "none"}
    settings |= {"max_iter": 1, "n_iter_no_change": np.inf, "learning_rate_init": 1e-300}
    settings |= {"scale_inputs": False, "weight_decay": 0, "random_state": 0}
    settings |= {"precision": "float64", "init": init, "n_members": 2, "loss": "squared_error"}
    settings |= {"learning_rate_factors": None, "clip_predictions": False}
    for sizes in ("auto", (20, 20, 12, 10)):
        model = MLPRegressor(activation="complex-combu", hidden_layer_sizes=sizes, **settings)
        np.testing.assert_allclose(model.fit(X, y).predict(X), y, atol=1e-4)
    model.save(tmp_path / "wave.safetensors")
    assert np.array_equal(load(tmp_path / "wave.safetensors").predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"no place for them; use activation='complex-combu'"):
        MLPRegressor(activation="combu", hidden_layer_sizes="auto", **settings).fit(X, y)
    with pytest.raises(ValueError, match="needs an even width"):
        MLPRegressor(activation="complex-combu", hidden_layer_sizes=(7,), max_iter=1).fit(X, y)
