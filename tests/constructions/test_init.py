"""Estimators that start from a constructed network: predictions, units, files, refusals."""

import math
import pickle

import mpmath
import numpy as np
import pandas as pd
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, load
from combutab.activations import CombU, ComplexCombU
from combutab.constructions import (
    ConstructedNetwork,
    compose,
    cos_network,
    exp_network,
    expression_network,
    linear_combination,
    log_network,
    monomial_network,
    polynomial_network,
    product,
    sin_network,
)
from combutab.datasets import parse_formula

pytestmark = pytest.mark.usefixtures("paper_defaults")

DOMAIN = {"x1": (1.0, 5.0), "x2": (0.0, 3.0), "x3": (0.5, 2.0)}

UNTRAINED = {  # one step of no length
    "max_iter": 1,
    "learning_rate_init": 1e-300,
    "n_iter_no_change": float("inf"),
    "dropout": 0,
    "alpha": 0,
    "precision": "float64",
    "random_state": 0,
}


def law(x1, x2, x3):
    return x1**2 * np.exp(-x2) / x3


def network():
    return expression_network("x1**2 * exp(-x2) / x3", DOMAIN)


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({name: rng.uniform(*ends, n) for name, ends in DOMAIN.items()})
    return X, law(X["x1"], X["x2"], X["x3"]).rename("y")


def untrained(**parameters):
    return MLPRegressor(**{**UNTRAINED, "init": network(), **parameters})


def assert_the_law(model, X, y):
    # rows are encoded in float32, so no better than that
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-4, atol=1e-5 * np.abs(y).max())


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"numeric_encoding": "none"},
        {"scale_target": False},
        {"loss": "huber"},
        {"n_members": 3},
        {"hidden_layer_sizes": (32, 16)},
        {"hidden_layer_sizes": (32, 16, 20, 12)},
        {
            "hidden_layer_sizes": (16, 8),
            "activation": lambda w: CombU(w, {"nlrelu": 0.4, "relu": 0.3, "elu": 0.3}),
        },
        {"solver": "lbfgs", "max_iter": 1, "max_fun": 1},
    ],
)
def test_untrained_estimator_predicts_in_user_units(parameters):
    X, y = table()
    y = 1e3 * y + 7  # far from standard units
    init = expression_network("1000 * x1**2 * exp(-x2) / x3 + 7", DOMAIN)
    model = untrained(init=init, **parameters).fit(X, y)
    assert_the_law(model, *table(seed=1)[:1], 1e3 * table(seed=1)[1] + 7)


def test_formula_columns_are_found_by_name():
    X, y = table()
    X["city"] = np.where(np.arange(len(X)) % 3, "Rome", "Oslo")
    X["noise"] = np.random.default_rng(2).normal(size=len(X))
    X = X[["noise", "x3", "city", "x1", "x2"]]
    X.loc[3, "noise"] = np.nan
    assert_the_law(untrained().fit(X, y), X, y)


def test_a_table_without_names_is_taken_in_order():
    X, y = table()
    assert_the_law(untrained().fit(X.to_numpy(), y), X.to_numpy(), y)
    init = monomial_network([2, 0, -1], list(DOMAIN.values()))
    assert_the_law(untrained(init=init).fit(X, y), X, X["x1"] ** 2 / X["x3"])


def test_auto_takes_the_smallest_layers_of_combu():
    model = untrained().fit(*table())
    assert [w.shape for w in model.coefs_] == [(3, 6), (6, 3), (3, 1)]
    # x2 on, two logarithms (a quarter of 6 is rounded to 2); and exp's two units (of 3, 1 is ELU)
    assert network().hidden_layer_sizes == (3, 2)


def test_spare_units_differ_by_seed():
    models = [
        untrained(hidden_layer_sizes=(16, 8), random_state=seed).fit(*table()) for seed in (0, 1)
    ]
    first, other = (model.coefs_ for model in models)
    assert (first[0] != other[0]).any()
    # outputs of the law, and zeros for the rest, but for a step of 1e-300
    np.testing.assert_allclose(first[2], other[2], rtol=0, atol=1e-299)
    assert (np.abs(first[2]) > 1e-9).sum() == 2


def test_a_classifier_starts_from_logits():
    X, y = table()
    labels = np.where(np.log(y) > 0.5, "high", "low")
    init = expression_network("-(2*ln(x1) - x2 - ln(x3) - 0.5) * 3", DOMAIN)
    model = MLPClassifier(**{**UNTRAINED, "init": init}).fit(X, labels)
    assert model.classes_.tolist() == ["high", "low"]
    logit = -3 * (np.log(y) - 0.5)  # of the second class
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-logit)), atol=1e-4)


def test_clone_search_and_files(tmp_path):
    X, y = table()
    model = untrained()
    again = clone(model)
    assert again.init is not model.init
    assert_the_law(again.fit(X, y), X, y)
    again.save(tmp_path / "law.safetensors")
    loaded = load(tmp_path / "law.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict(X), again.predict(X))
    x = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)
    assert torch.equal(loaded.init(x), again.init(x))
    assert loaded.init.inputs == ("x1", "x2", "x3")
    assert torch.equal(loaded.init.rounding_error(x), again.init.rounding_error(x))
    pickled = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(pickled.predict(X), again.predict(X))
    search = StackedGridSearchCV(untrained(), {"init": ["torch", network()]}, cv=2, refit=False)
    search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] > 0.999 > scores[0]


