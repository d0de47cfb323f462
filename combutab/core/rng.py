"""Random numbers as functions of a key, and seeds from scikit-learn's ``random_state``.

Every use of random numbers derives a separate key from the seed of the fit, so that the random
numbers of a member do not depend on the stack, and global random state is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum, unique
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from combutab.core.world import broadcast

# ---- Counter-based random numbers: a value is a function of its key and its position only --------
# A draw does not depend on previous draws, on the device, or on the other members of a stack, so a
# network in a stack gets the same shuffles and dropout masks as a single one (as with JAX's keys).
# The generator is SplitMix64 (Steele, Lea and Flood, 2014): a 64-bit counter, multiplied by the
# golden gamma, through a bijective mixer.

Keys = Sequence[int] | Tensor  # 64-bit keys, or their ``starts`` on the device
_Integers = TypeVar("_Integers", int, np.ndarray)

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1
# the int64 with the same bits
_SIGNED_GOLDEN, _SIGNED_MIX_1, _SIGNED_MIX_2 = (n - (1 << 64) for n in (_GOLDEN, _MIX_1, _MIX_2))
_ONE = 0x3F800000  # the bits of 1.0 in float32, whose fraction is the last 23
_PIECE = 1 << 20  # numbers of a row that are drawn at a time
_PURPOSES = 1 << 63  # from here on a datum is a stream; below, a position


@unique
class Stream(IntEnum):
    """Uses of streams of random numbers, with their positions in brackets.

    Their numbers determine the results of a ``random_state``, so a number is never reused.
    """

    # of a random_state
    MEMBER = 1  # (member): a member's key
    SPLIT = 2  # which rows validate
    ROW_GROUPS = 3  # (epoch): the order in which those of files are read
    ENCODER_ROWS = 4  # which rows of files an encoder keeps
    ENCODER = 5  # the generators' encoder
    HELD_OUT = 6  # which rows generators validate on
    SAMPLE = 7  # (), or (call) where none is given to it: a sample's key
    ACTIVATION_NOISE = 8  # (noise): of activation_stats
    COMPARED = 9  # (fold, seed): a network of a comparison
    GUESSES = 10  # (fold, draw): a comparison's random guesses
    BASELINE = 11  # a comparison's learners of other kinds
    CORRUPTION = 12  # (name): of a table; which columns
    CORRUPTED_COLUMN = 13  # (name, column)
    MEMBER_SETTINGS = 14  # settings of the members of a pack
    TABLE = 15  # (table): of several tables, the generator of one
    # of a member's key
    WEIGHTS = 20  # initial ones; of a generator's networks, of the network's key
    ACTIVATION = 21  # (layer): construction of the module; as WEIGHTS
    ACTIVATION_CALL = 22  # (call): random numbers in training, from the key of ACTIVATION
    SHUFFLE = 23  # (step that a part of the table begins with, epoch)
    DROPOUT = 24  # (epoch, step)
    GENERATOR, CRITIC, ROW_ENCODER, ROW_DECODER = 25, 26, 27, 28  # the key of this network
    VALIDATION = 29  # a generator's sample, or TVAE's latent noise, the same after every epoch
    GAN_CONDITIONS, GAN_NOISE, GAN_GUMBEL, GAN_MASKS, GAN_MIX = 30, 31, 32, 33, 34  # (step)
    VAE_ORDER = 35  # (epoch)
    VAE_NOISE = 36  # (step)
    FIRST_ROWS = 37  # rows that initial weights are scaled by, and where kinks are
    CODE_NETWORK, VALUE_NETWORK = 50, 51  # the key of this network
    FLOW_ORDER = 52  # (epoch)
    FLOW_HIDDEN, FLOW_KNOWN, FLOW_TIMES, FLOW_NOISE = 53, 54, 55, 56  # (step)
    FLOW_MASKS = 57  # (step)
    # of a sample's key
    PATTERN = 40  # (pattern of conditions): a sample's key
    CHUNK = 41  # (rows made before): a chunk's key
    REQUESTED = 42  # of a chunk's: which category a network is asked for
    ACCEPTED = 43  # of a chunk's: which rows are kept
    CHUNK_MEMBER = 44  # (member), of a chunk's: a member's rows, whose are the following
    CONDITIONS = 45  # random conditions of rows without requested ones
    LATENT = 46  # the network's input
    CODES = 47  # categories and modes
    VALUES = 48  # noise about the values
    ORDER = 49  # in which a row's columns are drawn
    DRAW = 60  # (draw): a sample's key, of an imputation's
    KNOWN = 61  # of an imputation's: how the known cells are encoded
    DONORS = 62  # (0), (1): which rows complete others
    BALANCED = 63  # the order of rows that are balanced
    ROUNDING = 64  # (span), of a chunk's: how finely numbers are written
    REDRAWN = 65  # (attempt): a sample's key, of rows that broke a constraint
    BALANCED_ROWS = 66  # of a chunk's: which of each row's candidates is kept, and the rows' order
    TABLE_ROWS = 67  # (table): of a sample of several tables, the rows of one
    SIBLINGS = 68  # (position, stage): of a table's rows, those at one position of their families


def _mix(z: _Integers) -> _Integers:
    """SplitMix64's mixer, of an unsigned 64-bit integer or of an array of uint64."""
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def fold_in(key: _Integers, stream: Stream, *positions: int | np.ndarray) -> _Integers:
    """Derive a new 64-bit key from a key, a stream and positions (epoch, step, layer).

    The stream is folded in first, as a number that no position has: so different ways from a
    seed, however long, fold in different data. Arrays are of uint64 and broadcast against each
    other.

    Raises TypeError if ``stream`` is a mere number; ValueError if a position is negative or 2**63
    and more.

    >>> fold_in(0, Stream.DROPOUT, 1, 5) == fold_in(0, Stream.DROPOUT, 5, 1)
    False
    >>> keys = fold_in(np.uint64([0, 7]), Stream.SHUFFLE, 0, np.uint64([[1], [2]]))
    >>> keys.shape, int(keys[1, 0]) == fold_in(0, Stream.SHUFFLE, 0, 2)
    ((2, 2), True)
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"stream must be a Stream, got {stream!r}")
    for position in positions:
        if isinstance(position, int) and not 0 <= position < _PURPOSES:
            raise ValueError(f"a position must be in [0, 2**63), got {position}")
    data: tuple[Any, ...] = (_PURPOSES + stream, *positions)
    for datum in data:
        key = _mix((key + ((datum + 1) * _GOLDEN & _MASK)) & _MASK)
    return key


def starts(keys: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    """Return the first counters of keys (uint64) as int64: with these a draw needs no host."""
    return torch.from_numpy(_mix(keys).view(np.int64)).to(device)


def _mix_(z: Tensor, scratch: Tensor) -> Tensor:
    """SplitMix64's mixer, in place, on int64 (whose right shift is arithmetic, hence the masks)."""
    for shift, factor in ((30, _SIGNED_MIX_1), (27, _SIGNED_MIX_2), (31, None)):
        torch.bitwise_right_shift(z, shift, out=scratch)
        scratch.bitwise_and_((1 << (64 - shift)) - 1)
        z.bitwise_xor_(scratch)
        if factor is not None:
            z.mul_(factor)
    return z


