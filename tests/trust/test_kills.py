"""Writers that are killed at random moments: the files are the old ones or the new ones."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import combutab
from benchmarks.papers.common.results import Store
from combutab import MLPRegressor
from combutab.cli import main
from combutab.core.files import check_writable
from tests.trust.forged_files import BUDGET
from tests.trust.forked import Forked, needs_fork

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no process can be killed")

ROOT = Path(__file__).parents[2]
KILLS = 12
NAMES = ["best_model.safetensors", "comparison.png", "results.csv", "summary.csv"]
ALONE = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("whole", {str(ROOT / "combutab/core/files.py")!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
whole_files = module.whole_files
"""
SET = """
home, names = sys.argv[1], sys.argv[2:]
print("ready", flush=True)
number = 1
while True:
    with whole_files(home, names) as stage:
        for name in names:
            (stage / name).write_text(f"{number}\\n" * 20_000)
    number += 1
"""


def _start_set(home):
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE + SET, str(home), *NAMES],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def _kill_after(process, seconds, file=None):
    """So long after a file is there."""
    end = time.monotonic() + 100
    while file is not None and not file.exists() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    told, _ = process.communicate()
    return told


def _numbers(home):
    return {name: (home / name).read_text().split() for name in NAMES if (home / name).exists()}


def test_a_set_of_files_is_of_one_run_whenever_the_writer_is_killed(tmp_path):
    rng = random.Random(0)
    for name in NAMES:
        (tmp_path / name).write_text("0\n" * 20_000)
    for _ in range(KILLS * BUDGET):
        _kill_after(_start_set(tmp_path), rng.uniform(0, 0.2))
        found = _numbers(tmp_path)
        assert all(len(words) == 20_000 for words in found.values())
        assert len({word for words in found.values() for word in words}) <= 1  # old beside new
        check_writable(tmp_path)  # as the next run does
        found = _numbers(tmp_path)
        assert sorted(os.listdir(tmp_path)) == NAMES
        assert len({tuple(words) for words in found.values()}) == 1


def _run_to(home, call):
    """Write a new set, and end like a kill before the call of this number."""
    code = """
import os
home, at, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
calls = 0
def count(frame, event, argument):
    global calls
    if event == "c_call" and argument.__module__ == "posix":
        calls += 1
        if calls == at:
            os.kill(os.getpid(), 9)
sys.setprofile(count)
with whole_files(home, names) as stage:
    for name in names:
        (stage / name).write_text("new")
"""
    return subprocess.run(
        [sys.executable, "-c", ALONE + code, str(home), str(call), *NAMES],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).returncode


def test_a_kill_before_any_call_of_the_system_leaves_the_old_set_or_the_new_one(tmp_path):
    """Not at random: every moment at which what is on the disk may differ."""
    outcomes, every = set(), max(1, 4 // BUDGET)
    for call in range(1, 1000, every):
        home = tmp_path / str(call)
        home.mkdir()
        for name in NAMES:
            (home / name).write_text("old")
        ended = _run_to(home, call)
        there = {(home / name).read_text() for name in NAMES if (home / name).exists()}
        assert len(there) <= 1
        check_writable(home)
        assert sorted(os.listdir(home)) == NAMES
        after = {(home / name).read_text() for name in NAMES}
        assert len(after) == 1
        outcomes |= after
        if ended == 0:
            assert after == {"new"}
            break
    assert outcomes == {"old", "new"}
    assert call > 20


@needs_fork
def test_a_model_is_whole_whenever_its_writer_is_killed(tmp_path):
    rng = random.Random(1)
    X, last = np.linspace(0, 1, 40)[:, None], -1.0
    settings = {"hidden_layer_sizes": (64,), "max_iter": 1, "n_iter_no_change": np.inf}
    model = MLPRegressor(**settings, random_state=0).fit(X, X[:, 0])

    def write():
        for number in itertools.count():
            for state in model._states:
                state["linears.1.bias"][:] = number
            model.save("model")

    for file in [None, tmp_path / "model"] * BUDGET:
        _kill_after(Forked(write, tmp_path), rng.uniform(0, 0.3), file)
        if (tmp_path / "model").exists():
            last = combutab.load(tmp_path / "model").predict(X)[0]
            assert np.isfinite(last)
        check_writable(tmp_path)
        assert set(os.listdir(tmp_path)) <= {"model"}
    assert last != -1.0


@needs_fork
def test_a_study_loses_no_row_that_was_reported(tmp_path, tmp_path_factory):
    rng, reported, told_of = random.Random(2), 0, tmp_path_factory.mktemp("mark") / "told of"
    store = Store(tmp_path / "study.csv", ["name", "score"], ["name"])

    def write():
        while True:
            with store.open([]) as journal:
                n = len(journal.rows)
                for i in range(n, n + 5):
                    journal.add([{"name": str(i), "score": "1"}])
                    print(i + 1, flush=True)
                    told_of.touch()

    for file in [None, told_of] * BUDGET:
        told = _kill_after(Forked(write, tmp_path), rng.uniform(0, 0.3), file).split()
        reported = max([reported, *map(int, told)])
        with store.open([]) as journal:
            assert len(journal.rows) in (reported, reported + 1)  # one may be written, not told
            reported = len(journal.rows)
        assert os.listdir(tmp_path) == ["study.csv"]
    assert reported > 0


@needs_fork
@pytest.mark.skipif(BUDGET == 1, reason="takes half a minute; COMBUTAB_TRUST_BUDGET=2 runs it")
def test_compare_leaves_the_files_of_one_run(tmp_path):
    rng = random.Random(3)
    X = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{a},{b},{a > 0}" for a, b in X]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y", *lines]))
    few = ["--activations", "relu,combu", "--seeds", "1", "--folds", "2", "--epochs", "2"]

    def write():
        for seed in range(1000):
            options = [*few, "--hidden", "4", "--seed", str(seed), "--out", "."]
            main(["compare", "data.csv", "--target", "y", *options])

    for _ in range(2 * BUDGET):
        _kill_after(Forked(write, tmp_path), rng.uniform(1, 4))
        check_writable(tmp_path)
        there = set(os.listdir(tmp_path)) - {"data.csv"}
        assert there in (set(), set(NAMES))
        if there:
            combutab.load(tmp_path / "best_model.safetensors")
            assert len((tmp_path / "results.csv").read_text().splitlines()) == 5
