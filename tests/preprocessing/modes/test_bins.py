"""Quantile bins: which values are atoms, where intervals are cut, and back."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from combutab.preprocessing import ModeEncoder
from combutab.preprocessing.modes._numbers import Bins, Sample, _round_between, fit_bins


def fit(x, n_bins=8, min_count=1):
    x = np.asarray(x, dtype=float)
    return fit_bins(Sample(x, float(np.ptp(x)), 0), n_bins, min_count)


def edges(bins):
    wide = bins.sds > 1e-200
    return np.append((bins.means - 4 * bins.sds)[wide], (bins.means + 4 * bins.sds)[wide][-1])


def test_few_values_are_an_atom_each():
    bins = fit([0, 0, 1, 5, 5, 5])
    assert bins.means.tolist() == [0, 1, 5]
    assert_allclose(bins.weights, [2 / 6, 1 / 6, 3 / 6])
    x = np.array([5.0, 0.0, 1.0])
    codes = bins.draw(x, np.empty(0))
    assert codes.tolist() == [2, 0, 1]
    assert bins.scale(x, codes).tolist() == [0, 0, 0]
    assert_array_equal(bins.unscale(np.array([1.0, -1.0, 0.3]), codes), x)


def test_intervals_hold_as_many_rows_but_for_the_tails():
    x = np.random.default_rng(0).lognormal(size=4000)
    bins = fit(x, n_bins=16)
    codes = bins.draw(x, np.empty(0))
    assert_allclose(np.bincount(codes) / 4000, bins.weights)
    inner = bins.weights[5:-5]
    assert_allclose(inner, 1 / 16, atol=0.002)
    # the outermost are halved, to 20 rows at least
    assert 20 <= bins.weights[0] * 4000 < 40
    assert 20 <= bins.weights[-1] * 4000 < 40
    assert bins.weights[-2] == pytest.approx(bins.weights[-1], abs=2 / 4000)
    assert (np.diff(edges(bins)) > 0).all()


def test_a_value_of_many_rows_is_an_atom_between_intervals():
    rng = np.random.default_rng(1)
    x = np.r_[np.zeros(920), rng.normal(50, 9, 80).clip(1)]
    bins = fit(x, n_bins=32, min_count=5)
    assert bins.means[0] == 0
    assert bins.weights[0] == pytest.approx(0.92)
    assert bins.weights[1:].min() * 1000 >= 20  # of the others, each interval
    codes = bins.draw(x, np.empty(0))
    assert (codes[:920] == 0).all()
    assert (codes[920:] > 0).all()
    assert_allclose(bins.unscale(bins.scale(x, codes), codes), x, atol=1e-9)


def test_no_bin_is_of_fewer_rows_and_cuts_are_no_values():
    x = np.random.default_rng(2).normal(size=300).round(3)
    bins = fit(x - x.min(), n_bins=64, min_count=30)
    assert (np.bincount(bins.draw(x - x.min(), np.empty(0))) >= 30).all()
    assert not set(edges(bins)[1:-1]) & set(x - x.min())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(4, 5, 4.5), (0.3, 2.9, 2.0), (100, 200, 128), (0, 1, 0.5), (-3, -1, -2), (-1, 2, 0)],
)
def test_cuts_are_round(low, high, expected):
    assert _round_between(low, high) == expected


def test_values_of_fewer_rows_are_in_no_bin():
    x = np.r_[np.zeros(995), 48151623.0, 1234.5, 77.25]
    bins = fit(x, n_bins=32, min_count=5)
    assert bins.means.tolist() == [0]
    codes = bins.draw(x, np.empty(0))
    assert not codes.any()
    assert not bins.scale(x, codes).any()
    shared = fit(np.r_[np.zeros(900), np.full(8, 2e-9)], n_bins=2, min_count=5)
    assert shared.means.tolist() == [0, 2e-9]  # no interval is of one value


@pytest.mark.parametrize("seed", range(5))
def test_ties_leave_no_interval_of_few_rows(seed):
    rng = np.random.default_rng(seed)
    x = np.repeat(np.cumsum(rng.uniform(1, 2, 400)), rng.choice([1, 2, 18], 400))
    bins = fit(x, n_bins=64, min_count=15)
    assert np.bincount(bins.draw(x, np.empty(0)), minlength=len(bins.means)).min() >= 15


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_every_value_has_a_bin_and_comes_back(values, n_bins, min_count):
    x = np.array(values)
    bins = fit(x, n_bins, min_count)
    codes = bins.draw(x, np.empty(0))
    assert ((codes >= 0) & (codes < len(bins.means))).all()
    counts = np.bincount(codes, minlength=len(bins.means))
    assert counts.min() >= min(min_count, len(x))
    back = bins.unscale(bins.scale(x, codes), codes)
    same = np.isclose(back, x, rtol=1e-9, atol=1e-9 * max(1e-280, np.ptp(x), x.max()))
    assert (~same).sum() < min_count  # those that no bin is of, beside atoms
    assert np.isfinite(np.r_[bins.weights, bins.means, bins.sds]).all()
    assert (np.r_[bins.weights, bins.sds] > 0).all()  # or no file would load


TABLE = pd.DataFrame(
    {
        "amount": np.random.default_rng(0).normal(size=500).round(2),
        "zeros": np.where(np.arange(500) % 10, 0.0, np.arange(500) / 7),
        "count": np.arange(500) % 7,
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(500) % 97, unit="D"),
    }
)
TABLE.loc[::9, "amount"] = np.nan


def test_a_table_comes_back_and_its_encoder_through_json():
    encoder = ModeEncoder(strategy="quantile", n_modes=32, random_state=0).fit(TABLE)
    table = encoder.encode(TABLE)
    pd.testing.assert_frame_equal(encoder.decode(table.values, table.codes), TABLE)
    arrays, meta = encoder.to_state()
    again = ModeEncoder.from_state(arrays, json.loads(json.dumps(meta)))
    assert isinstance(again.columns_[0].mixture, Bins)
    for name in ("values", "codes"):
        assert_array_equal(getattr(again.encode(TABLE), name), getattr(table, name))


def test_whole_numbers_are_rounded_evenly():
    """At a bin's ends as elsewhere: a cut between two whole numbers is halfway."""
    x = np.repeat(np.arange(200), 20)
    encoder = ModeEncoder(strategy="quantile", n_modes=10, random_state=0).fit(x[:, None])
    (column,) = encoder.columns_
    places = np.random.default_rng(0).uniform(-1, 1, 40_000).astype(np.float32)
    codes = np.random.default_rng(1).choice(column.size, 40_000, p=column.mixture.weights)
    made = encoder.decode(places[:, None], codes[:, None])[:, 0]
    counts = np.bincount(made.astype(int), minlength=200)
    assert counts.min() > 120  # of 200 expected
    assert counts.max() < 290
