"""Devices, number formats and threads of a computation."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial

import joblib
import torch
from threadpoolctl import threadpool_limits

PRECISIONS = ("float32", "float64", "bf16-mixed")
_threads_of: set[int] = set()  # id of the process that has computed with torch's threads, if any


def guard_forks() -> None:
    """Limit a forked process to one thread; call this before computing.

    A forked process has none of its parent's threads, but OpenMP would wait for them forever.
    """
    if torch.get_num_threads() == 1:
        return
    if _threads_of <= {os.getpid()}:
        _threads_of.add(os.getpid())
        return
    torch.set_num_threads(1)
    warnings.warn(
        "this process was forked from one in which torch had computed with several threads. To "
        "avoid a deadlock, it computes with one thread. Start workers with joblib's 'loky' or "
        "multiprocessing's 'spawn' to use more",
        RuntimeWarning,
        stacklevel=3,
    )


def resolve_device(device: str | torch.device) -> torch.device:
    """Choose the best available device for ``"auto"``; check that any other device exists.

    Raises ValueError if the name is not a device of torch, or the device is not on this machine.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {device!r}"
        ) from error
    if resolved.type not in ("cpu", "cuda") or (resolved.type == "cpu" and resolved.index):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    if resolved.type == "cuda":
        n_devices = torch.cuda.device_count()
        if n_devices == 0:
            raise ValueError(f"device={str(device)!r}, but torch sees no CUDA device; use 'auto'")
        if (resolved.index or 0) >= n_devices:
            raise ValueError(
                f"device={str(device)!r}, but torch sees {n_devices} CUDA device(s), "
                f"numbered from 0"
            )
    return resolved


@dataclass(frozen=True)
class Precision:
    """Number formats of parameters and matrix products."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in PRECISIONS:
            raise ValueError(f"precision must be one of {PRECISIONS}, got {self.name!r}")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of parameters, data and optimiser state."""
        return torch.float64 if self.name == "float64" else torch.float32

    def context(self, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
        """Return a function that makes the context of forward passes: autocast or no change."""
        if self.name == "bf16-mixed":
            return partial(torch.autocast, device.type, dtype=torch.bfloat16)
        return nullcontext


# ---- Threads: their number for a computation, and limits for a Python thread ---------------------
# Threads wait for each other after each of the dozens of operations of a training step. If an
# operation takes microseconds, threads cost more time than they save. On a machine that is busy
# with other processes, a thread that waits for its core can make each operation a thousand times
# slower. The numbers of threads depend only on the size of the computation and the limits of the
# process, so that results are the same on an idle and on a busy machine.

_FLOPS_PER_THREAD = 2e7  # matrix products of a training step: about half a millisecond
_VALUES_PER_THREAD = 250_000  # boosted trees: rows x columns


def max_threads() -> int:
    """Return torch's number of threads, or the number of usable CPUs if that is smaller.

    The CPU affinity and the CPU quota of a container limit the usable CPUs.
    """
    n_threads = _torch_threads()
    if n_threads == 1:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    n_cpus = len(affinity(0)) if affinity is not None else os.cpu_count()
    return max(1, min(n_threads, _n_cpus(n_cpus)))


@cache
def _n_cpus(n_cpus: int | None) -> int:
    """Limit the CPUs of the affinity, ``n_cpus``, to joblib's number, which reads files."""
    return min(joblib.cpu_count(), n_cpus or 1)


def network_threads(flops: float) -> int:
    """Choose the number of threads for a training step of this many floating-point operations."""
    return _share(flops, _FLOPS_PER_THREAD)


def training_flops(n_rows: int, n_weights: int) -> float:
    """Count the floating-point operations of a training step, for all members and heads.

    A product is computed in the forward pass and for two gradients, each with a multiplication and
    an addition per row and weight.

    >>> training_flops(256, 1000)
    1536000.0
    """
    return 6.0 * n_rows * n_weights


def tree_threads(n_values: float) -> int:
    """Choose the number of threads for boosted trees on this many values, rows times columns."""
    return _share(n_values, _VALUES_PER_THREAD)


def _share(work: float, per_thread: float) -> int:
    n_threads = max_threads()
    return n_threads if work >= per_thread * n_threads else max(1, int(work / per_thread))


# ---- Limits for a Python thread ------------------------------------------------------------------

_lock = threading.Lock()
_known = threading.local()  # has is_known=True in Python threads whose number has been checked
_n_limits = 0  # number of current limits in all Python threads
_default = 0  # number of threads that new Python threads have without these limits


def _torch_threads() -> int:
    """Return torch's number of threads in this Python thread.

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
    """Set torch's number of threads in this Python thread."""
    _known.is_known = True
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)


@contextmanager
def limit_threads(n_threads: int, *, lasting: bool = False) -> Iterator[None]:
    """Limit torch to this number of threads in this Python thread and context.

    Python threads that start in the meantime get the previous number if they begin with a
    computation of this package, or if the limit is ``lasting``, which takes a fraction of a
    millisecond.
    """
    global _n_limits, _default
    previous_threads = _torch_threads()
    if n_threads >= previous_threads:
        yield
        return
    with _lock:
        if not _n_limits:
            _default = previous_threads
        _n_limits += 1
        default_threads = _default
        torch.set_num_threads(n_threads)
    try:
        if lasting:
            thread = threading.Thread(target=torch.set_num_threads, args=(default_threads,))
            thread.start()
            thread.join()
        yield
    finally:
        with _lock:
            torch.set_num_threads(previous_threads)
            _n_limits -= 1


@contextmanager
def limit_openmp(n_threads: int) -> Iterator[None]:
    """Let all libraries with OpenMP, such as scikit-learn, use this many threads in this thread."""
    with threadpool_limits(n_threads, user_api="openmp"):
        yield
