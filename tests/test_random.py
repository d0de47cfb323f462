"""The counter-based generator: known values, independence of the stack, uniformity, keys."""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import combutab
from combutab import CTGAN, TVAE, MLPClassifier, MLPRegressor, StackedGridSearchCV
from combutab.core import rng as random
from combutab.core.rng import (
    Stream,
    fold_in,
    random_int64,
    random_permutations,
    seed_from,
    starts,
)
from combutab.estimators import _streaming as _streaming
from combutab.estimators._streaming import MemoryPlan

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


def test_draws_depend_on_key_and_position_only():
    alone = random_int64([7], 10)[0]
    stacked = random_int64([1, 7, 9], 25)
    assert torch.equal(stacked[1, :10], alone)
    assert not torch.equal(stacked[0], stacked[2])


def test_consecutive_seeds_give_unrelated_keys():
    keys = [fold_in(seed, Stream.MEMBER, 0) for seed in range(2000)]
    bits = np.array([[(k >> b) & 1 for b in range(64)] for k in keys])
    assert len(set(keys)) == 2000
    assert np.abs(bits.mean(0) - 0.5).max() < 0.06  # 5 standard deviations


@pytest.mark.parametrize("lengths", [(1,), (2, 1), (614, 614), (5, 4096, 4097), (100_000,)])
def test_permutations_sort_the_draws(lengths):
    keys = [fold_in(9, Stream.SHUFFLE, 0, i) for i in range(len(lengths))]
    table, draws = random_permutations(keys, lengths), random_int64(keys, max(lengths))
    for row, drawn, n in zip(table, draws, lengths, strict=True):
        order = np.argsort(drawn[:n].numpy(), kind="stable")
        np.testing.assert_array_equal(row, [*order, *range(n, max(lengths))])


def test_permutations_do_not_depend_on_longer_ones(monkeypatch):
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


def test_what_is_no_stream_or_position_is_refused():
    for stream in (1, True, np.int64(1), "MEMBER"):
        with pytest.raises(TypeError, match=f"must be a Stream, got {re.escape(repr(stream))}"):
            fold_in(0, stream)
    for position in (-1, 1 << 63):
        with pytest.raises(ValueError, match=rf"in \[0, 2\*\*63\), got {position}"):
            fold_in(0, Stream.MEMBER, position)


def test_every_stream_is_named_in_the_package():
    home = Path(combutab.__file__).parent
    sources = [path.read_text("utf-8") for path in home.rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"\bStream\.([A-Z_]+)", source)}
    assert named == set(Stream.__members__)


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


# ---- No two streams of random numbers meet: whatever is drawn in real trainings and samples -----

NO_PLACE = {"rng.py"}  # it draws on behalf of others

# what is drawn anew on purpose: rows by their numbers, the same sample after every epoch
REPEATED = {Stream.SPLIT, Stream.VALIDATION}


class Streams:
    """What was derived and drawn since the object was made."""

    def __init__(self, monkeypatch):
        self.ways = defaultdict(set)  # key -> purposes and positions that it was derived by
        self.draws = defaultdict(list)  # key -> places in the code, first and last number
        self.parents = set()
        self._keys = {}  # what numbers are drawn by -> key
        self._put(monkeypatch, "fold_in", self._fold_in)
        self._put(monkeypatch, "random_int64", self._random_int64)
        # of masks alone: random_int64 calls it too
        monkeypatch.setattr("combutab.nn._layers.random_int64_", self._random_int64_)
        streams = self

        class Generator(torch.Generator):
            def manual_seed(self, seed):
                streams._drawn(seed, 0, 1 << 64)
                return super().manual_seed(seed)

        monkeypatch.setattr(torch, "Generator", Generator)

    @staticmethod
    def _put(monkeypatch, name, put):
        original = getattr(random, name)
        for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == "combutab"]:
            if vars(module).get(name) is original:
                monkeypatch.setattr(module, name, put)

    def _fold_in(self, key, purpose, *positions, original=random.fold_in):
        derived = original(key, purpose, *positions)
        for parent, child, *at in np.broadcast(
            np.uint64(key), np.uint64(derived), *map(np.uint64, positions)
        ):
            parent, child = int(parent), int(child)
            known = self._keys.get(parent, parent)
            self.parents.add(known)
            way = next(iter(self.ways[known])) if known in self.ways else (known,)
            self.ways[child].add((*way, purpose, *map(int, at)))
            # keys, seeds of 63 bits, and where counters start
            for alias in (child, child >> 1, int(random._mix(child))):
                self._keys[alias] = child
        return derived

    def _random_int64(self, keys, n, device="cpu", first=0, original=random.random_int64):
        for key in keys:
            self._drawn(int(key), first, first + n)
        return original(keys, n, device, first)

    def _random_int64_(self, keys, positions, out, scratch, original=random.random_int64_):
        for key in keys:
            self._drawn(int(key), 0, len(positions))
        return original(keys, positions, out, scratch)

    def _drawn(self, by, first, last):
        key = self._keys.get(by % (1 << 64), by)
        frame = sys._getframe(2)
        while not self._is_place(frame):
            frame = frame.f_back
        self.draws[key].append(((frame.f_code.co_filename, frame.f_code.co_name), first, last))

    @staticmethod
    def _is_place(frame):
        path = Path(frame.f_code.co_filename)
        return path.name not in NO_PLACE and not frame.f_code.co_name.startswith("<")

    def meetings(self, repeated=frozenset()):
        """What is wrong, in words."""
        found = [f"{key} is derived by {ways}" for key, ways in self.ways.items() if len(ways) > 1]
        for key, draws in self.draws.items():
            way = next(iter(self.ways[key]), (key,))
            if way[0] != SEED:
                continue  # a fixed seed, where any numbers will do
            places = {place for place, _, _ in draws}
            if len(places) > 1:
                found.append(f"{way} is drawn by {places}")
            purposes = {step for step in way if isinstance(step, Stream)}
            if not purposes & {*repeated, *REPEATED}:
                spans = sorted((first, last) for _, first, last in draws)
                if any(a[1] > b[0] for a, b in pairwise(spans)):
                    found.append(f"{way} is drawn {len(spans)} times: {places}")
            if key in self.parents and Stream.ACTIVATION not in purposes:
                found.append(f"{way} is drawn from, and other keys are derived of it")
        return found

    def purposes(self):
        """Those of all keys that numbers were drawn by."""
        ways = [way for key in self.draws for way in self.ways[key]]
        return {step for way in ways for step in way if isinstance(step, Stream)}