def counters(n: int, device: torch.device | str = "cpu", first: int = 0) -> Tensor:
    """The counter of each of n positions, int64: what ``random_int64_`` mixes with a key."""
    positions = torch.arange(first + 1, first + n + 1, dtype=torch.int64, device=device)
    return positions.mul_(_SIGNED_GOLDEN)


def random_int64_(keys: Keys, positions: Tensor, out: Tensor, scratch: Tensor) -> Tensor:
    """Draw as ``random_int64``, into memory that is given.

    ``positions`` has shape (n,), ``out`` and ``scratch`` (M, n).
    """
    if not isinstance(keys, Tensor):
        keys = starts(np.array([k & _MASK for k in keys], dtype=np.uint64), out.device)
    torch.add(positions, keys.unsqueeze(1), out=out)
    return _mix_(out, scratch)


def random_int64(keys: Keys, n: int, device: torch.device | str = "cpu", first: int = 0) -> Tensor:
    """Draw uniform 64-bit integers, (len(keys), n): each of its key and ``first`` + column."""
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
    """Draw one permutation a key: row m, of int64, permutes ``range(lengths[m])``.

    Places beyond ``lengths[m]`` in it hold the remaining indices in increasing order.
    """
    n = max(lengths)
    draws = random_int64(keys, n, device)
    positions = torch.arange(n, device=draws.device)
    # A draw's low bits make way for its place, so that sorting the numbers alone is enough: on a
    # CPU it takes a tenth of the time, and half the memory, of sorting them with their places.
    masks = [(1 << max(1, (length - 1).bit_length())) - 1 for length in lengths]
    position_mask: Any = masks[0]
    is_beyond = None
    if min(lengths) < n:  # a row's own mask: it has the order that it has alone
        position_mask = torch.tensor(masks, device=draws.device).unsqueeze(1)
        is_beyond = positions >= torch.tensor(list(lengths), device=draws.device).unsqueeze(1)
    draws.bitwise_and_(~position_mask).bitwise_or_(positions)
    if is_beyond is not None:
        draws.masked_fill_(is_beyond, torch.iinfo(torch.int64).max)
    if draws.is_cuda:
        draws = torch.sort(draws, dim=1).values
    else:
        draws.numpy().sort(axis=1)
    draws.bitwise_and_(position_mask)
    return draws if is_beyond is None else torch.where(is_beyond, positions, draws)


