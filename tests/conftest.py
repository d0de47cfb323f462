"""One thread a process, unless told otherwise: the tests' networks are too small to share.

Threads that wait for each other spin, which on a busy machine makes a run ten times as long.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it
