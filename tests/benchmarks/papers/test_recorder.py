"""ActivationRecorder: its records equal the statistics of a shorter training."""

from __future__ import annotations

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from sklearn.datasets import load_iris

from benchmarks.papers.layeract.recorder import ActivationRecorder
from combutab import MLPClassifier, MLPRegressor
from combutab.evaluation import activation_stats

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
    return table[table["epoch"] == epoch].drop(columns="epoch").reset_index(drop=True)


def recorded(model, X=X, y=Y, **options):
    recorder = ActivationRecorder(n_rows=len(X), **options)
    model.set_params(callbacks=[recorder]).fit(X, y)
    return recorder


@pytest.mark.parametrize("normalization", ["none", "batch"])
def test_records_equal_those_of_a_shorter_training(normalization):
    settings = QUICK | {"n_members": 2, "normalization": normalization, "activation": "la-silu"}
    records = recorded(MLPClassifier(**settings))
    assert records.layers["epoch"].unique().tolist() == [1, 2, 3, 4]
    for epoch in (1, 4):
        net = MLPClassifier(**settings | {"max_iter": epoch}).fit(X, Y)
        expected = activation_stats(net, X, batch_size=len(X))
        for name in ("layers", "fluctuation"):
            assert_frame_equal(
                of_epoch(getattr(records, name), epoch),
                getattr(expected, name),
                rtol=1e-4,
                atol=1e-5,
            )


def test_recording_does_not_change_training():
    settings = QUICK | {"dropout": 0.3, "normalization": "batch"}
    net = MLPRegressor(**settings)
    recorded(net, y=X.iloc[:, 0])
    plain = MLPRegressor(**settings).fit(X, X.iloc[:, 0])
    assert net.loss_curve_ == plain.loss_curve_
    np.testing.assert_array_equal(net.predict(X), plain.predict(X))


def test_members_keep_their_numbers_after_early_stopping():
    settings = QUICK | {"n_members": 4, "max_iter": 60, "n_iter_no_change": 1, "tol": 0.01}
    net = MLPClassifier(**settings, learning_rate_init=0.02)
    records = recorded(net, noises=[])
    epochs = net.history_.groupby("member")["epoch"].max()
    assert epochs.nunique() > 1, "they stop at different times"
    assert records.layers.groupby("member")["epoch"].max().tolist() == epochs.tolist()
    assert records.fluctuation.empty
