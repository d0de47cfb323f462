"""Run a benchmark in its smallest form, in a process of its own, as a user would."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_quick(module, folder, *arguments):
    """What it printed; that it ends well and describes the machine is asserted."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", "--quick", "--out", str(folder), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout, "the machine is described"
    return done.stdout
