"""How finely numbers are written: most as whole ones, say, and some with halves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_FEWEST = 20  # numbers, that a grid is seen from
_SHARE = 0.1  # of the numbers of a grid, beyond chance, that are on a coarser one
_DIGITS = 11  # of numbers of any number of decimals, beyond which they are on no grid
HELD = 2**53  # whole floats are exact up to it
_ROUNDING = 2.0**-22  # of half a mode's width: what a value of single precision may be off


@dataclass(frozen=True)
class Grids:
    """Grids of ascending steps, each of whole multiples of the one before.

    Attributes
    ----------
    decimals : int
        The grids' steps are counted in units of ``10 ** -decimals``.
    steps : tuple of int
    shares : tuple of float
        Of the numbers that are put on each grid or a coarser one, descending; the rest is on none.

    >>> grids = find_grids(np.r_[np.arange(1.0, 99.0), 0.5, 2.5], 1)
    >>> grids
    Grids(decimals=1, steps=(5, 10), shares=(1.0, 0.96))
    >>> low, high = np.full(3, 0.0), np.full(3, 100.0)
    >>> grids.put(np.array([17.31, 17.31, 99.9]), np.array([0.5, 0.99, 0.5]), low, high)
    array([ 17. ,  17.5, 100. ])
    """

    decimals: int
    steps: tuple[int, ...]
    shares: tuple[float, ...]

    def put(
        self, numbers: np.ndarray, uniforms: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """Bring each number to the nearest place between ``low`` and ``high`` of a grid.

        Which grid is drawn by a uniform in [0, 1); a finer one, where it has no place there. All
        are of shape (n,).
        """
        scale, found = 10.0**self.decimals, numbers.copy()
        left = np.ones(len(numbers), dtype=bool)
        for step, share in zip(reversed(self.steps), reversed(self.shares), strict=True):
            rows = np.flatnonzero(left & (uniforms < share))
            unit = step / scale
            least, most = np.ceil(low[rows] / unit), np.floor(high[rows] / unit)
            rows, least, most = (each[least <= most] for each in (rows, least, most))
            place = np.clip(np.rint(numbers[rows] / unit), least, most)
            found[rows] = place * step / scale
            left[rows] = False
        return found

    def restore(self, numbers: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Bring the numbers that are on a grid but for single precision to it; (n,) each.

        ``widths`` are those that the numbers were scaled by.
        """
        scale, found = 10.0**self.decimals, numbers.copy()
        for step in self.steps:  # the coarsest last
            near = np.rint(numbers * (scale / step)) * step / scale
            found = np.where(np.abs(near - numbers) <= _ROUNDING * widths, near, found)
        return found


def find_grids(numbers: np.ndarray, decimals: int | None, fewest: int = 1) -> Grids | None:
    """Find the grids that numbers, (n,) float64, are on.

    ``decimals`` are those that all of them have, None where there are too many to tell. A grid
    counts where a tenth of the numbers of the finer one are on it, beyond those that are there by
    chance, and the finer one where at least ``fewest`` numbers need it. None where there is none,
    but for that of all their decimals.
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    if len(numbers) < _FEWEST or not largest:
        return None
    any_number = decimals is None
    if any_number:
        decimals = _DIGITS - math.ceil(math.log10(largest))
    assert decimals is not None
    if not 0 <= decimals <= 22 or largest * 10.0**decimals >= HELD:  # 10.0**22 is exact
        return None
    counted = numbers * 10.0**decimals
    whole = np.rint(counted)
    if any_number:
        off = np.abs(whole / 10.0**decimals - numbers)
        whole = whole[off <= 4 * np.spacing(largest)]
    n_off = len(numbers) - len(whole)
    steps, shares = [1], [1.0 if n_off < fewest else len(whole) / len(numbers)]
    if shares[0] < _SHARE:
        return None
    step, places = 1, whole.astype(np.int64)
    while len(places) >= _FEWEST:
        factor = 2 if str(step).startswith("5") else 5
        on = places % (step * factor) == 0
        chance, n = 1 / factor, len(places)
        beyond = (float(on.mean()) - chance) / (1 - chance)
        noise = 3 * math.sqrt(chance / (1 - chance) / n)
        if beyond < max(_SHARE, noise) or not (places[on] != 0).any():
            break
        step, places = step * factor, places[on]
        if n - on.sum() < max(1, fewest):  # the finer one is not needed
            steps[-1] = step
        else:
            steps.append(step)
            shares.append(shares[-1] * beyond)
    if steps == [1] and not any_number:
        return None
    return Grids(decimals, tuple(steps), tuple(shares))
