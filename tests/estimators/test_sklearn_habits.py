"""Code written for scikit-learn's networks: what its own tests ask of warm starts, partial_fit
and messages, after sklearn/neural_network/tests/test_mlp.py."""

import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import neural_network
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

import combutab
from combutab import MLPClassifier, MLPRegressor

X, Y = load_iris(return_X_y=True)
X_REG, Y_REG = make_regression(200, 10, bias=20.0, noise=100.0, random_state=7)
Y_REG = scale(Y_REG)
NAMES = ["MLPClassifier", "MLPRegressor"]
FIXED = {"early_stopping": False, "early_stopping_scoring": None, "learning_rate": "constant"}
# as scikit-learn's perceptron: its initial weights, the table's numbers as they are but for a scale
PLAIN = {
    **FIXED,
    "activation": "relu",
    "init": "xavier",
    "dropout": 0.0,
    "numeric_encoding": "standard",
    "numeric_embedding": "none",
    "scale_inputs": False,
    "learning_rate_factors": None,
    "regularization_schedule": "constant",
}


def both(name):
    return getattr(neural_network, name), getattr(combutab, name)


# ---- convergence ----------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("solver", ["sgd", "adam", "lbfgs"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_iter": 1},
        {"max_iter": 1, "n_iter_no_change": np.inf},
        {"max_iter": 1, "early_stopping": True},
        {"max_iter": 8, "tol": 1e9, "n_iter_no_change": 3},  # converges
    ],
    ids=lambda parameters: ", ".join(f"{n}={v}" for n, v in parameters.items()),
)
def test_each_part_of_a_warm_start_warns_where_scikit_learns_does(name, solver, parameters):
    if solver == "lbfgs" and "tol" in parameters:
        return  # gradients below tol at once: no step is made
    counts = []
    for cls in both(name):
        model = cls(
            hidden_layer_sizes=(4,), warm_start=True, random_state=0, solver=solver,
            **{**FIXED, "n_iter_no_change": 10, **parameters}
            if cls.__module__.startswith("combutab") else parameters,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            counts.append([])
            for _ in range(4):
                before = len(caught)
                model.fit(X, Y)
                counts[-1].append(len(caught) - before)
        assert all(issubclass(w.category, ConvergenceWarning) for w in caught)
    assert counts[0] == counts[1]
    assert counts[0] == [0 if "tol" in parameters else 1] * 4


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_start_that_diverges_keeps_the_weights_it_had_and_can_go_on(name):
    model = both(name)[1](
        **PLAIN | {"early_stopping": True, "numeric_encoding": "standard"},
        hidden_layer_sizes=(8,), solver="sgd", learning_rate_init=0.1, max_iter=30,
        n_iter_no_change=np.inf, warm_start=True, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        before = model.fit(X, Y).predict(X)
        best = model.best_validation_score_
    model.set_params(learning_rate_init=1e30)
    with pytest.warns(ConvergenceWarning, match="diverged; the weights of its best epoch"):
        model.fit(X, Y)
    assert np.isnan(model.validation_scores_[-1]) or model.validation_scores_[-1] < best
    assert_array_equal(model.predict(X), before)
    assert model.best_validation_score_ == best
    model.set_params(learning_rate_init=0.01)
    with pytest.warns(ConvergenceWarning, match="Maximum iterations"):
        model.fit(X, Y)
    assert model.best_validation_score_ >= best


# ---- partial_fit ----------------------------------------


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_partial_fit_learns_a_small_regression_with_scikit_learns_settings(momentum):
    settings = {
        "solver": "sgd",
        "hidden_layer_sizes": (100,),
        "learning_rate_init": 0.01,
        "batch_size": 200,
        "momentum": momentum,
        "random_state": 1,
    }
    ours = MLPRegressor(**PLAIN, **settings)
    theirs = neural_network.MLPRegressor(**settings)
    for _ in range(100):
        ours.partial_fit(X_REG, Y_REG)
        theirs.partial_fit(X_REG, Y_REG)
    whole = MLPRegressor(**PLAIN, **settings, max_iter=100, n_iter_no_change=np.inf)
    assert_allclose(whole.fit(X_REG, Y_REG).predict(X_REG), ours.predict(X_REG), rtol=1e-4)
    assert ours.score(X_REG, Y_REG) > max(0.65, theirs.score(X_REG, Y_REG) - 0.02)


def test_partial_fit_learns_a_small_regression_in_150_calls():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 3))
    y = 50.0 + 10 * (rows[:, 0] - 2 * rows[:, 1] + np.sin(2 * rows[:, 2]))
    ours = MLPRegressor(learning_rate_init=0.003, random_state=0, **FIXED)
    theirs = neural_network.MLPRegressor(learning_rate_init=0.003, random_state=0)
    for _ in range(150):
        ours.partial_fit(rows, y)
        theirs.partial_fit(scale(rows), scale(y))
    reference = theirs.score(scale(rows), scale(y))
    assert reference > 0.7
    assert ours.score(rows, y) > min(reference, 0.9) - 0.02


