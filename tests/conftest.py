"""One thread a process, unless told otherwise: the tests' networks are too small to share.

Threads that wait for each other spin, which on a busy machine makes a run ten times as long.
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it
gc.disable()  # while modules are imported and tests collected, all of which stays


def pytest_collection_finish():
    """Let the collector run, but not look again and again at what has been imported."""
    gc.freeze()
    gc.enable()
