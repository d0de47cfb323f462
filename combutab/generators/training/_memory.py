"""Memory of the networks of a table with many categories, checked before they are made."""

from __future__ import annotations

import os
from typing import Any

import torch

from combutab.generators._contract import Generator
from combutab.nn import RowSpans
from combutab.preprocessing import ModeEncoder

_NUMBERS = 4  # a weight: itself, its gradient, and two moments of Adam's


def check_memory(
    model: Generator[Any], encoder: ModeEncoder, spans: RowSpans, n_members: int
) -> None:
    """Refuse networks that are larger than memory, naming the column of most categories."""
    weights = n_members * model._n_weights(spans)
    needed, held = weights * _NUMBERS * spans.dtype.itemsize, memory_of(spans.device)
    if held is None or needed <= held:
        return
    name = encoder.schema_.label(encoder.layout_.spans[-1].column)  # spans are sorted by size
    raise ValueError(
        f"{name} has {encoder.layout_.sizes[-1]:,} categories: the networks would have "
        f"{weights:,} weights, whose training takes {needed / 2**30:,.0f} GiB of the "
        f"{held / 2**30:,.0f} that there are; leave the column out, or raise min_frequency"
        f"{model._of_many_categories}"
    )


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory that a device has in all; None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
