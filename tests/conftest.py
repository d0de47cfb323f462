"""One thread a process, unless told otherwise: the tests' networks are too small to share.

Threads that wait for each other spin, which on a busy machine makes a run ten times as long.
"""

import gc
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without looking for garbage, and never look among what that has loaded."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