def uniforms(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 uniforms in the open interval (0, 1), (len(keys), *shape): two a 64-bit draw."""
    n = math.prod(shape)
    bits = random_int64(keys, -(-n // 2), device).view(torch.int32)
    # a random fraction is a number in [1, 2); half a step more, and neither end is met
    in_one_to_two = bits.bitwise_and_((1 << 23) - 1).bitwise_or_(_ONE).view(torch.float32)
    return in_one_to_two.sub_(1 - 2.0**-24)[:, :n].view(len(keys), *shape)


def normals(keys: Sequence[int], *shape: int, device: torch.device) -> Tensor:
    """Draw float32 standard normals, (len(keys), *shape), by Box and Muller's method."""
    n = math.prod(shape)
    n_pairs = -(-n // 2)
    radius, angle = uniforms(keys, 2, n_pairs, device=device).unbind(1)
    radius = radius.log().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    pairs = torch.empty(len(keys), 2, n_pairs, device=device)
    torch.mul(torch.cos(angle), radius, out=pairs[:, 0])
    torch.mul(angle.sin_(), radius, out=pairs[:, 1])
    return pairs.view(len(keys), -1)[:, :n].reshape(len(keys), *shape)


# ---- Scikit-learn's ``random_state`` as a seed or a generator, without numpy's global state ------

_fixed_seed: ContextVar[int | None] = ContextVar("fixed_seed", default=None)

RandomState = None | int | np.integer | np.random.RandomState | np.random.Generator


def seed_from(random_state: object) -> int:
    """Turn a ``random_state`` into a seed of up to 64 bits.

    ``None`` takes fresh entropy, an int is the seed itself, a ``RandomState`` or ``Generator``
    is drawn from (so that it advances, as in scikit-learn). Ranks that share a fit all use the seed
    of rank 0.

    Raises ValueError for other types, and for ints that are negative or have more bits.

    >>> seed_from(7)
    7
    """
    fixed_seed, is_int = _fixed_seed.get(), isinstance(random_state, int | np.integer)
    if fixed_seed is not None and not is_int:
        return fixed_seed
    if random_state is None:
        return broadcast(int(np.random.SeedSequence().generate_state(1, np.uint64)[0]))
    if isinstance(random_state, np.random.RandomState):
        return broadcast(int(random_state.randint(0, 2**31 - 1)))
    if isinstance(random_state, np.random.Generator):
        return broadcast(int(random_state.integers(0, 2**63 - 1)))
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 2**64:
        return int(random_state)
    raise ValueError(
        "random_state must be None, an int of at least 0, a numpy RandomState or Generator, "
        f"got {random_state!r}"
    )


@contextmanager
def holding(seed: int) -> Iterator[None]:
    """In this context all random states except ints give this seed, to continue a training.

    >>> with holding(7):
    ...     seed_from(None), seed_from(3)
    (7, 3)
    """
    token = _fixed_seed.set(seed)
    try:
        yield
    finally:
        _fixed_seed.reset(token)


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Turn a ``random_state`` into a generator: a ``Generator`` itself, else one of its seed.

    >>> int(as_generator(0).integers(10)), int(as_generator(np.int64(0)).integers(10))
    (8, 8)
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(seed_from(random_state))


# ---- Random draws of code that asks torch's global generator, taken from a generator of our own

_WITH_GENERATOR = {
    "default": "generator",
    "low": "low_generator",
    "low_dtype": "low_generator_dtype",
    "Tensor": "Tensor_generator",
}


class SeededDraws(TorchDispatchMode):
    """A context in which this thread's draws from torch's global generators come from a seed.

    Global generators are neither read nor set, so other threads see nothing of it. A generator
    that the code passes itself is left alone.

    Parameters
    ----------
    seed : callable
        Gives the seed, an integer of up to 63 bits; called at the first draw, if there is one.

    Raises
    ------
    RuntimeError
        At an operation whose draws cannot be given a generator.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with SeededDraws(lambda: 7):
    ...     first = torch.nn.functional.dropout(torch.ones(100))
    >>> with SeededDraws(lambda: 7):
    ...     second = torch.nn.functional.dropout(torch.ones(100))
    >>> torch.equal(first, second), torch.equal(before, torch.get_rng_state())
    (True, True)
    """

    def __init__(self, seed: Callable[[], int]) -> None:
        super().__init__()
        self._seed = seed
        self._drawn: int | None = None
        self._generators: dict[torch.device, torch.Generator] = {}

    def _dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = {k: v for k, v in (kwargs or {}).items() if (k, v) != ("generator", None)}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        arguments = dict(zip(names, args, strict=False)) | kwargs
        if arguments.get("generator") is not None or arguments.get("dropout_p") == 0:
            return func(*args, **kwargs)
        if func is torch.ops.aten.native_dropout.default:
            return self._dropout(**arguments)
        if "generator" not in names:
            operator, overload = (
                func.overloadpacket,
                _WITH_GENERATOR.get(str(func).rpartition(".")[2], ""),
            )
            if overload not in operator.overloads():
                raise RuntimeError(
                    f"{func} draws random numbers that cannot be given a seed; draw them with "
                    "torch.rand or torch.randn"
                )
            func = getattr(operator, overload)
        # a generator may stand among the positional arguments
        args = args[: names.index("generator")] if "generator" in names else args
        return func(*args, **kwargs, generator=self._generator(arguments))

    def _generator(self, arguments: Mapping[str, Any]) -> torch.Generator:
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        device = tensors[0].device if tensors else torch.device(arguments.get("device") or "cpu")
        if self._drawn is None:
            self._drawn = self._seed()
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._drawn)
        return self._generators[device]

    def _dropout(self, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False:
            return input.clone(), torch.ones_like(input, dtype=torch.bool)
        generator = self._generator({"input": input})
        mask = torch.empty_like(input).bernoulli_(1 - p, generator=generator).bool()
        return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


# not defined in the class: there torch wraps it, and the wrapper imports torch.compile, 1 s
SeededDraws.__torch_dispatch__ = SeededDraws._dispatch  # type: ignore[assignment]
