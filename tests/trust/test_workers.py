"""Workers that die and processes that are forked: it is said, and nothing waits for ever."""

import os
import signal
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
import torch
from joblib._parallel_backends import ThreadingBackend
from joblib.externals.loky.process_executor import TerminatedWorkerError
from sklearn.base import clone

from combutab import MLPClassifier, StackedGridSearchCV
from combutab.estimators import FitTask, _jobs, fit_stacked
from combutab.model_selection import compare_activations

X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
HOME = os.getpid()


class Deadly:
    """An activation that kills every process but the one of the tests."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __call__(self, width):
        if os.getpid() != HOME:
            open(self.mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.ReLU()

    def __reduce__(self):
        return _deadly, (self.mark, HOME)


def _deadly(mark, home):
    globals()["HOME"] = home  # in a worker, where this module is imported anew
    return Deadly(mark)


@pytest.fixture(autouse=True)
def small_stacks(monkeypatch):
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 1000)


def compare(activations, **options):
    return compare_activations(
        X, Y, activations=activations, seeds=2, folds=2, epochs=3, hidden=[8], **options
    )


def test_a_worker_that_is_killed_is_said_and_its_work_done_again(tmp_path):
    activations = {"tanh": "tanh", "deadly": Deadly(tmp_path / "killed")}
    progress = []
    with (
        joblib.parallel_config(backend="loky"),
        pytest.warns(
            RuntimeWarning,
            match=r"TerminatedWorkerError.*(All 8|The other \d) fits are trained again",
        ) as w,
    ):
        found = compare(activations, n_jobs=2, progress=progress.append)
    assert (tmp_path / "killed").exists()
    assert sum(issubclass(each.category, RuntimeWarning) for each in w) == 1
    assert "in this process" in str(w[0].message)
    alone = compare({"tanh": "tanh", "deadly": "relu"})
    scores = ["activation", "fold", "seed", "accuracy", "log_loss"]
    assert found.results["activation"].tolist() == alone.results["activation"].tolist()
    np.testing.assert_allclose(
        found.results[scores[1:]].to_numpy(float), alone.results[scores[1:]].to_numpy(float),
        rtol=1e-5,
    )  # fmt: skip
    assert found.best == alone.best
    assert progress == sorted(progress)
    assert progress[-1] == 9.0  # each network once, and the refit


class _Killed(ThreadingBackend):
    """Stands for loky whose worker was killed, as above, without the seconds of new workers."""

    def submit(self, func, callback=None):
        raise TerminatedWorkerError("a worker was killed")

    apply_async = submit


joblib.register_parallel_backend("trust-killed", _Killed)


def test_a_search_whose_worker_is_killed_says_so_too():
    net = MLPClassifier(hidden_layer_sizes=(8,), max_iter=3, n_iter_no_change=np.inf,
                        random_state=0)  # fmt: skip
    search = StackedGridSearchCV(net, {"activation": ["tanh", "relu"]}, cv=2, n_jobs=2)
    with (
        joblib.parallel_config(backend="trust-killed"),
        pytest.warns(RuntimeWarning, match="TerminatedWorkerError"),
    ):
        search.fit(X, Y)
    alone = clone(search).set_params(n_jobs=None).fit(X, Y)
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]
    )


def test_a_stack_that_fails_though_each_fit_succeeds_is_said(monkeypatch):
    original = _jobs.train_one_stack

    def train(jobs, stack, *rest):
        if len(stack) > 1:
            raise MemoryError("no room for a stack")
        return original(jobs, stack, *rest)

    monkeypatch.setattr(_jobs, "train_one_stack", train)
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 1 << 19)
    done = []
    tasks = [
        FitTask(MLPClassifier(hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=np.inf,
                              random_state=seed), X, Y, 0)
        for seed in range(3)
    ]  # fmt: skip
    with pytest.warns(RuntimeWarning, match="MemoryError: no room.*All 3 fits.*one fit at a time"):
        outcomes = fit_stacked(tasks, on_progress=done.append)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert done == sorted(done)
    assert done[-1] == 3


def test_a_fit_that_fails_by_itself_is_no_failure_of_workers():
    def breaks(width):
        class Module(torch.nn.Module):
            def forward(self, x):
                raise RuntimeError("this activation breaks")

        return Module()

    tasks = [
        FitTask(MLPClassifier(hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=np.inf,
                              random_state=0, activation=each), X, Y, 0)
        for each in ("relu", breaks)
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcomes = fit_stacked(tasks)
    assert outcomes[0].error is None
    assert "this activation breaks" in str(outcomes[1].error)


# ---- forks ----------------------------------------

SCRIPT = """
import os, sys, time, warnings
import numpy as np, torch
torch.set_num_threads(2)
from combutab import MLPClassifier, TVAE
X = np.random.default_rng(0).normal(size=(1000, 20))
y = (X[:, 0] > 0).astype(int)
def net():
    return MLPClassifier(hidden_layer_sizes=(256, 256), max_iter=1, random_state=0,
                         n_iter_no_change=float("inf")).fit(X, y)
model = net()
gen = TVAE(epochs=1, random_state=0).fit(X[:600])
expected = model.predict_proba(X)

def fits():
    assert np.allclose(net().predict_proba(X), expected, atol=1e-4)
def predicts():
    assert np.allclose(model.predict_proba(X), expected, atol=1e-6)
def generates():
    gen.sample(1000)
    TVAE(epochs=1, random_state=0).fit(X[:600])

for work in (fits, predicts, generates):
    child = os.fork()
    if child == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        said = [w for w in caught if "forked" in str(w.message)]
        os._exit(7 if len(said) == 1 and torch.get_num_threads() == 1 else 8)
    end, status = time.monotonic() + 150, None
    while time.monotonic() < end and status is None:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        time.sleep(0.05)
    if status is None:
        os.kill(child, 9)
    print(work.__name__, status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_process_computes_with_one_thread_and_says_so():
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT],
        env=environment, capture_output=True, text=True, timeout=550,
    )  # fmt: skip
    assert run.stdout.split() == ["fits", "7", "predicts", "7", "generates", "7"], run.stderr
