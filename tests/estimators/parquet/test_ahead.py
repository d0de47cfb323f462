"""Windows are filled by a thread, one ahead; whatever ends a fit ends the thread."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from contextlib import closing
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from combutab import MLPRegressor
from combutab.estimators import _streaming
from combutab.estimators._streaming import MemoryPlan, ParquetRows, prefetched
from combutab.training import Callback

pytest.importorskip("pyarrow")

QUICK = {"hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0, "device": "cpu"}
QUICK |= {"n_iter_no_change": float("inf"), "batch_size": 50, "early_stopping": False}


def threads():
    return [each for each in threading.enumerate() if each.name.startswith("combutab-ahead")]


@pytest.fixture
def path(tmp_path):
    x = np.random.default_rng(0).normal(size=(1000, 2))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=x[:, 0])
    frame.to_parquet(tmp_path / "table.parquet", row_group_size=70)
    return tmp_path / "table.parquet"


@pytest.fixture(autouse=True)
def small_windows():
    plan = MemoryPlan(40, 3, 200)
    with mock.patch.object(_streaming, "plan_memory", return_value=plan):
        yield
    assert not threads(), "none is left behind"


# ---- one ahead ---------------------------------------------------------------------------------


def test_one_item_is_made_ahead_and_no_more():
    begun, go = [], threading.Semaphore(0)

    def make(stopped):
        for i in range(5):
            begun.append(i)
            go.release()
            yield i

    with closing(prefetched(make)) as items:
        for used, _ in enumerate(items):
            for _ in range(1 if used else 2):  # the one in use, and the next
                if len(begun) < 5:
                    assert go.acquire(timeout=100)
            time.sleep(0.01)  # for one that must not be begun
            assert len(begun) == min(5, used + 2)
    assert used == 4


def test_errors_are_raised_where_the_items_are_used():
    def make(stopped):
        yield 1
        raise LookupError("of the thread")

    got = []
    with pytest.raises(LookupError, match="of the thread"), closing(prefetched(make)) as items:
        got.extend(items)
    assert got == [1]
    with closing(prefetched(make)) as items:
        assert next(iter(items)) == 1


def test_what_is_left_in_the_middle_is_told_to_stop():
    told, closed = [], []

    def make(stopped):
        try:
            for i in itertools.count():
                told.append(stopped())
                yield i
        finally:
            closed.append(True)

    with closing(prefetched(make)) as items:
        assert list(itertools.islice(items, 3)) == [0, 1, 2]
    assert closed == [True]
    assert not any(told)


# ---- a fit -------------------------------------------------------------------------------------


def test_each_window_is_whole_while_the_next_is_filled(path):
    """The memory of a window is not written to before it is done with."""
    rows = []
    windows = ParquetRows.windows

    def slow(self, epoch):
        for window in windows(self, epoch):
            before = window.y.clone()
            time.sleep(0.01)
            assert (window.y == before).all()
            rows.extend(window.y[:, 0].tolist())
            yield window

    with mock.patch.object(ParquetRows, "windows", slow):
        found = MLPRegressor(**QUICK, scale_target=False).fit_parquet(path, "y")
    expected = sorted(pd.read_parquet(path)["y"].astype(np.float32).tolist() * 2)
    assert sorted(rows) == expected
    again = MLPRegressor(**QUICK, scale_target=False).fit_parquet(path, "y")
    assert again.loss_curve_ == found.loss_curve_, "whatever the threads' timing"


def test_a_file_that_breaks_off_in_an_epoch_is_named(path):
    def spoil(job, *args, **options):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        return original(job, *args, **options)

    original = _streaming.train_shared
    model = MLPRegressor(**QUICK)
    with (
        mock.patch.object(_streaming, "train_shared", spoil),
        pytest.raises(ValueError, match=r"cannot read \S*table\.parquet") as caught,
    ):
        model.fit_parquet(path, "y")
    assert not model.__sklearn_is_fitted__()
    assert not threads(), "though the error holds all frames"
    assert caught.value.__traceback__ is not None


class Stop(Callback):
    """Ends a training after its first epoch."""

    def __init__(self, error):
        self.error = error

    def on_epoch_end(self, report):
        if report.epoch == 1:
            raise self.error
        return False


@pytest.mark.parametrize("error", [LookupError("of a callback"), KeyboardInterrupt()])
def test_errors_and_ctrl_c_between_epochs(path, error):
    model = MLPRegressor(**QUICK, callbacks=[Stop(error)])
    if isinstance(error, KeyboardInterrupt):
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit_parquet(path, "y")
        assert model.n_iter_ == 1
    else:
        with pytest.raises(LookupError):
            model.fit_parquet(path, "y")


@pytest.mark.parametrize("where", ["in a step", "while it waits for a window"])
def test_a_real_ctrl_c_in_an_epoch(path, where):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("Ctrl-C is the main thread's")
    windows, filled, epochs = ParquetRows.windows, ParquetRows._filled, []

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

    def watched(self, epoch):
        epochs.append(epoch)
        for i, window in enumerate(windows(self, epoch)):
            if where == "in a step" and epoch == 1 and i == 1:
                interrupt()
            yield window

    def slow(self, *args):
        for i, window in enumerate(filled(self, *args)):
            if where != "in a step" and len(epochs) == 2 and i == 2:
                interrupt()
            yield window

    model = MLPRegressor(**QUICK)
    with (
        mock.patch.object(ParquetRows, "windows", watched),
        mock.patch.object(ParquetRows, "_filled", slow),
        pytest.warns(UserWarning, match="interrupted"),
    ):
        model.fit_parquet(path, "y")
    assert epochs == [0, 1]
    assert model.predict_parquet(path).shape == (1000,)
