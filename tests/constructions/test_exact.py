"""Lemmas 0.1 and 0.2, theorem 0.3: exact but for rounding, against 50 digits of mpmath."""

import math
import re

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import nn

from combutab.activations import PLN, PLS, CombU
from combutab.constructions import (
    exp_network,
    lipschitz_network,
    log_network,
    monomial_network,
    polynomial_network,
)

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)

UNIT = 2.0**-53


def interval(low, high, least_width=0.0):
    ends = st.tuples(st.floats(low, high), st.floats(low, high)).map(sorted)
    return ends.filter(lambda pair: pair[1] - pair[0] >= least_width)


# to a thousandth: no interval that is narrow beyond float64, as (0, 1e-309) is
rough_interval = st.tuples(*[st.integers(-3000, 3000)] * 2).map(
    lambda pair: tuple(value / 1000 for value in sorted(pair))
)


def points(domain, shares):
    """Rows in a domain, its corners among them."""
    low, high = np.array(domain, dtype=float).T
    inner = low + np.asarray(shares).reshape(-1, 1) * (high - low)
    return np.clip(np.vstack([low, high, inner]), low, high)


def check(network, function, rows):
    """All outputs are within the claimed error of the exact values; returns both."""
    x = torch.from_numpy(rows)
    with torch.no_grad():
        outputs = network(x)[:, 0]
        claimed = network.rounding_error(x)[:, 0]
    with mpmath.workdps(50):
        exact = [function(*map(mpmath.mpf, row)) for row in rows.tolist()]
        errors = [abs(mpmath.mpf(o) - e) for o, e in zip(outputs.tolist(), exact, strict=True)]
    assert torch.isfinite(claimed).all()
    assert all(e <= c for e, c in zip(errors, claimed.tolist(), strict=True))
    low, high = network.output_range[0]
    assert all(low <= value <= high for value in exact)
    return np.array([float(value) for value in exact]), claimed.numpy()


shares = st.lists(st.floats(0, 1), min_size=3, max_size=3)


@REPEATABLE
@given(interval(-300, 300), shares)
def test_exp_is_exact_at_its_upper_bound(domain, shares):
    _, claimed = check(exp_network(domain), mpmath.exp, points([domain], shares))
    # the bound says something: some units of the largest value, and of M in the exponent
    assert claimed.max() <= (100 + 40 * max(map(abs, domain))) * UNIT * math.exp(domain[1])


@REPEATABLE
@given(interval(1e-9, 1e9), shares)
def test_log_is_exact_to_rounding(domain, shares):
    exact, claimed = check(log_network(domain), mpmath.log, points([domain], shares))
    size = 1 + abs(math.log(domain[0])) + np.abs(exact).max()
    assert claimed.max() <= 100 * UNIT * size


def power_product(powers):
    return lambda *xs: mpmath.fprod(x**p for x, p in zip(xs, powers, strict=True))


@REPEATABLE
@given(st.data())
def test_monomials_of_any_real_powers(data):
    n = data.draw(st.integers(1, 4))
    powers = data.draw(st.lists(st.floats(-3, 3), min_size=n, max_size=n))
    domain = data.draw(st.lists(interval(0.1, 10), min_size=n, max_size=n))
    rows = points(domain, data.draw(shares))
    network = monomial_network(powers, domain)
    exact, claimed = check(network, power_product(powers), rows)
    assert claimed.max() <= 1e-12 * network.output_range[0][1]
    assert np.abs(exact).max() <= network.output_range[0][1]


@REPEATABLE
@given(st.data())
def test_polynomials(data):
    n, k = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    numbers = st.floats(-3, 3)
    powers = data.draw(st.lists(st.tuples(*[numbers] * n), min_size=k, max_size=k))
    coefficients = data.draw(st.lists(numbers, min_size=k, max_size=k))
    domain = data.draw(st.lists(interval(0.2, 5), min_size=n, max_size=n))
    network = polynomial_network(coefficients, powers, domain)

    def exact(*xs):
        return mpmath.fsum(
            c * power_product(p)(*xs) for c, p in zip(coefficients, powers, strict=True)
        )

    check(network, exact, points(domain, data.draw(shares)))
    assert len(network.hidden_layer_sizes) <= 2  # Eq. 10
    assert all(size <= max(n, 2 * k) + k for size in network.hidden_layer_sizes)


