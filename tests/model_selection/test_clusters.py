"""Many fits on real worker processes of Dask: the same results, whatever happens to the workers."""

import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_validate

import combutab
from combutab import MLPClassifier, PackRegressor, StackedGridSearchCV, paper_recipe
from combutab.cli import main
from combutab.core import parallel
from combutab.estimators import FitTask, fit_stacked
from combutab.evaluation import ml_efficacy
from tests import short
from tests.model_selection.killers import Killer, Slow
from tests.short import few_trees

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
get_mp_context = pytest.importorskip("distributed.utils").get_mp_context
pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
Y = (X[:, 0] - X[:, 1] > 0).astype(int)
TINY = X[:40, :2], Y[:40]  # sent with each task: no worker's death loses it
SETTINGS = {"hidden_layer_sizes": (6,), "max_iter": 3, "n_iter_no_change": np.inf}
NET = MLPClassifier(**paper_recipe("classification", **SETTINGS), random_state=0)
GRID = {"activation": ["tanh", "relu"], "random_state": [0, 1, 2]}


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What workers have when they start; Dask has its own list, and sets it once."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "combutab.estimators"])


@contextmanager
def two_workers():
    """Two worker processes; each nanny starts another for one that dies."""
    config = {
        # which may take longer than the 15 seconds after which Dask gives the nanny up
        "distributed.deploy.lost-worker-timeout": "500s",
        "distributed.worker.multiprocessing-method": "forkserver",  # which imports once for all
    }
    with dask.config.set(config), distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
        silence_logs=60,
    ) as cluster, distributed.Client(cluster, timeout=10):  # fmt: skip
        yield cluster


@pytest.fixture(scope="module")
def cluster():
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def own_cluster():
    """Of one test, which ends it."""
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def on_dask(cluster):
    try:
        cluster.wait_for_workers(2, timeout=100)
    except TimeoutError:  # a nanny gives up a worker that is killed while it starts
        cluster.scale(0)
        cluster.scale(2)
        cluster.wait_for_workers(2, timeout=200)
    # a worker that is killed takes longer than ten seconds to come back on a busy machine
    with joblib.parallel_config(backend="dask", wait_for_workers_timeout=300):
        yield cluster


@pytest.fixture(autouse=True)
def small_stacks():
    """More stacks than workers."""
    with short.small_stacks():
        yield


def scores(search):
    return [search.cv_results_[f"split{k}_test_score"].tolist() for k in range(search.n_splits_)]


def search_here(search, *data):
    with joblib.parallel_config(backend="threading", n_jobs=1):
        return clone(search).set_params(n_jobs=1).fit(*data)


# ---- the same, and sent once -------------------------------------------------------------------


def test_search_sends_each_table_once(on_dask, monkeypatch):
    packed, scattered = [], []
    original_pack, original_scatter = parallel._Sender.pack, distributed.Client.scatter

    def pack(self, function, task):
        sent = original_pack(self, function, task)
        packed.append(len(sent[1]))
        return sent

    def scatter(self, data, *arguments, **options):
        scattered.append(data)
        return original_scatter(self, data, *arguments, **options)

    monkeypatch.setattr(parallel._Sender, "pack", pack)
    monkeypatch.setattr(distributed.Client, "scatter", scatter)
    search = StackedGridSearchCV(NET, GRID, cv=2, scoring="neg_log_loss").fit(X, Y)
    assert scores(search) == scores(search_here(search, X, Y))
    assert search.best_estimator_.t_ == len(X) * 3
    assert len(packed) > 2
    table = 150 * 6 * 4  # bytes: a fold's training rows, float32
    assert max(packed) < table
    tables = [array.tobytes() for array in scattered if array.nbytes == table]
    assert len(tables) == len(set(tables)) == 2


def test_what_others_share_out_finds_the_same(on_dask):
    table = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(d=Y)
    tables = {"first": table[:100], "second": table[100:200]}

    def evaluate():
        return ml_efficacy(
            real_train=table[:200], real_test=table[200:], synthetic=tables, target="d",
            learners="linear",
        )["mean"]  # fmt: skip

    there = evaluate()
    with joblib.parallel_config(backend="sequential"):
        assert_array_equal(there, evaluate())


PACK = PackRegressor(
    n_members=5, activations=("relu", "mish"), max_iter=3, random_state=0,
    member_params={"hidden_layer_sizes": (6,)},
)  # fmt: skip


