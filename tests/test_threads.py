"""Numbers of CPU threads: small computations take one, limits count, and numbers are restored."""

import os
import subprocess
import sys
import threading

import joblib
import numpy as np
import pytest
import scipy.optimize
import threadpoolctl
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from combutab import TVAE, MLPClassifier, PackClassifier
from combutab.core import device
from combutab.core.device import limit_threads, max_threads, network_threads, tree_threads
from combutab.model_selection import compare_activations
from combutab.training import Callback

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
SMALL = {"hidden_layer_sizes": (4,), "max_iter": 2, "random_state": 0}


@pytest.fixture
def machine(monkeypatch):
    """A machine of four CPUs; the function sets another CPU quota or affinity."""

    def limit(quota=4, affinity=4):
        monkeypatch.setattr(joblib, "cpu_count", lambda: quota)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
        device._n_cpus.cache_clear()

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    limit()
    yield limit
    torch.set_num_threads(before)
    device._n_cpus.cache_clear()


class Recorder(Callback):
    """Records torch's number of threads in each epoch."""

    def __init__(self, error=None):
        self.counts, self.error = [], error

    def on_epoch_end(self, report):
        self.counts.append(torch.get_num_threads())
        if self.error is not None:
            raise self.error
        return False


def test_small_steps_take_one_thread(machine):
    assert [network_threads(flops) for flops in (0, 1e6, 3e7)] == [1, 1, 1]
    assert network_threads(5e7) == 2
    assert [network_threads(flops) for flops in (1e9, np.inf)] == [4, 4]
    assert [tree_threads(n) for n in (1e4, 6e5, 1e8)] == [1, 2, 4]


@pytest.mark.parametrize("limits", [{"quota": 2}, {"affinity": 2}, {"quota": 3, "affinity": 2}])
def test_quota_and_affinity_limit_threads(machine, limits):
    machine(**limits)
    assert max_threads() == network_threads(np.inf) == tree_threads(1e9) == 2
    machine(quota=64, affinity=64)
    assert max_threads() == 4  # torch's own number


def test_limits_are_restored_after_errors_and_when_nested(machine):
    with pytest.raises(KeyError), limit_threads(2):
        assert torch.get_num_threads() == max_threads() == 2
        with limit_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with limit_threads(3):
            assert torch.get_num_threads() == 2
        raise KeyError
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("lasting", "count"), [(True, torch.get_num_threads), (False, max_threads)]
)
def test_other_python_threads_keep_their_number(machine, lasting, count):
    counts = []

    def append():
        counts.append(count())

    with limit_threads(1, lasting=lasting):
        thread = threading.Thread(target=append)
        thread.start()
        thread.join()
        assert torch.get_num_threads() == 1
    assert counts == [4]
    assert torch.get_num_threads() == 4


def test_limits_of_python_threads_are_independent(machine):
    inside, checked, counts = threading.Event(), threading.Event(), []

    def hold():
        with limit_threads(2):
            inside.set()
            checked.wait(10)
            counts.append(torch.get_num_threads())
        counts.append(torch.get_num_threads())

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    with limit_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    checked.set()
    thread.join()
    assert counts == [2, 4]


def test_small_fits_take_one_thread(machine):
    recorder = Recorder()
    clf = MLPClassifier(**SMALL, callbacks=[recorder]).fit(X, Y)
    assert set(recorder.counts) == {1}
    assert torch.get_num_threads() == 4
    torch.set_num_threads(1)
    same = MLPClassifier(**SMALL).fit(X, Y)
    np.testing.assert_array_equal(clf.predict_proba(X), same.predict_proba(X))


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_small_fits_by_lbfgs_take_one_thread(machine, monkeypatch):
    counts, minimize = [], scipy.optimize.minimize

    def record(*arguments, **options):
        counts.append(torch.get_num_threads())
        return minimize(*arguments, **options)

    monkeypatch.setattr(scipy.optimize, "minimize", record)
    MLPClassifier(**SMALL, solver="lbfgs", n_members=1).fit(X, Y)
    assert counts == [1]
    assert torch.get_num_threads() == 4


def test_large_steps_take_all_threads(machine, monkeypatch):
    monkeypatch.setattr(device, "_FLOPS_PER_THREAD", 1.0)
    recorder = Recorder()
    MLPClassifier(**SMALL, callbacks=[recorder]).fit(X, Y)
    assert set(recorder.counts) == {4}


def test_a_fit_that_fails_restores_threads(machine):
    recorder = Recorder(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        MLPClassifier(**SMALL, callbacks=[recorder]).fit(X, Y)
    assert recorder.counts == [1]
    assert torch.get_num_threads() == 4


def test_small_predictions_take_one_thread(machine, monkeypatch):
    clf = MLPClassifier(**SMALL).fit(X, Y)
    network, counts = type(clf.network()), []
    predict = network.predict

    def record(*arguments):
        counts.append(torch.get_num_threads())
        return predict(*arguments)

    monkeypatch.setattr(network, "predict", record)
    clf.predict(X)
    monkeypatch.setattr(device, "_FLOPS_PER_THREAD", 1.0)
    clf.predict(X)
    assert counts == [1, 4]
    assert torch.get_num_threads() == 4


def test_small_generators_take_one_thread(machine, monkeypatch):
    recorder, counts = Recorder(), []
    draw = TVAE._draw

    def record(*arguments):
        counts.append(torch.get_num_threads())
        return draw(*arguments)

    monkeypatch.setattr(TVAE, "_draw", record)
    model = TVAE(epochs=2, compress_dims=(8,), decompress_dims=(8,), embedding_dim=4,
                 random_state=0, callbacks=[recorder])  # fmt: skip
    model.fit(X).sample(5)
    assert recorder.counts == [1, 1]
    assert set(counts) == {1}
    assert torch.get_num_threads() == 4


@pytest.fixture
def boosting_threads(monkeypatch):
    """Numbers of OpenMP threads of scikit-learn during each fit of boosted trees."""
    counts, fit = [], HistGradientBoostingClassifier.fit

    def record(*arguments, **options):
        libraries = threadpoolctl.threadpool_info()
        counts.append({each["num_threads"] for each in libraries if each["user_api"] == "openmp"})
        return fit(*arguments, **options)

    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", record)
    return counts


def test_small_boosting_takes_one_thread(machine, boosting_threads):
    PackClassifier(n_members=2, max_iter=2, random_state=0).fit(X, Y)
    assert boosting_threads
    assert all(counts == {1} for counts in boosting_threads)
    assert torch.get_num_threads() == 4


def test_baselines_of_a_comparison_take_one_thread(machine, boosting_threads):
    compare_activations(
        X, Y, task="classification", activations=["relu"], seeds=1, folds=2, refit=False,
        hidden=(4,), epochs=2,
    )  # fmt: skip
    assert boosting_threads
    assert all(counts == {1} for counts in boosting_threads)
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_threads_are_restored_after_packs_with_jobs(machine, n_jobs):
    PackClassifier(n_members=3, max_iter=2, random_state=0, n_jobs=n_jobs).fit(X, Y)
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_import_shortens_the_spin_of_waiting_threads(variables, expected):
    code = "import combutab, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == expected
