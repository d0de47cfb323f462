"""Fits that ranks share give what one process gives, started as a user starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from combutab.nn import Member, MLPSpec
from tests.ranks.script import ESTIMATORS, GENERATORS, REFUSED, STREAMED

ROOT = Path(__file__).parents[2]
NEAR = 1e-9  # of float64
SHARED = [*ESTIMATORS, *STREAMED, *GENERATORS]
WORDS = {
    "refused: batch normalisation": "normalization='batch' looks at the rows of a batch together",
    "refused: lbfgs": "solver='lbfgs' takes all rows at once, which 2 ranks cannot share",
    "refused: CTGAN": "CTGAN: a step looks at the rows of a batch together",
    "refused: another table": "rank 1 was given another table than rank 0",
    "refused: other parameters": "rank 1 was given other parameters than rank 0",
    "refused: another file": "rank 1 was given another table than rank 0",
    "refused: another limit": "rank 1 was given other parameters than rank 0",
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
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads((home / f"found {rank}.json").read_text()) for rank in (0, 1)], home


@pytest.mark.parametrize("name", SHARED)
def test_ranks_end_with_the_model_of_one_process(found, name):
    first, second = (each[name] for each in found[0])
    assert first["far"] < NEAR
    assert second["far"] < NEAR
    assert first["digest"] == second["digest"]


def test_rank_0_is_told_of_epochs_and_stops_all(found):
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
    assert first["seconds"] < 60  # and not when patience ends


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
import os, sys
import numpy as np
import torch.distributed as dist
from combutab import MLPRegressor
from combutab.training import Callback

class Stop(Callback):
    def on_epoch_end(self, report):
        os.kill(os.getpid(), 9)

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
X = np.random.default_rng(0).normal(size=(100, 2))
net = MLPRegressor(hidden_layer_sizes=(4,), callbacks=[Stop()], max_iter=3, random_state=0)
net.fit(X, X[:, 0])
"""


def test_a_rank_that_is_killed_ends_the_others_with_one_error(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", OWN_GROUP, str(rank), str(tmp_path / "store")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        told = [rank.communicate(timeout=300)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert ranks[0].returncode == -9
    assert ranks[1].returncode == 1
    assert "RankError: the fit that 2 ranks shared is over: another rank ended without" in told[1]
