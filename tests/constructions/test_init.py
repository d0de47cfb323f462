"""Estimators that start from a constructed network: predictions, units, files, refusals."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, load
from combutab.activations import CombU
from combutab.constructions import (
    expression_network,
    log_network,
    monomial_network,
    polynomial_network,
)

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
def test_an_untrained_estimator_predicts_the_law_in_the_user_s_units(parameters):
    X, y = table()
    y = 1e3 * y + 7  # far from standard units
    init = expression_network("1000 * x1**2 * exp(-x2) / x3 + 7", DOMAIN)
    model = untrained(init=init, **parameters).fit(X, y)
    assert_the_law(model, *table(seed=1)[:1], 1e3 * table(seed=1)[1] + 7)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.data())
def test_any_polynomial_any_columns(data):
    n = data.draw(st.integers(1, 3))
    numbers = st.floats(-2, 2)
    powers = data.draw(st.lists(st.tuples(*[numbers] * n), min_size=1, max_size=3))
    coefficients = [data.draw(st.floats(0.5, 2)) for _ in powers]
    init = polynomial_network(coefficients, powers, [(0.5, 2.0)] * n)
    X = np.random.default_rng(0).uniform(0.5, 2.0, (64, n))
    y = sum(c * np.prod(X**p, axis=1) for c, p in zip(coefficients, powers, strict=True))
    y = y + np.linspace(0, 1e-3, 64)  # not constant
    model = untrained(init=init).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-3, atol=2e-3)


def test_columns_are_found_by_name_and_others_left_alone():
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


def test_units_left_over_differ_by_seed_and_are_not_read():
    models = [
        untrained(hidden_layer_sizes=(16, 8), random_state=seed).fit(*table()) for seed in (0, 1)
    ]
    first, other = (model.coefs_ for model in models)
    assert (first[0] != other[0]).any()
    # outputs of the law, and zeros for the rest, but for a step of 1e-300
    np.testing.assert_allclose(first[2], other[2], rtol=0, atol=1e-299)
    assert (np.abs(first[2]) > 1e-9).sum() == 2


def test_fitting_goes_on_from_the_law():
    """A law of a wrong constant and a missing term: nearer to the truth than without a start."""
    X, _ = table(150)
    X_new, _ = table(400, seed=1)

    def truth(X):
        return 1.2 * law(X["x1"], 0.9 * X["x2"], X["x3"]) + 0.3 * np.sin(2 * X["x1"])

    parameters = {
        "dropout": 0,
        "alpha": 0,
        "hidden_layer_sizes": (24, 12),
        "batch_size": 50,
        "max_iter": 150,
        "learning_rate_init": 0.002,
        "n_iter_no_change": float("inf"),
        "random_state": 0,
    }

    def error(model):
        return float(np.mean((model.predict(X_new) - truth(X_new)) ** 2))

    at_start = error(untrained().fit(X, truth(X)))
    fitted = error(MLPRegressor(init=network(), **parameters).fit(X, truth(X)))
    from_noise = error(MLPRegressor(**parameters).fit(X, truth(X)))
    assert fitted < at_start / 5
    assert fitted < from_noise / 2


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
        ({"hidden_layer_sizes": (4,)}, r"at least \(6, 3\) with activation='combu'"),
        ({"hidden_layer_sizes": (4, 4)}, "1 relu and 2 nlrelu units; 1 relu and 1 elu units"),
        ({"loss": "poisson"}, "got 'poisson'"),
        ({"loss": "quantile"}, "got 'quantile'"),
        ({"init": log_network((1, 2))}, "init takes x0, and the table has x1, x2, x3"),
        ({"init": "law"}, "init"),
    ],
)
def test_what_would_take_the_law_apart_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        untrained(**parameters).fit(*table())


def test_a_law_that_single_precision_does_not_hold_is_refused():
    init = expression_network("1/(1 + exp(-x))", {"x": (-20, 20)})
    X = np.linspace(-20, 20, 50)[:, None]
    y = 1 / (1 + np.exp(-X[:, 0]))
    with pytest.raises(ValueError, match=r"init=network cannot start.*rounding in float32"):
        untrained(init=init, precision="float32").fit(X, y)
    assert_the_law(untrained(init=init).fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore:nothing is learned from")
def test_columns_that_cannot_be_its_inputs_are_refused():
    X, y = table()
    with pytest.raises(ValueError, match="init takes x3, which is constant"):
        untrained().fit(X.assign(x3=1.0), y)
    with pytest.raises(ValueError, match="init takes x3 for a number"):
        untrained(categorical_features=["x3"], min_frequency=1).fit(X, y)
    with pytest.raises(ValueError, match="the table has 2 columns without names"):
        untrained().fit(X.to_numpy()[:, :2], y)
    with pytest.raises(ValueError, match="init has 1 outputs, and the estimator 2"):
        untrained().fit(X, np.column_stack([y, y]))
