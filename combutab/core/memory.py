"""The memory that a process can still get."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path


def available_memory(root: Path = Path("/")) -> float:
    """Bytes of memory that a process can still get, infinity where the system does not tell.

    It is the smallest of the free memory of the system and the memory that its control groups
    (containers, slices of systemd) leave. ``root`` is the folder of ``proc`` and ``sys``.
    """
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        free_bytes = 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        free_bytes = math.inf
    return min([free_bytes, *_memory_of_groups(root)])


def _memory_of_groups(root: Path) -> list[float]:
    """Memory that is left in each control group of this process, of version 1 or 2."""
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
