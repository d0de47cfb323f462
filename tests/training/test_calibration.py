"""Temperature scaling of classifiers, on the rows that are set aside."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from combutab import MLPClassifier, TabMClassifier
from combutab.training import BinaryCrossEntropy, CrossEntropy
from combutab.training._losses import best_factors

INF = float("inf")
QUICK = {"hidden_layer_sizes": (16,), "max_iter": 12, "n_iter_no_change": INF, "random_state": 0}


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_factor_is_the_penalised_minimum(n_classes):
    rng = np.random.default_rng(n_classes)
    raw = torch.from_numpy(rng.normal(size=(3, 80, n_classes)) * [[[0.5]], [[2.0]], [[8.0]]])
    weight = torch.from_numpy(rng.uniform(0.0, 2.0, size=(3, 80)))
    y = torch.from_numpy(rng.integers(0, 2 if n_classes == 2 else 4, (3, 80)))
    loss = CrossEntropy()
    if n_classes == 2:  # two labels, which share a temperature
        loss, y = BinaryCrossEntropy(), torch.stack([y, 1 - y], -1).double()
    found = best_factors(lambda scaled: loss.rows(scaled, y), raw, weight)

    def cost(log_factor, m):
        rows = loss.rows(raw[m] * np.exp(log_factor), y[m])
        return float((rows * weight[m]).sum() / weight[m].mean()) + 0.5 * log_factor**2

    for m in range(3):
        best = minimize_scalar(cost, bounds=(-1.93, 1.93), args=(m,), method="bounded")
        assert cost(np.log(found[m].item()), m) == pytest.approx(best.fun, rel=1e-3)
    tiny = best_factors(lambda scaled: loss.rows(scaled, y), raw, weight * 1e-12)
    torch.testing.assert_close(tiny, found)


def test_a_few_rows_that_are_all_right_are_no_certainty():
    raw, y = torch.tensor([[[3.0, 0.0]] * 4]), torch.zeros(1, 4, dtype=torch.int64)
    found = best_factors(lambda scaled: CrossEntropy().rows(scaled, y), raw, torch.ones(1, 4))
    assert 1.0 <= found.item() < 2.0


@pytest.fixture(scope="module")
def table():
    return make_classification(500, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)


@pytest.mark.parametrize(("cls", "more"), [(MLPClassifier, {}), (TabMClassifier, {"n_heads": 3})])
def test_probabilities_suit_the_rows_set_aside(table, cls, more):
    X, y = table
    settings = {**QUICK, "learning_rate_init": 0.02, "label_smoothing": 0.3, **more}
    settings |= {"early_stopping_scoring": "loss"}
    raw = cls(**settings, calibration=None).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    scaled = cls(**settings, calibration="temperature")
    scaled.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    losses = [log_loss(y[300:], model.predict_proba(X[300:])) for model in (raw, scaled)]
    assert losses[1] < losses[0] - 0.003
    assert losses[1] == pytest.approx(-scaled.best_validation_score_, abs=1e-4)
    if cls is MLPClassifier:  # the same epochs, of which another may be the best
        one = cls(**settings | {"max_iter": 1}, calibration="temperature")
        other = cls(**settings | {"max_iter": 1}, calibration=None)
        for model in (one, other):
            model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
        np.testing.assert_array_equal(one.predict(X), other.predict(X))
        assert not np.allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_every_score_is_that_of_the_scaled_outputs(table, scoring):
    X, y = table
    model = MLPClassifier(**QUICK, calibration="temperature", early_stopping_scoring=scoring)
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    score = model.score(X[300:], y[300:])
    if scoring:
        score = -log_loss(y[300:], model.predict_proba(X[300:]))
    assert score == pytest.approx(model.best_validation_score_, abs=1e-4)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_warm_start_goes_on_from_calibrated_weights(table):
    X, y = table
    settings = QUICK | {"max_iter": 6, "warm_start": True, "early_stopping_scoring": "loss"}
    model = MLPClassifier(**settings, calibration="temperature")
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    before = log_loss(y[300:], model.predict_proba(X[300:]))
    model.set_params(learning_rate_init=10.0)  # of which nothing better can come
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert log_loss(y[300:], model.predict_proba(X[300:])) <= before + 1e-3


def test_without_rows_set_aside_nothing_is_scaled(table):
    X, y = table
    settings = QUICK | {"early_stopping": False}
    models = [MLPClassifier(**settings, calibration=how) for how in (None, "temperature")]
    for model in models:
        model.fit(X, y)
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
