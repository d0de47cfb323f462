"""Many fits on real worker processes of Ray, which is started once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(580)
def test_fits_on_ray(tmp_path):
    """One of its workers is killed midway, and at last the user presses Ctrl-C."""
    paths = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-m", "tests.model_selection.ray_fits", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "RAY_worker_niceness": "0"},
        cwd=ROOT, capture_output=True, text=True, timeout=570,
    )  # fmt: skip
    assert [line for line in run.stdout.splitlines() if line.endswith(("True", "False"))] == [
        "killed True",
        "same True",
        "as they are done True",
        "each table once True",
        "interrupted and ended True",
    ], run.stdout + run.stderr
