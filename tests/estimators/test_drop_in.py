"""A program that swaps only the import: parameters, attributes and behaviour of scikit-learn's."""

import inspect
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import neural_network
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import combutab
from combutab import MLPClassifier, MLPRegressor, paper_recipe

INF = float("inf")


QUICK = {"hidden_layer_sizes": (8, 6), "max_iter": 5, "n_iter_no_change": INF, "random_state": 0}


PLAIN_INPUTS = {"numeric_embedding": "none", "scale_inputs": False}


IRIS = load_iris(return_X_y=True)


DIABETES = load_diabetes(return_X_y=True)


def _kinds(rng):
    X = rng.normal(size=(60, 4))
    labels = rng.integers(0, 2, size=(60, 3))
    return {
        "binary": (X, labels[:, 0]),
        "three classes": (X, labels.sum(1) % 3),
        "multi-label": (X, labels),
        "one target": (X, X @ [1.0, 2, 3, 4]),
        "two targets": (X, X[:, :2] * 3.0),
    }


KINDS = _kinds(np.random.default_rng(0))


REGRESSION = {"one target", "two targets"}


def both(kind):
    name = "MLPRegressor" if kind in REGRESSION else "MLPClassifier"
    return getattr(neural_network, name), getattr(combutab, name)


def _fit(cls, kind, **parameters):
    X, y = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cls(
            **{"hidden_layer_sizes": (8, 6), "max_iter": 5, "random_state": 0, **parameters}
        ).fit(X, y)


# ---- parameters ----------------------------------------


@pytest.mark.parametrize("name", ["MLPClassifier", "MLPRegressor"])
def test_parameters_have_scikit_learns_names_positions_and_kinds(name):
    theirs = list(inspect.signature(getattr(neural_network, name)).parameters.values())
    ours = list(inspect.signature(getattr(combutab, name)).parameters.values())
    assert [(p.name, p.kind) for p in ours[: len(theirs)]] == [(p.name, p.kind) for p in theirs]


@pytest.mark.parametrize("name", ["MLPClassifier", "MLPRegressor"])
def test_methods_take_scikit_learns_arguments(name):
    theirs, ours = getattr(neural_network, name), getattr(combutab, name)
    public = [n for n, f in vars(theirs).items() if not n.startswith("_") and callable(f)]
    assert {"fit", "predict", "partial_fit"} <= set(dir(theirs))
    for method in {*public, "fit", "predict", "score", "partial_fit"}:
        if not hasattr(ours, method):  # partial_fit is behind a descriptor
            assert hasattr(ours(), method), method
        expected = list(inspect.signature(getattr(theirs(), method)).parameters)
        got = list(inspect.signature(getattr(ours(), method)).parameters)
        assert [n for n in got if n in expected] == expected, method


