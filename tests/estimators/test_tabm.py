"""TabM does what the others do, with heads that share weights."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from torch.nn import functional as F

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, TabMClassifier, TabMRegressor
from combutab.estimators import FitTask, fit_stacked

RNG = np.random.default_rng(0)


N, K = 120, 3


X = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": RNG.exponential(size=N),
        "yes": RNG.random(N) < 0.4,
        "id": [f"n{i % 7}" for i in range(N)],
    }
)


X.loc[::9, "a"] = np.nan


Y = np.sin(2 * X["b"].to_numpy()) + X["yes"] + (X["id"] == "n3")


LABELS = np.select([Y < 0.3, Y < 0.9], ["low", "middle"], "high")


QUICK = {
    "hidden_layer_sizes": (8, 6),
    "n_heads": K,
    "n_bins": 6,
    "numeric_embedding_dim": 3,
    "max_iter": 3,
    "n_iter_no_change": np.inf,
    "max_onehot": 3,
    "batch_size": 32,
    "random_state": 0,
    "learning_rate_init": 0.01,
}


EACH = pytest.mark.parametrize(("cls", "y"), [(TabMClassifier, LABELS), (TabMRegressor, Y)])


def heads_of(model, table):
    """Raw outputs, (members, rows, heads, outputs), by the network's plain forward pass."""
    encoded, net = model.encoder_.encode(table), model.network()
    dense = torch.from_numpy(encoded.dense).to(net.dtype).expand(net.n_members, -1, -1)
    codes = torch.from_numpy(encoded.codes).expand(net.n_members, -1, -1)
    with torch.no_grad():
        return net(dense, codes).unflatten(1, (len(table), -1)).double()


def answer(model, table):
    return model.predict_proba(table) if isinstance(model, TabMClassifier) else model.predict(table)


def test_classifier_averages_head_probabilities():
    for y, to_probabilities in ((LABELS, lambda raw: raw.softmax(-1)), (LABELS == "low", None)):
        model = TabMClassifier(**QUICK, n_members=2).fit(X, y)
        raw = heads_of(model, X)
        assert raw.shape[:3] == (2, N, K)
        assert (raw.std(2) > 1e-3).all()  # heads differ
        if to_probabilities is None:
            p = torch.sigmoid(raw[..., 0]).mean((0, 2))
            expected = torch.stack([1 - p, p], -1)
        else:
            expected = to_probabilities(raw).mean((0, 2))
        assert_allclose(model.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared_error", "quantile", "gaussian_nll", "poisson"])
def test_regressor_averages_head_predictions(loss):
    model = TabMRegressor(loss, **QUICK).fit(X, np.abs(Y))
    raw = heads_of(model, X)[0]
    column = raw.sort(-1).values[..., 1] if loss == "quantile" else raw[..., 0]
    if loss == "poisson":
        column = column.exp()
    expected = column.mean(1).numpy() * model.target_.scale + model.target_.shift
    assert_allclose(model.predict(X), expected, rtol=1e-4, atol=1e-5)
    if loss == "quantile":
        low, high = model.predict(X, quantiles=[0.05, 0.95]).T
        assert (low <= high).all()


def torch_step(state, x, y, edges, optimizer, leaves):
    """One step of AdamW on one member, written out: float64, the mean of the heads' losses."""
    low, width = edges[:, :-1], edges.diff(dim=1)
    last = (width > 0).sum(1) - 1
    shares = (x[:, :, None] - low) / width.where(width > 0, torch.inf)
    bins = torch.arange(width.shape[1])
    shares = torch.where(bins > 0, shares.clamp_min(0), shares)
    shares = torch.where(bins != last[:, None], shares.clamp_max(1), shares)
    numeric = x[:, :, None] * state["inputs.numeric.slope"] + state["inputs.numeric.bias"]
    numeric = numeric + torch.einsum("njt,jtd->njd", shares, state["inputs.numeric.weight"])
    h = numeric.flatten(1)[:, None]
    for i in range(2):
        h = h * state[f"linears.{i}.r"]  # (n, heads, units)
        h = h @ state[f"linears.{i}.weight"] * state[f"linears.{i}.s"] + state[f"linears.{i}.bias"]
        h = F.relu(h)
    raw = torch.einsum("nki,kio->nko", h, state["linears.2.weight"]) + state["linears.2.bias"]
    losses = 0.5 * (raw[..., 0] - y[:, None]).square()  # (n, heads)
    optimizer.zero_grad()
    losses.mean().backward()
    torch.nn.utils.clip_grad_norm_(leaves, 1.0)
    optimizer.step()
    return losses.mean().item(), 0.5 * (raw[..., 0].mean(1) - y).square().mean().item()


def test_training_equals_plain_torch_per_head():
    rng = np.random.default_rng(1)
    table = np.column_stack([rng.normal(size=40), rng.integers(0, 3, 40)])
    y = table[:, 0] ** 2 + table[:, 1]
    parameters = {
        **QUICK, "dropout": 0.0, "precision": "float64", "batch_size": 40, "shuffle": False,
        "weight_decay": 0.5, "early_stopping": False, "numeric_encoding": "standard", "max_iter": 1,
        "min_frequency": 1,
    }  # fmt: skip
    model = TabMRegressor(**parameters)
    # what it starts with: a fit of which the rate is nothing
    start = clone(model).set_params(learning_rate_init=1e-300).fit(table, y)
    state = {name: torch.from_numpy(value.copy()) for name, value in start._states[0].items()}
    edges = state.pop("inputs.numeric.edges")
    leaves = {name: value.requires_grad_() for name, value in state.items()}
    decayed = [v for n, v in leaves.items() if n.startswith("linears") and n.endswith("weight")]
    others = [v for v in leaves.values() if not any(v is w for w in decayed)]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}],
        lr=0.01,
    )
    x = torch.from_numpy(start.encoder_.encode(table).dense[:, :2]).double()
    target = torch.from_numpy((y - y.mean()) / y.std())
    expected = [torch_step(leaves, x, target, edges, optimizer, leaves.values()) for _ in range(4)]
    model.set_params(max_iter=4).fit(table, y)
    by_head, of_mean = zip(*expected, strict=True)
    assert_allclose(model.loss_curve_, by_head, rtol=1e-9)
    assert (np.array(by_head) > np.array(of_mean) * 1.005).all()
    for name, value in leaves.items():
        assert_allclose(model._states[0][name], value.detach(), rtol=1e-6, atol=1e-9, err_msg=name)
    assert (np.diff(edges, axis=1)[1] > 0).sum() <= 2  # three values


