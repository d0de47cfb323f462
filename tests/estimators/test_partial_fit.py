"""partial_fit and warm_start go on from what was learned, as scikit-learn's do."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from combutab import MLPClassifier, MLPRegressor
from tests.estimators.test_drop_in import DIABETES, IRIS, KINDS, QUICK, both

pytestmark = pytest.mark.usefixtures("paper_defaults")


def test_first_partial_fit_needs_classes():
    X, y = IRIS
    with pytest.raises(ValueError, match=r"classes.*first call"):
        MLPClassifier().partial_fit(X, y)
    model = MLPClassifier(**QUICK).partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    assert_array_equal(model.classes_, [0, 1, 2])
    assert model.predict_proba(X).shape == (150, 3)
    model.partial_fit(X[60:], y[60:])
    model.partial_fit(X, y, classes=[0, 1, 2])  # the same again is fine
    with pytest.raises(ValueError, match="last call"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"classes not in `self.classes_`.*5"):
        model.partial_fit(X[:3], [0, 1, 5])


def test_partial_fit_calls_equal_epochs_of_fit():
    X, y = DIABETES
    parameters = {**QUICK, "batch_size": 50, "precision": "float64"}
    for solver in ("adam", "sgd"):
        whole = MLPRegressor(**parameters, solver=solver).fit(X, y)
        steps = MLPRegressor(**parameters, solver=solver)
        for _ in range(QUICK["max_iter"]):
            steps.partial_fit(X, y)
        assert (steps.n_iter_, steps.t_) == (whole.n_iter_, whole.t_)
        assert steps.history_["epoch"].tolist() == [whole.n_iter_]  # the last call's
        assert_allclose(steps.loss_curve_, whole.loss_curve_, rtol=1e-12)
        assert_allclose(steps.predict(X), whole.predict(X), rtol=1e-12)


@pytest.mark.parametrize("learning_rate", ["invscaling", "adaptive"])
def test_partial_fit_goes_on_with_its_learning_rate(learning_rate):
    X, y = DIABETES
    parameters = {
        **QUICK,
        "solver": "sgd",
        "learning_rate": learning_rate,
        "tol": 1e9,  # no epoch improves
        "n_iter_no_change": 1,
        "precision": "float64",
    }
    whole = MLPRegressor(**parameters).fit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = whole(X, y).history_["learning_rate"].tolist()
    steps, rates = MLPRegressor(**parameters), []
    for _ in expected:
        rates += steps.partial_fit(X, y).history_["learning_rate"].tolist()
    assert rates == expected
    assert len(set(rates)) > 1


def test_partial_fit_refuses_what_needs_all_rows():
    X, y = IRIS
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        _ = MLPClassifier(solver="lbfgs").partial_fit
    assert "lbfgs is not stochastic" in str(caught.value.__cause__)
    for parameters, words in [
        ({"early_stopping": True}, "partial_fit does not support early_stopping=True"),
        ({"class_weight": "balanced"}, "needs all rows at once"),
    ]:
        with pytest.raises(ValueError, match=words):
            MLPClassifier(**parameters).partial_fit(X, y, classes=[0, 1, 2])


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle", "flat-cosine", "coslog4"])
def test_partial_fit_uses_a_constant_rate(schedule):
    X, y = DIABETES
    plain = {**QUICK, "batch_size": 50, "solver": "adamw", "dropout": 0.3, "random_state": 0}
    scheduled = {"learning_rate": schedule, "regularization_schedule": schedule}
    found, expected = MLPRegressor(**plain, **scheduled), MLPRegressor(**plain)
    for rate in (0.01, 0.01, 0.002):  # a rate that is set anew counts
        found.set_params(learning_rate_init=rate).partial_fit(X, y)
        expected.set_params(learning_rate_init=rate).partial_fit(X, y)
    assert_array_equal(found.predict(X), expected.predict(X))


def test_partial_fit_after_a_schedule_uses_full_rate():
    X, y = DIABETES
    model = MLPRegressor(**QUICK, learning_rate="cosine", learning_rate_init=0.01).fit(X, y)
    assert model.history_["learning_rate"].iloc[-1] < 0.01
    model.partial_fit(X, y)
    assert model.history_["learning_rate"].iloc[-1] == 0.01


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
@pytest.mark.parametrize("warm", [False, True])
def test_clipping_range_grows_with_partial_fit(warm):
    X = np.linspace(-1, 1, 60)[:, None]
    y = 10 * X[:, 0]
    settings = {**QUICK, "max_iter": 1, "warm_start": warm, "clip_predictions": True}
    settings["learning_rate"] = "constant"
    model = MLPRegressor(**settings, learning_rate_init=0.1, dropout=0.0)
    go_on = model.fit if warm else model.partial_fit
    go_on(X[20:40], y[20:40])
    assert abs(model.predict(X)).max() < 4
    for _ in range(60):
        go_on(X, y)
    assert 7 < abs(model.predict(3 * X)).max() < 11


def test_partial_fit_keeps_classes_after_a_failure():
    X, y = IRIS
    model = MLPClassifier(**QUICK)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full((2, 4), np.inf), [0, 1], classes=[0, 1, 2])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[:60], y[:60], classes=[0, 1, 2])
    assert_array_equal(model.classes_, [0, 1, 2])


def test_partial_fit_multilabel_and_after_fit():
    X, y = KINDS["multi-label"]
    model = MLPClassifier(**QUICK).partial_fit(X, y, classes=[0, 1, 2])
    assert model.partial_fit(X, y).predict(X).shape == y.shape
    with pytest.raises(ValueError, match="2 labels, fit saw 3"):
        model.partial_fit(X, y[:, :2])
    fitted = MLPClassifier(**QUICK, dropout=0.0).fit(X, y)
    before = fitted.loss_
    fitted.partial_fit(X, y)
    assert fitted.n_iter_ == QUICK["max_iter"] + 1
    assert len(fitted.loss_curve_) == QUICK["max_iter"] + 1
    assert fitted.loss_ < before


# ---- warm_start ----------------------------------------


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
@pytest.mark.parametrize("kind", ["three classes", "one target"])
def test_warm_start_continues_from_fitted_weights(kind):
    X, y = KINDS[kind]
    parameters = {**QUICK, "max_iter": 40, "learning_rate_init": 0.01, "dropout": 0.0}
    model = both(kind)[1](**parameters, warm_start=True).fit(X, y)
    reached, started = model.loss_, model.loss_curve_[0]
    model.fit(X, y)
    assert len(model.loss_curve_) == 80
    assert model.t_ == 80 * len(X)
    assert model.n_iter_ == 40
    first_again = model.loss_curve_[40]
    assert abs(first_again - reached) < 0.1 * (started - reached)
    fresh = both(kind)[1](**parameters).fit(X, y)
    assert len(fresh.fit(X, y).loss_curve_) == 40
    assert_allclose(fresh.loss_curve_, model.loss_curve_[:40])


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_warm_start_refuses_other_classes_features_and_members():
    X, y = IRIS
    model = MLPClassifier(**QUICK, warm_start=True).fit(X, y)
    for labels, found in [
        (np.repeat([0, 1, 3], 50), r"\[0 1 3\]"),
        (np.repeat([0, 1], 75), r"\[0 1\]"),
        (np.arange(150) % 4, r"\[0 1 2 3\]"),
    ]:
        words = (
            "warm_start can only be used where `y` has the same classes as in the previous call "
            rf"to fit. Previously got \[0 1 2\], `y` has {found}"
        )
        with pytest.raises(ValueError, match=words):
            model.fit(X, labels)
    with pytest.raises(ValueError, match="classes"):
        model.fit(X, y + 1)
    with pytest.raises(ValueError, match=r"3.*MLPClassifier.*4"):
        model.fit(X[:, :3], y)
    with pytest.raises(ValueError, match=r"n_members=2.*warm_start=False"):
        model.set_params(n_members=2).fit(X, y)
    model.set_params(n_members=1).fit(X, y)
    assert len(model.loss_curve_) == 2 * QUICK["max_iter"]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_warm_start_allows_validation_with_fewer_classes():
    X, y = IRIS
    model = MLPClassifier(**QUICK, warm_start=True)
    for _ in range(2):
        model.fit(X, y, X_val=X[:20], y_val=y[:20])
    assert len(model.validation_scores_) == 2 * QUICK["max_iter"]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_warm_start_keeps_earlier_best_weights():
    X, y = IRIS
    model = MLPClassifier(
        **{**QUICK, "max_iter": 40}, learning_rate_init=0.02, warm_start=True
    ).fit(X, y, X_val=X, y_val=y)
    best = model.score(X, y)
    assert best == model.best_validation_score_ > 0.9
    model.set_params(solver="sgd", learning_rate_init=30.0, max_grad_norm=1.0, max_iter=3)
    model.fit(X, y, X_val=X, y_val=y)  # ruins the weights
    assert max(model.validation_scores_[-3:]) < best
    assert model.best_validation_score_ == best == model.score(X, y)


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


def test_partial_fit_continues_in_a_copy():
    X, y = IRIS
    first = MLPClassifier(**PLAIN | {"dropout": 0.2}, random_state=0)
    for _ in range(3):
        first.partial_fit(X, y, classes=[0, 1, 2])
    second = pickle.loads(pickle.dumps(first))
    for each in (first, second):
        for _ in range(5):
            each.partial_fit(X, y)
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("kind", ["three classes", "one target"])
def test_diverged_warm_start_keeps_previous_weights(kind):
    X, Y = IRIS
    model = both(kind)[1](
        **PLAIN | {"early_stopping": True, "numeric_encoding": "standard"},
        hidden_layer_sizes=(8,), solver="sgd", learning_rate_init=0.1, max_iter=30,
        n_iter_no_change=np.inf, warm_start=True, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        before = model.fit(X, Y).predict(X)
        best = model.best_validation_score_
    model.set_params(learning_rate_init=1e30)
    with pytest.warns(ConvergenceWarning, match="diverged"):
        model.fit(X, Y)
    assert np.isnan(model.validation_scores_[-1]) or model.validation_scores_[-1] < best
    assert_array_equal(model.predict(X), before)
    assert model.best_validation_score_ == best
    model.set_params(learning_rate_init=0.01)
    with pytest.warns(ConvergenceWarning, match="Maximum iterations"):
        model.fit(X, Y)
    assert model.best_validation_score_ >= best
