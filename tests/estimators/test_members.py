"""Ensembles, rows that do not see each other, and many fits at once: the same networks."""

import threading
import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_classification

from combutab import MLPClassifier, MLPRegressor
from combutab.estimators import FitTask, _jobs, fit_stacked

pytestmark = pytest.mark.usefixtures("paper_defaults")


INF = float("inf")


X, Y = load_iris(return_X_y=True)


QUICK = {
    "hidden_layer_sizes": (8, 8),
    "max_iter": 4,
    "n_iter_no_change": INF,
    "batch_size": 40,
    "early_stopping": True,
}


# batch norm and modules with parameters draw and hold more than weights
KINDS = [{}, {"activation": "combu-random"}, {"normalization": "batch"}, {"activation": "prelu"}]


# ---- ensembles ----------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_first_member_is_the_single_network(kind):
    parameters = {**QUICK, "random_state": 0, "precision": "float64", **kind}
    single = MLPClassifier(**parameters).fit(X, Y)
    several = MLPClassifier(**parameters, n_members=4).fit(X, Y)
    assert_allclose(several.loss_curve_, single.loss_curve_, rtol=1e-9)
    assert several.validation_scores_ == single.validation_scores_
    for got, expected in zip(several.coefs_, single.coefs_, strict=True):
        assert_allclose(got, expected, rtol=1e-7, atol=1e-12)


def test_larger_ensemble_begins_with_the_same_members():
    parameters = {**QUICK, "random_state": 5, "precision": "float64"}
    three = MLPRegressor(**parameters, n_members=3).fit(X, Y).history_
    five = MLPRegressor(**parameters, n_members=5).fit(X, Y).history_
    assert_allclose(five[five["member"] < 3].to_numpy(), three.to_numpy(), rtol=1e-9)


def test_probabilities_of_members_are_averaged():
    for y in (Y, Y == 1):
        model = MLPClassifier(**QUICK, random_state=0, n_members=3).fit(X, y)
        raw = model._raw(X).double().numpy()
        if raw.shape[-1] == 1:
            positive = (1 / (1 + np.exp(-raw[..., 0]))).mean(0)
            expected = np.column_stack([1 - positive, positive])
        else:
            e = np.exp(raw)
            expected = (e / e.sum(-1, keepdims=True)).mean(0)
        assert_allclose(model.predict_proba(X), expected, rtol=1e-5)
        assert (raw.std(0) > 0).all()
    model = MLPRegressor(**QUICK, random_state=0, n_members=3).fit(X, Y)
    raw = model._raw(X).double().numpy().mean(0)[:, 0]
    assert np.corrcoef(model.predict(X), raw)[0, 1] > 1 - 1e-6


# ---- rows ----------------------------------------


_TABLE = (
    pd.DataFrame(np.random.default_rng(0).normal(size=(300, 6)))
    .add_prefix("x")
    .assign(
        kind=np.random.default_rng(1).choice(list("abcdef"), 300),
        id=(np.arange(300) % 50).astype(str),
    )
)


@pytest.fixture(
    scope="module",
    params=[
        {},
        {"normalization": "batch"},
        {"activation": "pln-4"},
        {"activation": "la-silu"},
        {"normalization": "layer", "proxy_norm": True},
        {"n_members": 3},
    ],
    ids=str,
)
def predictor(request):
    y = np.random.default_rng(2).normal(size=300)
    parameters = {"hidden_layer_sizes": (32, 16), "max_iter": 3, "n_iter_no_change": INF}
    return MLPRegressor(**parameters, random_state=0, max_onehot=10, **request.param).fit(_TABLE, y)


@settings(max_examples=12, deadline=None)
@given(rows=st.lists(st.integers(0, 299), min_size=1, max_size=70))
def test_a_row_is_predicted_whatever_stands_beside_it(predictor, rows):
    whole = predictor.predict(_TABLE)
    # to the last bits of float32: matrix products round by their shapes
    assert_allclose(predictor.predict(_TABLE.iloc[rows]), whole[rows], rtol=1e-5, atol=1e-6)


def test_predicting_in_chunks_is_predicting_at_once(predictor, monkeypatch):
    whole = predictor.predict(_TABLE)
    for units in (1, 16 * 32, 1000 * 32):
        monkeypatch.setattr("combutab.estimators._fitted._PREDICT_UNITS", units)
        assert_allclose(predictor.predict(_TABLE), whole, rtol=1e-5, atol=1e-6)


# ---- many fits at once: the same networks however the work is shared out -------------------------


ROWS, TRUTH = make_classification(80, random_state=0)


ACTIVATIONS = ["relu", "combu-random", "gelu", "la-silu"]


def tasks(epochs=3):
    return [
        FitTask(
            MLPClassifier(
                hidden_layer_sizes=(8, 8), activation=activation, max_iter=epochs, batch_size=40,
                n_iter_no_change=np.inf, random_state=seed,
            ), ROWS, TRUTH, data_key=0,
        )
        for activation in ACTIVATIONS
        for seed in range(2)
    ]  # fmt: skip


@pytest.fixture
def two_threads(single_stacks):
    """Torch has two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def weights(wanted):
    return [np.concatenate([w.ravel() for w in task.estimator.coefs_]) for task in wanted]


@pytest.fixture(scope="module")
def alone():
    """The weights of all networks, each fitted by itself."""
    wanted = tasks()
    for task in wanted:
        task.estimator.fit(ROWS, TRUTH)
    return weights(wanted)


@pytest.mark.parametrize("n_jobs", [None, 3])  # processes: in trust/test_search.py
def test_threads_give_the_same_networks(n_jobs, alone, two_threads):
    together, done = tasks(), []
    fit_stacked(together, n_jobs=n_jobs, on_progress=done.append)
    assert done[-1] == len(together)
    assert done == sorted(done)
    np.testing.assert_allclose(weights(together), alone, rtol=1e-4, atol=1e-5)
    assert torch.get_num_threads() == 2


def test_threads_leave_torchs_generator_and_thread_count_alone(two_threads):
    state = torch.random.get_rng_state()
    fit_stacked(tasks(), n_jobs=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]


def test_an_interrupt_ends_the_threads_too(two_threads, monkeypatch):
    ended = []
    original = _jobs.train_one_stack

    def train(*arguments):
        results = original(*arguments)
        ended.append({result.reason for result in results})
        return results

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_jobs, "train_one_stack", train)
    slow = tasks(epochs=100_000)
    slow[0].estimator.max_iter = 1  # a stack of its own, whose end brings the interrupt
    with pytest.raises(KeyboardInterrupt):
        fit_stacked(slow, n_jobs=2, on_fitted=interrupt)
    for _ in range(3000):  # a minute, on a busy machine
        if len(ended) > 1:
            break
        time.sleep(0.02)
    assert {"callback"} in ended  # it stopped after an epoch, long before its last
