"""One line on the machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import sklearn
import torch

import combutab


def processor() -> str:
    """The processor's name, and its family and model: hypervisors shorten the name."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line.split(":", 1) for line in info.read_text().splitlines() if ":" in line]
        found = {name.strip(): value.strip() for name, value in reversed(lines)}  # the first core's
        cpu = found.get("model name", cpu)
        if "cpu family" in found and "model" in found:
            cpu += f" (family {found['cpu family']}, model {found['model']})"
    return cpu


def describe_machine() -> str:
    """Processor, cores, threads, device and versions; no host name, no paths."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads, "
        f"{device}; Python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {np.__version__}, scikit-learn {sklearn.__version__}, "
        f"combutab {combutab.__version__}"
    )
