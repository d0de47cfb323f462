"""Training through the public API against independent float64 computations."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from combutab import MLPClassifier, MLPRegressor
from combutab.training import SCHEDULES

pytestmark = pytest.mark.usefixtures("paper_defaults")

INF = float("inf")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32).astype(float)  # the encoding is float32
TARGETS = {
    "three classes": RNG.integers(0, 3, 60),
    "binary": RNG.integers(0, 2, 60),
    "multi-label": RNG.integers(0, 2, (60, 2)),
    "one target": X @ [1.0, -2, 0.5, 0] + 0.3,
    "two targets": X[:, :2] ** 2,
}
WEIGHT = RNG.uniform(0.5, 2, 60)
ALPHA = 0.7
# everything between the data and the formulas off
PLAIN = {
    "hidden_layer_sizes": (5, 3),
    "activation": "relu",
    "dropout": 0.0,
    "numeric_encoding": "none",
    "precision": "float64",
    "n_iter_no_change": INF,
    "random_state": 0,
}


def _estimator(kind, **parameters):
    if "target" in kind:
        return MLPRegressor(**{**PLAIN, "scale_target": False, **parameters})
    return MLPClassifier(**{**PLAIN, **parameters})


def _forward(coefs, intercepts, X):
    layers = [X]
    for i, (w, b) in enumerate(zip(coefs, intercepts, strict=True)):
        z = layers[-1] @ w + b
        layers.append(np.maximum(z, 0) if i < len(coefs) - 1 else z)
    return layers


def _onehot(kind):
    y = TARGETS[kind]
    if kind == "three classes":
        return np.eye(3)[y]
    return y.reshape(len(y), -1).astype(float)


def _row_losses(kind, raw):
    y = _onehot(kind)
    if kind == "three classes":
        return -(y * log_softmax(raw, 1)).sum(1)
    if "target" in kind:
        return 0.5 * ((raw - y) ** 2).mean(1)
    return -(y * np.log(expit(raw)) + (1 - y) * np.log(expit(-raw))).sum(1)


def _loss(kind, coefs, intercepts, weight, alpha):
    losses = _row_losses(kind, _forward(coefs, intercepts, X)[-1])
    penalty = 0.5 * alpha * sum((w**2).sum() for w in coefs)
    return (np.average(losses, weights=weight)) + penalty / weight.sum()


def _gradients(kind, coefs, intercepts, weight, alpha):
    """By hand: the chain rule, written out."""
    layers, y = _forward(coefs, intercepts, X), _onehot(kind)
    raw = layers[-1]
    if kind == "three classes":
        delta = np.exp(log_softmax(raw, 1)) - y
    elif "target" in kind:
        delta = (raw - y) / y.shape[1]
    else:
        delta = expit(raw) - y
    delta = delta * (weight / weight.sum())[:, None]
    by_coef, by_intercept = [], []
    for i in reversed(range(len(coefs))):
        by_coef.insert(0, layers[i].T @ delta + alpha * coefs[i] / weight.sum())
        by_intercept.insert(0, delta.sum(0))
        if i:
            delta = (delta @ coefs[i].T) * (layers[i] > 0)
    return by_coef, by_intercept


def _start(kind, weight):
    """The estimator's own initial weights: one step too small to see."""
    model = _estimator(kind, solver="sgd", learning_rate_init=1e-300, momentum=0, max_iter=1)
    model.fit(X, TARGETS[kind], sample_weight=weight)
    return model.coefs_, model.intercepts_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
def test_gradient_descent_step_matches_hand_calculation(kind, weighted):
    weight = WEIGHT if weighted else np.ones(60)
    given = WEIGHT if weighted else None
    coefs, intercepts = _start(kind, given)
    rate, momentum = 0.1, 0.9
    steps = {"nesterovs_momentum": True, "momentum": momentum}, {"momentum": 0.0}
    for options in steps:
        model = _estimator(
            kind, solver="sgd", learning_rate_init=rate, alpha=ALPHA, max_iter=1, **options
        ).fit(X, TARGETS[kind], sample_weight=given)
        by_coef, by_intercept = _gradients(kind, coefs, intercepts, weight, ALPHA)
        # Nesterov's first step from rest: momentum * (-rate * g) - rate * g
        factor = rate * (1 + (momentum if options["momentum"] else 0))
        for got, old, grad in zip(model.coefs_, coefs, by_coef, strict=True):
            assert_allclose(got, old - factor * grad, rtol=1e-9, atol=1e-12)
        for got, old, grad in zip(model.intercepts_, intercepts, by_intercept, strict=True):
            assert_allclose(got, old - factor * grad, rtol=1e-9, atol=1e-12)
        assert max(np.abs(g).max() for g in by_coef) > 1e-3  # the step is one


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
def test_loss_curve_holds_the_loss_of_the_epoch(kind, weighted):
    weight = WEIGHT if weighted else np.ones(60)
    given = WEIGHT if weighted else None
    coefs, intercepts = _start(kind, given)
    model = _estimator(kind, solver="sgd", learning_rate_init=1e-300, alpha=ALPHA, max_iter=2).fit(
        X, TARGETS[kind], sample_weight=given
    )
    expected = _loss(kind, coefs, intercepts, weight, ALPHA)
    assert_allclose(model.loss_curve_, [expected] * 2, rtol=1e-9)
    assert_allclose(model.best_loss_, expected, rtol=1e-9)


# ---- penalties, clipping, smoothing, dropout ----------------------------------------


