"""The counter-based generator: known values, independence of the stack, uniformity, keys."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import combutab
from combutab.core.rng import (
    Stream,
    fold_in,
    random_int64,
    random_permutations,
    random_uniform,
    seed_from,
    starts,
)

MASK = (1 << 64) - 1


def splitmix64(state: int, n: int) -> list[int]:
    """The published algorithm, step by step, on Python integers."""
    values = []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        values.append(z ^ (z >> 31))
    return values


def test_reference_is_the_published_generator():
    # the first outputs for seed 1234567, as printed with the reference implementation
    assert splitmix64(1234567, 3) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(0, MASK), st.integers(1, 20))
def test_draws_are_splitmix64_started_from_the_mixed_key(key, n):
    z = key
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    start = z ^ (z >> 31)
    drawn = random_int64([key], n)[0]
    assert [v % (1 << 64) for v in drawn.tolist()] == splitmix64(start, n)


def test_a_row_depends_on_its_key_and_position_alone():
    alone = random_int64([7], 10)[0]
    stacked = random_int64([1, 7, 9], 25)
    assert torch.equal(stacked[1, :10], alone)
    assert not torch.equal(stacked[0], stacked[2])


def test_uniforms_are_uniform_and_uncorrelated():
    draws = random_uniform([3, 4], 50_000).numpy()
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws[0], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.02
    assert abs(np.corrcoef(draws[0, 1:], draws[0, :-1])[0, 1]) < 0.02


def test_consecutive_seeds_give_unrelated_keys():
    keys = [fold_in(seed, Stream.MEMBER, 0) for seed in range(2000)]
    bits = np.array([[(k >> b) & 1 for b in range(64)] for k in keys])
    assert len(set(keys)) == 2000
    assert np.abs(bits.mean(0) - 0.5).max() < 0.06  # 5 standard deviations


def test_permutations():
    table = random_permutations([5, 6, 5], [4, 10, 10])
    assert sorted(table[0, :4].tolist()) == [0, 1, 2, 3]
    assert table[0, 4:].tolist() == [4, 5, 6, 7, 8, 9]
    assert sorted(table[1].tolist()) == list(range(10))
    alone = random_permutations([5], [4])
    assert torch.equal(table[0, :4], alone[0])


@pytest.mark.parametrize("lengths", [(1,), (2, 1), (614, 614), (5, 4096, 4097), (100_000,)])
def test_permutations_sort_the_draws(lengths):
    keys = [fold_in(9, Stream.SHUFFLE, 0, i) for i in range(len(lengths))]
    table, draws = random_permutations(keys, lengths), random_int64(keys, max(lengths))
    for row, drawn, n in zip(table, draws, lengths, strict=True):
        order = np.argsort(drawn[:n].numpy(), kind="stable")
        np.testing.assert_array_equal(row, [*order, *range(n, max(lengths))])


def test_a_permutation_does_not_depend_on_longer_ones_beside_it(monkeypatch):
    # of draws with few bits, so that many agree in all but their places
    monkeypatch.setattr(
        "combutab.core.rng.random_int64",
        lambda keys, n, device: torch.arange(n).mul(7).remainder(64).repeat(len(keys), 1),
    )
    together = random_permutations([1, 2, 3], [20, 200, 5])
    assert torch.equal(together[0, :20], random_permutations([1], [20])[0])
    assert torch.equal(together[2, :5], random_permutations([3], [5])[0])


@given(st.lists(st.integers(0, MASK), min_size=1, max_size=5), st.integers(0, 10**6))
def test_arrays_of_keys_are_keys(keys, value):
    array = np.array(keys, dtype=np.uint64)
    derived = fold_in(array, Stream.DROPOUT, value, np.uint64([7]))
    assert derived.tolist() == [fold_in(key, Stream.DROPOUT, value, 7) for key in keys]
    assert torch.equal(random_int64(starts(array), 3), random_int64(keys, 3))


@given(st.integers(0, MASK), st.integers(0, (1 << 63) - 1))
def test_a_stream_is_no_position(key, position):
    derived = {fold_in(key, stream) for stream in Stream}
    assert len(derived) == len(Stream)
    # a key of a key is none of the key itself, whatever the position
    of_one = fold_in(key, Stream.MEMBER)
    assert fold_in(key, Stream.MEMBER, position) != fold_in(of_one, Stream(1 + position % 13))


def test_every_stream_is_named_in_the_package():
    home = Path(combutab.__file__).parent
    sources = [path.read_text("utf-8") for path in home.rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"\bStream\.([A-Z_]+)", source)}
    assert named == set(Stream.__members__)


@pytest.mark.parametrize("number", [1, True, np.int64(1), "MEMBER"])
def test_a_purpose_has_a_name(number):
    with pytest.raises(TypeError, match=f"must be a Stream, got {re.escape(repr(number))}"):
        fold_in(0, number)


@pytest.mark.parametrize("position", [-1, 1 << 63])
def test_positions_are_below_the_purposes(position):
    with pytest.raises(ValueError, match=rf"in \[0, 2\*\*63\), got {position}"):
        fold_in(0, Stream.MEMBER, position)


def test_permutations_are_uniform():
    keys = [fold_in(1, Stream.SHUFFLE, 0, i) for i in range(3000)]
    firsts = [int(random_permutations([key], [6])[0, 0]) for key in keys]
    assert stats.chisquare(np.bincount(firsts, minlength=6)).pvalue > 1e-3


def test_seed_from():
    assert seed_from(5) == seed_from(np.int64(5)) == 5
    before = np.random.get_state()[1].copy()
    assert seed_from(None) != seed_from(None)
    assert (np.random.get_state()[1] == before).all()
    state = np.random.RandomState(0)
    assert seed_from(state) != seed_from(state)  # it advances, as in scikit-learn
    assert seed_from(np.random.default_rng(1)) == seed_from(np.random.default_rng(1))
    assert seed_from(2**64 - 1) == MASK
    for wrong in ("x", -1, 2**64, 0.5):
        with pytest.raises(ValueError, match=rf"random_state must be .* got {wrong!r}"):
            seed_from(wrong)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_does_not_matter():
    assert torch.equal(random_int64([3, 4], 1000), random_int64([3, 4], 1000, "cuda").cpu())
    lengths = [700, 1000]
    on_cpu = random_permutations([3, 4], lengths)
    assert torch.equal(on_cpu, random_permutations([3, 4], lengths, "cuda").cpu())
