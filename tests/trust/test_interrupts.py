"""Ctrl-C at any moment: what was learned is kept, whole, and nothing else is changed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import combutab
from combutab import CTGAN, TVAE, MLPRegressor, PrivateSynthesizer, TabFlow
from combutab.cli import main
from combutab.core.files import whole_files
from combutab.generators import fit_stack
from combutab.training import Callback, ProgressBar, uninterrupted
from tests.models import WIDTHS
from tests.short import BUDGET
from tests.trust.forked import Forked, needs_fork, press_again_where_lost

RNG = np.random.default_rng(0)

TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=200).round(2),
        "kind": RNG.choice(["a", "b"], 200),
        "n": np.arange(200) // 4,
    }
)

# Ctrl-C may come between a file's opening and the `with` that closes it
AT_ANY_MOMENT = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def make(cls, epochs, **params):
    common = {"epochs": epochs, "batch_size": 50, "random_state": 0}
    return cls(**common | WIDTHS[cls] | params)


@contextmanager
def ctrl_c_after(seconds, file=None):
    """Send this process a real SIGINT so long after a file is there, if this still goes on."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("Ctrl-C is the main thread's")
    pid, over = os.getpid(), threading.Event()

    def send():
        while file is not None and not file.exists() and not over.wait(0.01):
            pass
        if not over.wait(seconds):
            os.kill(pid, signal.SIGINT)

    thread = threading.Thread(target=send)
    hook = press_again_where_lost(lambda: over.wait(0.1))
    try:
        thread.start()
        yield
    finally:
        with suppress(KeyboardInterrupt):
            over.set()
            thread.join()
        sys.unraisablehook = hook
        torch.set_grad_enabled(True)  # a fit that was stopped before its first step restores none


def assert_same(model, other):
    assert model.n_iter_ == other.n_iter_
    for state, expected in zip(model._states, other._states, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value)
    pd.testing.assert_frame_equal(model.history_, other.history_)
    pd.testing.assert_frame_equal(model.sample(9), other.sample(9))


@pytest.mark.slow
@AT_ANY_MOMENT
@pytest.mark.parametrize(
    ("cls", "early_stopping"),
    [
        (cls, stops)
        for cls in (CTGAN, TVAE, TabFlow)
        for stops in (False, True)
        if BUDGET > 1 or stops is (cls is TVAE)  # the stopping knows of no generator
    ],
)
def test_interrupted_generator_equals_its_last_full_epoch(
    cls, early_stopping, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "combutab._model_files.SECONDS", 1e9
    )  # by Ctrl-C alone, and after the first
    params = {"early_stopping": early_stopping, "n_iter_no_change": np.inf}
    kept = 0
    make(cls, 1, **params).fit(TABLE)  # what is loaded once is no part of an epoch's time
    started = time.perf_counter()
    make(cls, 3, **params).fit(TABLE)
    a_while = 3 * (time.perf_counter() - started)
    n_trials = 6 * BUDGET if BUDGET > 1 else 3
    for trial in range(n_trials):
        moment = (trial + RNG.uniform()) / n_trials * a_while
        path = tmp_path / f"training {trial}"
        model = make(cls, 100_000, **params)
        try:
            # the last of them once an epoch is done, however slow the machine
            file = path if trial == n_trials - 1 else None
            with warnings.catch_warnings(), ctrl_c_after(moment, file):
                warnings.filterwarnings("ignore", "Training interrupted by user after")
                model.fit(TABLE, checkpoint=path)
        except KeyboardInterrupt:
            with pytest.raises(ValueError, match="not fitted"):
                model.sample(1)
            continue
        kept += 1
        n = model.n_iter_
        assert n >= 1
        assert model.history_["epoch"].tolist() == list(range(1, n + 1))
        assert np.isfinite(model.history_).all(axis=None)
        assert_same(model, make(cls, n, **params).fit(TABLE))
        # and its file goes on to what one go would have given
        resumed = make(cls, n + 3, **params).fit(TABLE, checkpoint=path)
        assert_same(resumed, make(cls, n + 3, **params).fit(TABLE))
    assert kept > 0, "vacuous"
    assert len(list(tmp_path.iterdir())) <= n_trials  # no file that is half of one


