"""Counter-based random numbers: a value is a function of its key and its position, nothing else.

A draw does not depend on what was drawn before, on the device, or on which other members a
stack holds, so a network trained in a stack sees the shuffles and dropout masks that it would
see alone (the idea behind JAX's keys). The generator is SplitMix64 (Steele, Lea and Flood,
2014): a 64-bit counter, multiplied by the golden gamma, through a bijective mixer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Keys = Sequence[int] | Tensor  # 64-bit keys, or their ``starts`` on the device
_Integers = TypeVar("_Integers", int, np.ndarray)

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1
_PIECE = 1 << 20  # numbers of a row that are drawn at a time


def _signed(value: int) -> int:
    """Two's complement: the int64 with the same bits as this unsigned 64-bit integer."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(z: _Integers) -> _Integers:
    """SplitMix64's mixer, of an unsigned 64-bit integer or of an array of uint64."""
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def fold_in(key: int, *data: int) -> int:
    """Derive a new 64-bit key from a key and integers (epoch, step, layer, purpose).

    >>> fold_in(0, 1) == fold_in(0, 1), fold_in(0, 1) == fold_in(0, 2)
    (True, False)
    """
    for value in data:
        key = _mix((key + (value + 1) * _GOLDEN) & _MASK)
    return key & _MASK


def fold_in_array(keys: np.ndarray, data: np.ndarray) -> np.ndarray:
    """``fold_in`` of arrays of uint64, which broadcast against each other.

    >>> keys = fold_in_array(np.uint64([0, 7]), np.uint64([[1], [2]]))
    >>> keys.shape, int(keys[1, 0]) == fold_in(0, 2)
    ((2, 2), True)
    """
    return _mix(keys + (data + np.uint64(1)) * np.uint64(_GOLDEN))


def starts(keys: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    """Where the counters of keys (uint64) begin, int64: with these a draw needs no host."""
    return torch.from_numpy(_mix(keys).view(np.int64)).to(device)


def _mix_(z: Tensor, scratch: Tensor) -> Tensor:
    """SplitMix64's mixer, in place, on int64 (whose right shift is arithmetic, hence the masks)."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, None)):
        torch.bitwise_right_shift(z, shift, out=scratch)
        scratch.bitwise_and_((1 << (64 - shift)) - 1)
        z.bitwise_xor_(scratch)
        if factor is not None:
            z.mul_(_signed(factor))
    return z


def counters(n: int, device: torch.device | str = "cpu", first: int = 0) -> Tensor:
    """The counter of each of n positions, int64: what ``random_int64_`` mixes with a key."""
    positions = torch.arange(first + 1, first + n + 1, dtype=torch.int64, device=device)
    return positions.mul_(_signed(_GOLDEN))


def random_int64_(keys: Keys, positions: Tensor, out: Tensor, scratch: Tensor) -> Tensor:
    """As ``random_int64``, in memory given: ``positions`` (n,), ``out`` and ``scratch`` (M, n)."""
    if not isinstance(keys, Tensor):
        keys = starts(np.array([k & _MASK for k in keys], dtype=np.uint64), out.device)
    torch.add(positions, keys.unsqueeze(1), out=out)
    return _mix_(out, scratch)


def random_int64(keys: Keys, n: int, device: torch.device | str = "cpu", first: int = 0) -> Tensor:
    """Draw uniform 64-bit integers: row m, column i is a function of ``keys[m]`` and ``first + i``.

    Returns
    -------
    Tensor of int64, shape (len(keys), n)
    """
    out = torch.empty(len(keys), n, dtype=torch.int64, device=device)
    for start in range(0, n, _PIECE):  # so that counters and scratch take little memory
        part = out[:, start : start + _PIECE]
        positions = counters(part.shape[1], device, first + start)
        random_int64_(keys, positions, part, torch.empty_like(part))
    return out


def random_uniform(
    keys: Keys, n: int, device: torch.device | str = "cpu", first: int = 0
) -> Tensor:
    """Draw float64 uniforms in [0, 1), shape (len(keys), n), from the top 53 bits.

    Those of positions ``first`` on, so that a long row can be drawn in parts.
    """
    bits = torch.bitwise_right_shift(random_int64(keys, n, device, first), 11)
    return bits.bitwise_and_((1 << 53) - 1).to(torch.float64).mul_(2.0**-53)


def random_permutations(
    keys: Keys, lengths: Sequence[int], device: torch.device | str = "cpu"
) -> Tensor:
    """Draw one permutation a key: row m permutes ``range(lengths[m])``.

    Returns
    -------
    Tensor of int64, shape (len(keys), max(lengths))
        Places beyond ``lengths[m]`` in row m hold the remaining indices in increasing order.
    """
    n = max(lengths)
    draws = random_int64(keys, n, device)
    places = torch.arange(n, device=draws.device)
    # A draw's low bits make way for its place, so that sorting the numbers alone is enough: on a
    # CPU it takes a tenth of the time, and half the memory, of sorting them with their places.
    masks = [(1 << max(1, (length - 1).bit_length())) - 1 for length in lengths]
    low: Any = masks[0]
    past = None
    if min(lengths) < n:  # a row's own mask: it has the order that it has alone
        low = torch.tensor(masks, device=draws.device).unsqueeze(1)
        past = places >= torch.tensor(list(lengths), device=draws.device).unsqueeze(1)
    draws.bitwise_and_(~low).bitwise_or_(places)
    if past is not None:
        draws.masked_fill_(past, torch.iinfo(torch.int64).max)
    if draws.is_cuda:
        draws = torch.sort(draws, dim=1).values
    else:
        draws.numpy().sort(axis=1)
    draws.bitwise_and_(low)
    return draws if past is None else torch.where(past, places, draws)


def seed_from(random_state: object) -> int:
    """Turn scikit-learn's ``random_state`` into a 64-bit key; global state is neither read nor set.

    ``None`` takes fresh entropy, an int is the seed itself, a ``RandomState`` or ``Generator``
    is drawn from (so that it advances, as in scikit-learn).
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    if isinstance(random_state, int | np.integer):
        return int(random_state) & _MASK
    raise ValueError(
        f"random_state must be None, an int, a numpy RandomState or Generator, got {random_state!r}"
    )