@few_trees()  # which this process grows
def test_a_pack_is_of_members_that_others_train(on_dask, monkeypatch):
    """Bit for bit: its choice among their snapshots, their curves, their weights."""
    with joblib.parallel_config(backend="sequential"):
        here = clone(PACK).fit(X, Y)

    def at_home(*arguments):
        raise AssertionError("a member is trained by this process")

    monkeypatch.setattr("combutab.estimators._pack_training.MemberHistory.end_epoch", at_home)
    there = clone(PACK).fit(X, Y)
    networks = there.members_["activation"] != "boosting"
    assert networks.sum() == 5
    assert (there.members_.loc[networks, "n_iter"] == 3).all()
    pd.testing.assert_frame_equal(there.members_, here.members_, check_exact=True)
    pd.testing.assert_frame_equal(there.history_, here.history_, check_exact=True)
    assert there.validation_loss_ == here.validation_loss_
    assert_array_equal(there.predict(X), here.predict(X))


def test_nested_packs_stay_within_their_task(on_dask):
    log = on_dask.scheduler.transition_log
    with joblib.parallel_config(backend="sequential"):
        here = cross_validate(PACK, X, Y, cv=2)["test_score"]
    log.clear()
    there = cross_validate(PACK, X, Y, cv=2, n_jobs=2)["test_score"]
    assert_allclose(there, here, rtol=1e-6)  # workers have another number of threads
    keys = {entry.key for entry in log}
    assert any("_fit_and_score" in key for key in keys)
    assert not any("_run_sent" in key for key in keys)
    late = clone(PACK).set_params(max_time=1e-9).fit(X, Y)
    assert any("_run_sent" in entry.key for entry in log)
    assert set(late.members_["n_iter"]) == {0, 1}


def tasks(*activations, epochs=3, data=TINY, seeds=2):
    estimators = [
        clone(NET).set_params(activation=activation, random_state=seed, max_iter=epochs)
        for activation in activations
        for seed in range(seeds)
    ]
    return [FitTask(estimator, *data, data_key=0) for estimator in estimators]


def weights(tasks):
    return [np.concatenate([w.ravel() for w in task.estimator.coefs_]) for task in tasks]


def same_as_here(done, *activations, **options):
    here = tasks(*activations, **options)
    with joblib.parallel_config(backend="sequential"):
        fit_stacked(here, n_jobs=1)
    assert_array_equal(weights(done), weights(here))


def test_results_arrive_in_order_of_completion(on_dask, tmp_path):
    """The first stack ends after others have come back."""
    activations = [Slow(tmp_path / "go on", os.getpid()), "tanh", "relu"]
    wanted, order, progress = tasks(*activations), [], []

    def fitted(outcomes):
        order.extend(outcomes)
        (tmp_path / "go on").touch()

    fit_stacked(wanted, on_fitted=fitted, on_progress=progress.append)
    assert order[0] > 1
    assert sorted(order) == [*range(6)]
    assert progress == sorted(progress)
    assert progress[-1] == 6
    assert len(progress) > 2
    same_as_here(wanted, *activations)


def test_the_command_takes_a_schedulers_address(cluster, tmp_path, capfd):
    table = pd.DataFrame(X[:90, :3], columns=["a", "b", "c"]).assign(d=Y[:90])
    table.to_csv(tmp_path / "table.csv", index=False)
    command = ["compare", str(tmp_path / "table.csv"), "--target", "d", "--baselines", "none"]
    command += ["--activations", "relu,tanh", "--hidden", "8"]
    command += ["--seeds", "2", "--folds", "2", "--epochs", "2"]
    results = []
    for name, where in (("there", ["--cluster", cluster.scheduler_address]), ("here", [])):
        assert main([*command, "--out", str(tmp_path / name), *where]) == 0
        results.append(pd.read_csv(tmp_path / name / "results.csv").drop(columns="seconds"))
    assert "on 2 workers of the Dask cluster at tcp://" in capfd.readouterr().err
    pd.testing.assert_frame_equal(*results)


# ---- faults ------------------------------------------------------------------------------------


def test_dask_replaces_a_killed_worker(on_dask, tmp_path):
    activations = ["tanh", Killer(tmp_path / "killed", os.getpid()), "relu"]
    wanted = tasks(*activations)
    outcomes = fit_stacked(wanted)
    assert (tmp_path / "killed").exists()
    assert [outcome.error for outcome in outcomes] == [None] * 6
    same_as_here(wanted, *activations)


def test_what_all_workers_have_lost_is_sent_again(on_dask, tmp_path):
    pids = distributed.get_client().run(os.getpid).values()
    (tmp_path / "pids").write_text(" ".join(map(str, pids)))
    activations = [
        "tanh",
        Killer(tmp_path / "killed", os.getpid(), others=tmp_path / "pids"),
        "relu",
    ]
    wanted = tasks(*activations, data=(X, Y))
    with pytest.warns(RuntimeWarning, match="Dask.* ended with .* sent again"):
        fit_stacked(wanted)
    same_as_here(wanted, *activations, data=(X, Y))


