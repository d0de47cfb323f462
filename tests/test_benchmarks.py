"""Each benchmark runs in its smallest form, so that none rots; what it says is not judged here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("speed_*.py"))


def test_there_are_benchmarks():
    assert {"speed_fit.py", "speed_stack.py"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_quick_form(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(FOLDER / script), "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout, "the machine is described"
    stem = script.removesuffix(".py")
    assert list(tmp_path.glob(f"{stem}*")), "results are written"
