"""Many fits on real worker processes of Ray, which is started once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
TOO_BUSY = 75  # as ray_fits.py has it
ROOT = Path(__file__).parents[2]
SETTINGS = {  # Ray's own, for a machine that others keep busy
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it would kill workers for what others take
    "RAY_worker_register_timeout_seconds": "500",
    "RAY_gcs_server_request_timeout_seconds": "500",
    "RAY_health_check_failure_threshold": "100",
}


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_fits_on_ray(tmp_path):
    """One of its workers is killed midway, and at last the user presses Ctrl-C."""
    with open(tmp_path / "said", "w+") as said:  # and no pipe, for whose end one would wait
        done = subprocess.run(
            [sys.executable, "-m", "tests.model_selection.ray_fits", str(tmp_path)],
            env={**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=ROOT, stdout=said, stderr=said, timeout=570,
        )  # fmt: skip
        said.seek(0)
        text = said.read()
    if done.returncode == TOO_BUSY:
        pytest.skip("Ray could not start within its half minute, on a machine too busy")
    assert (tmp_path / "found.json").exists(), text
    assert json.loads((tmp_path / "found.json").read_text()) == {
        "killed": True,
        "same": True,
        "as they are done": True,
        "each table once": True,
        "interrupted and ended": True,
    }, text
    assert "__ray_terminate__" not in text  # workers that have done all have not failed
