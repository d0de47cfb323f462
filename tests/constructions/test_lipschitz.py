"""Propositions 1 to 3: widths, errors on fine grids, and the ReLU lower bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import nn

from combutab.activations import PLN, PLS
from combutab.constructions import lipschitz_network, relu_hard_function

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=40)
KINDS = ["pln", "pls", "sigmoid", "tanh", "relu"]


@st.composite
def lipschitz_functions(draw):
    """A piecewise linear function on [0, 1] and a Lipschitz constant of it, reached or not."""
    lipschitz = draw(st.floats(0.1, 50))
    inner = draw(st.lists(st.floats(0.001, 0.999), max_size=12, unique=True))
    knots = np.array([0.0, *sorted(inner), 1.0])
    slopes = draw(st.lists(st.floats(-1, 1), min_size=len(knots) - 1, max_size=len(knots) - 1))
    start = draw(st.floats(-100, 100))
    values = start + np.append(0, np.cumsum(np.diff(knots) * lipschitz * np.array(slopes)))
    return (lambda x: np.interp(x, knots, values)), lipschitz, knots


def largest_error(network, function, knots, n=4001):
    """On a grid, and next to all places where steps or bends may be."""
    width = network[0].out_features
    steps = np.arange(width + 1) / width
    near = np.concatenate([steps, knots])[:, None] + [-1e-4, -1e-7, -1e-12, 0, 1e-12, 1e-7, 1e-4]
    x = np.clip(np.concatenate([np.linspace(0, 1, n), near.ravel()]), 0, 1)
    with torch.no_grad():
        outputs = network(torch.from_numpy(x)[:, None])[:, 0].numpy()
    return np.abs(outputs - function(x)).max()


@pytest.mark.parametrize("kind", KINDS)
@REPEATABLE
@given(lipschitz_functions(), st.floats(1.01, 60.0))
def test_the_error_is_below_epsilon_at_the_stated_width(kind, drawn, ratio):
    function, lipschitz, knots = drawn
    epsilon = lipschitz / (2 * ratio)
    network = lipschitz_network(function, lipschitz, epsilon, kind)
    n = math.floor(ratio * (1 + 1e-12)) + 1  # a whole number but for rounding is that number
    units = {"pln": 2 * n, "pls": n, "sigmoid": n, "tanh": n, "relu": n + 1}[kind]
    assert network[0].out_features == units  # W of propositions 1, 2 and 3
    assert network[2].bias is None
    assert largest_error(network, function, knots) < epsilon


@pytest.mark.parametrize(("kind", "norm_size"), [("pln", 3), ("pln", 8), ("pls", 2), ("pls", 5)])
def test_groups_of_any_size(kind, norm_size):
    network = lipschitz_network(np.cos, 1.0, 0.03, kind, norm_size=norm_size)
    assert network[0].out_features == 17 * norm_size
    assert isinstance(network[1], {"pln": PLN, "pls": PLS}[kind])
    assert largest_error(network, np.cos, np.zeros(1)) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_function_of_the_steps_comes_near_epsilon(kind):
    """The bound is no looser than it says: a line of slope L misses L / 2n (but not by ReLU)."""
    network = lipschitz_network(lambda x: 2.0 * x, 2.0, 0.1, kind)
    error = largest_error(network, lambda x: 2.0 * x, np.zeros(1))
    expected = 0.0 if kind == "relu" else 2.0 / (2 * 11)
    assert error == pytest.approx(expected, abs=0.005)
    assert error < 0.1


def test_round_numbers_count_as_such():
    # 1 / (2 * 0.05) is 10 but for rounding, and 0.05 as a double is above a twentieth
    assert lipschitz_network(np.sin, 1.0, 0.05, "pls")[0].out_features == 11
    assert lipschitz_network(np.sin, 0.3, 0.015, "pls")[0].out_features == 11


def best_relu_error(function, breakpoints, signs, n):
    """Smallest error at k/n of any sum of these ReLU units and a constant: a linear program."""
    x = np.arange(n + 1) / n
    units = np.maximum(signs * (x[:, None] - breakpoints), 0)
    columns = np.column_stack([units, np.ones(len(x))])
    y = function(x)
    ones = np.ones((len(x), 1))
    result = linprog(
        np.append(np.zeros(columns.shape[1]), 1.0),
        A_ub=np.block([[columns, -ones], [-columns, -ones]]),
        b_ub=np.concatenate([y, -y]),
        bounds=(None, None),
    )
    assert result.status == 0
    return result.fun


@REPEATABLE
@given(st.data())
def test_the_hard_function_defeats_narrower_relu_networks(data):
    n = data.draw(st.integers(3, 12))
    epsilon = data.draw(st.floats(0.01, 1))
    lipschitz = 2 * epsilon * (n + data.draw(st.floats(0.01, 0.99)))
    function = relu_hard_function(lipschitz, epsilon)
    width = data.draw(st.integers(1, n - 2))
    places = data.draw(st.lists(st.integers(0, 8 * n), min_size=width, max_size=width, unique=True))
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=width, max_size=width))
    error = best_relu_error(function, np.array(places) / (8 * n), np.array(signs), n)
    assert error >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("n", [3, 4, 9])
def test_a_wider_relu_network_meets_the_hard_function(n):
    function = relu_hard_function(2 * 0.1 * n, 0.1)
    bends = np.arange(n) / n  # n units, one of them at 0: two more than it defeats
    assert best_relu_error(function, bends, np.ones(n), n) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("lipschitz", "epsilon"), [(4.0, 0.5), (3.3, 0.2), (1.0, 0.05)])
def test_the_hard_function_is_lipschitz_and_alternates(lipschitz, epsilon):
    function = relu_hard_function(lipschitz, epsilon)
    x = np.linspace(0, 1, 10_001)
    y = function(x)
    assert np.abs(np.diff(y)).max() <= lipschitz / 10_000 * (1 + 1e-9)
    n = math.floor(lipschitz / (2 * epsilon) + 1e-9)
    np.testing.assert_allclose(
        function(np.arange(n + 1) / n), epsilon * (-1.0) ** np.arange(1, n + 2)
    )


def test_modules_are_ordinary_and_trainable():
    network = lipschitz_network(np.exp, math.e, 0.1, "pln", norm_size=4)
    assert [type(layer) for layer in network] == [nn.Linear, PLN, nn.Linear]
    network(torch.rand(5, 1, dtype=torch.float64)).sum().backward()
    assert network[0].weight.grad.shape == (56, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.sin, 0.0, 0.1), "lipschitz must be positive and finite, got 0.0"),
        ((np.sin, 1.0, math.inf), "epsilon must be positive and finite, got inf"),
        ((np.sin, 1.0, 0.1, "gelu"), "activation must be one of relu, pln"),
        ((lambda x: x[:-1], 1.0, 0.1), "finite number for each of the 6 points"),
        ((lambda x: x / 0 * 0 if False else x * np.nan, 1.0, 0.1), "6 that are not finite"),
        ((lambda x: 1e12 + x, 1.0, 0.1001 / 2), "rounding|float64"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        lipschitz_network(*arguments)


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match="norm_size=4 is for pln and pls"):
        lipschitz_network(np.sin, 1.0, 0.1, "relu", norm_size=4)
    with pytest.raises(ValueError, match="norm_size must be at least 2 for PLN"):
        lipschitz_network(np.sin, 1.0, 0.1, "pln", norm_size=1)
    with pytest.raises(ValueError, match="take a smaller epsilon"):
        relu_hard_function(1.0, 0.6)
