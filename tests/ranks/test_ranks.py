"""Fits that ranks share give what one process gives, started as a user starts them."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import nn

from combutab.core import world
from combutab.nn import Member, MLPSpec
from tests.ranks.script import ENDING, ESTIMATORS, GENERATORS, PACKED, PACKS, REFUSED, STREAMED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),  # on a busy machine; it takes a minute on an idle one
]
ROOT = Path(__file__).parents[2]
NEAR = 1e-9  # of float64
SHARED = [*ESTIMATORS, *ENDING, *STREAMED, *GENERATORS]
WORDS = {
    "refused: batch normalisation": "normalization='batch' looks at the rows of a batch together",
    "refused: lbfgs": "solver='lbfgs' takes all rows at once, which 2 ranks cannot share",
    "refused: CTGAN": "CTGAN: a step looks at the rows of a batch together",
    "refused: another table": "rank 1 was given another table than rank 0",
    "refused: other parameters": "rank 1 was given other parameters than rank 0",
    "refused: another file": "rank 1 was given another table than rank 0",
    "refused: another limit": "rank 1 was given other parameters than rank 0",
    "refused: a pack of other parameters": "rank 1 was given other parameters than rank 0",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the two ranks wrote: a dict each; and the folder."""
    home = tmp_path_factory.mktemp("ranks")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--max-restarts", "1", "--monitor-interval", "0.1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
        *("-m", "tests.ranks.script", str(home)),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads((home / f"found {rank}.json").read_text()) for rank in (0, 1)], home


@pytest.mark.parametrize("name", SHARED)
def test_ranks_end_with_the_model_of_one_process(found, name):
    first, second = (each[name] for each in found[0])
    assert first["far"] < NEAR
    assert first["digest"] == second["digest"]


@pytest.mark.parametrize("name", ENDING)
def test_members_end_at_epochs_of_their_own(found, name):
    assert len(set(found[0][0][name]["epochs"])) > 1


@pytest.mark.parametrize("name", PACKS)
def test_shared_pack_equals_one_process(found, name):
    first, second = (each[name] for each in found[0])
    assert first["shared"] == second["shared"]
    assert first["held_out"] == second["held_out"]
    if "without a seed" not in name:
        assert first["alone"] == first["shared"]
    (of_first,), (of_second,) = first["trained"], second["trained"]
    if "fewer" in name:
        assert (of_first, of_second) == (1, 0)
    else:
        assert min(of_first, of_second) >= 2
        assert of_first + of_second == PACKED["n_members"]


def test_rank_0_callbacks_stop_all_ranks(found):
    first, second = (each["told"] for each in found[0])
    assert (first["epochs"], second["epochs"]) == ([1, 2], [])
    assert first["n_iter"] == second["n_iter"] == 2
    assert first["digest"] == second["digest"]


def test_what_is_drawn_without_a_seed_is_agreed(found):
    first, second = (each["seedless"]["digest"] for each in found[0])
    assert first == second


@pytest.mark.parametrize("name", WORDS)
def test_what_cannot_be_shared_is_refused_by_all(found, name):
    for each in found[0]:
        assert each[name]["error"].startswith("ValueError: ")
        assert WORDS[name] in each[name]["error"]


def test_an_error_of_one_rank_ends_all(found):
    assert set(REFUSED) == {*WORDS, "an error of one rank"}
    first, second = (each["an error of one rank"] for each in found[0])
    assert second["error"].startswith("ValueError: Input y contains NaN")
    assert first["error"].startswith("RankError: ")
    assert "rank 1 ended it with ValueError: Input y contains NaN" in first["error"]
    assert first["seconds"] < 600  # and not after the half hour that a rank waits for others


class Own(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("settings", "activation", "words"),
    [
        ({}, "combu", None),
        ({"normalization": "layer"}, "prelu", None),
        ({"normalization": "batch"}, "relu", "normalization='batch'"),
        ({}, Own, "the activation Own, a module of your own,"),
    ],
)
def test_networks_say_what_mixes_rows(settings, activation, words):
    spec = MLPSpec(n_dense=2, hidden=(8,), n_outputs=1, **settings)
    assert spec.build([Member(0, activation)]).mixes_rows() == words


def test_a_killed_rank_is_made_up_for(found):
    _, home = found
    assert sorted(file.name for file in home.glob("attempt*")) == [
        "attempt 1 of 0.json",
        "attempt 1 of 1.json",
    ]
    first, second = (
        json.loads((home / f"attempt 1 of {rank}.json").read_text()) for rank in (0, 1)
    )
    assert first["digest"] == second["digest"]
    assert max(first["far"], second["far"]) < NEAR


OWN_GROUP = """
import os, sys, threading
from datetime import timedelta
import numpy as np
import torch.distributed as dist
from combutab import MLPRegressor
from combutab.training import Callback

rank, path, what = int(sys.argv[1]), sys.argv[2], sys.argv[3]
store = dist.FileStore(path, 2)
store.set(f"here {rank}", "")  # all that takes long is loaded
store.wait([f"here {other}" for other in (0, 1)], timedelta(minutes=9))
wait = timedelta(seconds=15) if what == "hangs" else timedelta(minutes=9)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=wait)
X = np.random.default_rng(0).normal(size=(100, 2))

class Stop(Callback):
    def on_epoch_end(self, report):
        if what == "is killed":
            os.kill(os.getpid(), 9)
        if what == "hangs":
            threading.Event().wait()

settings = {"hidden_layer_sizes": (4,), "callbacks": [Stop()], "random_state": 0}
MLPRegressor(**settings, max_iter=30).fit(X, X[:, 0])
"""


@pytest.fixture
def start(tmp_path):
    """Start two ranks of a group of their own, of which the first does something."""
    started = []

    def start(what):
        for rank in (0, 1):
            arguments = [str(rank), str(tmp_path / "store"), what]
            started.append(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", OWN_GROUP, *arguments],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started

    yield start
    for rank in started:
        rank.kill()
        rank.communicate()  # closes its pipes


def test_killed_rank_ends_the_others(start):
    first, second = start("is killed")
    _, told = second.communicate(timeout=1200)
    assert first.wait(timeout=1200) == -9
    assert second.returncode == 1
    assert "RankError: the fit that 2 ranks shared is over: another rank ended without" in told


def test_hanging_rank_is_noticed_after_timeout(start):
    first, second = start("hangs")
    _, told = second.communicate(timeout=1200)  # torch's own is half an hour
    assert second.returncode == 1
    assert "is later than the process group's timeout of 0:00:15" in told
    assert first.poll() is None


def test_groups_have_the_timeout_of_the_programs_group(tmp_path):
    given = timedelta(minutes=7)
    path = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=path, rank=0, world_size=1, timeout=given)
    try:
        assert world._timeout() == given
    finally:
        dist.destroy_process_group()
