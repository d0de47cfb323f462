"""ModeEncoder's modes, values and layout, against independent float64 computations."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare, norm
from sklearn.base import clone

from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.modes._numbers import Mixture, fit_mixtures, take_sample

RNG = np.random.default_rng(0)
N = 400


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    two = np.where(rng.random(N) < 0.3, rng.normal(0, 1, N), rng.normal(8, 2, N))
    gone = rng.random(N) < 0.2
    return pd.DataFrame(
        {
            "two": two,
            "count": rng.poisson(20, N),
            "city": rng.choice(["Oslo", "Rome", "Bern"], N, p=[0.1, 0.6, 0.3]),
            "constant": 7,
            "price": np.where(gone, np.nan, rng.lognormal(3, 1, N).round(2)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
            "flag": pd.array(np.where(gone, None, rng.random(N) < 0.5), dtype="boolean"),
        }
    )


# ---- the rows of the network -------------------------------------------------------------------


def test_layout(table):
    encoder = ModeEncoder(random_state=0).fit(table)
    layout, encoded = encoder.layout_, encoder.encode(table)
    assert layout.n_values == 4
    assert list(layout.sizes) == sorted(layout.sizes)
    names = [table.columns[span.column] for span in layout.spans]
    kinds = dict(zip(names, (span.kind for span in layout.spans), strict=True))
    assert kinds == {
        **dict.fromkeys(["two", "count", "price", "day"], "mode"),
        **dict.fromkeys(["city", "flag"], "category"),
    }
    by_name = dict(zip(names, zip(layout.sizes, layout.spans, strict=True), strict=True))
    assert by_name["city"][0] == by_name["flag"][0] == 3  # flag: False, True, missing
    values = [by_name[name][1].value_index for name in ("two", "count", "price", "day")]
    assert values == [0, 1, 2, 3]
    assert by_name["city"][1].value_index is None

    assert encoded.values.dtype == np.float32
    assert encoded.values.shape == (N, 4)
    assert encoded.codes.dtype == np.int32
    assert encoded.codes.shape == (N, 6)
    assert np.abs(encoded.values).max() <= 1
    assert (encoded.codes >= 0).all()
    assert (encoded.codes < layout.sizes).all()

    price, flag = names.index("price"), names.index("flag")
    gone = table["price"].isna().to_numpy()
    assert_array_equal(encoded.codes[:, price] == layout.sizes[price] - 1, gone)
    assert_array_equal(encoded.codes[:, flag] == 2, gone)
    assert (encoded.values[gone, 2] == 0).all()


def test_categories_and_their_counts(table):
    encoder = ModeEncoder(random_state=0).fit(table)
    assert encoder.categories_ == {
        "city": ["Bern", "Oslo", "Rome"],
        "constant": [7],
        "flag": [False, True, None],
    }
    spans = {table.columns[span.column]: i for i, span in enumerate(encoder.layout_.spans)}
    assert sorted(encoder.category_counts_) == sorted([spans["city"], spans["flag"]])
    expected = table["city"].value_counts().sort_index().tolist()
    assert encoder.category_counts_[spans["city"]].tolist() == expected
    flags = [(~table["flag"]).sum(), table["flag"].sum(), table["flag"].isna().sum()]
    assert encoder.category_counts_[spans["flag"]].tolist() == flags
    assert encoder.condition_code("city", "Rome") == (spans["city"], 2)
    assert encoder.condition_code("flag", np.True_) == (spans["flag"], 1)
    assert encoder.condition_code("flag", None) == encoder.condition_code("flag", pd.NA)
    assert encoder.condition_code("flag", float("nan")) == (spans["flag"], 2)


# ---- modes and values --------------------------------------------------------------------------


def test_two_modes_worked_by_hand():
    """Far modes share no rows, so that their variational posterior is that of conjugate priors."""
    low, high = RNG.normal(10, 1, 300), RNG.normal(1000, 5, 100)
    x = np.r_[low, high]
    encoder = ModeEncoder(n_modes=2, random_state=0).fit(pd.DataFrame({"x": x}))
    mixture, unit = encoder.columns_[0].mixture, 2.0 ** encoder.columns_[0].format.exponent
    order = np.argsort(mixture.means)
    z = (x - x.mean()) / x.std()
    for k, part in zip(order, (z[:300], z[300:]), strict=True):
        n, mean = len(part), part.mean()
        # priors: mean 0 worth one row, one degree of freedom, the variance of all rows
        posterior_mean = n * mean / (n + 1)
        prior = np.var(z, ddof=1)
        variance = (prior + n * (part.var() + 1e-6) + n / (n + 1) * mean**2) / (n + 1)
        expected = posterior_mean * x.std() + x.mean()
        assert_allclose(mixture.means[k] * unit + x.min(), expected, rtol=1e-9)
        assert_allclose(mixture.sds[k] * unit, math.sqrt(variance) * x.std(), rtol=1e-6)
    assert_allclose(mixture.weights[order], [0.75, 0.25], atol=0.01)

    encoded = encoder.encode(pd.DataFrame({"x": x}))
    assert (encoded.codes[:300, 0] == order[0]).all()
    assert (encoded.codes[300:, 0] == order[1]).all()
    k = order[1]
    expected = (high - (mixture.means[k] * unit + x.min())) / (4 * mixture.sds[k] * unit)
    assert_allclose(encoded.values[300:, 0], expected, atol=1e-6)


def test_a_mixture_worked_by_hand():
    modes = Mixture(np.array([0.5, 0.5]), np.array([0.0, 4.0]), np.array([1.0, 1.0]))
    # half way both are as probable; at 1 the log-odds are (3**2 - 1**2) / 2 = 4
    odds = 1 / (1 + math.exp(-4))
    assert_allclose(modes.posterior(np.array([2.0, 1.0])), [[0.5, 0.5], [odds, 1 - odds]])
    assert modes.draw(np.array([1.0, 1.0]), np.array([0.98, 0.99])).tolist() == [0, 1]
    x, codes = np.array([2.0, 2.0, -9.0]), np.array([0, 1, 0])
    assert modes.scale(x, codes).tolist() == [0.5, -0.5, -1.0]
    assert modes.unscale(np.array([0.5, -0.5, -1.0]), codes).tolist() == [2.0, 2.0, -4.0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.01, 1), st.floats(-50, 50), st.floats(0.01, 20)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=10),
)
def test_posteriors_are_bayes_rule(modes, x):
    weights, means, sds = np.array(modes).T
    got = Mixture(weights / weights.sum(), means, sds).posterior(np.array(x))
    for row, value in zip(got, x, strict=True):
        log = np.log(weights / weights.sum()) + norm.logpdf(value, means, sds)
        shares = [1 / sum(math.exp(min(700, b - a)) for b in log) for a in log]
        assert_allclose(row, shares, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("value", [2.0, 3.0, 4.5])
def test_modes_are_drawn_from_their_posterior(table, value):
    encoder = ModeEncoder(n_modes=3, random_state=3).fit(table[["two"]])
    column = encoder.columns_[0]
    unit, low = 2.0**column.format.exponent, table["two"].min()
    means, sds = column.mixture.means * unit + low, column.mixture.sds * unit
    joint = column.mixture.weights * norm.pdf(value, means, sds)
    posterior = joint / joint.sum()
    assert np.sort(posterior)[-2] > 0.02  # a draw is no formality here
    n = 20_000
    encoded = encoder.encode(pd.DataFrame({"two": np.full(n, value)}), random_state=5)
    counts = np.bincount(encoded.codes[:, 0], minlength=len(posterior))
    assert chisquare(counts, posterior * n).pvalue > 1e-3
    expected = np.clip((value - means) / (4 * sds), -1, 1)
    assert_allclose(encoded.values[:, 0], expected[encoded.codes[:, 0]], atol=1e-6)


def test_modes_that_clip_are_not_drawn():
    modes = Mixture(np.array([0.5, 0.5]), np.array([0.0, 3.0]), np.array([1.0, 0.5]))
    x = np.repeat([0.9, 4.5, 6.0], 1000)
    codes = modes.draw(x, np.tile(np.arange(1000) / 1000, 3))
    assert modes.posterior(np.array([0.9]))[0, 1] > 1e-4
    assert not codes[:1000].any()  # 4.2 standard deviations from the second
    assert codes[1000:2000].all()  # 4.5 from the first
    # Six from both: Bayes' rule, by which the narrower one is twice as dense there.
    assert abs(codes[2000:].mean() - 2 / 3) < 0.002


def test_large_tables_are_encoded_in_pieces(monkeypatch, table):

    encoder = ModeEncoder(random_state=0).fit(table)
    whole = encoder.encode(table)
    monkeypatch.setattr("combutab.preprocessing.modes._numbers._POSTERIOR_PIECE", 64)
    pieces = encoder.encode(table)
    assert_array_equal(whole.codes, pieces.codes)
    assert_array_equal(whole.values, pieces.values)


def test_clipping_brings_a_value_to_four_standard_deviations():
    rare = np.r_[np.tile([0.0, 1.0, 2.0], 1000), 1e6]
    encoder = ModeEncoder(n_modes=2, max_rows=50, random_state=0).fit(rare[:, None])
    encoded = encoder.encode(rare[:, None])
    assert encoded.values[-1, 0] == 1.0
    mixture, code = encoder.columns_[0].mixture, encoded.codes[-1, 0]
    unit = 2.0 ** encoder.columns_[0].format.exponent
    decoded = encoder.decode(encoded.values, encoded.codes)
    edge = (mixture.means[code] + 4 * mixture.sds[code]) * unit
    assert decoded[-1, 0] == round(edge) < 1e6
    assert_array_equal(decoded[:-1, 0], rare[:-1])


@pytest.mark.parametrize("many", [np.zeros(5000), np.tile([0.0, 1e-200], 2500)])
def test_a_sample_of_one_value_clips_none(many):
    x = np.r_[many, 1.0, 1000.0]
    encoder = ModeEncoder(max_rows=20, random_state=0).fit(x[:, None])
    encoded = encoder.encode(x[:, None])
    assert_allclose(encoder.decode(encoded.values, encoded.codes)[:, 0], x, rtol=0, atol=1e-4)


def test_light_modes_are_left_out():
    x = np.r_[RNG.normal(0, 1, 980), RNG.normal(50, 1, 20)]
    sample = take_sample(x, 10_000, np.random.default_rng(0))
    kept = {
        least: fit_mixtures([sample], n_modes=4, min_weight=least, n_jobs=None)[0]
        for least in (0.0, 0.1, 0.99)
    }
    assert len(kept[0.0].weights) == 4
    assert (kept[0.1].means < 40).all()
    assert len(kept[0.99].weights) == 1  # the heaviest stays in any case
    for mixture in kept.values():
        assert_allclose(mixture.weights.sum(), 1)


def test_samples_are_bounded_and_fair():
    x = np.repeat([0.0, 1.0, 2.0], [6000, 3000, 1000])
    sample = take_sample(x, 2000, np.random.default_rng(0))
    assert sample.values.shape == (2000,)
    assert sample.range == 2.0
    counts = np.bincount(sample.values.astype(int), minlength=3)
    assert chisquare(counts, [1200, 600, 200]).pvalue > 1e-3
    assert_array_equal(np.sort(take_sample(x, 10_000, np.random.default_rng(0)).values), x)


# ---- random numbers ----------------------------------------------------------------------------


def _state(encoder: ModeEncoder) -> str:
    arrays, meta = encoder.to_state()
    meta = {**meta, "parameters": None}
    return json.dumps([meta, {name: array.tolist() for name, array in arrays.items()}])


def test_a_seed_gives_one_result(table):
    one = ModeEncoder(random_state=7).fit(table)
    assert _state(one) == _state(clone(one).fit(table))
    assert _state(one) == _state(clone(one).set_params(n_jobs=3).fit(table))
    assert _state(one) != _state(clone(one).set_params(random_state=8).fit(table))
    first, second, other = (one.encode(table, random_state=seed) for seed in (1, 1, 2))
    assert_array_equal(first.codes, second.codes)
    assert not np.array_equal(first.codes, other.codes)
    assert_array_equal(one.encode(table).codes, one.encode(table).codes)
    fresh = ModeEncoder().fit(table)
    assert not np.array_equal(fresh.encode(table).codes, fresh.encode(table).codes)


def test_a_column_does_not_depend_on_the_others(table):
    whole = ModeEncoder(random_state=0, max_rows=100).fit(table)
    alone = ModeEncoder(random_state=0, max_rows=100).fit(table[["price"]])
    j = table.columns.get_loc("price")
    assert_array_equal(whole.columns_[j].mixture.means, alone.columns_[0].mixture.means)
    i = next(i for i, span in enumerate(whole.layout_.spans) if span.column == j)
    assert_array_equal(whole.encode(table).codes[:, i], alone.encode(table[["price"]]).codes[:, 0])
