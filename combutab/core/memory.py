"""Find the memory that a process can still allocate."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path


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