def test_partial_fit_goes_on_after_joblib(tmp_path):
    # the one row is encoded as 0, so that biases must be random
    settings = {**PLAIN, "hidden_layer_sizes": (42,), "learning_rate_init": 0.01, "init": "torch"}
    model = MLPRegressor(**settings, max_iter=200, n_iter_no_change=np.inf, random_state=42)
    model.fit([[2]], [4])
    assert_allclose(model.predict([[2]]), [4], rtol=0.02)
    joblib.dump(model, tmp_path / "mlp.pkl")
    loaded = joblib.load(tmp_path / "mlp.pkl")
    for _ in range(200):
        for each in (model, loaded):
            each.partial_fit([[2]], [1])
    assert_array_equal(loaded.predict([[2]]), model.predict([[2]]))
    assert_allclose(loaded.predict([[2]]), [1], rtol=1e-3)
    # in the midst of partial_fit, with momentum and all
    first = MLPClassifier(**settings | {"dropout": 0.2}, random_state=0)
    for _ in range(3):
        first.partial_fit(X, Y, classes=[0, 1, 2])
    joblib.dump(first, tmp_path / "mlp.pkl")
    second = joblib.load(tmp_path / "mlp.pkl")
    for each in (first, second):
        for _ in range(5):
            each.partial_fit(X, Y)
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_partial_fit_learns_a_class_that_comes_late():
    model = MLPClassifier(random_state=0, **FIXED)
    model.partial_fit([[1], [2], [3]], ["a", "b", "c"], classes=["a", "b", "c", "d"])
    model.partial_fit([[4]], ["d"])
    assert set(model.predict([[1], [2], [3], [4]])) <= set("abcd")


# ---- messages ----------------------------------------


def test_a_class_of_one_row_is_named_where_rows_are_set_aside():
    words = r"The least populated classes in y have only 1 member.*too few members are: \['%s'\]"
    for rows, y, name in [
        ([[1, 2], [2, 3], [3, 4], [4, 5]], [False, False, False, True], "True"),
        (X, np.where(np.arange(150) < 1, "rare", "usual"), "rare"),
        (X, np.where(np.arange(150) < 1, 7, 2), "7"),
    ]:
        with pytest.raises(ValueError, match=words % name):
            MLPClassifier(early_stopping=True).fit(rows, y)


def test_auto_sets_rows_aside_where_classes_are_too_many_or_too_small_to_stratify():
    settings = {**FIXED, "early_stopping": "auto", "hidden_layer_sizes": (4,), "max_iter": 2}
    rows = np.random.default_rng(0).normal(size=(240, 2))
    for y in (np.arange(240) % 60, np.minimum(np.arange(240), 1)):
        model = MLPClassifier(**settings, n_iter_no_change=np.inf, random_state=0).fit(rows, y)
        assert len(model.validation_scores_) == 2


def test_other_classes_in_a_warm_start_are_told_in_scikit_learns_words():
    for y, found in [
        (np.repeat([0, 1, 3], 50), r"\[0 1 3\]"),
        (np.repeat([0, 1], 75), r"\[0 1\]"),
        (np.arange(150) % 4, r"\[0 1 2 3\]"),
    ]:
        model = MLPClassifier(
            hidden_layer_sizes=2, max_iter=1, warm_start=True, random_state=0, **FIXED
        )
        with pytest.warns(ConvergenceWarning, match="Maximum iterations"):
            model.fit(X, Y)
        words = (
            "warm_start can only be used where `y` has the same classes as in the previous call "
            rf"to fit. Previously got \[0 1 2\], `y` has {found}"
        )
        with pytest.raises(ValueError, match=words):
            model.fit(X, y)


@pytest.mark.parametrize("name", NAMES)
def test_early_stopping_and_partial_fit_do_not_go_together(name):
    model = both(name)[1](
        **FIXED | {"early_stopping": True}, max_iter=2, n_iter_no_change=np.inf, random_state=0
    ).fit(X, Y)
    with pytest.raises(ValueError, match="partial_fit does not support early_stopping=True"):
        model.partial_fit(X, Y)


def test_too_small_a_table_for_validation_is_told():
    for n in (2, 8):
        with pytest.raises(ValueError, match="The validation set is too small"):
            MLPRegressor(early_stopping=True, validation_fraction=0.1).fit(X[:n], Y[:n])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_answers_are_float64_whatever_the_table_is(dtype):
    settings = {**FIXED, "hidden_layer_sizes": (5,), "max_iter": 2, "n_iter_no_change": np.inf}
    rows = X.astype(dtype)
    assert MLPRegressor(**settings).fit(rows, Y).predict(rows).dtype == np.float64
    proba = MLPClassifier(**settings).fit(rows, Y).predict_proba(rows)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-14)
