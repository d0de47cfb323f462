"""The networks that activations are compared in: the CombU paper's, or the defaults."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from combutab import MLPClassifier, MLPRegressor, paper_recipe
from combutab.model_selection import (
    ComparisonError,
    compare_activations,
    plan_comparison,
)
from combutab.reports import render_report
from tests.paper_networks import PAPER, shape_of

X, Y = load_iris(return_X_y=True, as_frame=True)
TARGETS = {"classification": Y, "regression": X.iloc[:, 0]}
SMALL = {"activations": ["relu", "elu"], "seeds": 1, "folds": 2, "epochs": 3, "hidden": [8]}
SMALL |= {"baselines": None}
INF = float("inf")


def plan(task, **settings):
    return plan_comparison(X, TARGETS[task], task=task, activations=["relu"], **settings)


@pytest.mark.parametrize("task", TARGETS)
def test_by_default_they_are_the_paper_s_whatever_the_defaults_are(task, no_defaults):
    made = plan(task)
    settled = {"hidden_layer_sizes": (128, 128), "max_iter": 80, "n_iter_no_change": INF}
    for key in ((), (1, 2)):
        network = shape_of(made.estimator("relu", *key))
        assert network == PAPER[task] | settled | {"activation": "relu"}
    assert made.encoder().numeric == "standard"
    assert made.n_inputs == X.shape[1]
    changed = plan(task, estimator_params={"dropout": 0.4}, epochs=7, hidden=[5])
    network = shape_of(changed.estimator("relu"))
    settled |= {"hidden_layer_sizes": (5,), "max_iter": 7}
    assert network == PAPER[task] | settled | {"activation": "relu", "dropout": 0.4}


@pytest.mark.parametrize("task", TARGETS)
def test_or_the_defaults_with_their_own_epochs_and_layers(task, monkeypatch):
    kind = MLPClassifier if task == "classification" else MLPRegressor
    changed = kind.__init__.__kwdefaults__ | {"max_iter": 17, "dropout": 0.35}
    monkeypatch.setattr(kind.__init__, "__kwdefaults__", changed)
    made = plan(task, recipe="default")
    own = kind(activation="relu", n_iter_no_change=INF)
    own.hidden_layer_sizes = own._hidden_layer_sizes(75)
    assert shape_of(made.estimator("relu")) == shape_of(own)
    assert (made.epochs, made.hidden) == (17, own.hidden_layer_sizes)
    network = plan(task, recipe="default", epochs=3, hidden=[5]).estimator("relu")
    assert (network.max_iter, network.hidden_layer_sizes, network.dropout) == (3, (5,), 0.35)


def test_embedded_numbers_are_more_inputs():
    """Of which the announced time goes by."""
    embedded = {"numeric_embedding": "pbld", "numeric_embedding_dim": 3}
    assert plan("classification", estimator_params=embedded).n_inputs == 3 * X.shape[1]


def test_the_default_recipe_is_trained_and_told_of():
    found = compare_activations(X, Y, **SMALL, recipe="default")
    assert found.settings["recipe"] == "default"
    assert (found.results["epochs"] == 3).all()
    assert "Recipe of the networks" in render_report(found)
    kept = found.best_estimator
    own = MLPClassifier((8,), kept.activation, max_iter=3, n_iter_no_change=INF)
    own.set_params(random_state=kept.random_state, device=kept.device)
    np.testing.assert_array_equal(own.fit(X, Y).predict_proba(X), kept.predict_proba(X))


def test_the_paper_s_recipe_is_the_one_that_is_trained():
    found = compare_activations(X, Y, **SMALL)
    assert found.settings["recipe"] == "paper"
    kept = found.best_estimator
    settings = {"activation": kept.activation, "hidden_layer_sizes": (8,), "max_iter": 3}
    settings |= {"random_state": kept.random_state, "device": kept.device}
    own = MLPClassifier(**paper_recipe("classification", n_iter_no_change=INF, **settings))
    np.testing.assert_array_equal(own.fit(X, Y).predict_proba(X), kept.predict_proba(X))


def test_no_such_recipe():
    with pytest.raises(ComparisonError, match="recipe must be one of paper, default, got 'best'"):
        plan("classification", recipe="best")
