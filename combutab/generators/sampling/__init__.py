"""Rows of a fitted generator, and the conditions that they are to meet.

Knows generators by their contract alone.
"""

from combutab.generators.sampling._balanced import draw_balanced
from combutab.generators.sampling._conditions import (
    check_conditions,
    on_clocks,
    read_conditions,
    read_each,
)
from combutab.generators.sampling._direct import DirectSampler
from combutab.generators.sampling._nearest import draw_nearest
from combutab.generators.sampling._parts import RowWriter, pour_rows
from combutab.generators.sampling._sampling import FREE, Sampler
from combutab.generators.sampling._wanted import write_each, write_others, write_points

__all__ = [
    "FREE",
    "DirectSampler",
    "RowWriter",
    "Sampler",
    "check_conditions",
    "draw_balanced",
    "draw_nearest",
    "on_clocks",
    "pour_rows",
    "read_conditions",
    "read_each",
    "write_each",
    "write_others",
    "write_points",
]
