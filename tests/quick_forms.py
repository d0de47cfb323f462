"""Run a benchmark in its smallest form, in a process of its own, as a user would."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run_quick(script, folder, *arguments):
    """What it printed; that it ends well and describes the machine is asserted."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick", "--out", str(folder), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout, "the machine is described"
    return done.stdout
