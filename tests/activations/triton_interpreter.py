"""Where Triton's kernels run in the tests: on a GPU, or in a process with Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
SERVED = find_spec("triton") is not None and (INTERPRETED or DEVICE == "cuda")
served = pytest.mark.skipif(
    not SERVED, reason="needs triton and a GPU; test_in_the_interpreter runs it without one"
)


def check_in_interpreter(file):
    """The tests of a file pass in Triton's interpreter, which must be asked for from the start."""
    if INTERPRETED:
        pytest.skip("this is that process")
    if find_spec("triton") is None:
        pytest.skip("needs triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
