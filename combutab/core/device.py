"""Devices, number formats and available memory of a fit."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

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


# ---- Memory that a process can still allocate ----------------------------------------------------


def available_memory(root: Path = Path("/")) -> float:
    """Find the bytes that a process can still allocate; infinity if the system has no figures.

    The result is the minimum of the system's free memory and of the memory that is left in each
    control group (container, slice of systemd). ``root`` is the folder of ``proc`` and ``sys``.
    """
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        free_bytes = 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        free_bytes = math.inf
    return min([free_bytes, *_memory_of_groups(root)])


def _memory_of_groups(root: Path) -> list[float]:
    """Find the memory that is left in each control group (version 1 or 2) of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    available_bytes = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        base = root / "sys/fs/cgroup"
        names = ("memory.max", "memory.current", "inactive_file")
        if "memory" in controllers.split(","):
            base = base / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif controllers:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):
                limit_bytes, used_bytes = (int((folder / name).read_text()) for name in names[:2])
                lines_of_stat = (folder / "memory.stat").read_text().splitlines()
                cache = dict(entry.split(" ", 1) for entry in lines_of_stat).get(names[2], 0)
                available_bytes.append(max(0.0, float(limit_bytes - used_bytes + int(cache))))
            if folder == base:
                break
    return available_bytes
