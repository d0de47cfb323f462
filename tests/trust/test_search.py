"""A stacked search finds the same in every backend, thread, process and context."""

import itertools
import os
import pickle
import signal
import subprocess
import sys

import joblib
import numpy as np
import pytest
import torch
from joblib._parallel_backends import ThreadingBackend
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV

from combutab import MLPClassifier, StackedGridSearchCV, paper_recipe
from combutab.estimators import FitTask, fit_stacked
from combutab.model_selection import compare_activations
from tests import short

pytestmark = [
    pytest.mark.usefixtures("small_stacks"),
    pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning"),
]

RNG = np.random.default_rng(0)

X = RNG.normal(size=(90, 3)) + 5

Y = (X[:, 0] - X[:, 1] > 0).astype(int)

INF = float("inf")

NET = MLPClassifier(
    **paper_recipe(
        "classification", hidden_layer_sizes=(6,), max_iter=6, learning_rate_init=0.02,
        n_iter_no_change=INF, dropout=0.0, precision="float64",
    ), random_state=0,
)  # fmt: skip

GRIDS = {
    "first": {"learning_rate_init": [0.05, 1e-6], "activation": ["tanh", "relu"]},
    "last": {"learning_rate_init": [1e-6, 0.05], "activation": ["relu", "tanh"]},
}

TIMES = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


class _Remote(ThreadingBackend):
    """Stands for Dask and Ray: sends away all it is given, pickled, whatever ``n_jobs`` is."""

    def effective_n_jobs(self, n_jobs):
        return 2

    def configure(self, n_jobs=1, parallel=None, **options):
        return super().configure(n_jobs=2, parallel=parallel, **options)

    def submit(self, func, callback=None):
        sent = pickle.dumps(func)
        return super().submit(lambda: pickle.loads(pickle.dumps(pickle.loads(sent)())), callback)

    apply_async = submit


joblib.register_parallel_backend("trust-remote", _Remote)

BACKENDS = ["sequential", "threading", "loky", "multiprocessing", "trust-remote"]


def least_sure(results):
    """A refit of one's own: the last of the best."""
    return int(np.flatnonzero(results["rank_test_score"] == 1)[-1])


REFITS = {
    "best": {},
    "callable": {"refit": least_sure},
    "metric": {"scoring": ["accuracy", "neg_log_loss"], "refit": "neg_log_loss"},
}


@pytest.fixture
def small_stacks():
    """More stacks than one, so that there is something to share out."""
    with short.small_stacks():
        yield


def agree(ours, theirs):
    """The same candidates, scores and winner, and a winner that was trained on all rows."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key, expected in theirs.cv_results_.items():
        got = ours.cv_results_[key]
        if key == "params":
            assert got == expected
            continue
        assert got.dtype == expected.dtype
        if key in TIMES:
            assert (got >= 0).all()
        elif "_test_" in key and "rank" not in key:
            assert_allclose(got, expected, rtol=1e-9, err_msg=key)
        else:
            assert_array_equal(got, expected, err_msg=key)
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_index_ == theirs.best_index_
    alone = theirs.best_estimator_
    assert ours.best_estimator_.t_ == alone.t_ == len(X) * alone.n_iter_
    raw = [ours.best_estimator_, alone]
    predicted = [getattr(m, "predict_proba", m.predict)(X) for m in raw]
    assert_allclose(*predicted, rtol=1e-9)
    assert type(ours.best_estimator_) is type(ours.estimator)


@pytest.fixture(scope="module")
def expected():
    return {
        (winner, refit): GridSearchCV(NET, GRIDS[winner], cv=3, **REFITS[refit]).fit(X, Y)
        for winner, refit in itertools.product(GRIDS, REFITS)
    }


@pytest.mark.slow
@pytest.mark.parametrize(("n_jobs", "own"), [(1, 2), (2, None)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_finds_what_grid_search_finds(backend, n_jobs, own, expected):
    """Each with the first and the last candidate as winner; the ways to refit, which know of no
    backend, take turns."""
    turn = BACKENDS.index(backend) + n_jobs
    winners = set()
    for i, winner in enumerate(GRIDS):
        refit = [*REFITS][(turn + i) % len(REFITS)]
        search = StackedGridSearchCV(NET, GRIDS[winner], cv=3, n_jobs=own, **REFITS[refit])
        with joblib.parallel_config(backend=backend, n_jobs=n_jobs):
            search.fit(X, Y)
        agree(search, expected[winner, refit])
        winners.add(search.best_index_)
    assert min(winners) == 0
    assert max(winners) > 1


# ---- Workers that die and processes that are forked: it is said, and nothing waits for ever -----

WORKER_X = np.random.default_rng(0).normal(size=(60, 3))

WORKER_Y = (WORKER_X[:, 0] > 0).astype(int)

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


def compare(activations, **options):
    return compare_activations(
        WORKER_X,
        WORKER_Y,
        activations=activations,
        seeds=2,
        folds=2,
        epochs=3,
        hidden=[8],
        baselines=None,
        **options,
    )


@pytest.mark.slow
def test_killed_worker_is_named_and_its_work_repeated(tmp_path):
    activations = {"tanh": "tanh", "deadly": Deadly(tmp_path / "killed")}
    progress = []
    with (
        joblib.parallel_config(backend="loky"),
        pytest.warns(
            RuntimeWarning,
            match=r"TerminatedWorkerError.*(All 8|The other \d)",
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


def test_failing_stack_is_named_and_trained_singly(monkeypatch):
    original = sys.modules["combutab.estimators._jobs"].train_one_stack

    def train(jobs, stack, *rest):
        if len(stack) > 1:
            raise MemoryError("no room for a stack")
        return original(jobs, stack, *rest)

    monkeypatch.setattr("combutab.estimators._jobs.train_one_stack", train)
    monkeypatch.setattr("combutab.estimators._jobs._STACK_UNITS", {"cpu": 1 << 19})
    done = []
    tasks = [
        FitTask(MLPClassifier(hidden_layer_sizes=(8,), max_iter=2, n_iter_no_change=np.inf,
                              random_state=seed), WORKER_X, WORKER_Y, 0)
        for seed in range(3)
    ]  # fmt: skip
    with pytest.warns(RuntimeWarning, match="MemoryError.*All 3 fits"):
        outcomes = fit_stacked(tasks, on_progress=done.append)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert done == sorted(done)
    assert done[-1] == 3


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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_forked_process_warns_and_uses_one_thread():
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT],
        env=environment, capture_output=True, text=True, timeout=550,
    )  # fmt: skip
    assert run.stdout.split() == ["fits", "7", "predicts", "7", "generates", "7"], run.stderr
