"""How many CPU threads a computation takes, and for how long.

Threads wait for each other after each of the dozens of operations of a training step. Where an
operation takes microseconds, they cost more than they save; on a machine that is busy with other
processes, a thread that waits for its core makes each operation a thousand times slower. The
numbers depend on the sizes of the computation and the limits of the process only, so that results
are the same on an idle and a busy machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import joblib
import torch
from threadpoolctl import threadpool_limits

_FLOPS_PER_THREAD = 2e7  # of a step's matrix products: about half a millisecond
_VALUES_PER_THREAD = 250_000  # rows x columns of boosted trees


def max_threads() -> int:
    """torch's number of threads, or the number of CPUs that the process may use if it is less.

    That is limited by the CPU affinity, and by the CPU quota of a container.
    """
    n_threads = _torch_threads()
    if n_threads == 1:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    n_cpus = len(affinity(0)) if affinity is not None else os.cpu_count()
    return max(1, min(n_threads, _n_cpus(n_cpus)))


@cache
def _n_cpus(n_cpus: int | None) -> int:
    """joblib's number of CPUs, which reads files; ``n_cpus`` are those of the affinity."""
    return min(joblib.cpu_count(), n_cpus or 1)


def network_threads(flops: float) -> int:
    """Number of threads for a step of a network with this many floating-point operations."""
    return _share(flops, _FLOPS_PER_THREAD)


def training_flops(n_rows: int, n_weights: int) -> float:
    """Floating-point operations of a training step on these rows, of all members and heads.

    A product is computed in the forward pass and for two gradients, each with a multiplication and
    an addition per row and weight.

    >>> training_flops(256, 1000)
    1536000.0
    """
    return 6.0 * n_rows * n_weights


def tree_threads(n_values: float) -> int:
    """Number of threads for boosted trees on this many values, rows times columns."""
    return _share(n_values, _VALUES_PER_THREAD)


def _share(work: float, per_thread: float) -> int:
    n_threads = max_threads()
    return n_threads if work >= per_thread * n_threads else max(1, int(work / per_thread))


# ---- The limit, which is that of a Python thread -------------------------------------------------

_lock = threading.Lock()
_known = threading.local()  # whether a Python thread has been here before
_n_limits = 0  # in all Python threads
_default = 0  # number of threads that new Python threads get without these limits


def _torch_threads() -> int:
    """torch's number of threads in this Python thread.

    A new Python thread gets the number that was set last in any thread, which may be a limit.
    """
    n_threads = torch.get_num_threads()
    if not getattr(_known, "is_known", False):
        _known.is_known = True
        with _lock:
            if _n_limits and n_threads < _default:
                n_threads = _default
                torch.set_num_threads(n_threads)
    return n_threads


def set_threads(n_threads: int) -> None:
    """Set torch's number of threads in this Python thread until further notice."""
    _known.is_known = True
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)


@contextmanager
def limit_threads(n_threads: int, *, lasting: bool = False) -> Iterator[None]:
    """Let torch use at most this many threads, in this Python thread, and restore their number.

    Python threads that start meanwhile get the number that there was before if the limit is
    ``lasting``, which takes a fraction of a millisecond, or if they begin with a computation of
    this package.
    """
    global _n_limits, _default
    before = _torch_threads()
    if n_threads >= before:
        yield
        return
    with _lock:
        if not _n_limits:
            _default = before
        _n_limits += 1
        default = _default
        torch.set_num_threads(n_threads)
    try:
        if lasting:
            thread = threading.Thread(target=torch.set_num_threads, args=(default,))
            thread.start()
            thread.join()
        yield
    finally:
        with _lock:
            torch.set_num_threads(before)
            _n_limits -= 1


@contextmanager
def limit_openmp(n_threads: int) -> Iterator[None]:
    """Let all libraries with OpenMP, such as scikit-learn, use this many threads in this thread."""
    with threadpool_limits(n_threads, user_api="openmp"):
        yield