@EACH
def test_early_stopping_follows_the_mean_prediction(cls, y):
    model = cls(**QUICK, early_stopping=True).fit(X, y, X_val=X[:40], y_val=y[:40])
    raw = heads_of(model, X[:40])[0]
    if cls is TabMClassifier:
        places = np.searchsorted(model.classes_, y[:40])
        loss = -np.log(raw.softmax(-1).mean(1).numpy()[np.arange(40), places]).mean()
    else:
        target = (y[:40] - model.target_.shift) / model.target_.scale
        loss = 0.5 * ((raw[..., 0].mean(1).numpy() - target) ** 2).mean()
    assert model.best_validation_score_ == pytest.approx(-loss, rel=1e-4)
    assert len(model.validation_scores_) == 3


@EACH
def test_in_a_stack_as_alone(cls, y):
    more = {"dropout": 0.2, "precision": "float64"}
    models = [cls(**{**QUICK, **more, "learning_rate_init": rate}) for rate in (1e-3, 1e-2)]
    halves = [(X[:80], y[:80]), (X[20:], y[20:])]  # of other bins
    tasks = [
        FitTask(clone(model), *rows, data_key=i)
        for i, rows in enumerate(halves)
        for model in models
    ]
    assert all(outcome.error is None for outcome in fit_stacked(tasks, n_jobs=1))
    for task in tasks:
        alone = clone(task.estimator).fit(task.X, task.y)
        assert_allclose(answer(task.estimator, X), answer(alone, X), rtol=1e-7, atol=1e-9)
    search = StackedGridSearchCV(models[0], {"n_heads": [1, 2]}, cv=2, n_jobs=1).fit(X, y)
    best = clone(models[0]).set_params(**search.best_params_).fit(X, y)
    assert_allclose(answer(search.best_estimator_, X), answer(best, X), rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:sklearn.exceptions.ConvergenceWarning")
@EACH
def test_it_goes_on(cls, y):
    classes = {"classes": np.unique(LABELS)} if cls is TabMClassifier else {}
    model = cls(**QUICK)
    for part in (slice(0, 60), slice(60, N), slice(0, 60)):
        model.partial_fit(X[part], y[part], **classes)
    assert len(model.loss_curve_) == 3
    first = cls(**QUICK).fit(X[:60], y[:60])  # whose bins stay
    edges = first.encoder_.numeric_scaler_.edges
    assert_array_equal(model.encoder_.numeric_scaler_.edges, edges)
    assert_array_equal(model._states[0]["inputs.numeric.edges"].T, edges)
    warm = cls(**QUICK, warm_start=True).fit(X, y).fit(X, y)
    assert len(warm.loss_curve_) == 6
    for name, value in (("n_heads", 4), ("n_bins", 7)):
        with pytest.raises(ValueError, match=f"{name}={value}, but the fitted network"):
            clone(warm).set_params().fit(X, y).set_params(**{name: value}).fit(X, y)


@EACH
def test_parquet_files_are_fitted_as_the_table_is(cls, y, tmp_path):
    pytest.importorskip("pyarrow")
    X.assign(y=y).to_parquet(tmp_path / "table.parquet", row_group_size=30)
    model = cls(**QUICK).fit_parquet(tmp_path / "table.parquet", "y")
    whole = cls(**QUICK).fit(X, y)
    assert_allclose(
        model.encoder_.numeric_scaler_.edges, whole.encoder_.numeric_scaler_.edges, atol=1e-6
    )
    method = "predict_proba" if cls is TabMClassifier else "predict"
    streamed = model.predict_parquet(tmp_path / "table.parquet", method)
    assert_allclose(streamed, answer(whole, X), rtol=1e-3, atol=1e-4)


@EACH
def test_its_parameters_are_the_perceptrons_and_the_heads(cls, y):
    base = MLPClassifier if cls is TabMClassifier else MLPRegressor
    assert {*cls().get_params()} == {*base().get_params(), "n_heads"}
    positional = list(inspect.signature(base).parameters)[:3]
    assert list(inspect.signature(cls).parameters)[:3] == positional
