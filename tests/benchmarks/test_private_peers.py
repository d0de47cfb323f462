"""The program that fits a peer in a Python of its own, with a package in the place of dpmm."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import private, private_peers

PEER = """
class MSTGM:
    def __init__(self, epsilon, delta, domain, random_state, n_jobs):
        assert (epsilon, delta, domain) == (0.3, 1e-6, {"c0": 2, "c1": 3})

    def fit(self, table):
        self.table = table

    def generate(self, n_records):
        return self.table[["c1", "c0"]].iloc[:n_records]
"""


def test_codes_go_there_and_back(tmp_path, monkeypatch):
    (tmp_path / "dpmm" / "models").mkdir(parents=True)
    (tmp_path / "dpmm" / "models" / "mst.py").write_text(PEER, "utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    codes = np.column_stack([np.arange(30) % 2, np.arange(30) % 3])
    command = [sys.executable, private.PEER, "mst", "0.3", f"{private.DELTA}", "0"]
    made, seconds, megabytes = private._peer(command, 60.0, codes, np.array([2, 3]))
    assert np.array_equal(made, codes)
    assert seconds > 0
    assert not megabytes < 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process's peak")
def test_the_peak_is_that_of_this_program():
    before = private_peers.peak()
    held = np.ones((int(before) + 64) * 2**17)  # more, in numbers of eight bytes
    assert private_peers.peak() >= held.nbytes / 2**20
