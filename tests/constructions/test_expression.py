"""Formulas as networks, and the laws of appendix A."""

import math

import mpmath
import numpy as np
import pandas as pd
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from combutab.constructions import (
    compose,
    exp_network,
    expression_network,
    linear_combination,
    log_network,
    monomial_network,
    polynomial_network,
    product,
)
from combutab.datasets import parse_formula

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)
DOMAIN = {"x": (-1.5, 2.0), "y": (0.25, 3.0)}


def sample(domain, n=40, seed=0):
    """Rows of a domain, its corners first."""
    low, high = np.array(list(domain.values()), dtype=float).T
    inner = np.random.default_rng(seed).uniform(low, high, size=(n, len(low)))
    return np.vstack([low, high, inner])


def check(network, formula, names, rows):
    """Every output is within the claimed error of 40 digits of the formula."""
    exact = sympy.lambdify([sympy.Symbol(n) for n in names], formula, "mpmath")
    x = torch.from_numpy(rows)
    with torch.no_grad():
        outputs, claimed = network(x)[:, 0].tolist(), network.rounding_error(x)[:, 0].tolist()
    with mpmath.workdps(40):
        for row, output, bound in zip(rows.tolist(), outputs, claimed, strict=True):
            assert abs(mpmath.mpf(output) - exact(*map(mpmath.mpf, row))) <= bound
    return max(claimed)


# Nodes that have a value whatever is put into them.
nodes = st.recursive(
    st.sampled_from(["x", "y", "0.75", "x - y", "-2", "1/y", "y**1.5"]),
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} * {})".format, inner, inner),
        st.builds("({} - 3*{})".format, inner, inner),
        st.builds("({} / (1 + ({})**2))".format, inner, inner),
        st.builds("({})**3".format, inner),
        st.builds("exp(-({})**2)".format, inner),
        st.builds("ln(2 + ({})**2)".format, inner),
        st.builds("sqrt(abs({}) + 0.5)".format, inner),
        st.builds("y**tanh({}/10)".format, inner),
        st.builds("cos({}/(2 + sin({})))".format, inner, inner),
    ),
    max_leaves=4,
)


@REPEATABLE
@given(nodes)
def test_random_formulas_are_exact_to_rounding(text):
    network = expression_network(text, DOMAIN)
    largest = check(network, parse_formula(text, DOMAIN), DOMAIN, sample(DOMAIN, 5))
    assert largest <= 1e-6 * max(1, *map(abs, network.output_range[0]))


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("x1**2 * exp(-x2) / x3", {"x1": (0.5, 5), "x2": (-1, 3), "x3": (0.1, 1)}),
        ("x1**2 * exp(-x2) / x3", {"x1": (-5, 5), "x2": (-1, 3), "x3": (-1, -0.1)}),
        (
            "A * T**n * exp(-E/(8.314*T))",
            {"A": (1, 9), "T": (250, 400), "n": (0, 2), "E": (0, 9e3)},
        ),
        ("m*c**2/sqrt(1-v**2/c**2)", {"m": (1, 5), "c": (3, 10), "v": (1, 2)}),
        ("exp(-((x-m)/s)**2/2)/(sqrt(2*pi)*s)", {"x": (-3, 3), "m": (-1, 1), "s": (0.5, 2)}),
        ("1/(1 + exp(-x))", {"x": (-10, 10)}),
        ("sinh(x) + cosh(x)*tanh(x)", {"x": (-2, 2)}),
        ("(1 + tanh(x/2))/2", {"x": (-500, 500)}),
        ("tanh(x)", {"x": (1, 40)}),
        ("y*tanh(-x)", {"x": (0, 1000), "y": (0, 1)}),
        ("2**x * x**2", {"x": (-3, 3)}),
        ("ln(x*y**2) - abs(x - y)", {"x": (0.5, 2), "y": (1, 3)}),
        ("x*0 + 3", {"x": (0, 1)}),
        ("x", {"x": (-1, 1)}),
        ("(x - y)**3 * (x + y)", {"x": (-1, 1), "y": (-1, 1)}),
        ("x**2 + x**2*y", {"x": (0, 1), "y": (0, 1)}),
    ],
)
def test_laws_of_textbooks(text, domain):
    network = expression_network(text, domain)
    check(network, parse_formula(text, domain), domain, sample(domain))
    assert network.inputs == tuple(domain)
    assert network.domain == tuple((float(a), float(b)) for a, b in domain.values())


def test_tanh_has_all_its_digits_on_any_domain():
    network = expression_network("tanh(x)", {"x": (-700, 700)})
    x = torch.linspace(-700, 700, 1401, dtype=torch.float64)[:, None]
    assert network.rounding_error(x).max() < 1e-12


def test_a_domain_on_which_rounding_leaves_nothing_is_refused():
    narrow = expression_network("1/(1 + exp(-x))", {"x": (-10, 10)})
    assert narrow.rounding_error(torch.full((1, 1), 10.0, dtype=torch.float64)) < 1e-6
    with pytest.raises(ValueError, match=r"may move the output by .* narrow the domain, write"):
        expression_network("1/(1 + exp(-x))", {"x": (-60, 60)})


