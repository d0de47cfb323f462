"""Scikit-learn's ``random_state`` as a seed or a generator, without numpy's global state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from combutab._ranks import agreed

_held: ContextVar[int | None] = ContextVar("held", default=None)

RandomState = None | int | np.integer | np.random.RandomState | np.random.Generator


def seed_from(random_state: object) -> int:
    """Turn a ``random_state`` into a seed of up to 64 bits.

    ``None`` takes fresh entropy, an int is the seed itself, a ``RandomState`` or ``Generator``
    is drawn from (so that it advances, as in scikit-learn). Ranks that share a fit all take what
    rank 0 draws.

    Raises ValueError if it is none of these, or the int is negative or has more bits.

    >>> seed_from(7)
    7
    """
    held, is_int = _held.get(), isinstance(random_state, int | np.integer)
    if held is not None and not is_int:
        return held
    if random_state is None:
        return agreed(int(np.random.SeedSequence().generate_state(1, np.uint64)[0]))
    if isinstance(random_state, np.random.RandomState):
        return agreed(int(random_state.randint(0, 2**31 - 1)))
    if isinstance(random_state, np.random.Generator):
        return agreed(int(random_state.integers(0, 2**63 - 1)))
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 2**64:
        return int(random_state)
    raise ValueError(
        "random_state must be None, an int of at least 0, a numpy RandomState or Generator, "
        f"got {random_state!r}"
    )


@contextmanager
def holding(seed: int) -> Iterator[None]:
    """Within, all random states but ints give this seed: that of a training that is taken up.

    >>> with holding(7):
    ...     seed_from(None), seed_from(3)
    (7, 3)
    """
    token = _held.set(seed)
    try:
        yield
    finally:
        _held.reset(token)


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Turn a ``random_state`` into a generator: a ``Generator`` itself, else one of its seed.

    >>> int(as_generator(0).integers(10)), int(as_generator(np.int64(0)).integers(10))
    (8, 8)
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_from(random_state))
