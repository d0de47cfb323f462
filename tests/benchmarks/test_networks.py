"""The networks of studies and timings are the CombU paper's, whatever the defaults become."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.formulas import recovery
from benchmarks.formulas.equations import Equation
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, Fit, Recipe
from benchmarks.papers.layeract import shared
from benchmarks.papers.pln import normalization
from benchmarks.quality import predictions
from benchmarks.speed.peers import fixed_epochs
from tests.paper_networks import PAPER, shape_of

TASKS = sorted(PAPER)

pytestmark = pytest.mark.usefixtures("no_defaults")

ALL_EPOCHS = {"n_iter_no_change": math.inf}


@pytest.mark.parametrize("task", TASKS)
def test_combu(task):
    recipe = Recipe(hidden=(16, 8), epochs=4, dropout=0.2)
    fit = Fit(Source("formula", "ar", task), PROTOCOLS["paper"], recipe, "relu", 0, 1)
    own = {"hidden_layer_sizes": (16, 8), "max_iter": 4, "dropout": 0.2, "alpha": 0.0}
    own |= {"activation": "relu"}
    assert shape_of(fit.estimator()) == PAPER[task] | ALL_EPOCHS | own


@pytest.mark.parametrize("data", ["digits", "autoMpg"])
def test_pln(data):
    row = {"data": data, "batch_size": "64", "width": "8", "depth": "3", "activation": "tanh"}
    row |= {"normalization": "pln", "n_steps": "20", "learning_rate": "0.001", "split": "2"}
    own = {"hidden_layer_sizes": (8, 8, 8), "activation": "tanh", "normalization": "pln"}
    own |= {"max_iter": 10, "batch_size": 64, "learning_rate_init": 0.001}
    own |= {"dropout": 0.0, "alpha": 0.0}
    made = normalization.estimator(row, 128)
    assert shape_of(made) == PAPER[normalization.TASKS[data]] | ALL_EPOCHS | own


def test_layeract(monkeypatch):
    monkeypatch.setattr(shared, "fit_stacked", lambda tasks: [])
    nets = shared.train(["la-silu"], [(None, None)], solver="sgd", batch_size=32)
    own = {"activation": "la-silu", "solver": "sgd", "batch_size": 32}
    assert shape_of(nets["la-silu", 0]) == PAPER["classification"] | ALL_EPOCHS | own


@pytest.mark.parametrize("task", TASKS)
def test_timings(task):
    own = {"hidden_layer_sizes": (8,), "max_iter": 5}
    made = fixed_epochs(task, [8], 5, activation="relu")
    assert made == PAPER[task] | ALL_EPOCHS | own | {"activation": "relu", "device": "cpu"}


@pytest.mark.parametrize("task", TASKS)
def test_quality(task):
    classify = task == "classification"
    made = predictions.make("combutab, paper", classify, 1, 0)
    assert shape_of(made) == PAPER[task]
    made = predictions.make("combutab", classify, 1, 0)
    assert shape_of(made) == shape_of(type(made)())


# ---- The studies of formulas: their order and rows, what they judge, and their quick forms ------


WAVE = Equation("wave", "x*sin(2*t)", (("t", 0.0, 2.0), ("x", 1.0, 3.0)))


def test_rows_outside_stay_near_the_ranges():
    X, y = WAVE.rows_outside(200, seed=0)
    t, x = X["t"], X["x"]
    assert (~t.between(0, 2) | ~x.between(1, 3)).all()
    assert t.between(-0.4, 2.4).all()
    assert x.between(0.6, 3.4).all()
    np.testing.assert_allclose(y, x * np.sin(2 * t))
    root = Equation("root", "sqrt(x - 1)", (("x", 1.0, 3.0),))
    assert root.rows_outside(50, seed=0)[0]["x"].min() > 3, "below 1 it has no value"
    assert WAVE.has_angles
    assert not root.has_angles


def test_a_law_is_recovered_from_its_form_alone():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"t": rng.uniform(0, 2, 120), "x": rng.uniform(1, 3, 120)})
    x, y = torch.from_numpy(X.to_numpy()), torch.from_numpy(WAVE.values(X))
    for formula, recovered in (("1.1*x**1.5*sin(1.9*t + 0.1)", True), ("x*t**2", False)):
        guess = Equation("guess", formula, WAVE.domain)
        network = recovery.build(guess.expression(), WAVE)
        n_weights, evaluations = recovery.fit_weights(network, x, y, 60)
        assert 0 < n_weights < sum(p.numel() for p in network.parameters())
        assert evaluations <= 60
        assert (recovery.error_of(network, X, y.numpy()) < recovery.RECOVERED) == recovered
