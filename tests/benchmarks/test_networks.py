"""The networks of studies and timings are the CombU paper's, whatever the defaults become."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.formulas import recovery, share_report
from benchmarks.formulas.equations import Equation, spread
from benchmarks.papers.combu import table7_flow
from benchmarks.papers.combu.sources import Source
from benchmarks.papers.combu.study import PROTOCOLS, Fit, Recipe
from benchmarks.papers.layeract import shared
from benchmarks.papers.pln import normalization
from benchmarks.papers.proxynorm.training.runs import Program, make_estimator
from benchmarks.papers.proxynorm.training.runs import Recipe as Size
from benchmarks.quality import predictions
from benchmarks.speed.peers import fixed_epochs
from combutab.evaluation._efficacy import make_learners
from tests.paper_networks import PAPER, shape_of

TASKS = sorted(PAPER)

ALL_EPOCHS = {"n_iter_no_change": math.inf}


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("task", TASKS)
def test_combu(task):
    recipe = Recipe(hidden=(16, 8), epochs=4, dropout=0.2)
    fit = Fit(Source("formula", "ar", task), PROTOCOLS["paper"], recipe, "relu+ln+proxy", 0, 1)
    own = {"hidden_layer_sizes": (16, 8), "max_iter": 4, "dropout": 0.2, "alpha": 0.0}
    own |= {"activation": "relu", "normalization": "layer", "proxy_norm": True}
    assert shape_of(fit.estimator()) == PAPER[task] | ALL_EPOCHS | own


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("data", ["digits", "autoMpg"])
def test_pln(data):
    row = {"data": data, "batch_size": "64", "width": "8", "depth": "3", "activation": "tanh"}
    row |= {"normalization": "pln", "n_steps": "20", "learning_rate": "0.001", "split": "2"}
    own = {"hidden_layer_sizes": (8, 8, 8), "activation": "tanh", "normalization": "pln"}
    own |= {"max_iter": 10, "batch_size": 64, "learning_rate_init": 0.001}
    own |= {"dropout": 0.0, "alpha": 0.0}
    made = normalization.estimator(row, 128)
    assert shape_of(made) == PAPER[normalization.TASKS[data]] | ALL_EPOCHS | own


@pytest.mark.usefixtures("no_defaults")
def test_layeract(monkeypatch):
    monkeypatch.setattr(shared, "fit_stacked", lambda tasks: [])
    nets = shared.train(["la-silu"], [(None, None)], solver="sgd", batch_size=32)
    own = {"activation": "la-silu", "solver": "sgd", "batch_size": 32}
    assert shape_of(nets["la-silu", 0]) == PAPER["classification"] | ALL_EPOCHS | own


@pytest.mark.usefixtures("no_defaults")
def test_proxynorm():
    program = Program("plain MLP", "digits", "LN+PN", 128, "extra", (0,), Size(8, 2, 4e-3))
    own = {"activation": "relu", "normalization": "layer", "proxy_norm": True, "init": "kaiming"}
    own |= {"solver": "adamw", "alpha": 0.0, "batch_size": 128, "learning_rate": "cosine"}
    own |= {"numeric_encoding": "none", "categorical_features": None}
    made = make_estimator(program, 0)
    own |= {n: made.get_params()[n] for n in ("hidden_layer_sizes", "max_iter", "dropout")}
    own |= {n: made.get_params()[n] for n in ("learning_rate_init", "label_smoothing")}
    assert own["hidden_layer_sizes"][0] == 8
    assert own["dropout"] > 0 < own["label_smoothing"]
    assert shape_of(made) == PAPER["classification"] | ALL_EPOCHS | own


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("task", TASKS)
def test_timings(task):
    own = {"hidden_layer_sizes": (8,), "max_iter": 5}
    made = fixed_epochs(task, [8], 5, activation="relu")
    assert made == PAPER[task] | ALL_EPOCHS | own | {"activation": "relu", "device": "cpu"}


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("task", TASKS)
def test_quality(task):
    classify = task == "classification"
    made = predictions.make("combutab, paper", classify, 1, 0)
    assert shape_of(made) == PAPER[task]
    made = predictions.make("combutab", classify, 1, 0)
    assert shape_of(made) == shape_of(type(made)())


@pytest.mark.usefixtures("no_defaults")
@pytest.mark.parametrize("task", TASKS)
def test_learners_of_synthetic_rows(task):
    made = make_learners(["mlp", "paper_mlp"], task, n_rows=500, random_state=0)
    own = {"activation": "relu", "min_frequency": 1}
    assert shape_of(made["mlp"]) == PAPER[task] | own | {"early_stopping": True}
    own |= {"hidden_layer_sizes": (128,) * 2, "max_iter": 500, "alpha": 0.0}
    assert shape_of(made["paper_mlp"]) == PAPER[task] | ALL_EPOCHS | own


# ---- The studies of formulas: their order and rows, what they judge, and their quick forms ------


WAVE = Equation("wave", "x*sin(2*t)", (("t", 0.0, 2.0), ("x", 1.0, 3.0)))


def test_the_first_few_places_are_spread_over_all():
    order = spread(120)
    assert sorted(order) == list(range(120))
    for n in (8, 16, 32, 64):
        assert np.diff(sorted([*order[:n], 120])).max() <= 2 * 128 // n


def test_rows_outside_leave_the_ranges_by_a_fifth_at_most():
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


def of_models(r2, **more):
    """Rows of one noise level, a dict of models an equation."""
    rows = [
        {"equation": f"e{i}", "model": model, "r2": value, "has_angles": i % 2}
        for i, own in enumerate(r2)
        for model, value in own.items()
    ]
    given = {"noise": 0.0, "rows": 60, "r2_outside": 0.5, "cpu_seconds": 1.0}
    return pd.DataFrame(rows).assign(**(given | more))


def test_shares_and_tests_of_laws_learned():
    rows = of_models([{"default": 0.9999, "ReLU": 0.99}, {"default": 0.9, "ReLU": 0.9995}] * 4)
    found = share_report.shares(rows).set_index("model")
    assert found["inside"].to_dict() == {"default": 0.5, "ReLU": 0.5}
    assert found.loc["default", "with_angles"] == 0
    assert found.loc["ReLU", "with_angles"] == 1
    beside = share_report.against_base(rows).set_index("where").loc["inside"]
    assert (beside["won"], beside["lost"]) == (4, 4)
    assert beside["mcnemar"] == 1
    better = of_models([{"default": 0.9 + i / 200, "ReLU": 0.5} for i in range(8)])
    nearer = share_report.CLAIMS[1]
    assert nearer.judge(better).verdict == "holds"
    assert nearer.judge(better.assign(model=better["model"].map({"default": "ReLU"}.get).fillna(
        "default"))).verdict == "does not hold here"  # fmt: skip
    assert nearer.judge(better[:10]) is None, "five equations decide nothing"
    partial = pd.concat([better, better[:1].assign(equation="alone")])
    assert share_report.complete(partial, ["default", "ReLU"])["equation"].nunique() == 8


def of_activations(n_seeds):
    """Rows in which CombU is better than ReLU, always, and Swish is as good but for chance."""
    rng = np.random.default_rng(0)
    rows = [
        {"data": data, "seed": seed, "activation": name, "error": ""}
        | {m: level + 0.001 * rng.normal() for m in table7_flow.MEASURES}
        for data in table7_flow.DATA
        for seed in range(n_seeds)
        for name, level in {"real": 0.1, "relu": 0.9, "combu": 0.3, "swish": 0.3}.items()
    ]
    return pd.DataFrame(rows)


def test_activations_of_a_flow_are_compared_over_sets_and_seeds():
    rows = of_activations(4)
    p, ranks, beside = table7_flow.tests(rows, "c2st")
    assert p < 0.01
    assert ranks["relu"] == 3
    sure = beside[beside["p"] < 0.05]
    assert set(sure["other"]) == {"relu"}
    assert (sure["lead"] > 0.5).all()
    assert table7_flow.radar(rows)["relu"].max() == 0
    rows.loc[(rows["activation"] == "swish") & (rows["seed"] == 3), "error"] = "diverged"
    assert set(table7_flow.complete(rows)["seed"]) == {0, 1, 2}
    assert table7_flow.tests(of_activations(1), "c2st")[2].empty, "a seed tells nothing"
