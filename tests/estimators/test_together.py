"""Many fits at once: the same networks however the work is shared out."""

import threading
import time

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.datasets import load_iris, make_classification
from sklearn.model_selection import GridSearchCV

from combutab import MLPClassifier
from combutab.estimators import FitTask, _jobs, fit_stacked

pytestmark = pytest.mark.usefixtures("paper_defaults")

X, Y = make_classification(80, random_state=0)
ACTIVATIONS = ["relu", "combu-random", "gelu", "la-silu"]


def tasks(epochs=3):
    return [
        FitTask(
            MLPClassifier(
                hidden_layer_sizes=(8, 8), activation=activation, max_iter=epochs, batch_size=40,
                n_iter_no_change=np.inf, random_state=seed,
            ), X, Y, data_key=0,
        )
        for activation in ACTIVATIONS
        for seed in range(2)
    ]  # fmt: skip


@pytest.fixture
def two_threads(monkeypatch):
    """Torch has two threads, and a stack holds a network or two."""
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 1000)
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
        task.estimator.fit(X, Y)
    return weights(wanted)


@pytest.mark.parametrize(("backend", "n_jobs"), [(None, None), (None, 3), ("loky", 2)])
def test_threads_and_processes_give_the_same_networks(n_jobs, backend, alone, two_threads):
    together, done = tasks(), []
    if backend is None:
        fit_stacked(together, n_jobs=n_jobs, on_progress=done.append)
    else:
        with parallel_config(backend=backend):
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


def test_grid_search_in_processes_tunes_what_it_should():
    # here, where joblib's processes have been started before: to start one takes seconds
    X, y = load_iris(return_X_y=True)
    classifier = MLPClassifier((16,), max_iter=30, n_iter_no_change=np.inf, random_state=0)
    grid = {"activation": ["relu", "combu"], "learning_rate_init": [1e-9, 0.02]}
    parallel = GridSearchCV(classifier, grid, cv=2, n_jobs=2).fit(X, y)
    alone = GridSearchCV(classifier, grid, cv=2).fit(X, y)
    np.testing.assert_allclose(
        parallel.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]
    )
    assert parallel.best_params_["learning_rate_init"] == 0.02
    assert parallel.best_score_ > 0.85
    assert min(parallel.cv_results_["mean_test_score"]) < 0.7  # the parameter reached the fit