@REPEATABLE
@given(st.data())
def test_whole_powers_of_variables_of_any_sign(data):
    n, k = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    whole = st.integers(0, 4).map(float)
    powers = data.draw(st.lists(st.tuples(*[whole] * n), min_size=k, max_size=k))
    coefficients = data.draw(st.lists(st.floats(-3, 3), min_size=k, max_size=k))
    domain = data.draw(st.lists(rough_interval, min_size=n, max_size=n))
    network = polynomial_network(coefficients, powers, domain)

    def exact(*xs):
        return mpmath.fsum(
            c * power_product(p)(*xs) for c, p in zip(coefficients, powers, strict=True)
        )

    _, claimed = check(network, exact, points(domain, data.draw(shares)))
    assert claimed.max() < 1e-6


def test_the_bound_holds_below_the_normal_numbers():
    network = polynomial_network([2.225073858507e-311], [(1.0,)], [(0.0, 0.001)])
    check(network, lambda x: mpmath.mpf(2.225073858507e-311) * x, np.array([[0.0], [3e-4], [1e-3]]))


@REPEATABLE
@given(interval(-5, -0.1), st.integers(-4, 4), shares)
def test_whole_powers_of_a_negative_variable(domain, power, shares):
    check(monomial_network([power], [domain]), power_product([power]), points([domain], shares))


# ---- numbers worked by hand ----------------------------------------------------------------------


def linears(network):
    return [layer for layer in network.layers if isinstance(layer, nn.Linear)]


def test_the_weights_of_lemma_1():
    first, last = linears(exp_network((-1.0, 2.0)))
    kinds = [name for name, _, _ in next(m for m in exp_network((-1.0, 2.0)).layers[1:2]).spans]
    assert kinds == ["relu", "elu"]  # the order of CombU's parts
    assert first.weight.tolist() == [[1.0], [1.0]]
    assert first.bias.tolist() == [-2.0, -2.0]
    e2 = 7.38905609893065
    assert last.weight.tolist() == [[pytest.approx(-e2), pytest.approx(e2)]]
    assert last.bias.tolist() == [pytest.approx(e2)]


def test_the_weights_of_lemma_2_as_corrected():
    first, last = linears(log_network((0.25, 8.0)))
    assert (first.weight.item(), first.bias.item()) == (4.0, -1.0)
    assert last.weight.item() == 1.0  # Eq. 8 as printed would have ln(delta) here, and bias 0
    assert last.bias.item() == pytest.approx(-1.3862943611198906)


def test_a_polynomial_shares_its_logarithms_and_equal_terms():
    network = polynomial_network([1, 1, 1], [[2, 1], [1, 2], [2, 1]], [(1, 2), (1, 2)])
    assert network.hidden_layer_sizes == (2, 4)  # two logarithms; two terms of two units


def test_modules_are_ordinary():
    network = monomial_network([1.5, -1], [(1, 4), (1, 2)])
    assert [type(layer) for layer in network.layers] == [
        *(nn.Linear, CombU),
        *(nn.Linear, CombU),
        nn.Linear,
    ]
    assert network.layers[0].weight.dtype == torch.float64
    batch = torch.rand(3, 5, 2, dtype=torch.float64) + 1
    assert network(batch).shape == (3, 5, 1)
    assert network.rounding_error(batch).shape == (3, 5, 1)
    network(batch).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


# ---- numerical limits ------------------------------------------------------------------------


def test_bound_grows_for_small_values():
    network = exp_network((-40.0, 0.0))
    x = torch.tensor([[-40.0], [0.0]], dtype=torch.float64)
    low, high = network.rounding_error(x)[:, 0].tolist()
    assert low > math.exp(-40)  # no digit of exp(-40) is sure beside 1
    assert high < 1e-14


def test_outside_of_the_domain_nothing_is_claimed():
    network = exp_network((0.0, 1.0))
    x = torch.tensor([[1.5], [1.0]], dtype=torch.float64)
    assert torch.isinf(network.rounding_error(x)).flatten().tolist() == [True, False]
    assert network(x)[0].item() == pytest.approx(math.e)  # constant above M, as E - R is


def test_rounding_in_single_precision_is_bounded_too():
    network = monomial_network([2, -1], [(1, 5), (1, 5)]).float()
    x = 1 + 4 * torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    exact = x[:, 0].double() ** 2 / x[:, 1].double()
    error = (network(x)[:, 0].double() - exact).abs()
    claimed = network.rounding_error(x)[:, 0]
    assert (error <= claimed).all()
    assert error.max() > 1e-8  # float64's bound would not hold
    assert claimed.max() < 1e-2


