"""Learning-rate schedules: the factor by which ``learning_rate_init`` is multiplied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Schedule = str | Callable[[float], float]  # a name, or the factor itself as a function

SCHEDULES = (
    "constant",
    "invscaling",
    "adaptive",
    "cosine",
    "one-cycle",
    "flat-cosine",
    "coslog4",
)
"""Names of schedules of the learning rate."""
PER_STEP = ("cosine", "one-cycle", "flat-cosine", "coslog4")
"""Those of `SCHEDULES` that change the rate at each step, over all epochs."""


def is_per_step(schedule: Schedule) -> bool:
    """Tell whether the rate changes with every step, as functions and some names have it."""
    return callable(schedule) or schedule in PER_STEP


def schedule_factor(name: Schedule, fraction: float) -> float:
    """The factor at ``fraction`` (0 to 1) of the planned steps, by name or a function of it.

    - ``constant``: 1;
    - ``cosine``: half a cosine from 1 to 0 (Loshchilov and Hutter, 2017, without restarts);
    - ``one-cycle``: cosine from 1/25 up to 1 over the first 30 %, then down to 1/10000 (Smith and
      Topin, 2018, with the usual shares);
    - ``flat-cosine``: 1 for the first half, then half a cosine to 0;
    - ``coslog4``: (1 - cos(2 pi log2(1 + 15 t))) / 2, four cosine cycles of doubling length
      (Holzmueller et al., 2024).

    >>> [schedule_factor("cosine", t) for t in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    >>> schedule_factor(lambda t: 1 - t, 0.25)
    0.75
    """
    t = min(max(fraction, 0.0), 1.0)
    if callable(name):
        return name(t)

    def half_cosine(start: float, end: float, u: float) -> float:
        return end + (start - end) * 0.5 * (1 + math.cos(math.pi * u))

    if name == "constant":
        return 1.0
    if name == "cosine":
        return round(half_cosine(1.0, 0.0, t), 15)
    if name == "one-cycle":
        return half_cosine(1 / 25, 1, t / 0.3) if t < 0.3 else half_cosine(1, 1e-4, (t - 0.3) / 0.7)
    if name == "flat-cosine":
        return 1.0 if t < 0.5 else half_cosine(1.0, 0.0, 2 * t - 1)
    if name == "coslog4":
        return 0.5 * (1 - math.cos(2 * math.pi * math.log2(1 + 15 * t)))
    raise ValueError(f"learning_rate must be one of {SCHEDULES}, got {name!r}")


def rate_table(
    name: Schedule, rates: Sequence[float], n_steps: Sequence[int], epoch: int, max_epochs: int
) -> list[list[float]]:
    """Return an epoch's learning rates by the step: a row a step, a column a member.

    ``rates`` are each member's at a factor of 1, and ``n_steps`` its steps an epoch.

    >>> rate_table("cosine", [0.1, 0.2], [2, 2], epoch=0, max_epochs=1)
    [[0.1, 0.2], [0.05, 0.1]]
    """
    longest = max(n_steps)
    factors = {
        n: [schedule_factor(name, (epoch * n + s) / (max_epochs * n)) for s in range(longest)]
        for n in set(n_steps)
    }
    members = list(zip(rates, n_steps, strict=True))
    return [[rate * factors[n][step] for rate, n in members] for step in range(longest)]
