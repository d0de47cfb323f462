"""Places of a pair of coordinates: boxes around groups of neighbouring points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MIN_POINTS = 20  # in each box, at least
_MARGIN = 0.2  # of the half width, by which a box is larger than its points
_GAP = 0.2  # of the width, from which points are divided at a gap and not at the median
_MAX_POINTS = 20_000  # from which boxes are learned
_SMALLEST = 1e-6  # half width of a box, in standard deviations
_CHUNK = 4096  # points that are compared with all boxes at once


@dataclass(frozen=True, eq=False)
class Places:
    """Boxes that contain the points of a table, each of several points.

    Parameters
    ----------
    maps : ndarray of shape (n_boxes, 2, 3)
        Maps of points (x, y, 1) that take the box to the square from -1 to 1.
    """

    maps: np.ndarray

    @classmethod
    def learn(cls, points: np.ndarray, min_count: int) -> Places | None:
        """Divide points, (n, 2), into boxes of at least 20 points; None if there are too few.

        The points are divided at the median of the wider direction, or at a gap, until there are
        too few. Each box has the principal directions of its points. Its ends lie between the
        outermost points and their neighbours, plus a margin, so that they are not those of a point.
        """
        min_points = max(_MIN_POINTS, min_count)
        step = max(1, -(-len(points) // _MAX_POINTS))
        points = points[::step]
        if len(points) < min_points:
            return None
        scale = points.std(axis=0)
        scale[scale == 0] = 1.0
        scaled, pending = points / scale, [np.arange(len(points))]
        maps = []
        while pending:
            group = pending.pop()
            parts = _halve(scaled[group], min_points)
            if parts:
                pending += [group[part] for part in parts]
            else:
                maps.append(_box(scaled[group]) / [*scale, 1.0])
        return cls(np.stack(maps))

    def contain(self, points: np.ndarray) -> np.ndarray:
        """Find the points, (n, 2), that lie in a box, (n,) bool; points without a number do."""
        is_inside = np.isnan(points).any(axis=1)
        for start in range(0, len(points), _CHUNK):
            rows = points[start : start + _CHUNK]
            placed = np.einsum("kij,nj->nki", self.maps[:, :, :2], rows) + self.maps[:, :, 2]
            is_inside[start : start + _CHUNK] |= (np.abs(placed) <= 1.0).all(axis=2).any(axis=1)
        return is_inside

    @classmethod
    def read(cls, maps: Sequence[Any]) -> Places:
        """Read the places of a file; raises ValueError if they are not valid."""
        array = np.array(maps, dtype=np.float64)
        if array.ndim != 3 or array.shape[1:] != (2, 3) or not np.isfinite(array).all():
            raise ValueError("the places of coordinates are not maps of boxes")
        return cls(array)


def _halve(points: np.ndarray, min_points: int) -> list[np.ndarray]:
    """Divide points into two groups; none if there are too few, or all are equal."""
    widths = np.ptp(points, axis=0)
    direction = int(widths.argmax())
    if len(points) < 2 * min_points or widths[direction] == 0:
        return []
    order = np.argsort(points[:, direction], kind="stable")
    ordered = points[order, direction]
    cuts = np.arange(min_points, len(points) - min_points + 1)
    gaps = ordered[cuts] - ordered[cuts - 1]
    cut = len(points) // 2
    if gaps.max() > _GAP * widths[direction]:
        cut = int(cuts[gaps.argmax()])
    return [order[:cut], order[cut:]]


def _box(points: np.ndarray) -> np.ndarray:
    """The map of a box around points, (2, 3)."""
    mean = points.mean(axis=0)
    directions = np.linalg.svd(points - mean, full_matrices=False)[2]
    ordered = np.sort((points - mean) @ directions.T, axis=0)
    low, high = (ordered[0] + ordered[1]) / 2, (ordered[-1] + ordered[-2]) / 2
    half = np.maximum((high - low) / 2 * (1 + _MARGIN), _SMALLEST)
    offset = -(directions @ mean) - (low + high) / 2
    return np.column_stack([directions, offset]) / half[:, None]
