"""The CombU paper's network, which is the same whatever the estimators' defaults become."""

import inspect

import numpy as np
import pytest

from combutab import MLPClassifier, MLPRegressor, paper_recipe
from tests.paper_networks import PAPER, UNSHAPELY, shape_of

TASKS = {"classification": MLPClassifier, "regression": MLPRegressor}


@pytest.mark.parametrize("task", TASKS)
def test_every_parameter_of_the_network_is_in_the_recipe(task):
    names = set(inspect.signature(TASKS[task]).parameters)
    assert set(paper_recipe(task)) == names - UNSHAPELY
    assert names >= UNSHAPELY


@pytest.mark.parametrize("task", TASKS)
def test_it_is_the_paper_s_whatever_the_defaults_are(task, no_defaults):
    assert shape_of(TASKS[task](**paper_recipe(task))) == PAPER[task]


@pytest.mark.parametrize("task", TASKS)
def test_it_goes_by_the_rows(task):
    net = TASKS[task](**paper_recipe(task))
    assert net._hidden_layer_sizes(999) == (128, 128)
    assert net._hidden_layer_sizes(1000) == (256,) * 5
    assert [net._checked_batch_size(n) for n in (10, 499, 5000)] == [500] * 3


def test_it_trains_on_less_than_a_batch_without_a_word():
    X = np.linspace(-1, 1, 40)[:, None]
    settings = {"max_iter": 2, "n_iter_no_change": float("inf"), "random_state": 0}
    net = MLPRegressor(**paper_recipe("regression", **settings)).fit(X, X[:, 0])
    explicit = settings | {"hidden_layer_sizes": (128, 128), "batch_size": 40}
    same = MLPRegressor(**paper_recipe("regression", **explicit)).fit(X, X[:, 0])
    np.testing.assert_array_equal(net.predict(X), same.predict(X))


def test_changes():
    recipe = paper_recipe("classification", dropout=0.3, random_state=7)
    net = MLPClassifier(**recipe)
    assert (net.dropout, net.random_state, net.alpha) == (0.3, 7, 0.0001)
    recipe["alpha"] = 5.0  # a copy
    assert paper_recipe("classification") == PAPER["classification"]


def test_another_task():
    with pytest.raises(ValueError, match="'classification', 'regression', got 'ranking'"):
        paper_recipe("ranking")
