"""Scikit-learn's ``random_state`` as a seed or a generator, without numpy's global state."""

from __future__ import annotations

import numpy as np

RandomState = None | int | np.integer | np.random.RandomState | np.random.Generator


def seed_from(random_state: object) -> int:
    """Turn a ``random_state`` into a seed of up to 64 bits.

    ``None`` takes fresh entropy, an int is the seed itself, a ``RandomState`` or ``Generator``
    is drawn from (so that it advances, as in scikit-learn).

    Raises ValueError if it is none of these, or the int is negative or has more bits.

    >>> seed_from(7)
    7
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 2**64:
        return int(random_state)
    raise ValueError(
        "random_state must be None, an int of at least 0, a numpy RandomState or Generator, "
        f"got {random_state!r}"
    )


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Turn a ``random_state`` into a generator: a ``Generator`` itself, else one of its seed.

    >>> int(as_generator(0).integers(10)), int(as_generator(np.int64(0)).integers(10))
    (8, 8)
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_from(random_state))
