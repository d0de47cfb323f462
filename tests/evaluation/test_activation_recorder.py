"""ActivationRecorder: what it records is what activation_stats finds after as many epochs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from sklearn.datasets import load_iris

from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import ActivationRecorder, activation_stats
from combutab.training import EpochReport, Rows

pytestmark = pytest.mark.usefixtures("paper_defaults")

X, Y = load_iris(return_X_y=True, as_frame=True)
QUICK = {
    "hidden_layer_sizes": (8, 6),
    "max_iter": 4,
    "n_iter_no_change": np.inf,
    "batch_size": 50,
    "random_state": 0,
}


def of_epoch(table, epoch):
    own = table[table["epoch"] == epoch].drop(columns="epoch")
    return own.reset_index(drop=True)


def recorded(model, X=X, y=Y, **options):
    recorder = ActivationRecorder(n_rows=len(X), **options)
    model.set_params(callbacks=[recorder]).fit(X, y)
    return recorder


@pytest.mark.parametrize("normalization", ["none", "batch"])
def test_each_epoch_is_that_of_a_training_that_ends_there(normalization):
    settings = QUICK | {"n_members": 2, "normalization": normalization, "activation": "la-silu"}
    found = recorded(MLPClassifier(**settings))
    assert found.layers["epoch"].unique().tolist() == [1, 2, 3, 4]
    for epoch in (1, 4):
        net = MLPClassifier(**settings | {"max_iter": epoch}).fit(X, Y)
        expected = activation_stats(net, X, batch_size=len(X))
        for name in ("layers", "fluctuation"):
            assert_frame_equal(
                of_epoch(getattr(found, name), epoch), getattr(expected, name), rtol=1e-4, atol=1e-5
            )


def test_the_training_is_the_same():
    settings = QUICK | {"dropout": 0.3, "normalization": "batch"}
    net = MLPRegressor(**settings)
    recorded(net, y=X.iloc[:, 0])
    plain = MLPRegressor(**settings).fit(X, X.iloc[:, 0])
    assert net.loss_curve_ == plain.loss_curve_
    np.testing.assert_array_equal(net.predict(X), plain.predict(X))


def test_members_keep_their_numbers_when_others_have_stopped():
    settings = QUICK | {"n_members": 4, "max_iter": 60, "n_iter_no_change": 1, "tol": 0.01}
    net = MLPClassifier(**settings, learning_rate_init=0.02)
    found = recorded(net, noises=[])
    epochs = net.history_.groupby("member")["epoch"].max()
    assert epochs.nunique() > 1, "they stop at different times"
    assert found.layers.groupby("member")["epoch"].max().tolist() == epochs.tolist()
    assert found.fluctuation.empty


def test_members_of_several_stacks_are_counted_on(monkeypatch):
    monkeypatch.setattr("combutab.estimators._jobs._STACK_UNITS", {"cpu": 1})
    settings = QUICK | {"n_members": 3}
    found = recorded(MLPClassifier(**settings), every=4).layers
    assert found["epoch"].unique().tolist() == [1, 4]
    monkeypatch.undo()
    together = recorded(MLPClassifier(**settings), every=4).layers
    order = ["member", "epoch", "layer"]
    assert_frame_equal(found, together.sort_values(order, ignore_index=True), rtol=1e-4)


def test_rows_are_evenly_spaced_and_codes_come_along():
    n = 40
    table = pd.DataFrame({"x": np.linspace(-1, 1, n), "code": [f"c{i % 20}" for i in range(n)]})
    settings = QUICK | {"max_onehot": 4, "min_frequency": 2, "batch_size": 20}
    recorder = ActivationRecorder(n_rows=4)
    net = MLPRegressor(**settings, callbacks=[recorder]).fit(table, table["x"])
    assert net.encoder_.cardinalities_, "the column is embedded"
    expected = activation_stats(net, table.iloc[[0, 10, 20, 30]]).layers
    assert_frame_equal(of_epoch(recorder.layers, 4), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rows": 0}, "n_rows and every must be at least 1, got n_rows=0"),
        ({"every": 0}, "every=0"),
        ({"noises": [(0, -1)]}, "noises must be"),
        ({"noise_at": "output"}, "noise_at must be 'layer' or 'input', got 'output'"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        ActivationRecorder(**options)


def test_without_rows_in_memory_it_says_so():
    report = EpochReport(1, 1, (0,), np.zeros(1), None, np.zeros(1), 0.0)
    none = Rows(torch.empty(0, 4), torch.empty(0))
    with pytest.raises(ValueError, match="set early_stopping=True"):
        ActivationRecorder().on_epoch_network(report, None, none)