@pytest.fixture
def streams(monkeypatch):
    return Streams(monkeypatch)


class Noisy(nn.Module):
    """An activation that draws when it is made, and in every step."""

    def __init__(self, width):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return nn.functional.dropout(torch.relu(x + self.shift), 0.1, self.training)


RNG = np.random.default_rng(0)

TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=240),
        "size": RNG.choice(["small", "large"], 240),
        "kind": RNG.choice(["a", "b", "c"], 240),
    }
)

SEED = 12345

NET = {
    "hidden_layer_sizes": (8, 8),
    "batch_size": 30,
    "n_iter_no_change": math.inf,
    "random_state": SEED,
    "device": "cpu",
}


def test_of_estimators(streams):
    model = MLPClassifier(
        **NET, activation=Noisy, dropout=0.2, n_members=2, max_iter=7, early_stopping=True
    )
    model.fit(TABLE[["x", "size"]], TABLE["kind"]).predict(TABLE[["x", "size"]])
    assert not streams.meetings()
    assert streams.purposes() >= {
        Stream.WEIGHTS, Stream.ACTIVATION, Stream.ACTIVATION_CALL, Stream.SHUFFLE,
        Stream.DROPOUT,
    }  # fmt: skip


def test_of_files(streams, tmp_path):
    pytest.importorskip("pyarrow")
    TABLE.to_parquet(tmp_path / "table.parquet", row_group_size=20)
    model = MLPRegressor(**NET, dropout=0.2, n_members=2, max_iter=8, early_stopping=True)
    windows = MemoryPlan(20, 3, 70)  # three an epoch
    with mock.patch.object(_streaming, "plan_memory", return_value=windows):
        model.fit_parquet(tmp_path / "table.parquet", "x")
    assert not streams.meetings()
    assert streams.purposes() >= {Stream.SPLIT, Stream.ROW_GROUPS, Stream.SHUFFLE}


def test_of_a_search(streams):
    net = MLPClassifier(**NET, max_iter=4)
    grid = {"dropout": [0.0, 0.2], "activation": ["relu", "combu-random"]}
    StackedGridSearchCV(net, grid, cv=2).fit(TABLE[["x", "size"]], TABLE["kind"])
    # equal seeds have equal streams, in every fold and setting
    assert not streams.meetings(set(Stream))
    assert Stream.DROPOUT in streams.purposes()


@pytest.mark.parametrize("cls", [CTGAN, TVAE])
def test_of_generators(cls, streams, tmp_path):
    model = cls(
        epochs=8,
        batch_size=40,
        embedding_dim=8,
        random_state=SEED,
        n_members=3,
        early_stopping=True,
    )
    model.fit(TABLE, checkpoint=tmp_path / "training")
    model.sample(50)
    model.sample(50, conditions={"kind": "a", "size": ["small", "large"]})
    model.sample(50, random_state=SEED)  # the seed of the training
    wanted = pd.DataFrame({"kind": ["a", "b", "c", "a"], "x": [0.1, np.nan, np.nan, 0.1]})
    model.sample_from(wanted)
    model.sample(50, balance="kind")
    model.impute(TABLE.mask(TABLE == "a"), n_draws=2)
    assert not streams.meetings()
    expected = {Stream.VALIDATION, Stream.HELD_OUT, Stream.PATTERN, Stream.LATENT}
    expected |= {Stream.BALANCED, Stream.DRAW, Stream.DONORS}
    if cls is CTGAN:
        expected |= {Stream.GAN_NOISE, Stream.GAN_GUMBEL, Stream.REQUESTED, Stream.ACCEPTED}
        expected |= {Stream.GAN_CONDITIONS, Stream.GAN_MASKS, Stream.GAN_MIX}
    else:
        expected |= {Stream.VAE_ORDER, Stream.VAE_NOISE, Stream.VALUES}
    assert streams.purposes() >= expected