@pytest.mark.parametrize("top", [709.79, 800.0, 1e6])
def test_overflowing_exponent_is_refused(top):
    with pytest.raises(
        ValueError, match=rf"\(0, {re.escape(f'{top:.6g}')}\) overflows.*exp\(709.78"
    ):
        exp_network((0.0, top))


def test_the_largest_exponent_works():
    network = exp_network((700.0, 709.78))
    x = torch.tensor([[709.0]], dtype=torch.float64)
    assert network(x).item() == pytest.approx(math.exp(709.0), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: log_network((0.0, 1.0)), "needs z > 0, but z reaches 0"),
        (lambda: log_network((1e-300, 1e300)), "1/1e-300.*overflows float64"),
        (lambda: exp_network((0.0, math.inf)), "finite intervals"),
        (lambda: monomial_network([0.5], [(-1, 1)]), r"x0\*\*0.5 needs a positive base.*-1, 1"),
        (lambda: monomial_network([-1], [(-1, 1)]), r"x0\*\*-1 has a pole in the domain"),
        (lambda: monomial_network([300], [(1, 100)]), "reaches beyond float64"),
        (lambda: polynomial_network([1e308] * 2, [[1], [1]], [(1, 2)]), "beyond float64"),
        (lambda: monomial_network([301], [(-10.5, 0.1)]), "overflows|beyond float64"),
        (lambda: monomial_network([1, 2], [(1, 2)]), "a column for each of the 1 intervals"),
        (lambda: monomial_network([1], [1, 2]), "one pair .low, high."),
        (lambda: polynomial_network([1, 2], [[1]], [(1, 2)]), "each of the 2 coefficients"),
        (lambda: monomial_network([40] * 3, [(-1, 1)] * 3), "10000"),
    ],
)
def test_what_cannot_be_represented_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@REPEATABLE
@given(st.floats(0.5, 5), st.floats(0.1, 2))
def test_a_trained_network_claims_no_bound(low, width):
    assume(width > 0)
    network = log_network((low, low + width))
    with torch.no_grad():
        network.layers[-1].bias += 1.0
    with pytest.raises(ValueError, match="changed"):
        network.rounding_error(torch.tensor([[low]], dtype=torch.float64))


# ---- Propositions 1 to 3: widths, errors on fine grids, and the ReLU lower bound ----------------

REPEATABLE_LIPSCHITZ = settings(derandomize=True, deadline=None, max_examples=40)

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
@REPEATABLE_LIPSCHITZ
@given(lipschitz_functions(), st.floats(1.01, 60.0))
def test_error_is_below_epsilon_at_stated_width(kind, drawn, ratio):
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
def test_worst_step_function_comes_near_epsilon(kind):
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


def relu_hard_function(lipschitz, epsilon):
    """The zigzag of Eq. 57: -epsilon and epsilon by turns at k/N for N = floor(L / (2 epsilon))."""
    n = math.floor(lipschitz / (2 * epsilon) * (1 + 1e-12))
    return lambda x: epsilon - 2 * epsilon * np.abs(1 - np.mod(x * n, 2))


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


@REPEATABLE_LIPSCHITZ
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.sin, 0.0, 0.1), "lipschitz must be positive and finite, got 0.0"),
        ((np.sin, 1.0, math.inf), "epsilon must be positive and finite, got inf"),
        ((np.sin, 1.0, 0.1, "gelu"), "activation must be one of relu, pln"),
        ((lambda x: x[:-1], 1.0, 0.1), "finite number for each of the 6 points"),
        ((lambda x: x / 0 * 0 if False else x * np.nan, 1.0, 0.1), "6 that are not finite"),
        ((lambda x: 1e12 + x, 1.0, 0.1001 / 2), "rounding|float64"),
        ((np.sin, 1.0, 0.1, "relu", {"norm_size": 4}), "norm_size=4"),
        ((np.sin, 1.0, 0.1, "pln", {"norm_size": 1}), r"norm_size.*2.*PLN"),
    ],
)
def test_wrong_arguments(arguments, message):
    *given, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with pytest.raises(ValueError, match=message):
        lipschitz_network(*given, **options)
