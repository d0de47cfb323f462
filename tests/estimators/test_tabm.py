"""TabM does what the others do, with heads that share weights; so does a network of one's own."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from torch.nn import functional as F

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV, TabMClassifier, TabMRegressor
from combutab.core.files import read_tensors
from combutab.estimators import FitTask, fit_stacked
from tests.heads_network import HeadsSpec

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


def test_a_classifier_gives_the_mean_of_the_heads_probabilities():
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
def test_a_regressor_gives_the_mean_of_the_heads_predictions(loss):
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


def test_training_is_torchs_and_each_head_has_its_own_loss():
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
def test_bins_lie_between_rows(cls, y):
    model = cls(**QUICK, n_members=2, numeric_encoding="standard").fit(X, y)
    assert model.encoder_.numeric_scaler_.edges.shape == (7, 3)
    assert model._spec.kind == "tabm"
    assert model.coefs_[-1].shape[:2] == (K, 6)
    assert [b.shape[0] for b in model.intercepts_] == [K] * 3
    rows = model.encoder_.encode(X.dropna()).dense
    for j in range(2):
        assert not np.isin(model.encoder_.numeric_scaler_.edges[:, j], rows[:, j]).any()


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


def test_several_targets_and_labels():
    both = np.column_stack([Y, X["b"]])
    model = TabMRegressor(**QUICK).fit(X, both)
    assert model.predict(X).shape == (N, 2)
    labels = both > 0.7
    model = TabMClassifier(**QUICK, class_weight=None).fit(X, labels.astype(int))
    assert model.predict_proba(X).shape == (N, 2)


def test_it_learns_what_a_single_kink_cannot():
    x = np.linspace(0, 6 * np.pi, 400)[:, None]
    model = TabMRegressor(
        hidden_layer_sizes=(16,), n_heads=4, max_iter=40, batch_size=40, random_state=0,
        learning_rate_init=0.01, dropout=0, n_iter_no_change=np.inf, early_stopping=False,
    ).fit(x, np.sin(x[:, 0]))  # fmt: skip
    assert model.score(x, np.sin(x[:, 0])) > 0.95


def test_an_mlp_takes_the_embeddings():
    own = {n: v for n, v in QUICK.items() if n != "n_heads"}
    for cls, y in ((MLPClassifier, LABELS), (MLPRegressor, Y)):
        model = cls(**own, numeric_embedding="piecewise-linear").fit(X, y)
        n_inputs = 3 * 3 + 1 + 8  # numbers, an indicator, an embedding
        assert model.coefs_[0].shape == (n_inputs, 8)
        plain = cls(**own).fit(X, y)
        assert not len(plain.encoder_.numeric_scaler_.edges)


@EACH
def test_its_parameters_are_the_perceptrons_and_the_heads(cls, y):
    base = MLPClassifier if cls is TabMClassifier else MLPRegressor
    assert {*cls().get_params()} == {*base().get_params(), "n_heads"}
    positional = list(inspect.signature(base).parameters)[:3]
    assert list(inspect.signature(cls).parameters)[:3] == positional


# ---- a network of one's own: a spec is all that it brings ----------------------------------------


HEADS = {
    "hidden_layer_sizes": (8, 6),
    "max_iter": 4,
    "n_iter_no_change": np.inf,
    "max_onehot": 3,
    "batch_size": 32,
    "random_state": 0,
}


class _OfHeads:
    n_heads = 3

    def _make_spec(self, n_rows):
        return HeadsSpec(
            self.encoder_.n_dense_,
            self._hidden_layer_sizes(n_rows),
            self.target_.n_raw_outputs,
            self.encoder_.cardinalities_,
            n_heads=self.n_heads,
        )


class HeadsClassifier(_OfHeads, MLPClassifier):
    pass


class HeadsRegressor(_OfHeads, MLPRegressor):
    pass


def test_a_classifier_averages_the_probabilities_of_members_and_heads():
    model = HeadsClassifier(**HEADS, n_members=2).fit(X, LABELS)
    raw = heads_of(model, X)
    assert raw.shape == (2, N, 3, 3)
    expected = torch.softmax(raw.double(), -1).mean((0, 2))
    assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.n_layers_ == 4


@pytest.mark.parametrize("loss", ["squared_error", "gaussian_nll", "quantile"])
def test_a_regressor_averages_predictions(loss):
    model = HeadsRegressor(loss, **HEADS).fit(X, Y)
    raw = heads_of(model, X)[0].double()
    column = raw.sort(-1).values[..., 1] if loss == "quantile" else raw[..., 0]
    expected = column.mean(1).numpy() * model.target_.scale + model.target_.shift
    assert_allclose(model.predict(X), expected, rtol=1e-4, atol=1e-5)
    if loss == "gaussian_nll":
        means = raw[..., 0]
        _, std = model.predict(X, return_std=True)
        assert (std / model.target_.scale > means.std(1, correction=0).numpy()).all()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_fit_validates_stops_and_goes_on_with_heads():
    model = HeadsClassifier(**HEADS, early_stopping=True).fit(X, LABELS)
    assert len(model.validation_scores_) == 4
    again = clone(model).set_params(warm_start=True).fit(X, LABELS)
    first = list(again.loss_curve_)
    assert again.fit(X, LABELS).loss_curve_[:4] == first
    model = HeadsRegressor(**HEADS).partial_fit(X, Y).partial_fit(X, Y)
    assert len(model.loss_curve_) == 2


def test_bagged_members_answer_with_all_heads_for_the_rows_of_their_folds():
    model = HeadsClassifier(**HEADS, n_members=2, bagging="cv").fit(X, LABELS)
    members = torch.softmax(heads_of(model, X).double(), -1).mean(2).numpy()
    folds = [fold for _, fold in clone(model).encode_data(X, LABELS).splits]
    for member, fold in zip(members, folds, strict=True):
        assert_allclose(model.oof_decision_function_[fold], member[fold], atol=1e-6)


def test_a_search_trains_them_as_one_stack():
    grid = {"learning_rate_init": [1e-3, 1e-2], "alpha": [0.0, 0.1]}
    search = StackedGridSearchCV(HeadsClassifier(**HEADS), grid, cv=2, n_jobs=1).fit(X, LABELS)
    best = clone(search.estimator).set_params(**search.best_params_).fit(X, LABELS)
    assert_allclose(search.predict_proba(X), best.predict_proba(X), atol=1e-5)


def test_their_files_and_streams(tmp_path):
    pytest.importorskip("pyarrow")
    X.assign(y=Y).to_parquet(tmp_path / "table.parquet", row_group_size=30)
    model = HeadsRegressor(**HEADS).fit_parquet(tmp_path / "table.parquet", "y")
    model.save(tmp_path / "model")
    header = json.loads(read_tensors(tmp_path / "model", "combutab")[0])
    assert header["shape"]["kind"] == "heads-of-a-test"
    again = HeadsRegressor.load(tmp_path / "model")
    assert again._spec == model._spec
    assert_array_equal(again.predict(X), model.predict(X))
