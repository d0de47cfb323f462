"""Estimators of another network than the perceptron: a spec is all that they bring."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from combutab import MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.core.files import read_tensors
from tests.heads_network import HeadsSpec

pytestmark = pytest.mark.usefixtures("paper_defaults")

RNG = np.random.default_rng(0)
N = 120
X = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": RNG.normal(size=N),
        "id": [f"n{i % 7}" for i in range(N)],
    }
)
Y = X["a"].to_numpy() * X["b"].to_numpy() + (X["id"] == "n3")
LABELS = np.select([Y < -0.3, Y < 0.5], ["low", "middle"], "high")
QUICK = {
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


def _heads_of(model, table):
    """Raw outputs, (members, rows, heads, outputs), without the network's ``predict``."""
    encoded = model.encoder_.encode(table)
    net = model.network()
    dense = torch.from_numpy(encoded.dense).to(net.dtype).expand(net.n_members, -1, -1)
    codes = torch.from_numpy(encoded.codes).expand(net.n_members, -1, -1)
    with torch.no_grad():
        return net(dense, codes).unflatten(1, (len(table), -1))


def test_a_classifier_averages_the_probabilities_of_members_and_heads():
    model = HeadsClassifier(**QUICK, n_members=2).fit(X, LABELS)
    raw = _heads_of(model, X)
    assert raw.shape == (2, N, 3, 3)
    expected = torch.softmax(raw.double(), -1).mean((0, 2))
    assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.n_layers_ == 4


@pytest.mark.parametrize("loss", ["squared_error", "gaussian_nll", "quantile"])
def test_a_regressor_averages_predictions(loss):
    model = HeadsRegressor(loss, **QUICK).fit(X, Y)
    raw = _heads_of(model, X)[0].double()
    column = raw.sort(-1).values[..., 1] if loss == "quantile" else raw[..., 0]
    expected = column.mean(1).numpy() * model.target_.scale + model.target_.shift
    assert_allclose(model.predict(X), expected, rtol=1e-4, atol=1e-5)
    if loss == "gaussian_nll":
        means = raw[..., 0]
        _, std = model.predict(X, return_std=True)
        assert (std / model.target_.scale > means.std(1, correction=0).numpy()).all()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_fit_validates_stops_and_goes_on_with_heads():
    model = HeadsClassifier(**QUICK, early_stopping=True).fit(X, LABELS)
    assert len(model.validation_scores_) == 4
    again = clone(model).set_params(warm_start=True).fit(X, LABELS)
    first = list(again.loss_curve_)
    assert again.fit(X, LABELS).loss_curve_[:4] == first
    model = HeadsRegressor(**QUICK).partial_fit(X, Y).partial_fit(X, Y)
    assert len(model.loss_curve_) == 2


def test_bagged_members_answer_with_all_heads_for_the_rows_of_their_folds():
    model = HeadsClassifier(**QUICK, n_members=2, bagging="cv").fit(X, LABELS)
    members = torch.softmax(_heads_of(model, X).double(), -1).mean(2).numpy()
    folds = clone(model).encode_data(X, LABELS).folds.positions
    for member, fold in zip(members, folds, strict=True):
        assert_allclose(model.oof_decision_function_[fold], member[fold], atol=1e-6)


def test_a_search_trains_them_as_one_stack():
    grid = {"learning_rate_init": [1e-3, 1e-2], "alpha": [0.0, 0.1]}
    search = StackedGridSearchCV(HeadsClassifier(**QUICK), grid, cv=2, n_jobs=1).fit(X, LABELS)
    best = clone(search.estimator).set_params(**search.best_params_).fit(X, LABELS)
    assert_allclose(search.predict_proba(X), best.predict_proba(X), atol=1e-5)


def test_their_files_and_streams(tmp_path):
    pytest.importorskip("pyarrow")
    X.assign(y=Y).to_parquet(tmp_path / "table.parquet", row_group_size=30)
    model = HeadsRegressor(**QUICK).fit_parquet(tmp_path / "table.parquet", "y")
    model.save(tmp_path / "model")
    header = json.loads(read_tensors(tmp_path / "model", "combutab")[0])
    assert header["shape"]["kind"] == "heads-of-a-test"
    again = HeadsRegressor.load(tmp_path / "model")
    assert again._spec == model._spec
    assert_array_equal(again.predict(X), model.predict(X))