# scikit-learn's values of parameters that both have
VALUES = [
    {"hidden_layer_sizes": 7},
    {"hidden_layer_sizes": [5, 4]},
    {"hidden_layer_sizes": np.array([5, 4])},
    {"hidden_layer_sizes": ()},
    *({"activation": a} for a in ("identity", "logistic", "tanh", "relu")),
    *({"solver": "sgd", "learning_rate": r} for r in ("constant", "invscaling", "adaptive")),
    {"solver": "sgd", "momentum": 0.5, "nesterovs_momentum": False},
    {"solver": "sgd", "momentum": 0},
    {"solver": "lbfgs", "max_fun": 10},
    {"batch_size": 7, "shuffle": False},
    {"alpha": 0, "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-4},
    {"tol": 0, "n_iter_no_change": 2},
    {"early_stopping": True, "validation_fraction": 0.3},
    {"random_state": np.random.RandomState(3)},
    {"verbose": False, "power_t": 0.25, "warm_start": True},
]
TAKEN = [("three classes", values) for values in VALUES]
TAKEN += [("two targets", values) for values in VALUES[::5]]


@pytest.mark.parametrize(("kind", "values"), TAKEN)
def test_every_value_of_scikit_learn_is_taken(kind, values):
    _fit(both(kind)[0], kind, **values)  # it is one of theirs
    model = _fit(both(kind)[1], kind, **values)
    assert np.isfinite(model.predict(KINDS[kind][0])).all()


# ---- attributes ----------------------------------------


def _describe(value):
    if isinstance(value, list):
        return [np.shape(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.kind
    return type(value).__mro__[-2].__name__ if not np.isscalar(value) else "scalar"


# a kind of target, a solver and early stopping are told apart nowhere: not each with each
@pytest.mark.parametrize(
    ("kind", "solver", "early_stopping"),
    [
        ("binary", "adam", False),
        ("three classes", "adam", True),
        ("three classes", "lbfgs", True),
        ("multi-label", "sgd", False),
        ("one target", "adam", True),
        ("one target", "sgd", False),
        ("two targets", "lbfgs", True),
        ("two targets", "adam", False),
    ],
)
def test_attributes_after_fit_are_those_of_scikit_learn(kind, solver, early_stopping):
    settings = {"solver": solver, "early_stopping": early_stopping}
    settings |= {"n_iter_no_change": 10, "validation_fraction": 0.1}
    theirs = _fit(both(kind)[0], kind, **settings)
    # theirs have one row of weights a column
    ours = _fit(both(kind)[1], kind, **settings, numeric_embedding="none")
    public = [n for n in vars(theirs) if n.endswith("_") and not n.startswith("_")]
    assert {"coefs_", "loss_", "n_iter_", "t_", "n_layers_"} <= set(public)
    for name in public:
        assert _describe(getattr(ours, name)) == _describe(getattr(theirs, name)), name
    exact = ["n_layers_", "n_outputs_", "out_activation_", "n_features_in_"]
    if solver != "lbfgs":  # whose steps depend on the start
        exact += ["n_iter_", "t_"]
    for name in exact:
        assert getattr(ours, name) == getattr(theirs, name), name
    if hasattr(theirs, "classes_"):
        assert_array_equal(ours.classes_, theirs.classes_)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_have_scikit_learns_shapes_and_kinds(kind):
    theirs, ours = (_fit(cls, kind) for cls in both(kind))
    X = KINDS[kind][0][:7]
    for method in ("predict", "predict_proba", "predict_log_proba"):
        if hasattr(theirs, method):
            expected, got = getattr(theirs, method)(X), getattr(ours, method)(X)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), method


def test_coefs_and_intercepts_are_the_network():
    X, y = KINDS["two targets"]
    own = {"activation": "tanh", "precision": "float64", "clip_predictions": False}
    model = _fit(MLPRegressor, "two targets", **own, **PLAIN_INPUTS)
    h = model.encoder_.encode(X).dense.astype(float)
    for i, (w, b) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        h = h @ w + b
        if i < len(model.coefs_) - 1:
            h = np.tanh(h)
    assert_allclose(model.predict(X), h * y.std(0) + y.mean(0), rtol=1e-10)


def test_coefs_include_the_factor_of_ntk():
    X, _ = KINDS["three classes"]
    own = {"activation": "relu", "init": "ntk", "precision": "float64"}
    model = _fit(MLPClassifier, "three classes", **own, **PLAIN_INPUTS)
    h = model.encoder_.encode(X).dense.astype(float)
    for i, (w, b) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        h = h @ w + b
        h = np.maximum(h, 0) if i < len(model.coefs_) - 1 else h
    expected = np.exp(h) / np.exp(h).sum(1, keepdims=True)
    assert_allclose(model.predict_proba(X), expected, rtol=1e-9)


# ---- early stopping, convergence, divergence ----------------------------------------


def test_early_stopping_stratifies_and_restores_best_weights():
    X, y = load_breast_cancer(return_X_y=True)
    seen = []

    class Spy(MLPClassifier):
        def _make_job(self, prepared, *mode):
            seen.append(prepared)
            return super()._make_job(prepared, *mode)

    settings = {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": INF}
    settings |= {"hidden_layer_sizes": (16,), "max_iter": 30, "learning_rate_init": 0.01}
    model = Spy(**paper_recipe("classification", **settings, random_state=1)).fit(X, y)
    (prepared,) = seen
    labels = prepared.rows.y.reshape(-1).numpy()
    ((train_rows, val_rows),) = prepared.splits
    train, val = labels[train_rows], labels[val_rows]
    assert len(val) == 114
    assert len(train) + len(val) == len(y)
    assert abs(val.mean() - y.mean()) < 0.01
    # of the rows that were set aside, the network that is left has the score it claims
    rows = prepared.rows.dense[val_rows]
    net = model.network()
    right = (net(rows[None])[0, :, 0] > 0).numpy() == val
    assert right.mean() == model.best_validation_score_ == max(model.validation_scores_)
    assert len(model.validation_scores_) == model.n_iter_ == 30
    assert model.validation_scores_[-1] < model.best_validation_score_, "vacuous: last is best"
    assert model.best_loss_ is None


def test_training_stops_when_the_validation_score_stalls():
    X, y = IRIS
    model = MLPClassifier(
        hidden_layer_sizes=(16,),
        max_iter=500,
        early_stopping=True,
        early_stopping_scoring="accuracy",
        learning_rate_init=0.01,
        n_iter_no_change=5,
        random_state=0,
    ).fit(X, y)
    assert model.n_iter_ < 500
    tail = np.array(model.validation_scores_)
    assert (tail[-6:] < tail[:-6].max() + 1e-4).all()


def test_validation_set_of_one_row_is_refused():
    X, y = DIABETES
    with pytest.raises(ValueError, match="validation"):
        MLPRegressor(early_stopping=True, validation_fraction=0.1).fit(X[:9], y[:9])
    with pytest.raises(ValueError, match="validation"):
        MLPRegressor(early_stopping=True, validation_fraction=0.0).fit(X, y)


def test_lbfgs_does_not_stop_early():
    X, y = IRIS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        parameters = {**QUICK, "solver": "lbfgs", "max_iter": 30}
        plain = MLPClassifier(**parameters).fit(X, y)
        stopping = MLPClassifier(**parameters, early_stopping=True).fit(X, y)
    assert stopping.loss_ == plain.loss_
    assert stopping.best_validation_score_ is None
    with pytest.raises(ValueError, match=r"lbfgs.*takes no X_val"):
        MLPClassifier(solver="lbfgs").fit(X, y, X_val=X, y_val=y)


def test_an_unfinished_fit_warns_as_scikit_learns():
    X, y = DIABETES
    small = {"hidden_layer_sizes": (8,), "early_stopping": False, "learning_rate": "constant"}
    with pytest.warns(ConvergenceWarning, match=r"Maximum iterations \(3\) reached") as caught:
        MLPRegressor(**small, max_iter=3, n_iter_no_change=10, random_state=0).fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # the caller's line, not one of ours
    MLPRegressor(**small, max_iter=3, n_iter_no_change=INF).fit(X, y)  # asked for
    small["learning_rate"] = "coslog4"  # whose last step is at a rate of nothing
    MLPRegressor(**small, max_iter=3, n_iter_no_change=10).fit(X, y)
    converged = MLPRegressor(**small, tol=1e9, n_iter_no_change=2).fit(X, y)
    assert converged.n_iter_ == 4  # the first improves on infinity, then more than two do not


@pytest.mark.parametrize("settings", [{"n_iter_no_change": 2}, {"solver": "lbfgs"}])
def test_members_that_have_not_converged_are_named(settings):
    X, y = DIABETES
    settings = {**settings, "early_stopping": False, "learning_rate": "constant", "max_iter": 4}
    model = MLPRegressor(hidden_layer_sizes=(4,), n_members=7, random_state=0, **settings)
    with pytest.warns(
        ConvergenceWarning, match=r"converge.* \(7 of 7 members: 0, 1, 2, 3, 4 and 2 more\)$"
    ) as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("n_members", [1, 3])
def test_divergence_raises_an_error(n_members):
    X, y = DIABETES
    settings = {"solver": "sgd", "activation": "relu", "scale_target": False}
    settings |= {"n_members": n_members, "clip_predictions": False}
    model = MLPRegressor(**paper_recipe("regression", **QUICK, **settings)).fit(X, y)
    model.set_params(learning_rate_init=1e20)
    with pytest.raises(ValueError, match=r"learning_rate_init=1e\+20"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):  # rather than old weights beside a new encoder
        model.predict(X)


def test_a_refit_forgets_what_came_before():
    X, y = IRIS
    model = MLPClassifier(**QUICK).fit(X, y)
    again = model.fit(X[:100, :2], np.array(["a", "b"])[y[:100]])
    assert again is model
    assert model.n_features_in_ == 2
    assert model.classes_.tolist() == ["a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(solver="lbfgs").fit(X, y)
    assert not hasattr(model, "loss_curve_")


def test_a_batch_larger_than_the_data_warns():
    X, y = DIABETES
    with pytest.warns(UserWarning, match="442"):
        MLPRegressor(**QUICK, batch_size=1000, early_stopping=False).fit(X, y)


def test_verbose_prints_scikit_learns_lines(capsys):
    X, y = IRIS
    MLPClassifier(**QUICK, verbose=True, early_stopping=True).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("Iteration 1, loss = ")
    assert lines[1].startswith("Validation score: ")
    MLPClassifier(**QUICK).fit(X, y)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("init", ["torch", "ntk"])
def test_weights_are_for_reading(init):
    net = _fit(MLPClassifier, "three classes", init=init)
    for array in (*net.coefs_, *net.intercepts_):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
