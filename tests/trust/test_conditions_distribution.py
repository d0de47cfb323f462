"""Rows under conditions have the distribution that the model gives under them."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest

from combutab import CTGAN, TVAE
from combutab.generators import sampling
from combutab.generators._records import RowsDrawn
from combutab.generators._tvae import VAEShape
from combutab.generators.conditions import read_conditions
from combutab.generators.sampling import Sampler
from combutab.nn import RowSpans
from combutab.preprocessing import ModeEncoder

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))


def known_sampler(scale, n_members=1):
    """A sampler of rows (x, a, b) whose distribution under conditions can be integrated.

    Its noise z is uniform, x is z, and given z the codes a and b are 1 with the probabilities
    scale * z and 1 - z.
    """
    table = pd.DataFrame(
        {"x": [-1, 0.123456789012345, 1, 0] * 4, "a": [0, 1] * 8, "b": [0, 0, 1, 1] * 4}
    )
    encoder = ModeEncoder(discrete_columns=["a", "b"], n_modes=1, random_state=0).fit(table)
    order = [encoder.schema_.keys[span.column] for span in encoder.layout_.spans]
    spans = RowSpans(1, encoder.layout_.sizes)

    def draw(network, spans, asked):
        keys, n_rows = asked.keys, asked.n_rows
        z = torch.stack([torch.rand(n_rows, generator=generator(key)) for key in keys])
        odds = {"a": (scale * z).logit(eps=1e-9), "b": (1 - z).logit(eps=1e-9)}
        raw = torch.zeros(*z.shape, spans.width)
        raw[..., 0] = (2 * z - 1).clamp(-0.999999, 0.999999).atanh()
        for i, name in enumerate(order):
            if name != "x":
                raw[..., int(spans.starts[i]) + 1] = odds[name]
        raw, mass = spans.restrict(raw, asked.allowed)
        uniform = torch.stack(
            [torch.rand(n_rows, spans.n_spans, generator=generator(key + 1)) for key in keys]
        )
        return RowsDrawn(*spans.sample(raw, uniform), mass)

    shape = VAEShape.of(TVAE(embedding_dim=1, n_members=n_members), ())
    return Sampler(encoder, shape, "a network that is not asked", spans, draw)


def generator(key):
    return torch.Generator().manual_seed(key % 2**62)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize(
    ("scale", "n", "conditions", "cdf"),
    [
        # density of z: z (1 - z), and with the range z > 1/2 its upper half
        (1.0, 3000, {"a": 1, "b": 1}, lambda z: 3 * z**2 - 2 * z**3),
        (0.004, 3000, {"a": 1, "b": 1}, lambda z: 3 * z**2 - 2 * z**3),
        (0.004, 3000, {"a": 1}, lambda z: z**2),
        (0.02, 1000, {"a": 1, "b": 0, "x": (0.0, None)}, lambda z: (8 * z**3 - 1) / 7),
        (0.004, 500, {"b": [0, 1]}, lambda z: z),
    ],
    ids=["both", "both, rare", "one, rare", "with a range", "either"],
)
def test_rows_under_conditions_have_the_right_distribution(n_members, scale, n, conditions, cdf):
    sampler = known_sampler(scale, n_members)
    wanted = read_conditions(sampler.encoder, conditions)
    for key in range(BUDGET):
        values, codes, _ = sampler.draw(n, wanted, key, 100)
        assert len(values) == n
        table = sampler.encoder.decode(values, codes)
        for name in set(conditions) & {"a", "b"}:
            assert table[name].isin(np.atleast_1d(conditions[name])).all()
        z = (values[:, 0] + 1) / 2
        assert len(np.unique(z)) > 0.99 * n  # each row of noise of its own
        assert kstest(z, cdf).pvalue > 1e-4 / BUDGET


@pytest.mark.parametrize("sizes", [[2, 5], [3, 200], [70, 300]])
def test_codes_that_are_not_allowed_are_never_drawn(sizes):
    spans = RowSpans(1, sizes)
    rng = np.random.default_rng(0)
    raw = torch.from_numpy(rng.normal(0, 9, (4000, spans.width)).astype(np.float32))
    allowed = {
        i: sorted(rng.choice(size, max(1, size // 3), replace=False).tolist())
        for i, size in enumerate(sizes)
    }
    uniform = torch.from_numpy(rng.random((4000, 2), dtype=np.float32))
    uniform[::3] = 0.0
    uniform[1::3] = 1 - 2.0**-24
    restricted, mass = spans.restrict(raw, allowed)
    _, codes = spans.sample(restricted, uniform)
    expected = np.ones(4000)
    for i, start in enumerate(spans.starts.tolist()):
        assert set(codes[:, i].tolist()) <= set(allowed[i])
        logits = raw[:, start : start + sizes[i]].double().numpy()
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected *= odds[:, allowed[i]].sum(axis=1) / odds.sum(axis=1)
    np.testing.assert_allclose(mass.numpy(), expected, rtol=1e-9)


def test_many_times_as_many_rows_are_found_of_what_no_noise_makes_probable():
    sampler = known_sampler(0.004)
    wanted = read_conditions(sampler.encoder, {"a": 1, "b": 1})
    values, _, made = sampler.draw(10_000, wanted, 0, 100)
    assert len(values) == 10_000
    assert made < 10_000 / (0.004 / 6) / 20  # plain rejection finds one row in 1,500


def test_few_rows_are_those_of_plain_rejection(monkeypatch):
    sampler = known_sampler(0.02)
    wanted = read_conditions(sampler.encoder, {"a": 1, "b": 1})
    first = sampler.draw(100, wanted, 0, 100)
    monkeypatch.setattr(sampling, "_ENOUGH", np.inf)
    plain = sampler.draw(100, wanted, 0, 100)
    for a, b in zip(first, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_number_is_that_of_the_rows_nearest_to_it():
    sampler = known_sampler(1.0)
    wanted = read_conditions(sampler.encoder, {"x": 0.5, "a": 1})
    values, codes, _ = sampler.draw(2000, wanted, 0, 100)
    x = sampler.encoder.decode(values, codes)["x"]
    near = abs(x - 0.5).max()
    z_of = np.interp([0.5 - near, 0.5 + near], np.sort(x), (np.sort(values[:, 0]) + 1) / 2)
    assert z_of[1] - z_of[0] < 0.02  # one row in a hundred, of a uniform z
    expected = 1 - z_of.mean()  # the probability of b given z
    assert codes[:, sampler.encoder.condition_code("b", 1)[0]].mean() == pytest.approx(
        expected, abs=0.05
    )


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (CTGAN, {"generator_dim": (32,), "discriminator_dim": (32,), "pac": 1, "epochs": 30}),
        (TVAE, {"argmax": False}),
        (TVAE, {}),
    ],
    ids=["CTGAN", "TVAE", "TVAE by argmax"],
)
def test_conditions_are_as_filtering_free_rows(cls, params):
    rng, n = np.random.default_rng(1), 600
    kind = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    table = pd.DataFrame({"kind": kind, "twin": kind, "x": rng.normal(size=n) + (kind == "b") * 4})
    model = cls(**{"epochs": 60, "batch_size": 100, "random_state": 0, **params}).fit(table)
    free = model.sample(30_000 * BUDGET, random_state=1)
    # CTGAN's network is asked for the kind, so that what is compared is a range, which it is not
    conditions = {"x": (1.0, 3.0)} if cls is CTGAN else {"x": (1.0, 3.0), "twin": ["b", "c"]}
    expected = free[free["x"].between(1, 3)]
    if cls is TVAE:
        expected = expected[expected["twin"].isin(["b", "c"])]
    made = model.sample(4000, conditions=conditions, random_state=2)
    assert len(expected) > 300
    error = 4 * np.sqrt(0.25 / len(expected) + 0.25 / len(made))
    for name in ("kind", "twin"):
        for value in "abc":
            share = (made[name] == value).mean()
            assert share == pytest.approx((expected[name] == value).mean(), abs=error)
    assert (made["kind"] == made["twin"]).mean() == pytest.approx(
        (expected["kind"] == expected["twin"]).mean(), abs=error
    )
    assert kstest(made["x"], expected["x"]).pvalue > 1e-4