def test_table_is_sent_to_the_next_worker(on_dask, monkeypatch):
    """joblib alone would wait for ever."""
    failures = [TimeoutError("No valid workers found"), OSError("the worker is gone")]
    original = distributed.Client.scatter

    def scatter(self, *arguments, **options):
        async def fail(error):
            raise error

        return fail(failures.pop()) if failures else original(self, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "scatter", scatter)
    wanted = tasks("tanh", "relu", data=(X, Y))
    fit_stacked(wanted)
    assert not failures
    same_as_here(wanted, "tanh", "relu", data=(X, Y))

    failures = [TimeoutError("No valid workers found")] * 10_000
    with (
        joblib.parallel_config(backend="dask", wait_for_workers_timeout=0.2),
        pytest.warns(RuntimeWarning, match="No valid workers found; .* sent again"),
        pytest.raises(BrokenExecutor, match="No valid workers found"),
    ):
        fit_stacked(tasks("tanh", "relu", data=(X, Y)))


def test_deadly_fit_fails_without_harming_others(on_dask, tmp_path):
    """joblib alone would wait for ever."""
    scheduler, before = on_dask.scheduler, on_dask.scheduler.allowed_failures
    scheduler.allowed_failures = 0
    try:
        deadly = Killer(tmp_path / "killed", os.getpid(), always=True)
        wanted = tasks("tanh", deadly, "relu", "gelu", seeds=1)
        outcomes = fit_stacked(wanted)
    finally:
        scheduler.allowed_failures = before
    errors = [outcome.error for outcome in outcomes]
    assert [error is None for error in errors] == [True, False, True, True]
    assert "KilledWorker" in str(errors[1])
    same_as_here([wanted[0], *wanted[2:]], "tanh", "relu", "gelu", seeds=1)


def test_errors_belong_to_their_fit(on_dask):
    def breaks(width):
        raise RuntimeError("this activation breaks")

    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, width):
            return torch.nn.ReLU()

    wanted = tasks("tanh", breaks, "relu", Locked())  # some stacks have fits of two
    outcomes = fit_stacked(wanted)
    assert [outcome.error is None for outcome in outcomes] == [
        *(True, True, False, False, True, True, False, False)
    ]
    assert "this activation breaks" in str(outcomes[3].error)
    assert "cannot pickle" in str(outcomes[7].error)


@pytest.fixture
def no_collector():
    """Leave objects that hold one another where they are."""
    gc.disable()
    yield
    gc.enable()


def test_an_interrupt_leaves_no_task_behind(on_dask, no_collector):
    wanted = tasks("tanh", "relu", "gelu", epochs=1_000_000)
    for task in wanted[:2]:
        task.estimator.max_iter = 1

    def interrupt(outcomes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_stacked(wanted, on_fitted=interrupt)

    def busy(dask_worker):
        return len(dask_worker.state.tasks)

    end = time.monotonic() + 200
    while on_dask.scheduler.tasks or any(distributed.get_client().run(busy).values()):
        assert time.monotonic() < end, on_dask.scheduler.tasks
        time.sleep(0.05)


def test_other_worker_version_is_refused(cluster, tmp_path):
    package = Path(combutab.__file__).parent
    (tmp_path / "combutab").mkdir()
    for path in package.iterdir():
        (tmp_path / "combutab" / path.name).symlink_to(path)
    version = tmp_path / "combutab" / "_version.py"
    version.unlink()
    version.write_text('__version__ = "0.0.1"\n')
    command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
    command += ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--name", "old"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as worker:
        try:
            client = distributed.get_client()
            end = time.monotonic() + 250
            while "old" not in {w["name"] for w in client.scheduler_info(-1)["workers"].values()}:
                assert time.monotonic() < end
                time.sleep(0.1)
            search = StackedGridSearchCV(NET, GRID, cv=2)
            with (
                joblib.parallel_config(backend="dask", workers=["old"]),
                pytest.raises(RuntimeError, match=r"has combutab 0\.0\.1, .*install the same"),
            ):
                search.fit(X, Y)
        finally:
            worker.kill()


def test_lost_scheduler_is_one_clear_error(own_cluster, tmp_path):
    wanted = tasks("tanh", Slow(tmp_path / "never", os.getpid(), seconds=5))

    def go_away(outcomes):
        own_cluster.close()

    with (
        joblib.parallel_config(backend="dask"),
        pytest.warns(RuntimeWarning, match="sent again"),
        pytest.raises(BrokenExecutor, match=r"Dask.*ended with"),
    ):
        fit_stacked(wanted, on_fitted=go_away)
