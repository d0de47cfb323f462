"""Lemmas 0.1 and 0.2, theorem 0.3: exact but for rounding, against 50 digits of mpmath."""

import math
import re

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from combutab.activations import CombU
from combutab.constructions import (
    exp_network,
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
def test_exp_is_exact_to_rounding_at_the_top_of_its_domain(domain, shares):
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


def test_no_random_number_is_drawn():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    polynomial_network([1.0], [[2.0]], [(1, 2)])
    assert torch.equal(torch.get_rng_state(), before)


# ---- numerical limits ------------------------------------------------------------------------


def test_the_bound_grows_where_values_are_far_below_the_largest():
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
def test_an_exponent_that_overflows_is_refused_with_the_numbers(top):
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
        (lambda: log_network((1e-310, 1e-309)), "overflows float64"),
        (lambda: exp_network((1.0, 0.0)), "low <= high, got .1.0, 0.0."),
        (lambda: exp_network((0.0, math.inf)), "finite intervals"),
        (lambda: monomial_network([0.5], [(-1, 1)]), r"x0\*\*0.5 needs a positive base.*-1, 1"),
        (lambda: monomial_network([-1], [(-1, 1)]), r"x0\*\*-1 has a pole in the domain"),
        (lambda: monomial_network([300], [(1, 100)]), "reaches beyond float64"),
        (lambda: polynomial_network([1e308] * 2, [[1], [1]], [(1, 2)]), "beyond float64"),
        (lambda: monomial_network([301], [(-10.5, 0.1)]), "overflows|beyond float64"),
        (lambda: monomial_network([1, 2], [(1, 2)]), "a column for each of the 1 intervals"),
        (lambda: monomial_network([1], [1, 2]), "one pair .low, high."),
        (lambda: polynomial_network([1, 2], [[1]], [(1, 2)]), "each of the 2 coefficients"),
        (lambda: monomial_network([40] * 3, [(-1, 1)] * 3), "more than 10000 terms"),
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
    with pytest.raises(ValueError, match="changed since it was made"):
        network.rounding_error(torch.tensor([[low]], dtype=torch.float64))