def test_label_smoothing_is_cross_entropy_with_smoothed_targets():
    for kind, n_classes in (("three classes", 3), ("binary", 2)):
        coefs, intercepts = _start(kind, None)
        smoothing = 0.3
        model = _estimator(
            kind,
            solver="sgd",
            learning_rate_init=1e-300,
            max_iter=1,
            alpha=0.0,
            label_smoothing=smoothing,
        ).fit(X, TARGETS[kind])
        raw = _forward(coefs, intercepts, X)[-1]
        raw = raw if kind == "three classes" else np.hstack([np.zeros_like(raw), raw])
        targets = np.eye(n_classes)[TARGETS[kind]] * (1 - smoothing) + smoothing / n_classes
        assert_allclose(model.loss_, -(targets * log_softmax(raw, 1)).sum(1).mean(), rtol=1e-9)


def test_dropout_acts_in_training_and_not_in_prediction():
    y = TARGETS["three classes"]
    losses = {}
    for dropout in (0.0, 0.5):
        model = _estimator(
            "three classes",
            hidden_layer_sizes=(64,),
            dropout=dropout,
            solver="sgd",
            learning_rate_init=1e-300,
            max_iter=2,
        ).fit(X, y)
        losses[dropout] = model.loss_curve_
        raw = _forward(model.coefs_, model.intercepts_, X)[-1]
        assert_allclose(model.predict_proba(X), np.exp(log_softmax(raw, 1)), rtol=1e-9)
    assert losses[0.0][0] == losses[0.0][1]
    assert len({*losses[0.5], losses[0.0][0]}) == 3  # another mask each epoch


# ---- schedules ----------------------------------------


def test_schedules_change_the_rates_as_documented():
    y = TARGETS["one target"]
    rates = {}
    for name in SCHEDULES:
        model = _estimator(
            "one target",
            solver="sgd",
            learning_rate=name,
            learning_rate_init=0.01,
            power_t=0.5,
            max_iter=20,
            batch_size=6,
        ).fit(X, y)
        rates[name] = model.history_["learning_rate"].to_numpy()
        assert len(rates[name]) == 20
    assert_array_equal(rates["constant"], np.full(20, 0.01))
    assert_array_equal(rates["adaptive"], np.full(20, 0.01))  # the loss has improved all along
    t = 60 * np.arange(20)
    assert_allclose(rates["invscaling"], [0.01, *(0.01 / (t[1:] + 1) ** 0.5)], rtol=1e-12)
    # the rate of an epoch's last step, 10 steps an epoch
    u = (10 * np.arange(20) + 9) / 200
    assert_allclose(rates["cosine"], 0.005 * (1 + np.cos(np.pi * u)), rtol=1e-9)
    expected = np.where(u < 0.5, 0.01, 0.005 * (1 + np.cos(np.pi * (2 * u - 1))))
    assert_allclose(rates["flat-cosine"], expected, rtol=1e-9)
    expected = 0.005 * (1 - np.cos(2 * np.pi * np.log2(1 + 15 * u)))
    assert_allclose(rates["coslog4"], expected, rtol=1e-9)
    assert rates["one-cycle"].argmax() in (5, 6)
    assert_allclose(rates["one-cycle"].max(), 0.01, rtol=1e-2)
    assert rates["one-cycle"][0] < 0.001 > rates["one-cycle"][-1]


def test_adaptive_rate_is_divided_by_five():
    model = _estimator(
        "one target",
        solver="sgd",
        learning_rate="adaptive",
        learning_rate_init=1e-4,
        tol=1e9,
        n_iter_no_change=2,
        max_iter=100,
    ).fit(X, TARGETS["one target"])
    rates = model.history_["learning_rate"].to_numpy()
    assert_allclose(np.unique(rates)[::-1], 1e-4 / 5.0 ** np.arange(4), rtol=1e-12)
    # four epochs at first (the first improves on infinity), then three idle ones at each rate
    assert len(rates) == 4 + 3 * 3


# ---- lbfgs ----------------------------------------


def test_lbfgs_loss_is_the_penalised_loss():
    for kind in ("three classes", "one target"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = _estimator(kind, solver="lbfgs", max_iter=15, alpha=ALPHA)
            model.fit(X, TARGETS[kind], sample_weight=WEIGHT)
        expected = _loss(kind, model.coefs_, model.intercepts_, WEIGHT, ALPHA)
        assert_allclose(model.loss_, expected, rtol=1e-9)
        assert model.best_loss_ == model.loss_


def test_lbfgs_respects_its_limits_and_says_so():
    y = TARGETS["one target"]
    with pytest.warns(ConvergenceWarning, match=r"lbfgs.*4"):
        model = _estimator("one target", solver="lbfgs", max_iter=4).fit(X, y)
    assert model.n_iter_ == 4
    with pytest.warns(ConvergenceWarning, match="max_fun=5"):
        model = _estimator("one target", solver="lbfgs", max_fun=5, max_iter=1000).fit(X, y)
    assert model.n_iter_ <= 6
    # it converges, without a warning, where it may
    model = _estimator("one target", solver="lbfgs", max_iter=5000, alpha=1.0).fit(X, y)
    assert 4 < model.n_iter_ < 5000
    by_coef, _ = _gradients("one target", model.coefs_, model.intercepts_, np.ones(60), 1.0)
    assert max(np.abs(g).max() for g in by_coef) < 0.01  # ReLU has kinks


def test_lbfgs_with_batch_norm_predicts_what_it_trained():
    features, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier(
            hidden_layer_sizes=(8,),
            solver="lbfgs",
            normalization="batch",
            max_iter=50,
            alpha=0.0,
            random_state=0,
        ).fit(features, y)
    p = model.predict_proba(features)[np.arange(150), y]
    assert_allclose(-np.log(p).mean(), model.loss_, rtol=0.05, atol=1e-3)
