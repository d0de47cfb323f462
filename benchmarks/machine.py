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
    """The processor's name."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
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