def test_ctrl_c_ends_all_stacks():
    class Interrupt(Callback):
        def on_epoch_end(self, report):
            signal.raise_signal(signal.SIGINT)

    models = [make(cls, 9, callbacks=[Interrupt()]) for cls in (TVAE, CTGAN)]
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="after 1 epochs"):
        fit_stack(models, TABLE)
    assert models[0].n_iter_ == 1
    assert len(models[0].sample(3)) == 3
    assert not hasattr(models[1], "n_iter_")
    with pytest.warns(UserWarning, match="after 1 epochs"):
        fit_stack(models[:1], TABLE)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("cls", [CTGAN, TVAE, TabFlow, MLPRegressor])
def test_gradients_are_on_or_off_as_before(cls, enabled):
    """Ctrl-C between the two lines in which ``torch.no_grad`` ends."""

    class Interrupt(Callback):
        def on_epoch_end(self, report):
            torch.set_grad_enabled(not enabled)
            signal.raise_signal(signal.SIGINT)

    if cls is MLPRegressor:
        model, data = cls(hidden_layer_sizes=(4,), max_iter=3), (TABLE, TABLE["n"])
    else:
        model, data = make(cls, 3), (TABLE,)
    model.set_params(callbacks=[Interrupt()])
    with torch.set_grad_enabled(enabled):
        with pytest.warns(UserWarning, match="nterrupted"):
            model.fit(*data)
        assert torch.is_grad_enabled() is enabled


def test_a_private_fit_leaves_gradients_on(monkeypatch):
    pytest.importorskip("opendp")

    def interrupted(*arguments):
        torch.set_grad_enabled(False)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PrivateSynthesizer, "_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        PrivateSynthesizer(random_state=0).fit(TABLE)
    assert torch.is_grad_enabled()


def test_bookkeeping_finishes_despite_ctrl_c():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ZeroDivisionError), uninterrupted():
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def elsewhere():
        with uninterrupted():
            done.append(2)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == [1, 2]


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SYNTH = ["synth", "t.csv", "-o", "out.csv", "--batch-size", "50", "--device", "cpu"]

SYNTH += ["--model", "tvae", "--activation", "relu"]


def interrupt_at(monkeypatch, epoch):
    def interrupt(bar, report):
        if report.epoch == epoch:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "on_epoch_end", interrupt)


def test_ctrl_c_writes_the_trained_generator(folder, capsys, monkeypatch):
    assert main([*SYNTH, "--epochs", "3"]) == 0
    expected = Path("out.csv").read_bytes()
    Path("out.csv").unlink()
    interrupt_at(monkeypatch, 3)
    arguments = [*SYNTH, "--epochs", "9", "--save", "model", "--checkpoint", "training"]
    assert main(arguments) == 130
    assert capsys.readouterr() == (
        "",
        "combutab: interrupted after 3 of 9 epochs; kept: the generator in model, 200 rows in "
        "out.csv; the same command continues from training\n",
    )
    assert Path("out.csv").read_bytes() == expected
    assert combutab.load("model").n_iter_ == 3
    # what is there may be of a whole training
    Path("training").unlink()
    assert main(arguments) == 130
    assert "200 rows in out-interrupted.csv" in capsys.readouterr().err
    assert Path("out-interrupted.csv").read_bytes() == Path("out.csv").read_bytes() == expected
    names = ["model", "model-interrupted", "out-interrupted.csv", "out.csv", "t.csv", "training"]
    assert sorted(os.listdir()) == names
    # killed and resumed is as in one go
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert main([*SYNTH[:3], "resumed.csv", *SYNTH[4:], *arguments[len(SYNTH) :]]) == 0
    assert main([*SYNTH[:3], "whole.csv", *SYNTH[4:], "--epochs", "9"]) == 0
    assert Path("resumed.csv").read_bytes() == Path("whole.csv").read_bytes() != expected


