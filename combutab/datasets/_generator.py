"""From scikit-learn's ``random_state`` to a ``numpy.random.Generator``."""

from __future__ import annotations

import numpy as np

RandomState = None | int | np.integer | np.random.RandomState | np.random.Generator


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator; numpy's global state is neither read nor set.

    ``None`` takes fresh entropy, an int is the seed, a ``Generator`` is used as it is, and a
    ``RandomState`` is drawn from once, so that it advances and stays in charge.

    >>> int(as_generator(0).integers(10)), int(as_generator(np.int64(0)).integers(10))
    (8, 8)
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    if random_state is None or (
        isinstance(random_state, int | np.integer) and int(random_state) >= 0
    ):
        return np.random.default_rng(random_state)
    raise ValueError(
        "random_state must be None, an int of at least 0, a numpy RandomState or Generator, "
        f"got {random_state!r}"
    )
