"""``track_metric``: what the training batches were predicted as, epoch by epoch."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification, make_regression

from combutab import MLPClassifier, MLPRegressor

pytestmark = pytest.mark.usefixtures("paper_defaults")


def still(estimator, **params):
    """A network that hardly moves: what it does in training is what the fitted one does."""
    return estimator(
        hidden_layer_sizes=(8,), learning_rate_init=1e-12, dropout=0.0, alpha=0.0, batch_size=30,
        max_iter=2, n_iter_no_change=np.inf, random_state=0, track_metric=True, **params,
    )  # fmt: skip


@pytest.mark.parametrize("normalization", ["none", "layer"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_tracked_accuracy_is_that_of_the_training_rows(n_classes, normalization):
    X, y = make_classification(100, n_informative=4, n_classes=n_classes, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    for w in (None, weight):
        net = still(MLPClassifier, normalization=normalization).fit(X, y, w)
        assert net.history_["train_metric"].tolist() == pytest.approx(
            [net.score(X, y, w)] * 2, abs=1e-6
        )


def test_tracked_error_is_that_of_the_training_rows():
    X, y = make_regression(100, random_state=0)
    net = still(MLPRegressor).fit(X, y)
    expected = np.abs(net.predict(X) - y).mean() / y.std()
    assert net.history_["train_metric"].tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_tracked_accuracy_of_labels_wants_all_of_them_right():
    X, y = make_multilabel_classification(100, n_classes=3, random_state=0)
    net = still(MLPClassifier).fit(X, y)
    assert net.history_["train_metric"].iloc[-1] == pytest.approx(net.score(X, y), abs=1e-6)


def test_tracking_changes_no_weight_and_is_off_unless_asked_for():
    X, y = make_regression(60, random_state=0)
    net = MLPRegressor(hidden_layer_sizes=(8,), max_iter=3, n_iter_no_change=np.inf, random_state=0)
    off, on = clone(net).fit(X, y), clone(net).set_params(track_metric=True).fit(X, y)
    np.testing.assert_array_equal(on.coefs_[0], off.coefs_[0])
    assert off.history_["train_metric"].isna().all()