def test_the_issue_s_formula_takes_two_layers():
    domain = {"x1": (0.5, 5), "x2": (0, 3), "x3": (0.1, 1)}
    network = expression_network("x1**2 * exp(-x2) / x3", domain)
    # two logarithms and x2 handed on, which is positive; one exponential of two units
    assert network.hidden_layer_sizes == (3, 2)


def test_what_is_said_twice_is_computed_once():
    once = expression_network("exp(x)*ln(y)", DOMAIN)
    twice = expression_network("exp(x)*ln(y) + 2*exp(x)*ln(y) - ln(y)*exp(x)", DOMAIN)
    assert twice.hidden_layer_sizes == once.hidden_layer_sizes


def test_a_sympy_expression_and_a_table_s_domain():
    x, y = sympy.symbols("x y", positive=True)
    table = pd.DataFrame({"y": [1.0, 4.0, 2.0], "x": [3, 1, 2], "unused": [0.0, -1.0, 1.0]})
    table["name"] = ["a", "b", "c"]
    network = expression_network(sympy.sqrt(x) / y, table)
    assert network.inputs == ("y", "x", "unused")
    assert network.domain == ((1.0, 4.0), (1.0, 3.0), (-1.0, 1.0))
    with torch.no_grad():
        outputs = network(
            torch.tensor(table[["y", "x", "unused"]].to_numpy(), dtype=torch.float64)
        )[:, 0]
    np.testing.assert_allclose(outputs, [math.sqrt(3), 1 / 4, math.sqrt(2) / 2], rtol=1e-13)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tan(x)", r"cos\(x\)\)?\*\*-1 has a pole in the domain"),
        ("arcsin(x)", r"in asin\(x\): its slope is infinite.* x lies in \(-1.5, 2\)"),
        ("y*arccos(y/3)", r"in acos\(y/3\): .*lies in \(0.0833333, 1\)"),
        ("ln(x)", r"in ln\(x\): ln\(z\) needs z > 0, but z reaches -1.5"),
        ("sqrt(x)", r"in sqrt\(x\): x\*\*0.5 needs a positive base, and x lies in \(-1.5, 2\)"),
        ("y + 1/(x*y)", r"x\*\*-1 has a pole in the domain"),
        ("x**y", r"needs z > 0"),
        ("exp(400*x)", r"in exp\(400\*x\): .*overflows"),
        ("sqrt(-y)", r"needs a positive base"),
        ("z*2", "unknown name 'z'"),
        ("x +", "cannot be parsed"),
        ("__import__('os')", "only .* can be called"),
    ],
)
def test_what_cannot_be_built_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        expression_network(text, DOMAIN)


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match="the variable z, and domain has only x, y"):
        expression_network(sympy.Symbol("z") + 1, DOMAIN)
    with pytest.raises(ValueError, match="I is not a finite real number"):
        expression_network(sympy.sqrt(-2) + sympy.Symbol("x"), DOMAIN)
    with pytest.raises(ValueError, match="at least one input"):
        expression_network("1", {})
    with pytest.raises(ValueError, match="finite intervals"):
        expression_network("x", {"x": (0, math.nan)})


# ---- the laws ------------------------------------------------------------------------------------


@settings(REPEATABLE, max_examples=20)
@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-3, 3), st.floats(0, 1))
def test_sums_products_and_compositions(a, b, bias, share):
    domain = (0.5, 2.0)
    exp, log, square = exp_network(domain), log_network(domain), monomial_network([2], [domain])
    x = 0.5 + 1.5 * share
    rows = np.array([[x]])
    f = sympy.Symbol("x")
    total = linear_combination([exp, log, square], [a, b, 1], bias)
    check(total, a * sympy.exp(f) + b * sympy.log(f) + f**2 + bias, ["x"], rows)
    check(product([exp, log, square]), sympy.exp(f) * sympy.log(f) * f**2, ["x"], rows)
    outer = polynomial_network([1, a], [[1, -1], [0, 2]], [(-1, 1), (1.6, 7.4)])
    check(
        compose(outer, [log, exp]), sympy.log(f) / sympy.exp(f) + a * sympy.exp(2 * f), ["x"], rows
    )


def test_deeper_networks_hand_negative_and_positive_values_on():
    domain = (-2.0, 3.0)
    line = monomial_network([1], [domain])
    tower = compose(log_network((1, 21)), [exp_network((0, 3))])
    assert line.hidden_layer_sizes == ()
    deep = linear_combination(
        [line, compose(log_network((0.1, 21)), [exp_network(domain)])], [1.0, 1.0]
    )
    assert len(deep.hidden_layer_sizes) == len(tower.hidden_layer_sizes) == 2
    x = torch.linspace(-2, 3, 11, dtype=torch.float64)[:, None]
    np.testing.assert_allclose(deep(x).detach(), 2 * x, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compose(log_network((1, 2)), [exp_network((0, 1))]), "from 1 to 2.71828, beyond"),
        (
            lambda: compose(exp_network((0, 3)), [exp_network((0, 1))] * 2),
            "1 inputs, inner gives 2",
        ),
        (lambda: product([exp_network((0, 1)), exp_network((0, 2))]), "same inputs and domain"),
        (lambda: product([]), "at least one network"),
        (
            lambda: linear_combination([exp_network((0, 1))], [1, 2]),
            "2 coefficients for 1 networks",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
