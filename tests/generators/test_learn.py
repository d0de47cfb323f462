"""What CTGAN and TVAE learn, where the answer is known; the defects of other implementations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from combutab import load
from combutab.generators import CTGAN, TVAE, completion, sampling
from combutab.generators.sampling import FREE

RNG = np.random.default_rng(0)
N = 1000
RARE = pd.DataFrame(
    {
        "first": RNG.choice(["a", "b"], N, p=[0.5, 0.5]),
        "rare": RNG.choice(["often", "seldom"], N, p=[0.985, 0.015]),
    }
)
RARE["x"] = np.where(RARE["first"] == "a", 10.0, -10.0) + RNG.normal(0, 1, N)


@pytest.fixture(scope="module")
def gan():
    return CTGAN(
        epochs=30, batch_size=100, generator_dim=(64, 64), discriminator_dim=(64, 64),
        generator_lr=2e-3, discriminator_lr=2e-3, embedding_dim=16, random_state=0,
    ).fit(RARE)  # fmt: skip


@pytest.mark.slow
def test_rare_categories_keep_their_frequency(gan):
    share = (gan.sample(4000, random_state=0)["rare"] == "seldom").mean()
    assert share == pytest.approx((RARE["rare"] == "seldom").mean(), abs=0.02)


@pytest.mark.slow
def test_a_condition_on_any_column_sets_that_column(gan):
    for column, value in (("first", "b"), ("rare", "seldom")):
        codes = gan.encoder_.condition_code(column, value)
        # without a filter
        free = np.full(300, FREE)
        _, made = gan._sampler().generate(300, free, free, 5)
        _, asked = gan._sampler().generate(300, np.full(300, codes[0]), np.full(300, codes[1]), 5)
        free, conditioned = ((part[:, codes[0]] == codes[1]).mean() for part in (made, asked))
        assert conditioned > 0.9  # the generator itself does as it is asked
        assert free < 0.7


@pytest.mark.slow
def test_a_condition_carries_over_to_other_columns(gan):
    a, b = (gan.sample(300, "first", value, random_state=0)["x"] for value in "ab")
    assert a.mean() > 5 > -5 > b.mean()


@pytest.fixture(scope="module")
def vae():
    return TVAE(
        epochs=60, batch_size=100, compress_dims=(64,), decompress_dims=(64,), embedding_dim=8,
        random_state=0, argmax=False,
    ).fit(RARE)  # fmt: skip


def test_sampling_vae_keeps_rare_categories(vae):
    sample = vae.sample(4000, random_state=0)
    share = (sample["rare"] == "seldom").mean()
    assert share == pytest.approx((RARE["rare"] == "seldom").mean(), abs=0.02)
    means = sample.groupby("first")["x"].mean()
    assert means["a"] > 5 > -5 > means["b"]


def test_argmax_vae_takes_most_probable_categories(vae, tmp_path):
    drawn = vae.sample(2000, random_state=0)
    vae.set_params(argmax=TVAE().argmax)  # the default
    likely = vae.sample(2000, random_state=0)
    vae.save(tmp_path / "vae.safetensors")
    loaded = load(tmp_path / "vae.safetensors").sample(2000, random_state=0)
    asked = vae.sample(200, conditions={"rare": "seldom", "first": "a"}, random_state=0)
    vae.set_params(argmax=False)
    # a rare value that depends on nothing is never the most probable; the others are as drawn
    assert (drawn["rare"] == "seldom").any()
    assert (likely["rare"] == "often").all()
    assert (asked["rare"] == "seldom").all()  # if it is a condition, it is met
    assert asked["x"].mean() > 5
    assert (likely["first"] == drawn["first"]).mean() > 0.8
    pd.testing.assert_frame_equal(loaded, likely)
    pd.testing.assert_frame_equal(vae.sample(2000, random_state=0), drawn)


@pytest.mark.parametrize("n_members", [1, 3])
def test_rows_of_many_conditions_at_once(n_members):
    model = CTGAN(epochs=2, batch_size=100, n_members=n_members, random_state=0).fit(RARE)
    patterns = [(a, b) for a in ("a", "b", None) for b in ("often", "seldom", None)]
    asked = pd.DataFrame(RNG.permutation(np.repeat(np.array(patterns, object), 40, axis=0)))
    asked.columns = ["first", "rare"]
    rows = model.sample_from(asked, random_state=0)
    for name in asked:
        given = asked[name].notna()
        assert (rows.loc[given, name] == asked.loc[given, name]).all()
    assert rows["x"].nunique() > 0.9 * len(rows)  # but for those at the bounds, none twice
    # what is left free has the share that a free sample has
    free = (rows.loc[asked["first"].isna() & asked["rare"].isna(), "first"] == "a").mean()
    expected = (model.sample(2000)["first"] == "a").mean()
    assert free == pytest.approx(expected, abs=0.25)
    assert len(model.sample_from(asked[:0])) == 0
    with pytest.raises(ValueError, match="often_"):
        model.sample_from(pd.DataFrame({"rare": ["often_"]}))


def test_rows_of_conditions_that_are_never_met(monkeypatch):
    for module in (completion, sampling):
        monkeypatch.setattr(module, "CHUNK", 1)
    model = TVAE(epochs=1, random_state=0).fit(RARE)
    says = r"of 30 rows of conditions.*first.*'rare': 'seldom'.*argmax=False makes rare values more"
    with pytest.raises(ValueError, match=says):
        model.sample_from(pd.DataFrame({"rare": ["seldom"] * 30}), random_state=0, max_tries=1)
    rows = model.set_params(argmax=False).sample_from(pd.DataFrame({"rare": ["seldom"] * 30}))
    assert (rows["rare"] == "seldom").all()