def test_ctrl_c_in_the_first_epoch_writes_nothing(folder, capsys, monkeypatch):
    def interrupt(bar, n_members, max_epochs):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "on_train_begin", interrupt)
    monkeypatch.setattr(ProgressBar, "on_train_end", lambda bar: None)
    assert main([*SYNTH, "--epochs", "9", "--save", "model"]) == 130
    err = capsys.readouterr().err
    assert err == "combutab: interrupted after 0 of 9 epochs; nothing is kept\n"
    assert os.listdir() == ["t.csv"]


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_second_ctrl_c_leaves_nothing_half_written(folder, capsys, monkeypatch, interrupted):
    def half(self, path, **options):
        Path(path).write_text("half")
        signal.raise_signal(signal.SIGINT)

    if interrupted:
        interrupt_at(monkeypatch, 2)
    monkeypatch.setattr(pd.DataFrame, "to_csv", half)
    assert main([*SYNTH, "--epochs", "4", "--save", "model", "--report", "r.html"]) == 130
    when = " after 2 of 4 epochs" if interrupted else ""
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"combutab: interrupted{when}; kept: the generator in model"
    assert sorted(os.listdir()) == ["model", "t.csv"]
    assert combutab.load("model").n_iter_ == (2 if interrupted else 4)


def started(process):
    """The process, once it has kept its first epoch."""
    deadline = time.monotonic() + 300
    while not Path("training").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


LONG = [*SYNTH, "--epochs", "1000000", "--checkpoint", "training"]


@needs_fork
def test_sigint_to_a_process(folder):
    process = started(Forked(lambda: main(LONG), folder))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert out == ""
    assert "Traceback" not in err
    assert process.returncode == 130
    assert "200 rows in out.csv" in err
    assert sorted(os.listdir()) == ["out.csv", "t.csv", "training"]


@needs_fork
@pytest.mark.usefixtures("short_report")
def test_closed_pipe_leaves_all_files_complete(folder):
    arguments = [*SYNTH, "--epochs", "1", "--report", "r.html"]
    reader, writer = os.pipe()
    os.close(reader)
    with tempfile.TemporaryFile("w+") as err:
        process = Forked(lambda: main(arguments), folder, [writer, err.fileno()])
        os.close(writer)
        process.communicate()
        err.seek(0)
        assert "Traceback" not in err.read()
    assert sorted(os.listdir()) == ["out.csv", "r.html", "t.csv"]


# ---- Writers that are killed at random moments: the files are the old ones or the new ones ------


NAMES = ["best_model.safetensors", "comparison.png", "results.csv", "summary.csv"]


def _write_all(home):
    with whole_files(home, NAMES) as stage:
        for name in NAMES:
            (stage / name).write_text("new")


def _texts(home):
    return [(home / name).read_text() for name in NAMES if (home / name).exists()]


def _run_to(home, call):
    """Write a new set, and end like a kill before the call of this number."""
    numbers = itertools.count(1)

    def count(frame, event, argument):
        if event == "c_call" and argument.__module__ == "posix" and next(numbers) == call:
            os.kill(os.getpid(), signal.SIGKILL)

    def work():
        sys.setprofile(count)
        _write_all(home)
        sys.setprofile(None)

    process = Forked(work, home)
    process.communicate()
    return process.returncode


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no process can be killed")
@needs_fork
def test_kill_never_mixes_old_and_new_files(tmp_path):
    """Not at random: every moment at which what is on the disk may differ."""
    outcomes, every = set(), max(1, 4 // BUDGET)
    for call in range(1, 1000, every):
        home = tmp_path / str(call)
        home.mkdir()
        for name in NAMES:
            (home / name).write_text("old")
        ended = _run_to(home, call)
        texts = _texts(home)
        assert len(set(texts)) <= 1
        outcomes.update(texts)
        _write_all(home)
        assert _texts(home) == ["new"] * len(NAMES)
        if ended == 0:
            assert texts == ["new"] * len(NAMES)
            break
    assert outcomes == {"old", "new"}
    assert call > 20