def test_partial_fit_goes_on_from_what_was_learned():
    X, y = table()
    model = untrained(learning_rate_init=1e-3)
    model.partial_fit(X, y + 5)
    first = model.predict(X)
    model.partial_fit(X, y + 5)
    assert not np.array_equal(model.predict(X), first)
    assert np.abs(model.predict(X) - y).mean() < 5


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dropout": 0.1}, "needs dropout=0, got 0.1"),
        ({"normalization": "layer"}, "needs normalization='none', got 'layer'"),
        ({"numeric_encoding": "quantile"}, "numeric_encoding='standard' or 'none'"),
        ({"activation": "relu"}, "needs activation='combu'.*got 'relu'"),
        ({"activation": "combu-random"}, "contiguous"),
        ({"activation": lambda w: CombU(w, {"relu": 0.5, "elu": 0.5})}, "no place for them"),
        ({"hidden_layer_sizes": (4,)}, r"6.*3.*activation='combu'"),
        ({"hidden_layer_sizes": (4, 4)}, "1 relu and 2 nlrelu units; 1 relu and 1 elu units"),
        ({"loss": "poisson"}, "got 'poisson'"),
        ({"init": log_network((1, 2))}, "init takes x0, and the table has x1, x2, x3"),
    ],
)
def test_what_would_take_the_law_apart_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        untrained(**parameters).fit(*table())


def test_formula_beyond_single_precision_is_refused():
    init = expression_network("1/(1 + exp(-x))", {"x": (-20, 20)})
    X = np.linspace(-20, 20, 50)[:, None]
    y = 1 / (1 + np.exp(-X[:, 0]))
    with pytest.raises(ValueError, match="init=network"):
        untrained(init=init, precision="float32").fit(X, y)
    assert_the_law(untrained(init=init).fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore:nothing is learned from")
def test_columns_that_cannot_be_its_inputs_are_refused():
    X, y = table()
    with pytest.raises(ValueError, match=r"x3.*constant"):
        untrained().fit(X.assign(x3=1.0), y)
    with pytest.raises(ValueError, match="init takes x3 for a number"):
        untrained(categorical_features=["x3"], min_frequency=1).fit(X, y)
    with pytest.raises(ValueError, match="2 columns"):
        untrained().fit(X.to_numpy()[:, :2], y)
    with pytest.raises(ValueError, match=r"1 outputs.*2"):
        untrained().fit(X, np.column_stack([y, y]))


# ---- Formulas as networks, and the laws of appendix A -------------------------------------------

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=60)

FORMULA_DOMAIN = {"x": (-1.5, 2.0), "y": (0.25, 3.0)}


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
    network = expression_network(text, FORMULA_DOMAIN)
    largest = check(
        network, parse_formula(text, FORMULA_DOMAIN), FORMULA_DOMAIN, sample(FORMULA_DOMAIN, 5)
    )
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


def test_degenerate_domain_is_refused():
    narrow = expression_network("1/(1 + exp(-x))", {"x": (-10, 10)})
    assert narrow.rounding_error(torch.full((1, 1), 10.0, dtype=torch.float64)) < 1e-6
    with pytest.raises(ValueError, match="domain"):
        expression_network("1/(1 + exp(-x))", {"x": (-60, 60)})


def test_the_issue_s_formula_takes_two_layers():
    domain = {"x1": (0.5, 5), "x2": (0, 3), "x3": (0.1, 1)}
    network = expression_network("x1**2 * exp(-x2) / x3", domain)
    # two logarithms and x2 handed on, which is positive; one exponential of two units
    assert network.hidden_layer_sizes == (3, 2)


def test_what_is_said_twice_is_computed_once():
    once = expression_network("exp(x)*ln(y)", FORMULA_DOMAIN)
    twice = expression_network("exp(x)*ln(y) + 2*exp(x)*ln(y) - ln(y)*exp(x)", FORMULA_DOMAIN)
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
        ("y*arccos(y/3)", r"3.*0.0833333.*1"),
        ("ln(x)", r"in ln\(x\): ln\(z\) needs z > 0, but z reaches -1.5"),
        ("y + 1/(x*y)", r"x\*\*-1 has a pole in the domain"),
        ("x**y", r"needs z > 0"),
        ("exp(400*x)", "400"),
        ("z*2", "unknown name 'z'"),
    ],
)
def test_what_cannot_be_built_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        expression_network(text, FORMULA_DOMAIN)


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match=r"z.*x, y"):
        expression_network(sympy.Symbol("z") + 1, FORMULA_DOMAIN)
    with pytest.raises(ValueError, match="I is not a finite real number"):
        expression_network(sympy.sqrt(-2) + sympy.Symbol("x"), FORMULA_DOMAIN)
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
        (lambda: compose(log_network((1, 2)), [exp_network((0, 1))]), r"1.*2.71828"),
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


# ---- Sines, cosines and arcs as networks of complex units: exact to rounding, and as starts -----

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


def test_sine_and_cosine_share_a_unit_pair():
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
    with pytest.raises(ValueError, match="activation='complex-combu'"):
        MLPRegressor(activation="combu", hidden_layer_sizes="auto", **settings).fit(X, y)
    with pytest.raises(ValueError, match="needs an even width"):
        MLPRegressor(activation="complex-combu", hidden_layer_sizes=(7,), max_iter=1).fit(X, y)
